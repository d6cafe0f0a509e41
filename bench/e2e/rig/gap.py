"""How close the two choices were where two texts of one seed part: what floats may excuse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

EXCUSED_BELOW = 1e-3
_WORD = 2**32


@dataclass(frozen=True)
class Difference:
    """Where two outputs part. gap: between the scores of both choices, by a fresh prefill."""

    index: int
    expected: int | None
    got: int | None
    gap: float

    @property
    def excused(self) -> bool:
        return self.gap < EXCUSED_BELOW


def first_difference(
    model: Any,
    ids: np.ndarray,
    expected: list[int],
    got: list[int],
    temperature: float = 0.0,
    seed: int = 0,
) -> Difference | None:
    """None where both are equal. Costs one prefill of `model`, a module of transformers.

    The score of an id is its logit, or with a temperature logit / temperature plus the Gumbel noise
    that the coupled rule adds to it, times the temperature so that gaps compare with logits.
    """
    if expected == got:
        return None
    at = next(
        (i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b),
        min(len(expected), len(got)),
    )
    if at == min(len(expected), len(got)):
        longer = expected if len(expected) > len(got) else got
        return Difference(
            at, *((longer[at], None) if longer is expected else (None, longer[at])), math.inf
        )
    path = np.concatenate([ids, np.asarray(expected[:at], np.int32)]).astype(np.int64)
    with torch.inference_mode():
        row = model(torch.from_numpy(path)[None], logits_to_keep=1).logits[0, -1].float()
    scores = [
        float(row[token]) + temperature * (_gumbel(seed, len(path), token) if temperature else 0.0)
        for token in (expected[at], got[at])
    ]
    return Difference(at, expected[at], got[at], abs(scores[0] - scores[1]))


def _gumbel(seed: int, position: int, token: int) -> float:
    """The noise of csrc/core/rng.h under kCoupledNoise, to within float rounding."""
    call, word = token // 4096 * 1024 + token % 1024, token % 4096 // 1024
    counter = (call, 0, position % _WORD, position // _WORD)
    bits = _philox(counter, (seed % _WORD, seed // _WORD))[word]
    return -math.log(-math.log1p(-min((bits + 0.5) / _WORD, 1 - 2**-24)))


def _philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox4x32-10 (Salmon et al. 2011)."""
    a, b, c, d = counter
    low, high = key
    for _ in range(10):
        first, third = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (
            third // _WORD ^ b ^ low,
            third % _WORD,
            first // _WORD ^ d ^ high,
            first % _WORD,
        )
        low, high = (low + 0x9E3779B9) % _WORD, (high + 0xBB67AE85) % _WORD
    return a, b, c, d
