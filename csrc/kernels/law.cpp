#include "kernels/law.h"

#include <algorithm>
#include <cmath>

#include "core/rng.h"

namespace dsi {

const char *describe(RowStatus status) {
  switch (status) {
  case RowStatus::kOk:
    return "the row can be drawn from";
  case RowStatus::kNaN:
    return "the row of logits holds NaN";
  case RowStatus::kNothingLeft:
    return "every id of the row of logits is -inf";
  case RowStatus::kInfinite:
    return "the row of logits holds +inf";
  }
  return "unknown row status";
}

RowStatus Law::prepare(std::span<const float> logits, const RowEdits *edits,
                       const SamplingParams &params, const RowMap *map) {
  edits_.clear();
  const auto own_id = [&](Token id) {
    if (map == nullptr)
      return id;
    return id >= 0 && static_cast<std::size_t>(id) < map->t2d.size()
               ? map->t2d[static_cast<std::size_t>(id)]
               : -1;
  };
  if (edits != nullptr)
    edits->each([&](const Edit &edit) { edits_.add(own_id(edit.id), edit.operation, edit.value); });
  row_ = {};
  row_.data = logits.data();
  row_.size = static_cast<std::int64_t>(logits.size());
  if (map != nullptr) {
    row_.map = map->noise_ids.data();
    row_.size = std::min(row_.size, static_cast<std::int64_t>(map->noise_ids.size()));
  }
  row_.temperature = params.temperature;
  row_.edits = edits_.sorted();
  // A model that says NaN is broken, also where an edit would hide it.
  for (const Edit &edit : row_.edits) {
    if (edit.id < row_.size && std::isnan(logits[static_cast<std::size_t>(edit.id)]))
      return RowStatus::kNaN;
  }
  const std::uint32_t status = law_.prepare(row_, false);
  if ((status & kSawNaN) != 0)
    return RowStatus::kNaN;
  if ((status & kSawInfinity) != 0)
    return RowStatus::kInfinite;
  if ((status & kRowEmpty) != 0)
    return RowStatus::kNothingLeft;
  law_.set_cut(law_.find_cut(params.top_k, params.top_p, params.min_p));
  return RowStatus::kOk;
}

double Law::probability(Token id) {
  if (greedy())
    return id == argmax() ? 1.0 : 0.0;
  return law_.probability(id);
}

std::vector<std::pair<Token, float>> Law::top(std::int32_t n) {
  std::vector<std::pair<Token, float>> best;
  law_.top(n, best);
  return best;
}

std::shared_ptr<DraftLaw> Law::travelling() {
  auto copy = std::make_shared<DraftLaw>();
  law_.copy_edited(copy->logits);
  copy->temperature = row_.temperature;
  copy->cut = law_.cut();
  copy->lse = law_.lse();
  return copy;
}

Token Law::draw_coupled(std::uint64_t seed, Position position) {
  return draw(seed, position, kCoupledNoise);
}

Token Law::draw(std::uint64_t seed, Position position, std::uint32_t tag) {
  return law_.draw({seed, position, tag});
}

Token Law::judge_rejection(const Draft &draft, std::uint64_t seed, Position position) {
  DraftClaim claim;
  claim.id = draft.id;
  claim.own_id = draft.id;
  if (draft.law && !greedy()) {
    Row row;
    row.data = draft.law->logits.data();
    row.size = static_cast<std::int64_t>(draft.law->logits.size());
    row.temperature = draft.law->temperature;
    row.cut = draft.law->cut;
    draft_.assume(row, draft.law->lse);
    claim.law = &draft_;
    if (const auto &t2d = draft.law->t2d) {
      const bool inside = draft.id >= 0 && static_cast<std::size_t>(draft.id) < t2d->size();
      claim.own_id = inside ? (*t2d)[static_cast<std::size_t>(draft.id)] : -1;
      claim.t2d = *t2d;
    }
  }
  return law_.judge(claim, seed, position).token;
}

} // namespace dsi
