// Sixteen lanes side by side, whatever the registers of the machine hold: one native vector, or a
// tree of pairs of them. Read only by the passes_*.cpp files, each with another DSI_LANES_BYTES.
//
// A plain vector_size(64) would read better, but where registers are narrower GCC keeps such a
// value in memory between any two operations; a pair of halves is taken apart into registers.
//
// Everything here is in an anonymous namespace, and nothing of the standard library that could be
// compiled out of line is used: a function that two files share would be linked once, perhaps from
// the file whose instructions this machine lacks.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef DSI_LANES_BYTES
#error "DSI_LANES_BYTES: the bytes of a vector register, 16, 32 or 64"
#endif

#define DSI_INLINE [[gnu::always_inline]] inline

namespace dsi::lanes {
namespace {

template <class T> struct NativeOf {
  typedef T type __attribute__((vector_size(DSI_LANES_BYTES)));
};
template <class T> using Native = typename NativeOf<T>::type;

template <class V> struct Pair { V lo, hi; };

// 64 bytes of T.
#if DSI_LANES_BYTES == 64
template <class T> using Block = Native<T>;
#elif DSI_LANES_BYTES == 32
template <class T> using Block = Pair<Native<T>>;
#else
template <class T> using Block = Pair<Pair<Native<T>>>;
#endif

using Floats = Block<float>;
using Ints = Block<std::int32_t>; // also a mask: each lane all ones or all zeros
using Words = Block<std::uint32_t>;
using Longs = Block<std::uint64_t>; // eight lanes

// --- what a native vector can do beyond the operators --------------------------------------------

template <class To, class From> DSI_INLINE To cast(From from) {
  To to;
  static_assert(sizeof to == sizeof from);
  std::memcpy(&to, &from, sizeof to);
  return to;
}

#if defined(__x86_64__) && DSI_LANES_BYTES == 64
// The unmasked intrinsics make GCC 12 warn of a variable of its own that has no value.
constexpr __mmask16 kAll = 0xFFFF;
constexpr __mmask8 kAll8 = 0xFF;
#endif

// a > b ? a : b, thus b where either is NaN.
DSI_INLINE Native<float> greater(Native<float> a, Native<float> b) {
#if defined(__x86_64__) && DSI_LANES_BYTES == 64
  return _mm512_mask_max_ps(a, kAll, a, b);
#elif defined(__x86_64__) && DSI_LANES_BYTES == 32
  return _mm256_max_ps(a, b);
#elif defined(__x86_64__)
  return _mm_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

// a < b ? a : b, thus b where either is NaN.
DSI_INLINE Native<float> smaller(Native<float> a, Native<float> b) {
#if defined(__x86_64__) && DSI_LANES_BYTES == 64
  return _mm512_mask_min_ps(a, kAll, a, b);
#elif defined(__x86_64__) && DSI_LANES_BYTES == 32
  return _mm256_min_ps(a, b);
#elif defined(__x86_64__)
  return _mm_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

DSI_INLINE Native<std::uint32_t> smaller(Native<std::uint32_t> a, Native<std::uint32_t> b) {
  return a < b ? a : b;
}

// The product of the lower halves; the upper halves are ignored.
DSI_INLINE Native<std::uint64_t> multiply_low(Native<std::uint64_t> a, Native<std::uint64_t> b) {
#if defined(__x86_64__) && DSI_LANES_BYTES == 64
  return cast<Native<std::uint64_t>>(
      _mm512_maskz_mul_epu32(kAll8, cast<__m512i>(a), cast<__m512i>(b)));
#elif defined(__x86_64__) && DSI_LANES_BYTES == 32
  return cast<Native<std::uint64_t>>(_mm256_mul_epu32(cast<__m256i>(a), cast<__m256i>(b)));
#elif defined(__x86_64__)
  return cast<Native<std::uint64_t>>(_mm_mul_epu32(cast<__m128i>(a), cast<__m128i>(b)));
#else
  return (a & 0xFFFFFFFFU) * (b & 0xFFFFFFFFU);
#endif
}

// One bit for each lane of a mask, the first lane in bit 0.
DSI_INLINE std::uint32_t bits_of(Native<std::int32_t> mask) {
#if defined(__x86_64__) && DSI_LANES_BYTES == 64
  return _mm512_movepi32_mask(cast<__m512i>(mask));
#elif defined(__x86_64__) && DSI_LANES_BYTES == 32
  return static_cast<std::uint32_t>(_mm256_movemask_ps(cast<__m256>(mask)));
#elif defined(__x86_64__)
  return static_cast<std::uint32_t>(_mm_movemask_ps(cast<__m128>(mask)));
#else
  std::uint32_t bits = 0;
  for (std::uint32_t lane = 0; lane < DSI_LANES_BYTES / 4; ++lane)
    bits |= (static_cast<std::uint32_t>(mask[lane]) >> 31U) << lane;
  return bits;
#endif
}

DSI_INLINE Native<std::int32_t> truncated(Native<float> x) {
  return __builtin_convertvector(x, Native<std::int32_t>);
}
DSI_INLINE Native<float> floats(Native<std::int32_t> x) {
  return __builtin_convertvector(x, Native<float>);
}

// --- the same for pairs, and the operators -------------------------------------------------------

template <class V> DSI_INLINE Pair<V> greater(const Pair<V> &a, const Pair<V> &b) {
  return {greater(a.lo, b.lo), greater(a.hi, b.hi)};
}
template <class V> DSI_INLINE Pair<V> smaller(const Pair<V> &a, const Pair<V> &b) {
  return {smaller(a.lo, b.lo), smaller(a.hi, b.hi)};
}
template <class V> DSI_INLINE Pair<V> multiply_low(const Pair<V> &a, const Pair<V> &b) {
  return {multiply_low(a.lo, b.lo), multiply_low(a.hi, b.hi)};
}
template <class V> DSI_INLINE std::uint32_t bits_of(const Pair<V> &mask) {
  return bits_of(mask.lo) | bits_of(mask.hi) << (sizeof(V) / 4);
}
template <class V> DSI_INLINE auto truncated(const Pair<V> &x) {
  return Pair<decltype(truncated(x.lo))>{truncated(x.lo), truncated(x.hi)};
}
template <class V> DSI_INLINE auto floats(const Pair<V> &x) {
  return Pair<decltype(floats(x.lo))>{floats(x.lo), floats(x.hi)};
}

#define DSI_LANEWISE(op)                                                                           \
  template <class V> DSI_INLINE auto operator op(const Pair<V> &a, const Pair<V> &b) {             \
    return Pair<decltype(a.lo op b.lo)>{a.lo op b.lo, a.hi op b.hi};                               \
  }
DSI_LANEWISE(+)
DSI_LANEWISE(-)
DSI_LANEWISE(*)
DSI_LANEWISE(&)
DSI_LANEWISE(|)
DSI_LANEWISE(^)
DSI_LANEWISE(>)
DSI_LANEWISE(>=)
DSI_LANEWISE(<=)
DSI_LANEWISE(==)
DSI_LANEWISE(!=)
#undef DSI_LANEWISE

template <class V> DSI_INLINE Pair<V> operator<<(const Pair<V> &a, int n) {
  return {a.lo << n, a.hi << n};
}
template <class V> DSI_INLINE Pair<V> operator>>(const Pair<V> &a, int n) {
  return {a.lo >> n, a.hi >> n};
}

template <class To, class V> DSI_INLINE To cast(const Pair<V> &from) {
  using Half = decltype(To::lo);
  return {cast<Half>(from.lo), cast<Half>(from.hi)};
}

// The same value in every lane.
template <class To, class T> DSI_INLINE To spread(T value) {
  if constexpr (requires(To to) { to.lo; }) {
    using Half = decltype(To::lo);
    return {spread<Half>(value), spread<Half>(value)};
  } else {
    return value - To{};
  }
}

// Part by part: one copy of 64 bytes would go through memory.
template <class To, class T> DSI_INLINE To load(const T *from) {
  if constexpr (requires(To to) { to.lo; }) {
    using Half = decltype(To::lo);
    return {load<Half>(from), load<Half>(from + sizeof(Half) / sizeof(T))};
  } else {
    To to;
    std::memcpy(&to, from, sizeof to);
    return to;
  }
}
template <class T, class V> DSI_INLINE void store(T *to, const V &from) {
  if constexpr (requires { from.lo; }) {
    store(to, from.lo);
    store(to + sizeof from.lo / sizeof(T), from.hi);
  } else {
    std::memcpy(to, &from, sizeof from);
  }
}

// The lower halves of the 64-bit lanes of two, and back (upper halves zero). Of every 16 bytes of
// the words the first eight are in `a`: one shuffle on x86, whatever the width. GCC 12 finds it
// from a list of indices for 16 bytes only.
DSI_INLINE Native<std::uint32_t> join(Native<std::uint64_t> a, Native<std::uint64_t> b) {
  using W = Native<std::uint32_t>;
#if defined(__x86_64__) && DSI_LANES_BYTES == 64
  return cast<W>(_mm512_maskz_shuffle_ps(kAll, cast<__m512>(a), cast<__m512>(b), 0x88));
#elif defined(__x86_64__) && DSI_LANES_BYTES == 32
  return cast<W>(_mm256_shuffle_ps(cast<__m256>(a), cast<__m256>(b), 0x88));
#else
  return __builtin_shufflevector(cast<W>(a), cast<W>(b), 0, 2, 4, 6);
#endif
}
DSI_INLINE void split(Native<std::uint32_t> from, Native<std::uint64_t> &a,
                      Native<std::uint64_t> &b) {
  using L = Native<std::uint64_t>;
#if defined(__x86_64__) && DSI_LANES_BYTES == 64
  const __m512i x = cast<__m512i>(from);
  a = cast<L>(_mm512_maskz_unpacklo_epi32(kAll, x, _mm512_setzero_si512()));
  b = cast<L>(_mm512_maskz_unpackhi_epi32(kAll, x, _mm512_setzero_si512()));
#elif defined(__x86_64__) && DSI_LANES_BYTES == 32
  const __m256i x = cast<__m256i>(from);
  a = cast<L>(_mm256_unpacklo_epi32(x, _mm256_setzero_si256()));
  b = cast<L>(_mm256_unpackhi_epi32(x, _mm256_setzero_si256()));
#else
  const Native<std::uint32_t> zero{};
  a = cast<L>(__builtin_shufflevector(from, zero, 0, 4, 1, 4));
  b = cast<L>(__builtin_shufflevector(from, zero, 2, 4, 3, 4));
#endif
}
template <class V> DSI_INLINE auto join(const Pair<V> &a, const Pair<V> &b) {
  return Pair<decltype(join(a.lo, b.lo))>{join(a.lo, b.lo), join(a.hi, b.hi)};
}
template <class W, class V> DSI_INLINE void split(const Pair<W> &from, Pair<V> &a, Pair<V> &b) {
  split(from.lo, a.lo, b.lo);
  split(from.hi, a.hi, b.hi);
}

DSI_INLINE bool any(Native<std::int32_t> mask) { return bits_of(mask) != 0; }
template <class V> DSI_INLINE bool any(const Pair<V> &mask) { return any(mask.lo | mask.hi); }

// Sixteen 16-bit numbers, each in 32 bits.
template <class To = Words> DSI_INLINE To load_halves(const std::uint16_t *from) {
  if constexpr (requires(To to) { to.lo; }) {
    using Half = decltype(To::lo);
    return {load_halves<Half>(from), load_halves<Half>(from + sizeof(Half) / 4)};
  } else {
    typedef std::uint16_t Narrow __attribute__((vector_size(DSI_LANES_BYTES / 2)));
    return __builtin_convertvector(load<Narrow>(from), To);
  }
}

DSI_INLINE Floats where(const Ints &mask, const Floats &x) {
  return cast<Floats>(mask & cast<Ints>(x));
}

} // namespace
} // namespace dsi::lanes
