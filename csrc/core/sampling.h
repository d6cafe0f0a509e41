// How a request's tokens are chosen, and the edits of a row that depend on the tokens before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/types.h"

namespace dsi {

// How tokens are chosen. Immutable for the life of a request.
struct SamplingParams {
  float temperature = 0.0F; // below kGreedyTemperature: argmax
  std::int32_t top_k = 0;   // 0: off
  float top_p = 1.0F;       // 1: off
  float min_p = 0.0F;       // 0: off
  std::uint64_t seed = 0;
  float repetition_penalty = 1.0F; // over prompt and generated tokens (CTRL paper, as transformers)
  float presence_penalty = 0.0F;   // over generated tokens (as OpenAI and vLLM)
  float frequency_penalty = 0.0F;  // over generated tokens, times their count
  std::vector<std::pair<Token, float>> logit_bias; // entries for one id add up
  std::int32_t min_new_tokens = 0; // `stop_ids` are impossible before that many new tokens
  std::vector<Token> stop_ids;
  std::int32_t logprobs = -1; // -1: none; 0: of the emitted token; n: and of the n most likely
  Verification verification = Verification::kCoupled;
};

inline constexpr float kGreedyTemperature = 1e-5F;
inline bool is_greedy(float temperature) { return !(temperature >= kGreedyTemperature); } // NaN too

enum class EditOperation : std::uint8_t {
  kAdd = 0,
  kRepetition = 1, // divided by the value where above 0, else multiplied (CTRL paper)
  kSet = 2
};

struct Edit {
  Token id;
  EditOperation operation;
  float value;
};

// x after `edit`, in float32.
inline float edited(float x, const Edit &edit) {
  switch (edit.operation) {
  case EditOperation::kAdd:
    return x + edit.value;
  case EditOperation::kRepetition:
    return x > 0.0F ? x / edit.value : x * edit.value;
  case EditOperation::kSet:
    return edit.value;
  }
  return x;
}

// Edits that depend on the tokens before a row (bias, penalties, min tokens), kept up to date while
// the row moves along a path. Order: bias, then penalties (repetition, frequency, presence), then
// min tokens. Repetition: each id seen in prompt or generated text once, logit > 0 divided by the
// penalty, else multiplied. Frequency and presence: logit -= frequency * count and -= presence,
// over generated tokens only. Drafts before the row count as generated.
class RowEdits {
public:
  // `path` holds the prompt's `prompt_tokens` tokens and whatever follows, up to the first row's
  // position. Cost: expected O(path) where a penalty is on, else O(1).
  RowEdits(const SamplingParams &params, std::span<const Token> path, Position prompt_tokens);
  void push(Token token); // the row moves one position on, behind `token`; O(1)
  // Calls add(Edit) for each edit of the row, those of one id in their order. Ids may be outside.
  template <class Add> void each(Add add) const;
  void apply(std::span<float> row) const; // ids outside the row are ignored

private:
  bool too_short_to_stop() const;

  const SamplingParams *params_; // not owned; outlives this object
  Position prompt_tokens_;
  Position length_;
  bool repeats_; // repetition penalty on: prompt tokens are listed too
  bool counts_generated_;
  std::unordered_map<Token, std::int32_t> counts_; // times seen among generated tokens
};

template <class Add> void RowEdits::each(Add add) const {
  for (const auto &[id, bias] : params_->logit_bias)
    add(Edit{id, EditOperation::kAdd, bias});
  for (const auto &[id, count] : counts_) {
    if (repeats_)
      add(Edit{id, EditOperation::kRepetition, params_->repetition_penalty});
    if (count > 0) {
      add(Edit{id, EditOperation::kAdd, -(params_->frequency_penalty * static_cast<float>(count))});
      add(Edit{id, EditOperation::kAdd, -params_->presence_penalty});
    }
  }
  if (!too_short_to_stop())
    return;
  for (const Token id : params_->stop_ids)
    add(Edit{id, EditOperation::kSet, -std::numeric_limits<float>::infinity()});
}

} // namespace dsi
