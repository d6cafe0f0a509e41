#include "core/acceptance.h"

#include <algorithm>
#include <limits>

namespace dsi {

RowEdits::RowEdits(const SamplingParams &params, std::span<const Token> path,
                   Position prompt_tokens)
    : params_(&params), prompt_tokens_(prompt_tokens), length_(0),
      biases_(std::any_of(params.logit_bias.begin(), params.logit_bias.end(),
                          [](const auto &entry) { return entry.second != 0.0F; })),
      repeats_(params.repetition_penalty != 1.0F),
      counts_generated_(params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F) {
  if (repeats_ || counts_generated_) {
    for (const Token token : path)
      push(token);
  }
  length_ = static_cast<Position>(path.size());
}

void RowEdits::push(Token token) {
  const bool generated = length_ >= prompt_tokens_;
  ++length_;
  if (repeats_ || (counts_generated_ && generated))
    counts_[token] += generated ? 1 : 0;
}

bool RowEdits::too_short_to_stop() const {
  return length_ - prompt_tokens_ < params_->min_new_tokens && !params_->stop_ids.empty();
}

bool RowEdits::empty() const {
  return !biases_ && !repeats_ && !counts_generated_ && !too_short_to_stop();
}

void RowEdits::apply(std::span<float> row) const {
  const auto inside = [&](Token id) {
    return id >= 0 && static_cast<std::size_t>(id) < row.size();
  };
  for (const auto &[id, bias] : params_->logit_bias) {
    if (inside(id))
      row[static_cast<std::size_t>(id)] += bias;
  }
  for (const auto &[id, count] : counts_) {
    if (!inside(id))
      continue;
    float &logit = row[static_cast<std::size_t>(id)];
    if (repeats_)
      logit =
          logit > 0.0F ? logit / params_->repetition_penalty : logit * params_->repetition_penalty;
    if (count > 0) {
      logit -= params_->frequency_penalty * static_cast<float>(count);
      logit -= params_->presence_penalty;
    }
  }
  if (!too_short_to_stop())
    return;
  for (const Token id : params_->stop_ids) {
    if (inside(id))
      row[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
  }
}

} // namespace dsi
