#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/stop.h"

using namespace dsi;

namespace {

std::shared_ptr<const TokenBytes> table(const std::vector<std::string> &tokens) {
  auto bytes = std::make_shared<TokenBytes>();
  bytes->offsets.push_back(0);
  for (const std::string &token : tokens) {
    bytes->blob += token;
    bytes->offsets.push_back(static_cast<std::int64_t>(bytes->blob.size()));
  }
  return bytes;
}

// Feeds tokens until the first match; {tokens consumed, bytes before the match}, or {-1, -1}.
std::pair<int, std::int64_t> first_match(const std::vector<std::string> &tokens,
                                         std::vector<std::string> strings) {
  StopMatcher matcher(table(tokens), std::move(strings));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (const auto found = matcher.push(static_cast<Token>(i)))
      return {static_cast<int>(i) + 1, *found};
  }
  return {-1, -1};
}

} // namespace

TEST_CASE("stop strings are found across token borders") {
  CHECK(first_match({"Hello", " wor", "ld", "!"}, {"world"}) == std::pair<int, std::int64_t>{3, 6});
  CHECK(first_match({"a", "b", "c", "d", "e"}, {"bcde"}) == std::pair<int, std::int64_t>{5, 1});
  CHECK(first_match({"xx", "one STOP two", "yy"}, {"STOP"}) ==
        std::pair<int, std::int64_t>{2, 6}); // inside one token
  CHECK(first_match({"END"}, {"END"}) == std::pair<int, std::int64_t>{1, 0});
  CHECK(first_match({"EN", "E", "ND"}, {"END"}) == std::pair<int, std::int64_t>{3, 2});
  CHECK(first_match({"a", "a", "b"}, {"aab"}) == std::pair<int, std::int64_t>{3, 0});
  CHECK(first_match({"EN", "X", "D"}, {"END"}) == std::pair<int, std::int64_t>{-1, -1});
}

TEST_CASE("of several matches the one that starts first counts") {
  // "b" begins in the same token, but after "abcd".
  CHECK(first_match({"xa", "bcd"}, {"b", "abcd"}) == std::pair<int, std::int64_t>{2, 1});
  CHECK(first_match({"xa", "bcd"}, {"abcd", "b"}) == std::pair<int, std::int64_t>{2, 1});
  CHECK(first_match({"..stop..stop"}, {"stop"}) == std::pair<int, std::int64_t>{1, 2});
  // A string completed by an earlier token wins over one that began before it.
  CHECK(first_match({"xa", "b", "cd"}, {"b", "abcd"}) == std::pair<int, std::int64_t>{2, 2});
}

TEST_CASE("stop strings are bytes: half characters, zeros, a repeated match") {
  CHECK(first_match({"caf\xC3", "\xA9!"}, {"\xC3\xA9"}) == std::pair<int, std::int64_t>{2, 3});
  const std::string zero("\0b", 2);
  CHECK(first_match({"a", std::string("\0", 1), "b"}, {zero}) ==
        std::pair<int, std::int64_t>{3, 1});

  StopMatcher matcher(table({"stop", "go"}), {"stop"});
  CHECK(matcher.push(1) == std::nullopt);
  CHECK(matcher.push(0) == std::optional<std::int64_t>{2});
  CHECK(matcher.push(0) == std::optional<std::int64_t>{2});
}

TEST_CASE("ids outside the table, empty tokens and empty strings add nothing") {
  StopMatcher matcher(table({"ST", "", "OP"}), {"STOP", ""});
  for (const Token id : {0, -1, 3, 1, 1'000'000})
    CHECK(matcher.push(id) == std::nullopt);
  CHECK(matcher.push(2) == std::optional<std::int64_t>{0});

  StopMatcher silent(table({"a"}), {});
  CHECK(silent.push(0) == std::nullopt);
  StopMatcher no_table(table({}), {"a"});
  CHECK(no_table.push(0) == std::nullopt);
}

TEST_CASE("stop strings agree with a search of the whole text after every token") {
  std::mt19937 random(7);
  const auto word = [&](std::size_t least, std::size_t most) {
    std::string text;
    const std::size_t length = least + random() % (most - least + 1);
    for (std::size_t i = 0; i < length; ++i)
      text += static_cast<char>('a' + random() % 2);
    return text;
  };
  int matched = 0;
  for (int run = 0; run < 500; ++run) {
    std::vector<std::string> strings;
    for (std::size_t i = 0; i < 1 + random() % 3; ++i)
      strings.push_back(word(1, 9));
    std::vector<std::string> tokens;
    for (int i = 0; i < 30; ++i)
      tokens.push_back(word(0, 4));
    StopMatcher matcher(table(tokens), strings);
    std::string text;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      text += tokens[i];
      std::size_t start = std::string::npos;
      for (const std::string &string : strings)
        start = std::min(start, text.find(string));
      const auto found = matcher.push(static_cast<Token>(i));
      REQUIRE(found.has_value() == (start != std::string::npos));
      if (found) {
        REQUIRE(*found == static_cast<std::int64_t>(start));
        ++matched;
        break;
      }
    }
  }
  CHECK(matched > 300);
}
