"""Top-k, top-p and min-p of a row as one threshold in units of z; ids equal to it stay.

top-k: the largest t with #{z >= t} >= k. top-p: the largest t with mass{z >= t} >= top_p * mass of
what top-k left, mass being the sum of exp(z - max). min-p: max + log(min_p). Found by halving the
interval of float32 bits that holds t until one id is left in it, never by sorting.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dsi_native.kernels.triton.philox import CHUNK
from dsi_native.kernels.triton.rows import IMPOSSIBLE, LARGEST, row_tile, scaling

NEAR = tl.constexpr(12.0)  # the first guess: thresholds mostly lie this close below the maximum


@triton.jit
def key_of(z):
    """int64 that orders like the float32 z; 0 for both zeros."""
    bits = z.to(tl.int32, bitcast=True).to(tl.int64)
    return tl.where(bits < 0, -2147483648 - bits, bits)


@triton.jit
def float_of(key):
    """The float32 whose key_of() is `key`."""
    bits = tl.where(key < 0, -2147483648 - key, key)
    return bits.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def above(
    logits, size, mapping, inv, peak, least, row, offsets, edit_ids, operations, values,
):  # fmt: skip
    """(number, sum of exp(z - peak), lowest) of the ids with z >= least. One read of the row.

    In a fixed order, so that a lower threshold never has less mass.
    """
    number = tl.full((), 0, tl.int32)
    mass = tl.full((), 0.0, tl.float32)
    lowest = tl.full((), float("inf"), tl.float32)
    base = tl.full((), 0, tl.int32)
    while base < size:
        _, _, _, z = row_tile(
            logits, base, CHUNK, size, mapping, inv, least, row,
            offsets, edit_ids, operations, values,
        )  # fmt: skip
        kept = z > IMPOSSIBLE
        number += tl.sum(kept.to(tl.int32))
        mass += tl.sum(tl.exp(z - peak))
        lowest = tl.minimum(lowest, tl.min(tl.where(kept, z, float("inf"))))
        base += CHUNK
    return number, mass, lowest


@triton.jit
def maximum(logits, size, mapping, inv, row, offsets, edit_ids, operations, values):
    """The greatest z of the row; -inf where nothing is possible."""
    peak = tl.full((), IMPOSSIBLE, tl.float32)
    base = tl.full((), 0, tl.int32)
    while base < size:
        _, _, _, z = row_tile(
            logits, base, CHUNK, size, mapping, inv, -LARGEST, row,
            offsets, edit_ids, operations, values,
        )  # fmt: skip
        peak = tl.maximum(peak, tl.max(z))
        base += CHUNK
    return peak


@triton.jit
def threshold(
    logits, size, mapping, inv, peak, row, offsets, edit_ids, operations, values,
    least, number, mass, k, wanted,
):  # fmt: skip
    """(t, number, mass) of the largest t with number >= k and mass >= wanted.

    least, number, mass: a threshold that is met by an id and has enough of both. Each turn halves
    [low, high), which holds t, and stops when only one id is left in it.
    """
    low = key_of(least)
    high = key_of(peak) + 1
    beyond = tl.full((), 0, tl.int32)
    middle = tl.maximum(key_of(tl.maximum(peak - NEAR, -LARGEST)), low + 1)
    while (high - low > 1) & (number - beyond > 1):
        middle = tl.minimum(middle, high - 1)
        more, heavier, lowest = above(
            logits, size, mapping, inv, peak, float_of(middle), row,
            offsets, edit_ids, operations, values,
        )  # fmt: skip
        enough = (more >= k) & (heavier >= wanted)
        low = tl.where(enough, middle, low)
        least = tl.where(enough, lowest, least)
        number = tl.where(enough, more, number)
        mass = tl.where(enough, heavier, mass)
        high = tl.where(enough, high, middle)
        beyond = tl.where(enough, beyond, more)
        middle = low + (high - low) // 2
    return least, number, mass


@triton.jit
def cut_kernel(
    logits, mapping, temperature, top_k, top_p, min_p,
    offsets, edit_ids, operations, values, cut, size, stride,
):  # fmt: skip
    """Grid (rows,): cut[row]; -inf where nothing is cut, the row is greedy or nothing is left."""
    row = tl.program_id(0).to(tl.int64)
    inv, greedy = scaling(temperature, row)
    if greedy:
        tl.store(cut + row, IMPOSSIBLE)
        return
    logits += row * stride
    peak = maximum(logits, size, mapping, inv, row, offsets, edit_ids, operations, values)
    if peak == IMPOSSIBLE:
        tl.store(cut + row, IMPOSSIBLE)
        return
    result = tl.full((), IMPOSSIBLE, tl.float32)
    number, mass, least = above(
        logits, size, mapping, inv, peak, -LARGEST, row, offsets, edit_ids, operations, values
    )
    if top_k is not None:
        k = tl.load(top_k + row)
        if (k > 0) & (k < number):
            least, number, mass = threshold(
                logits, size, mapping, inv, peak, row, offsets, edit_ids, operations, values,
                least, number, mass, k, 0.0,
            )  # fmt: skip
            result = least
    if top_p is not None:
        part = tl.load(top_p + row)
        if part < 1.0:
            least, number, mass = threshold(
                logits, size, mapping, inv, peak, row, offsets, edit_ids, operations, values,
                least, number, mass, 1, part * mass,
            )  # fmt: skip
            result = least
    if min_p is not None:
        part = tl.load(min_p + row)
        if part > 0.0:
            result = tl.maximum(result, tl.minimum(peak, peak + tl.log(part)))
    tl.store(cut + row, result)
