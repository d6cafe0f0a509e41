"""The degenerate inputs of verify() and sample(), each with its known answer where there is one."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsi_native.kernels import Edits, Status
from kernel_cases import Case

INF, NAN = np.inf, np.nan
LARGEST = float(np.finfo(np.float32).max)
BOTH = ("coupled", "rejection")


def rows(*values: list[float]) -> NDArray[np.float32]:
    """[1, len(values), V]"""
    return np.array([values], np.float32)


def ids(*values: int) -> NDArray[np.int32]:
    return np.array([values], np.int32)


def edits(*changes: tuple[int, int, int, float], of: int) -> Edits:
    """(row, id, operation, value), ascending by row, for `of` rows."""
    counts = np.bincount([row for row, *_ in changes], minlength=of)
    return Edits(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array([x[1] for x in changes], np.int32),
        np.array([x[2] for x in changes], np.int32),
        np.array([x[3] for x in changes], np.float32),
    )


def case(
    name: str,
    target_logits: NDArray[np.float32],
    draft_ids: NDArray[np.int32],
    tokens: list[int] | None = None,
    status: int | None = None,
    mode: str = "rejection",
    **others: Any,
) -> Case:
    """One request. tokens: its row of tokens, status: its bits, where known."""
    arguments: dict[str, Any] = {
        "target_logits": target_logits,
        "draft_ids": draft_ids,
        "seed": np.array([11], np.uint64),
        "position": np.array([5]),
        "mode": mode,
        "temperature": np.ones(1, np.float32),
        "with_logprobs": True,
    }
    return Case(
        f"{name}, {mode}",
        arguments | others,
        tokens=None if tokens is None else [tokens],
        status=None if status is None else [status],
    )


@cache
def degenerate_cases() -> tuple[Case, ...]:
    return (*target_rows(), *draft_rows(), *drafts(), *settings(), *shapes())


def target_rows() -> list[Case]:
    flat, nothing, sure = [0.0, 0.0, 0.0], [-INF] * 3, [-INF, 0.0, -INF]
    no_draft = np.zeros((1, 0), np.int32)
    cases = []
    for mode in BOTH:
        cases += [
            case("all NaN", rows([NAN] * 3, flat), ids(2), [-1, -1], 3, mode),
            case("all -inf", rows(nothing, flat), ids(2), [-1, -1], 2, mode),
            case("all -inf at the bonus", rows(sure, nothing), ids(1), [1, -1], 2, mode),
            case("all -inf after the end", rows(sure, nothing), ids(0), [1, -1], None, mode),
            case("NaN beside one id", rows([NAN, NAN, -3.0], flat), ids(0), [2, -1], None, mode),
            case("one +inf", rows([0.0, INF, 9.0]), no_draft, [1], 16, mode),
            case("NaN, +inf and -inf", rows([NAN, INF, -INF]), no_draft, [1], 17, mode),
            case("two +inf", rows([INF, -1.0, INF]), no_draft, None, 16, mode),
            case("the largest numbers", rows([LARGEST, -LARGEST, 1.0]), no_draft, [0], 0, mode),
            case("far apart", rows([1e4, -1e4, 9.9e3]), no_draft, [0], 0, mode),
            case("subnormal logits", rows([1e-40, -1e-42, 0.0]), no_draft, None, 0, mode),
            case("zeros of both signs", rows([-0.0, 0.0, -0.0]), no_draft, None, 0, mode),
            case("one id", rows([0.3], [-5.0], [2.0]), ids(0, 0), [0, 0, 0], 0, mode),
            case("one id is left", rows(sure, sure), ids(1), [1, 1], 0, mode),
            case("one id is left, another drafted", rows(sure, sure), ids(0), [1, -1], None, mode),
            case("token 0 is a token", rows([0.0, -INF], [0.0, -INF]), ids(0), [0, 0], 0, mode),
        ]
        greedy = {"temperature": np.zeros(1, np.float32), "mode": mode}
        cases += [
            case("greedy ties", rows([1.0, 3.0, 3.0], flat), ids(1), [1, 0], 0, **greedy),
            case("greedy, tied draft", rows([1.0, 3.0, 3.0], flat), ids(2), [1, -1], 0, **greedy),
            case("greedy zeros", rows([-1.0, -0.0, 0.0]), no_draft, [1], 0, **greedy),
            case("greedy all -inf", rows(nothing), no_draft, [-1], 2, **greedy),
            case("greedy NaN", rows([NAN, -7.0, -8.0]), no_draft, [1], 1, **greedy),
            case("greedy +inf", rows([0.0, 1.0, INF]), no_draft, [2], 16, **greedy),
            case(
                "greedy knows no cut", rows([1.0, 2.0]), no_draft, [1], 0,
                cut=np.full((1, 1), 9.0, np.float32), **greedy,
            ),
            case("greedy id 0", rows([5.0, 1.0], [5.0, 1.0]), ids(0), [0, 0], 0, **greedy),
            case("greedy, wrong draft", rows([5.0, 1.0], [5.0, 1.0]), ids(1), [0, -1], 0, **greedy),
            case("greedy, no draft", rows([5.0, 1.0], [5.0, 1.0]), ids(-1), [0, -1], 0, **greedy),
        ]  # fmt: skip
    return cases


def draft_rows() -> list[Case]:
    """Rejection only: coupled does not read them."""
    target = rows([0.5, 0.1, -INF], [0.0, 0.0, 0.0])
    same = rows([0.5, 0.1, 0.2])
    twin = rows([0.5, 0.1, 0.2], [-INF, -INF, 0.0])
    cases = []
    for name, row in {
        "all NaN": [NAN] * 3,
        "all -inf": [-INF] * 3,
        "NaN at the draft": [0.0, NAN, 0.0],
        "-inf at the draft": [0.0, -INF, 0.0],
    }.items():
        cases.append(
            case(
                f"draft row: {name}",
                target,
                ids(1),
                None,
                int(Status.Q_ZERO),
                draft_logits=rows(row),
            )
        )
    cases += [
        case("draft row: NaN elsewhere", target, ids(0), None, 0,
             draft_logits=rows([9.0, NAN, NAN])),
        case("draft row: +inf", target, ids(1), None, 0, draft_logits=rows([0.0, INF, 0.0])),
        case("draft row: +inf elsewhere", target, ids(1), None, None,
             draft_logits=rows([0.0, 0.0, INF])),
        case("p = q", twin, ids(1), [1, 2], 0, draft_logits=same),
        case("impossible in the target", target, ids(2), None, 0,
             draft_logits=rows([-9.0, -9.0, 9.0])),
        case("greedy drafter", target, ids(2), None, 0, draft_logits=same,
             draft_temperature=np.zeros(1, np.float32)),
        case("cut of the draft", target, ids(1), None, int(Status.Q_ZERO), draft_logits=same,
             draft_cut=np.full((1, 1), 0.15, np.float32)),
        case("cut above the draft row", target, ids(0), None, int(Status.Q_ZERO), draft_logits=same,
             draft_cut=np.full((1, 1), 7.0, np.float32)),
    ]  # fmt: skip
    for lse in (NAN, INF, -INF):
        cases.append(
            case(f"draft_lse {lse}", target, ids(0), None, int(Status.Q_ZERO), draft_logits=same,
                 draft_lse=np.full((1, 1), lse, np.float32))
        )  # fmt: skip
    # q twice what it should be: no residual is left, whatever the coin says.
    lse = np.log(np.exp(np.float32([0.5, 0.1, 0.2])).sum()) - np.log(2.0)
    for seed in range(8):
        cases.append(
            case(f"zero residual {seed}", twin, ids(1), None, None, draft_logits=same,
                 draft_lse=np.full((1, 1), lse, np.float32), seed=np.array([seed], np.uint64))
        )  # fmt: skip
    return cases


def drafts() -> list[Case]:
    """Draft ids that are none, or that the map or the target does not have."""
    flat = [0.0] * 4
    target = rows(flat, flat)
    law = {"draft_logits": rows(flat)}
    d2t, t2d = np.array([2, -1, 0, -1], np.int32), np.array([2, -1, 0, -1], np.int32)
    maps = {"d2t": d2t, "t2d": t2d}
    nowhere = {"d2t": np.full(4, -1, np.int32), "t2d": np.full(4, -1, np.int32)}
    q_zero = int(Status.Q_ZERO)
    cases = []
    for mode in BOTH:
        bit = q_zero if mode == "rejection" else 0
        for d, status in ((-1, 0), (-5, bit), (4, bit), (2**31 - 1, bit), (-(2**31), bit)):
            cases.append(case(f"draft {d}", target, ids(d), None, status, mode))
            cases.append(case(f"draft {d} with a law", target, ids(d), None, status, mode, **law))
            cases.append(case(f"draft {d} with maps", target, ids(d), None, status, mode, **maps))
        cases += [
            case("draft without a target id", target, ids(1), None, bit, mode, **maps),
            case("the same with a law", target, ids(1), None, bit, mode, **maps, **law),
            case("mapped draft", rows([0.0, 99.0, 99.0, 0.0], flat), ids(0), None, 0, mode, **maps),
            case("mapped draft with a law", target, ids(2), None, 0, mode, **maps, **law),
            case("empty map", target, ids(2), None, bit, mode, **nowhere),
            case("empty map with a law", target, ids(2), None, bit, mode, **nowhere, **law),
        ]
    wide, narrow = rows([0.0] * 6), rows([0.0] * 2)
    return [
        *cases,
        case("drafter is wider", target, ids(5), None, 0, draft_logits=wide),
        case("drafter is wider, shared draft", target, ids(1), None, 0, draft_logits=wide),
        case("drafter is narrower", target, ids(1), None, 0, draft_logits=narrow),
        case("outside the narrower drafter", target, ids(3), None, q_zero, draft_logits=narrow),
        case("outside the narrower, greedy drafter", target, ids(3), None, q_zero,
             draft_logits=narrow, draft_temperature=np.zeros(1, np.float32)),
        case("outside the narrower drafter, greedy target", rows([0.0, 0.0, 0.0, 9.0], flat),
             ids(3), [3, -1], 0, draft_logits=narrow, temperature=np.zeros(1, np.float32)),
        case("outside the narrower drafter, both greedy", rows([0.0, 0.0, 9.0, 0.0], flat), ids(2),
             [2, -1], 0, draft_logits=narrow, temperature=np.zeros(1, np.float32),
             draft_temperature=np.zeros(1, np.float32)),
    ]  # fmt: skip


def settings() -> list[Case]:
    no_draft = np.zeros((1, 0), np.int32)
    hot = {"temperature": np.array([3e38], np.float32)}
    cold = {"temperature": np.array([1e-5], np.float32)}
    cut = {"cut": np.full((1, 1), 1.5, np.float32)}
    cases = []
    for mode in BOTH:
        cases += [
            case("cut above everything", rows([0.0, 1.0]), no_draft, [-1], 2, mode, **cut),
            case("cut leaves one", rows([0.0, 2.0, 1.0]), no_draft, [1], 0, mode, **cut),
            case("cut keeps what equals it", rows([0.0, 1.5]), no_draft, [1], 0, mode, **cut),
            case("cut is after the temperature", rows([0.0, 1.0]), no_draft, [1], 0, mode,
                 temperature=np.array([0.5], np.float32), **cut),
            case("hot", rows([1e30, -1e30, -INF]), no_draft, None, 0, mode, **hot),
            case("cold", rows([1e34, -1e34, 1e33]), no_draft, None, 0, mode, **cold),
            case("cold enough for one", rows([0.0, 0.1, -0.1]), no_draft, [1], 0, mode, **cold),
            case("seed with all bits", rows([0.0] * 9), no_draft, None, 0, mode,
                 seed=np.array([2**64 - 1], np.uint64)),
            case("positions cross 2^32", rows(*[[0.0] * 5] * 3), ids(0, 1), None, 0, mode,
                 position=np.array([2**32 - 1])),
            case("the last position", rows([0.0] * 9), no_draft, None, 0, mode,
                 position=np.array([2**63 - 1])),
            case("edits in their order", rows([-1.0, 0.0]), no_draft, [0], 0, mode,
                 edits=edits((0, 0, 1, 2.0), (0, 0, 0, 3.0), (0, 0, 1, 0.5), (0, 1, 2, -INF),
                             of=1)),
            case("edits outside", rows([0.0, -INF]), no_draft, [0], 0, mode,
                 edits=edits((0, 2, 2, 9.0), (0, -1, 2, 9.0), (0, 2**31 - 1, 0, 1.0), of=1)),
            case("edits forbid all", rows([0.0, 1.0]), no_draft, [-1], 2, mode,
                 edits=edits((0, 0, 2, -INF), (0, 1, 0, -INF), of=1)),
            case("edits heal NaN", rows([NAN, -INF]), no_draft, [0], 0, mode,
                 edits=edits((0, 0, 2, 1.0), of=1)),
            case("edits make NaN", rows([-INF, 0.0]), no_draft, [1], 1, mode,
                 edits=edits((0, 0, 0, INF), of=1)),
            case("edits make +inf", rows([1.0, 0.0]), no_draft, [1], 16, mode,
                 edits=edits((0, 1, 0, INF), of=1)),
            case("edits of the second row", rows([-INF, 0.0], [0.0, 5.0]), ids(1), [1, 0], 0, mode,
                 edits=edits((1, 1, 2, -INF), of=2)),
        ]  # fmt: skip
    target, same = rows([0.0, 0.0], [0.0, 0.0]), rows([0.0, 0.0])
    cases += [
        case("edits of the draft row", target, ids(1), None, int(Status.Q_ZERO), draft_logits=same,
             draft_edits=edits((0, 1, 2, -INF), of=1)),
        case("edits that make the draft sure", target, ids(1), None, 0, draft_logits=same,
             draft_edits=edits((0, 1, 0, 50.0), of=1)),
    ]  # fmt: skip
    return cases


def shapes() -> list[Case]:
    """Ragged and empty batches; several rows of different fate."""
    rng = np.random.default_rng(3)
    sure = np.full((1, 4, 6), -INF, np.float32)
    for k, token in enumerate((3, 1, 4, 5)):
        sure[0, k, token] = 0.0
    law = np.tile(np.float32(rng.normal(size=6)), (3, 4, 1))
    cases = []
    for mode in BOTH:
        cases += [
            case("all stand", sure, ids(3, 1, 4), [3, 1, 4, 5], 0, mode),
            case("none to judge", sure, ids(3, 1, 4), [3, -1, -1, -1], 0, mode,
                 num_draft=np.zeros(1, np.int32)),
            case("two of three to judge", sure, ids(3, 1, 4), [3, 1, 4, -1], 0, mode,
                 num_draft=np.array([2], np.int32)),
            case("the second falls", sure, ids(3, 2, 4), [3, 1, -1, -1], None, mode),
        ]  # fmt: skip
        three: dict[str, Any] = {
            "seed": np.array([1, 2, 3], np.uint64),
            "position": np.array([9, 0, 2**40]),
            "temperature": np.array([1.0, 0.0, 0.5], np.float32),
            "num_draft": np.array([3, 0, 1], np.int32),
        }
        drafts = rng.integers(0, 6, (3, 3)).astype(np.int32)
        cases += [
            case("ragged", law, drafts, None, None, mode, **three),
            case("ragged with a law", law, drafts, None, None, mode,
                 draft_logits=law[:, :3].copy(), **three),
        ]  # fmt: skip
        nobody = {
            "seed": np.zeros(0, np.uint64),
            "position": np.zeros(0, np.int64),
            "temperature": np.zeros(0, np.float32),
        }
        empty = case("nobody", np.zeros((0, 3, 6), np.float32), np.zeros((0, 2), np.int32),
                     None, None, mode, **nobody)  # fmt: skip
        cases.append(empty)
    return cases
