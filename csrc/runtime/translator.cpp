#include "runtime/translator.h"

#include <algorithm>

namespace dsi {

namespace {

// A drafter may go on for long without ending a token of the target: one that has a token for each
// line break needs 31 of them for the longest one of Gemma's. What is held back is proposed then.
constexpr int kMostForwards = 64;

Outcome stopped() {
  Outcome outcome;
  outcome.kind = Outcome::Kind::kStopped;
  return outcome;
}

// The first tokens of an encoding, as drafts.
Outcome proposed(const Spelling &spelling, std::size_t count, int most) {
  Outcome outcome;
  count = std::min(count, static_cast<std::size_t>(most));
  for (std::size_t i = 0; i < std::min(count, spelling.ids.size()); ++i)
    outcome.drafts.push_back(Draft{spelling.ids[i], nullptr});
  return outcome;
}

// What the target's tokenizer makes of the beginnings of a text that only grows. `lead`: what
// stands before it.
class Beginnings {
public:
  Beginnings(const Encoder &encode, std::string_view lead) : encode_(encode), lead_(lead) {}

  // Of text[0, length), which stays as it is from the first call on. Valid until the next one.
  const Spelling &spelled(std::string_view text, std::size_t length) {
    if (length >= known_.size())
      known_.resize(length + 1);
    std::optional<Spelling> &known = known_[length];
    if (!known.has_value())
      known = length == 0 ? Spelling{} : encoded(text.substr(0, length));
    return *known;
  }

private:
  Spelling encoded(std::string_view text) const {
    if (!lead_.empty()) {
      Spelling all = encode_(std::string(lead_).append(text));
      const auto border = static_cast<std::int64_t>(lead_.size());
      const auto at = std::upper_bound(all.ends.begin(), all.ends.end(), border) - all.ends.begin();
      // Where the target cut the text elsewhere than its tokenizer would, the lead says nothing.
      if (at > 0 && all.ends[static_cast<std::size_t>(at) - 1] == border) {
        Spelling rest{{all.ids.begin() + at, all.ids.end()},
                      {all.ends.begin() + at, all.ends.end()}};
        for (std::int64_t &end : rest.ends)
          end -= border;
        return rest;
      }
    }
    return encode_(text);
  }

  const Encoder &encode_;
  std::string lead_;
  std::vector<std::optional<Spelling>> known_; // by length
};

bool inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
}

std::size_t common(const Spelling &a, const Spelling &b, std::size_t most) {
  most = std::min({most, a.ids.size(), b.ids.size()});
  std::size_t length = 0;
  while (length < most && a.ids[length] == b.ids[length] && a.ends[length] == b.ends[length])
    ++length;
  return length;
}

// How many tokens of spelled(text, whole), at most `most`, no more text can change. Whatever
// follows, the token that reaches beyond the end begins at a place where a token goes on like the
// text, and what is before that place is spelled as if the text ended there: so BPE, Unigram and
// the longest match are. That no longer token begins where one of the tokens does is not enough:
// "ab" is a token, and "abc" may be "a", "bc".
std::size_t settled(const VocabularyPair &pair, std::string_view text, std::size_t whole,
                    std::size_t most, Beginnings &beginnings) {
  const Spelling next = beginnings.spelled(text, whole);
  std::size_t count = std::min(most, next.ids.size());
  for (std::size_t at = 0; at < text.size() && count > 0; ++at) {
    if (!pair.may_grow(text.substr(at)))
      continue;
    while (count > 0 && next.ends[count - 1] > static_cast<std::int64_t>(at))
      --count;
    if (count > 0 && !inside_character(text, at))
      count = common(next, beginnings.spelled(text, at), count);
  }
  return count;
}

} // namespace

Outcome Translator::draft(const Job &job, Judge &judge, const Forward &forward) {
  const bool tokens = job.request->method == DraftMethod::kTli;
  Alignment &text = alignments_.try_emplace(job.request->id, config_.pair).first->second;
  text.follow(job.tokens, job.committed, !tokens, config_.encode_drafter);
  if (text.ids().empty())
    return {}; // a prompt that says nothing to this drafter
  return tokens ? draft_token(job, text, judge, forward) : draft_text(job, text, judge, forward);
}

Outcome Translator::draft_token(const Job &job, Alignment &text, Judge &judge,
                                const Forward &forward) {
  if (full(text))
    return {};
  const std::optional<std::span<const float>> row = forward(text.kept_ids());
  if (!row.has_value())
    return stopped();
  const VocabularyPair &pair = *config_.pair;
  Judge::Drawn drawn = judge.draw(job, *row, {pair.d2t, pair.t2d}, job.length, true);
  Outcome outcome = std::move(drawn.failure);
  if (drawn.id < 0)
    return outcome;
  if (drawn.law != nullptr)
    drawn.law->t2d = std::shared_ptr<const std::vector<Token>>(config_.pair, &pair.t2d);
  outcome.drafts.push_back(Draft{pair.target_id(drawn.id), std::move(drawn.law)});
  return outcome;
}

Outcome Translator::draft_text(const Job &job, Alignment &text, Judge &judge,
                               const Forward &forward) {
  const VocabularyPair &pair = *config_.pair;
  const auto most = static_cast<std::size_t>(std::max(job.max_drafts, 0));
  Beginnings beginnings(config_.encode_target, text.lead(config_.lead_bytes));
  for (int forwards = 0;; ++forwards) {
    const std::size_t whole = text.ahead_whole().size();
    const Spelling next = beginnings.spelled(text.ahead(), whole);
    const std::size_t ready =
        config_.hold_back ? settled(pair, text.ahead(), whole, most, beginnings) : next.ids.size();
    if (ready > 0)
      return proposed(next, ready, job.max_drafts);
    if (full(text) || forwards == kMostForwards)
      return proposed(next, next.ids.size(), job.max_drafts);
    const std::optional<std::span<const float>> row = forward(text.kept_ids());
    if (!row.has_value() || job.stopped.load(std::memory_order_relaxed))
      return stopped();
    // Where the drafter is at the border of two target tokens, the noise is the target's there.
    const Position at = job.length + static_cast<Position>(next.ids.size());
    const Judge::Drawn drawn = judge.draw(job, *row, {pair.noise_ids, pair.t2d}, at, false);
    if (drawn.id < 0 && drawn.failure.kind == Outcome::Kind::kFailed)
      return drawn.failure;
    const Token known = pair.target_id(drawn.id);
    if (drawn.id < 0 || pair.is_control(known)) {
      Outcome outcome = proposed(next, next.ids.size(), job.max_drafts);
      if (drawn.id >= 0 && static_cast<int>(outcome.drafts.size()) < job.max_drafts)
        outcome.drafts.push_back(Draft{known, nullptr});
      return outcome;
    }
    text.push(drawn.id);
  }
}

} // namespace dsi
