"""The laws of the reference, enumerated: over all coins, over strata of the clocks, over ids."""

from __future__ import annotations

import numpy as np
import pytest

from dsi_native import reference
from dsi_native.reference.rows import process, race
from kernel_implementations import REFERENCE, softmax, surprise, tiled

P = np.array([2.0, 0.5, 0.0, -1.0, 1.0], np.float32)
Q = np.array([0.0, 1.5, 0.3, -0.5, -2.0], np.float32)


def coins() -> np.ndarray:
    return reference.odd_grid((np.arange(2**23, dtype=np.uint32) << 9).astype(np.uint32))


def test_all_coins_accept_as_often_as_the_rule_says() -> None:
    u = coins().astype(float)
    for p, q in ((0.3, 0.7), (0.7, 0.3), (0.5, 0.5), (1e-6, 1.0), (0.0, 0.4), (1.0, 1.0)):
        share = np.mean(u * q < p)
        assert share == pytest.approx(min(1.0, p / q), abs=2.0**-23)
        assert (share == 0) == (p == 0)
        assert (share == 1) == (p >= q)


def test_rejection_over_all_coins_leaves_the_target_s_law() -> None:
    """sum over d of q(d) * (d where accepted, else the residual) = p, up to the coin's grid."""
    p, q = softmax(P), softmax(Q)
    u = coins().astype(float)
    accepted = np.array([np.mean(u * q[d] < p[d]) for d in range(len(p))])
    residual = np.maximum(p - q, 0)
    law = q * accepted + np.sum(q * (1 - accepted)) * residual / residual.sum()
    np.testing.assert_allclose(law, p, atol=2.0**-22)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.01, 1e-4])
def test_two_clocks_ring_in_the_proportion_of_their_rates(share: float) -> None:
    """P(E0/p0 < E1/p1) over 2^16 x 2^16 strata of the two words."""
    strata = np.arange(2**16, dtype=np.uint64) * 2**16 + 2**15
    e = reference.exponential(strata.astype(np.uint32)).astype(float)  # ascending
    first = 1 - np.searchsorted(e / (1 - share), e / share, side="right") / len(e)
    assert np.mean(first) == pytest.approx(share, rel=1e-3)


def test_a_race_without_rates_has_no_winner() -> None:
    p, e = np.array([0.2, 0.3, 0.5]), np.ones(3, np.float32)
    assert race(p, np.ones(3), e, p.copy(), np.ones(3)).winner == -1
    assert race(np.zeros(3), np.ones(3), e).winner == -1
    assert race(p, np.ones(3), e, np.array([0.3, 0.2, 0.5])).winner == 1
    assert race(np.full(3, 1 / 3), np.ones(3), e).winner == 0  # a tie


def test_margin_is_the_least_error_that_changes_a_race() -> None:
    rng = np.random.default_rng(8)
    for _ in range(200):
        p, q = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
        e, one = rng.exponential(size=4).astype(np.float32), np.ones(4)
        found = race(p, one, e, q, one)
        for share, changed in ((0.999, False), (1.001, True)):
            worst = share * found.margin
            lowered = p * (1 + worst) - q * (1 - worst)
            lowered[found.winner] = (p * (1 - worst) - q * (1 + worst))[found.winner]
            assert (race(np.maximum(lowered, 0), one, e).winner != found.winner) == changed


def test_coupled_drafts_stand_as_often_as_gumbel_coupling_lets_them() -> None:
    """P(target and drafter both draw v) = 1 / sum over w of max(p_w/p_v, q_w/q_v)."""
    n = 1200
    p, q = softmax(P), softmax(Q)
    where = {"seed": np.arange(n, dtype=np.uint64), "position": np.full(n, 17)}
    drafts = REFERENCE.sample(logits=tiled(Q, n), **where, tag="coupled").token
    result = REFERENCE.verify(
        target_logits=tiled([P, P], n), draft_ids=drafts[:, None], **where, mode="coupled"
    )
    both = np.array([1 / np.sum(np.maximum(p / p[v], q / q[v])) for v in range(len(p))])
    stood = result.num_accepted == 1
    counts = np.bincount(drafts[stood], minlength=len(p))
    assert surprise([*counts, n - stood.sum()], [*both, 1 - both.sum()]) < 4
    assert surprise(np.bincount(result.tokens[:, 0], minlength=len(p)), p) < 4
    np.testing.assert_array_equal(stood, drafts == result.tokens[:, 0])


def test_rows_are_edited_scaled_cut_and_normalised_in_this_order() -> None:
    from kernel_degenerate import edits

    logits = np.array([1.0, -2.0, 3.0, 0.5], np.float32)
    changes = edits((0, 0, 0, 1.0), (0, 0, 1, 2.0), (0, 1, 1, 2.0), (0, 3, 2, -np.inf), of=1)
    row = process(logits, 0.5, -4.0, changes)
    np.testing.assert_array_equal(row.z, np.array([2.0, -8.0, 6.0, -np.inf], np.float32))
    assert row.kept.tolist() == [True, False, True, False]
    np.testing.assert_allclose(row.p, [1 / (1 + np.e**4), 0, 1 / (1 + np.e**-4), 0])
    assert row.lse == pytest.approx(6 + np.log1p(np.e**-4))


def test_the_threshold_is_top_k_then_top_p_of_the_rest_then_min_p() -> None:
    logits = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], np.float32))

    def kept(**settings: float) -> int:
        return int(np.sum(logits >= reference.cut(logits, **settings)))

    assert [kept(top_k=k) for k in (0, 1, 2, 4, 9)] == [4, 1, 2, 4, 4]
    assert [kept(top_p=x) for x in (1.0, 0.95, 0.85, 0.69, 0.41, 0.39, 0.0)] == [
        4,
        4,
        3,
        2,
        2,
        1,
        1,
    ]
    assert [kept(min_p=x) for x in (0.0, 0.2, 0.3, 0.6, 0.8, 1.0)] == [4, 4, 3, 2, 1, 1]
    assert kept(top_k=2, top_p=0.56) == 1  # 4/7 of what top_k leaves
    assert kept(top_k=3, min_p=0.6) == 2
    assert reference.cut(logits)[0] == reference.cut(logits, temperature=0.0, top_k=1)[0] == -np.inf
    ties = np.array([[1.0, 2.0, 2.0, 2.0, 0.0]], np.float32)
    assert np.sum(ties >= reference.cut(ties, top_k=1)) == 3
