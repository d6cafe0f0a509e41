"""Where two texts of one target part, and whether rounding alone explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsi_native import _core

EXCUSED_GAP = 1e-3


@dataclass(frozen=True)
class Difference:
    """The first place where two texts differ.

    index: of the new token there. one, other: the ids, None where that text has ended.
    best: the two ids that the target prefers there, with their scores: logits, and where the
    texts were sampled, logits with the temperature's share of the noise added.
    """

    index: int
    one: int | None
    other: int | None
    best: tuple[tuple[int, float], tuple[int, float]]

    @property
    def gap(self) -> float:
        """By how much the target prefers the best id to the second."""
        return self.best[0][1] - self.best[1][1]

    @property
    def excused(self) -> bool:
        """Whether both texts took one of two ids that rounding can swap."""
        return self.gap < EXCUSED_GAP and {self.one, self.other} == {id_ for id_, _ in self.best}

    def __str__(self) -> str:
        (first, score), (second, lower) = self.best
        verdict = "excused" if self.excused else "not excused"
        return (
            f"new token {self.index}: {self.one} against {self.other}; the target has {first} at "
            f"{score:.5f} and {second} at {lower:.5f}, a gap of {self.gap:.2g}: {verdict}"
        )


def first_difference(
    target: Any,
    prompt: Any,
    one: Sequence[int],
    other: Sequence[int],
    *,
    temperature: float = 0.0,
    seed: int = 0,
) -> Difference | None:
    """Compares the new tokens of two runs; None where they are equal.

    target: anything an Engine takes as one. Its logits at the difference come from one forward over
    the whole prefix, in a new cache. prompt: ids [n]. temperature, seed: of the two runs, which
    were coupled, and had no cuts, penalties, bias or logits processor.
    Runs on the calling thread.
    """
    if list(one) == list(other):
        return None
    index = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    prefix = np.concatenate([np.asarray(prompt, np.int32), np.asarray(one[:index], np.int32)])
    scores = _logits(target, prefix).astype(np.float64)
    if temperature >= 1e-5:
        noise = _core.coupled_noise(seed, len(prefix), len(scores))
        scores += temperature * np.asarray(noise)
    first, second = np.argsort(-scores, kind="stable")[:2]
    return Difference(
        index,
        one[index] if index < len(one) else None,
        other[index] if index < len(other) else None,
        ((int(first), float(scores[first])), (int(second), float(scores[second]))),
    )


def _logits(target: Any, prefix: np.ndarray) -> np.ndarray:
    from dsi_native.models.load import load_model

    (server,) = load_model(target).servers(1)
    return np.asarray(server.forward(0, prefix, len(prefix), None))[0]


__all__ = ["EXCUSED_GAP", "Difference", "first_difference"]
