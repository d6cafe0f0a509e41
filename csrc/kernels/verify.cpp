#include "kernels/verify.h"

#include <cmath>

#include "core/rng.h"
#include "core/sampling.h"

namespace dsi {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::int64_t drafts_of(const VerifyInput &in, std::int64_t request) {
  return in.num_draft == nullptr ? in.drafts
                                 : std::clamp<std::int64_t>(in.num_draft[request], 0, in.drafts);
}

float temperature_of(const VerifyInput &in, std::int64_t request) {
  return in.temperature != nullptr ? in.temperature[request] : 1.0F;
}

Row target_row(const VerifyInput &in, std::int64_t request, std::int64_t k, EditList &edits) {
  const std::int64_t index = request * (in.drafts + 1) + k;
  Row row = in.target.row(index);
  row.temperature = temperature_of(in, request);
  row.cut = in.cut != nullptr ? in.cut[index] : -kInf;
  row.edits = in.edits.of_row(index, edits);
  return row;
}

// -1 for what is no token of the target.
Token target_id(const VerifyInput &in, Token own_id) {
  if (in.d2t == nullptr)
    return std::max(own_id, -1);
  return own_id >= 0 && own_id < in.d2t_size ? std::max(in.d2t[own_id], -1) : -1;
}

// An id outside the drafter's row is no draft, whatever the temperatures. Reads the row where that
// says something: a greedy target only compares ids.
DraftClaim claim_of(const VerifyInput &in, std::int64_t request, std::int64_t k, bool greedy_target,
                    RowRoom &room) {
  const std::int64_t index = request * in.drafts + k;
  DraftClaim claim;
  claim.own_id = in.draft_ids[index];
  claim.id = target_id(in, claim.own_id);
  if (in.draft.data == nullptr)
    return claim;
  if (claim.own_id < 0 || claim.own_id >= in.draft.width)
    return {};
  if (greedy_target)
    return claim;
  Row row = in.draft.row(index);
  row.temperature =
      in.draft_temperature != nullptr ? in.draft_temperature[request] : temperature_of(in, request);
  if (is_greedy(row.temperature))
    return claim;
  row.cut = in.draft_cut != nullptr ? in.draft_cut[index] : -kInf;
  row.edits = in.draft_edits.of_row(index, room.draft_edits);
  row.map = in.d2t;
  const std::uint32_t status = in.draft_lse != nullptr ? room.draft.assume(row, in.draft_lse[index])
                                                       : room.draft.prepare(row, true);
  if ((status & kRowEmpty) != 0)
    return {};
  claim.law = &room.draft;
  if (in.t2d != nullptr)
    claim.t2d = {in.t2d, static_cast<std::size_t>(in.target.width)};
  return claim;
}

// True where the request goes on behind the row.
bool judge_row(const VerifyInput &in, std::int64_t request, std::int64_t k, RowRoom &room,
               RowVerdict &verdict) {
  const bool bonus = k >= drafts_of(in, request);
  const bool compares = in.rejection && !bonus;
  RowLaw &law = room.target;
  const Row row = target_row(in, request, k, room.target_edits);
  const bool needs_sum = in.with_logprobs || (compares && !is_greedy(row.temperature));
  verdict = {};
  verdict.status = law.prepare(row, needs_sum);
  if ((verdict.status & kRowEmpty) != 0)
    return false;
  const std::int64_t position = in.position[request] + k;
  bool accepted = false;
  if (compares) {
    const DraftClaim claim = claim_of(in, request, k, law.greedy(), room);
    const Judgement judgement = law.judge(claim, in.seed[request], position);
    verdict.token = judgement.token;
    verdict.status |= judgement.status;
    if (in.draft_ids[request * in.drafts + k] == -1)
      verdict.status &= ~kDraftImpossible;
    accepted = judgement.accepted;
  } else {
    verdict.token =
        law.draw({in.seed[request], position, in.rejection ? kResidual : kCoupledNoise});
    accepted = !bonus && verdict.token == target_id(in, in.draft_ids[request * in.drafts + k]);
  }
  if (in.with_logprobs) {
    verdict.logprob = law.logprob(verdict.token);
    verdict.lse = static_cast<float>(law.lse());
  }
  return accepted;
}

void write_request(const VerifyInput &in, const VerifyOutput &out, std::int64_t request,
                   const RowVerdict *verdicts, std::int32_t end) {
  std::uint32_t status = 0;
  for (std::int64_t k = 0; k <= in.drafts; ++k) {
    const std::int64_t at = request * (in.drafts + 1) + k;
    const bool emitted = k <= end && verdicts[k].token >= 0;
    out.tokens[at] = emitted ? verdicts[k].token : -1;
    status |= k <= end ? verdicts[k].status : 0;
    if (in.with_logprobs) {
      out.logprob[at] = emitted ? verdicts[k].logprob : std::nanf("");
      out.lse[at] = emitted ? verdicts[k].lse : std::nanf("");
    }
  }
  out.num_accepted[request] = end;
  out.status[request] = static_cast<std::int32_t>(status);
}

} // namespace

void verify(const VerifyInput &in, const VerifyOutput &out, Workspace &workspace, int threads) {
  const std::int64_t rows = in.requests * (in.drafts + 1);
  workspace.verdicts.resize(static_cast<std::size_t>(rows));
  workspace.ends.assign(static_cast<std::size_t>(in.requests),
                        static_cast<std::int32_t>(in.drafts));
  // First rows first, so that rows behind an end are mostly never begun.
  workspace.run(rows, threads, [&](std::int64_t index, RowRoom &room) {
    const std::int64_t request = index % in.requests;
    const std::int64_t k = index / in.requests;
    // A row depends on no other, so any order of these updates gives the same end: the first row
    // that ends. Relaxed: verdicts are read behind the joins.
    std::atomic_ref<std::int32_t> end(workspace.ends[static_cast<std::size_t>(request)]);
    std::int32_t seen = end.load(std::memory_order_relaxed);
    if (k > seen)
      return;
    const std::int64_t at = request * (in.drafts + 1) + k;
    if (judge_row(in, request, k, room, workspace.verdicts[static_cast<std::size_t>(at)]))
      return;
    while (k < seen && !end.compare_exchange_weak(seen, static_cast<std::int32_t>(k),
                                                  std::memory_order_relaxed)) {
    }
  });
  for (std::int64_t request = 0; request < in.requests; ++request)
    write_request(in, out, request, workspace.verdicts.data() + request * (in.drafts + 1),
                  workspace.ends[static_cast<std::size_t>(request)]);
}

} // namespace dsi
