"""One row of logits inside a kernel: edits, temperature, cut, and sums over chunks.

x = float32(logit) with its edits applied in order; z = x * (1/T), NaN and -inf become -inf, what
leaves float32 is clamped. An id is kept where z >= cut, z > -inf and, in a drafter's row with a
map, the map knows it. Everything else has z = -inf, so `z > -inf` reads "kept".
"""

from __future__ import annotations

import triton
import triton.language as tl

from dsi_native.kernels import contract
from dsi_native.kernels.contract import Status

GREEDY_TEMPERATURE = tl.constexpr(contract.GREEDY_TEMPERATURE)
LARGEST = tl.constexpr(3.4028234663852886e38)
IMPOSSIBLE = tl.constexpr(float("-inf"))
NO_ID = tl.constexpr(2147483647)
EDITS_AT_ONCE = tl.constexpr(128)

# Status bits.
NAN = tl.constexpr(int(Status.NAN))
EMPTY = tl.constexpr(int(Status.EMPTY))
ZERO_RESIDUAL = tl.constexpr(int(Status.ZERO_RESIDUAL))
Q_ZERO = tl.constexpr(int(Status.Q_ZERO))
INF = tl.constexpr(int(Status.INF))
INF_COUNT = tl.constexpr(65536)  # a chunk counts its NaNs below this and its infinities above


@triton.jit
def scaling(temperature, b):
    """(float32 1/T, whether the request is greedy). Greedy rows are not scaled: inv = 1."""
    inv = tl.full((), 1.0, tl.float32)
    greedy = inv < 0.0
    if temperature is not None:
        t = tl.load(temperature + b)
        greedy = (t >= GREEDY_TEMPERATURE) == 0
        inv = tl.where(greedy, 1.0, tl.div_rn(inv, tl.where(greedy, 1.0, t)))
    return inv, greedy


@triton.jit
def cut_of(cut, row, greedy):
    """The row's threshold in units of z; none (-inf) where there is no array, or greedily."""
    least = tl.full((), IMPOSSIBLE, tl.float32)
    if cut is not None:
        least = tl.where(greedy, IMPOSSIBLE, tl.load(cut + row))
    return least


@triton.jit
def drafts_of(num_draft, b, width):
    """How many of the request's `width` drafts count; never more than there is room for."""
    if num_draft is None:
        count = tl.full((), 0, tl.int32) + width
    else:
        count = tl.minimum(tl.maximum(tl.load(num_draft + b), 0), width)
    return count


@triton.jit
def edited(x, ids, base, width, row, offsets, edit_ids, operations, values, translate, listed_size):
    """x after the row's edits in listed order; `ids` lie in [base, base + width).

    offsets None: no edits. Where `translate` is given the edits name ids of another vocabulary, of
    `listed_size`, and translate[id] is the id here. The list is scanned 128 at a time; only edits
    that fall into the tile cost more than that.
    """
    if offsets is not None:
        start = tl.load(offsets + row)
        end = tl.load(offsets + row + 1)
        while start < end:
            e = start + tl.arange(0, EDITS_AT_ONCE)
            named = tl.load(edit_ids + e, mask=e < end, other=-1)
            if translate is not None:
                known = (named >= 0) & (named < listed_size)
                named = tl.load(translate + named, mask=known, other=-1)
            hits = (named >= base) & (named < base + width)
            left = tl.sum(hits.to(tl.int32))
            while left > 0:
                first = tl.min(tl.where(hits, e, 9223372036854775807))
                name = tl.load(edit_ids + first)
                if translate is not None:
                    name = tl.load(translate + name)
                operation = tl.load(operations + first).to(tl.int32)
                value = tl.load(values + first)
                here = ids == name
                old = tl.sum(tl.where(here, x, 0.0))
                new = value
                if operation == 0:
                    new = old + value
                if operation == 1:
                    new = tl.where(old > 0, tl.div_rn(old, value), old * value)
                x = tl.where(here, new, x)
                hits = hits & (e > first)
                left -= 1
            start += EDITS_AT_ONCE
    return x


@triton.jit
def scaled(x, possible, inv, least):
    """z of logits x; -inf where not `possible`, not kept, NaN or -inf."""
    z = tl.minimum(tl.maximum(x * inv, -LARGEST), LARGEST)
    return tl.where(possible & (x > IMPOSSIBLE) & (z >= least), z, IMPOSSIBLE)


