"""Texts keep the target's law whatever the drafter's vocabulary: string-level exact match."""

from __future__ import annotations

import numpy as np
import pytest

from hetero_law import Side, counted, own_texts, target_law
from hetero_models import HashedModel, total_variation
from hetero_strings import Slem
from kernel_implementations import surprise
from slrs_toy import split

FILTERS = {"temperature": 0.8, "top_k": 4, "top_p": 0.9, "min_p": 0.05}
OTHERS = {"temperature": 1.4, "top_k": 3, "top_p": 0.95, "min_p": 0.1}
GREEDY = {"temperature": 0.0}


def pair(target: str, drafter: str, *settings: dict[str, float], padding: int = 0) -> Slem:
    """settings: the target's, then the drafter's."""
    models = [
        HashedModel(split(tokens), salt, len(split(tokens)) + padding)
        for salt, tokens in ((1, target), (2, drafter))
    ]
    of_target, of_drafter = (*settings, {}, {})[:2]
    return Slem(Side(models[0], of_target), Side(models[1], of_drafter), 3)


NO_MASS = HashedModel(split("a c b d"), 2, shift=np.array([-np.inf, 0, -np.inf, 0]))
FAR = HashedModel(split("a b ab e f"), 1, shift=np.array([0, 0, 0, 3.0, 3.0]))

CASES = {
    "partial overlap": pair("a b ab ba c", "b a bb abc"),
    "identical": pair("a b ab c", "a b ab c"),
    "drafter inside target": pair("a b ab ba bb", "b a"),
    "target inside drafter": pair("b a", "a b ab bba"),
    "one common token": pair("a b ab", "a bb ba"),
    "no common token, common text": pair("a b aab", "ab ba aa"),
    "no common text": pair("a b ab", "x y xy"),
    "q has no mass on what the target spells": Slem(
        Side(HashedModel(split("a b ab"), 1)), Side(NO_MASS), 3
    ),
    "duplicates on both sides": pair("a b a ab b", "b ab a b"),
    "p with large mass outside": Slem(Side(FAR), Side(HashedModel(split("a b bab"), 2)), 3),
    "filters on both": pair("a b ab ba aba", "a b bb abb", FILTERS, OTHERS),
    "greedy drafter": pair("a b ab ba", "b a bb", {}, GREEDY),
    "greedy target": pair("a b ab ba", "b a bb", GREEDY),
    "padded rows": pair("a b ab", "b a bb", padding=2),
}
NOTHING_STANDS = ("no common text", "q has no mass on what the target spells")

by_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@by_case
def test_exact_match_has_the_target_s_joint_law_exactly(case: Slem) -> None:
    assert total_variation(case.law(3), target_law(case.target, 3)) < 1e-12


@by_case
def test_the_text_is_the_target_s_own(case: Slem) -> None:
    n = 1000
    texts = case.texts(4, n)
    np.testing.assert_array_equal(texts.tokens, own_texts(case.target, 4, n))
    law = target_law(case.target, 2)
    assert surprise(counted(texts.tokens[:, :2], case.width), law / law.sum()) < 4


@pytest.mark.parametrize("name", CASES)
def test_as_many_first_candidates_stand_as_both_draw(name: str) -> None:
    """sum of p(t) psi(t): the target draws by itself."""
    case, n = CASES[name], 3000
    expected = case.acceptance()
    assert (expected > 0) == (name not in NOTHING_STANDS)
    stood = case.texts(1, n).acceptance
    assert abs(stood - expected) <= 4 * np.sqrt(expected * (1 - expected) / n) + 1e-9
