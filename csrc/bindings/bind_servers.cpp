// The servers an engine can be made of: specifications in Python, native objects once the engine
// owns them.
#include <nanobind/nanobind.h>

#include <stdexcept>

#include "bindings/bind_cuda.h"
#include "bindings/bind_engine.h"
#include "bindings/bind_vocabulary.h"
#include "bindings/python_server.h"
#include "runtime/ngram.h"
#include "runtime/simulated.h"

namespace dsi::py {

namespace nb = nanobind;

namespace {

struct SimulatedSpec {
  Latency latency;
  double acceptance = 0.0;
  std::uint64_t seed = 0;
  std::uint64_t jitter_key = 0;
};

struct NgramSpec {
  int min_ngram = 1;
  int max_ngram = 3;
  int max_drafts = 8;
};

} // namespace

std::unique_ptr<Server> make_server(nb::handle spec, std::uint64_t key, std::int64_t vocab_size) {
  if (nb::isinstance<SimulatedSpec>(spec)) {
    const auto &simulated = nb::cast<const SimulatedSpec &>(spec);
    return std::make_unique<SimulatedServer>(simulated.latency,
                                             SyntheticIds(simulated.seed, simulated.acceptance),
                                             simulated.jitter_key ^ key);
  }
  if (nb::isinstance<NgramSpec>(spec)) {
    const auto &ngram = nb::cast<const NgramSpec &>(spec);
    return std::make_unique<NgramDrafter>(ngram.min_ngram, ngram.max_ngram, ngram.max_drafts);
  }
  if (std::unique_ptr<Server> graphs = graph_server(spec, key, vocab_size)) {
    return graphs;
  }
  if (std::unique_ptr<PythonServer> translated = translated_server(spec)) {
    return translated;
  }
  return std::make_unique<PythonServer>(spec, vocab_size);
}

void bind_servers(nb::module_ &module) {
  nb::class_<SimulatedSpec>(module, "SimulatedServer",
                            "A server that waits instead of computing. Latencies in seconds.")
      .def(
          "__init__",
          [](SimulatedSpec *self, double tpot_s, double ttft_s, double acceptance,
             std::uint64_t seed, double growth, double jitter, bool stoppable) {
            if (!(tpot_s > 0) || !(ttft_s >= 0) || !(growth >= 0) || !(jitter >= 0 && jitter < 1) ||
                !(acceptance >= 0 && acceptance <= 1)) {
              throw std::invalid_argument("SimulatedServer: needs tpot_s > 0, ttft_s >= 0, growth "
                                          ">= 0, 0 <= jitter < 1, 0 <= acceptance <= 1");
            }
            new (self) SimulatedSpec{{static_cast<Nanos>((ttft_s > 0 ? ttft_s : tpot_s) * 1e9),
                                      static_cast<Nanos>(tpot_s * 1e9), growth, jitter, stoppable},
                                     acceptance,
                                     seed,
                                     seed};
          },
          nb::arg("tpot_s"), nb::arg("ttft_s") = 0.0, nb::arg("acceptance") = 0.0,
          nb::arg("seed") = 0, nb::arg("growth") = 0.0, nb::arg("jitter") = 0.0,
          nb::arg("stoppable") = true);
  nb::class_<NgramSpec>(module, "NgramDrafter", "Prompt lookup, in native code.")
      .def(
          "__init__",
          [](NgramSpec *self, int min_ngram, int max_ngram, int max_drafts) {
            const NgramDrafter checked(min_ngram, max_ngram, max_drafts);
            new (self) NgramSpec{min_ngram, max_ngram, max_drafts};
          },
          nb::arg("min_ngram") = 1, nb::arg("max_ngram") = 3, nb::arg("max_drafts") = 8);
}

} // namespace dsi::py
