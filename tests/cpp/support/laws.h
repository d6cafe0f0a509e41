// What the tests of the draws share: laws from probabilities, histograms over positions,
// chi-square. Positions are independent samples, so a fixed seed makes each test repeatable.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "core/rng.h"
#include "kernels/law.h"

namespace dsi::laws {

using Doubles = std::vector<double>;

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr std::uint64_t kSeed = 20'240'517;

inline SamplingParams at_temperature(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

// A law with the row it is the law of.
class OwnedLaw : public Law {
public:
  explicit OwnedLaw(std::vector<float> row, const SamplingParams &params = at_temperature(1.0F))
      : row_(std::make_unique<std::vector<float>>(std::move(row))) {
    REQUIRE(prepare(*row_, nullptr, params) == RowStatus::kOk);
  }

private:
  std::unique_ptr<std::vector<float>> row_;
};

inline OwnedLaw law_of_logits(const std::vector<float> &row,
                              const SamplingParams &params = at_temperature(1.0F)) {
  return OwnedLaw(row, params);
}

inline std::vector<float> logs_of(const Doubles &probabilities) { // 0: impossible
  std::vector<float> row;
  for (const double p : probabilities)
    row.push_back(p == 0.0 ? -kInf : static_cast<float>(std::log(p)));
  return row;
}

inline OwnedLaw law_of(const Doubles &probabilities) { return OwnedLaw(logs_of(probabilities)); }

inline std::vector<float> probabilities_of(Law &law) {
  std::vector<float> p;
  for (std::size_t id = 0; id < law.size(); ++id)
    p.push_back(static_cast<float>(law.probability(static_cast<Token>(id))));
  return p;
}

inline std::shared_ptr<const DraftLaw> travelling(Law &law) { return law.travelling(); }

inline std::shared_ptr<const DraftLaw> travelling(const Doubles &q) { // as it is: not normalised
  auto copy = std::make_shared<DraftLaw>();
  copy->logits = logs_of(q);
  return copy;
}

inline Doubles random_law(std::size_t size, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.0, static_cast<double>(spread));
  Doubles p(size);
  for (double &x : p)
    x = std::exp(normal(random));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double &x : p)
    x /= total;
  return p;
}

// How many standard deviations a chi-square lies above its mean (Wilson and Hilferty). Cells with
// fewer than 5 expected are pooled; an impossible cell that was seen gives infinity.
inline double chi_square_sigmas(const Doubles &seen, const Doubles &law) {
  REQUIRE(seen.size() == law.size());
  const double samples = std::accumulate(seen.begin(), seen.end(), 0.0);
  double statistic = 0.0;
  double pooled_seen = 0.0;
  double pooled_expected = 0.0;
  int cells = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const double expected = law[i] * samples;
    if (law[i] == 0.0 && seen[i] > 0.0)
      return std::numeric_limits<double>::infinity();
    if (expected < 5.0) {
      pooled_seen += seen[i];
      pooled_expected += expected;
      continue;
    }
    statistic += (seen[i] - expected) * (seen[i] - expected) / expected;
    ++cells;
  }
  if (pooled_expected >= 5.0) {
    statistic +=
        (pooled_seen - pooled_expected) * (pooled_seen - pooled_expected) / pooled_expected;
    ++cells;
  }
  const double degrees = cells - 1;
  REQUIRE(degrees >= 1);
  const double spread = 2.0 / (9.0 * degrees);
  return (std::cbrt(statistic / degrees) - (1.0 - spread)) / std::sqrt(spread);
}

inline Doubles histogram(std::size_t size, int samples,
                         const std::function<Token(Position)> &draw) {
  Doubles seen(size, 0.0);
  for (Position position = 0; position < samples; ++position)
    seen.at(static_cast<std::size_t>(draw(position))) += 1.0; // at(): an id outside fails the test
  return seen;
}

inline bool within_sigmas(double hits, double samples, double probability, double sigmas) {
  const double deviation = std::sqrt(samples * probability * (1.0 - probability));
  return std::abs(hits - samples * probability) <= sigmas * deviation + 1e-9;
}

inline double overlap(const Doubles &p, const Doubles &q) {
  double total = 0.0;
  for (std::size_t x = 0; x < p.size(); ++x)
    total += std::min(p[x], q[x]);
  return total;
}

} // namespace dsi::laws