@triton.jit
def oddities(x, possible):
    """Of a tile: 1 if it holds NaN, plus INF_COUNT if it holds +inf. Sums of it stay readable."""
    seen = tl.where(x != x, 1, tl.where(x == float("inf"), INF_COUNT, 0))
    count = tl.sum(tl.where(possible, seen, 0))
    return (count % INF_COUNT != 0).to(tl.int32) + tl.where(count >= INF_COUNT, INF_COUNT, 0)


@triton.jit
def status_of(odd):
    """Status bits of summed oddities()."""
    return tl.where(odd % INF_COUNT != 0, NAN, 0) | tl.where(odd >= INF_COUNT, INF, 0)


@triton.jit
def finite_or_zero(peak):
    """A maximum to subtract: 0 where nothing is kept, so that -inf - (-inf) never happens."""
    return tl.where(peak > IMPOSSIBLE, peak, 0.0)


@triton.jit
def merged(peaks, masses):
    """(max, sum) [rows] of chunks' (max, sum) [rows, chunks]; those that keep nothing: -inf, 0.

    A fixed tree over the chunks, so the same partials always give the same bits.
    """
    peak = tl.max(peaks, 1)
    return peak, tl.sum(masses * tl.exp(peaks - finite_or_zero(peak)[:, None]), 1)


@triton.jit
def row_of(logits, b, k, stride_b, stride_k):
    """Where row k of request b starts; in 64 bits, since logits may be larger than 2^31."""
    return logits + b.to(tl.int64) * stride_b + k.to(tl.int64) * stride_k


@triton.jit
def row_tile(
    logits, base, WIDTH: tl.constexpr, size, mapping, inv, least, row,
    offsets, edit_ids, operations, values,
):  # fmt: skip
    """(ids, x, possible, z) of ids base..base+WIDTH of the row that `logits` points at.

    base is a multiple of 1024: with `size` a multiple of 16 the loads are 16 bytes wide.
    mapping: int32 [size] or None; ids that it maps below 0 are not possible.
    """
    ids = base + tl.arange(0, WIDTH)
    possible = ids < size
    x = tl.load(logits + ids, mask=possible, other=IMPOSSIBLE).to(tl.float32)
    if mapping is not None:
        possible = possible & (tl.load(mapping + ids, mask=possible, other=-1) >= 0)
    x = edited(x, ids, base, WIDTH, row, offsets, edit_ids, operations, values, None, size)
    return ids, x, possible, scaled(x, possible, inv, least)


@triton.jit
def draft_of(draft_ids, d2t, index, counts, listed):
    """(drafter's id, target's id) of drafts at `index`; -1 where not `counts`, unknown, outside.

    listed: ids in the drafter's vocabulary. Never used as an index before it has been checked.
    """
    d = tl.load(draft_ids + index, mask=counts, other=-1).to(tl.int32)
    inside = (d >= 0) & (d < listed)
    t = tl.where(inside, d, -1)
    if d2t is not None:
        t = tl.load(d2t + d, mask=inside, other=-1)
    return d, t


@triton.jit
def entry(score, first, runs, ids):
    """One uint64 that orders by `first`, then by score >= 0, then by lowest id; 0 if not `runs`.

    Any entry that is `first` beats all that are not. Floats from 0 on order like their bits.
    """
    bits = score.to(tl.uint32, bitcast=True) | tl.where(first, 0x80000000, 0).to(tl.uint32)
    packed = (bits.to(tl.uint64) << 32) | (0xFFFFFFFF - ids.to(tl.uint32)).to(tl.uint64)
    return tl.where(runs, packed, 0)


@triton.jit
def signed_entry(score, runs, ids):
    """entry() of a score of any sign: the number -x orders like the complement of x's bits."""
    bits = tl.where(score == 0.0, 0.0, score).to(tl.uint32, bitcast=True)
    bits = tl.where(bits >= 0x80000000, bits ^ 0xFFFFFFFF, bits | 0x80000000)
    packed = (bits.to(tl.uint64) << 32) | (0xFFFFFFFF - ids.to(tl.uint32)).to(tl.uint64)
    return tl.where(runs, packed, 0)


@triton.jit
def id_of(packed):
    """The id in an entry, -1 in 0."""
    return tl.where(packed == 0, -1, (0xFFFFFFFF - packed.to(tl.uint32)).to(tl.int32))


@triton.jit
def from_first(packed):
    """Whether an entry() is `first`."""
    return (packed >> 63) != 0
