// The law of the text through the whole Session on the virtual clock: Judge, Session and schedule
// together.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/chi_square.h"
#include "support/effort.h"
#include "support/hash_laws.h"

using namespace dsi;
using namespace dsi::test;

namespace {

constexpr Position kPromptTokens = 2; // the virtual clock's prompt is zeros
const std::vector<Token> kZeros(kPromptTokens, 0);

struct Setting {
  std::string name;
  Mode mode = Mode::kDSI;
  int lookahead = 1;
  int sp = 2;
  Nanos target = 100, drafter = 30;
  double jitter = 0.0;
  bool stoppable = true;
};

// Drafts in time, drafts too late (bonus), windows that wait, windows in flight behind a rejection.
const std::vector<Setting> kSettings{
    {"drafts in time", Mode::kDSI, 1, 5, 100, 30},
    {"a drafter slower than the target", Mode::kDSI, 1, 3, 100, 140, 0.3},
    {"lookahead 2, one server", Mode::kDSI, 2, 1, 100, 35, 0.4},
    {"lookahead 3, nothing can be stopped", Mode::kDSI, 3, 4, 100, 20, 0.5, false},
    {"forwards that overtake each other", Mode::kDSI, 1, 8, 100, 60, 0.9, false},
    {"SI", Mode::kSI, 2, 1, 100, 30},
    {"non-SI", Mode::kNonSI, 1, 1, 100, 30},
};

Simulation simulation(const Setting &setting, std::int64_t tokens, LawModel &model,
                      std::uint64_t seed) {
  Simulation made;
  made.session.policy.mode = setting.mode;
  made.session.policy.lookahead = setting.lookahead;
  made.session.max_new_tokens = tokens;
  made.sp = setting.sp;
  made.target = {setting.target, setting.target, 0.0, setting.jitter, setting.stoppable};
  made.drafter = {setting.drafter, setting.drafter, 0.0, setting.jitter, setting.stoppable};
  made.prompt_tokens = kPromptTokens;
  made.seed = seed;
  made.model = &model;
  return made;
}

SamplingParams sampling(Verification verification, std::uint64_t seed) {
  SamplingParams made;
  made.temperature = 1.0F;
  made.verification = verification;
  made.seed = seed;
  return made;
}

struct Sample {
  std::vector<std::int64_t> first_two, first_three, last_two;
  Metrics sum;
};

constexpr std::int64_t kTokens = 5;

Sample draw_many(const Setting &setting, const HashLaws &laws, SamplingParams params, int runs,
                 const decltype(LawModel::claim) &claim = {}) {
  const auto v = static_cast<std::size_t>(laws.vocab_size);
  Sample sample{std::vector<std::int64_t>(v * v),
                std::vector<std::int64_t>(v * v * v),
                std::vector<std::int64_t>(v * v),
                {}};
  for (int run = 0; run < runs; ++run) {
    params.seed = 1000 + static_cast<std::uint64_t>(run);
    LawModel model(laws, params, kPromptTokens);
    model.claim = claim;
    const SimulationResult result =
        simulate(simulation(setting, kTokens, model, 7 * params.seed + 1));
    const auto id = [&](std::size_t i) { return static_cast<std::size_t>(result.tokens[i]); };
    ++sample.first_two[id(0) * v + id(1)];
    ++sample.first_three[(id(0) * v + id(1)) * v + id(2)];
    ++sample.last_two[id(3) * v + id(4)];
    sample.sum.accepted += result.metrics.accepted;
    sample.sum.rejected += result.metrics.rejected;
    sample.sum.bonus += result.metrics.bonus;
  }
  return sample;
}

std::vector<double> last_two_of(const std::vector<double> &joint, int vocab_size) {
  const auto cells = static_cast<std::size_t>(vocab_size * vocab_size);
  std::vector<double> marginal(cells, 0.0);
  for (std::size_t i = 0; i < joint.size(); ++i)
    marginal[i % cells] += joint[i];
  return marginal;
}

void check_law(const Sample &sample, const HashLaws &laws, const SamplingParams &params) {
  CHECK(chi_square_excess(sample.first_two, exact_joint(laws, params, kZeros, 2)) < 3.5);
  CHECK(chi_square_excess(sample.first_three, exact_joint(laws, params, kZeros, 3)) < 3.5);
  const auto joint = exact_joint(laws, params, kZeros, kTokens);
  CHECK(chi_square_excess(sample.last_two, last_two_of(joint, laws.vocab_size)) < 3.5);
}

} // namespace

