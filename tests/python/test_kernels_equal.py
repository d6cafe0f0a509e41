"""Reference and C++ say the same, token for token, wherever rounding cannot have decided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsi_native import _core, kernels, reference
from kernel_cases import Agreement, Case, random_cases, sample_cases
from kernel_degenerate import degenerate_cases
from kernel_implementations import IMPLEMENTATIONS, NATIVE, Implementation

# Probabilities may be off by this much, relatively and times 1 + |z|: exp in float32, and sums.
TOLERANCE = 1e-6


def test_random_cases_agree() -> None:
    agreement = Agreement()
    for case in random_cases():
        agreement.verified(case, NATIVE.verify(case.dtype, **case.arguments), TOLERANCE)
    assert agreement.compared > 500
    assert agreement.undecided < 5


def test_random_cases_cover_what_they_should() -> None:
    """Judged drafts mostly: about half stand. Every argument is there, and is not."""
    stood = fell = 0
    bits = 0
    for case in random_cases():
        result = reference.verify(**case.arguments)
        most = result.tokens.shape[1] - 1
        counts = case.arguments.get("num_draft")
        counts = np.full(len(result.tokens), most) if counts is None else counts
        stood += int(result.num_accepted.sum())
        fell += int(np.sum(result.num_accepted < counts))
        bits |= int(np.bitwise_or.reduce(result.status, initial=0))
    assert 0.3 < stood / (stood + fell) < 0.7
    assert bits & kernels.Status.Q_ZERO
    for name in ("draft_logits", "draft_lse", "cut", "draft_cut", "edits", "d2t", "num_draft"):
        given = [case.arguments.get(name) is not None for case in random_cases()]
        assert 20 < sum(given) < 180, name


@pytest.mark.parametrize("case", degenerate_cases(), ids=str)
def test_degenerate_cases_agree(case: Case) -> None:
    Agreement().verified(case, NATIVE.verify(**case.arguments), TOLERANCE)


@pytest.mark.parametrize("by", IMPLEMENTATIONS, ids=lambda x: x.name)
def test_degenerate_cases_give_what_is_known(by: Implementation) -> None:
    for case in degenerate_cases():
        result = by.verify(**case.arguments)
        if case.tokens is not None:
            assert result.tokens.tolist() == case.tokens, case.name
        if case.status is not None:
            assert result.status.tolist() == case.status, case.name
        accepted = np.maximum(np.sum(result.tokens >= 0, axis=1) - 1, 0)
        empty = (result.status & kernels.Status.EMPTY) != 0
        assert np.all((result.num_accepted == accepted) | empty), case.name
        assert np.all(np.isnan(result.logprob) == (result.tokens < 0)), case.name
        assert np.all(np.isnan(result.lse) == (result.tokens < 0)), case.name


def test_samples_and_their_cuts_agree() -> None:
    agreement = Agreement()
    for case in sample_cases():
        agreement.sampled(case, NATIVE.sample(case.dtype, **case.arguments), TOLERANCE)
    assert agreement.compared > 150
    assert agreement.undecided < 5


def test_cut_is_the_one_that_sample_used() -> None:
    for case in sample_cases():
        settings = {k: v for k, v in case.arguments.items() if k not in ("seed", "position", "tag")}
        used = NATIVE.sample(case.dtype, **case.arguments).cut
        np.testing.assert_array_equal(NATIVE.cut(case.dtype, **settings), used, str(case))


def test_logits_at_the_borders_of_chunks_are_read() -> None:
    """The winner and all of the mass on one id, at every place a loop may forget."""
    for width in (1, 5, 4095, 4096, 4097, 8191, 8192, 8193):
        for id in {0, width - 1, min(4095, width - 1), min(4096, width - 1), width // 2}:
            logits = np.full((1, 1, width), -30.0, np.float32)
            logits[0, 0, id] = 30.0
            for mode in ("coupled", "rejection"):
                result = NATIVE.verify(
                    target_logits=logits, draft_ids=np.zeros((1, 0), np.int32), seed=3, position=4,
                    mode=mode, with_logprobs=True,
                )  # fmt: skip
                assert result.tokens.tolist() == [[id]]
                assert abs(result.logprob[0, 0]) < 1e-6


def test_threads_change_nothing() -> None:
    for case in random_cases()[::10]:
        one = NATIVE.verify(case.dtype, **case.arguments)
        three = NATIVE.verify(case.dtype, **case.arguments, threads=3)
        for a, b in zip(one, three, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("variant", ["baseline", "avx2"])
def test_every_instruction_set_gives_the_same_bits(variant: str) -> None:
    cases = (*random_cases()[::4], *degenerate_cases()[::3])
    best = [NATIVE.verify(case.dtype, **case.arguments) for case in cases]
    sampled = [NATIVE.sample(case.dtype, **case.arguments) for case in sample_cases()[::3]]
    try:
        _core.kernel_variant(variant)
    except ValueError:
        pytest.skip(f"this machine has no {variant}")
    try:
        for case, wanted in zip(cases, best, strict=True):
            for a, b in zip(NATIVE.verify(case.dtype, **case.arguments), wanted, strict=True):
                np.testing.assert_array_equal(a, b, str(case))
        for case, row in zip(sample_cases()[::3], sampled, strict=True):
            for a, b in zip(NATIVE.sample(case.dtype, **case.arguments), row, strict=True):
                np.testing.assert_array_equal(a, b, str(case))
    finally:
        _core.kernel_variant("auto")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_tensors_and_arrays_give_the_same(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    case = next(
        c
        for c in random_cases()
        if c.arguments.get("d2t") is not None and c.arguments["draft_ids"].size
    )
    arguments: dict[str, Any] = dict(case.arguments)
    for name in ("target_logits", "draft_logits"):
        if arguments.get(name) is not None:
            arguments[name] = arguments[name].astype(dtype)
    arrays = kernels.verify(**arguments)

    def tensor(value: Any) -> Any:
        if isinstance(value, kernels.Edits):
            return kernels.Edits(*map(tensor, value))
        if not isinstance(value, np.ndarray):
            return value
        return torch.from_numpy(value.view(np.int64) if value.dtype == np.uint64 else value)

    tensors = kernels.verify(**{k: tensor(v) for k, v in arguments.items()})
    for a, t in zip(arrays, tensors, strict=True):
        if a is None:
            assert t is None
            continue
        assert isinstance(t, torch.Tensor)
        np.testing.assert_array_equal(t.numpy(), a)
