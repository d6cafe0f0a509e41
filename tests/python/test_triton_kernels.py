"""What the Triton kernels promise beyond agreeing with the reference case by case; interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsi_native import reference
from dsi_native.errors import InvalidArgument
from dsi_native.kernels import Edits, arguments
from kernel_cases import Agreement, Case, random_case
from triton_worker import far_apart, interpreted, needs_triton, parameters, strided, there

pytestmark = needs_triton


def requests(count: int, most: int, width: int, seed: int = 0, **others: Any) -> dict[str, Any]:
    """Rejection of drafts that mostly stand, from a drafter close to its target."""
    rng = np.random.default_rng(seed)
    target = rng.normal(0, 2, (count, most + 1, width)).astype(np.float32)
    draft = target[:, :most] + rng.normal(0, 0.05, (count, most, width)).astype(np.float32)
    return {
        "target_logits": target,
        "draft_logits": draft,
        "draft_ids": np.argmax(draft + rng.gumbel(size=draft.shape), -1).astype(np.int32),
        "seed": rng.integers(0, 2**64, count, np.uint64),
        "position": rng.integers(0, 1000, count),
        "mode": "rejection",
        **others,
    }


def agree(given: Any, call: dict[str, Any], compared: int) -> None:
    agreement = Agreement()
    agreement.verified(Case("this", call), given, 1e-5)
    assert agreement.compared >= compared


@pytest.mark.parametrize("mode", ["coupled", "rejection"])
def test_more_rows_than_are_judged_side_by_side(mode: str) -> None:
    call = requests(1, 19, 30, mode=mode, with_logprobs=True, temperature=np.float32([0.5]))
    call["draft_ids"] = np.argmax(call["target_logits"][:, :-1], -1).astype(np.int32)
    call["target_logits"] *= 40
    given = interpreted("verify", own_memory=True, **call)
    assert given.num_accepted[0] > 8
    agree(given, call, 9)
    call["num_draft"] = np.int32([9])
    given = interpreted("verify", own_memory=True, **call)
    assert given.num_accepted[0] == 9
    assert (given.tokens[0, 10:] == -1).all()


def test_random_numbers_belong_to_the_request_and_not_to_its_place_in_the_batch() -> None:
    call = requests(4, 2, 50)
    order = np.array([2, 0, 3, 1])
    moved = {k: v[order] if isinstance(v, np.ndarray) else v for k, v in call.items()}
    for mode in ("coupled", "rejection"):
        alone = interpreted("verify", **call | {"mode": mode})
        np.testing.assert_array_equal(
            interpreted("verify", **moved | {"mode": mode}).tokens, alone.tokens[order]
        )


def test_equal_calls_give_equal_bits_in_used_memory_and_new() -> None:
    call = requests(2, 3, 5000, with_logprobs=True)
    first, again = (interpreted("verify", **call) for _ in range(2))
    other = interpreted("verify", own_memory=True, **call)
    for results in (again, other):
        for x, y in zip(first, results, strict=True):
            np.testing.assert_array_equal(x, y)


def test_the_drafters_lse_gives_the_same_verdict_as_its_row() -> None:
    call = requests(3, 3, 300)
    flat = call["draft_logits"].reshape(9, 300)
    drafter = {"seed": np.zeros(9, np.uint64), "position": np.zeros(9, np.int64)}
    settings = {"temperature": np.full(9, 0.8, np.float32), "top_k": np.full(9, 40, np.int32)}
    drafted = interpreted(
        "sample", own_memory=True, logits=flat, tag="draft", **drafter, **settings
    )
    call["draft_ids"] = drafted.token.reshape(3, 3)
    call["draft_cut"] = drafted.cut.reshape(3, 3)
    call["temperature"] = np.full(3, 0.8, np.float32)
    without = interpreted("verify", **call)
    given = interpreted("verify", **call, draft_lse=drafted.lse.reshape(3, 3))
    np.testing.assert_array_equal(given.tokens, without.tokens)
    np.testing.assert_array_equal(given.status, np.zeros(3))


@pytest.mark.parametrize("mapped", [False, True])
def test_hundreds_of_edits_on_one_row(mapped: bool) -> None:
    """More than are scanned at once, several on one id, on both sides and through the map."""
    call = requests(1, 1, 600)
    rng = np.random.default_rng(5)

    def edits(rows: int) -> Edits:
        count = 300 * rows
        operations = rng.integers(0, 2, count).astype(np.int32)
        values = np.where(operations == 1, 1.1, rng.normal(0, 0.3, count)).astype(np.float32)
        ids = rng.integers(0, 200, count).astype(np.int32)
        return Edits(np.arange(0, count + 1, 300), ids, operations, values)

    call |= {"edits": edits(2), "draft_edits": edits(1)}
    if mapped:
        shuffled = rng.permutation(600).astype(np.int32)
        call |= {"d2t": shuffled, "t2d": np.argsort(shuffled).astype(np.int32)}
    agree(interpreted("verify", **call), call, 1)


def test_operations_may_be_bytes_and_seeds_signed() -> None:
    call = random_case(5).arguments
    call["edits"] = Edits(
        np.arange(call["target_logits"].shape[0] * call["target_logits"].shape[1] + 1),
        *(np.ones(call["target_logits"][..., 0].size, t) for t in ("int32", "int32", "float32")),
    )
    wanted = interpreted("verify", **call)
    call["edits"] = call["edits"]._replace(operations=call["edits"].operations.astype(np.int8))
    call["seed"] = call["seed"].view(np.int64)
    np.testing.assert_array_equal(interpreted("verify", **call).tokens, wanted.tokens)


@pytest.mark.parametrize("mode", ["coupled", "rejection"])
def test_logits_strided_by_request_and_row(mode: str) -> None:
    call = requests(2, 2, 70, mode=mode)
    np.testing.assert_array_equal(there(strided, call), interpreted("verify", **call).tokens)


def test_offsets_of_rows_take_more_than_32_bits() -> None:
    assert there(far_apart, "coupled") == [[2], [3]]
    assert there(far_apart, "rejection") == [[2], [3]]


@pytest.mark.parametrize(
    ("width", "spread", "dtype"),
    [
        (4500, 2, "float16"),
        # More logits near the maximum than there is room to copy.
        pytest.param(9500, 0.3, "float32", id="flat"),
        # More ids wanted than are near.
        pytest.param(4500, 30, "float32", id="steep"),
    ],
)
def test_the_cut_is_a_logit_of_the_row(width: int, spread: float, dtype: str) -> None:
    rng = np.random.default_rng(8)
    logits = rng.normal(0, spread, (6, width)).astype(dtype).astype(np.float32)
    settings = {
        "top_k": np.int32([1, 50, 0, 4499, 0, 300]),
        "top_p": np.float32([1, 1, 0.9, 1, 0.999, 0.7]),
        "min_p": np.zeros(6, np.float32),
    }
    given = interpreted("cut", dtype, logits=logits, **settings)
    np.testing.assert_array_equal(given, reference.cut(logits, **settings))
    for row, threshold in zip(logits, given, strict=True):
        assert threshold in row


def test_top_p_zero_keeps_the_best_and_its_ties() -> None:
    logits = np.float32([[1, 5, 2, 5, -np.inf]])
    nothing = {"top_k": np.int32([0]), "min_p": np.float32([0])}
    assert interpreted("cut", logits=logits, top_p=np.float32([0]), **nothing) == [5.0]


def test_a_workspace_that_is_too_small_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"workspace: .*needed 9 of 1 over 3"):
        interpreted("verify", **requests(9, 0, 3))


@pytest.mark.parametrize("function", ["verify", "sample", "cut"])
def test_takes_what_the_checked_arguments_are(function: str) -> None:
    fields = getattr(arguments, f"{function.capitalize()}Arguments")._fields
    assert set(fields) <= set(there(parameters, function))
