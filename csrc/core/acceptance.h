// One row of logits to one token: edits, temperature, cuts, the draw, and the two rules of
// acceptance. Scalar and plain on purpose; it is the readable native baseline.
#pragma once

#include <cstddef>
#include <cstdint>
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

// Why a row of logits cannot be drawn from. Where several apply, the first in the order NaN,
// infinite, nothing left. A value that edits turn into NaN or +inf counts like one of the model's.
enum class RowStatus : std::uint8_t {
  kOk,
  kNaN,
  kNothingLeft, // every id is -inf, or there is none
  kInfinite     // +inf
};
const char *describe(RowStatus status); // static storage, never null

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
  void push(Token token);                 // the row moves one position on, behind `token`; O(1)
  void apply(std::span<float> row) const; // ids outside the row are ignored
  bool empty() const;                     // true: apply() changes no row, now or after any push()

private:
  bool too_short_to_stop() const;

  const SamplingParams *params_; // not owned; outlives this object
  Position prompt_tokens_;
  Position length_;
  bool biases_;
  bool repeats_; // repetition penalty on: prompt tokens are listed too
  bool counts_generated_;
  std::unordered_map<Token, std::int32_t> counts_; // times seen among generated tokens
};

// One row made ready to be drawn from. Owns a copy of the row; reuse one object to avoid
// allocation. Everything but size() needs a prepare() that returned kOk. Not thread-safe, not even
// the const methods: the normaliser is computed when first asked for.
class Law {
public:
  // Copies `logits` [V], applies `edits` (may be null), divides by the temperature, finds the cut
  // threshold (top-k, then top-p of what is left, then min-p; ties at the threshold stay). A finite
  // logit that the temperature takes beyond float32 is clamped. O(V).
  RowStatus prepare(std::span<const float> logits, const RowEdits *edits,
                    const SamplingParams &params);
  std::size_t size() const { return scaled_.size(); }
  bool greedy() const { return greedy_; }
  Token argmax() const { return argmax_; } // the lowest id among equals
  bool kept(Token id) const;               // inside the vocabulary, possible, and not cut
  // log p(id) under the processed law (temperature 1 and no cut where greedy); -inf where cut.
  float logprob(Token id) const;
  // Best first, lowest id first among equals; fewer than n where fewer are kept.
  std::vector<std::pair<Token, float>> top(std::int32_t n) const;
  void probabilities(std::vector<float> &out) const; // [V]; one-hot where greedy

  // argmax over kept x of log p(x) + Gumbel(seed, position, tag 0, x): the same noise in target and
  // drafter. The score is scaled logit - log E, both in double; ties: the lowest id.
  Token draw_coupled(std::uint64_t seed, Position position) const;
  // An ordinary draw keyed by (seed, position, tag): tag kDraftNoise for drafts, kResidual for a
  // bonus. The exponential race argmax p/E, in the same arithmetic as draw_coupled.
  Token draw(std::uint64_t seed, Position position, std::uint32_t tag) const;
  // Leviathan/Chen: the draft `id`, drawn from `law` (null: point mass on `id`), is kept where
  // u*q(id) < p(id), else the token comes from max(p-q, 0) renormalised, or from p where that is
  // zero everywhere. An id of -1 or outside the vocabulary is rejected. An id that `law` cannot
  // have produced (q(id) = 0, -1, outside) says nothing about the noise, so the token is a draw
  // from p. Greedy: keep iff id is the argmax.
  Token judge_rejection(const Draft &draft, std::uint64_t seed, Position position) const;

private:
  void find_cut(const SamplingParams &params);
  void rank_above(float least); // ranked_: what is kept so far and not below
  float top_p_threshold(float top_p);
  double sum() const;                    // of exp(scaled - max) over kept ids
  float probability(float scaled) const; // of an id that is kept
  Token race(std::uint64_t seed, Position position, std::uint32_t tag, Token without) const;
  Token race_residual(std::span<const float> q, std::uint64_t seed, Position position) const;

  std::vector<float> scaled_; // logits after edits, divided by the temperature (not where greedy)
  std::vector<float> ranked_; // room for the selections behind the cuts
  float cut_ = 0.0F;          // ids below are out; finite, so -inf is always out
  float max_ = 0.0F;
  mutable double sum_ = 0.0; // 0: not computed yet
  Token argmax_ = -1;
  bool greedy_ = false;
};

} // namespace dsi
