#include "runtime/judge.h"

#include <algorithm>
#include <exception>

#include "core/rng.h"

namespace dsi {

std::string undrawable(const char *whose, Position position, RowStatus status) {
  return std::string("the ") + whose + "'s logits for position " + std::to_string(position) +
         " cannot be drawn from: " + describe(status);
}

RowStatus Judge::prepare(const Job &job, std::span<const float> logits, const RowEdits &edits,
                         std::span<const Token> prefix, RowHook *hook) {
  const SamplingParams &sampling = job.request->sampling;
  if (hook == nullptr)
    return law_.prepare(logits, &edits, sampling);
  row_.assign(logits.begin(), logits.end());
  edits.apply(row_);
  hook->apply(prefix, row_);
  return law_.prepare(row_, nullptr, sampling);
}

JudgedRow Judge::judge_row(const Job &job, Position position) {
  const SamplingParams &sampling = job.request->sampling;
  JudgedRow row;
  if (sampling.verification == Verification::kCoupled) {
    row.token = law_.draw_coupled(sampling.seed, position);
  } else if (position < job.length) {
    const auto index = static_cast<std::size_t>(position - job.first);
    const Draft draft{job.tokens[static_cast<std::size_t>(position)], job.laws[index]};
    row.token = law_.judge_rejection(draft, sampling.seed, position);
  } else {
    const std::optional<Draft> frontier = job.frontier ? job.frontier() : std::nullopt;
    row.bonus = !frontier.has_value();
    row.token = row.bonus ? law_.draw(sampling.seed, position, kResidual)
                          : law_.judge_rejection(*frontier, sampling.seed, position);
  }
  if (sampling.logprobs >= 0) {
    row.logprob = law_.logprob(row.token);
    row.top = law_.top(sampling.logprobs);
  }
  return row;
}

Outcome Judge::verify(const Job &job, const Logits &logits, RowHook *hook) {
  const std::span<const Token> path(job.tokens);
  RowEdits edits(job.request->sampling, path.first(static_cast<std::size_t>(job.first)),
                 job.request->prompt_tokens);
  Outcome outcome;
  for (Position position = job.first; position <= job.length; ++position) {
    const auto prefix = path.first(static_cast<std::size_t>(position));
    RowStatus status = RowStatus::kOk;
    try {
      status = prepare(job, logits.row(position - job.first), edits, prefix, hook);
    } catch (...) {
      // The rows before are good. Behind them this one comes first, and its error is the request's.
      if (position == job.first) {
        throw;
      }
      return outcome;
    }
    if (status != RowStatus::kOk) {
      if (position == job.first) {
        outcome.kind = Outcome::Kind::kFailed;
        outcome.error.message = undrawable("target", position, status);
      }
      return outcome;
    }
    outcome.rows.push_back(judge_row(job, position));
    if (position == job.length ||
        outcome.rows.back().token != path[static_cast<std::size_t>(position)]) {
      return outcome;
    }
    edits.push(path[static_cast<std::size_t>(position)]);
  }
  return outcome;
}

Outcome Judge::broken_draft_row(const Job &job, RowStatus status) {
  Outcome outcome;
  outcome.kind = Outcome::Kind::kFailed;
  outcome.error.message = undrawable("drafter", job.length, status);
  return outcome;
}

Outcome Judge::draft(const Job &job, std::span<const float> logits, RowHook *hook) {
  const SamplingParams &sampling = job.request->sampling;
  const RowEdits edits(sampling, job.tokens, job.request->prompt_tokens);
  const RowStatus status = prepare(job, logits, edits, job.tokens, hook);
  if (status != RowStatus::kOk)
    return broken_draft_row(job, status);
  Draft draft;
  if (sampling.verification == Verification::kCoupled || law_.greedy()) {
    draft.id = law_.draw_coupled(sampling.seed, job.length);
  } else {
    draft.id = law_.draw(sampling.seed, job.length, kDraftNoise);
    draft.law = law_.travelling();
  }
  Outcome outcome;
  outcome.drafts.push_back(std::move(draft));
  return outcome;
}

Judge::Drawn Judge::draw(const Job &job, std::span<const float> logits, const RowMap &map,
                         Position at, bool with_law) {
  const SamplingParams &sampling = job.request->sampling;
  const RowEdits edits(sampling, job.tokens, job.request->prompt_tokens);
  Drawn drawn;
  const RowStatus status = law_.prepare(logits, &edits, sampling, &map);
  if (status == RowStatus::kNothingLeft)
    return drawn;
  if (status != RowStatus::kOk) {
    drawn.failure = broken_draft_row(job, status);
  } else if (sampling.verification == Verification::kCoupled || law_.greedy()) {
    drawn.id = law_.draw_coupled(sampling.seed, at);
  } else {
    drawn.id = law_.draw(sampling.seed, at, kDraftNoise);
    drawn.law = with_law ? law_.travelling() : nullptr;
  }
  return drawn;
}

} // namespace dsi
