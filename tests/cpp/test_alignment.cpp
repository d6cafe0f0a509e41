#include "core/alignment.h"

#include <doctest/doctest.h>

#include <random>
#include <stdexcept>

#include "support/effort.h"
#include "support/toy_vocabulary.h"

using namespace dsi;
using namespace dsi::test;

namespace {

const std::vector<std::string> kTarget{"h", "a", " ", "ha", " ha", "ha ha", "\n", "\n\n", "x"};
const std::vector<std::string> kDrafter{"a", "h", " h", " ", "\n", "aha", "x"};

struct Recorder {
  std::vector<std::string> asked;
  Encoder encode = [this](std::string_view text) {
    asked.emplace_back(text);
    return longest_match(kDrafter, text);
  };
};

std::vector<Token> ids_of(const Alignment &alignment) {
  return {alignment.ids().begin(), alignment.ids().end()};
}

} // namespace

TEST_CASE("the drafter's ids spell the path, whatever the path changes into") {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return std::size_t{random()} % n; };
  for (int run = 0; run < effort(300); ++run) {
    Alignment alignment(pair_of(kTarget, kDrafter));
    Recorder recorder;
    std::vector<Token> path;
    Position frozen = 0;
    for (int step = 0; step < 40; ++step) {
      const auto keep = static_cast<std::size_t>(frozen) +
                        below(path.size() - static_cast<std::size_t>(frozen) + 1);
      path.resize(keep);
      for (std::size_t more = 1 + below(4); more > 0; --more)
        path.push_back(static_cast<Token>(below(kTarget.size())));
      frozen += static_cast<Position>(below(path.size() - static_cast<std::size_t>(frozen) + 1));
      const bool keep_ahead = below(2) == 0;
      alignment.follow(path, frozen, keep_ahead, recorder.encode);
      const std::string text = text_of(kTarget, path);
      REQUIRE(text_of(kDrafter, alignment.ids()) == text + std::string(alignment.ahead()));
      REQUIRE((keep_ahead || alignment.ahead().empty()));
      for (std::size_t drawn = below(3); drawn > 0; --drawn)
        alignment.push(static_cast<Token>(below(kDrafter.size())));
    }
  }
}

TEST_CASE("only text behind the last token that still agrees is encoded again") {
  Alignment alignment(pair_of(kTarget, kDrafter));
  Recorder recorder;
  alignment.follow(longest_match(kTarget, "ha ha ha ha ha\n").ids, 3, true, recorder.encode);
  CHECK(recorder.asked == std::vector<std::string>{"ha ha ha ha ha\n"});
  recorder.asked.clear();
  // "ha ha", " ha", " ha", " ha", "\n" becomes "ha ha", " ha", " ha", " ", "h", "x", "x".
  alignment.follow(std::vector<Token>{5, 4, 4, 2, 0, 8, 8}, 7, true, recorder.encode);
  CHECK(recorder.asked == std::vector<std::string>{"xx"}); // " h" was there before
  CHECK(text_of(kDrafter, alignment.ids()) == "ha ha ha ha hxx");
}

TEST_CASE("a single token that both have needs no encoder") {
  Alignment alignment(pair_of(kTarget, kDrafter));
  const Encoder none = [](std::string_view) -> Spelling { throw std::runtime_error("asked"); };
  alignment.follow(std::vector<Token>{8}, 1, true, none);
  alignment.follow(std::vector<Token>{8, 2}, 2, true, none);
  CHECK(ids_of(alignment) == std::vector<Token>{6, 3});
}

TEST_CASE("text that was drafted is not spelled again when the target says it in other tokens") {
  Alignment alignment(pair_of(kTarget, kDrafter));
  Recorder recorder;
  alignment.follow(std::vector<Token>{8}, 1, true, recorder.encode);
  for (const Token id : {3, 1, 0}) // " ", "h", "a"
    alignment.push(id);
  recorder.asked.clear();
  alignment.follow(std::vector<Token>{8, 4}, 1, true, recorder.encode); // " ha"
  CHECK(recorder.asked.empty());
  CHECK(ids_of(alignment) == std::vector<Token>{6, 3, 1, 0});
  CHECK(alignment.ahead().empty());
  alignment.follow(std::vector<Token>{8, 2}, 1, true, recorder.encode); // " "
  CHECK(alignment.ahead() == "ha");
  alignment.follow(std::vector<Token>{8, 2}, 2, false, recorder.encode);
  CHECK(ids_of(alignment) == std::vector<Token>{6, 3});
}

