"""Faults that verification kernels have had in the wild, one test each, by implementation.

Siblings of a tree cannot be asked for: see test_kernels_arguments.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

from dsi_native import kernels, reference
from dsi_native.kernels import Status, Tag
from kernel_cases import DTYPES, rounded
from kernel_implementations import (
    IMPLEMENTATIONS,
    Array,
    Implementation,
    follows,
    softmax,
    surprise,
    tiled,
)

INF, NAN = np.inf, np.nan
P = np.array([2.0, 0.5, 0.0, -1.0, 1.0, -0.5], np.float32)
Q = np.array([0.0, 1.5, 0.3, -0.5, -1.0, 0.8], np.float32)

pytestmark = pytest.mark.parametrize("by", IMPLEMENTATIONS, ids=lambda x: x.name)


def judge(
    by: Implementation,
    target: Any,
    draft_ids: Any,
    draft_logits: Any = None,
    first_seed: int = 0,
    mode: str = "rejection",
    **others: Any,
) -> kernels.Verified:
    """by.draws requests with rows `target` [K + 1, V] and the same or own drafts [K] or [n, K]."""
    n = by.draws
    if draft_logits is not None:
        others["draft_logits"] = tiled(draft_logits, n)
    return by.verify(
        target_logits=tiled(target, n),
        draft_ids=np.ascontiguousarray(
            np.broadcast_to(np.int32(draft_ids), (n, np.shape(draft_ids)[-1]))
        ),
        seed=seeds(n, first_seed),
        position=np.full(n, 3),
        mode=mode,
        **others,
    )


def seeds(n: int, first: int = 0) -> Array:
    return np.arange(first, first + n, dtype=np.uint64)


def coins(n: int) -> Array:
    """What judge()'s requests toss for their first row."""
    key = np.zeros((n, 2), np.uint64)
    key[:, 0] = np.arange(n)
    return reference.odd_grid(reference.philox4x32_10([0, Tag.ACCEPT, 3, 0], key)[:, 0])


def drafted(
    by: Implementation, logits: Array, first_seed: int = 0, **others: Any
) -> kernels.Sampled:
    """The drafts of judge()'s requests for their first row."""
    n = by.draws
    where = {"seed": seeds(n, first_seed), "position": np.full(n, 3)}
    return by.sample(logits=tiled(logits, n), tag="draft", **where, **others)


def test_all_nan_target_row_gives_no_id(by: Implementation) -> None:
    """An argmax over NaN gives the id V."""
    for mode in ("coupled", "rejection"):
        result = judge(by, [[NAN] * 6, P], [1], mode=mode)
        assert np.all(result.tokens == -1)
        assert np.all(result.num_accepted == 0)
        assert np.all(result.status == Status.NAN | Status.EMPTY)


def test_all_nan_draft_row_does_not_emit_the_rejected_token(by: Implementation) -> None:
    """It says nothing about the draft, so the token is one of p: also the draft, as often as p."""
    for row in ([NAN] * 6, [-INF] * 6):
        result = judge(by, [P, P], [1], [row])
        assert np.all(result.num_accepted == 0)
        assert np.all(result.status == Status.Q_ZERO)
        assert follows(result.tokens[:, 0], softmax(P))


def test_zero_residual_draws_from_p(by: Implementation) -> None:
    """Not token 0, nor V - 1, nor stale memory. q is doubled by a wrong draft_lse here."""
    lse = np.log(np.exp(P.astype(float)).sum()) - np.log(2)
    result = judge(by, [P, P], [1], [P], draft_lse=np.full((by.draws, 1), lse, np.float32))
    fell = result.num_accepted == 0
    assert abs(np.mean(fell) - 0.5) < 4 * 0.5 / by.draws**0.5
    assert np.all(result.status[fell] == Status.ZERO_RESIDUAL)
    assert np.all(result.status[~fell] == 0)
    assert follows(result.tokens[fell, 0], softmax(P))


