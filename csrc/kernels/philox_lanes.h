// Philox4x32-10 over sixteen counters at once. Read only through passes_body.h.
#pragma once

#include "kernels/lanes.h"
#include "kernels/passes.h"

namespace dsi::lanes {
namespace {

// Everything that the counters (call, tag, position) of one row have in common. The first round
// multiplies one word that differs between calls, the second one other; so those two are half done
// here. Words stand in 64-bit lanes whose upper halves hold whatever the multiplications left:
// neither the products nor the words read them, which saves the masking and the shuffles.
class Philox {
public:
  DSI_INLINE explicit Philox(const Noise &noise) {
    auto k0 = static_cast<std::uint32_t>(noise.seed);
    auto k1 = static_cast<std::uint32_t>(noise.seed >> 32U);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9U, k1 += 0xBB67AE85U) {
      key_[round][0] = k0;
      key_[round][1] = k1;
    }
    const auto position = static_cast<std::uint64_t>(noise.position);
    const std::uint64_t odd = kOdd * (position & 0xFFFFFFFFU);
    const std::uint64_t x0 = (odd >> 32U) ^ noise.tag ^ key_[0][0];
    const std::uint64_t even = kEven * x0;
    first_ = (position >> 32U) ^ key_[0][1];
    second0_ = (odd & 0xFFFFFFFFU) ^ key_[1][0];
    second2_ = (even >> 32U) ^ key_[1][1];
    second3_ = even;
  }

  // Calls first, first + 1, ... first + 15: word w of call first + i is lane i of bits[w].
  DSI_INLINE void calls(std::uint32_t first, Words *bits) const {
    static constexpr std::uint32_t kSteps[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                 8, 9, 10, 11, 12, 13, 14, 15};
    some_calls(load<Words>(kSteps) + spread<Words>(first), bits);
  }

  // Any sixteen calls.
  DSI_INLINE void some_calls(const Words &call, Words *bits) const {
    Longs a;
    Longs b;
    split(call, a, b);
    Longs x[4];
    Longs y[4];
    rounds(a, x);
    rounds(b, y);
    for (int word = 0; word < 4; ++word)
      bits[word] = join(x[word], y[word]);
  }

private:
  static constexpr std::uint64_t kEven = 0xD2511F53U;
  static constexpr std::uint64_t kOdd = 0xCD9E8D57U;

  DSI_INLINE void rounds(const Longs &call, Longs *x) const {
    using V = Longs;
    const auto all = [](std::uint64_t value) { return spread<V>(value); };
    const V m0 = all(kEven);
    const V m1 = all(kOdd);
    const V even = multiply_low(call, m0);
    const V odd = multiply_low((even >> 32) ^ all(first_), m1);
    x[0] = (odd >> 32) ^ all(second0_);
    x[1] = odd;
    x[2] = even ^ all(second2_);
    x[3] = all(second3_);
#pragma GCC unroll 8
    for (int round = 2; round < 10; ++round) {
      const V a = multiply_low(x[0], m0);
      const V b = multiply_low(x[2], m1);
      x[0] = (b >> 32) ^ (x[1] ^ all(key_[round][0]));
      x[1] = b;
      x[2] = (a >> 32) ^ (x[3] ^ all(key_[round][1]));
      x[3] = a;
    }
  }

  std::uint64_t key_[10][2];
  std::uint64_t first_, second0_, second2_, second3_;
};

} // namespace
} // namespace dsi::lanes
