"""One race per row in one launch: coupled verification, and the draws of a drafter.

token = argmax over kept v of z_v - log E(seed, position, tag, v), the Gumbel-max trick; the greedy
token is the argmax of x. Coupled verification compares it with the draft: accept iff equal.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dsi_native.kernels.triton.philox import (
    CHUNK,
    WORD,
    bits_of,
    chosen_word,
    exponential,
    words_of,
)
from dsi_native.kernels.triton.rows import (
    EMPTY,
    IMPOSSIBLE,
    NO_ID,
    cut_of,
    draft_of,
    drafts_of,
    finite_or_zero,
    id_of,
    oddities,
    row_of,
    row_tile,
    scaling,
    signed_entry,
)
from dsi_native.kernels.triton.stats import ROWS, row_sums, status_until


@triton.jit
def race_word(key, where, TAG: tl.constexpr, word, ids, z, mapping, size, greedy):
    """entry() of every id of the tile; 0 where it is not kept. word: its bits, without a map."""
    if greedy:
        score = z
    else:
        bits = word
        if mapping is not None:
            noise_ids = tl.load(mapping + ids, mask=ids < size, other=0)
            bits = bits_of(key, where, TAG, tl.maximum(noise_ids, 0))
        score = z - tl.log(exponential(bits))
    return signed_entry(score, z > IMPOSSIBLE, ids)


@triton.jit
def write_race(
    draft_ids, d2t, peaks, masses, odds, chosen, best,
    tokens, num_accepted, logprob, lse, status,
    b, count, width, listed, chunks, own_chunks, CHUNKS: tl.constexpr,
):  # fmt: skip
    """The last arriver's part: where drafts and winners part, everything about a request."""
    end = tl.full((), -1, tl.int32)
    first = tl.full((), 0, tl.int32)
    bits = tl.full((), 0, tl.int32)
    while first <= width:
        k = first + tl.arange(0, ROWS)
        row = b * (width + 1) + k
        raced = k <= count
        nothing = tl.zeros([ROWS], tl.uint64)
        winner = tl.atomic_xchg(best + row, nothing, mask=raced, sem="relaxed")
        winner = tl.where(raced, winner, 0)
        token = id_of(winner)
        accepted = (k < 0) & raced
        if draft_ids is not None:
            _, t = draft_of(draft_ids, d2t, b * width + k, k < count, listed)
            accepted = (k < count) & (token >= 0) & (t == token)
        stop = tl.min(tl.where(raced & (accepted == 0), k, NO_ID))
        stop = tl.where(end >= 0, end, stop)
        written = raced & (k <= stop)
        token = tl.where(written, token, -1)
        tl.store(tokens + row, token, mask=k <= width)
        if lse is not None:
            row_peak, row_mass = row_sums(peaks, masses, row, written, chunks, own_chunks, CHUNKS)
            row_lse = row_peak + tl.log(row_mass)
            emitted = token >= 0
            if logprob is not None:
                cell = row * chunks + token // CHUNK
                z = tl.load(chosen + cell, mask=emitted, other=0.0)
                none = float("nan")
                tl.store(logprob + row, tl.where(emitted, z - row_lse, none), mask=k <= width)
                tl.store(lse + row, tl.where(emitted, row_lse, none), mask=k <= width)
            else:
                tl.store(lse + row, row_lse, mask=k <= width)
        bits |= status_until(odds, row, written, chunks, own_chunks, CHUNKS)
        bits |= tl.max(tl.where(written & (token < 0), EMPTY, 0))
        end = tl.where(stop == NO_ID, -1, stop)
        first += ROWS
    if num_accepted is not None:
        tl.store(num_accepted + b, end)
    tl.store(status + b, bits)


@triton.jit(do_not_specialize=["width", "listed", "chunks"])
def race_kernel(
    logits, draft_ids, d2t, mapping, num_draft, temperature, cut,
    offsets, edit_ids, operations, values, seed, position,
    peaks, masses, odds, chosen, best, arrivals,
    tokens, num_accepted, logprob, lse, status,
    width, size, listed, chunks, stride_b, stride_k,
    TAG: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """Grid (requests*(width+1), chunks). d2t translates drafts; `mapping` names a row's noise.

    mapping int32 [size]: the row is a drafter's, its ids race with the noise of the target's id and
    those mapped below 0 not at all. Each request's last arrival compares, writes and resets.
    """
    slot = tl.program_id(0)
    chunk = tl.program_id(1)
    own_chunks = tl.num_programs(1)
    b = slot // (width + 1)
    k = slot % (width + 1)
    count = drafts_of(num_draft, b, width)
    if k > count:
        return
    inv, greedy = scaling(temperature, b)
    key = tl.load(seed + b).to(tl.uint64, bitcast=True)
    where = tl.load(position + b) + k
    least = cut_of(cut, slot, greedy)
    row = row_of(logits, b, k, stride_b, stride_k)
    w0, w1, w2, w3 = words_of(key, where, TAG, chunk * WORD + tl.arange(0, WORD))
    peak = tl.full([WORD], IMPOSSIBLE, tl.float32)
    mass = tl.zeros([WORD], tl.float32)
    packed = tl.zeros([WORD], tl.uint64)
    packed_z = tl.zeros([WORD], tl.float32)
    odd = tl.full((), 0, tl.int32)
    w = tl.full((), 0, tl.int32)
    base = chunk * CHUNK
    while (w < 4) & (base < size):
        ids, x, possible, z = row_tile(
            row, base, WORD, size, mapping, inv, least, slot,
            offsets, edit_ids, operations, values,
        )  # fmt: skip
        odd += oddities(x, possible)
        entrant = race_word(
            key, where, TAG, chosen_word(w, w0, w1, w2, w3), ids, z, mapping, size, greedy
        )
        packed_z = tl.where(entrant > packed, z, packed_z)
        packed = tl.maximum(packed, entrant)
        if lse is not None:
            higher = tl.maximum(peak, z)
            shift = finite_or_zero(higher)
            mass = mass * tl.exp(peak - shift) + tl.exp(z - shift)
            peak = higher
        w += 1
        base += WORD

    cell = slot * chunks + chunk
    own = tl.max(packed)
    tl.store(odds + cell, odd)
    if lse is not None:
        own_peak = tl.max(peak)
        tl.store(peaks + cell, own_peak)
        tl.store(masses + cell, tl.sum(mass * tl.exp(peak - finite_or_zero(own_peak))))
    if logprob is not None:
        tl.store(chosen + cell, tl.max(tl.where(packed == own, packed_z, IMPOSSIBLE)))
    tl.atomic_max(best + slot, own, sem="relaxed")
    tl.debug_barrier()  # the arrival releases what all threads of this program have written
    if tl.atomic_add(arrivals + b, 1, sem="acq_rel") == (count + 1) * own_chunks - 1:
        tl.atomic_xchg(arrivals + b, 0, sem="relaxed")
        write_race(
            draft_ids, d2t, peaks, masses, odds, chosen, best,
            tokens, num_accepted, logprob, lse, status,
            b, count, width, listed, chunks, own_chunks, CHUNKS,
        )  # fmt: skip
