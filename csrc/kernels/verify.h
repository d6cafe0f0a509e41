// The acceptance rule over a batch of windows.
#pragma once

#include "kernels/batch.h"

namespace dsi {

// B requests with K drafts each. Arrays are row-major and not owned; those that may be null say so.
struct VerifyInput {
  std::int64_t requests = 0; // B
  std::int64_t drafts = 0;   // K
  bool rejection = false;    // else coupled
  bool with_logprobs = false;
  Rows target;                             // [B, K+1]; row k of request b: position[b] + k
  const std::int32_t *draft_ids = nullptr; // [B, K], in the drafter's ids
  const std::int32_t *num_draft = nullptr; // [B], or null: K. Drafts behind are not looked at
  const std::uint64_t *seed = nullptr;     // [B]
  const std::int64_t *position = nullptr;  // [B], absolute
  const float *temperature = nullptr;      // [B], or null: 1
  const float *cut = nullptr;              // [B, K+1] in units of z, or null: none
  BatchEdits edits;                        // rows b*(K+1) + k
  // The drafter's side, read in rejection mode only. Without rows, and where its temperature is
  // greedy, a draft is a point mass.
  Rows draft;                       // [B, K]
  const float *draft_lse = nullptr; // [B, K], after temperature, cut, edits and map; or null
  const float *draft_temperature = nullptr; // [B], or null: `temperature`
  const float *draft_cut = nullptr;         // [B, K], or null
  BatchEdits draft_edits;                   // rows b*K + k
  const std::int32_t *d2t = nullptr; // [d2t_size], or null: same ids. Negative: no such token
  std::int64_t d2t_size = 0;         // draft.width where there are rows
  const std::int32_t *t2d = nullptr; // [target.width]; with d2t and rows
};

struct VerifyOutput {
  std::int32_t *tokens = nullptr;       // [B, K+1], -1 behind the last
  std::int32_t *num_accepted = nullptr; // [B]
  float *logprob = nullptr;             // [B, K+1], NaN where no token; null without with_logprobs
  float *lse = nullptr;                 // the same
  std::int32_t *status = nullptr;       // [B], bits of row.h
};

// coupled: the token of each row is the argmax of z - log E(kCoupledNoise), and a draft is accepted
// where it is that token. rejection: Leviathan/Chen, drafts are accepted where u*q < p, the first
// rejection draws from max(p - q, 0), or from p where that is zero everywhere (kZeroResidual) or
// the draft cannot have come from its law (kDraftImpossible unless its id is -1). The row behind
// the last draft gives a bonus. A row with nothing left ends its request without a token
// (kRowEmpty). Rows behind the end of a request are not read (with threads: where it is seen in
// time). One read of each row that is; the result does not depend on `threads`.
void verify(const VerifyInput &input, const VerifyOutput &output, Workspace &workspace,
            int threads);

} // namespace dsi
