// From rows of logits to judged rows: what is judged, with which prefix, and what an error costs.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "core/rng.h"
#include "runtime/judge.h"
#include "support/hash_laws.h"

using namespace dsi;
using namespace dsi::test;

namespace {

constexpr int kVocab = 6;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Rows whose best id is given; the others are 0.
std::vector<float> best(std::initializer_list<Token> ids, float height = 9.0F) {
  std::vector<float> logits(ids.size() * kVocab, 0.0F);
  std::size_t row = 0;
  for (const Token id : ids)
    logits[row++ * kVocab + static_cast<std::size_t>(id)] = height;
  return logits;
}

struct VerifyJob : Job {
  VerifyJob(std::vector<Token> path, Position first_row, const SamplingParams &sampling = {},
            Position prompt_tokens = 2) {
    auto context = std::make_shared<RequestContext>();
    context->prompt_tokens = prompt_tokens;
    context->sampling = sampling;
    request = std::move(context);
    tokens = std::move(path);
    length = static_cast<Position>(tokens.size());
    first = first_row;
    laws.resize(static_cast<std::size_t>(length - first));
  }
};

Outcome judge(const Job &job, const std::vector<float> &logits, RowHook *hook = nullptr) {
  return Judge().verify(job, {logits.data(), job.length - job.first + 1, kVocab}, hook);
}

std::vector<Token> tokens_of(const Outcome &outcome) {
  std::vector<Token> tokens;
  for (const JudgedRow &row : outcome.rows)
    tokens.push_back(row.token);
  return tokens;
}

class Recorder final : public RowHook {
public:
  std::vector<std::vector<Token>> prefixes;
  int throw_at = -1;
  Token forbid = -1;
  void apply(std::span<const Token> prefix, std::span<float> row) override {
    if (static_cast<int>(prefixes.size()) == throw_at)
      throw std::runtime_error("the hook broke");
    prefixes.emplace_back(prefix.begin(), prefix.end());
    if (forbid >= 0)
      row[static_cast<std::size_t>(forbid)] = -std::numeric_limits<float>::infinity();
  }
};

using Tokens = std::vector<Token>;

} // namespace

TEST_CASE("rows are judged up to the first mismatch, and the frontier behind an agreed window") {
  const std::vector<float> logits = best({3, 4, 5});
  CHECK(tokens_of(judge(VerifyJob({1, 2, 3, 4}, 2), logits)) == Tokens{3, 4, 5});
  CHECK(tokens_of(judge(VerifyJob({1, 2, 3, 0}, 2), logits)) == Tokens{3, 4});
  CHECK(tokens_of(judge(VerifyJob({1, 2, 0, 4}, 2), logits)) == Tokens{3});
  CHECK(tokens_of(judge(VerifyJob({1, 2}, 2), best({5}))) == Tokens{5}); // the empty window
}

TEST_CASE("a hook sees only rows whose prefix the target agreed with, each with its own") {
  Recorder hook;
  judge(VerifyJob({1, 2, 3, 4}, 2), best({3, 0, 5}), &hook);
  CHECK(hook.prefixes == std::vector<Tokens>{{1, 2}, {1, 2, 3}});
  Recorder forbids;
  forbids.forbid = 3;
  CHECK(tokens_of(judge(VerifyJob({1, 2, 3, 4}, 2), best({3, 0, 5}), &forbids)) == Tokens{0});
  CHECK(forbids.prefixes.size() == 1);
}

TEST_CASE("a row that cannot be judged fails the first time only; later it ends the rows") {
  std::vector<float> logits = best({3, 4, 5});
  logits[kVocab + 2] = kNaN;
  const Outcome later = judge(VerifyJob({1, 2, 3, 4}, 2), logits);
  CHECK(later.kind == Outcome::Kind::kDone);
  CHECK(tokens_of(later) == Tokens{3});
  logits[1] = kNaN;
  const Outcome first = judge(VerifyJob({1, 2, 3, 4}, 2), logits);
  CHECK(first.kind == Outcome::Kind::kFailed);
  CHECK(first.rows.empty());
  CHECK_FALSE(first.blames_server);
  CHECK(first.error.message ==
        "the target's logits for position 2 cannot be drawn from: the row of logits holds NaN");
  // Behind a mismatch nobody looks.
  CHECK(tokens_of(judge(VerifyJob({1, 2, 0, 4}, 2), best({3, 4, 5}))) == Tokens{3});
  const std::vector<float> nothing(kVocab, -std::numeric_limits<float>::infinity());
  CHECK(judge(VerifyJob({1, 2}, 2), nothing).error.message.find("-inf") != std::string::npos);
}

TEST_CASE("a hook that throws fails the first row and only ends the rows later") {
  Recorder hook;
  hook.throw_at = 0;
  CHECK_THROWS_WITH(judge(VerifyJob({1, 2, 3, 4}, 2), best({3, 4, 5}), &hook), "the hook broke");
  hook.throw_at = 1;
  CHECK(tokens_of(judge(VerifyJob({1, 2, 3, 4}, 2), best({3, 4, 5}), &hook)) == Tokens{3});
}

