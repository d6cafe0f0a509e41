// Prompt lookup against its own definition, written slowly.
#include <doctest/doctest.h>

#include <random>
#include <stdexcept>

#include "runtime/ngram.h"

using namespace dsi;

namespace {

using Tokens = std::vector<Token>;

Tokens slow(const Tokens &path, std::size_t min_ngram, std::size_t max_ngram, std::size_t most) {
  for (std::size_t n = std::min(max_ngram, path.size()); n >= min_ngram; --n) {
    const auto suffix = path.end() - static_cast<std::ptrdiff_t>(n);
    for (std::size_t end = path.size() - 1; end >= n; --end) { // the most recent first
      const auto at = path.begin() + static_cast<std::ptrdiff_t>(end);
      if (std::equal(suffix, path.end(), at - static_cast<std::ptrdiff_t>(n)))
        return {at, at + static_cast<std::ptrdiff_t>(std::min(most, path.size() - end))};
    }
  }
  return {};
}

} // namespace

TEST_CASE("the longest match wins, then the most recent") {
  CHECK(NgramDrafter::propose({1, 2, 3, 9, 2, 3, 8, 1, 2, 3}, 1, 3, 2) == Tokens{9, 2});
  CHECK(NgramDrafter::propose({1, 2, 3, 9, 2, 3, 8, 1, 2, 3}, 1, 2, 2) == Tokens{8, 1});
  CHECK(NgramDrafter::propose({5, 1, 6, 1, 7, 1}, 1, 3, 1) == Tokens{7});
  CHECK(NgramDrafter::propose({5, 1, 6, 1, 7, 1}, 2, 3, 1).empty());
}

TEST_CASE("a match may reach into the suffix it matches; drafts end where the path ends") {
  CHECK(NgramDrafter::propose({4, 4, 4}, 1, 5, 9) == Tokens{4});
  CHECK(NgramDrafter::propose({1, 2, 1, 2}, 1, 5, 9) == Tokens{1, 2});
}

TEST_CASE("nothing to look up gives no drafts") {
  CHECK(NgramDrafter::propose({}, 1, 3, 4).empty());
  CHECK(NgramDrafter::propose({1}, 1, 3, 4).empty());
  CHECK(NgramDrafter::propose({1, 2, 3, 4}, 1, 3, 4).empty());
}

TEST_CASE("random paths: the fast look-up is the slow one") {
  std::mt19937_64 random(71);
  for (int i = 0; i < 4000; ++i) {
    Tokens path(random() % 40);
    for (Token &token : path)
      token = static_cast<Token>(random() % (2 + static_cast<std::uint64_t>(i) % 6));
    const auto min_ngram = static_cast<int>(1 + random() % 3);
    const int max_ngram = min_ngram + static_cast<int>(random() % 4);
    const auto most = static_cast<int>(1 + random() % 6);
    CAPTURE(i);
    REQUIRE(NgramDrafter::propose(path, min_ngram, max_ngram, most) ==
            slow(path, static_cast<std::size_t>(min_ngram), static_cast<std::size_t>(max_ngram),
                 static_cast<std::size_t>(most)));
  }
}

TEST_CASE("as a server: point masses, no more than asked for, arguments checked") {
  NgramDrafter drafter(1, 3, 2);
  Job job;
  job.tokens = {1, 2, 3, 4, 1};
  job.max_drafts = 5;
  const Outcome outcome = drafter.run(job);
  REQUIRE(outcome.drafts.size() == 2);
  CHECK(outcome.drafts[0].id == 2);
  CHECK(outcome.drafts[0].law == nullptr);
  job.max_drafts = 1;
  CHECK(drafter.run(job).drafts.size() == 1);
  CHECK_THROWS_AS(NgramDrafter(0, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(NgramDrafter(3, 2, 1), std::invalid_argument);
  CHECK_THROWS_AS(NgramDrafter(1, 2, 0), std::invalid_argument);
}
