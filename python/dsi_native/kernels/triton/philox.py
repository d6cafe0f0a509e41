"""Philox4x32-10 and the numbers drawn from it, bit for bit those of csrc/core/rng.h."""

from __future__ import annotations

import triton
import triton.language as tl

from dsi_native.kernels import contract
from dsi_native.kernels.contract import Tag

# Constants that kernels read must be tl.constexpr.
ACCEPT = tl.constexpr(int(Tag.ACCEPT))
RESIDUAL = tl.constexpr(int(Tag.BONUS))

CHUNK = tl.constexpr(contract.CHUNK)  # ids whose noise comes from the same WORD calls
WORD = tl.constexpr(contract.CHUNK // 4)  # one word of each call serves so many consecutive ids


@triton.jit
def philox4x32_10(c0, c1, c2, c3, k0, k1):
    """Four uint32 words of ten rounds over counter (c0..c3) and key (k0, k1), all uint32.

    Scalars among the counters stay scalar for as long as nothing mixes them with a vector.
    """
    for _ in tl.static_range(10):
        even = tl.umulhi(c0, 0xD2511F53)
        odd = tl.umulhi(c2, 0xCD9E8D57)
        x1 = c2 * 0xCD9E8D57
        x3 = c0 * 0xD2511F53
        c0 = odd ^ c1 ^ k0
        c2 = even ^ c3 ^ k1
        c1 = x1
        c3 = x3
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def words_of(seed, position, tag: tl.constexpr, call):
    """The four words of `call` at (seed uint64, position int64, tag)."""
    where = position.to(tl.uint64)
    return philox4x32_10(
        call.to(tl.uint32),
        tl.full((), tag, tl.uint32),
        where.to(tl.uint32),
        (where >> 32).to(tl.uint32),
        seed.to(tl.uint32),
        (seed >> 32).to(tl.uint32),
    )


@triton.jit
def bits_of(seed, position, tag: tl.constexpr, ids):
    """The 32 bits of each id: call (id div 4096)*1024 + id mod 1024, word id mod 4096 div 1024."""
    w0, w1, w2, w3 = words_of(seed, position, tag, ids // CHUNK * WORD + ids % WORD)
    return chosen_word(ids % CHUNK // WORD, w0, w1, w2, w3)


@triton.jit
def chosen_word(word, w0, w1, w2, w3):
    """The one of the four that `word`, 0 to 3, names."""
    return tl.where(word < 2, tl.where(word == 0, w0, w1), tl.where(word == 2, w2, w3))


@triton.jit
def exponential(bits):
    """Exponential(1) of uint32 bits, with full resolution near 0; at least 2^-33.

    w = min((bits + 0.5) * 2^-32, 1 - 2^-24); below 2^-7 the series of -log(1 - w), whose argument
    would have lost w's digits. Exact to rng.h without fused multiply-add, but for the logarithm.
    """
    w = tl.minimum((bits.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.999999940395355224609375)
    series = w + (w * w) * (0.5 + w * (1.0 / 3.0))
    return tl.where(w < 0.0078125, series, -tl.log(1.0 - w))


@triton.jit
def odd_grid(bits):
    """(2k + 1) * 2^-24 with k the upper 23 bits: never 0 and never 1."""
    return (2 * (bits >> 9) + 1).to(tl.float32) * 5.9604644775390625e-08
