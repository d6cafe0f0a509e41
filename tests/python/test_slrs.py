"""String-level rejection sampling keeps the target's law: over all drafts, and drawn."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

import numpy as np
import pytest

from dsi_native.errors import InvalidArgument
from dsi_native.kernels import Tag
from dsi_native.reference.first_token import NO_TOKEN, LongestMatch, PairMerges, TokensBehind
from dsi_native.reference.laws import acceptance
from dsi_native.reference.slrs import draw_by_strings, text_by_strings
from dsi_native.reference.slrs_cost import Budget, Cost
from dsi_native.reference.slrs_psi import Psi, Stops
from hetero_models import total_variation
from kernel_implementations import follows, surprise
from slrs_toy import (
    STRING_MUTATIONS,
    TOYS,
    StringPair,
    drawn,
    mistaken_law,
    split,
    two_tokens,
)

by_toy = pytest.mark.parametrize("toy", TOYS.values(), ids=TOYS)
CONTEXTS = [(), (0,), (1,), (1, 0), (0, 2, 1)]

# Total variation of the token's law in the toy "subwords".
MEASURED = {"the drawn path alone": 0.135, "the canonical spelling alone": 0.081}

MERGED = PairMerges([(b"a", b"b"), (b"b", b"a"), (b"ab", b"a")], split("a b ab ba aba"))
INEXACT = TokensBehind(LongestMatch(split("a b ab aab ba")).encode, split("a b ab aab ba"))
OTHER_TOKENIZERS = {
    "merges": StringPair(MERGED, split("a b ab bb")),
    "one more token": StringPair(INEXACT, split("a b ab bb")),
}


@by_toy
@pytest.mark.parametrize("context", CONTEXTS[:3], ids=str)
def test_psi_is_the_sum_over_all_drafts(toy: StringPair, context: tuple[int, ...]) -> None:
    wanted, psi = toy.candidates_law(context), toy.psi(context)
    np.testing.assert_allclose([psi(t) for t in range(len(wanted))], wanted, rtol=1e-12)
    lost = sum(x.weight for x in toy.paths(context) if x.candidate == NO_TOKEN)
    assert wanted.sum() + lost == pytest.approx(1, abs=1e-12)


@by_toy
def test_the_token_has_the_target_s_law_exactly(toy: StringPair) -> None:
    for context in CONTEXTS:
        assert total_variation(toy.law(context), toy.p(context)) < 1e-12


def bounded(pair: StringPair, most_bytes: int) -> StringPair:
    """Where drafts might go on for ever, as their enumeration would."""
    object.__setattr__(pair, "stops", Stops(pair.first, pair.tokens, pair.ends, most_bytes))
    return pair


@pytest.mark.parametrize("name", [*TOYS, *OTHER_TOKENIZERS])
def test_draws_have_the_target_s_law(name: str) -> None:
    """Also with tokenizers whose answer is not exact, and drafts that are cut at 6 bytes."""
    toy = (TOYS | OTHER_TOKENIZERS)[name]
    if name in OTHER_TOKENIZERS:
        toy = bounded(toy, 6)
    n = 500
    found, p = drawn(toy, n), toy.p()
    assert follows(np.array([x.token for x in found]), p)
    psi = toy.psi()
    expected = acceptance(p, np.array([psi(t) for t in range(len(p))]))
    assert 0.1 < expected < 0.95
    stood = np.mean([x.accepted for x in found])
    assert abs(stood - expected) < 4 * np.sqrt(expected * (1 - expected) / n)
    # A rejection is as rare as the residual is small: one trial per position, whatever the laws.
    trials = np.array([x.trials for x in found])
    assert abs(trials.mean() - 1) < 4 * trials.std() / np.sqrt(n)


def test_two_tokens_have_the_target_s_joint_law() -> None:
    toy, n = TOYS["subwords"], 500
    p, psi = lru_cache(None)(toy.p), lru_cache(None)(toy.psi)
    texts = [text_by_strings(p, psi, 2, seed, 40) for seed in range(n)]
    counts = np.zeros((5, 5))
    np.add.at(counts, tuple(np.array([[x.token for x in text] for text in texts]).T), 1)
    wanted = np.array([p(())[t] * p((t,)) for t in range(5)])
    assert surprise(counts, wanted / wanted.sum()) < 4
    stood = np.array([[x.accepted for x in text] for text in texts])
    assert 0.1 < stood[:, 0].mean() < 0.9
    # The second token's fate does not depend on the first one's.
    assert abs(np.corrcoef(stood.T)[0, 1]) < 4 / np.sqrt(n)


@by_toy
def test_it_accepts_never_less_than_exact_match(toy: StringPair) -> None:
    for context in CONTEXTS:
        p, psi = toy.p(context), toy.candidates_law(context)
        exact_match = toy.exact_match_acceptance(context)
        assert exact_match == pytest.approx(np.sum(p * psi))
        assert toy.acceptance(context) >= exact_match
        assert toy.acceptance(context) > exact_match + 0.02


def test_psi_is_asked_for_drawn_tokens_only() -> None:
    toy, asked = TOYS["subwords"], Counter()

    class Counting(Psi):
        def __call__(self, t: int) -> float:
            asked[t] += 1
            return super().__call__(t)

    for seed in range(200):
        asked.clear()
        found = draw_by_strings(toy.p(), toy.psi(kind=Counting), seed, 4)
        if found.accepted:
            assert set(asked) == {found.drafted.candidate}
        assert len(asked) <= 1 + found.trials


def test_the_drafter_is_asked_once_for_each_prefix() -> None:
    toy = TOYS["subwords"]
    calls = Counter()

    def law(drafts: tuple[int, ...]) -> np.ndarray:
        calls[drafts] += 1
        return toy.q((), drafts)

    psi = Psi(toy.stops, law)
    for t in range(5):
        psi(t)
    draw_by_strings(toy.p(), psi, 3, 3)
    assert set(calls.values()) == {1}
    assert psi.forwards == len(calls)
    inner = {path.drafts[:k] for path in toy.paths() for k in range(len(path.drafts))}
    assert set(calls) == inner


@by_toy
def test_the_predicted_cost_is_that_of_the_enumeration(toy: StringPair) -> None:
    psi = toy.psi()
    for t in range(len(toy.first.tokens)):
        paths = [path for path in toy.paths() if path.candidate == t]
        inner = {path.drafts[:k] for path in paths for k in range(len(path.drafts))}
        assert psi.cost(t) == Cost(len(paths), len(inner))


def test_beyond_the_budget_it_refuses_before_any_forward() -> None:
    letters, tokens = split("a b ab aab aaaaaaaab"), split("a b aa aaaa")
    toy = StringPair(LongestMatch(letters), tokens, budget=Budget(50, 1000))
    psi = toy.psi()
    count = sum(1 for path in toy.paths() if path.candidate == 4)
    assert count == 55
    named = "token 4 (b'aaaaaaaab') takes at least 55 terms and 127 forwards of the drafter"
    with pytest.raises(InvalidArgument, match=re.escape(named)):
        psi(4)
    assert psi.forwards == 0
    assert psi(3) > 0
    few_forwards = StringPair(toy.first, tokens, budget=Budget(10**6, 3))
    with pytest.raises(InvalidArgument, match=r"the budget is 1,000,000 and 3"):
        few_forwards.psi()(4)
    # Drawing asks for it too: nobody can go on without.
    sure = np.eye(5)[4]
    with pytest.raises(InvalidArgument, match=r"token 0 .* at least 65 terms"):
        draw_by_strings(sure, toy.psi(), 0, 0)


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    toy = TOYS["subwords"]
    p = toy.p()
    alone = [draw_by_strings(p, toy.psi(), seed, 7) for seed in range(50)]
    psi = toy.psi()
    backwards = [draw_by_strings(p, psi, seed, 7) for seed in reversed(range(50))]
    assert alone == backwards[::-1]
    assert alone != [draw_by_strings(p, psi, seed, 8) for seed in range(50)]


def test_no_two_purposes_share_their_random_numbers() -> None:
    assert len(Tag.__members__) == len(set(Tag)) == 8
    assert max(Tag) < 2**8


def test_equal_laws_are_never_rejected() -> None:
    toy = TOYS["subwords"]
    psi = toy.psi()
    p = np.array([psi(t) for t in range(5)])
    assert all(draw_by_strings(p, psi, seed, 0).accepted for seed in range(300))


def test_a_law_that_sums_to_more_than_one_ends_with_a_token_of_p() -> None:
    """A drafter's fault: no residual is left."""
    toy = TOYS["bytes"]
    psi = Psi(toy.stops, lambda drafts: 9 * toy.q((), drafts))
    found = [draw_by_strings(toy.p(), psi, seed, 0) for seed in range(50)]
    assert {x.accepted for x in found} == {True, False}
    assert all(toy.p()[x.token] > 0 for x in found)


@pytest.mark.parametrize("name", MEASURED)
def test_shortcuts_of_psi_are_biased(name: str) -> None:
    kind, measured = STRING_MUTATIONS[name], MEASURED[name]
    toy = TOYS["subwords"]
    law = mistaken_law(toy, kind)
    assert total_variation(law, toy.p()) == pytest.approx(measured, abs=5e-4)
    tokens = np.array([x.token for x in drawn(toy, 800, kind)])
    assert follows(tokens, law / law.sum())
    assert not follows(tokens, toy.p())


def test_text_left_behind_a_token_is_no_draw_from_q() -> None:
    """The drafter knows only text here, so nothing but the reuse is wrong."""
    toy = TOYS["bytes"]
    wanted = np.array([toy.p()[t] * toy.p((t,)) for t in range(6)])
    assert total_variation(two_tokens(toy, reuse=False), wanted) < 1e-12
    assert total_variation(two_tokens(toy, reuse=True), wanted) == pytest.approx(0.068, abs=5e-4)
