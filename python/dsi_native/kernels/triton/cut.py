"""Top-k, top-p and min-p of a row as one threshold in units of z; ids equal to it stay.

top-k: the largest t with #{z >= t} >= k. top-p: the largest t with mass{z >= t} >= top_p * mass of
what top-k left, mass being the sum of exp(z - max). min-p: max + log(min_p). Found by halving the
interval of float32 bits that holds t until one id is left in it, never by sorting. The few logits
near the maximum are copied out and kept in registers; where they do not decide, the row is read
again for every turn.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dsi_native.kernels.triton.philox import CHUNK
from dsi_native.kernels.triton.rows import IMPOSSIBLE, LARGEST, finite_or_zero, row_tile, scaling

NEAR = tl.constexpr(12.0)  # thresholds mostly lie this close below the maximum
NEAR_ROOM = tl.constexpr(8192)  # and mostly a few hundred ids of 150,000 do


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
def whole_row(logits, size, mapping, inv, row, offsets, edit_ids, operations, values):
    """(max, number, sum of exp(z - max), lowest) of what is possible. One read of the row."""
    peak = tl.full([CHUNK], IMPOSSIBLE, tl.float32)
    number = tl.zeros([CHUNK], tl.int32)
    mass = tl.zeros([CHUNK], tl.float32)
    lowest = tl.full([CHUNK], float("inf"), tl.float32)
    base = tl.full((), 0, tl.int32)
    while base < size:
        _, _, _, z = row_tile(
            logits, base, CHUNK, size, mapping, inv, -LARGEST, row,
            offsets, edit_ids, operations, values,
        )  # fmt: skip
        higher = tl.maximum(peak, z)
        shift = finite_or_zero(higher)
        mass = mass * tl.exp(peak - shift) + tl.exp(z - shift)
        peak = higher
        number += (z > IMPOSSIBLE).to(tl.int32)
        lowest = tl.minimum(lowest, tl.where(z > IMPOSSIBLE, z, float("inf")))
        base += CHUNK
    top = tl.max(peak)
    mass = tl.sum(mass * tl.exp(peak - finite_or_zero(top)))
    return top, tl.sum(number), mass, tl.min(lowest)


@triton.jit
def above(
    logits, size, mapping, inv, peak, least, row, offsets, edit_ids, operations, values,
):  # fmt: skip
    """(number, sum of exp(z - peak), lowest) of the ids with z >= least. One read of the row.

    In a fixed order, so that a lower threshold never has less mass.
    """
    number = tl.zeros([CHUNK], tl.int32)
    mass = tl.zeros([CHUNK], tl.float32)
    lowest = tl.full([CHUNK], float("inf"), tl.float32)
    base = tl.full((), 0, tl.int32)
    while base < size:
        _, _, _, z = row_tile(
            logits, base, CHUNK, size, mapping, inv, least, row,
            offsets, edit_ids, operations, values,
        )  # fmt: skip
        number += (z > IMPOSSIBLE).to(tl.int32)
        mass += tl.exp(z - peak)
        lowest = tl.minimum(lowest, tl.where(z > IMPOSSIBLE, z, float("inf")))
        base += CHUNK
    return tl.sum(number), tl.sum(mass), tl.min(lowest)


@triton.jit
def copy_near(
    logits, size, mapping, inv, least, row, offsets, edit_ids, operations, values, near,
):  # fmt: skip
    """The number of ids with z >= least; the first NEAR_ROOM of their z go to `near`, in order."""
    number = tl.full((), 0, tl.int32)
    base = tl.full((), 0, tl.int32)
    while base < size:
        _, _, _, z = row_tile(
            logits, base, CHUNK, size, mapping, inv, least, row,
            offsets, edit_ids, operations, values,
        )  # fmt: skip
        kept = (z > IMPOSSIBLE).to(tl.int32)
        place = number + tl.cumsum(kept, 0) - kept
        tl.store(near + place, z, mask=(kept != 0) & (place < NEAR_ROOM))
        number += tl.sum(kept)
        base += CHUNK
    return number


@triton.jit
def among(z, peak, least):
    """above() of logits in registers."""
    kept = z >= least
    mass = tl.sum(tl.where(kept, tl.exp(z - peak), 0.0))
    return tl.sum(kept.to(tl.int32)), mass, tl.min(tl.where(kept, z, float("inf")))


@triton.jit
def threshold(
    z, all_near, logits, size, mapping, inv, peak, row, offsets, edit_ids, operations, values,
    least, number, mass, k, wanted,
):  # fmt: skip
    """(t, number, mass) of the largest t with number >= k and mass >= wanted.

    least, number, mass: a threshold that is met by an id and has enough of both. Each turn halves
    [low, high), which holds t, and stops when only one id is left in it. all_near: `z` holds all
    ids that matter.
    """
    low = key_of(least)
    high = key_of(peak) + 1
    beyond = tl.full((), 0, tl.int32)
    middle = tl.maximum(key_of(tl.maximum(peak - NEAR, -LARGEST)), low + (high - low) // 2)
    while (high - low > 1) & (number - beyond > 1):
        middle = tl.minimum(middle, high - 1)
        if all_near:
            more, heavier, lowest = among(z, peak, float_of(middle))
        else:
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
def setting(values, row, off):
    """The row's value of an optional array."""
    value = off
    if values is not None:
        value = tl.load(values + row)
    return value


