// The rejection rule: joint laws of draft and token, and the faults that others have shipped.
#include "support/effort.h"
#include "support/laws.h"

using namespace dsi;
using namespace dsi::laws;

namespace {

// Cell (draft, out) of rejection sampling: q(x) min(1, p(x)/q(x)) on the diagonal, and what is left
// of q(x) spread as max(p - q, 0).
Doubles joint_of_rejection(const Doubles &p, const Doubles &q) {
  const std::size_t size = p.size();
  Doubles residual(size);
  for (std::size_t y = 0; y < size; ++y)
    residual[y] = std::max(p[y] - q[y], 0.0);
  const double total = std::accumulate(residual.begin(), residual.end(), 0.0);
  Doubles joint(size * size, 0.0);
  for (std::size_t x = 0; x < size; ++x) {
    joint[x * size + x] += std::min(p[x], q[x]);
    for (std::size_t y = 0; y < size && total > 0.0; ++y)
      joint[x * size + y] += (q[x] - std::min(p[x], q[x])) * residual[y] / total;
  }
  return joint;
}

} // namespace

TEST_CASE("rejection: draft and token follow the joint law, the token alone follows p") {
  const Doubles p = {0.35, 0.25, 0.2, 0.15, 0.05};
  const std::vector<std::pair<Doubles, Doubles>> cases = {
      {p, {0.1, 0.2, 0.3, 0.1, 0.3}},                         // plain
      {p, {0.0, 0.5, 0.0, 0.5, 0.0}},                         // q has zeros
      {p, {0.0, 0.0, 1.0, 0.0, 0.0}},                         // one-hot
      {{0.5, 0.0, 0.3, 0.2, 0.0}, {0.2, 0.3, 0.1, 0.1, 0.3}}, // p has zeros
      {{0.0, 0.0, 1.0, 0.0, 0.0}, {0.2, 0.2, 0.2, 0.2, 0.2}}, // p is one-hot
      {{0.5, 0.5, 0.0, 0.0, 0.0}, {0.0, 0.0, 0.4, 0.3, 0.3}}, // nothing in common
  };
  for (const auto &[target, drafter] : cases) {
    OwnedLaw target_law = law_of(target);
    OwnedLaw draft_law = law_of(drafter);
    const auto q = travelling(draft_law);
    constexpr int kSamples = test::effort(30'000);
    Doubles joint(25, 0.0);
    Doubles out(5, 0.0);
    double kept = 0.0;
    for (Position at = 0; at < kSamples; ++at) {
      const Token draft = draft_law.draw(kSeed, at, kDraftNoise);
      const Token token = target_law.judge_rejection({draft, q}, kSeed, at);
      joint.at(static_cast<std::size_t>(draft * 5 + token)) += 1.0;
      out.at(static_cast<std::size_t>(token)) += 1.0;
      kept += draft == token ? 1.0 : 0.0;
    }
    const Doubles expected = joint_of_rejection(target, drafter);
    CHECK(within_sigmas(kept, kSamples, overlap(target, drafter), 4.0));
    CHECK(chi_square_sigmas(joint, expected) < 4.0);
    if (target[2] < 1.0)
      CHECK(chi_square_sigmas(out, target) < 4.0);
    else
      CHECK(out[2] == kSamples);
  }
}

TEST_CASE("rejection with cuts on both sides: what the target cut never comes out") {
  const std::vector<float> target_row = {0.9F, 2.0F, 1.0F, 1.5F, -1.0F};
  SamplingParams target_params = at_temperature(0.7F);
  target_params.top_k = 3;
  OwnedLaw target = law_of_logits(target_row, target_params);
  SamplingParams draft_params = at_temperature(1.3F);
  draft_params.top_p = 0.8F;
  OwnedLaw drafter = law_of_logits({-0.5F, 0.6F, 1.2F, 0.1F, 1.0F}, draft_params);
  const auto q = travelling(drafter);
  REQUIRE_FALSE(drafter.kept(0)); // cut by both, though nearly as likely as 2 in the target
  REQUIRE(drafter.kept(4));       // cut by the target only
  Doubles p = {0.0, 0.0, 0.0, 0.0, 0.0};
  double total = 0.0;
  for (const std::size_t x : {1U, 2U, 3U})
    total += p[x] = std::exp(static_cast<double>(target_row[x]) / 0.7);
  for (double &x : p)
    x /= total;
  const Doubles seen = histogram(5, test::effort(25'000), [&](Position at) {
    return target.judge_rejection({drafter.draw(kSeed, at, kDraftNoise), q}, kSeed, at);
  });
  CHECK(chi_square_sigmas(seen, p) < 4.0);
}

TEST_CASE("rejection over a vocabulary of more than one chunk") {
  const Doubles p = random_law(4'200, 2.0F, 5);
  const Doubles q = random_law(4'200, 2.0F, 6);
  OwnedLaw target = law_of(p);
  OwnedLaw drafter = law_of(q);
  const auto law = travelling(drafter);
  constexpr int kSamples = 1'500;
  double kept = 0.0;
  const Doubles seen = histogram(p.size(), kSamples, [&](Position at) {
    const Token draft = drafter.draw(kSeed, at, kDraftNoise);
    const Token token = target.judge_rejection({draft, law}, kSeed, at);
    kept += token == draft ? 1.0 : 0.0;
    return token;
  });
  CHECK(within_sigmas(kept, kSamples, overlap(p, q), 4.0));
  CHECK(chi_square_sigmas(seen, p) < 4.0);
}

TEST_CASE("rejection of a point mass: kept with p(x), else p without x; like a one-hot law") {
  const Doubles p = {0.35, 0.25, 0.2, 0.15, 0.05};
  OwnedLaw target = law_of(p);
  for (Token draft = 0; draft < 5; ++draft) {
    Doubles one_hot(5, 0.0);
    one_hot[static_cast<std::size_t>(draft)] = 1.0;
    const auto law = travelling(one_hot);
    int different = 0;
    const Doubles seen = histogram(5, test::effort(25'000), [&](Position at) {
      const Token token = target.judge_rejection({draft, nullptr}, kSeed, at);
      different += token != target.judge_rejection({draft, law}, kSeed, at) ? 1 : 0;
      return token;
    });
    CHECK(different == 0);
    CHECK(chi_square_sigmas(seen, p) < 4.0);
  }
}

TEST_CASE("rejection: a drafter that equals the target is never rejected") {
  const Doubles p = random_law(300, 3.0F, 9);
  OwnedLaw law = law_of(p);
  const auto q = travelling(law);
  for (Position at = 0; at < 2'000; ++at) {
    const Token draft = law.draw(kSeed, at, kDraftNoise);
    REQUIRE(law.judge_rejection({draft, q}, kSeed, at) == draft);
  }
}

TEST_CASE("rejection with a residual of zero everywhere draws from p") {
  const Doubles p = {0.3, 0.3, 0.2, 0.15, 0.05};
  OwnedLaw target = law_of(p);
  Doubles twice;
  for (const double x : p)
    twice.push_back(2.0 * x); // every draft is kept half of the time, p - q is below 0 everywhere
  const auto q = travelling(twice);
  for (Token draft = 0; draft < 5; ++draft) {
    Doubles expected = p;
    for (double &x : expected)
      x *= 0.5;
    expected[static_cast<std::size_t>(draft)] += 0.5;
    const Doubles seen = histogram(5, test::effort(25'000), [&](Position at) {
      return target.judge_rejection({draft, q}, kSeed, at);
    });
    CHECK(chi_square_sigmas(seen, expected) < 4.0);
  }
}

TEST_CASE("rejection at temperature 0: the argmax, kept where it was drafted") {
  OwnedLaw greedy = law_of_logits({0.0F, 2.0F, 2.0F, -1.0F}, at_temperature(0.0F));
  const auto q = travelling(Doubles{0.25, 0.25, 0.25, 0.25});
  for (const Token draft : {-1, 0, 1, 2, 3, 4}) {
    CHECK(greedy.judge_rejection({draft, nullptr}, kSeed, draft + 9) == 1);
    CHECK(greedy.judge_rejection({draft, q}, kSeed, draft + 9) == 1);
  }
}

TEST_CASE("rejection: ids of -1 or outside are rejected, never an index, and p is kept") {
  const Doubles p = {0.35, 0.25, 0.2, 0.15, 0.05};
  OwnedLaw target = law_of(p);
  const auto q = travelling(Doubles{0.1, 0.2, 0.3, 0.1, 0.3});
  for (const Token draft : {-1, 5, 6, 1'000'000, std::numeric_limits<Token>::max(),
                            std::numeric_limits<Token>::min()}) {
    for (const auto &law :
         {q, std::shared_ptr<const DraftLaw>(), std::make_shared<const DraftLaw>()}) {
      const Doubles seen = histogram(5, test::effort(4'000), [&](Position at) {
        return target.judge_rejection({draft, law}, kSeed, at);
      });
      CHECK(chi_square_sigmas(seen, p) < 4.0);
    }
  }
}

TEST_CASE("rejection: a drafter's vocabulary may be wider or narrower than the target's") {
  const Doubles p = {0.35, 0.25, 0.2, 0.15, 0.05};
  OwnedLaw target = law_of(p);
  for (const Doubles &q : {Doubles{0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.3}, Doubles{0.1, 0.3, 0.6}}) {
    OwnedLaw drafter = law_of(q);
    const auto law = travelling(drafter);
    const Doubles seen = histogram(5, test::effort(25'000), [&](Position at) {
      return target.judge_rejection({drafter.draw(kSeed, at, kDraftNoise), law}, kSeed, at);
    });
    CHECK(chi_square_sigmas(seen, p) < 4.0);
  }
}

TEST_CASE("rejection: a draft its own law calls impossible, or a law of NaN, still gives p") {
  const Doubles p = {0.35, 0.25, 0.2, 0.15, 0.05};
  OwnedLaw target = law_of(p);
  const auto zero = travelling(Doubles{0.5, 0.0, 0.5, 0.0, 0.0});
  const auto nan = travelling(Doubles(5, std::nan("")));
  for (const auto &law : {zero, nan}) {
    const Doubles seen = histogram(5, test::effort(25'000), [&](Position at) {
      return target.judge_rejection({1, law}, kSeed, at);
    });
    CHECK(chi_square_sigmas(seen, p) < 4.0);
  }
}
