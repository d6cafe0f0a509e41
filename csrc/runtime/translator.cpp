#include "runtime/translator.h"

#include <algorithm>

namespace dsi {

namespace {

// A drafter may go on for long without ending a token of the target, in a run of blank lines for
// one. What is held back is proposed then.
constexpr int kMostForwards = 16;

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

// How many tokens of an encoding more text cannot change: no token that begins where one of them
// does could reach beyond the end.
std::size_t settled(const VocabularyPair &pair, std::string_view text, const Spelling &spelling) {
  std::int64_t start = 0;
  for (std::size_t i = 0; i < spelling.ids.size(); ++i) {
    if (pair.may_grow(text.substr(static_cast<std::size_t>(start))))
      return i;
    start = spelling.ends[i];
  }
  return spelling.ids.size();
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
  const std::optional<std::span<const float>> row = forward(text.ids());
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
  for (int forwards = 0;; ++forwards) {
    const std::string_view whole = text.ahead_whole();
    const Spelling next = whole.empty() ? Spelling{} : config_.encode_target(whole);
    const std::size_t ready =
        config_.hold_back ? settled(pair, text.ahead(), next) : next.ids.size();
    if (ready > 0)
      return proposed(next, ready, job.max_drafts);
    if (full(text) || forwards == kMostForwards)
      return proposed(next, next.ids.size(), job.max_drafts);
    const std::optional<std::span<const float>> row = forward(text.ids());
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
