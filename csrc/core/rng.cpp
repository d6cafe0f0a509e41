#include "core/rng.h"

#include <cmath>
#include <cstddef>

namespace dsi {
namespace {

constexpr std::int64_t kCallsPerChunk = kNoiseChunk / 4;

} // namespace

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  auto [x0, x1, x2, x3] = counter;
  auto [k0, k1] = key;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53U} * x0;
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57U} * x2;
    x0 = static_cast<std::uint32_t>(odd >> 32U) ^ x1 ^ k0;
    x1 = static_cast<std::uint32_t>(odd);
    x2 = static_cast<std::uint32_t>(even >> 32U) ^ x3 ^ k1;
    x3 = static_cast<std::uint32_t>(even);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {x0, x1, x2, x3};
}

std::uint32_t token_bits(std::uint64_t seed, Position position, std::uint32_t tag, Token id) {
  const std::int64_t call = id / kNoiseChunk * kCallsPerChunk + id % kCallsPerChunk;
  const auto at = static_cast<std::uint64_t>(position);
  const auto words =
      philox4x32_10({static_cast<std::uint32_t>(call), tag, static_cast<std::uint32_t>(at),
                     static_cast<std::uint32_t>(at >> 32U)},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
  return words[static_cast<std::size_t>(id % kNoiseChunk / kCallsPerChunk)];
}

float exponential(std::uint32_t bits) {
  const float w = unit_interval(bits);
  if (w < 0x1p-7F)
    return w + (w * w) * (0.5F + w * (1.0F / 3.0F));
  return static_cast<float>(-std::log(static_cast<double>(1.0F - w)));
}

float accept_uniform(std::uint64_t seed, Position position) {
  return odd_grid(token_bits(seed, position, kAccept, 0));
}

} // namespace dsi
