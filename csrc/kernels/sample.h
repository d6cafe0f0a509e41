// The drafter's side: tokens, log-sum-exps and thresholds of many rows.
#pragma once

#include "kernels/batch.h"

namespace dsi {

// Arrays that may be null stand for the value behind them in every row.
struct SampleInput {
  std::int64_t rows = 0;                  // R
  Rows logits;                            // [R, V]
  const float *temperature = nullptr;     // [R]; 1
  const std::int32_t *top_k = nullptr;    // [R]; 0, off
  const float *top_p = nullptr;           // [R]; 1, off
  const float *min_p = nullptr;           // [R]; 0, off
  BatchEdits edits;                       // rows r
  const std::int32_t *d2t = nullptr;      // [V], or null: ids with a negative entry take no part
  const std::uint64_t *seed = nullptr;    // [R]; for sample()
  const std::int64_t *position = nullptr; // [R], absolute
  std::uint32_t tag = 0;                  // kCoupledNoise, kDraftNoise, kResidual for a bonus
};

struct SampleOutput {
  std::int32_t *token = nullptr;  // [R], in the row's own ids; -1 where nothing is left
  float *lse = nullptr;           // [R], after temperature, cut, edits and map; -inf there
  float *cut = nullptr;           // [R], as cut() gives it
  std::int32_t *status = nullptr; // [R], kSawNaN, kSawInfinity, kRowEmpty
};

// One read of each row; the cut and what it leaves are found in the caches. The noise of an id is
// keyed by its d2t entry.
void sample(const SampleInput &input, const SampleOutput &output, Workspace &workspace,
            int threads);

// The threshold of each row in units of z: top-k, then top-p of what is left, then min-p, ties
// stay. -inf where nothing is cut, and for greedy rows.
void cut(const SampleInput &input, float *output, Workspace &workspace, int threads);

} // namespace dsi
