#include "runtime/translator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/toy_vocabulary.h"

using namespace dsi;
using namespace dsi::test;

namespace {

const std::vector<std::string> kTarget{"h", "a", " ", "ha", " ha", " hat", "t", "!", "", "ba"};
const std::vector<std::string> kDrafter{" h", "a", "t", " ", "h", "!", "ha", "", "z"};
constexpr Token kTargetEnd = 8;
constexpr Token kDrafterEnd = 7;

std::shared_ptr<VocabularyPair> ended_pair() {
  auto pair = pair_of(kTarget, kDrafter);
  pair->target_control[kTargetEnd] = true;
  pair->t2d[kTargetEnd] = kDrafterEnd;
  pair->d2t[kDrafterEnd] = kTargetEnd;
  pair->noise_ids[kDrafterEnd] = kTargetEnd;
  return pair;
}

// A drafter that knows the text, and after it the end.
struct Oracle {
  std::string text;
  std::shared_ptr<VocabularyPair> pair = ended_pair();
  bool hold_back = true;
  Position context = -1;
  int forwards = 0;
  std::vector<float> row = std::vector<float>(kDrafter.size());

  Translator translator() {
    return Translator({pair, [](std::string_view piece) { return longest_match(kTarget, piece); },
                       [](std::string_view piece) { return longest_match(kDrafter, piece); },
                       context, 0, hold_back});
  }
  Translator::Forward forward() {
    return [this](std::span<const Token> ids) -> std::optional<std::span<const float>> {
      ++forwards;
      const std::string_view rest = std::string_view(text).substr(text_of(kDrafter, ids).size());
      std::fill(row.begin(), row.end(), 0.0F);
      row[rest.empty() ? kDrafterEnd
                       : static_cast<std::size_t>(longest_match(kDrafter, rest).ids[0])] = 9.0F;
      return row;
    };
  }
};

std::shared_ptr<Job> draft_job(std::vector<Token> path, DraftMethod method, int most = 8,
                               Verification verification = Verification::kCoupled,
                               float temperature = 0.0F) {
  auto context = std::make_shared<RequestContext>();
  context->id = 1;
  context->prompt_tokens = 1;
  context->method = method;
  context->sampling.verification = verification;
  context->sampling.temperature = temperature;
  auto job = std::make_shared<Job>();
  job->kind = JobKind::kDraft;
  job->request = std::move(context);
  job->length = static_cast<Position>(path.size());
  job->committed = job->length;
  job->tokens = std::move(path);
  job->max_drafts = most;
  return job;
}

std::vector<Token> ids_of(const Outcome &outcome) {
  std::vector<Token> ids;
  for (const Draft &draft : outcome.drafts)
    ids.push_back(draft.id);
  return ids;
}

// All drafts until the text is at its end, job by job.
std::vector<Token> all_drafts(Oracle &oracle, std::vector<Token> path, int most) {
  Translator translator = oracle.translator();
  Judge judge;
  const std::size_t start = path.size();
  while (path.back() != kTargetEnd) {
    const Outcome outcome =
        translator.draft(*draft_job(path, DraftMethod::kSlem, most), judge, oracle.forward());
    REQUIRE(outcome.kind == Outcome::Kind::kDone);
    REQUIRE(!outcome.drafts.empty());
    REQUIRE(static_cast<int>(outcome.drafts.size()) <= most);
    for (const Draft &draft : outcome.drafts) {
      CHECK(draft.law == nullptr);
      path.push_back(draft.id);
    }
  }
  return {path.begin() + static_cast<std::ptrdiff_t>(start), path.end()};
}

} // namespace

TEST_CASE("SLEM proposes what the target's tokenizer makes of the drafted text, and its end") {
  for (const int most : {1, 2, 8}) {
    Oracle oracle{"ha hat ha hat! ha"};
    std::vector<Token> expected = longest_match(kTarget, " hat ha hat! ha").ids;
    expected.push_back(kTargetEnd);
    CHECK(all_drafts(oracle, {3}, most) == expected);
    // None twice, but the end where it was drawn beyond what was asked for.
    const auto drawn = longest_match(kDrafter, " hat ha hat! ha").ids.size();
    CHECK(oracle.forwards == static_cast<int>(drawn) + (most == 1 ? 2 : 1));
  }
}

