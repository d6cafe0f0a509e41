"""verify(), sample() and cut() in NumPy, one row after the other: what the kernels compute.

Arguments and results are those of dsi_native.kernels; arguments are trusted here. Rejection is the
rule of Leviathan et al. (arXiv 2211.17192) and Chen et al. (arXiv 2302.01318), between two
vocabularies as in arXiv 2502.05202 (token-level intersection); coupled is Gumbel coupling (arXiv
2408.07978).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsi_native.kernels.contract import Edits, Sampled, Status, Tag, Verified
from dsi_native.reference.philox import accept_uniform, exponential, token_bits
from dsi_native.reference.rows import Race, Row, process, race, threshold

__all__ = ["cut", "cut_with_margins", "sample", "sample_with_margins", "verify"]
__all__ += ["verify_with_margins"]

TAGS = {"coupled": Tag.COUPLED, "draft": Tag.DRAFT, "bonus": Tag.BONUS}

# A q below this may be zero in float32.
_TINY = 1e-36


class Draft(NamedTuple):
    """What the drafter proposed for one row, seen from the target's vocabulary."""

    id: int
    """The target's id; it may lie outside the target's row."""
    q_id: float
    """q of the draft, 0 where the drafter cannot have drawn it."""
    doubt_id: float
    q: NDArray[np.float64]
    """[Vt] over the target's ids."""
    doubt: NDArray[np.float64]


class Judgement(NamedTuple):
    token: int
    accepted: bool
    status: Status
    margin: float


def verify(*args: object, **kwargs: object) -> Verified:
    """dsi_native.kernels.verify() on NumPy arrays."""
    return verify_with_margins(*args, **kwargs)[0]  # type: ignore[arg-type]


def verify_with_margins(
    target_logits: NDArray[np.floating],
    draft_ids: NDArray[np.int32],
    *,
    seed: ArrayLike,
    position: ArrayLike,
    mode: str = "coupled",
    temperature: ArrayLike | None = None,
    num_draft: ArrayLike | None = None,
    draft_logits: NDArray[np.floating] | None = None,
    draft_lse: NDArray[np.float32] | None = None,
    draft_temperature: ArrayLike | None = None,
    cut: NDArray[np.float32] | None = None,
    draft_cut: NDArray[np.float32] | None = None,
    edits: Edits | None = None,
    draft_edits: Edits | None = None,
    d2t: NDArray[np.int32] | None = None,
    t2d: NDArray[np.int32] | None = None,
    with_logprobs: bool = False,
    threads: int = 1,
) -> tuple[Verified, NDArray[np.float64]]:
    """verify(), and float64 [B, K + 1]: the margin by which each token was decided, NaN elsewhere.

    Implementations agree on a token where their probabilities p(v) are off by less than
    margin*(1 + |z_v|), relatively, given that they agreed on the tokens before it.
    """
    requests, most = draft_ids.shape
    seeds, positions = _each(seed, requests), _each(position, requests)
    temperatures = _each(1.0 if temperature is None else temperature, requests)
    draft_temperatures = (
        temperatures if draft_temperature is None else _each(draft_temperature, requests)
    )
    counts = _each(most if num_draft is None else num_draft, requests)
    tokens = np.full((requests, most + 1), -1, np.int32)
    accepted, status = np.zeros(requests, np.int32), np.zeros(requests, np.int32)
    logprob, lse = (np.full((requests, most + 1), np.nan, np.float32) for _ in range(2))
    margins = np.full((requests, most + 1), np.nan)

    for b in range(requests):
        for k in range(int(counts[b]) + 1):
            where = (int(seeds[b]), int(positions[b]) + k)
            row = process(
                target_logits[b, k],
                temperatures[b],
                -np.inf if cut is None else cut[b, k],
                edits,
                b * (most + 1) + k,
            )
            d = None if k == counts[b] else int(draft_ids[b, k])
            if mode == "coupled":
                judged = judge_coupled(row, None if d is None else target_id(d, d2t), *where)
            elif d is None:
                judged = draw_bonus(row, *where)
            else:
                draft = None
                if not row.greedy and draft_logits is not None:
                    draft_row = process(
                        draft_logits[b, k],
                        draft_temperatures[b],
                        -np.inf if draft_cut is None else draft_cut[b, k],
                        draft_edits,
                        b * most + k,
                        None if d2t is None else d2t >= 0,
                    )
                    given = None if draft_lse is None else float(draft_lse[b, k])
                    draft = propose(d, draft_row, given, len(row.z), d2t, t2d)
                elif not row.greedy:
                    draft = propose_certainly(d, len(row.z), d2t)
                judged = judge_rejection(row, target_id(d, d2t), draft, *where)
                if d == -1:
                    judged = judged._replace(status=judged.status & ~Status.Q_ZERO)
            status[b] |= judged.status | row.status
            tokens[b, k], margins[b, k] = judged.token, judged.margin
            if with_logprobs and judged.token >= 0:
                lse[b, k] = row.lse
                logprob[b, k] = float(row.z[judged.token]) - row.lse
            if not judged.accepted:
                break
            accepted[b] += 1
    if not with_logprobs:
        return Verified(tokens, accepted, None, None, status), margins
    return Verified(tokens, accepted, logprob, lse, status), margins


