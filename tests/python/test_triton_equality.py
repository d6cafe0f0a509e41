"""The Triton kernels, interpreted, against the reference: random cases and all degenerate ones."""

from __future__ import annotations

import pytest

from kernel_cases import Agreement, Case, random_cases, sample_cases
from kernel_degenerate import degenerate_cases
from triton_worker import interpreted, needs_triton, resting, there

pytestmark = needs_triton

# float32 sums, and Triton's exp and log on the GPU are no worse: relative, times 1 + |z|.
TOLERANCE = 1e-5

# Each runs in about 0.4 s; the implementations in NumPy and C++ run all of the cases.
RANDOM = random_cases()[:110]
SAMPLES = sample_cases()[:33]


@pytest.fixture(scope="module")
def agreement() -> Agreement:
    return Agreement()


@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_random_cases_agree(case: Case, agreement: Agreement) -> None:
    agreement.verified(case, interpreted("verify", case.dtype, **case.arguments), TOLERANCE)


@pytest.mark.parametrize("case", degenerate_cases(), ids=str)
def test_degenerate_cases(case: Case, agreement: Agreement) -> None:
    given = interpreted("verify", case.dtype, **case.arguments)
    agreement.verified(case, given, TOLERANCE)
    if case.tokens is not None:
        assert given.tokens.tolist() == case.tokens
    if case.status is not None:
        assert given.status.tolist() == case.status


@pytest.mark.parametrize("case", SAMPLES, ids=str)
def test_samples_agree(case: Case, agreement: Agreement) -> None:
    agreement.sampled(case, interpreted("sample", case.dtype, **case.arguments), TOLERANCE)


def test_hardly_any_token_was_too_close_to_call(agreement: Agreement) -> None:
    assert agreement.undecided <= 0.05 * agreement.compared


def test_the_workspace_is_left_as_it_was_found() -> None:
    """All of the above used one workspace."""
    assert there(resting)
