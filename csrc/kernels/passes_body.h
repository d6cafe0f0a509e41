// The loops of passes.h. Included once by each passes_*.cpp, behind its DSI_LANES_BYTES.
#include "kernels/lanes.h"
#include "kernels/passes.h"
#include "kernels/philox_lanes.h"

namespace dsi::lanes {
namespace {

// e^x for x in [-87, 0]; anything else gives a number without meaning. x log2(e) = n + f; 2^f by a
// polynomial (minimax with 1 at 0: relative error 9.2e-8), 2^n into the exponent. The rounding of
// the first product, |x| 7e-8, is not worth the four operations that would avoid it: the ids far
// below the best, for which it matters, have no weight. Multiplications and additions stay apart,
// since the baseline has no fused ones.
DSI_INLINE Floats exp_of(const Floats &x) {
  const auto c = [](float value) { return spread<Floats>(value); };
  const Floats t = x * c(0x1.715476p0F);
  const Floats shifted = t + c(0x1.8p23F); // brings n into the lowest bits
  const Floats f = t - (shifted - c(0x1.8p23F));
  Floats p = c(0x1.5bb92ap-10F);
  p = p * f + c(0x1.3ceb6cp-7F);
  p = p * f + c(0x1.c6b75ap-5F);
  p = p * f + c(0x1.ebf9bap-3F);
  p = p * f + c(0x1.62e42ap-1F);
  p = p * f + c(1.0F);
  return cast<Floats>(cast<Words>(p) + (cast<Words>(shifted) << 23));
}

// The order every variant keeps.
DSI_INLINE float total(const Floats &x) {
  float lanes[16];
  store(lanes, x);
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      lanes[i] += lanes[i + half];
  return lanes[0];
}

DSI_INLINE float greatest(const Floats &x) {
  float lanes[16];
  store(lanes, x);
  float best = lanes[0];
  for (int i = 1; i < 16; ++i)
    best = lanes[i] > best ? lanes[i] : best;
  return best;
}

ChunkScan scan(const float *x, std::int64_t count) {
  Floats best[4];
  for (Floats &lanes : best)
    lanes = spread<Floats>(-__builtin_inff());
  Ints nan = spread<Ints>(0);
  for (std::int64_t i = 0; i < count; i += kPadding) {
#pragma GCC unroll 4
    for (std::int64_t part = 0; part < 4; ++part) {
      const Floats v = load<Floats>(x + i + 16 * part);
      best[part] = greater(v, best[part]);
      nan = nan | (v != v);
    }
  }
  return {greatest(greater(greater(best[0], best[1]), greater(best[2], best[3]))), any(nan)};
}

float sum(const float *x, std::int64_t count, float inverse, float max, float least) {
  Floats sums = spread<Floats>(0.0F);
  for (std::int64_t i = 0; i < count; i += 16) {
    const Floats z = load<Floats>(x + i) * spread<Floats>(inverse);
    const Floats e = exp_of(z - spread<Floats>(max));
    sums = sums + where(z >= spread<Floats>(least), e);
  }
  return total(sums);
}

void exp(const float *x, std::int64_t count, float *to) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const Floats v = load<Floats>(x + i);
    store(to + i, where(v >= spread<Floats>(-87.0F), exp_of(v)));
  }
}

std::int32_t collect(const float *x, std::int64_t count, float inverse, float least,
                     std::int32_t *to, std::int32_t limit) {
  const auto chosen = [&](std::int64_t i) {
    return load<Floats>(x + i) * spread<Floats>(inverse) >= spread<Floats>(least);
  };
  // Counted first: where there are many that is soon over.
  std::int32_t found = 0;
  for (std::int64_t begin = 0; begin < count && found < limit; begin += 512) {
    Ints counts = spread<Ints>(0);
    for (std::int64_t i = begin; i < count && i < begin + 512; i += 16)
      counts = counts - chosen(i);
    std::int32_t lanes[16];
    store(lanes, counts);
    for (const std::int32_t lane : lanes)
      found += lane;
  }
  if (found >= limit)
    return limit;
  found = 0;
  for (std::int64_t i = 0; i < count; i += 16) {
    for (std::uint32_t lanes = bits_of(chosen(i)); lanes != 0; lanes &= lanes - 1)
      to[found++] = static_cast<std::int32_t>(i) + __builtin_ctz(lanes);
  }
  return found;
}

