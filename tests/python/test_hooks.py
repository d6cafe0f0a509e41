"""logits_processor: the one hook for custom processors and grammar masks."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsi_native as dsi
from dsi_native.errors import RequestFailed
from numpy_lm import NumpyLm, greedy

PROMPT = [3, 1, 4, 1, 5]
MODES = ("non-si", "si", "dsi")
TEXT = greedy(NumpyLm(), PROMPT, 24)


def slow_target() -> NumpyLm:
    return NumpyLm(before=lambda *_: time.sleep(0.002))


def worker() -> str:
    return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()


def alternate(prefix: np.ndarray, logits: np.ndarray) -> None:
    """A grammar: odd ids follow even ones. A prefix that breaks it is an error."""
    parity = prefix[len(PROMPT) - 1 :] % 2
    if (parity[1:] == parity[:-1]).any():
        raise AssertionError(f"{prefix} is no prefix of the grammar")
    logits[prefix[-1] % 2 :: 2] = -np.inf


def alternate_in_place(logits: np.ndarray, path: list[int]) -> None:
    alternate(np.array(path), logits)


GRAMMATICAL = greedy(NumpyLm(), PROMPT, 24, alternate_in_place)


def ungrammatical(tokens: np.ndarray, most: int) -> list[int]:
    """Drafts of which the first is right and the next one breaks the grammar."""
    at = len(tokens) - len(PROMPT)
    right = GRAMMATICAL[at : at + 1]
    last = right[-1] if right else int(tokens[-1])
    return [*right, last ^ 2, last, last][:most]


@pytest.mark.parametrize("drafter", [NumpyLm(noise=0.2), NumpyLm(), ungrammatical, "lookup"])
@pytest.mark.parametrize("mode", MODES)
def test_a_grammar_holds_whatever_is_drafted(drafter: Any, mode: str) -> None:
    with dsi.Engine(slow_target(), drafter, mode=mode, sp=3, lookahead=2) as engine:
        out = engine.generate(PROMPT, max_new_tokens=24, logits_processor=alternate)
        assert out.tokens == GRAMMATICAL
        assert engine.generate(PROMPT, max_new_tokens=24).tokens == TEXT
    if drafter is ungrammatical and mode != "non-si":
        assert out.statistics.accepted > 0 < out.statistics.rejected


@pytest.mark.parametrize("mode", MODES)
def test_called_with_the_true_prefix_of_each_row(mode: str) -> None:
    calls: list[tuple[str, np.ndarray, np.ndarray]] = []

    def note(prefix: np.ndarray, logits: np.ndarray) -> None:
        assert prefix.dtype == np.int32 and prefix.ndim == 1
        assert logits.dtype == np.float32 and logits.shape == (64,)
        assert not prefix.flags.writeable
        calls.append((worker(), prefix, logits))

    with dsi.Engine(slow_target(), NumpyLm(noise=0.2), mode=mode, lookahead=4) as engine:
        out = engine.generate(PROMPT, max_new_tokens=24, logits_processor=note)
    assert out.tokens == TEXT
    path = [*PROMPT, *out.tokens]
    by_target = [prefix.tolist() for name, prefix, _ in calls if name.startswith("dsi-target")]
    assert {name for name, *_ in calls} <= {"dsi-target-0", "dsi-target-1", "dsi-drafter"}
    if mode != "dsi":  # which also looks ahead of the committed text
        assert by_target == [path[:n] for n in range(len(PROMPT), len(path))]
    assert {tuple(path[:n]) for n in range(len(PROMPT), len(path))} <= set(map(tuple, by_target))
    for name, prefix, logits in calls:  # kept arrays keep their contents
        noise = 0.2 if name == "dsi-drafter" else 0
        assert np.array_equal(logits, NumpyLm(noise=noise).logits(prefix)[0])


@pytest.mark.parametrize(
    "answer",
    [
        lambda logits: logits[::-1].copy(),
        lambda logits: logits[::-1],
        lambda logits: logits[::-1].astype(np.float64),
        lambda logits: list(map(float, logits[::-1])),
    ],
)
def test_a_new_array_may_be_returned(answer: Any) -> None:
    def reverse(logits: np.ndarray, path: list[int]) -> None:
        logits[:] = logits[::-1].copy()

    with dsi.Engine(slow_target(), NumpyLm()) as engine:
        out = engine.generate(
            PROMPT, max_new_tokens=8, logits_processor=lambda prefix, logits: answer(logits)
        )
    assert out.tokens == greedy(NumpyLm(), PROMPT, 8, reverse)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            lambda logits: logits[:5],
            r"logits_processor: .* shape \(5,\), expected .* shape \(64,\)",
        ),
        (lambda logits: logits[None], r"logits_processor: returned ndarray of shape \(1, 64\)"),
        (lambda logits: "text", "logits_processor: returned str, expected numbers"),
        (lambda logits: logits * np.nan, "NaN"),
        (lambda logits: logits - np.inf, "-inf"),
    ],
)
def test_wrong_answers_fail_the_request(answer: Any, says: str) -> None:
    with dsi.Engine(NumpyLm(), NumpyLm()) as engine:
        with pytest.raises(RequestFailed, match=says):
            engine.generate(PROMPT, logits_processor=lambda prefix, logits: answer(logits))
        assert engine.generate(PROMPT, max_new_tokens=24).tokens == TEXT


@pytest.mark.parametrize("mode", MODES)
def test_a_raising_hook_fails_only_its_request(mode: str) -> None:
    def fails(prefix: np.ndarray, logits: np.ndarray) -> None:
        if len(prefix) == len(PROMPT) + 5:
            raise KeyError("no such state")

    with dsi.Engine(slow_target(), NumpyLm(), mode=mode) as engine:
        for _ in range(4):  # more often than a server may fail
            others = [engine.submit(PROMPT, max_new_tokens=24) for _ in range(2)]
            request = engine.submit(PROMPT, max_new_tokens=24, logits_processor=fails)
            with pytest.raises(RequestFailed, match="KeyError: 'no such state'") as failure:
                request.result()
            assert isinstance(failure.value.__cause__, KeyError)
            assert request._tokens == TEXT[:5]
            assert [other.result().tokens for other in others] == [TEXT, TEXT]


@pytest.mark.parametrize("mode", ["si", "dsi"])
def test_a_hook_that_fails_on_the_drafter_costs_speed_only(mode: str) -> None:
    def fails(prefix: np.ndarray, logits: np.ndarray) -> None:
        if worker() == "dsi-drafter" and len(prefix) > len(PROMPT) + 3:
            raise ValueError("not this one")

    with dsi.Engine(slow_target(), NumpyLm(), mode=mode) as engine:
        out = engine.generate(PROMPT, max_new_tokens=24, logits_processor=fails)
        assert out.tokens == TEXT
        assert out.statistics.drafter_error == "ValueError: not this one"
        assert engine.generate(PROMPT, max_new_tokens=24).statistics.drafter_error == ""


def test_a_hook_is_dropped_with_its_request() -> None:
    class Mask:
        def __call__(self, prefix: np.ndarray, logits: np.ndarray) -> None:
            pass

    with dsi.Engine(NumpyLm(), NumpyLm()) as engine:
        mask = Mask()
        gone = weakref.ref(mask)
        engine.generate(PROMPT, max_new_tokens=4, logits_processor=mask)
        del mask
        deadline = time.monotonic() + 5
        while gone() is not None and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.01)
        assert gone() is None