def target_id(d: int, d2t: NDArray[np.int32] | None) -> int:
    """The target's id of the drafter's id d; -1 where there is none."""
    if d2t is None:
        return d
    return int(d2t[d]) if 0 <= d < len(d2t) else -1


def clocks(seed: int, position: int, tag: int, ids: int | NDArray[np.int32]) -> NDArray[np.float32]:
    """E of the ids, or of the ids 0 .. ids - 1."""
    ids = np.arange(ids) if isinstance(ids, int) else ids
    return exponential(token_bits(seed, position, tag, ids))


def draw(row: Row, seed: int, position: int, tag: int) -> Race:
    """A token of the row's law: argmax p/E, or the argmax where the row is greedy."""
    if row.greedy or row.status & Status.EMPTY:
        return Race(row.argmax, np.inf)
    return race(row.p, row.doubt, clocks(seed, position, tag, len(row.z)))


def judge_coupled(row: Row, draft: int | None, seed: int, position: int) -> Judgement:
    """The target's own token, whatever the draft; accepted iff that is the draft."""
    drawn = draw(row, seed, position, Tag.COUPLED)
    token = drawn.winner
    return Judgement(token, token >= 0 and token == draft, Status(0), drawn.margin)


def draw_bonus(row: Row, seed: int, position: int) -> Judgement:
    drawn = draw(row, seed, position, Tag.BONUS)
    return Judgement(drawn.winner, False, Status(0), drawn.margin)


def propose(
    d: int,
    row: Row,
    lse: float | None,
    width: int,
    d2t: NDArray[np.int32] | None,
    t2d: NDArray[np.int32] | None,
) -> Draft:
    """The draft d of a drafter's row: q over `width` target ids, renormalised by `lse` if given."""
    if row.greedy:
        return propose_certainly(d, width, d2t)
    q = row.p
    if lse is not None:
        q = np.zeros(len(row.z))
        if np.isfinite(lse):
            q[row.kept] = np.exp(row.z[row.kept].astype(float) - lse)
    if t2d is None:
        there = np.minimum(len(q), width)
        on_target, doubt = np.zeros(width), np.ones(width)
        on_target[:there], doubt[:there] = q[:there], row.doubt[:there]
    else:
        on_target = np.where(t2d >= 0, q[t2d], 0.0)
        doubt = np.where(t2d >= 0, row.doubt[t2d], 1.0)
    known = 0 <= d < len(q)
    return Draft(
        target_id(d, d2t), q[d] if known else 0.0, row.doubt[d] if known else 1.0, on_target, doubt
    )


def propose_certainly(d: int, width: int, d2t: NDArray[np.int32] | None) -> Draft:
    """The draft d of a drafter that gives no law: q(d) = 1, and 0 for all other ids."""
    t = target_id(d, d2t)
    q = np.zeros(width)
    possible = 0 <= t < width
    if possible:
        q[t] = 1.0
    return Draft(t, float(possible), 1.0, q, np.ones(width))


