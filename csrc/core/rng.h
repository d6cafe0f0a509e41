// Philox4x32-10 and the numbers drawn from it. Everything is keyed by (seed, position, purpose, token
// id), so that text never depends on timing. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3".
#pragma once

#include <array>
#include <cstdint>

#include "core/types.h"

namespace dsi {

inline constexpr std::uint32_t kCoupledNoise = 0;
inline constexpr std::uint32_t kDraftNoise = 1;
inline constexpr std::uint32_t kAccept = 2;
inline constexpr std::uint32_t kResidual = 3; // residual and bonus

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// The 32 bits of token `id` at (seed, position, tag): call c = (id div 4096)*1024 + id mod 1024, word
// (id mod 4096) div 1024. Independent of the vocabulary's size.
std::uint32_t token_bits(std::uint64_t seed, Position position, std::uint32_t tag, Token id);

// Exponential(1) with full resolution near 0, from 32 bits.
float exponential(std::uint32_t bits);

// Uniform on the odd 24-bit grid: never 0 and never 1.
float accept_uniform(std::uint64_t seed, Position position);

} // namespace dsi
