"""Rejection verification in two launches: stats over every row, then one share of one draw each.

accept draft d (target id t) iff u*q(d) < p(t); the first rejection draws max(p - q, 0)/E, or p/E
where that is zero everywhere; all accepted draws the bonus p/E (Leviathan et al. 2023, Chen et al.
2023). Draws are races argmax score/E between exponential clocks, so each chunk can run its own.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dsi_native.kernels.triton.philox import (
    ACCEPT,
    CHUNK,
    RESIDUAL,
    WORD,
    chosen_word,
    exponential,
    odd_grid,
    words_of,
)
from dsi_native.kernels.triton.rows import (
    EMPTY,
    IMPOSSIBLE,
    NO_ID,
    Q_ZERO,
    ZERO_RESIDUAL,
    cut_of,
    draft_of,
    drafts_of,
    edited,
    entry,
    finite_or_zero,
    from_first,
    id_of,
    merged,
    oddities,
    row_of,
    row_tile,
    scaled,
    scaling,
    status_of,
)

ROWS = tl.constexpr(8)  # rows of a request that are judged side by side


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
def pick(values, here):
    """The one value where `here`; 0 where there is none."""
    return tl.sum(tl.where(here, values, 0))


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


@triton.jit
def draft_sums(
    draft_lse, peaks, masses, slots, index, lawful, chunks, draft_size, CHUNKS: tl.constexpr
):
    """(peak, scale) [ROWS]: q(v) = exp(y_v - peak) * scale; 0, 0 where the row is no law."""
    if draft_lse is None:
        own = tl.cdiv(draft_size, CHUNK)
        peak, mass = row_sums(peaks, masses, slots, lawful, chunks, own, CHUNKS)
        usable = peak > IMPOSSIBLE
        scale = tl.div_rn(1.0, tl.where(usable, mass, 1.0))
    else:
        peak = tl.load(draft_lse + index, mask=lawful, other=IMPOSSIBLE)
        usable = tl.abs(peak) < float("inf")
        scale = tl.full([ROWS], 1.0, tl.float32)
    return tl.where(usable, peak, 0.0), tl.where(usable, scale, 0.0)


@triton.jit
def q_of(
    draft, ids, base, size, draft_size, d2t, t2d, inv, least, row, peak, scale,
    offsets, edit_ids, operations, values,
):  # fmt: skip
    """q of target ids: exp(y - peak) * scale of the drafter's row, 0 where it knows none or cut."""
    if t2d is None:
        known = ids < draft_size
        y = tl.load(draft + ids, mask=known, other=IMPOSSIBLE).to(tl.float32)
    else:
        d = tl.load(t2d + ids, mask=ids < size, other=-1)
        known = (d >= 0) & (d < draft_size)
        y = tl.load(draft + d, mask=known, other=IMPOSSIBLE).to(tl.float32)
    y = edited(y, ids, base, WORD, row, offsets, edit_ids, operations, values, d2t, draft_size)
    return tl.exp(scaled(y, known, inv, least) - peak) * scale


