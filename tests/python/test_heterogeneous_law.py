"""Texts keep the target's law whatever the drafter's vocabulary: token-level intersection."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hetero_law import Side, Tli, counted, own_texts, target_law
from hetero_models import HashedModel, total_variation
from kernel_implementations import surprise

TOKENS = 3
REQUESTS = 12_000

Settings = dict[str, float]


def model(tokens: str, salt: int, width: int = 0, **shifts: float) -> HashedModel:
    """A token for each letter; letters named in `shifts` are that much likelier everywhere."""
    shift = np.zeros(width or len(tokens))
    for letter, by in shifts.items():
        shift[[i for i, t in enumerate(tokens) if t == letter]] = by
    return HashedModel(tuple(t.encode() for t in tokens), salt, width, shift=shift)


def pair(target: str, drafter: str, drafts: int = 2, *settings: Settings) -> Tli:
    """settings: the target's, then the drafter's."""
    of_target, of_drafter = (*settings, {}, {})[:2]
    return Tli(Side(model(target, 1), of_target), Side(model(drafter, 2), of_drafter), drafts)


NOWHERE = dict.fromkeys("abc", -np.inf)
FAR = dict.fromkeys("ef", 3.0)
FILTERS = {"temperature": 0.8, "top_k": 4, "top_p": 0.9, "min_p": 0.05}
OTHERS = {"temperature": 1.4, "top_k": 3, "top_p": 0.95, "min_p": 0.1}
GREEDY = {"temperature": 0.0}

CASES = {
    "partial overlap": pair("abcdef", "dxcyaz"),
    "identical": pair("abcde", "abcde"),
    "identical, one draft": pair("abcde", "abcde", 1),
    "drafter inside target": pair("abcdef", "fbd"),
    "target inside drafter": pair("abcd", "xaycbzd"),
    "one common token": pair("abcd", "xcyz"),
    "no common token": pair("abcd", "xyz"),
    "q has no mass on the intersection": Tli(
        Side(model("abcde", 1)), Side(model("axbyc", 2, **NOWHERE))
    ),
    "q has almost none": Tli(Side(model("abcde", 1)), Side(model("axbyc", 2, x=25.0))),
    "duplicates in the drafter": pair("abcd", "axbacbx"),
    "duplicates in the target": pair("abacdb", "dcbay"),
    "duplicates on both sides": pair("abacdb", "bcxbac"),
    "p with large mass outside": Tli(Side(model("abcdef", 1, **FAR)), Side(model("dxcyab", 2))),
    "filters on the target": pair("abcdef", "dxcyab", 2, FILTERS),
    "filters on the drafter": pair("abcdef", "dxcyab", 2, {}, OTHERS),
    "filters on both": pair("abcdef", "dxcyab", 2, FILTERS, OTHERS),
    "greedy drafter": pair("abcde", "dxcyb", 2, {}, GREEDY),
    "greedy target": pair("abcde", "dxcyb", 2, GREEDY),
    "greedy on both sides": pair("acdef", "exdcya", 2, GREEDY, GREEDY),
    "padded rows": Tli(Side(model("abcd", 1, 7)), Side(model("dxcb", 2, 6))),
    "padded rows of the same vocabulary": Tli(Side(model("abcd", 1, 7)), Side(model("abcd", 2, 5))),
}

NOTHING_STANDS = ("no common token", "q has no mass on the intersection")

by_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@cache
def wanted(case: Tli) -> np.ndarray:
    return target_law(case.target, TOKENS)


@by_case
def test_rejection_has_the_target_s_joint_law_exactly(case: Tli) -> None:
    assert total_variation(case.law(TOKENS), wanted(case)) < 1e-12


@by_case
def test_rejection_draws_that_law(case: Tli) -> None:
    texts = case.texts(TOKENS, REQUESTS)
    law = wanted(case)
    counts = counted(texts.tokens, case.target.model.width)
    assert surprise(counts, law / law.sum()) < 4
    # E|share - law| <= sqrt(law / n) for each cell.
    assert total_variation(counts / REQUESTS, law) < 0.6 * np.sqrt(law / REQUESTS).sum() + 1e-3


@pytest.mark.parametrize("name", CASES)
def test_as_many_drafts_stand_as_the_laws_overlap(name: str) -> None:
    """sum of min(p, q'), for the first draft of 12,000 texts."""
    one = Tli(CASES[name].target, CASES[name].drafter, 1)
    expected = one.acceptance()
    assert (expected > 0) == (name not in NOTHING_STANDS)
    stood = one.texts(1, REQUESTS).acceptance
    assert abs(stood - expected) <= 4 * np.sqrt(expected * (1 - expected) / REQUESTS) + 1e-9


@pytest.mark.parametrize("mode", ["rejection", "coupled"])
def test_the_order_of_the_drafter_s_ids_changes_no_draw(mode: str) -> None:
    """Of get_vocab(), say, which gives another order in each process."""
    texts = []
    for order in range(5):
        letters = np.random.default_rng(order).permutation(list("dxcyaz"))
        made = pair("abcdef", "".join(letters), 2, FILTERS, OTHERS)
        texts.append(made.texts(TOKENS, 1500, mode).tokens)
    assert all(np.array_equal(texts[0], other) for other in texts[1:])


@by_case
def test_coupled_text_is_the_target_s_own(case: Tli) -> None:
    texts = case.texts(4, 2000, "coupled")
    np.testing.assert_array_equal(texts.tokens, own_texts(case.target, 4, 2000))
