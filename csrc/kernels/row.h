// One row of logits as its owner holds it, and what may be done to it before anything is drawn.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/sampling.h"

namespace dsi {

enum class Dtype : std::uint8_t { kF32 = 0, kBf16 = 1, kF16 = 2 };

constexpr std::size_t bytes_of(Dtype dtype) { return dtype == Dtype::kF32 ? 4 : 2; }

// Edits of one row. Reuse one object: no memory is asked for once it has held as many.
class EditList {
public:
  void clear();
  void add(Token id, EditOperation operation, float value); // negative ids are dropped
  // Ascending by id, those of one id in the order they were added. Valid until the next change.
  std::span<const Edit> sorted();

private:
  std::vector<Edit> edits_;
  std::vector<Edit> sorted_;
  std::vector<std::uint64_t> order_; // id, then the index in edits_
  bool ascending_ = true;
};

// The law of a row: x = logit after edits; NaN counts as -inf; z = x/T by one multiplication with
// float32(1/T), clamped to float32's range (-inf stays -inf, and is impossible). Kept: z >= cut and
// possible. Below kGreedyTemperature (or NaN) the row is greedy: z = x, and no cut.
struct Row {
  const void *data = nullptr; // [size] of `dtype`, not owned, aligned to it
  Dtype dtype = Dtype::kF32;
  std::int64_t size = 0; // V, at most 2^31 - 1
  float temperature = 1.0F;
  float cut = -std::numeric_limits<float>::infinity();
  std::span<const Edit> edits; // sorted() of an EditList; ids outside are ignored
  // [size], or null: ids with a negative entry take no part, the noise of others is their entry's.
  const std::int32_t *map = nullptr;
};

// Bits of a status.
inline constexpr std::uint32_t kSawNaN = 1;
inline constexpr std::uint32_t kRowEmpty = 2; // nothing is kept
inline constexpr std::uint32_t kZeroResidual = 4;
inline constexpr std::uint32_t kDraftImpossible = 8; // q(draft) = 0
inline constexpr std::uint32_t kSawInfinity = 16;

} // namespace dsi
