// The Session against thousands of random drivers. Every failure names its seed.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/effort.h"
#include "support/session_driver.h"

using namespace dsi;
using namespace dsi::test;

namespace {

std::shared_ptr<const TokenBytes> two_letters(int vocab_size) {
  auto bytes = std::make_shared<TokenBytes>();
  bytes->offsets.push_back(0);
  for (int id = 0; id < vocab_size; ++id) {
    bytes->blob += static_cast<char>('a' + id);
    bytes->blob += static_cast<char>('a' + (id + 1) % vocab_size);
    bytes->offsets.push_back(static_cast<std::int64_t>(bytes->blob.size()));
  }
  return bytes;
}

struct Case {
  SessionConfig config;
  std::vector<Token> prompt;
  ToyModel model;
  std::vector<std::string> stop_strings;
};

// The rules of stopping, applied to the target's own text one token at a time.
Expected expected_of(const Case &random_case) {
  const SessionConfig &config = random_case.config;
  const auto prompt_tokens = static_cast<std::int64_t>(random_case.prompt.size());
  std::int64_t cap = config.max_new_tokens;
  if (config.target_context >= 0)
    cap = std::min(cap, config.target_context - prompt_tokens);
  const auto bytes = two_letters(random_case.model.vocab_size);
  Expected expected;
  std::string text;
  for (const Token token : random_case.model.continuation(random_case.prompt, cap)) {
    expected.tokens.push_back(token);
    text += bytes->blob.substr(static_cast<std::size_t>(token) * 2, 2);
    std::size_t start = std::string::npos;
    for (const std::string &string : random_case.stop_strings)
      start = std::min(start, text.find(string));
    if (start != std::string::npos) {
      expected.reason = FinishReason::kStopString;
      expected.stop_bytes = static_cast<std::int64_t>(start);
      return expected;
    }
    if (std::find(config.stop_ids.begin(), config.stop_ids.end(), token) != config.stop_ids.end()) {
      expected.reason = FinishReason::kStopToken;
      return expected;
    }
  }
  return expected;
}

Case random_case(std::mt19937_64 &random) {
  const auto pick = [&](int n) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(n));
  };
  Case made;
  const std::array<double, 5> acceptances{0.0, 0.5, 0.8, 0.95, 1.0};
  made.model = {random(), 2 + pick(12), acceptances[static_cast<std::size_t>(pick(5))]};
  for (int i = 1 + pick(5); i > 0; --i)
    made.prompt.push_back(pick(made.model.vocab_size));
  SessionConfig &config = made.config;
  const std::array<Mode, 4> modes{Mode::kNonSI, Mode::kSI, Mode::kDSI, Mode::kDSI};
  config.policy.mode = modes[static_cast<std::size_t>(pick(4))];
  config.policy.lookahead = 1 + pick(5);
  config.policy.run_ahead = config.policy.lookahead + pick(20);
  config.policy.max_window = pick(4) == 0 ? 1 + pick(6) : 64;
  config.max_new_tokens = 1 + pick(40);
  config.vocab_size = made.model.vocab_size;
  const auto prompt_tokens = static_cast<std::int64_t>(made.prompt.size());
  if (pick(4) == 0)
    config.target_context = prompt_tokens + 1 + pick(40);
  if (pick(4) == 0)
    config.drafter_context = pick(40);
  if (pick(3) == 0)
    config.stop_ids = {pick(made.model.vocab_size * 4)};
  if (pick(3) == 0) {
    const std::string letters = two_letters(made.model.vocab_size)->blob;
    for (int i = 1 + pick(2); i > 0; --i)
      made.stop_strings.push_back(
          letters.substr(static_cast<std::size_t>(pick(static_cast<int>(letters.size()) - 1)), 2) +
          letters.substr(static_cast<std::size_t>(pick(static_cast<int>(letters.size()))), 1));
    config.stop_strings.emplace(two_letters(made.model.vocab_size), made.stop_strings);
  }
  return made;
}

// Empty where all promises were kept.
std::string complaint(std::uint64_t seed, const Mischief &mischief,
                      FinishReason *reason = nullptr) {
  std::mt19937_64 random(seed);
  const Case made = random_case(random);
  RandomDriver driver(made.config, made.prompt, made.model, expected_of(made), mischief, random());
  try {
    driver.run();
  } catch (const std::logic_error &error) {
    return error.what();
  }
  if (reason != nullptr)
    *reason = driver.session().reason();
  return "";
}

void run_many(std::uint64_t first, int runs, const Mischief &mischief,
              std::set<FinishReason> wanted) {
  for (int i = 0; i < (kSanitized ? runs / 4 : runs); ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    FinishReason reason = FinishReason::kNone;
    const std::string found = complaint(seed, mischief, &reason);
    if (!found.empty())
      FAIL("seed " << seed << ": " << found);
    wanted.erase(reason);
  }
  CHECK_MESSAGE(wanted.empty(), "some way to end was never met");
}

} // namespace

TEST_CASE("random driver: late, stale, truncated and unasked-for answers leave the text alone") {
  run_many(1, 6000, Mischief{},
           {FinishReason::kLength, FinishReason::kStopToken, FinishReason::kStopString});
}

TEST_CASE("random driver: target servers fail") {
  Mischief mischief;
  mischief.verify_fails = 0.1;
  run_many(100'000, 3000, mischief,
           {FinishReason::kLength, FinishReason::kStopToken, FinishReason::kStopString,
            FinishReason::kError});
}

TEST_CASE("random driver: drafters die or leave the vocabulary") {
  Mischief mischief;
  mischief.draft_fails = 0.02;
  mischief.draft_outside = 0.02;
  run_many(200'000, 3000, mischief,
           {FinishReason::kLength, FinishReason::kStopToken, FinishReason::kStopString});
}

TEST_CASE("random driver: everything goes wrong, and the reader cancels") {
  Mischief mischief;
  mischief.verify_fails = 0.2;
  mischief.rows_missing = 0.5;
  mischief.gives_up = 0.2;
  mischief.draft_fails = 0.01;
  mischief.draft_empty = 0.3;
  mischief.cancels = 0.01;
  run_many(300'000, 3000, mischief,
           {FinishReason::kLength, FinishReason::kStopToken, FinishReason::kStopString,
            FinishReason::kError, FinishReason::kCancelled});
}
