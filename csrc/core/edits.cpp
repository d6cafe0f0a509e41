#include "core/sampling.h"

namespace dsi {

RowEdits::RowEdits(const SamplingParams &params, std::span<const Token> path,
                   Position prompt_tokens)
    : params_(&params), prompt_tokens_(prompt_tokens), length_(0),
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

void RowEdits::apply(std::span<float> row) const {
  each([row](const Edit &edit) {
    if (edit.id >= 0 && static_cast<std::size_t>(edit.id) < row.size()) {
      float &logit = row[static_cast<std::size_t>(edit.id)];
      logit = edited(logit, edit);
    }
  });
}

} // namespace dsi