TEST_CASE("rejection: the joint law of tokens is the target's, in every schedule") {
  const HashLaws laws{5, 5, 1.5, 1.0};
  const SamplingParams params = sampling(Verification::kRejection, 0);
  for (const Setting &setting : kSettings) {
    CAPTURE(setting.name);
    const Sample sample = draw_many(setting, laws, params, effort(15000));
    check_law(sample, laws, params);
    CHECK((sample.sum.rejected > 0) == (setting.mode != Mode::kNonSI));
    CHECK(sample.sum.bonus > 0);
  }
}

TEST_CASE("rejection: cuts, temperature and a penalty that looks at the drafts keep the law") {
  const HashLaws laws{6, 5, 3.0, 2.0};
  SamplingParams params = sampling(Verification::kRejection, 0);
  params.temperature = 0.7F;
  params.top_k = 4;
  params.top_p = 0.95F;
  params.presence_penalty = 0.8F;
  params.logit_bias = {{2, 0.5F}};
  for (const std::size_t index : {0U, 1U, 3U, 4U}) {
    CAPTURE(kSettings[index].name);
    check_law(draw_many(kSettings[index], laws, params, effort(10000)), laws, params);
  }
}

TEST_CASE("the test above sees a drafter that lies about its law") {
  const HashLaws laws{5, 5, 1.5, 1.0};
  const SamplingParams params = sampling(Verification::kRejection, 0);
  DraftLaw five; // e^0 for each
  five.logits.assign(5, 0.0F);
  five.lse = std::log(5.0);
  const auto uniform = std::make_shared<const DraftLaw>(five);
  const Sample sample =
      draw_many(kSettings[0], laws, params, 2000, [&](const Draft &) { return uniform; });
  CHECK(chi_square_excess(sample.first_two, exact_joint(laws, params, kZeros, 2)) > 10.0);
}

TEST_CASE("coupled: the joint law is the target's too") {
  const HashLaws laws{7, 5, 1.5, 1.0};
  const SamplingParams params = sampling(Verification::kCoupled, 0);
  check_law(draw_many(kSettings[0], laws, params, effort(20000)), laws, params);
}

TEST_CASE("coupled: DSI, SI and non-SI say the same, token for token, whatever the schedule") {
  std::uint64_t seed = 0;
  std::int64_t accepted = 0;
  for (int i = 0; i < effort(300); ++i) {
    ++seed;
    const HashLaws laws{seed, 40, 4.0, 1.0};
    SamplingParams params = sampling(Verification::kCoupled, seed);
    params.temperature = i % 3 == 0 ? 0.0F : 0.8F;
    params.top_p = i % 2 == 0 ? 0.9F : 1.0F;
    params.frequency_penalty = i % 5 == 0 ? 0.5F : 0.0F;
    LawModel model(laws, params, kPromptTokens);
    const std::vector<Token> plain = simulate(simulation(kSettings.back(), 30, model, seed)).tokens;
    for (const Setting &setting : kSettings) {
      CAPTURE(setting.name);
      const SimulationResult result = simulate(simulation(setting, 30, model, seed));
      REQUIRE(result.tokens == plain);
      accepted += result.metrics.accepted;
    }
  }
  CHECK(accepted > 0);
}

TEST_CASE("a drafter that is the target is always right") {
  const HashLaws laws{8, 20, 3.0, 0.0};
  for (const Verification verification : {Verification::kCoupled, Verification::kRejection}) {
    for (const Setting &setting : kSettings) {
      CAPTURE(setting.name);
      for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        LawModel model(laws, sampling(verification, seed), kPromptTokens);
        const SimulationResult result = simulate(simulation(setting, 30, model, seed));
        REQUIRE(result.metrics.rejected == 0);
      }
    }
  }
}
