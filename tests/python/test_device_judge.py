"""Rows judged where they are, by Triton (interpreted here): what the C++ judge says, everywhere."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from triton_worker import needs_triton, there

pytestmark = [
    needs_triton,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs: pip install transformers"),
]

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


def call(name: str, *arguments: Any, **settings: Any) -> Any:
    """That function of device_judging, which imports models: nothing for this process."""
    import device_judging

    return getattr(device_judging, name)(*arguments, **settings)


def judged(name: str, *arguments: Any, **settings: Any) -> Any:
    return there(call, name, *arguments, **settings)


def told(where: tuple[bool, bool], **settings: Any) -> Any:
    return judged("told", *where, **settings)


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
    assert judged("rows_left", where) == 0


def test_laws_of_another_vocabulary() -> None:
    given = judged("translated", True)
    assert given == judged("translated", False)
    assert min(given[1:]) > 0


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
    frontiers = []
    for given, wanted in judged("frontier_cases", host_law):
        tokens, logprobs, status, frontier = given
        assert tokens.tolist() == wanted[0].tolist()
        np.testing.assert_allclose(logprobs, wanted[1], rtol=2e-5, atol=2e-5)
        assert not status.any()
        assert frontier == wanted[2]
        frontiers.append(frontier)
    assert any(frontiers)
    assert not all(frontiers)  # a window that ends early asks for none


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_a_broken_row_fails_with_the_same_message_or_does_not_count(value: float) -> None:
    """Token 22 is the third one: a window whose later rows are broken loses those alone."""
    tokens, error = judged("of_broken", True, value, "target")
    assert (tokens, error) == judged("of_broken", False, value, "target")
    assert tokens is None
    assert "the target's logits for position 8 cannot be drawn from" in error


def test_an_edit_hides_no_nan() -> None:
    """The NaN is that of an id which ends the text and is forbidden so far."""
    sampling = {"stop_ids": [7], "min_new_tokens": 6}
    given = judged("of_broken", True, np.nan, "target", 7, **sampling)
    assert given == judged("of_broken", False, np.nan, "target", 7, **sampling)
    assert given[1].endswith("the row of logits holds NaN")


def test_a_broken_drafter_costs_no_text() -> None:
    given = judged("of_broken", True, np.nan, "drafter")
    assert given == judged("of_broken", False, np.nan, "drafter")
    assert given[0] == told(HOST)[0]
    assert "the drafter's logits for position" in given[1]


def test_what_only_the_cpu_can_do_is_done_there() -> None:
    tokens = judged("hooked", True)
    assert tokens == judged("hooked", False)
    assert all(token % 2 == 1 for token in tokens)
    assert told(DEVICE, logprobs=3)[:2] == told(HOST, logprobs=3)[:2]


def test_memory_grows_with_what_is_judged() -> None:
    assert judged("workspace_grows") == [[3, 4], list(range(3, 12)), [3]]


def test_the_script_for_a_gpu_checks_an_engine() -> None:
    assert judged("gpu_script") == {"tokens": 4, "failures": []}
