"""The known mistakes of token-level drafting change the law visibly, and the tests see it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from dsi_native import kernels, reference
from dsi_native.errors import InvalidArgument
from dsi_native.reference.laws import acceptance
from dsi_native.reference.rules import judge_rejection, propose_from_union
from hetero_law import PROMPT, counted, target_law
from hetero_models import total_variation
from hetero_mutations import MUTATIONS, Union, toy
from kernel_implementations import follows, surprise

TOKENS = 3
REQUESTS = 20_000

# Total variation of the joint law of three tokens in the toy.
MEASURED = {
    "q permuted": 0.485,
    "target masked": 0.409,
    "greedy draft with soft q": 0.675,
    "wrong temperature reported": 0.163,
    "out-of-vocabulary drawn from p": 0.185,
    "last duplicate wins": 0.255,
}


@cache
def wanted() -> np.ndarray:
    return target_law(toy().target, TOKENS)


def test_every_known_mistake_is_here() -> None:
    assert MEASURED.keys() == MUTATIONS.keys()


def test_without_a_mistake_the_toy_keeps_the_law() -> None:
    assert total_variation(toy().law(TOKENS), wanted()) < 1e-12
    texts = toy().texts(TOKENS, REQUESTS).tokens
    assert surprise(counted(texts, 6), wanted() / wanted().sum()) < 4


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_is_seen_in_the_law_and_in_the_draws(name: str) -> None:
    mistaken = toy(MUTATIONS[name])
    law = mistaken.law(TOKENS)
    assert total_variation(law, wanted()) == pytest.approx(MEASURED[name], abs=5e-4)
    counts = counted(mistaken.texts(TOKENS, REQUESTS).tokens, 6)
    assert surprise(counts, wanted() / wanted().sum()) > 20
    # The draws are those of this very mistake.
    assert surprise(counts, law / law.sum()) < 4


def test_a_high_acceptance_rate_proves_nothing() -> None:
    right = toy().acceptance()
    assert toy(MUTATIONS["q permuted"]).acceptance() > 0.95 > right + 0.3


def test_two_ids_of_one_token_are_no_map() -> None:
    """Where "last duplicate wins" would begin: the kernels refuse it."""
    pair = toy()
    twice = pair.d2t.copy()
    first, last = pair.drafter.model.tokens.index(b"a"), 7
    twice[last] = twice[first]
    with pytest.raises(InvalidArgument, match="distinct ids"):
        kernels.sample(np.zeros((1, 9), np.float32), seed=0, position=0, d2t=twice)


def test_union_drafting_keeps_the_law_exactly() -> None:
    assert total_variation(toy(Union).law(TOKENS), wanted()) < 1e-12


def test_union_drafting_draws_the_target_s_law() -> None:
    """judge_rejection() on drafts of the whole vocabulary, one token of 2000 seeds."""
    pair, n = toy(Union), 2000
    row, own = pair.target.row(()), pair.drafter.row(())
    where = {"seed": np.arange(n, dtype=np.uint64), "position": np.full(n, PROMPT)}
    logits = np.tile(own.z, (n, 1))
    drafts = kernels.sample(logits, **where, tag="draft").token
    judged = [
        judge_rejection(row, propose_from_union(int(d), own, 6, pair.d2t, pair.t2d), i, PROMPT)
        for i, d in enumerate(drafts)
    ]
    assert follows(np.array([x.token for x in judged]), row.p)
    stood, expected = np.mean([x.accepted for x in judged]), pair.acceptance()
    assert abs(stood - expected) < 4 * np.sqrt(expected * (1 - expected) / n)


def test_the_intersection_accepts_never_less_than_the_union() -> None:
    better = 0
    rng = np.random.default_rng(5)
    pair, union = toy(), toy(Union)
    for prefix in [(), *(tuple(rng.integers(0, 6, 3)) for _ in range(100))]:
        assert pair.acceptance(prefix) >= union.acceptance(prefix) - 1e-12
        better += pair.acceptance(prefix) > union.acceptance(prefix) + 0.01
        p, q = pair.target.row(prefix).p, pair.drafter.row(prefix, pair.d2t).p
        on_target = np.where(pair.t2d >= 0, q[pair.t2d], 0)
        assert pair.acceptance(prefix) == pytest.approx(acceptance(p, on_target))
    assert better > 80


def test_the_reference_draws_as_the_kernels_do() -> None:
    """One round of the toy, token for token."""
    pair, n = toy(), 150
    states = np.arange(n, dtype=np.uint64) * 977
    where = {"seed": np.arange(n, dtype=np.uint64), "position": np.full(n, PROMPT)}
    told, behind = pair.proposed(states, where["seed"], where["position"], "draft")
    given = pair.judged(behind, told, **where, mode="rejection")
    alike = reference.verify(
        target_logits=pair.target_logits(behind.ravel()).reshape(n, 3, 6),
        d2t=pair.d2t,
        t2d=pair.t2d,
        **told,
        **where,
        mode="rejection",
    )
    np.testing.assert_array_equal(given.tokens, alike.tokens)
