"""The law of an engine's text where the drafter has another vocabulary: all of it, end to end."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import dsi_native as dsi
from dsi_native.models.callable import CallableModel
from dsi_native.vocab.spelling import LONGEST
from dsi_native.vocab.vocabulary import Vocabulary
from hetero_models import HashedModel, state_of

TARGET = HashedModel((b"a", b"b", b"ab", b"ba", b"c"), salt=1, spread=1.2)
# Some tokens are common, one of them twice, and the drafter has rows that are padding.
DRAFTER = HashedModel((b"b", b"aa", b"a", b"b", b"ab", b"ca"), salt=2, width=8, spread=1.2)
FOREIGN = HashedModel((b"x", b"y"), salt=3)
PROMPT = [0, 1]
TOKENS = 3
REQUESTS = 1500


def rows_of(model: HashedModel) -> Callable[[], Callable[[np.ndarray, int], np.ndarray]]:
    def factory() -> Callable[[np.ndarray, int], np.ndarray]:
        context: list[int] = []

        def rows(tokens: np.ndarray, start: int) -> np.ndarray:
            context[start:] = [int(token) for token in tokens]
            ends = range(start + 1, len(context) + 1)
            return np.concatenate([model.logits(state_of(tuple(context[:n]))) for n in ends])

        return rows

    return factory


def model_of(model: HashedModel) -> CallableModel:
    vocabulary = Vocabulary("letters", "letters", model.tokens, speller=LONGEST)
    return CallableModel(
        factory=rows_of(model), vocab_size=model.width, vocabulary=vocabulary, name="letters"
    )


def joint_law(temperature: float) -> dict[tuple[int, ...], float]:
    """Of the target's next TOKENS tokens behind the prompt."""
    law = {}
    for text in itertools.product(range(TARGET.width), repeat=TOKENS):
        chance = 1.0
        for at in range(TOKENS):
            z = TARGET.logits(state_of((*PROMPT, *text[:at])))[0].astype(float) / temperature
            p = np.exp(z - z.max())
            chance *= p[text[at]] / p.sum()
        law[text] = chance
    return law


@pytest.mark.parametrize("drafter", [DRAFTER, FOREIGN], ids=["overlap", "foreign"])
@pytest.mark.parametrize("method", ["tli", "slem"])
@pytest.mark.parametrize("mode", ["si", "dsi"])
def test_rejection_keeps_the_joint_law(mode: str, method: str, drafter: HashedModel) -> None:
    temperature = 0.8
    seen: Counter[tuple[int, ...]] = Counter()
    with dsi.Engine(
        model_of(TARGET),
        model_of(drafter),
        mode=mode,
        sp=2,
        lookahead=2,
        method=method,
        break_even=False,
    ) as engine:
        outs = engine.generate(
            [PROMPT] * REQUESTS,
            max_new_tokens=TOKENS,
            temperature=temperature,
            verification="rejection",
            seed=5,
        )
    for out in outs:
        seen[tuple(out.tokens)] += 1
        assert out.statistics.drafter_error == ""
    law = joint_law(temperature)
    assert seen.keys() <= law.keys()
    chi_square = sum((seen[text] - REQUESTS * p) ** 2 / (REQUESTS * p) for text, p in law.items())
    freedom = len(law) - 1
    # The mean is the freedom, the deviation sqrt(2 * freedom); cells with few draws add to it.
    assert chi_square < freedom + 6 * (2 * freedom) ** 0.5
    if drafter is DRAFTER and mode == "si":
        judged = sum(out.statistics.accepted + out.statistics.rejected for out in outs)
        accepted = sum(out.statistics.accepted for out in outs)
        assert judged > REQUESTS // 2 and 0.05 < accepted / judged < 0.95
