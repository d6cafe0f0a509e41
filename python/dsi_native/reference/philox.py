"""Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3") and what is drawn
from it. key = (seed low, seed high), counter = (call, tag, position low, position high).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsi_native.kernels.contract import CHUNK, Tag

__all__ = ["accept_uniform", "exponential", "odd_grid", "philox4x32_10", "token_bits"]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_CALLS_PER_CHUNK = CHUNK // 4


def philox4x32_10(counter: ArrayLike, key: ArrayLike) -> NDArray[np.uint32]:
    """uint32 [..., 4] from counters [..., 4] and keys [..., 2] of 32-bit words; they broadcast."""
    x0, x1, x2, x3 = np.moveaxis(np.asarray(counter, np.uint64), -1, 0)
    k0, k1 = np.moveaxis(np.asarray(key, np.uint64), -1, 0)
    for _ in range(10):
        even = np.uint64(0xD2511F53) * x0
        odd = np.uint64(0xCD9E8D57) * x2
        x0, x1 = (odd >> _HALF) ^ x1 ^ k0, odd & _LOW
        x2, x3 = (even >> _HALF) ^ x3 ^ k1, even & _LOW
        k0 = (k0 + np.uint64(0x9E3779B9)) & _LOW
        k1 = (k1 + np.uint64(0xBB67AE85)) & _LOW
    return np.stack(np.broadcast_arrays(x0, x1, x2, x3), axis=-1).astype(np.uint32)


def token_bits(seed: int, position: int, tag: int, ids: ArrayLike) -> NDArray[np.uint32]:
    """The 32 bits of each token id >= 0, whatever the vocabulary's size.

    Token v has call (v div 4096)*1024 + v mod 1024 and its word (v mod 4096) div 1024.
    """
    ids = np.asarray(ids, np.int64)
    calls = ids // CHUNK * _CALLS_PER_CHUNK + ids % _CALLS_PER_CHUNK
    counter = np.empty((*ids.shape, 4), np.uint64)
    counter[..., 0] = calls
    counter[..., 1] = tag
    counter[..., 2], counter[..., 3] = _words(int(position))
    words = philox4x32_10(counter, _words(int(seed)))
    return np.take_along_axis(words, (ids % CHUNK // _CALLS_PER_CHUNK)[..., None], -1)[..., 0]


def exponential(bits: ArrayLike) -> NDArray[np.float32]:
    """Exponential(1) from 32 bits with full resolution near 0; see csrc/core/rng.h.

    w = min((bits + 1/2) / 2^32, 1 - 2^-24); w + w^2/2 + w^3/3 below 2^-7, else -log(1 - w). All in
    float32 but the logarithm.
    """
    one, half, third = np.float32(1), np.float32(0.5), np.float32(1) / np.float32(3)
    w = (np.asarray(bits, np.uint32).astype(np.float32) + half) * np.float32(2.0**-32)
    w = np.minimum(w, one - np.float32(2.0**-24))
    series = w + (w * w) * (half + w * third)
    logarithm = -np.log((one - w).astype(np.float64))
    return np.where(w < np.float32(2.0**-7), series, logarithm.astype(np.float32))


def odd_grid(bits: ArrayLike) -> NDArray[np.float32]:
    """(2k + 1) / 2^24 with k the upper 23 bits: exact, never 0 and never 1."""
    k = np.asarray(bits, np.uint32) >> np.uint32(9)
    return (2 * k + 1).astype(np.float32) * np.float32(2.0**-24)


def accept_uniform(seed: int, position: int) -> np.float32:
    """The coin of the rejection rule: odd_grid() of word 0 of call 0 under Tag.ACCEPT."""
    return np.float32(odd_grid(token_bits(seed, position, Tag.ACCEPT, 0)))


def _words(number: int) -> tuple[int, int]:
    return number & 0xFFFFFFFF, number >> 32 & 0xFFFFFFFF