TEST_CASE("edits of a row know the drafts before it") {
  SamplingParams sampling;
  sampling.presence_penalty = 20.0F; // nothing generated may come again
  std::vector<float> logits = best({3, 3, 3});
  logits[kVocab + 4] = 8.0F; // the second choices
  logits[2 * kVocab + 4] = 8.0F;
  logits[2 * kVocab + 5] = 7.0F;
  CHECK(tokens_of(judge(VerifyJob({1, 2, 3, 4}, 2, sampling), logits)) == Tokens{3, 4, 5});
  // In the prompt the same tokens do not count.
  CHECK(tokens_of(judge(VerifyJob({1, 2, 3, 4}, 2, sampling, 4), logits)) == Tokens{3, 3});

  SamplingParams no_stop;
  no_stop.stop_ids = {3};
  no_stop.min_new_tokens = 2;
  CHECK(tokens_of(judge(VerifyJob({1, 2, 4, 4}, 2, no_stop), logits)) == Tokens{0});
  std::vector<float> late = best({4, 4, 3});
  CHECK(tokens_of(judge(VerifyJob({1, 2, 4, 4}, 2, no_stop), late)) == Tokens{4, 4, 3});
  late = best({4, 3, 3});
  CHECK(tokens_of(judge(VerifyJob({1, 2, 4, 4}, 2, no_stop), late)) == Tokens{4, 0});
}

TEST_CASE("log probabilities are of the emitted token, and only where asked for") {
  SamplingParams sampling;
  const std::vector<float> logits{0.0F, 0.0F, 0.0F, 1.0F, 0.0F, 2.0F};
  JudgedRow row = judge(VerifyJob({1, 2}, 2, sampling), logits).rows.front();
  CHECK(row.logprob == 0.0F);
  CHECK(row.top.empty());
  sampling.logprobs = 2;
  row = judge(VerifyJob({1, 2}, 2, sampling), logits).rows.front();
  const double sum = 4.0 + std::exp(1.0) + std::exp(2.0);
  CHECK(row.token == 5);
  CHECK(row.logprob == doctest::Approx(2.0 - std::log(sum)));
  REQUIRE(row.top.size() == 2);
  CHECK(row.top[1].first == 3);
  CHECK(row.top[1].second == doctest::Approx(1.0 - std::log(sum)));
}

TEST_CASE(
    "rejection: the frontier draft is asked for once, late, and only behind an agreed window") {
  SamplingParams sampling;
  sampling.temperature = 1.0F;
  sampling.verification = Verification::kRejection;
  const std::vector<float> logits = best({3, 4, 5}, 60.0F); // all but certain
  int asked = 0;
  std::optional<Draft> frontier;
  const auto with_frontier = [&](std::vector<Token> path) {
    VerifyJob job(std::move(path), 2, sampling);
    job.frontier = [&] {
      ++asked;
      return frontier;
    };
    return judge(job, logits);
  };
  CHECK(tokens_of(with_frontier({1, 2, 0, 4})) == Tokens{3});
  CHECK(asked == 0);
  Outcome outcome = with_frontier({1, 2, 3, 4});
  CHECK(tokens_of(outcome) == Tokens{3, 4, 5});
  CHECK(asked == 1);
  CHECK_FALSE(outcome.rows[0].bonus);
  CHECK(outcome.rows[2].bonus);
  frontier = Draft{2, nullptr};
  outcome = with_frontier({1, 2, 3, 4});
  CHECK(outcome.rows[2].token == 5); // the correction
  CHECK_FALSE(outcome.rows[2].bonus);
}

TEST_CASE("coupled: a row says the same in whatever window it is judged") {
  const HashLaws laws{61, 50, 4.0, 1.0};
  SamplingParams sampling;
  sampling.temperature = 0.8F;
  sampling.top_p = 0.95F;
  sampling.repetition_penalty = 1.2F;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    sampling.seed = seed;
    Judge judge;
    std::vector<Token> path{1, 2};
    for (int i = 0; i < 12; ++i)
      path.push_back(
          judge_rows(judge, VerifyJob(path, static_cast<Position>(path.size()), sampling), laws)
              .rows.at(0)
              .token);
    for (Position first = 2; first <= 14; ++first) {
      const Outcome outcome = judge_rows(judge, VerifyJob(path, first, sampling), laws);
      REQUIRE(outcome.rows.size() == static_cast<std::size_t>(15 - first));
      for (Position at = first; at < 14; ++at)
        CHECK(outcome.rows[static_cast<std::size_t>(at - first)].token ==
              path[static_cast<std::size_t>(at)]);
    }
  }
}

TEST_CASE("a draft carries its law only where rejection needs it") {
  const HashLaws laws{62, 20, 3.0, 1.0};
  SamplingParams sampling;
  sampling.temperature = 0.7F;
  sampling.top_k = 5;
  Judge judge;
  CHECK(draft_row(judge, VerifyJob({1, 2}, 2, sampling), laws).law == nullptr);
  sampling.verification = Verification::kRejection;
  const Draft draft = draft_row(judge, VerifyJob({1, 2}, 2, sampling), laws);
  REQUIRE(draft.law != nullptr);
  std::vector<double> q;
  for (const float logit : draft.law->logits) {
    const float z = logit / draft.law->temperature;
    q.push_back(z >= draft.law->cut ? std::exp(static_cast<double>(z) - draft.law->lse) : 0.0);
  }
  CHECK(std::accumulate(q.begin(), q.end(), 0.0) == doctest::Approx(1.0));
  CHECK(std::count_if(q.begin(), q.end(), [](double p) { return p > 0.0; }) == 5);
  CHECK(q[static_cast<std::size_t>(draft.id)] > 0.0);
  sampling.temperature = 0.0F;
  CHECK(draft_row(judge, VerifyJob({1, 2}, 2, sampling), laws).law == nullptr); // a point mass

  const std::vector<float> broken(20, kNaN);
  const Outcome outcome = judge.draft(VerifyJob({1, 2}, 2, sampling), broken, nullptr);
  CHECK(outcome.kind == Outcome::Kind::kFailed);
  CHECK(outcome.error.message ==
        "the drafter's logits for position 2 cannot be drawn from: the row of logits holds NaN");
}
