// Plan and virtual clock for Python. Latencies in seconds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "bindings/bind_engine.h"
#include "core/plan.h"
#include "core/simulate.h"

namespace dsi::py {

namespace nb = nanobind;

namespace {

Nanos nanos(double seconds) { return static_cast<Nanos>(std::llround(seconds * 1e9)); }

nb::dict run(const Policy &policy, int sp, std::int64_t tokens, const Latency &target,
             const Latency &drafter, double acceptance, std::optional<std::vector<bool>> right,
             std::uint64_t seed, bool record) {
  Simulation simulation;
  simulation.session.policy = policy;
  simulation.session.max_new_tokens = tokens;
  simulation.sp = sp;
  simulation.target = target;
  simulation.drafter = drafter;
  simulation.acceptance = acceptance;
  simulation.right = std::move(right);
  simulation.seed = seed;
  simulation.record = record;
  SimulationResult result;
  {
    const nb::gil_scoped_release release;
    result = simulate(simulation);
  }
  nb::dict dict = metrics_dict(result.metrics);
  dict["total_s"] = static_cast<double>(result.total) * 1e-9;
  dict["first_token_s"] = static_cast<double>(result.first_token) * 1e-9;
  dict["target_busy_s"] = static_cast<double>(result.target_busy) * 1e-9;
  dict["drafter_busy_s"] = static_cast<double>(result.drafter_busy) * 1e-9;
  dict["tokens"] = result.tokens;
  add_record(dict, result.record);
  return dict;
}

} // namespace

void add_record(nb::dict &dict, const RunRecord &record) {
  static constexpr const char *kFates[] = {"used", "wasted", "stopped", "failed", "unfinished"};
  const auto seconds = [](Nanos time) { return static_cast<double>(time) * 1e-9; };
  nb::list spans;
  for (const SpanRecord &span : record.spans) {
    spans.append(nb::make_tuple(span.server, std::string(1, span.kind), seconds(span.start),
                                seconds(span.end), span.first, span.window,
                                kFates[static_cast<int>(span.fate)]));
  }
  dict["origin_s"] = seconds(record.origin);
  dict["spans"] = spans;
  nb::list commits;
  for (const CommitRecord &commit : record.commits) {
    commits.append(
        nb::make_tuple(seconds(commit.time), commit.position, std::string(1, commit.kind)));
  }
  dict["commits"] = commits;
}

void bind_simulate(nb::module_ &module) {
  nb::class_<Latency>(module, "Latency", "How long a simulated forward takes, in seconds.")
      .def(
          "__init__",
          [](Latency *self, double tpot_s, double ttft_s, double growth, double jitter,
             bool stoppable) {
            const double first = ttft_s > 0 ? ttft_s : tpot_s;
            new (self) Latency{nanos(first), nanos(tpot_s), growth, jitter, stoppable};
          },
          nb::arg("tpot_s"), nb::arg("ttft_s") = 0.0, nb::arg("growth") = 0.0,
          nb::arg("jitter") = 0.0, nb::arg("stoppable") = true);
  module.def("simulate", &run, nb::arg("policy"), nb::arg("sp"), nb::arg("tokens"),
             nb::arg("target"), nb::arg("drafter"), nb::arg("acceptance") = 0.0,
             nb::arg("right").none() = nb::none(), nb::arg("seed") = 0, nb::arg("record") = false);
  nb::class_<PlanRow>(module, "PlanRow")
      .def_ro("mode", &PlanRow::mode)
      .def_ro("lookahead", &PlanRow::lookahead)
      .def_ro("sp", &PlanRow::sp)
      .def_ro("ms_per_token", &PlanRow::ms_per_token)
      .def_ro("speedup", &PlanRow::speedup);
  module.def(
      "plan",
      [](double target_ms, double drafter_ms, double acceptance, int sp, int max_lookahead) {
        return plan({target_ms, drafter_ms, acceptance, sp, max_lookahead});
      },
      nb::arg("target_ms"), nb::arg("drafter_ms"), nb::arg("acceptance"), nb::arg("sp") = 1,
      nb::arg("max_lookahead") = 200);
  module.def("least_lookahead", &least_lookahead, nb::arg("target_ms"), nb::arg("drafter_ms"),
             nb::arg("sp"));
  module.def("most_useful_sp", &most_useful_sp, nb::arg("target_ms"), nb::arg("drafter_ms"));
  module.def("default_run_ahead", &default_run_ahead, nb::arg("target_ms"), nb::arg("drafter_ms"),
             nb::arg("lookahead"), nb::arg("sp"));
}

} // namespace dsi::py