std::int32_t find(const float *x, std::int64_t count, float value) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const std::uint32_t lanes = bits_of(load<Floats>(x + i) == spread<Floats>(value));
    if (lanes != 0)
      return static_cast<std::int32_t>(i) + __builtin_ctz(lanes);
  }
  return -1;
}

// Monotone in z, so that bins follow each other as values do.
DSI_INLINE Ints bin_of(const Floats &z, float top, float scale, std::int32_t last) {
  const Floats below = spread<Floats>(top) - z;
  return truncated(
      smaller(below * spread<Floats>(scale), spread<Floats>(static_cast<float>(last))));
}

void weigh(const float *x, std::int64_t count, float inverse, float max, float least, float top,
           float scale, std::int32_t last, std::int32_t *bins, float *weights) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const Floats z = load<Floats>(x + i) * spread<Floats>(inverse);
    store(bins + i, bin_of(z, top, scale, last));
    if (weights != nullptr)
      store(weights + i, where(z >= spread<Floats>(least), exp_of(z - spread<Floats>(max))));
  }
}

std::int32_t gather(const float *x, std::int64_t count, float inverse, float least, float top,
                    float scale, std::int32_t last, std::int32_t bin, float *to) {
  std::int32_t found = 0;
  for (std::int64_t i = 0; i < count; i += 16) {
    const Floats z = load<Floats>(x + i) * spread<Floats>(inverse);
    const Ints chosen =
        (z >= spread<Floats>(least)) & (bin_of(z, top, scale, last) == spread<Ints>(bin));
    std::uint32_t lanes = bits_of(chosen);
    if (lanes == 0)
      continue;
    float values[16];
    store(values, z);
    for (; lanes != 0; lanes &= lanes - 1)
      to[found++] = values[__builtin_ctz(lanes)];
  }
  return found;
}

// Not below -log E(bits): E >= w >= (bits div 2) * 2^-31, and a float's bits read as a number are
// never above its log2.
DSI_INLINE Floats noise_bound(const Words &bits) {
  const Floats half = floats(cast<Ints>(bits >> 1));
  const Floats read = floats(cast<Ints>(half));
  constexpr float kLn2 = 0x1.62e430p-1F;
  constexpr float kSlack = 1e-3F; // far more than the roundings here and in z - max
  return spread<Floats>(kLn2) * (spread<Floats>(127.0F + 31.0F) - spread<Floats>(0x1p-23F) * read) +
         spread<Floats>(kSlack);
}

// Three sieves, each for what the one before lets through: the least bits of the group against what
// the best of the chunk would need; in each lane the least bits and the best of its four ids; all.
std::int32_t race(const RaceChunk &chunk, std::int32_t first, RaceHits *hits) {
  const Philox philox(chunk.noise);
  const auto first_call = static_cast<std::uint32_t>(chunk.chunk * (kChunk / 4));
  const Words limit = spread<Words>(chunk.limit);
  const Floats floor = spread<Floats>(chunk.floor);
  const auto reach = [&](const Floats &x, const Words &bits) {
    return x * spread<Floats>(chunk.inverse) - spread<Floats>(chunk.max) + noise_bound(bits);
  };
  for (std::int32_t group = first; group < chunk.groups; ++group) {
    Words bits[4];
    philox.calls(first_call + 16 * static_cast<std::uint32_t>(group), bits);
    const Words least = smaller(smaller(bits[0], bits[1]), smaller(bits[2], bits[3]));
    if (!any(least <= limit)) [[likely]]
      continue;
    Floats x[4];
    for (std::int64_t word = 0; word < 4; ++word)
      x[word] = load<Floats>(chunk.x + word * 1024 + std::int64_t{16} * group);
    // NaN is passed over on the left only.
    const Floats none = spread<Floats>(-__builtin_inff());
    const Floats most = greater(x[0], greater(x[1], greater(x[2], greater(x[3], none))));
    if (!any(reach(most, least) >= floor))
      continue;
    std::uint32_t any = 0;
    for (std::int64_t word = 0; word < 4; ++word) {
      const Floats z = x[word] * spread<Floats>(chunk.inverse);
      hits->lanes[word] =
          bits_of((reach(x[word], bits[word]) >= floor) & (z >= spread<Floats>(chunk.cut)));
      any |= hits->lanes[word];
      store(hits->bits[word], bits[word]);
    }
    if (any != 0)
      return group;
  }
  return chunk.groups;
}

