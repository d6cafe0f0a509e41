// The law of one row under a request's sampling parameters: edits, temperature, cuts, draws.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/sampling.h"
#include "kernels/row_law.h"

namespace dsi {

// Why a row of logits cannot be drawn from. Where several apply, the first in the order NaN,
// infinite, nothing left. A value that edits turn into NaN or +inf counts like one of the
// model's, and no edit hides the model's NaN.
enum class RowStatus : std::uint8_t {
  kOk,
  kNaN,
  kNothingLeft, // every id is -inf, or there is none
  kInfinite     // +inf
};
const char *describe(RowStatus status); // static storage, never null

// What the ids of a row in a drafter's own vocabulary are to the target. Not owned.
struct RowMap {
  // [V of the row]: the id whose noise each id draws with, in most cases the target's; -1: takes no
  // part.
  std::span<const Token> noise_ids;
  std::span<const Token> t2d; // [target's V]: the row's id of each of the target's, -1 for none
};

// Reuse one object to avoid allocation. Everything but size() needs a prepare() that returned kOk.
// Not thread-safe: what is not needed yet is computed when first asked for.
class Law {
public:
  // Applies `edits` (may be null), the temperature and the cuts (top-k, then top-p of what is left,
  // then min-p; ties at the threshold stay). `logits` [V] is not copied: it stays as it is until
  // the next prepare(). O(V). Edits are in the target's ids; with `map` the row is not, and they
  // take the way of its t2d.
  RowStatus prepare(std::span<const float> logits, const RowEdits *edits,
                    const SamplingParams &params, const RowMap *map = nullptr);
  std::size_t size() const { return static_cast<std::size_t>(row_.size); }
  bool greedy() const { return law_.greedy(); }
  Token argmax() { return law_.argmax(); } // the lowest id among equals
  bool kept(Token id) const { return law_.kept(id); }
  double probability(Token id); // 0 where cut; one-hot where greedy
  // log p(id) under the processed law (temperature 1 and no cut where greedy); -inf where cut.
  float logprob(Token id) { return law_.logprob(id); }
  // Best first, lowest id first among equals; fewer than n where fewer are kept.
  std::vector<std::pair<Token, float>> top(std::int32_t n);
  // A copy for whoever judges a draft that was drawn from here. Not greedy.
  std::shared_ptr<DraftLaw> travelling();

  // The race of RowLaw::draw; draw_coupled with the noise that target and drafter share.
  Token draw_coupled(std::uint64_t seed, Position position);
  Token draw(std::uint64_t seed, Position position, std::uint32_t tag);
  // Leviathan/Chen: the draft `id`, drawn from `law` (null: point mass on `id`), is kept where
  // u*q(id) < p(id), else the token comes from max(p-q, 0) renormalised, or from p where that is
  // zero everywhere. An id that `law` cannot have produced (q(id) = 0, -1, outside) says nothing
  // about the noise, so the token is a draw from p. Greedy: keep iff id is the argmax.
  Token judge_rejection(const Draft &draft, std::uint64_t seed, Position position);

private:
  Row row_;
  EditList edits_;
  RowLaw law_;
  RowLaw draft_;
};

} // namespace dsi
