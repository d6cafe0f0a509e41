"""One row of logits to its law: edits, temperature, cut, log-sum-exp, thresholds and races."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dsi_native.kernels.contract import GREEDY_TEMPERATURE, Edits, Operation, Status

__all__ = ["Race", "Row", "process", "race", "threshold"]

_LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True, eq=False)
class Row:
    """The law p(v) = exp(z_v - lse) over the kept ids of one row."""

    z: NDArray[np.float32]
    """[V] scaled logits, -inf where impossible."""
    kept: NDArray[np.bool_]
    """[V] possible, and not below the cut."""
    greedy: bool
    """The token is the argmax; z, lse and p are then those of temperature 1 without a cut."""
    status: Status

    @cached_property
    def max(self) -> float:
        """m, the greatest kept z; -inf where nothing is kept."""
        return float(np.max(self.z[self.kept], initial=-np.inf))

    @cached_property
    def lse(self) -> float:
        """m + log sum exp(z - m) over the kept ids; -inf where nothing is kept."""
        if self.max == -np.inf:
            return -np.inf
        return self.max + float(np.log(np.sum(np.exp(self.z[self.kept].astype(float) - self.max))))

    @cached_property
    def p(self) -> NDArray[np.float64]:
        """[V], 0 where not kept; sums to 1 unless nothing is kept."""
        p = np.zeros(len(self.z))
        if self.max > -np.inf:
            p[self.kept] = np.exp(self.z[self.kept].astype(float) - self.max)
            p /= p.sum()
        return p

    @property
    def argmax(self) -> int:
        """The lowest id among the greatest; -1 where nothing is kept."""
        return int(np.argmax(np.where(self.kept, self.z, -np.inf))) if self.kept.any() else -1

    @property
    def doubt(self) -> NDArray[np.float64]:
        """[V] by how many times its own rounding error a float32 p may be off."""
        return 1 + np.abs(np.where(self.kept, self.z, 0).astype(float))


def process(
    logits: NDArray[np.floating],
    temperature: float = 1.0,
    cut: float = -np.inf,
    edits: Edits | None = None,
    index: int = 0,
    allowed: NDArray[np.bool_] | None = None,
) -> Row:
    """The law of logits [V] after the edits of row `index`, the temperature and the cut.

    allowed: bool [V]; the other ids take no part, as if they were not in the row. cut: in units of
    z, not used where the temperature means argmax.
    """
    x = np.array(logits, np.float32)
    if edits is not None:
        _edit(x, edits, index)
    if allowed is not None:
        x[~allowed] = -np.inf
    nan, infinite = np.isnan(x), x == np.inf
    status = Status(0)
    if nan.any():
        status |= Status.NAN
    if infinite.any():
        status |= Status.INF
    x[nan] = -np.inf
    temperature = np.float32(temperature)
    greedy = not temperature >= np.float32(GREEDY_TEMPERATURE)
    inverse = np.float32(1) if greedy else np.float32(1) / temperature
    with np.errstate(over="ignore", invalid="ignore"):
        z = np.where(x == -np.inf, -np.inf, np.clip(x * inverse, -_LARGEST, _LARGEST))
    z = z.astype(np.float32)
    kept = z > -np.inf
    if not greedy:
        kept &= z >= np.float32(cut)
    if not kept.any():
        status |= Status.EMPTY
    return Row(z, kept, greedy, status)


def _edit(x: NDArray[np.float32], edits: Edits, index: int) -> None:
    with np.errstate(all="ignore"):
        for i in range(int(edits.offsets[index]), int(edits.offsets[index + 1])):
            v, value = edits.ids[i], np.float32(edits.values[i])
            if not 0 <= v < len(x):
                continue
            if edits.operations[i] == Operation.ADD:
                x[v] += value
            elif edits.operations[i] == Operation.REPEAT:
                x[v] = x[v] / value if x[v] > 0 else x[v] * value
            elif edits.operations[i] == Operation.SET:
                x[v] = value


def threshold(row: Row, top_k: int, top_p: float, min_p: float) -> tuple[np.float32, float]:
    """The cut of top-k, then top-p of what is left, then min-p, in units of z; -inf: none.

    top_k 0, top_p 1 and min_p 0 mean off. Ids equal to the threshold stay. The second number is by
    how much (as part of what is left) the sums of top-p missed a different threshold.
    """
    cut, margin = -np.inf, np.inf
    if row.greedy or row.status & Status.EMPTY:
        return np.float32(cut), margin
    ranked = np.sort(row.z[row.kept])[::-1].astype(float)
    if 0 < top_k < len(ranked):
        cut = ranked[top_k - 1]
        ranked = ranked[ranked >= cut]
    if top_p < 1:
        mass = np.cumsum(np.exp(ranked - row.max))
        mass /= mass[-1]
        first = min(int(np.searchsorted(mass, top_p)), len(ranked) - 1)
        cut = ranked[first]
        others = mass[:-1][ranked[:-1] != ranked[1:]]  # where one more rank is another threshold
        margin = float(np.min(np.abs(others - top_p), initial=np.inf))
    if min_p > 0:
        cut = max(cut, np.float32(min(row.max, row.max + float(np.log(np.float64(min_p))))))
    return np.float32(cut), margin


@dataclass(frozen=True)
class Race:
    """Who is first among exponential clocks of given rates."""

    winner: int
    """-1 where every rate is zero."""
    margin: float
    """The least relative error e, where p may be off by e*doubt, that could change the winner."""


def race(
    p: NDArray[np.float64],
    doubt: NDArray[np.float64],
    e: NDArray[np.float32],
    q: NDArray[np.float64] | None = None,
    q_doubt: NDArray[np.float64] | None = None,
) -> Race:
    """argmax of max(p - q, 0)/E, the lowest id among equals; q is 0 where it is None. All [V].

    It draws from max(p - q, 0) renormalised; without q it is argmax log p - log E: the draw of the
    Gumbel trick.
    """
    left = p if q is None else p - q
    error = p * doubt + (0 if q is None or q_doubt is None else q * q_doubt)
    score = np.maximum(left, 0) / e
    winner = int(np.argmax(score))
    possible = p > 0
    if not score[winner] > 0:
        needed = np.divide(-left, error, out=np.full(len(p), np.inf), where=possible)
        return Race(-1, float(np.min(needed)))
    needed = (left[winner] / e[winner] - left / e) / (error[winner] / e[winner] + error / e)
    needed[~possible] = np.inf
    needed[winner] = np.inf if q is None else left[winner] / error[winner]
    return Race(winner, float(np.min(needed)))
