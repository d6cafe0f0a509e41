// The loops over ids, compiled once for each instruction set and chosen when the program starts.
// All variants return the same bits: the same sixteen lanes, operations and order of sums.
#pragma once

#include <cstdint>

namespace dsi {

// Rows are read in chunks of this many ids; sums are taken per chunk, then over chunks in ascending
// order. Also the ids whose noise comes from the same 1024 calls of Philox.
inline constexpr std::int64_t kChunk = 4096;

// Lengths handed to a pass are multiples of this.
inline constexpr std::int64_t kPadding = 64;

// Whose noise: the key and three words of the counter.
struct Noise {
  std::uint64_t seed = 0;
  std::int64_t position = 0;
  std::uint32_t tag = 0;
};

struct ChunkScan {
  float max; // NaN passed over; -inf where nothing is above it
  bool nan;
};

// What does not change while one chunk is raced. `x` has kChunk readable values.
struct RaceChunk {
  Noise noise;
  std::int64_t chunk;
  const float *x;
  std::int32_t groups; // of 16 calls, thus 64 ids: j*1024 + 16*group + lane for words j = 0..3
  float inverse;       // z = x * inverse
  float max;           // z of the row's best
  float cut;           // z below: out
  float floor;         // the score to beat, less max
  std::uint32_t limit; // bits above cannot win, whatever the z in this chunk
};

struct RaceHits {
  std::uint32_t bits[4][16];
  std::uint32_t lanes[4]; // one bit for each lane that may win
};

struct Passes {
  const char *name;
  void (*widen_bf16)(const std::uint16_t *from, float *to, std::int64_t count);
  void (*widen_f16)(const std::uint16_t *from, float *to, std::int64_t count);
  // -inf where map < 0.
  void (*leave_out)(float *x, const std::int32_t *map, std::int64_t count);
  ChunkScan (*scan)(const float *x, std::int64_t count);
  // Sum of exp(x*inverse - max) where x*inverse >= least, in float32: 16 lanes, then their tree.
  // No x*inverse above max, least >= max - 87.
  float (*sum)(const float *x, std::int64_t count, float inverse, float max, float least);
  // Indices, ascending, where x*inverse >= least, if they are fewer than `limit`, for which `to`
  // has room; else nothing. Returns how many, or `limit`.
  std::int32_t (*collect)(const float *x, std::int64_t count, float inverse, float least,
                          std::int32_t *to, std::int32_t limit);
  // The first index where x == value, or -1.
  std::int32_t (*find)(const float *x, std::int64_t count, float value);
  // The next group from `first` on with an id that may win, or chunk.groups.
  std::int32_t (*race)(const RaceChunk &chunk, std::int32_t first, RaceHits *hits);
  // token_bits() of `count` ids >= 0; both arrays have room for the next multiple of 16.
  void (*token_bits)(const Noise &noise, const std::int32_t *ids, std::int64_t count,
                     std::uint32_t *to);
  // token_bits() of a whole chunk, as race() draws them; for tests.
  void (*chunk_bits)(const Noise &noise, std::int64_t chunk, std::uint32_t *to);
  // bin = min((top - x*inverse) * scale, last), rounded down; `last` for NaN and -inf. Unless
  // `weights` is null also the weight exp(x*inverse - max) where x*inverse >= least, else 0.
  void (*weigh)(const float *x, std::int64_t count, float inverse, float max, float least,
                float top, float scale, std::int32_t last, std::int32_t *bins, float *weights);
  // The x*inverse that are not below `least` and in that bin, in order. Returns how many; `to` may
  // be `x` or begin before it.
  std::int32_t (*gather)(const float *x, std::int64_t count, float inverse, float least, float top,
                         float scale, std::int32_t last, std::int32_t bin, float *to);
  // exp of values in [-87, 0], 0 below; what sum() and weigh() add up. Relative error < 2e-7 + |x|
  // 9e-8.
  void (*exp)(const float *x, std::int64_t count, float *to);
};

extern const Passes kBaselinePasses;
#if defined(__x86_64__)
extern const Passes kAvx2Passes;   // AVX2
extern const Passes kAvx512Passes; // AVX-512 F, BW, DQ, VL
#endif

// The best this machine has, chosen at the first call, unless force_passes() said otherwise.
const Passes &passes();

// For tests: "baseline", "avx2", "avx512"; null undoes it. False where this machine lacks it; then
// nothing changes. Affects rows read from then on, in all threads.
bool force_passes(const char *name);

} // namespace dsi