def test_zero_probability_is_never_accepted(by: Implementation) -> None:
    """A coin u == 0 with `<=` accepts p = 0."""
    impossible = P.copy()
    impossible[1] = -INF
    for arguments in ({}, {"draft_logits": [Q]}):
        assert np.all(judge(by, [impossible, P], [1], **arguments).num_accepted == 0)
    cut = np.full((by.draws, 2), P[1] + 0.1, np.float32)
    result = judge(by, [P, P], [1], [Q], cut=cut)
    assert np.all(result.num_accepted == 0)
    assert np.all(result.tokens[:, 0] != 1)


def test_accepted_exactly_where_the_coin_says(by: Implementation) -> None:
    p, q = softmax(P), softmax(Q)
    u = coins(by.draws).astype(float)
    for d in (0, 1, 3):
        clear = np.abs(u * q[d] - p[d]) > 1e-5 * p[d]
        stood = judge(by, [P, P], [d], [Q]).num_accepted == 1
        np.testing.assert_array_equal(stood[clear], (u * q[d] < p[d])[clear])
        stood = judge(by, [P, P], [d]).num_accepted == 1
        np.testing.assert_array_equal(stood[clear], (u < p[d])[clear])


def test_the_coin_is_not_reused_for_the_residual(by: Implementation) -> None:
    """Given a rejection, the token is independent of the coin that rejected."""
    p, q = softmax(P), softmax(Q)
    d = 1
    result = judge(by, [P, P], [d], [Q])
    fell = result.num_accepted == 0
    u = coins(by.draws)
    halves = (u[fell] > np.median(u[fell])).astype(int)
    residual = np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()
    for half in (0, 1):
        assert follows(result.tokens[fell, 0][halves == half], residual)


def test_draft_and_residual_share_no_noise(by: Implementation) -> None:
    """(draft, accepted, token) has the product law that the rule gives it."""
    p, q = softmax(P), softmax(Q)
    drafts = drafted(by, Q).token
    result = judge(by, [P, P], drafts[:, None], [Q])
    counts = np.zeros((len(p), 1 + len(p)))
    stood = result.num_accepted == 1
    np.add.at(counts, (drafts, np.where(stood, 0, 1 + result.tokens[:, 0])), 1)
    stands = np.minimum(1, p / q)
    residual = np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()
    law = q[:, None] * np.column_stack([stands, (1 - stands)[:, None] * residual])
    assert surprise(counts, law) < 4
    assert follows(result.tokens[:, 0], p)


def test_a_corrected_token_knows_nothing_of_the_race_that_the_draft_won(by: Implementation) -> None:
    """Half and half. With the draft's noise it would be 1 : 2, since id 0 has just lost to it."""
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.5, 1e-9, 0.5])
    fallen = []
    for first in (0, by.draws, 2 * by.draws):
        drafts = drafted(by, np.log(q), first).token[:, None]
        result = judge(by, np.log([p, p]), drafts, np.log([q]), first)
        fallen.append(result.tokens[result.num_accepted == 0, 0])
    assert follows(np.concatenate(fallen), [0.5, 0.5, 0.0])


@pytest.mark.parametrize("mode", ["coupled", "rejection"])
def test_randoms_belong_to_the_position(by: Implementation, mode: str) -> None:
    """A window in two parts gives the same tokens as in one."""
    n = by.draws
    whole = judge(by, [P, Q, P], [[0, 4]], [Q, P], mode=mode)
    stood = whole.num_accepted >= 1
    parts = [
        by.verify(
            target_logits=tiled([Q, P], n), draft_ids=np.full((n, 1), 4, np.int32),
            draft_logits=tiled([P], n), seed=seeds(n), position=np.full(n, 4), mode=mode,
        ),
        by.verify(
            target_logits=tiled([P], n), draft_ids=np.zeros((n, 0), np.int32),
            seed=seeds(n), position=np.full(n, 5), mode=mode,
        ),
    ]  # fmt: skip
    np.testing.assert_array_equal(whole.tokens[stood, 1], parts[0].tokens[stood, 0])
    both = whole.num_accepted == 2
    assert both.sum() > n / 50
    np.testing.assert_array_equal(both[stood], parts[0].num_accepted[stood] == 1)
    np.testing.assert_array_equal(whole.tokens[both, 2], parts[1].tokens[both, 0])