@triton.jit
def cut_kernel(
    logits, mapping, temperature, top_k, top_p, min_p,
    offsets, edit_ids, operations, values, near, cut, size, stride,
):  # fmt: skip
    """Grid (rows,): cut[row]; -inf where nothing is cut, the row is greedy or nothing is left."""
    row = tl.program_id(0).to(tl.int64)
    inv, greedy = scaling(temperature, row)
    k = setting(top_k, row, tl.full((), 0, tl.int32))
    part = setting(top_p, row, tl.full((), 1.0, tl.float32))
    least_part = setting(min_p, row, tl.full((), 0.0, tl.float32))
    result = tl.full((), IMPOSSIBLE, tl.float32)
    if greedy | ((k <= 0) & (part >= 1.0) & (least_part <= 0.0)):
        tl.store(cut + row, result)
        return
    logits += row * stride
    near += row * NEAR_ROOM
    peak, number, mass, least = whole_row(
        logits, size, mapping, inv, row, offsets, edit_ids, operations, values
    )
    by_rank = (k > 0) & (k < number)
    by_mass = (part < 1.0) & (number > 0)
    z = tl.full([NEAR_ROOM], IMPOSSIBLE, tl.float32)
    all_near = number < 0
    if by_rank | by_mass:
        count = copy_near(
            logits, size, mapping, inv, peak - NEAR, row, offsets, edit_ids, operations, values,
            near,
        )  # fmt: skip
        tl.debug_barrier()  # what one thread copied another one reads
        i = tl.arange(0, NEAR_ROOM)
        z = tl.load(near + i, mask=i < count, other=IMPOSSIBLE)
        _, near_mass, near_least = among(z, peak, -LARGEST)
        all_near = (count <= NEAR_ROOM) & ((by_rank == 0) | (count >= k))
        all_near = all_near & ((by_mass == 0) | (near_mass >= part * mass))
        least = tl.where(all_near, near_least, least)
        number = tl.where(all_near, count, number)
    if by_rank:
        least, number, mass = threshold(
            z, all_near, logits, size, mapping, inv, peak, row,
            offsets, edit_ids, operations, values, least, number, mass, k, 0.0,
        )  # fmt: skip
        result = least
    if by_mass:
        least, number, mass = threshold(
            z, all_near, logits, size, mapping, inv, peak, row,
            offsets, edit_ids, operations, values, least, number, mass, 1, part * mass,
        )  # fmt: skip
        result = least
    if (least_part > 0.0) & (number > 0):
        result = tl.maximum(result, tl.minimum(peak, peak + tl.log(least_part)))
    tl.store(cut + row, result)