TEST_CASE("control tokens match by role, typed ones are text, and the drafter opens once") {
  const std::vector<std::string> target{"<s>", "</s>", "<", "/", "s", ">", "</"};
  const std::vector<std::string> drafter{"", "", "<", "/", "s", ">", "s>"};
  auto pair = pair_of(target, drafter);
  pair->target_control = {true, true, false, false, false, false, false};
  pair->target_opens = {true, false, false, false, false, false, false};
  pair->t2d[1] = 1;
  pair->d2t[1] = 1;
  pair->opening = {0};
  const Encoder encode = [&](std::string_view text) { return longest_match(drafter, text); };
  Alignment alignment(pair);
  alignment.follow(std::vector<Token>{0, 1, 6, 4, 5}, 5, true, encode); // <s></s> and typed </s>
  CHECK(ids_of(alignment) == std::vector<Token>{0, 1, 2, 3, 6});
  alignment.follow(std::vector<Token>{0, 1, 6, 4, 5, 0}, 6, true, encode); // not at the start: text
  CHECK(ids_of(alignment) == std::vector<Token>{0, 1, 2, 3, 6, 2, 6});
  // What was drafted as text is no control token, though it reads the same.
  Alignment drafted(pair);
  drafted.follow(std::vector<Token>{4}, 1, true, encode);
  for (const Token id : {2, 3, 6})
    drafted.push(id);
  drafted.follow(std::vector<Token>{4, 1}, 2, true, encode);
  CHECK(ids_of(drafted) == std::vector<Token>{0, 4, 1});
}

TEST_CASE("after an encoder that throws the next call starts over") {
  Alignment alignment(pair_of(kTarget, kDrafter));
  Recorder recorder;
  const std::vector<Token> path{5, 4, 7};
  CHECK_THROWS(alignment.follow(
      path, 1, true, [](std::string_view) -> Spelling { throw std::runtime_error(""); }));
  alignment.follow(path, 1, true, recorder.encode);
  CHECK(text_of(kDrafter, alignment.ids()) == "ha ha ha\n\n");
}

TEST_CASE("the beginning of a character is held back, and nothing else") {
  CHECK(whole_characters("") == "");
  CHECK(whole_characters("a") == "a");
  CHECK(whole_characters("\xC3\xA9") == "\xC3\xA9");
  CHECK(whole_characters("a\xC3") == "a");
  CHECK(whole_characters("a\xE2\x82") == "a");
  CHECK(whole_characters("a\xE2\x82\xAC") == "a\xE2\x82\xAC");
  CHECK(whole_characters("a\xF0\x9F\x98") == "a");
  CHECK(whole_characters("a\xF0\x9F\x98\x80") == "a\xF0\x9F\x98\x80");
  CHECK(whole_characters("a\xFF") == "a\xFF"); // begins no character
  CHECK(whole_characters("\x80\x80\x80\x80") == "\x80\x80\x80\x80");
}

TEST_CASE("the lead is the path's last words: whole tokens, no control token among them") {
  const auto lead_of = [](const std::vector<Token> &path, std::size_t most) {
    auto pair = pair_of(kTarget, kDrafter);
    pair->target_control[8] = true; // "x"
    Alignment alignment(pair);
    alignment.follow(path, 0, false,
                     [](std::string_view text) { return longest_match(kDrafter, text); });
    return std::string(alignment.lead(most));
  };
  CHECK(lead_of({0, 1, 4, 1, 3}, 64) == " haaha"); // "h", "a", " ha", "a", "ha"
  CHECK(lead_of({4, 0, 4, 1, 3}, 64) == " hah haaha");
  CHECK(lead_of({4, 0, 4, 1, 3}, 9) == " haaha");
  CHECK(lead_of({4, 0, 4, 1, 3}, 5) == "aha"); // no word begins within 5 bytes
  CHECK(lead_of({4, 8, 1, 3}, 64) == "aha");
  CHECK(lead_of({4, 8}, 64).empty());
  CHECK(lead_of({4, 0}, 0).empty());
  CHECK(lead_of({}, 64).empty());
}
