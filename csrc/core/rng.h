// Philox4x32-10 and the numbers drawn from it. Everything is keyed by (seed, position, purpose,
// token id), so that text never depends on timing. Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3". key = (seed low, seed high), counter = (call, tag, position low, position high).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/types.h"

namespace dsi {

inline constexpr std::uint32_t kCoupledNoise = 0;
inline constexpr std::uint32_t kDraftNoise = 1;
inline constexpr std::uint32_t kAccept = 2;
inline constexpr std::uint32_t kResidual = 3; // residual and bonus

inline constexpr std::int64_t kNoiseChunk = 4096; // ids whose noise comes from the same 1024 calls

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key);

// The 32 bits of token `id` >= 0 at (seed, position, tag): call c = (id div 4096)*1024 + id mod
// 1024, word (id mod 4096) div 1024. Independent of the vocabulary's size.
std::uint32_t token_bits(std::uint64_t seed, Position position, std::uint32_t tag, Token id);

// w = min((bits + 0.5) * 2^-32, 1 - 2^-24), in (0, 1). float32 throughout: `bits` is rounded to
// float32 (to nearest, ties to even), then 0.5 is added, then the exact product is taken.
inline float unit_interval(std::uint32_t bits) {
  return std::min((static_cast<float>(bits) + 0.5F) * 0x1p-32F, 0x1.fffffep-1F);
}

// Exponential(1) with full resolution near 0, never below unit_interval(bits), at most 24 ln 2.
// Below w = 2^-7, in float32 operations in this order and not fused: w + (w*w) * (0.5 + w * (1/3)).
// Else -log(1 - w): 1 - w in float32, its logarithm in double, rounded to float32 once. NumPy does
// the same as -log(float64(float32(1) - w)); a float32 logarithm may be off in the last bit, which
// changes a winner only where two scores are that close.
float exponential(std::uint32_t bits);

// (2k + 1) * 2^-24 with k the upper 23 bits: exact in float32, never 0 and never 1. (With 24 bits
// in k the largest value would round to 1.)
inline float odd_grid(std::uint32_t bits) {
  return static_cast<float>(2U * (bits >> 9U) + 1U) * 0x1p-24F;
}

// The coin of the rejection rule: odd_grid() of word 0 of call 0 under kAccept.
float accept_uniform(std::uint64_t seed, Position position);

} // namespace dsi
