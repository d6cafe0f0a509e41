"""The rules for one row: how a token is drawn, and whether a draft stands.

Rejection is the rule of Leviathan et al. (arXiv 2211.17192) and Chen et al. (arXiv 2302.01318),
between two vocabularies as in arXiv 2502.05202 (token-level intersection); coupled is Gumbel
coupling (arXiv 2408.07978).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsi_native.kernels.contract import Status, Tag
from dsi_native.reference.philox import accept_uniform, exponential, token_bits
from dsi_native.reference.rows import Race, Row, race

__all__ = ["Draft", "Judgement", "clocks", "draw", "draw_bonus", "judge_coupled"]
__all__ += ["judge_greedy", "judge_rejection", "propose", "propose_certainly"]
__all__ += ["propose_from_union", "target_id"]

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


def propose_from_union(
    d: int,
    row: Row,
    width: int,
    d2t: NDArray[np.int32],
    t2d: NDArray[np.int32],
) -> Draft:
    """The draft d of a drafter that draws from its whole vocabulary: the baseline of 2502.05202.

    row: the drafter's, without the map. q over the target's ids is then part of a law, and an id
    without a target id is rejected like any draft: the token comes from max(p - q, 0), not from p.
    Never more acceptable than drafting from the common tokens, which is what the kernels do.
    """
    return propose(d, row, None, width, d2t, t2d)


def judge_greedy(row: Row, target: int) -> Judgement:
    """The argmax, accepted iff that is the draft, which needs no law."""
    return Judgement(row.argmax, 0 <= target == row.argmax, Status(0), np.inf)


def judge_rejection(row: Row, draft: Draft, seed: int, position: int) -> Judgement:
    """Accepted iff u*q(d) < p(t); else a token of max(p - q, 0), or of p where that is zero."""
    if row.status & Status.EMPTY:
        return Judgement(-1, False, Status(0), np.inf)
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
