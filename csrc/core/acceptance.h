// One row of logits to one token: edits, temperature, cuts, the draw, and the two rules of acceptance.
// Scalar and plain on purpose; it is the readable native baseline.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/types.h"

namespace dsi {

// How tokens are chosen. Immutable for the life of a request.
struct SamplingParams {
  float temperature = 0.0F; // below kGreedyTemperature: argmax
  std::int32_t top_k = 0;   // 0: off
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::uint64_t seed = 0;
  float repetition_penalty = 1.0F; // over prompt and generated tokens (CTRL paper, as transformers)
  float presence_penalty = 0.0F;   // over generated tokens
  float frequency_penalty = 0.0F;  // over generated tokens, times their count
  std::vector<std::pair<Token, float>> logit_bias;
  std::int32_t min_new_tokens = 0; // `stop_ids` are impossible before that many new tokens
  std::vector<Token> stop_ids;
  std::int32_t logprobs = -1; // -1: none; 0: of the emitted token; n: and of the n most likely
  Verification verification = Verification::kCoupled;
};

inline constexpr float kGreedyTemperature = 1e-5F;

// Why a row of logits cannot be drawn from.
enum class RowStatus : std::uint8_t { kOk, kNaN, kNothingLeft /* every id is -inf */, kInfinite /* +inf */ };
const char *describe(RowStatus status);

// Edits that depend on the tokens before a row (bias, penalties, min tokens), kept up to date while
// the row moves along a path. Order: bias, penalties, min tokens.
class RowEdits {
public:
  // `path` holds the prompt's `prompt_tokens` tokens and whatever follows, up to the first row's position.
  RowEdits(const SamplingParams &params, std::span<const Token> path, Position prompt_tokens);
  void push(Token token);                 // the row moves one position on, behind `token`
  void apply(std::span<float> row) const; // ids outside the row are ignored
  bool empty() const;                     // true: apply() never changes a row

private:
  const SamplingParams *params_; // not owned; outlives this object
  Position prompt_tokens_;
  Position length_;
  std::vector<std::pair<Token, std::int32_t>> counts_; // sorted by id: times seen among generated tokens
};

// One row made ready to be drawn from. Owns a copy of the row; reuse one object to avoid allocation.
class Law {
public:
  // Copies `logits` [V], applies `edits` (may be null), scales by the temperature, finds the cut
  // threshold (top-k, then top-p of what is left, then min-p; ties at the threshold stay).
  RowStatus prepare(std::span<const float> logits, const RowEdits *edits, const SamplingParams &params);
  std::size_t size() const { return scaled_.size(); }
  bool greedy() const { return greedy_; }
  Token argmax() const { return argmax_; } // the lowest id among equals
  bool kept(Token id) const;               // inside the vocabulary and not cut
  // log p(id) under the processed law (temperature 1 and no cut where greedy); -inf where cut.
  float logprob(Token id) const;
  std::vector<std::pair<Token, float>> top(std::int32_t n) const; // best first, lowest id first among equals
  void probabilities(std::vector<float> &out) const;              // [V]; one-hot where greedy

  // argmax over kept x of log p(x) + Gumbel(seed, position, tag 0, x): the same noise in target and drafter.
  Token draw_coupled(std::uint64_t seed, Position position) const;
  // An ordinary draw keyed by (seed, position, tag): tag kDraftNoise for drafts, kResidual for a bonus.
  Token draw(std::uint64_t seed, Position position, std::uint32_t tag) const;
  // Leviathan/Chen: the draft `id`, drawn from `law` (null: point mass on `id`), is kept where
  // u*q(id) < p(id), else the token comes from max(p-q, 0) renormalised, or from p where that is zero
  // everywhere. An id of -1 or outside the vocabulary is rejected. Greedy: keep iff id is the argmax.
  Token judge_rejection(const Draft &draft, std::uint64_t seed, Position position) const;

private:
  std::vector<float> scaled_; // logits after edits, divided by the temperature (not where greedy)
  float cut_ = 0.0F;          // ids below are out
  float max_ = 0.0F;
  float lse_ = 0.0F; // log-sum-exp over kept ids
  Token argmax_ = -1;
  bool greedy_ = false;
};

} // namespace dsi
