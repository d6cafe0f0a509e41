"""verify(), sample() and cut() in NumPy, one row after the other: what the kernels compute.

Arguments and results are those of dsi_native.kernels; arguments are trusted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsi_native.kernels.contract import TAGS, Edits, Sampled, Status, Verified
from dsi_native.reference.rows import Row, process, race, threshold
from dsi_native.reference.rules import (
    Judgement,
    clocks,
    draw_bonus,
    judge_coupled,
    judge_greedy,
    judge_rejection,
    propose,
    propose_certainly,
    target_id,
)

__all__ = ["cut", "cut_with_margins", "sample", "sample_with_margins", "verify"]
__all__ += ["verify_with_margins"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The arguments of verify(), and its rows."""

    target_logits: NDArray[np.floating]
    draft_ids: NDArray[np.int32]
    seed: ArrayLike
    position: ArrayLike
    mode: str = "coupled"
    temperature: ArrayLike | None = None
    num_draft: ArrayLike | None = None
    draft_logits: NDArray[np.floating] | None = None
    draft_lse: NDArray[np.float32] | None = None
    draft_temperature: ArrayLike | None = None
    cut: NDArray[np.float32] | None = None
    draft_cut: NDArray[np.float32] | None = None
    edits: Edits | None = None
    draft_edits: Edits | None = None
    d2t: NDArray[np.int32] | None = None
    t2d: NDArray[np.int32] | None = None
    with_logprobs: bool = False
    threads: int = 1

    def of(self, values: ArrayLike | None, b: int, default: Any) -> Any:
        """The value of request b, of an array or of a number for all."""
        if values is None:
            return default
        return np.broadcast_to(np.asarray(values), len(self.draft_ids))[b]

    def drafts(self, b: int) -> int:
        return int(self.of(self.num_draft, b, self.draft_ids.shape[1]))

    def target_row(self, b: int, k: int) -> Row:
        return process(
            self.target_logits[b, k],
            self.of(self.temperature, b, 1.0),
            -np.inf if self.cut is None else self.cut[b, k],
            self.edits,
            b * (self.draft_ids.shape[1] + 1) + k,
        )

    def draft_row(self, b: int, k: int) -> Row | None:
        """The drafter's row over the ids that have a target id; None where there is no law."""
        if self.draft_logits is None:
            return None
        return process(
            self.draft_logits[b, k],
            self.of(self.draft_temperature, b, self.of(self.temperature, b, 1.0)),
            -np.inf if self.draft_cut is None else self.draft_cut[b, k],
            self.draft_edits,
            b * self.draft_ids.shape[1] + k,
            None if self.d2t is None else self.d2t >= 0,
        )

    def judge(self, row: Row, b: int, k: int) -> Judgement:
        where = (int(self.of(self.seed, b, 0)), int(self.of(self.position, b, 0)) + k)
        d = int(self.draft_ids[b, k]) if k < self.drafts(b) else None
        if self.mode == "coupled":
            return judge_coupled(row, None if d is None else target_id(d, self.d2t), *where)
        if d is None:
            return draw_bonus(row, *where)
        # What the drafter's row does not hold is no draft, whatever the temperatures.
        known = self.draft_logits is None or 0 <= d < self.draft_logits.shape[2]
        own = d if known else -1
        if row.greedy:
            return judge_greedy(row, target_id(own, self.d2t))
        q = self.draft_row(b, k)
        if q is None:
            draft = propose_certainly(own, len(row.z), self.d2t)
        else:
            lse = None if self.draft_lse is None else float(self.draft_lse[b, k])
            draft = propose(own, q, lse, len(row.z), self.d2t, self.t2d)
        judged = judge_rejection(row, draft, *where)
        # -1 is how a caller says that there is no draft: nothing odd about it.
        return judged if d != -1 else judged._replace(status=judged.status & ~Status.Q_ZERO)


def verify(target_logits: Any, draft_ids: Any, **others: Any) -> Verified:
    """dsi_native.kernels.verify() on NumPy arrays."""
    return verify_with_margins(target_logits, draft_ids, **others)[0]


def verify_with_margins(
    target_logits: Any, draft_ids: Any, **others: Any
) -> tuple[Verified, NDArray[np.float64]]:
    """verify(), and float64 [B, K + 1]: the margin by which each token was decided, NaN elsewhere.

    Implementations agree on a token where their probabilities p(v) are off by less than
    margin*(1 + |z_v|), relatively, given that they agreed on the tokens before it.
    """
    batch = Batch(target_logits=target_logits, draft_ids=draft_ids, **others)
    requests, rows = target_logits.shape[:2]
    tokens = np.full((requests, rows), -1, np.int32)
    accepted, status = np.zeros(requests, np.int32), np.zeros(requests, np.int32)
    logprob, lse = (np.full((requests, rows), np.nan, np.float32) for _ in range(2))
    margins = np.full((requests, rows), np.nan)
    for b in range(requests):
        for k in range(batch.drafts(b) + 1):
            row = batch.target_row(b, k)
            judged = batch.judge(row, b, k)
            status[b] |= judged.status | row.status
            tokens[b, k], margins[b, k] = judged.token, judged.margin
            if judged.token >= 0:
                lse[b, k] = row.lse
                logprob[b, k] = float(row.z[judged.token]) - row.lse
            if not judged.accepted:
                break
            accepted[b] += 1
    if not batch.with_logprobs:
        return Verified(tokens, accepted, None, None, status), margins
    return Verified(tokens, accepted, logprob, lse, status), margins


def sample(logits: Any, **others: Any) -> Sampled:
    """dsi_native.kernels.sample() on NumPy arrays."""
    return sample_with_margins(logits, **others)[0]


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


def cut(logits: Any, **others: Any) -> NDArray[np.float32]:
    """dsi_native.kernels.cut() on NumPy arrays."""
    return cut_with_margins(logits, **others)[0]


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
