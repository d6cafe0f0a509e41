"""What of each row the verdict needs, per chunk: max, sum, argmax, oddities; and its readers.

lse = m + log sum exp(z - m): (m, sum) of the chunks are merged as in Milakov and Gimelshein,
"Online normalizer calculation for softmax".
"""

from __future__ import annotations

import triton
import triton.language as tl

from dsi_native.kernels.triton.philox import CHUNK
from dsi_native.kernels.triton.rows import (
    IMPOSSIBLE,
    NO_ID,
    cut_of,
    draft_of,
    drafts_of,
    finite_or_zero,
    merged,
    oddities,
    row_of,
    row_tile,
    scaling,
    status_of,
)

ROWS = tl.constexpr(8)  # rows of a request that are read side by side


@triton.jit
def write_stats(
    logits, size, mapping, inv, least, row, offsets, edit_ids, operations, values,
    chunk, slot, chunks, judged, peaks, masses, firsts, odds, at, SUMS: tl.constexpr,
):  # fmt: skip
    """(max, sum of exp(z - max), lowest id of max, oddities) of one chunk, and z at `judged`."""
    ids, x, possible, z = row_tile(
        logits, chunk * CHUNK, CHUNK, size, mapping, inv, least, row,
        offsets, edit_ids, operations, values,
    )  # fmt: skip
    if SUMS:
        cell = slot * chunks + chunk
        peak = tl.max(z)
        tl.store(peaks + cell, peak)
        tl.store(masses + cell, tl.sum(tl.exp(z - finite_or_zero(peak))))
        if firsts is not None:
            tl.store(firsts + cell, tl.min(tl.where(z == peak, ids, NO_ID)))
            tl.store(odds + cell, oddities(x, possible))
    if (judged >= 0) & (judged // CHUNK == chunk):
        tl.store(at + slot, tl.max(tl.where(ids == judged, z, IMPOSSIBLE)))


@triton.jit(do_not_specialize=["batch", "width", "listed", "chunks"])
def stats_kernel(
    target, draft, draft_lse, draft_ids, d2t, num_draft,
    temperature, draft_temperature, cut, draft_cut,
    offsets, edit_ids, operations, values,
    draft_offsets, draft_edit_ids, draft_operations, draft_values,
    peaks, masses, firsts, odds, at,
    batch, width, size, draft_size, listed, chunks,
    stride_b, stride_k, draft_stride_b, draft_stride_k,
):  # fmt: skip
    """Grid (rows, chunks): batch*(width+1) target rows, then batch*width of the drafter.

    Rows that nobody will read cost nothing: past num_draft, past a row's own last chunk, rows of a
    greedy drafter, and with draft_lse all of a drafter's row but the draft's chunk.
    """
    slot = tl.program_id(0)
    chunk = tl.program_id(1)
    if slot < batch * (width + 1):
        b = slot // (width + 1)
        k = slot % (width + 1)
        count = drafts_of(num_draft, b, width)
        if (k <= count) & (chunk * CHUNK < size):
            inv, greedy = scaling(temperature, b)
            _, t = draft_of(draft_ids, d2t, b * width + k, k < count, listed)
            write_stats(
                row_of(target, b, k, stride_b, stride_k), size, None, inv,
                cut_of(cut, slot, greedy), slot, offsets, edit_ids, operations, values,
                chunk, slot, chunks, t, peaks, masses, firsts, odds, at, True,
            )  # fmt: skip
    elif draft is not None:
        row = slot - batch * (width + 1)
        b = row // width
        k = row % width
        d, _ = draft_of(draft_ids, None, row, k < drafts_of(num_draft, b, width), listed)
        inv, greedy = scaling(draft_temperature, b)
        needed = (d >= 0) & (d < listed) & (greedy == 0) & (chunk * CHUNK < draft_size)
        if draft_lse is not None:
            needed = needed & (d // CHUNK == chunk)
        if needed:
            write_stats(
                row_of(draft, b, k, draft_stride_b, draft_stride_k), draft_size, d2t, inv,
                cut_of(draft_cut, row, greedy), row,
                draft_offsets, draft_edit_ids, draft_operations, draft_values,
                chunk, slot, chunks, d, peaks, masses, None, None, at, draft_lse is None,
            )  # fmt: skip


@triton.jit
def row_sums(peaks, masses, slots, needed, chunks, row_chunks, CHUNKS: tl.constexpr):
    """(max, sum) [ROWS] of the partials of `slots`; -inf, 0 where not `needed`."""
    c = tl.arange(0, CHUNKS)
    cells = slots[:, None] * chunks + c[None, :]
    there = needed[:, None] & (c < row_chunks)[None, :]
    return merged(
        tl.load(peaks + cells, mask=there, other=IMPOSSIBLE),
        tl.load(masses + cells, mask=there, other=0.0),
    )


@triton.jit
def first_of_max(peaks, firsts, slots, row_peak, needed, chunks, row_chunks, CHUNKS: tl.constexpr):
    """int32 [ROWS]: the lowest id of each row's maximum."""
    c = tl.arange(0, CHUNKS)
    cells = slots[:, None] * chunks + c[None, :]
    there = needed[:, None] & (c < row_chunks)[None, :]
    tops = tl.load(peaks + cells, mask=there, other=IMPOSSIBLE) == row_peak[:, None]
    return tl.min(tl.load(firsts + cells, mask=there & tops, other=NO_ID), 1)


@triton.jit
def status_until(odds, slots, needed, chunks, row_chunks, CHUNKS: tl.constexpr):
    """Status bits of what the rows `needed` hold."""
    c = tl.arange(0, CHUNKS)
    cells = slots[:, None] * chunks + c[None, :]
    there = needed[:, None] & (c < row_chunks)[None, :]
    return status_of(tl.sum(tl.sum(tl.load(odds + cells, mask=there, other=0), 1)))
