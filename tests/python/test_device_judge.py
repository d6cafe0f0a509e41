"""Rows judged where they are, by Triton (interpreted here): what the C++ judge says, everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import device_judging as judging
from triton_worker import needs_triton, there

pytest.importorskip("transformers")
pytestmark = needs_triton

HOST = (False, False)
DEVICE = (True, True)
REJECTION = {"temperature": 0.8, "verification": "rejection"}
CUTS = {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "min_p": 0.001}
EDITED = {
    "repetition_penalty": 1.3,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.2,
    "logit_bias": {5: 3.0, 181: -9.0},
}


def told(where: tuple[bool, bool], **settings: Any) -> Any:
    return there(judging.told, *where, **settings)


@pytest.mark.parametrize(
    "sampling",
    [
        {"logprobs": 0},
        {**CUTS, **EDITED, "max_new_tokens": 4, "logprobs": 0},
        {"stop_ids": [22, 127], "min_new_tokens": 4},
    ],
    ids=["greedy", "coupled", "stop"],
)
def test_texts_agree(sampling: dict[str, Any]) -> None:
    tokens, logprobs, _ = told(DEVICE, **sampling)
    wanted, wanted_logprobs, _ = told(HOST, **sampling)
    assert tokens == wanted
    np.testing.assert_allclose(logprobs, wanted_logprobs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("where", [DEVICE, (True, False), (False, True)], ids=str)
def test_rejection_gives_the_same_verdicts_wherever_the_laws_are(where: tuple[bool, bool]) -> None:
    sampling = {**REJECTION, "logit_bias": {5: 3.0}, "logprobs": 0}
    tokens, logprobs, statistics = told(where, **sampling)
    wanted, wanted_logprobs, host = told(HOST, **sampling)
    assert tokens == wanted
    assert (statistics.accepted, statistics.rejected) == (host.accepted, host.rejected)
    assert min(host.accepted, host.rejected) > 0
    np.testing.assert_allclose(logprobs, wanted_logprobs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("where", [DEVICE, (False, True)], ids=str)
def test_no_row_outlives_its_request(where: tuple[bool, bool]) -> None:
    assert there(judging.rows_left, where) == 0


def test_rejection_with_cuts() -> None:
    sampling = {**REJECTION, "top_p": 0.9, "max_new_tokens": 4}
    assert told(DEVICE, **sampling)[0] == told(HOST, **sampling)[0]


def test_a_drafter_that_is_the_target_is_always_right() -> None:
    _, _, statistics = told(DEVICE, twin=True, **REJECTION)
    assert statistics.rejected == 0
    assert statistics.accepted > 0


@pytest.mark.parametrize("sampling", [{}, REJECTION], ids=["coupled", "rejection"])
def test_servers_that_race(sampling: dict[str, Any]) -> None:
    """Two target servers, the drafter and newest drafts; who wins says nothing of the text."""
    tokens, _, statistics = told(DEVICE, mode="dsi", twin=True, **sampling)
    assert len(tokens) == 6
    assert tokens == told(HOST)[0] or sampling
    assert statistics.rejected == 0
    assert statistics.failed_forwards == 0
    assert statistics.drafter_error == ""


@pytest.mark.parametrize("host_law", [False, True])
def test_the_newest_draft_is_judged_behind_the_window(host_law: bool) -> None:
    judged = []
    for given, wanted in there(judging.frontier_cases, host_law):
        tokens, logprobs, status, frontier = given
        assert tokens.tolist() == wanted[0].tolist()
        np.testing.assert_allclose(logprobs, wanted[1], rtol=2e-5, atol=2e-5)
        assert not status.any()
        assert frontier == wanted[2]
        judged.append(frontier)
    assert any(judged)
    assert not all(judged)  # a window that ends early asks for none


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_a_broken_row_fails_with_the_same_message_or_does_not_count(value: float) -> None:
    """Token 22 is the third one: a window whose later rows are broken loses those alone."""
    tokens, error = there(judging.of_broken, True, value, "target")
    assert (tokens, error) == there(judging.of_broken, False, value, "target")
    assert tokens is None
    assert "the target's logits for position 8 cannot be drawn from" in error


def test_an_edit_hides_no_nan() -> None:
    """The NaN is that of an id which ends the text and is forbidden so far."""
    sampling = {"stop_ids": [7], "min_new_tokens": 6}
    given = there(judging.of_broken, True, np.nan, "target", 7, **sampling)
    assert given == there(judging.of_broken, False, np.nan, "target", 7, **sampling)
    assert given[1].endswith("the row of logits holds NaN")


def test_a_broken_drafter_costs_no_text() -> None:
    given = there(judging.of_broken, True, np.nan, "drafter")
    assert given == there(judging.of_broken, False, np.nan, "drafter")
    assert given[0] == told(HOST)[0]
    assert "the drafter's logits for position" in given[1]


def test_what_only_the_cpu_can_do_is_done_there() -> None:
    tokens = there(judging.hooked, True)
    assert tokens == there(judging.hooked, False)
    assert all(token % 2 == 1 for token in tokens)
    assert told(DEVICE, logprobs=3)[:2] == told(HOST, logprobs=3)[:2]


def test_memory_grows_with_what_is_judged() -> None:
    assert there(judging.workspace_grows) == [[3, 4], list(range(3, 12)), [3]]


def test_the_script_for_a_gpu_checks_an_engine() -> None:
    assert there(judging.gpu_script) == {"tokens": 4, "failures": []}
