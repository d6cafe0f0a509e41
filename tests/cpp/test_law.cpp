// The laws of single draws and of coupled draws.
#include <array>

#include "support/effort.h"
#include "support/laws.h"

using namespace dsi;
using namespace dsi::laws;

namespace {

// The race without any short cut.
Token plain_race(Law &law, const std::vector<float> &scaled, Position position, std::uint32_t tag) {
  Token winner = -1;
  double best = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const auto id = static_cast<Token>(i);
    if (!law.kept(id))
      continue;
    const double noise =
        -std::log(static_cast<double>(exponential(token_bits(kSeed, position, tag, id))));
    if (winner < 0 || static_cast<double>(scaled[i]) + noise > best) {
      winner = id;
      best = static_cast<double>(scaled[i]) + noise;
    }
  }
  return winner;
}

} // namespace

TEST_CASE("the race that skips equals the race that does not, token for token") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  const std::array<std::size_t, 10> sizes = {1, 2, 5, 64, 1024, 1025, 4095, 4096, 4097, 9000};
  int upsets = 0; // wins of an id that is not the best one
  for (int run = 0; run < 72; ++run) {
    std::vector<float> row(run < 2 ? 49'152 : sizes[random() % sizes.size()]);
    const std::array<float, 7> spreads = {0.0F, 0.1F, 1.0F, 3.0F, 8.0F, 40.0F, 1e7F};
    const float spread = spreads[static_cast<std::size_t>(run) % spreads.size()];
    for (float &x : row)
      x = spread * normal(random) + (random() % 3 == 0 ? -20.0F : 0.0F);
    if (run % 5 == 0) {
      for (float &x : row)
        x = random() % 4 == 0 ? std::round(x) : -kInf;
      row[random() % row.size()] = 1.0F;
    }
    SamplingParams params = at_temperature(run % 2 == 0 ? 1.0F : 0.7F);
    params.top_k = run % 3 == 0 ? 1 + static_cast<std::int32_t>(random() % row.size()) : 0;
    params.top_p = run % 4 == 0 ? 0.9F : 1.0F;
    OwnedLaw law = law_of_logits(row, params);
    for (float &x : row)
      x /= params.temperature;
    for (Position position = 0; position < (row.size() > 5000 ? 4 : 25); ++position) {
      const Token coupled = law.draw_coupled(kSeed, position);
      REQUIRE(coupled == plain_race(law, row, position, kCoupledNoise));
      REQUIRE(law.draw(kSeed, position, kDraftNoise) ==
              plain_race(law, row, position, kDraftNoise));
      upsets += coupled != law.argmax() ? 1 : 0;
    }
  }
  CHECK(upsets > 300);
}

