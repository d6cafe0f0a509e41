#include "core/token_sequence.h"

#include <doctest/doctest.h>

#include <deque>
#include <random>
#include <thread>

#include "support/effort.h"

using namespace dsi;
using namespace dsi::test;

namespace {

std::vector<Token> copied(std::span<const Token> tokens) { return {tokens.begin(), tokens.end()}; }

} // namespace

TEST_CASE("prefixes stay what they were, whatever becomes of the sequence") {
  std::mt19937 random(5);
  const auto below = [&](std::size_t n) { return std::size_t{random()} % n; };
  for (int run = 0; run < effort(200); ++run) {
    std::vector<Token> model;
    TokenSequence sequence(model);
    std::vector<std::pair<TokenPrefix, std::vector<Token>>> kept;
    for (int step = 0; step < 100; ++step) {
      const std::size_t what = below(8);
      if (what == 0) {
        model.resize(below(model.size() + 1));
        sequence.cut(model.size());
      } else if (what == 1) {
        const std::size_t length = below(model.size() + 1);
        kept.emplace_back(
            sequence.prefix(length),
            std::vector<Token>(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(length)));
      } else if (what == 2 && !kept.empty()) {
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(below(kept.size())));
      } else {
        model.push_back(static_cast<Token>(below(1000)));
        sequence.push_back(model.back());
      }
      REQUIRE(copied(sequence) == model);
      for (const auto &[prefix, expected] : kept)
        REQUIRE(copied(prefix) == expected);
    }
  }
}

TEST_CASE("a prefix is no copy, and tokens move only where a living one would see a change") {
  TokenSequence sequence(std::vector<Token>{1, 2, 3});
  const auto place = [&] { return std::span<const Token>(sequence).data(); };
  const Token *const first = place();
  {
    const TokenPrefix all = sequence.prefix(3);
    CHECK(all.data() == first);
    sequence.push_back(4);
    CHECK(place() == first);
  }
  sequence.cut(1);
  sequence.push_back(5); // nobody sees it
  CHECK(place() == first);
  const TokenPrefix one = sequence.prefix(1);
  const TokenPrefix two = sequence.prefix(2);
  sequence.cut(1);
  sequence.push_back(6);
  CHECK(place() != first);
  CHECK(copied(two) == std::vector<Token>{1, 5});
  CHECK(copied(sequence) == std::vector<Token>{1, 6});
}

TEST_CASE("prefixes are read and dropped on other threads while the sequence changes") {
  TokenSequence sequence(std::vector<Token>{0});
  std::deque<std::jthread> readers;
  for (int turn = 0; turn < effort(300); ++turn) {
    for (Token at = 0; at < 50; ++at)
      sequence.push_back(at); // where the last turn's reader may still look, or may just have
    readers.emplace_back([prefix = sequence.prefix(sequence.size())]() mutable {
      std::int64_t sum = 0;
      for (const Token token : std::span<const Token>(prefix))
        sum += token;
      prefix = {};
      CHECK(sum == 1225);
    });
    if (readers.size() > 4)
      readers.pop_front();
    sequence.cut(1);
  }
}