TEST_CASE("without holding back, a token that grows is proposed too early") {
  Oracle oracle{"ha hat"};
  oracle.hold_back = false;
  const std::vector<Token> drafts = all_drafts(oracle, {3}, 8);
  CHECK(text_of(kTarget, drafts) == " hat");
  CHECK(drafts.size() > 2); // not " hat" and the end
}

TEST_CASE("text behind the middle of a word is spelled as the inside of one") {
  // As WordPiece: 1 and 2 are "a" and "b" inside a word, 3 and 4 at the beginning of one.
  const auto by_place = [](std::string_view text) {
    Spelling spelling;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const bool inside = at > 0 && text[at - 1] != ' ';
      const Token letter = text[at] == 'a' ? 1 : 2;
      spelling.ids.push_back(text[at] == ' ' ? 0 : inside ? letter : letter + 2);
      spelling.ends.push_back(static_cast<std::int64_t>(at) + 1);
    }
    return spelling;
  };
  const std::vector<std::string> letters{"a", "b", " "};
  const std::string text = "ab ba";
  const auto drafts = [&](std::vector<Token> path, std::size_t lead_bytes) {
    const auto pair = pair_of({" ", "a", "b", "a", "b"}, letters);
    Translator translator({pair, by_place,
                           [&](std::string_view piece) { return longest_match(letters, piece); },
                           -1, lead_bytes});
    Judge judge;
    std::vector<float> row(letters.size());
    const auto forward = [&](std::span<const Token> ids) -> std::optional<std::span<const float>> {
      std::fill(row.begin(), row.end(), 0.0F);
      row[text[ids.size()] == ' ' ? 2 : static_cast<std::size_t>(text[ids.size()] - 'a')] = 9.0F;
      return row;
    };
    return ids_of(
        translator.draft(*draft_job(std::move(path), DraftMethod::kSlem, 1), judge, forward));
  };
  CHECK(drafts({3}, 8) == std::vector<Token>{2});
  CHECK(drafts({3, 2, 0}, 8) == std::vector<Token>{4});
  CHECK(drafts({3, 2, 0, 4}, 8) == std::vector<Token>{1});
  CHECK(drafts({3}, 0) == std::vector<Token>{4}); // without a lead it is taken for a word's start
  // Where the path is not what the target's tokenizer makes of it, its end is still a border.
  CHECK(drafts({1}, 8) == std::vector<Token>{2});
}

