// Thresholds and rankings, against sorting.
#include <doctest/doctest.h>

#include <functional>

#include "support/effort.h"
#include "support/kernel_rows.h"

using namespace dsi;
using namespace dsi::plain;
using dsi::test::effort;

namespace {

struct SortedCut {
  float cut = -kInf;
  double margin = kInf; // by how much the sums of top-p miss another threshold
};

SortedCut by_sorting(const std::vector<float> &z, std::int32_t top_k, float top_p, float min_p) {
  std::vector<float> ranked;
  for (const float value : z) {
    if (value > -kInf)
      ranked.push_back(value);
  }
  std::sort(ranked.begin(), ranked.end(), std::greater<>());
  SortedCut found;
  const float best = ranked.front();
  if (top_k > 0 && static_cast<std::size_t>(top_k) < ranked.size()) {
    found.cut = ranked[static_cast<std::size_t>(top_k) - 1];
    ranked.erase(
        std::find_if(ranked.begin(), ranked.end(), [&](float value) { return value < found.cut; }),
        ranked.end());
  }
  const auto mass = [&](float value) {
    return std::exp(static_cast<double>(value) - static_cast<double>(best));
  };
  if (top_p < 1.0F) {
    double total = 0.0;
    for (const float value : ranked)
      total += mass(value);
    double above = 0.0;
    found.cut = ranked.back();
    for (std::size_t i = 0; i + 1 < ranked.size(); ++i) {
      above += mass(ranked[i]);
      if (ranked[i] != ranked[i + 1])
        found.margin = std::min(found.margin, std::abs(above / total - static_cast<double>(top_p)));
      if (above >= static_cast<double>(top_p) * total) {
        found.cut = ranked[i];
        break;
      }
    }
  }
  if (min_p > 0.0F)
    found.cut = std::max(
        found.cut, std::min(best, best + std::log(min_p))); // a margin would be too much for this
  return found;
}

} // namespace

TEST_CASE("kernels: thresholds are those that sorting finds") {
  std::mt19937 random(21);
  RowLaw law;
  int compared = 0;
  for (int run = 0; run < effort(400); ++run) {
    const std::int64_t size = std::vector<std::int64_t>{
        1, 3, 64, 700, 4'096, 4'099, 12'000}[static_cast<std::size_t>(run) % 7];
    // Values on a grid of 1/32, so that many tie; sometimes all but a few equal.
    const float spread = std::vector<float>{1e-3F, 0.05F, 1.0F, 6.0F, 60.0F}[random() % 5];
    Stored stored(random_row(random, size, spread, run % 3 == 0 ? 0.3 : 0.0), Dtype::kF32);
    stored.wide[static_cast<std::size_t>(random() % static_cast<std::uint32_t>(size))] = 1.5F;
    stored.row.temperature = run % 2 == 0 ? 1.0F : 0.25F;
    const std::int32_t top_k =
        std::vector<std::int32_t>{0, 1, 7, 500, static_cast<std::int32_t>(size) - 1}[random() % 5];
    const float top_p = std::vector<float>{1.0F, 0.0F, 0.3F, 0.9F, 0.999F}[random() % 5];
    const float min_p = std::vector<float>{0.0F, 0.0F, 0.0625F, 1.0F}[random() % 4];
    const PlainLaw plain = law_of(stored.wide, {}, stored.row.temperature, -kInf);
    REQUIRE((law.prepare(stored.row, false) & kRowEmpty) == 0);
    const SortedCut expected = by_sorting(plain.z, top_k, top_p, min_p);
    if (expected.margin < 1e-6)
      continue;
    CAPTURE(run);
    const float cut = law.find_cut(top_k, top_p, min_p);
    if (min_p > 0.0F && min_p < 1.0F)
      CHECK(static_cast<double>(cut) == doctest::Approx(expected.cut).epsilon(1e-6));
    else
      CHECK(cut == expected.cut);
    ++compared;
    law.set_cut(cut);
    const PlainLaw kept = law_of(stored.wide, {}, stored.row.temperature, cut);
    CHECK(law.lse() == doctest::Approx(kept.lse).epsilon(1e-6));
  }
  CHECK(compared > effort(400) / 2);
}

TEST_CASE("kernels: a greedy row has no cut") {
  Stored stored({1.0F, 2.0F, 3.0F}, Dtype::kF32);
  stored.row.temperature = 0.0F;
  RowLaw law;
  law.prepare(stored.row, false);
  CHECK(law.find_cut(1, 0.1F, 0.9F) == -kInf);
}

TEST_CASE("kernels: the most likely ids, best first, the lowest first among equals") {
  std::mt19937 random(22);
  RowLaw law;
  std::vector<std::pair<Token, float>> top;
  for (int run = 0; run < effort(60); ++run) {
    const std::int64_t size = std::vector<std::int64_t>{1, 5, 70, 5'000}[random() % 4];
    Stored stored(random_row(random, size, run % 2 == 0 ? 0.1F : 3.0F, 0.2), Dtype::kF32);
    stored.wide[0] = 0.5F;
    stored.row.cut = run % 3 == 0 ? 0.0F : -kInf;
    const PlainLaw plain = law_of(stored.wide, {}, 1.0F, stored.row.cut);
    std::vector<Token> order;
    for (Token id = 0; id < size; ++id) {
      if (plain.kept(id))
        order.push_back(id);
    }
    std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) {
      return plain.z[static_cast<std::size_t>(a)] > plain.z[static_cast<std::size_t>(b)];
    });
    law.prepare(stored.row, false);
    for (const std::int32_t n : {0, 1, 5, 20, 6'000}) {
      law.top(n, top);
      REQUIRE(top.size() == std::min(order.size(), static_cast<std::size_t>(n)));
      int wrong = 0;
      for (std::size_t i = 0; i < top.size(); ++i)
        wrong += top[i].first == order[i] && top[i].second == law.logprob(order[i]) ? 0 : 1;
      CHECK(wrong == 0);
    }
  }
}
