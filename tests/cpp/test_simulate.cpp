// The virtual clock reports several drafts in one event where nothing acts on the single ones. One
// draft per event, which is what a model of the caller's own gets, has the same result in every
// field.
#include <doctest/doctest.h>

#include <random>
#include <tuple>
#include <vector>

#include "core/plan.h"
#include "core/simulate.h"
#include "support/effort.h"

using namespace dsi;
using namespace dsi::test;

namespace {

using Random = std::mt19937_64;

int pick(Random &random, int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

// Says what the clock's own model says.
class Ids final : public VirtualModel {
public:
  explicit Ids(const Simulation &of)
      : ids_(of.right.has_value() ? SyntheticIds(of.seed, *of.right, of.prompt_tokens)
                                  : SyntheticIds(of.seed, of.acceptance)) {}

  Draft draft(std::span<const Token> path) override {
    return {ids_.draft(static_cast<Position>(path.size())), nullptr};
  }
  std::vector<JudgedRow> judge(std::span<const Token> path, Position first, const Draft *,
                               const Session &) override {
    std::vector<JudgedRow> rows;
    for (Position at = first; at <= static_cast<Position>(path.size()); ++at)
      rows.push_back({ids_.target(at), 0.0F, {}});
    return rows;
  }

private:
  SyntheticIds ids_;
};

Simulation random_simulation(Random &random) {
  Simulation made;
  Policy &policy = made.session.policy;
  policy.mode = pick(random, 3) == 0 ? Mode::kSI : Mode::kDSI;
  policy.lookahead = 1 + pick(random, pick(random, 2) == 0 ? 4 : 40);
  policy.run_ahead = policy.lookahead + pick(random, 50);
  policy.max_window = 1 + pick(random, pick(random, 4) == 0 ? 8 : 100);
  policy.prefill = pick(random, 2) == 0;
  made.session.max_new_tokens = 1 + pick(random, 60);
  made.prompt_tokens = 1 + pick(random, 5);
  if (pick(random, 4) == 0)
    made.session.drafter_context = pick(random, 50);
  if (pick(random, 4) == 0)
    made.session.target_context = made.prompt_tokens + 1 + pick(random, 40);
  made.sp = 1 + pick(random, 8);
  const auto latency = [&](int most) {
    const Nanos tpot = 1 + pick(random, most);
    return Latency{pick(random, 2) == 0 ? tpot : pick(random, 3000), tpot,
                   pick(random, 3) == 0 ? 0.01 * pick(random, 30) : 0.0, 0.0, pick(random, 2) == 0};
  };
  made.target = latency(1000);
  // Round fractions of the target make many events at one instant.
  made.drafter = latency(pick(random, 2) == 0 ? 100 : 1200);
  if (pick(random, 3) == 0)
    made.drafter.tpot = made.drafter.ttft = std::max<Nanos>(1, made.target.tpot / 10);
  if (pick(random, 3) == 0)
    made.target.jitter = 0.01 * pick(random, 60);
  if (pick(random, 6) == 0)
    made.drafter.jitter = 0.01 * pick(random, 60);
  made.seed = random();
  made.acceptance = 0.1 * pick(random, 11);
  made.record = true;
  return made;
}

auto fields(const SpanRecord &span) {
  return std::tuple(span.server, span.kind, span.start, span.end, span.first, span.window,
                    span.fate);
}

auto fields(const CommitRecord &commit) {
  return std::tuple(commit.time, commit.position, commit.kind);
}

template <class Record> auto all(const std::vector<Record> &records) {
  std::vector<decltype(fields(records.front()))> made;
  for (const Record &record : records)
    made.push_back(fields(record));
  return made;
}

auto numbers(const SimulationResult &result) {
  const Metrics &metrics = result.metrics;
  return std::tuple(result.total, result.first_token, result.target_busy, result.drafter_busy,
                    metrics.emitted, metrics.accepted, metrics.rejected, metrics.bonus,
                    metrics.drafted, metrics.drafts_unjudged, metrics.verifies,
                    metrics.wasted_verifies, metrics.stopped_verifies, metrics.failed_verifies,
                    metrics.draft_jobs, metrics.judged_at, metrics.accepted_at);
}

} // namespace

TEST_CASE("virtual clock: several drafts in one event have the result of one draft per event") {
  Random random(71);
  for (int i = 0; i < effort(6'000); ++i) {
    CAPTURE(i);
    Simulation simulation = random_simulation(random);
    const SimulationResult together = simulate(simulation);
    Ids ids(simulation);
    simulation.model = &ids;
    const SimulationResult single = simulate(simulation);
    REQUIRE((numbers(together) == numbers(single)));
    REQUIRE(together.tokens == single.tokens);
    REQUIRE((all(together.record.spans) == all(single.record.spans)));
    REQUIRE((all(together.record.commits) == all(single.record.commits)));
  }
}
