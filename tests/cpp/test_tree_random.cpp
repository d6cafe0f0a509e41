// The TreeSession against thousands of random drivers. Every failure names its seed.
#include <doctest/doctest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "support/effort.h"
#include "support/tree_driver.h"

using namespace dsi;
using namespace dsi::test;

namespace {

struct Seen {
  bool crowded = false, wasted = false, stopped = false, last_drafter_accepted = false;
};

// Empty where all promises were kept.
std::string complaint(std::uint64_t seed, Seen &seen) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  TreeConfig config;
  config.drafters = 1 + pick(4);
  config.max_new_tokens = 1 + pick(25);
  config.run_ahead = 1 + pick(8);
  config.max_nodes = config.run_ahead + 1 + pick(40);
  const std::uint64_t model_seed = random();
  const int vocab_size = 2 + pick(5);
  const std::array<double, 5> acceptances{0.0, 0.4, 0.7, 0.9, 1.0};
  std::vector<ToyModel> models;
  for (int drafter = 0; drafter < config.drafters; ++drafter)
    models.push_back({model_seed, vocab_size, acceptances[static_cast<std::size_t>(pick(5))]});
  std::vector<Token> prompt;
  for (int i = 1 + pick(4); i > 0; --i)
    prompt.push_back(pick(static_cast<std::uint64_t>(vocab_size)));
  TreeDriver driver(config, prompt, models, pick(3) == 0, random());
  try {
    driver.run();
  } catch (const std::logic_error &error) {
    return error.what();
  }
  const TreeMetrics &metrics = driver.session().metrics();
  seen.crowded |= metrics.crowded;
  seen.wasted |= metrics.wasted_verifies > 0;
  seen.stopped |= metrics.stopped_verifies > 0;
  seen.last_drafter_accepted |= config.drafters > 1 && metrics.drafters.back().accepted > 0;
  return "";
}

} // namespace

TEST_CASE("random tree driver: any order of answers leaves the text alone and keeps the promises") {
  Seen seen;
  for (int i = 0; i < effort(4000); ++i) {
    const std::uint64_t seed = 1 + static_cast<std::uint64_t>(i);
    const std::string found = complaint(seed, seen);
    if (!found.empty())
      FAIL("seed " << seed << ": " << found);
  }
  CHECK(seen.crowded);
  CHECK(seen.wasted);
  CHECK(seen.stopped);
  CHECK(seen.last_drafter_accepted);
}
