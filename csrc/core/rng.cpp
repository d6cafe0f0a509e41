#include "core/rng.h"

#include <cmath>
#include <cstddef>

namespace dsi {
namespace {

constexpr std::int64_t kCallsPerChunk = kNoiseChunk / 4;

using Words = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

// Inlined into the loop of chunk_bits, where the compiler may run several counters side by side.
inline Words ten_rounds(const Words &counter, const Key &key) {
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

Key key_of(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)};
}

Words counter_of(Position position, std::uint32_t tag) {
  const auto bits = static_cast<std::uint64_t>(position);
  return {0, tag, static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32U)};
}

} // namespace

Words philox4x32_10(Words counter, Key key) { return ten_rounds(counter, key); }

std::uint32_t token_bits(std::uint64_t seed, Position position, std::uint32_t tag, Token id) {
  const std::int64_t call = id / kNoiseChunk * kCallsPerChunk + id % kCallsPerChunk;
  Words counter = counter_of(position, tag);
  counter[0] = static_cast<std::uint32_t>(call);
  return ten_rounds(counter,
                    key_of(seed))[static_cast<std::size_t>(id % kNoiseChunk / kCallsPerChunk)];
}

void chunk_bits(std::uint64_t seed, Position position, std::uint32_t tag, std::int64_t chunk,
                std::span<std::uint32_t> out) {
  constexpr auto kStride = static_cast<std::size_t>(kCallsPerChunk);
  const Key key = key_of(seed);
  Words counter = counter_of(position, tag);
  const auto first_call = static_cast<std::uint32_t>(chunk * kCallsPerChunk);
  // A short chunk writes past its end into this buffer instead, so that the loop has no branch.
  std::array<std::uint32_t, kNoiseChunk> whole;
  const std::size_t calls = std::min(out.size(), kStride);
  std::uint32_t *to = out.size() == whole.size() ? out.data() : whole.data();
  for (std::size_t j = 0; j < calls; ++j) {
    counter[0] = first_call + static_cast<std::uint32_t>(j);
    const auto [x0, x1, x2, x3] = ten_rounds(counter, key);
    to[j] = x0;
    to[kStride + j] = x1;
    to[2 * kStride + j] = x2;
    to[3 * kStride + j] = x3;
  }
  if (to == whole.data())
    std::copy_n(to, out.size(), out.data());
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