void token_bits(const Noise &noise, const std::int32_t *ids, std::int64_t count,
                std::uint32_t *to) {
  const Philox philox(noise);
  for (std::int64_t i = 0; i < count; i += 16) {
    const Words id = load<Words>(ids + i);
    const Words call = ((id >> 12) << 10) | (id & spread<Words>(1023U));
    const Words word = (id >> 10) & spread<Words>(3U);
    Words bits[4];
    philox.some_calls(call, bits);
    Words chosen = bits[0] & cast<Words>(word == spread<Words>(0U));
    for (std::uint32_t w = 1; w < 4; ++w)
      chosen = chosen | (bits[w] & cast<Words>(word == spread<Words>(w)));
    store(to + i, chosen);
  }
}

void chunk_bits(const Noise &noise, std::int64_t chunk, std::uint32_t *to) {
  const Philox philox(noise);
  const auto first_call = static_cast<std::uint32_t>(chunk * (kChunk / 4));
  for (std::uint32_t call = 0; call < kChunk / 4; call += 16) {
    Words bits[4];
    philox.calls(first_call + call, bits);
    for (std::int64_t word = 0; word < 4; ++word)
      store(to + word * 1024 + call, bits[word]);
  }
}

void leave_out(float *x, const std::int32_t *map, std::int64_t count) {
  const Floats never = spread<Floats>(-__builtin_inff());
  for (std::int64_t i = 0; i < count; i += 16) {
    const Ints out = load<Ints>(map + i) >> 31;
    const Ints kept = cast<Ints>(load<Floats>(x + i)) & (out ^ spread<Ints>(-1));
    store(x + i, cast<Floats>(kept | (cast<Ints>(never) & out)));
  }
}

void widen_bf16(const std::uint16_t *from, float *to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16)
    store(to + i, cast<Floats>(load_halves(from + i) << 16));
}

// By integer arithmetic, which any machine has. The exponent is moved over; a subnormal half is
// read as if it had a leading one, which a subtraction takes away.
void widen_f16(const std::uint16_t *from, float *to, std::int64_t count) {
  const auto all = [](std::uint32_t bits) { return spread<Words>(bits); };
  for (std::int64_t i = 0; i < count; i += 16) {
    const Words half = load_halves(from + i);
    const Words sign = (half & all(0x8000U)) << 16;
    const Words rest = (half & all(0x7FFFU)) << 13;
    const Words endless = cast<Words>(rest >= all(0x0F800000U)); // inf and NaN
    const Words normal = rest + all(0x38000000U) + (endless & all(0x38000000U));
    const Floats read = cast<Floats>(rest + all(0x38800000U)) - spread<Floats>(0x1p-14F);
    const Words tiny = cast<Words>(rest <= all(0x007FFFFFU));
    store(to + i, sign | (tiny & cast<Words>(read)) | (normal & (tiny ^ all(0xFFFFFFFFU))));
  }
}

} // namespace
} // namespace dsi::lanes

#define DSI_PASSES(name)                                                                           \
  {                                                                                                \
    name, dsi::lanes::widen_bf16, dsi::lanes::widen_f16, dsi::lanes::leave_out, dsi::lanes::scan,  \
        dsi::lanes::sum, dsi::lanes::collect, dsi::lanes::find, dsi::lanes::race,                  \
        dsi::lanes::token_bits, dsi::lanes::chunk_bits, dsi::lanes::weigh, dsi::lanes::gather,     \
        dsi::lanes::exp                                                                            \
  }
