// The law of one row of logits, from one read of it: statistics, draws, and the rules of
// acceptance.
#pragma once

#include <utility>

#include "kernels/chunks.h"
#include "kernels/selection.h"

namespace dsi {

class RowLaw;

// What the target is told about one draft.
struct DraftClaim {
  Token id = -1; // in the target's ids; -1: none, or one that the target does not have
  // The law it was drawn from, prepared or assumed; null: a point mass on `id`. Not owned.
  RowLaw *law = nullptr;
  Token own_id = -1; // in the ids of `law`
  // [target's V], or empty: the drafter's ids are the target's. Ids behind it the drafter lacks.
  std::span<const std::int32_t> t2d = {};
  // Of an id inside the target's row; both need `law`.
  double probability(Token target_id) const;
  float z(Token target_id) const; // -inf where not kept

private:
  Token own(Token target_id) const; // -1: the drafter lacks it
};

struct Judgement {
  Token token = -1;
  bool accepted = false;
  std::uint32_t status = 0; // kZeroResidual, kDraftImpossible
};

// Owns room that grows to what the largest row needed; reuse one object and nothing is allocated.
// Not thread-safe. The row is not copied: it has to outlive its use here, unchanged. Ids outside
// the row may be asked for everywhere; they are impossible.
class RowLaw {
public:
  // Finds max and status in one read of the row, with_sum the normaliser in the same read (else at
  // the first call that needs it). Returns kSawNaN, kSawInfinity, kRowEmpty, as they apply.
  // Everything below needs a prepare() without kRowEmpty. O(V); cost per id a comparison, with_sum
  // about twenty multiplications and additions.
  std::uint32_t prepare(const Row &row, bool with_sum);
  // Takes the log of the normaliser as given instead, and reads nothing. Then only kept(), z(),
  // probability(), logprob() and lse() may be asked. kRowEmpty where `lse` is not finite.
  std::uint32_t assume(const Row &row, double lse);

  std::int64_t size() const { return row_.size; }
  bool greedy() const { return greedy_; }
  float max() const { return max_; } // z of the best
  Token argmax();                    // the lowest id among equals
  float cut() const { return cut_; }
  float z(Token id) const;      // -inf for what is outside or impossible
  bool kept(Token id) const;    // z >= cut, and possible
  double lse();                 // log of the sum of exp z over kept ids
  double probability(Token id); // exp(z - max) / sum, 0 where not kept. Not one-hot if greedy
  float logprob(Token id);      // -inf where not kept; temperature 1 and no cut where greedy
  // Best first, lowest id first among equals; fewer than n where fewer are kept. Replaces `out`.
  void top(std::int32_t n, std::vector<std::pair<Token, float>> &out);

  // x of the whole row as float32 [V], edited, -inf where the map leaves it out: with its lse, cut
  // and temperature all that assume() needs later, when the row itself is gone.
  void copy_edited(std::vector<float> &out);

  // The threshold, in units of z, of top-k, then top-p of what is left, then min-p; ties stay.
  // -inf where nothing is cut, also for a greedy row. The row has no cut yet.
  float find_cut(std::int32_t top_k, float top_p, float min_p);
  void set_cut(float cut); // at most max()

  // argmax over kept ids of z - log E(seed, position, tag, id), in double; lowest id among equals;
  // the argmax where greedy. The noise of a row with a map is that of the ids it maps to.
  Token draw(const Noise &noise);
  // Leviathan/Chen, with the coin accept_uniform(seed, position) and the noise of tag kResidual.
  // Greedy: the argmax, accepted where it is the draft.
  Judgement judge(const DraftClaim &draft, std::uint64_t seed, std::int64_t position);

private:
  struct Best;
  void open(const Row &row);
  bool more_than(std::int64_t k, float kth);
  void scan(bool with_sum, std::uint32_t *status);
  void need_sum();
  void add_to_sum(const float *x, std::int64_t chunk, float chunk_max);
  float chunk_z(std::int64_t chunk) const; // z of the best of a chunk
  template <class Weight> Token race(const Noise &noise, Token without, Weight weight);
  template <class Enter>
  void race_some(const Noise &noise, std::int64_t chunk, std::int32_t count, const Best &best,
                 Enter enter);
  template <class Enter>
  void race_all(const Noise &noise, std::int64_t chunk, const float *x, const Best &best,
                Enter enter);
  Token draw_without(const Noise &noise, Token without);
  Token draw_residual(const DraftClaim &draft, const Noise &noise);

  Row row_;
  ChunkReader reader_;
  Selection selection_;
  std::vector<float> chunk_max_;  // of what the reader gives
  std::vector<std::int32_t> ids_; // of one chunk
  std::vector<std::int32_t> noise_ids_;
  std::vector<std::uint32_t> bits_;
  std::vector<float> ranked_;
  float inverse_ = 1.0F;
  float cut_ = 0.0F;
  float max_ = 0.0F;
  double sum_ = 0.0; // of exp(z - sum_max_) over kept ids; 0: not taken yet
  double sum_max_ = 0.0;
  Token argmax_ = -1; // -1: not looked for yet
  bool greedy_ = false;
};

} // namespace dsi