@pytest.mark.parametrize("mode", ["coupled", "rejection"])
def test_randoms_belong_to_the_request_and_not_to_its_row(by: Implementation, mode: str) -> None:
    rng = np.random.default_rng(5)
    n, width = 6, 300
    batch = {
        "target_logits": rng.normal(size=(n, 3, width)).astype(np.float32),
        "draft_ids": rng.integers(0, width, (n, 2)).astype(np.int32),
        "draft_logits": rng.normal(size=(n, 2, width)).astype(np.float32),
        "seed": rng.integers(0, 2**64, n, np.uint64),
        "position": rng.integers(0, 1000, n),
        "temperature": np.linspace(0, 1, n).astype(np.float32),
    }
    together = by.verify(**batch, mode=mode)
    order = rng.permutation(n)
    shuffled = by.verify(**{k: v[order] for k, v in batch.items()}, mode=mode)
    np.testing.assert_array_equal(shuffled.tokens, together.tokens[order])
    for b in range(n):
        alone = by.verify(**{k: v[b : b + 1] for k, v in batch.items()}, mode=mode)
        np.testing.assert_array_equal(alone.tokens[0], together.tokens[b])


@pytest.mark.parametrize("dtype", DTYPES)
def test_q_is_not_recomputed_in_another_precision(by: Implementation, dtype: str) -> None:
    """A drafter equal to its target is always right, with its own sum or without."""
    logits = rounded(np.random.default_rng(2).normal(0, 3, 5000), dtype)
    n = by.draws // 20
    where = {"seed": seeds(n), "position": np.full(n, 8), "dtype": dtype}
    drafts = by.sample(logits=tiled(logits, n), tag="draft", temperature=0.7, **where)
    for lse in (None, drafts.lse[:, None].copy()):
        result = by.verify(
            target_logits=tiled([logits, logits], n),
            draft_ids=drafts.token[:, None].copy(),
            draft_logits=tiled([logits], n),
            draft_lse=lse,
            temperature=0.7,
            mode="rejection",
            **where,
        )
        # fp32 sums may differ in their last bits, so all but the coins next to 1 must agree
        assert np.mean(result.num_accepted == 1) == 1.0


def test_q_is_taken_after_top_k(by: Implementation) -> None:
    """q before the cut is too small, and accepts too often."""
    both = drafted(by, Q, top_k=3)
    drafts, cut = both.token[:, None].copy(), both.cut[:, None].copy()
    kept = np.sort(Q)[-3] <= Q
    p, q = softmax(P), np.where(kept, softmax(Q), 0)
    q /= q.sum()
    result = judge(by, [P, P], drafts, [Q], draft_cut=cut)
    assert follows(result.tokens[:, 0], p)
    stands = np.sum(np.minimum(p, q))
    assert surprise([result.num_accepted.sum(), (1 - result.num_accepted).sum()],
                    [stands, 1 - stands]) < 4  # fmt: skip
    given = judge(by, [P, P], drafts, [Q], draft_cut=cut, draft_lse=both.lse[:, None].copy())
    np.testing.assert_array_equal(given.tokens, result.tokens)


def test_a_greedy_draft_is_a_point_mass(by: Implementation) -> None:
    """Not the softmax of its logits: it stands with p(d), and p keeps its law."""
    p, d = softmax(P), int(np.argmax(Q))
    greedy = np.zeros(by.draws, np.float32)
    for arguments in ({"draft_logits": [Q], "draft_temperature": greedy}, {}):
        result = judge(by, [P, P], [d], **arguments)
        assert surprise(np.bincount(result.num_accepted, minlength=2), [1 - p[d], p[d]]) < 4
        assert follows(result.tokens[:, 0], p)
        assert np.all(result.tokens[result.num_accepted == 0, 0] != d)


