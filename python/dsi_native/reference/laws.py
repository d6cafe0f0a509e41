"""What the rules for one row do over all coins and clocks at once: laws instead of draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsi_native.kernels.contract import Status
from dsi_native.reference.rows import Row
from dsi_native.reference.rules import Draft

__all__ = ["acceptance", "judgement_law", "one_hot", "residual"]


def judgement_law(row: Row, draft: Draft) -> tuple[float, NDArray[np.float64]]:
    """(P(the draft stands), law [Vt] of the token where it does not) of the rejection rule.

    A row without anything to draw from gives (0, zeros).
    """
    if row.status & Status.EMPTY:
        return 0.0, np.zeros(len(row.z))
    if row.greedy:
        return float(draft.id == row.argmax), one_hot(row.argmax, len(row.z))
    if not draft.q_id > 0:
        return 0.0, row.p
    inside = 0 <= draft.id < len(row.z)
    return min(1.0, row.p[draft.id] / draft.q_id) if inside else 0.0, residual(row.p, draft.q)


def residual(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """max(p - q, 0) renormalised, or p where that is zero everywhere."""
    left = np.maximum(p - q, 0)
    return left / left.sum() if left.any() else p


def acceptance(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """P(a draft of the law q stands) = sum of min(p, q); q may be part of a law, over p's ids."""
    return float(np.minimum(p, q).sum())


def one_hot(id_: int, width: int) -> NDArray[np.float64]:
    law = np.zeros(width)
    law[id_] = 1.0
    return law
