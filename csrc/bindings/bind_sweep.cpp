// The sweep of Figure 2 for Python: a loop of stretches, between which Python may show how far it
// is, and end it. Times in target forwards, budgets in seconds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "bindings/bind_engine.h"
#include "bindings/interpreter.h"
#include "runtime/sweep.h"

namespace dsi::py {

namespace {

nb::list cells(const Sweep &sweep) {
  nb::list rows;
  for (const SweepCell &cell : sweep.cells()) {
    rows.append(
        nb::make_tuple(cell.non_si, cell.si, cell.dsi, cell.si_lookahead, cell.dsi_lookahead));
  }
  return rows;
}

} // namespace

void bind_sweep(nb::module_ &module) {
  nb::class_<Sweep>(module, "Sweep",
                    "non-SI, SI and DSI at their best lookaheads over a grid, on several cores.")
      .def(
          "__init__",
          [](Sweep *self, std::vector<double> drafter_latencies, std::vector<double> acceptances,
             int max_lookahead, int sp, std::int64_t tokens, int repeats, std::uint64_t seed,
             bool equation_1, int threads) {
            new (self) Sweep({std::move(drafter_latencies), std::move(acceptances), max_lookahead,
                              sp, tokens, repeats, seed, equation_1},
                             threads);
          },
          nb::arg("drafter_latencies"), nb::arg("acceptances"), nb::arg("max_lookahead"),
          nb::arg("sp"), nb::arg("tokens"), nb::arg("repeats"), nb::arg("seed"),
          nb::arg("equation_1"), nb::arg("threads"))
      .def(
          "advance",
          [](Sweep &self, double budget_s) {
            const NativeSection section;
            return self.advance(static_cast<Nanos>(std::llround(budget_s * 1e9)));
          },
          nb::arg("budget_s"),
          "Works for about that long without the GIL; True when all is done. Between two calls "
          "nothing runs.")
      .def_prop_ro("total", &Sweep::total)
      .def_prop_ro("done", &Sweep::done)
      .def_prop_ro("forwards", &Sweep::forwards)
      .def("cells", &cells,
           "(non_si, si, dsi, si_lookahead, dsi_lookahead) each, the acceptance fastest.");
}

} // namespace dsi::py