// Merges of two tokens, the most important first: "bc" before "ab".
Spelling merged(std::string_view text) {
  const std::vector<std::string> tokens{"a", "b", "c", "ab", "bc"};
  std::vector<std::string> parts;
  for (const char letter : text)
    parts.emplace_back(1, letter);
  for (const std::string_view merge : {"bc", "ab"}) {
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if (parts[i] + parts[i + 1] == merge) {
        parts[i] = merge;
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  Spelling spelling;
  std::int64_t end = 0;
  for (const std::string &part : parts) {
    spelling.ids.push_back(
        static_cast<Token>(std::find(tokens.begin(), tokens.end(), part) - tokens.begin()));
    spelling.ends.push_back(end += static_cast<std::int64_t>(part.size()));
  }
  return spelling;
}

TEST_CASE("a token that no longer one begins with is held back while more text may split it") {
  const std::vector<std::string> letters{"a", "b", "c"};
  auto pair = pair_of({"a", "b", "c", "ab", "bc"}, letters);
  Translator translator(
      {pair, merged, [&](std::string_view piece) { return longest_match(letters, piece); }});
  Judge judge;
  const std::string text = "cabcabacaabbcca";
  std::vector<float> row(letters.size());
  const auto forward = [&](std::span<const Token> ids) -> std::optional<std::span<const float>> {
    std::fill(row.begin(), row.end(), 0.0F);
    row[static_cast<std::size_t>(text[std::min(ids.size(), text.size() - 1)] - 'a')] = 9.0F;
    return row;
  };
  const Spelling wanted = merged(text);
  std::vector<Token> path{wanted.ids[0]};
  while (path.size() + 2 < wanted.ids.size()) {
    const Outcome outcome =
        translator.draft(*draft_job(path, DraftMethod::kSlem, 3), judge, forward);
    REQUIRE(!outcome.drafts.empty());
    for (const Draft &draft : outcome.drafts) {
      REQUIRE(draft.id == wanted.ids[path.size()]);
      path.push_back(draft.id);
    }
  }
}

TEST_CASE("SLEM goes on from drafted text that the target says in other tokens") {
  Oracle oracle{"ha hat!"};
  Translator translator = oracle.translator();
  Judge judge;
  const Outcome first =
      translator.draft(*draft_job({3}, DraftMethod::kSlem, 1), judge, oracle.forward());
  CHECK(ids_of(first) == std::vector<Token>{5}); // " hat"
  const int before = oracle.forwards;
  // The target rejects it and says " ", "h": both are on the way.
  const Outcome second =
      translator.draft(*draft_job({3, 2, 0}, DraftMethod::kSlem, 1), judge, oracle.forward());
  CHECK(ids_of(second) == std::vector<Token>{1}); // "a", "t" is behind it
  CHECK(oracle.forwards == before);
}

TEST_CASE("TLI draws a common token, and its law travels with the map") {
  Oracle oracle{"ha hat!"};
  Translator translator = oracle.translator();
  Judge judge;
  const auto job = draft_job({3}, DraftMethod::kTli, 8, Verification::kRejection, 1.0F);
  // " h" is the drafter's choice, and not a token of the target.
  const Outcome outcome = translator.draft(*job, judge, oracle.forward());
  REQUIRE(outcome.drafts.size() == 1);
  const Draft &draft = outcome.drafts[0];
  REQUIRE(draft.law != nullptr);
  REQUIRE(draft.law->t2d != nullptr);
  CHECK(oracle.pair->t2d[static_cast<std::size_t>(draft.id)] >= 0);
  CHECK(draft.law->logits[0] == -std::numeric_limits<float>::infinity());
  CHECK(draft.law->lse == doctest::Approx(std::log(7.0))); // seven common tokens, all with logit 0
}

TEST_CASE("no common token with any mass, an empty or a full context: nothing to propose") {
  Judge judge;
  SUBCASE("no common token") {
    Oracle oracle{"ha hat!"};
    std::fill(oracle.pair->d2t.begin(), oracle.pair->d2t.end(), -1);
    Translator translator = oracle.translator();
    const Outcome outcome =
        translator.draft(*draft_job({3}, DraftMethod::kTli), judge, oracle.forward());
    CHECK(outcome.kind == Outcome::Kind::kDone);
    CHECK(outcome.drafts.empty());
  }
  SUBCASE("a prompt that says nothing") {
    Oracle oracle{"ha hat!"};
    oracle.pair->target_opens[kTargetEnd] = true;
    oracle.pair->t2d[kTargetEnd] = -1;
    Translator translator = oracle.translator();
    const auto job = draft_job({kTargetEnd}, DraftMethod::kSlem);
    CHECK(translator.draft(*job, judge, oracle.forward()).drafts.empty());
    CHECK(oracle.forwards == 0);
  }
  SUBCASE("a full context") {
    Oracle oracle{"ha hat ha hat!"};
    oracle.context = 4; // "ha", and three drafted
    Translator translator = oracle.translator();
    const Outcome outcome =
        translator.draft(*draft_job({3}, DraftMethod::kSlem), judge, oracle.forward());
    CHECK(text_of(kTarget, ids_of(outcome)) == " hat"); // though it may grow
    const auto longer = draft_job({3, 5, 4, 5}, DraftMethod::kSlem);
    CHECK(translator.draft(*longer, judge, oracle.forward()).drafts.empty());
  }
}

TEST_CASE("a row of NaN fails the draft, a stopped forward stops the job") {
  Judge judge;
  Oracle oracle{"ha"};
  const std::vector<float> broken(kDrafter.size(), std::nanf(""));
  for (const DraftMethod method : {DraftMethod::kTli, DraftMethod::kSlem}) {
    Translator translator = oracle.translator();
    const auto job = draft_job({3}, method);
    const auto nan = [&](std::span<const Token>) {
      return std::optional<std::span<const float>>(broken);
    };
    CHECK(translator.draft(*job, judge, nan).kind == Outcome::Kind::kFailed);
    const auto stop = [](std::span<const Token>) -> std::optional<std::span<const float>> {
      return std::nullopt;
    };
    CHECK(translator.draft(*job, judge, stop).kind == Outcome::Kind::kStopped);
  }
}