TEST_CASE("the rarest noise is not skipped: an id 19.5 below the best one wins") {
  // Found by search among 1.6e9 (position, id): bits 8, noise 20.04 of at most 22.87.
  constexpr Position kRare = 210'021;
  constexpr Token kId = 1'105;
  REQUIRE(token_bits(kSeed, kRare, kCoupledNoise, kId) == 8);
  Token best = 0;
  while (token_bits(kSeed, kRare, kCoupledNoise, best) < 1U << 31U) // noise below 0.37
    ++best;
  for (const float others : {-kInf, -22.5F, -60.0F}) { // all skipped, none skipped, all skipped
    std::vector<float> row(5'000, others);
    row[static_cast<std::size_t>(best)] = 0.0F;
    row[kId] = -19.5F;
    OwnedLaw law = law_of_logits(row);
    const Token expected = plain_race(law, row, kRare, kCoupledNoise);
    CHECK(law.draw_coupled(kSeed, kRare) == expected);
    CHECK(expected == kId);
  }
}

TEST_CASE("draws follow p: small, wide, cut, and with many impossible ids") {
  const Doubles five = {0.4, 0.3, 0.15, 0.1, 0.05};
  OwnedLaw small = law_of(five);
  for (const std::uint32_t tag : {kCoupledNoise, kDraftNoise, kResidual}) {
    CHECK(chi_square_sigmas(histogram(5, test::effort(30'000),
                                      [&](Position at) { return small.draw(kSeed, at, tag); }),
                            five) < 4.0);
  }
  const Doubles wide = random_law(4'300, 2.5F, 1);
  OwnedLaw wide_law = law_of(wide);
  CHECK(chi_square_sigmas(histogram(wide.size(), test::effort(2'000),
                                    [&](Position at) { return wide_law.draw_coupled(kSeed, at); }),
                          wide) < 4.0);

  SamplingParams params = at_temperature(0.5F);
  params.top_k = 3;
  OwnedLaw cut = law_of_logits({0.0F, 1.0F, 2.0F, 1.5F, -1.0F}, params);
  Doubles expected = {0.0, std::exp(2.0), std::exp(4.0), std::exp(3.0), 0.0};
  const double total = std::accumulate(expected.begin(), expected.end(), 0.0);
  for (double &p : expected)
    p /= total;
  CHECK(chi_square_sigmas(histogram(5, test::effort(25'000),
                                    [&](Position at) { return cut.draw_coupled(kSeed, at); }),
                          expected) < 4.0);
}

TEST_CASE("noise belongs to the id: the width of the vocabulary changes nothing") {
  std::vector<float> row = {0.3F, 1.0F, -0.5F, 0.8F, 0.0F};
  OwnedLaw narrow = law_of_logits(row);
  row.resize(9'000, -kInf); // a padded vocabulary: its ids are never drawn
  OwnedLaw padded = law_of_logits(row);
  const auto q = travelling(Doubles{0.2, 0.2, 0.2, 0.2, 0.2});
  for (Position position = 0; position < 300; ++position) {
    REQUIRE(narrow.draw_coupled(kSeed, position) == padded.draw_coupled(kSeed, position));
    const Draft draft{static_cast<Token>(position % 5), q};
    REQUIRE(narrow.judge_rejection(draft, kSeed, position) ==
            padded.judge_rejection(draft, kSeed, position));
  }
}

TEST_CASE("neighbouring positions and different purposes are independent") {
  const Doubles p = {0.4, 0.3, 0.2, 0.1};
  OwnedLaw law = law_of(p);
  Doubles product;
  for (const double a : p) {
    for (const double b : p)
      product.push_back(a * b);
  }
  const auto pairs = [&](const std::function<Token(Position)> &first,
                         const std::function<Token(Position)> &second) {
    return histogram(16, test::effort(30'000),
                     [&](Position at) { return first(at) * 4 + second(at); });
  };
  const auto draw = [&](std::uint32_t tag, Position step, Position offset) {
    return [&law, tag, step, offset](Position at) mutable {
      return law.draw(kSeed, at * step + offset, tag);
    };
  };
  CHECK(chi_square_sigmas(pairs(draw(kCoupledNoise, 2, 0), draw(kCoupledNoise, 2, 1)), product) <
        4.0);
  CHECK(chi_square_sigmas(pairs(draw(kDraftNoise, 1, 0), draw(kResidual, 1, 0)), product) < 4.0);
  CHECK(chi_square_sigmas(pairs(draw(kCoupledNoise, 1, 0), draw(kDraftNoise, 1, 0)), product) <
        4.0);
}

TEST_CASE("coupled: both follow their own law and agree as often as the formula says") {
  for (const std::size_t size : {5U, 60U}) {
    const Doubles p = random_law(size, 1.0F, 21);
    const Doubles q = random_law(size, 1.0F, 22);
    OwnedLaw target = law_of(p);
    OwnedLaw drafter = law_of(q);
    const int kSamples = test::effort(size == 5 ? 30'000 : 8'000);
    Doubles from_p(size, 0.0);
    Doubles from_q(size, 0.0);
    double agreed = 0.0;
    for (Position at = 0; at < kSamples; ++at) {
      const auto x = static_cast<std::size_t>(target.draw_coupled(kSeed, at));
      const auto y = static_cast<std::size_t>(drafter.draw_coupled(kSeed, at));
      from_p[x] += 1.0;
      from_q[y] += 1.0;
      agreed += x == y ? 1.0 : 0.0;
    }
    double formula = 0.0;
    for (std::size_t x = 0; x < size; ++x) {
      double worst = 0.0;
      for (std::size_t y = 0; y < size; ++y)
        worst += std::max(p[y] / p[x], q[y] / q[x]);
      formula += 1.0 / worst;
    }
    const double distance = 1.0 - overlap(p, q);
    CHECK(formula >= (1.0 - distance) / (1.0 + distance));
    CHECK(within_sigmas(agreed, kSamples, formula, 4.0));
    CHECK(chi_square_sigmas(from_p, p) < 4.0);
    CHECK(chi_square_sigmas(from_q, q) < 4.0);
  }
}
