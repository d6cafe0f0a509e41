"""Rejection verification, second launch: every program judges alike, then runs a share of one draw.

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
    row_of,
    row_tile,
    scaled,
    scaling,
)
from dsi_native.kernels.triton.stats import ROWS, first_of_max, row_sums, status_until


@triton.jit
def pick(values, here):
    """The one value where `here`; 0 where there is none."""
    return tl.sum(tl.where(here, values, 0))


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
def draft_law(
    draft, draft_lse, peaks, masses, at, slots, index, t, size, draft_size, greedy, chunks,
    CHUNKS: tl.constexpr,
):  # fmt: skip
    """(speaks, q(d), peak, scale) [ROWS] of drafts t; q(v) = exp(y_v - peak) * scale.

    Without a law, or greedily, q is 1 at the draft. A draft with q = 0, or that the target's row
    cannot hold and no law explains, does not speak: it says nothing about the noise.
    """
    peak = tl.zeros([ROWS], tl.float32)
    scale = tl.zeros([ROWS], tl.float32)
    q = tl.full([ROWS], 1.0, tl.float32)
    lawful = t < -1
    if draft is not None:
        lawful = (t >= 0) & (greedy == 0)
        peak, scale = draft_sums(
            draft_lse, peaks, masses, slots, index, lawful, chunks, draft_size, CHUNKS
        )
        y = tl.load(at + slots, mask=lawful, other=IMPOSSIBLE)
        q = tl.where(greedy, 1.0, tl.exp(y - peak) * scale)
    return (t >= 0) & (q > 0.0) & ((t < size) | lawful), q, peak, scale


@triton.jit
def write_others(tokens, logprob, lse, row, k, stop, width, t, z, row_peak, row_mass):
    """Tokens of the rows before `stop` (accepted) and after it (none); `stop` has its own."""
    others = (k <= width) & (k != stop)
    tl.store(tokens + row, tl.where(k < stop, t, -1), mask=others)
    if logprob is not None:
        row_lse = row_peak + tl.log(row_mass)
        none = float("nan")
        tl.store(logprob + row, tl.where(k < stop, z - row_lse, none), mask=others)
        tl.store(lse + row, tl.where(k < stop, row_lse, none), mask=others)


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


@triton.jit
def race_chunk(
    target, draft, d2t, t2d, size, draft_size, inv, least, row,
    offsets, edit_ids, operations, values,
    draft_inv, draft_least, draft_row,
    draft_offsets, draft_edit_ids, draft_operations, draft_values,
    key, where, chunk, peak, scale, q_peak, q_scale, refused, subtract,
):  # fmt: skip
    """The best entry of one chunk. `target` and `draft` point at the row that is drawn from.

    Whoever has a residual runs for it and is `first`; whoever has none runs for p, which counts
    where nobody has any. refused: the draft's id, -1 for none. subtract: q is a law, not a point.
    """
    w0, w1, w2, w3 = words_of(key, where, RESIDUAL, chunk * WORD + tl.arange(0, WORD))
    best = tl.zeros([WORD], tl.uint64)
    w = tl.full((), 0, tl.int32)
    base = chunk * CHUNK
    while (w < 4) & (base < size):  # unrolled it would need half as many registers again
        ids, _, _, z = row_tile(
            target, base, WORD, size, None, inv, least, row, offsets, edit_ids, operations, values
        )
        p = tl.exp(z - peak) * scale
        left = tl.where(ids == refused, 0.0, p)
        if draft is not None:  # noqa: SIM102, one is decided when compiling
            if subtract:
                left = p - q_of(
                    draft, ids, base, size, draft_size, d2t, t2d, draft_inv, draft_least,
                    draft_row, q_peak, q_scale,
                    draft_offsets, draft_edit_ids, draft_operations, draft_values,
                )  # fmt: skip
        some = left > 0.0
        score = tl.where(some, left, p) / exponential(chosen_word(w, w0, w1, w2, w3))
        best = tl.maximum(best, entry(score, some, z > IMPOSSIBLE, ids))
        w += 1
        base += WORD
    return tl.max(best)


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

    # The row that ends the request, and what there is to know of it.
    end = tl.full((), -1, tl.int32)
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
        speaks, q, row_q_peak, row_q_scale = draft_law(
            draft, draft_lse, peaks, masses, at, batch * (width + 1) + index, index,
            t, size, draft_size, draft_greedy, chunks, CHUNKS,
        )  # fmt: skip
        z = tl.load(at + row, mask=(t >= 0) & (t < size), other=IMPOSSIBLE)
        if greedy:
            ids = first_of_max(peaks, firsts, row, row_peak, judged, chunks, own_chunks, CHUNKS)
            accepted = t == ids
        else:
            ids = tl.full([ROWS], -1, tl.int32)
            u, _, _, _ = words_of(key, start + k, ACCEPT, tl.full((), 0, tl.uint32))
            p = tl.exp(z - finite_or_zero(row_peak))
            p *= tl.div_rn(1.0, tl.where(lives, row_mass, 1.0))
            accepted = speaks & (odd_grid(u) * q < p)
        accepted = accepted & lives & (k < count)

        stop = tl.min(tl.where(judged & (accepted == 0), k, NO_ID))
        here = k == stop
        bits |= status_until(odds, row, judged & (k <= stop), chunks, own_chunks, CHUNKS)
        mute = here & (k < count) & (speaks == 0) & (d != -1) & lives & (greedy == 0)
        bits |= tl.max(tl.where(mute, Q_ZERO, 0)) | tl.max(tl.where(here & (lives == 0), EMPTY, 0))
        if chunk == 0:
            write_others(tokens, logprob, lse, row, k, stop, width, t, z, row_peak, row_mass)
        end = tl.where(stop == NO_ID, -1, stop)
        top = tl.max(tl.where(here & lives, ids, -1))
        peak = pick(row_peak, here)
        mass = pick(row_mass, here)
        q_peak = pick(row_q_peak, here)
        q_scale = pick(row_q_scale, here)
        refused = tl.max(tl.where(here & speaks, t, -1))
        first += ROWS

    if chunk == 0:
        tl.store(num_accepted + b, end)
        while first <= width:
            k = first + tl.arange(0, ROWS)
            nothing = tl.zeros([ROWS], tl.float32)
            none = tl.full([ROWS], -1, tl.int32)
            row = b * (width + 1) + k
            write_others(tokens, logprob, lse, row, k, end, width, none, nothing, nothing, nothing)
            first += ROWS

    row = b * (width + 1) + end
    index = b * width + end
    if greedy | (peak == IMPOSSIBLE):
        if chunk == 0:
            tl.store(tokens + row, top)
            tl.store(status + b, bits)
            if logprob is not None:
                none = float("nan")
                tl.store(logprob + row, tl.where(top < 0, none, -tl.log(mass)))
                tl.store(lse + row, tl.where(top < 0, none, peak + tl.log(mass)))
        return

    logits = row_of(target, b, end, stride_b, stride_k)
    least = cut_of(cut, row, greedy)
    subtract = (refused >= 0) & (draft_greedy == 0)
    draft_least = tl.full((), IMPOSSIBLE, tl.float32)
    if draft is not None:
        draft += b.to(tl.int64) * draft_stride_b + end.to(tl.int64) * draft_stride_k
        if subtract:  # else there may be no such row
            draft_least = cut_of(draft_cut, index, draft_greedy)
    entrant = race_chunk(
        logits, draft, d2t, t2d, size, draft_size, inv, least, row,
        offsets, edit_ids, operations, values,
        draft_inv, draft_least, index,
        draft_offsets, draft_edit_ids, draft_operations, draft_values,
        key, start + end, chunk, peak, tl.div_rn(1.0, mass), q_peak, q_scale, refused, subtract,
    )  # fmt: skip
    tl.atomic_max(best + b, entrant, sem="relaxed")
    tl.debug_barrier()  # the arrival releases what all threads of this program have written
    if tl.atomic_add(arrivals + b, 1, sem="acq_rel") == own_chunks - 1:
        winner = tl.atomic_xchg(best + b, tl.full((), 0, tl.uint64), sem="relaxed")
        tl.atomic_xchg(arrivals + b, 0, sem="relaxed")
        token = id_of(winner)
        tl.store(tokens + row, token)
        tl.store(status + b, bits | tl.where(from_first(winner), 0, ZERO_RESIDUAL))
        if logprob is not None:
            ids, _, _, z = row_tile(
                logits, token // 16 * 16, 16, size, None, inv, least, row,
                offsets, edit_ids, operations, values,
            )  # fmt: skip
            row_lse = peak + tl.log(mass)
            tl.store(logprob + row, tl.max(tl.where(ids == token, z, IMPOSSIBLE)) - row_lse)
            tl.store(lse + row, row_lse)