@triton.jit(do_not_specialize=["batch", "width", "listed", "chunks"])
def verify_kernel(
    target, draft, draft_lse, draft_ids, d2t, t2d, num_draft,
    temperature, draft_temperature, cut, draft_cut,
    offsets, edit_ids, operations, values,
    draft_offsets, draft_edit_ids, draft_operations, draft_values,
    seed, position,
    peaks, masses, firsts, odds, at, best, arrivals,
    tokens, num_accepted, logprob, lse, status,
    batch, width, size, draft_size, listed, chunks,
    stride_b, stride_k, draft_stride_b, draft_stride_k,
    CHUNKS: tl.constexpr,
):  # fmt: skip
    """Grid (requests, chunks of the target's row), after stats_kernel on the same stream.

    Every program decides alike which row ends the request, races its own chunk of that row, and
    raises best[b]. Whoever arrives last has seen all of them: it writes the token and leaves best
    and arrivals at 0, as it found them. Nobody waits.
    """
    b = tl.program_id(0)
    chunk = tl.program_id(1)
    own_chunks = tl.num_programs(1)
    count = drafts_of(num_draft, b, width)
    inv, greedy = scaling(temperature, b)
    draft_inv, draft_greedy = scaling(draft_temperature, b)
    key = tl.load(seed + b).to(tl.uint64, bitcast=True)
    start = tl.load(position + b)

    end = tl.full(
        (), -1, tl.int32
    )  # the row that ends the request, and what there is to know of it
    first = tl.full((), 0, tl.int32)
    bits = tl.full((), 0, tl.int32)
    top = tl.full((), -1, tl.int32)
    peak = tl.full((), 0.0, tl.float32)
    mass = tl.full((), 0.0, tl.float32)
    q_peak = tl.full((), 0.0, tl.float32)
    q_scale = tl.full((), 0.0, tl.float32)
    refused = tl.full((), -1, tl.int32)  # the target's id of a draft that speaks, else -1
    while end < 0:  # ends: row `count` is never accepted
        k = first + tl.arange(0, ROWS)
        row = b * (width + 1) + k
        index = b * width + k
        judged = k <= count
        row_peak, row_mass = row_sums(peaks, masses, row, judged, chunks, own_chunks, CHUNKS)
        lives = row_peak > IMPOSSIBLE
        d, t = draft_of(draft_ids, d2t, index, k < count, listed)
        z = tl.load(at + row, mask=(t >= 0) & (t < size), other=IMPOSSIBLE)
        if greedy:
            ids = first_of_max(peaks, firsts, row, row_peak, judged, chunks, own_chunks, CHUNKS)
        else:
            ids = tl.full([ROWS], -1, tl.int32)

        lawful = k < 0
        q = tl.full([ROWS], 1.0, tl.float32)
        row_q_peak = tl.zeros([ROWS], tl.float32)
        row_q_scale = tl.zeros([ROWS], tl.float32)
        if draft is not None:
            slot = batch * (width + 1) + index
            lawful = (t >= 0) & (draft_greedy == 0)  # else a point mass, if anything
            row_q_peak, row_q_scale = draft_sums(
                draft_lse, peaks, masses, slot, index, lawful, chunks, draft_size, CHUNKS
            )
            y = tl.load(at + slot, mask=lawful, other=IMPOSSIBLE)
            q = tl.where(draft_greedy, 1.0, tl.exp(y - row_q_peak) * row_q_scale)
        speaks = (t >= 0) & (q > 0.0) & ((t < size) | lawful)
        p = tl.exp(z - finite_or_zero(row_peak)) * tl.div_rn(1.0, tl.where(lives, row_mass, 1.0))
        u, _, _, _ = words_of(key, start + k, ACCEPT, tl.full((), 0, tl.uint32))
        accepted = tl.where(greedy, t == ids, speaks & (odd_grid(u) * q < p))
        accepted = accepted & lives & (k < count)

        stop = tl.min(tl.where(judged & (accepted == 0), k, NO_ID))
        here = k == stop
        bits |= status_until(odds, row, judged & (k <= stop), chunks, own_chunks, CHUNKS)
        mute = here & (k < count) & (speaks == 0) & (d != -1) & lives & (greedy == 0)
        bits |= tl.max(tl.where(mute, Q_ZERO, 0)) | tl.max(tl.where(here & (lives == 0), EMPTY, 0))
        if chunk == 0:
            behind = (k <= width) & (here == 0)
            row_lse = row_peak + tl.log(row_mass)
            tl.store(tokens + row, tl.where(k < stop, t, -1), mask=behind)
            if logprob is not None:
                none = float("nan")
                tl.store(logprob + row, tl.where(k < stop, z - row_lse, none), mask=behind)
                tl.store(lse + row, tl.where(k < stop, row_lse, none), mask=behind)
        end = tl.where(stop == NO_ID, -1, stop)
        top = tl.max(tl.where(here & lives, ids, -1))
        peak = pick(row_peak, here)
        mass = pick(row_mass, here)
        q_peak = pick(row_q_peak, here)
        q_scale = pick(row_q_scale, here)
        refused = tl.max(tl.where(here & speaks, t, -1))
        first += ROWS

    row = b * (width + 1) + end
    if chunk == 0:
        while first <= width:
            k = first + tl.arange(0, ROWS)
            behind = k <= width
            tl.store(tokens + b * (width + 1) + k, tl.full([ROWS], -1, tl.int32), mask=behind)
            if logprob is not None:
                none = tl.full([ROWS], float("nan"), tl.float32)
                tl.store(logprob + b * (width + 1) + k, none, mask=behind)
                tl.store(lse + b * (width + 1) + k, none, mask=behind)
            first += ROWS
        tl.store(num_accepted + b, end)

    if greedy | (peak == IMPOSSIBLE):
        if chunk == 0:
            tl.store(tokens + row, top)
            tl.store(status + b, bits)
            if logprob is not None:
                none = float("nan")
                tl.store(logprob + row, tl.where(top < 0, none, -tl.log(mass)))
                tl.store(lse + row, tl.where(top < 0, none, peak + tl.log(mass)))
        return

    calls = chunk * WORD + tl.arange(0, WORD)
    w0, w1, w2, w3 = words_of(key, start + end, RESIDUAL, calls)
    scale = tl.div_rn(1.0, mass)
    least = cut_of(cut, row, greedy)
    entrants = tl.zeros([WORD], tl.uint64)
    w = tl.full((), 0, tl.int32)
    base = chunk * CHUNK
    while (w < 4) & (base < size):  # unrolled it would need half as many registers again
        ids, _, _, z = row_tile(
            row_of(target, b, end, stride_b, stride_k), base, WORD, size, None, inv, least, row,
            offsets, edit_ids, operations, values,
        )  # fmt: skip
        p = tl.exp(z - peak) * scale
        left = tl.where(ids == refused, 0.0, p)
        if draft is not None:  # noqa: SIM102, one is decided when compiling
            if (refused >= 0) & (draft_greedy == 0):
                index = b * width + end
                left = p - q_of(
                    row_of(draft, b, end, draft_stride_b, draft_stride_k),
                    ids, base, size, draft_size, d2t, t2d, draft_inv,
                    cut_of(draft_cut, index, draft_greedy), index, q_peak, q_scale,
                    draft_offsets, draft_edit_ids, draft_operations, draft_values,
                )  # fmt: skip
        clock = exponential(chosen_word(w, w0, w1, w2, w3))
        some = left > 0.0
        score = tl.where(some, left, p) / clock
        entrants = tl.maximum(entrants, entry(score, some, z > IMPOSSIBLE, ids))
        w += 1
        base += WORD

    tl.atomic_max(best + b, tl.max(entrants), sem="relaxed")
    tl.debug_barrier()  # the arrival releases what all threads of this program have written
    if tl.atomic_add(arrivals + b, 1, sem="acq_rel") == own_chunks - 1:
        winner = tl.atomic_xchg(best + b, tl.full((), 0, tl.uint64), sem="relaxed")
        tl.atomic_xchg(arrivals + b, 0, sem="relaxed")
        token = id_of(winner)
        tl.store(tokens + row, token)
        tl.store(status + b, bits | tl.where(from_first(winner), 0, ZERO_RESIDUAL))
        if logprob is not None:
            ids, _, _, z = row_tile(
                row_of(target, b, end, stride_b, stride_k), token // 16 * 16, 16, size, None, inv,
                least, row, offsets, edit_ids, operations, values,
            )  # fmt: skip
            row_lse = peak + tl.log(mass)
            tl.store(logprob + row, tl.max(tl.where(ids == token, z, IMPOSSIBLE)) - row_lse)
            tl.store(lse + row, row_lse)
