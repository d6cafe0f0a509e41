// The virtual clock of trees of drafts, for Python. Times in seconds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bind_tree.h"
#include "core/simulate_tree.h"

namespace dsi::py {

namespace nb = nanobind;

namespace {

double seconds(Nanos time) { return static_cast<double>(time) * 1e-9; }

nb::tuple span_tuple(const TreeSpan &span) {
  static constexpr const char *kFates[] = {"used", "wasted", "stopped", "failed", "unfinished"};
  return nb::make_tuple(span.drafter, span.server, std::string(1, span.kind), seconds(span.start),
                        seconds(span.end), span.position, kFates[static_cast<int>(span.fate)]);
}

nb::list drafter_dicts(const TreeResult &result) {
  nb::list drafters;
  for (std::size_t j = 0; j < result.metrics.drafters.size(); ++j) {
    const TreeMetrics::Drafter &metrics = result.metrics.drafters[j];
    nb::dict drafter;
    drafter["drafts"] = metrics.drafts;
    drafter["accepted"] = metrics.accepted;
    drafter["stopped"] = metrics.stopped;
    drafter["busy_s"] = seconds(result.drafter_busy[j]);
    drafter["peak_servers"] = result.peak_drafter_servers[j];
    drafter["right"] = result.right[j];
    drafters.append(drafter);
  }
  return drafters;
}

nb::dict run(std::int64_t tokens, const Latency &target, const std::vector<Latency> &drafters,
             const std::vector<double> &acceptance,
             std::optional<std::vector<std::vector<bool>>> right, std::uint64_t seed, int run_ahead,
             std::int64_t max_nodes, bool record) {
  TreeSimulation simulation;
  simulation.tokens = tokens;
  simulation.target = target;
  simulation.drafters = drafters;
  simulation.acceptance = acceptance;
  simulation.right = std::move(right);
  simulation.seed = seed;
  simulation.run_ahead = run_ahead;
  simulation.max_nodes = max_nodes;
  simulation.record = record;
  TreeResult result;
  {
    const nb::gil_scoped_release release;
    result = simulate_tree(simulation);
  }
  nb::dict dict;
  dict["total_s"] = seconds(result.total);
  dict["first_token_s"] = seconds(result.first_token);
  dict["target_busy_s"] = seconds(result.target_busy);
  dict["peak_servers"] = result.peak_target_servers;
  dict["tokens"] = result.tokens;
  dict["own"] = result.metrics.own;
  dict["verifies"] = result.metrics.verifies;
  dict["wasted_verifies"] = result.metrics.wasted_verifies;
  dict["nodes"] = result.metrics.nodes;
  dict["peak_nodes"] = result.metrics.peak_nodes;
  dict["crowded"] = result.metrics.crowded;
  dict["drafters"] = drafter_dicts(result);
  nb::list spans;
  for (const TreeSpan &span : result.spans) {
    spans.append(span_tuple(span));
  }
  dict["spans"] = spans;
  return dict;
}

} // namespace

void bind_tree(nb::module_ &module) {
  module.def("simulate_tree", &run, nb::arg("tokens"), nb::arg("target"), nb::arg("drafters"),
             nb::arg("acceptance"), nb::arg("right").none() = nb::none(), nb::arg("seed") = 0,
             nb::arg("run_ahead") = 64, nb::arg("max_nodes") = 4096, nb::arg("record") = false);
}

} // namespace dsi::py
