"""Joint laws of two tokens at V = 4096, by chi-square, in C++."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_implementations import NATIVE, Array, softmax, surprise, tiled

WIDTH = 4096
BATCH, BATCHES = 500, 20


def classes(law: Array) -> Array:
    """Each id's class: the seven most likely their own, the others by id in five more."""
    of = 7 + np.arange(len(law)) % 5
    of[np.argsort(-law)[:7]] = np.arange(7)
    return of


@pytest.mark.parametrize("mapped", [False, True], ids=["", "mapped"])
@pytest.mark.parametrize("mode", ["coupled", "rejection"])
def test_two_tokens_have_the_target_s_joint_law(mode: str, mapped: bool) -> None:
    """p(x1) p(x2 | x1), drafts of a drafter that sees x1 too; its vocabulary differs if mapped."""
    rng = np.random.default_rng(6)
    first = rng.normal(0, 2.5, WIDTH).astype(np.float32)
    after = rng.normal(0, 2.5, (3, WIDTH)).astype(np.float32)  # x2 sees x1 mod 3
    d2t = t2d = None
    width, to_target = WIDTH, np.arange(WIDTH)
    if mapped:
        width = 3000
        shared = 2500
        d2t, t2d = np.full(width, -1, np.int32), np.full(WIDTH, -1, np.int32)
        d, t = rng.permutation(width)[:shared], rng.permutation(WIDTH)[:shared]
        d2t[d], t2d[t] = t, d
        to_target = np.maximum(d2t, 0)
    drafter = first[to_target] + rng.normal(0, 0.7, width).astype(np.float32)
    drafter_after = after[:, to_target] + rng.normal(0, 0.7, (3, width)).astype(np.float32)
    tag = "coupled" if mode == "coupled" else "draft"

    pairs = []
    accepted = 0
    for batch in range(BATCHES):
        seed = np.arange(BATCH, dtype=np.uint64) + batch * BATCH
        x1 = NATIVE.sample(
            logits=tiled(drafter, BATCH), seed=seed, position=np.full(BATCH, 9), tag=tag, d2t=d2t
        )
        law2 = drafter_after[to_target[x1.token] % 3]
        x2 = NATIVE.sample(logits=law2, seed=seed, position=np.full(BATCH, 10), tag=tag, d2t=d2t)
        drafts = np.stack([x1.token, x2.token], axis=1)
        target = np.stack([tiled(first, BATCH), after[to_target[x1.token] % 3]], axis=1)
        # The third row is never compared: a bonus for the position after next.
        target = np.concatenate([target, tiled([first], BATCH)], axis=1)
        result = NATIVE.verify(
            target_logits=target,
            draft_ids=drafts,
            draft_logits=np.stack([tiled(drafter, BATCH), law2], axis=1),
            draft_lse=np.stack([x1.lse, x2.lse], axis=1),
            seed=seed,
            position=np.full(BATCH, 9),
            mode=mode,
            d2t=d2t,
            t2d=t2d,
        )
        accepted += int(result.num_accepted.sum())
        alone = NATIVE.verify(
            target_logits=after[result.tokens[:, 0] % 3][:, None].copy(),
            draft_ids=np.zeros((BATCH, 0), np.int32),
            seed=seed,
            position=np.full(BATCH, 10),
            mode=mode,
        )
        second = np.where(result.num_accepted >= 1, result.tokens[:, 1], alone.tokens[:, 0])
        pairs.append(np.stack([result.tokens[:, 0], second], axis=1))

    p1, p2 = softmax(first), np.array([softmax(row) for row in after])
    of1, of2 = classes(p1), classes(p2.mean(axis=0))
    law, counts = np.zeros((12, 12)), np.zeros((12, 12))
    for rest in range(3):
        ids = np.arange(rest, WIDTH, 3)
        mass1 = np.bincount(of1[ids], p1[ids], 12)
        law += mass1[:, None] * np.bincount(of2, p2[rest], 12)
    drawn = np.concatenate(pairs)
    np.add.at(counts, (of1[drawn[:, 0]], of2[drawn[:, 1]]), 1)
    assert surprise(counts, law) < 4
    assert 0.2 < accepted / (2 * BATCH * BATCHES) < 0.9
