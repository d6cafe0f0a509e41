// Does a sample follow a law that is known exactly?
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hash_laws.h"

namespace dsi::test {

// The probability of every sequence of `count` tokens behind `prompt`, by enumeration; the first
// token is the slowest index. Sequences end nowhere: no stop ids.
inline std::vector<double> exact_joint(const HashLaws &laws, const SamplingParams &sampling,
                                       const std::vector<Token> &prompt, int count) {
  std::vector<std::vector<Token>> prefixes{prompt};
  std::vector<double> joint{1.0};
  std::vector<float> row(static_cast<std::size_t>(laws.vocab_size));
  for (int step = 0; step < count; ++step) {
    std::vector<std::vector<Token>> longer;
    std::vector<double> finer;
    for (std::size_t i = 0; i < prefixes.size(); ++i) {
      laws.target_row(prefixes[i], row.data());
      const RowEdits edits(sampling, prefixes[i], static_cast<Position>(prompt.size()));
      Law law;
      law.prepare(row, &edits, sampling);
      for (Token id = 0; id < laws.vocab_size; ++id) {
        longer.push_back(prefixes[i]);
        longer.back().push_back(id);
        finer.push_back(joint[i] * law.probability(id));
      }
    }
    prefixes = std::move(longer);
    joint = std::move(finer);
  }
  return joint;
}

// Standard deviations by which the statistic exceeds its mean under the law (Wilson and Hilferty
// 1931). A cell that cannot occur makes it infinite where it did. Cells below 5 expected are put
// together.
inline double chi_square_excess(const std::vector<std::int64_t> &counts,
                                const std::vector<double> &law) {
  double total = 0.0;
  for (const std::int64_t count : counts)
    total += static_cast<double>(count);
  double statistic = 0.0, rest_expected = 0.0, rest_counted = 0.0;
  int cells = 0;
  const auto add = [&](double counted, double expected) {
    statistic += (counted - expected) * (counted - expected) / expected;
    ++cells;
  };
  for (std::size_t i = 0; i < law.size(); ++i) {
    const double expected = law[i] * total;
    const auto counted = static_cast<double>(counts[i]);
    if (expected <= 0.0 && counted > 0.0)
      return INFINITY;
    if (expected < 5.0) {
      rest_expected += expected;
      rest_counted += counted;
    } else {
      add(counted, expected);
    }
  }
  if (rest_expected >= 5.0)
    add(rest_counted, rest_expected);
  const double freedom = cells - 1;
  const double spread = 2.0 / (9.0 * freedom);
  return (std::cbrt(statistic / freedom) - (1.0 - spread)) / std::sqrt(spread);
}

} // namespace dsi::test
