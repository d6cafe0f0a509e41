// The law of the text once more, through real threads: the engine, the Judge on its workers, and a
// draft for the frontier that is asked for while the drafter runs.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "runtime/engine.h"
#include "support/chi_square.h"
#include "support/effort.h"
#include "support/servers.h"

using namespace dsi;
using namespace dsi::test;

namespace {

constexpr Nanos kUs = 1'000;

// A target, or a drafter that sends up to two drafts at once.
class LawServer final : public Server {
public:
  LawServer(const HashLaws &laws, Nanos forward_ns) : laws_(laws), forward_ns_(forward_ns) {}

  Outcome run(Job &job) override {
    wait_.until(now_ns() + forward_ns_, [] { return false; });
    if (job.kind == JobKind::kVerify)
      return judge_rows(judge_, job, laws_);
    Outcome outcome;
    Job next;
    next.kind = JobKind::kDraft;
    next.request = job.request;
    TokenSequence path(job.tokens);
    for (int i = 0; i < std::min(job.max_drafts, 2); ++i) {
      next.tokens = path.prefix(path.size());
      next.length = static_cast<Position>(path.size());
      outcome.drafts.push_back(draft_row(judge_, next, laws_));
      path.push_back(outcome.drafts.back().id);
    }
    return outcome;
  }

private:
  HashLaws laws_;
  Nanos forward_ns_;
  PreciseWait wait_;
  Judge judge_;
};

Engine::Config pool(int sp, const HashLaws &laws, Nanos target_ns, Nanos drafter_ns) {
  Engine::Config config;
  for (int i = 0; i < sp; ++i)
    config.targets.push_back(std::make_unique<LawServer>(laws, target_ns));
  config.drafter = std::make_unique<LawServer>(laws, drafter_ns);
  config.max_running = 4;
  return config;
}

RequestSpec law_request(Mode mode, Verification verification, std::uint64_t seed,
                        std::int64_t tokens) {
  RequestSpec spec = request({0, 0}, mode, 1, tokens);
  spec.sampling.temperature = 1.0F;
  spec.sampling.verification = verification;
  spec.sampling.seed = seed;
  return spec;
}

} // namespace

TEST_CASE("rejection through real threads: the joint law of three tokens is the target's") {
  const HashLaws laws{51, 5, 1.5, 1.0};
  const SamplingParams params = law_request(Mode::kDSI, Verification::kRejection, 0, 4).sampling;
  // No forward time at all, and a drafter as slow as the target: drafts come early, late and at the
  // same time.
  for (const Nanos forward : {0 * kUs, 20 * kUs}) {
    Engine engine(pool(3, laws, forward, forward));
    std::vector<std::int64_t> counts(125);
    Metrics sum;
    std::vector<Ticket> tickets;
    const int runs = effort(6000);
    for (int run = 0; run < runs; ++run) {
      tickets.push_back(engine.submit(law_request(Mode::kDSI, Verification::kRejection,
                                                  5000 + static_cast<std::uint64_t>(run), 4)));
      if (tickets.size() < 8 && run + 1 < runs)
        continue;
      for (const Ticket &ticket : tickets) {
        const Reading reading = read_all(ticket);
        REQUIRE(reading.in_time);
        REQUIRE(reading.tokens.size() == 4);
        ++counts[static_cast<std::size_t>((reading.tokens[0] * 5 + reading.tokens[1]) * 5 +
                                          reading.tokens[2])];
        sum.accepted += reading.ending.metrics.accepted;
        sum.rejected += reading.ending.metrics.rejected;
        sum.bonus += reading.ending.metrics.bonus;
      }
      tickets.clear();
    }
    // Which draws are taken depends on timing, so the sample differs from run to run: 1 in 300,000
    // fails by chance.
    CHECK(chi_square_excess(counts, exact_joint(laws, params, {0, 0}, 3)) < 4.5);
    CHECK(sum.accepted > 0);
    CHECK(sum.rejected > 0);
    CHECK(sum.bonus > 0);
  }
}

TEST_CASE(
    "coupled through real threads: every mode says what non-SI says, and a copy is always right") {
  const HashLaws laws{52, 40, 4.0, 1.0};
  Engine engine(pool(3, laws, 20 * kUs, 10 * kUs));
  for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(effort(100)); ++seed) {
    const Reading plain =
        read_all(engine.submit(law_request(Mode::kNonSI, Verification::kCoupled, seed, 30)));
    const Ticket dsi = engine.submit(law_request(Mode::kDSI, Verification::kCoupled, seed, 30));
    const Ticket si = engine.submit(law_request(Mode::kSI, Verification::kCoupled, seed, 30));
    REQUIRE(plain.tokens.size() == 30);
    CHECK(read_all(dsi).tokens == plain.tokens);
    CHECK(read_all(si).tokens == plain.tokens);
  }
  HashLaws copy = laws;
  copy.difference = 0.0;
  Engine twins(pool(3, copy, 20 * kUs, 10 * kUs));
  std::int64_t accepted = 0;
  for (const Verification verification : {Verification::kCoupled, Verification::kRejection}) {
    for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(effort(100)); ++seed) {
      const Reading reading =
          read_all(twins.submit(law_request(Mode::kDSI, verification, seed, 30)));
      REQUIRE(reading.in_time);
      CHECK(reading.ending.metrics.rejected == 0);
      accepted += reading.ending.metrics.accepted;
    }
  }
  CHECK(accepted > 0);
}