@pytest.mark.parametrize("mode", ["coupled", "rejection"])
def test_padding_is_drawn_only_as_the_target_itself_would(by: Implementation, mode: str) -> None:
    """Rows wider than the tokenizer; the last two ids are padding."""
    padded, wild = P.copy(), Q.copy()
    padded[4:], wild[4:] = -INF, 9.0
    assert follows(judge(by, [padded, P], [5], [wild], mode=mode).tokens[:, 0], softmax(padded))
    drafts = drafted(by, wild).token[:, None].copy()
    assert follows(judge(by, [padded, P], drafts, [wild], mode=mode).tokens[:, 0], softmax(padded))
    # Padding that the target does draw is a token like any other; one the target lacks is not.
    assert follows(judge(by, [P, P], drafts, [wild], mode=mode).tokens[:, 0], softmax(P))
    narrow = judge(by, [P[:4], P[:4]], drafts, [wild], mode=mode)
    assert follows(narrow.tokens[:, 0], softmax(P[:4]))


def test_rows_beyond_32_bits(by: Implementation) -> None:
    """Row offsets of B(K + 1)V >= 2^32 logits; pages never touched cost no memory."""
    width, rows = 2**14, 2**18
    no_reserve = 0x4000  # MAP_NORESERVE, which mmap does not name everywhere
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    pages = mmap.mmap(-1, 2 * rows * width * 2, flags=flags)
    logits = np.frombuffer(pages, np.float16).reshape(2, rows, width)
    logits[0, 0, 5] = logits[1, 0, 7] = logits[1, 1, 9] = 30000.0
    drafts = np.zeros((2, rows - 1), np.int32)
    drafts[1, 0] = 7
    for mode in ("coupled", "rejection"):
        verify = reference.verify if by.name == "reference" else kernels.verify
        result = verify(
            logits,
            drafts,
            seed=seeds(2),
            position=np.arange(2),
            mode=mode,
            temperature=np.ones(2, np.float32),
        )
        assert result.tokens[0, :2].tolist() == [5, -1]
        assert result.tokens[1, :3].tolist() == [7, 9, -1]


def test_token_0_is_not_padding(by: Implementation) -> None:
    sure = [30.0, 0.0, 0.0]
    for mode in ("coupled", "rejection"):
        for temperature in (0.0, 0.1):
            result = judge(
                by, [sure, sure, sure], [0, 0], mode=mode,
                temperature=np.full(by.draws, temperature, np.float32),
            )  # fmt: skip
            assert np.all(result.tokens == 0)
            assert np.all(result.num_accepted == 2)


@pytest.mark.parametrize("mode", ["coupled", "rejection"])
def test_a_rejection_is_not_handled_one_row_late(by: Implementation, mode: str) -> None:
    """The joint law of two tokens; every marginal may be right without it."""
    n = by.draws
    second = np.random.default_rng(4).normal(0, 1.5, (6, 6)).astype(np.float32)
    p = softmax(P)
    where = {"seed": seeds(n), "position": np.full(n, 3)}
    tag = "coupled" if mode == "coupled" else "draft"
    drafts = by.sample(logits=tiled(Q, n), tag=tag, **where).token
    target = np.stack([tiled(P, n), second[drafts]], axis=1)
    result = by.verify(
        target_logits=target, draft_ids=drafts[:, None].copy(),
        draft_logits=tiled([Q], n), mode=mode,
        **where,
    )  # fmt: skip
    first = result.tokens[:, 0]
    assert np.all((result.tokens[:, 1] >= 0) == (result.num_accepted == 1))
    # After a rejection the second token is the bonus of a window of its own.
    alone = by.verify(
        target_logits=second[first][:, None].copy(), draft_ids=np.zeros((n, 0), np.int32),
        seed=seeds(n), position=np.full(n, 4), mode=mode,
    )  # fmt: skip
    then = np.where(result.num_accepted == 1, result.tokens[:, 1], alone.tokens[:, 0])
    counts = np.zeros((6, 6))
    np.add.at(counts, (first, then), 1)
    law = p[:, None] * np.array([softmax(row) for row in second])
    assert surprise(counts, law) < 4