def judge_rejection(
    row: Row, target: int, draft: Draft | None, seed: int, position: int
) -> Judgement:
    """Accepted iff u*q(d) < p(t); else a token of max(p - q, 0), or of p where that is zero.

    draft: needed unless the row is greedy.
    """
    if row.greedy or draft is None or row.status & Status.EMPTY:
        return Judgement(row.argmax, 0 <= target == row.argmax, Status(0), np.inf)
    e = clocks(seed, position, Tag.BONUS, len(row.z))
    if not draft.q_id > 0:
        drawn = race(row.p, row.doubt, e)
        return Judgement(drawn.winner, False, Status.Q_ZERO, drawn.margin)
    inside = 0 <= draft.id < len(row.z)
    p_id = row.p[draft.id] if inside else 0.0
    product = float(accept_uniform(seed, position)) * draft.q_id
    margin = np.inf
    if p_id > 0:
        margin = abs(product - p_id) / (product * draft.doubt_id + p_id * row.doubt[draft.id])
    if draft.q_id < _TINY:
        margin = 0.0
    if product < p_id:
        return Judgement(draft.id, True, Status(0), margin)
    drawn = race(row.p, row.doubt, e, draft.q, draft.doubt)
    margin, status = min(margin, drawn.margin), Status(0)
    if drawn.winner < 0:
        drawn = race(row.p, row.doubt, e)
        margin, status = min(margin, drawn.margin), Status.ZERO_RESIDUAL
    return Judgement(drawn.winner, False, status, margin)


def sample(*args: object, **kwargs: object) -> Sampled:
    """dsi_native.kernels.sample() on NumPy arrays."""
    return sample_with_margins(*args, **kwargs)[0]  # type: ignore[arg-type]


def sample_with_margins(
    logits: NDArray[np.floating],
    *,
    seed: ArrayLike,
    position: ArrayLike,
    tag: str = "coupled",
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    edits: Edits | None = None,
    d2t: NDArray[np.int32] | None = None,
) -> tuple[Sampled, NDArray[np.float64]]:
    """sample(), and float64 [R]: the margins of the tokens and their cuts, see verify.

    The noise of an id is that of the target's id, so that a coupled drafter meets its target.
    """
    rows, width = logits.shape
    seeds, positions = _each(seed, rows), _each(position, rows)
    cuts, margins = cut_with_margins(
        logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, edits=edits, d2t=d2t
    )
    temperatures = _each(temperature, rows)
    allowed = None if d2t is None else d2t >= 0
    noise_ids = np.arange(width) if d2t is None else np.maximum(d2t, 0)
    token, status = np.full(rows, -1, np.int32), np.zeros(rows, np.int32)
    lse = np.full(rows, -np.inf, np.float32)
    for r in range(rows):
        row = process(logits[r], temperatures[r], cuts[r], edits, r, allowed)
        lse[r], status[r] = row.lse, row.status
        if row.greedy or row.status & Status.EMPTY:
            token[r] = row.argmax
            continue
        drawn = race(
            row.p, row.doubt, clocks(int(seeds[r]), int(positions[r]), TAGS[tag], noise_ids)
        )
        token[r], margins[r] = drawn.winner, min(margins[r], drawn.margin)
    return Sampled(token, lse, cuts, status), margins


def cut(*args: object, **kwargs: object) -> NDArray[np.float32]:
    """dsi_native.kernels.cut() on NumPy arrays."""
    return cut_with_margins(*args, **kwargs)[0]  # type: ignore[arg-type]


def cut_with_margins(
    logits: NDArray[np.floating],
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    edits: Edits | None = None,
    d2t: NDArray[np.int32] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """cut(), and float64 [R]: by how much the sums of top-p missed another threshold."""
    rows = len(logits)
    settings = zip(
        _each(temperature, rows),
        _each(top_k, rows),
        _each(np.asarray(top_p, np.float32), rows),
        _each(np.asarray(min_p, np.float32), rows),
        strict=True,
    )
    cuts, margins = np.empty(rows, np.float32), np.empty(rows)
    for r, (t, k, top, least) in enumerate(settings):
        row = process(logits[r], t, -np.inf, edits, r, None if d2t is None else d2t >= 0)
        cuts[r], margins[r] = threshold(row, int(k), float(top), float(least))
    return cuts, margins


def _each(value: ArrayLike, count: int) -> NDArray[np.generic]:
    return np.broadcast_to(np.asarray(value), (count,))
