// The law of the text through trees of drafts: Judge, TreeSession and schedule together.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/chi_square.h"
#include "support/effort.h"
#include "support/tree_laws.h"

using namespace dsi;
using namespace dsi::test;

namespace {

constexpr Position kPromptTokens = 2; // the virtual clock's prompt is zeros
const std::vector<Token> kZeros(kPromptTokens, 0);

struct Setting {
  std::string name;
  std::vector<Nanos> drafters;
  std::vector<double> differences;
  double jitter = 0.0;
  bool stoppable = true;
  int run_ahead = 16;
  std::int64_t max_nodes = 4096;
};

const std::vector<Setting> kSettings{
    {"one drafter", {30}, {1.0}},
    {"two drafters", {25, 60}, {2.0, 0.7}},
    {"three drafters, one too late", {30, 60, 140}, {2.0, 1.0, 0.5}},
    {"verdicts that overtake each other", {30, 60}, {1.0, 1.0}, 0.9},
    {"nothing can be stopped", {40, 60}, {2.0, 1.0}, 0.5, false},
    {"hardly any node", {20, 50}, {1.0, 1.0}, 0.3, true, 2, 4},
};

TreeSimulation simulation(const Setting &setting, std::int64_t tokens, LawTree &model,
                          std::uint64_t seed) {
  TreeSimulation made;
  made.tokens = tokens;
  made.prompt_tokens = kPromptTokens;
  made.target = {100, 100, 0.0, setting.jitter, setting.stoppable};
  for (const Nanos time : setting.drafters)
    made.drafters.push_back({time, time, 0.0, setting.jitter, setting.stoppable});
  made.seed = seed;
  made.run_ahead = setting.run_ahead;
  made.max_nodes = setting.max_nodes;
  made.model = &model;
  return made;
}

SamplingParams sampling(std::uint64_t seed) {
  SamplingParams made;
  made.temperature = 1.0F;
  made.seed = seed;
  return made;
}

std::vector<Token> non_si_text(const HashLaws &laws, const SamplingParams &params,
                               std::int64_t tokens) {
  LawModel model(laws, params, kPromptTokens);
  Simulation plain;
  plain.session.policy.mode = Mode::kNonSI;
  plain.session.max_new_tokens = tokens;
  plain.target = plain.drafter = {100, 100};
  plain.prompt_tokens = kPromptTokens;
  plain.model = &model;
  return simulate(plain).tokens;
}

} // namespace

TEST_CASE("tree, coupled: what non-SI says with the same seed, token for token") {
  std::vector<std::int64_t> accepted(3);
  std::int64_t own = 0;
  for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(effort(400)); ++seed) {
    const HashLaws laws{seed, 3 + static_cast<int>(seed % 3), 2.0};
    SamplingParams params = sampling(seed);
    params.temperature = seed % 4 == 0 ? 0.0F : 1.0F;
    params.top_p = seed % 3 == 0 ? 0.9F : 1.0F;
    params.frequency_penalty = seed % 5 == 0 ? 0.5F : 0.0F;
    const std::vector<Token> plain = non_si_text(laws, params, 12);
    for (const Setting &setting : kSettings) {
      CAPTURE(seed);
      CAPTURE(setting.name);
      LawTree model(laws, setting.differences, params, kPromptTokens);
      const TreeResult result = simulate_tree(simulation(setting, 12, model, seed));
      REQUIRE(result.tokens == plain);
      own += result.metrics.own;
      for (std::size_t j = 0; j < setting.drafters.size(); ++j)
        accepted[j] += result.metrics.drafters[j].accepted;
    }
  }
  CHECK(own > 0);
  CHECK(accepted[0] > 0);
  CHECK(accepted[1] > 0);
}

TEST_CASE("tree, coupled: the joint law of the tokens is the target's") {
  const HashLaws laws{9, 4, 1.5};
  const SamplingParams exact = sampling(0);
  const auto joint = exact_joint(laws, exact, kZeros, 4);
  for (const std::size_t index : {2U, 3U, 5U}) {
    const Setting &setting = kSettings[index];
    CAPTURE(setting.name);
    std::vector<std::int64_t> counts(joint.size());
    for (int run = 0; run < effort(8000); ++run) {
      const SamplingParams params = sampling(5000 + static_cast<std::uint64_t>(run));
      LawTree model(laws, setting.differences, params, kPromptTokens);
      std::size_t cell = 0;
      for (const Token token : simulate_tree(simulation(setting, 4, model, params.seed)).tokens)
        cell = cell * 4 + static_cast<std::size_t>(token);
      ++counts[cell];
    }
    CHECK(chi_square_excess(counts, joint) < 3.5);
    const HashLaws other{10, 4, 1.5};
    CHECK(chi_square_excess(counts, exact_joint(other, exact, kZeros, 4)) > 10.0);
  }
}
