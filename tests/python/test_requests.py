"""Requests that are cancelled, late, dropped, forgotten, or many at once."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsi_native as dsi
from dsi_native.errors import Cancelled, Closed, Error, RequestFailed
from numpy_lm import NumpyLm, greedy

PROMPT = [3, 1, 4, 1, 5]
TEXT = greedy(NumpyLm(), PROMPT, 24)
FOREVER = {"max_new_tokens": 10**6}


def eventually(true: Callable[[], bool], within_s: float = 10) -> bool:
    deadline = time.monotonic() + within_s
    while not true() and time.monotonic() < deadline:
        time.sleep(0.005)
    return true()


def own_threads() -> int:
    """Ask through `eventually`: the kernel lists a thread a moment longer than join waits."""
    count = 0
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # ended since it was listed
            count += path.read_text().startswith("dsi-")
    return count


class Gate:
    """A target whose forwards wait until it is open."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.model = NumpyLm(before=self.wait)

    def wait(self, tokens: np.ndarray, first: int, job: Any) -> None:
        self.entered.set()
        assert self.open.wait(30)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


@pytest.fixture
def engine() -> Iterator[dsi.Engine]:
    slow = NumpyLm(before=lambda *_: time.sleep(0.002))
    with dsi.Engine(slow, NumpyLm(noise=0.2)) as made:
        yield made


def test_cancel(engine: dsi.Engine) -> None:
    request, other = (engine.submit(PROMPT, **FOREVER) for _ in range(2))
    tokens = request.tokens()
    assert [next(tokens) for _ in range(5)] == TEXT[:5]
    request.cancel()
    with pytest.raises(Cancelled, match="cancelled"):
        request.result()
    with pytest.raises(Cancelled):
        request.result()  # and again, not only once
    assert request.done and request.statistics.new_tokens >= 5
    assert not other.done, "cancelling one leaves the other"
    other.cancel()
    other.cancel()
    assert eventually(lambda: engine.unfinished == 0)
    done = engine.submit(PROMPT, max_new_tokens=24)
    assert done.result().tokens == TEXT
    done.cancel()
    assert done.result().tokens == TEXT, "too late to change anything"


def test_a_waiting_request_can_be_cancelled(gate: Gate) -> None:
    with dsi.Engine(gate.model, None, sp=1, max_running=1) as engine:
        first = engine.submit(PROMPT, max_new_tokens=24)
        second = engine.submit(PROMPT, max_new_tokens=24)
        third = engine.submit(PROMPT, max_new_tokens=24)
        assert gate.entered.wait(10)
        second.cancel()
        with pytest.raises(Cancelled):
            second.result()
        assert second.statistics.time_to_first_token_s is None
        gate.open.set()
        assert first.result().tokens == third.result().tokens == TEXT
        assert third.statistics.queued_s > 0


def test_result_with_a_timeout_goes_on_afterwards(gate: Gate) -> None:
    with dsi.Engine(gate.model, NumpyLm()) as engine:
        request = engine.submit(PROMPT, max_new_tokens=24)
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="still running"):
            request.result(timeout=0.1)
        assert 0.1 <= time.monotonic() - began < 1
        with pytest.raises(TimeoutError):
            request.result(timeout=0)
        assert not request.done and request.statistics is None
        gate.open.set()
        assert request.result(timeout=20).tokens == TEXT


def test_a_request_that_runs_out_of_time(engine: dsi.Engine) -> None:
    began = time.monotonic()
    with pytest.raises(RequestFailed, match="ran out of time") as failure:
        engine.generate(PROMPT, timeout=0.15, **FOREVER)
    assert type(failure.value) is RequestFailed
    assert 0.1 < time.monotonic() - began < 1
    assert engine.generate(PROMPT, max_new_tokens=24, timeout=30).tokens == TEXT


def test_out_of_time_while_a_forward_blocks_or_others_run(gate: Gate) -> None:
    with dsi.Engine(gate.model, None, sp=1, max_running=1) as engine:
        running = engine.submit(PROMPT, max_new_tokens=24)
        waiting = engine.submit(PROMPT, timeout=0.1)
        unread = engine.submit(PROMPT, timeout=0.1)
        with pytest.raises(RequestFailed, match="ran out of time"):
            waiting.result()
        time.sleep(0.05)
        gate.open.set()
        assert running.result().tokens == TEXT
        assert eventually(lambda: unread.done), "late requests end also where nobody waits"
        with pytest.raises(RequestFailed, match="ran out of time"):
            unread.result()


def test_a_dropped_request_frees_its_slot(gate: Gate) -> None:
    with dsi.Engine(gate.model, None, sp=1, max_running=1) as engine:
        dropped = engine.submit(PROMPT, **FOREVER)
        kept = engine.submit(PROMPT, max_new_tokens=24)
        assert gate.entered.wait(10)
        del dropped
        gc.collect()
        assert eventually(lambda: engine.unfinished == 1)
        gate.open.set()
        assert kept.result().tokens == TEXT


def test_a_stream_closed_early_frees_its_slot(engine: dsi.Engine) -> None:
    with engine.stream(PROMPT, **FOREVER) as stream, pytest.raises(Error, match="not ended"):
        _ = stream.result
    assert eventually(lambda: engine.unfinished == 0)
    stream = engine.stream(PROMPT, **FOREVER)
    stream.close()
    with pytest.raises(Cancelled):
        list(stream)
    stream = engine.stream(PROMPT, **FOREVER)
    del stream
    assert eventually(lambda: engine.unfinished == 0)
    stream = engine.stream(PROMPT, max_new_tokens=24)
    assert list(stream) == []  # no tokenizer, no text
    assert stream.result.tokens == TEXT
    stream.close()
    assert stream.result.tokens == TEXT


def test_tokens_arrive_while_they_are_made(engine: dsi.Engine) -> None:
    request = engine.submit(PROMPT, max_new_tokens=24)
    tokens = request.tokens()
    assert next(tokens) == TEXT[0]
    assert not request.done
    assert [TEXT[0], *tokens] == TEXT
    assert request.result().tokens == TEXT


def test_an_error_nobody_waits_for() -> None:
    def fails(tokens: np.ndarray, first: int, job: Any) -> None:
        if tokens[0] == 9:
            raise OSError("device lost")

    with dsi.Engine(NumpyLm(before=fails), NumpyLm()) as engine:
        forgotten = [engine.submit([9, 1])]
        assert eventually(lambda: forgotten[0].done)
        forgotten.clear()
        assert engine.generate(PROMPT, max_new_tokens=24).tokens == TEXT


@pytest.mark.parametrize("mode", ["non-si", "si", "dsi"])
def test_a_target_that_raises_once_is_asked_again(mode: str) -> None:
    seen: list[int] = []

    def once(tokens: np.ndarray, first: int, job: Any) -> None:
        if first <= 8 <= len(tokens) and not seen:
            seen.append(len(tokens))
            raise OSError("a hiccup")
        time.sleep(0.001)

    with dsi.Engine(NumpyLm(before=once), NumpyLm(noise=0.1), mode=mode) as engine:
        out = engine.generate(PROMPT, max_new_tokens=24)
    assert out.tokens == TEXT
    assert out.statistics.failed_forwards == 1


@pytest.mark.parametrize("mode", ["non-si", "si", "dsi"])
def test_a_target_that_raises_twice_fails_that_request(mode: str) -> None:
    def always(tokens: np.ndarray, first: int, job: Any) -> None:
        if tokens[0] == 9:
            raise OSError(f"device {len(seen)} lost")
        time.sleep(0.001)

    seen: list[int] = []
    with dsi.Engine(NumpyLm(before=always), NumpyLm(), mode=mode) as engine:
        for _ in range(2):
            other = engine.submit(PROMPT, max_new_tokens=24)
            with pytest.raises(RequestFailed, match="OSError: device 0 lost") as failure:
                engine.generate([9, 1])
            assert isinstance(failure.value.__cause__, OSError)
            assert failure.value.__cause__.__traceback__ is not None
            assert other.result().tokens == TEXT


def test_a_failing_list_of_prompts_cancels_the_others() -> None:
    def fails(tokens: np.ndarray, first: int, job: Any) -> None:
        time.sleep(0.001)
        if tokens[0] == 9:
            raise OSError("device lost")

    with dsi.Engine(NumpyLm(before=fails), NumpyLm()) as engine:
        with pytest.raises(RequestFailed, match="device lost"):
            engine.generate([[9, 1], PROMPT, PROMPT], **FOREVER)
        assert eventually(lambda: engine.unfinished == 0)
        with pytest.raises(ValueError, match="prompt: is empty"):
            engine.generate([PROMPT, []], **FOREVER)
        assert eventually(lambda: engine.unfinished == 0)


@pytest.mark.parametrize("mode", ["si", "dsi"])
def test_a_drafter_that_raises_costs_speed_only(mode: str) -> None:
    def raises(tokens: np.ndarray, most: int) -> list[int]:
        if len(tokens) > 10:
            raise KeyError("no draft")
        return TEXT[len(tokens) - len(PROMPT) :][:1]

    slow = NumpyLm(before=lambda *_: time.sleep(0.002))
    with dsi.Engine(slow, raises, mode=mode) as engine:
        for _ in range(5):
            out = engine.generate(PROMPT, max_new_tokens=24)
            assert out.tokens == TEXT
            assert out.statistics.drafter_error.startswith("KeyError: 'no draft'")
        # After failures over three requests in a row the drafter has left the pool.
        assert engine.generate(PROMPT, max_new_tokens=2).tokens == TEXT[:2]


def test_several_threads_share_an_engine(engine: dsi.Engine) -> None:
    prompts = [[3, 1, n] for n in range(24)]

    def ask(prompt: list[int]) -> list[int]:
        return engine.generate(prompt, max_new_tokens=12).tokens

    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(ask, prompts))
    assert texts == [greedy(NumpyLm(), prompt, 12) for prompt in prompts]
    assert engine.unfinished == 0


def test_requests_share_the_servers_fairly(engine: dsi.Engine) -> None:
    long = engine.submit(PROMPT, **FOREVER)
    next(long.tokens())
    short = [engine.submit([n], max_new_tokens=12, mode="non-si") for n in range(4)]
    totals = [request.result().statistics.total_s for request in short]
    assert max(totals) < 3 * min(totals)
    assert not long.done
    long.cancel()


def test_many_engines_in_one_process() -> None:
    engines = [dsi.Engine(NumpyLm(seed=n), NumpyLm(seed=n)) for n in range(12)]
    requests = [engine.submit(PROMPT, max_new_tokens=12) for engine in engines]
    engines[0].close()
    for n, request in enumerate(requests[1:], 1):
        assert request.result().tokens == greedy(NumpyLm(seed=n), PROMPT, 12)
    assert eventually(lambda: own_threads() == 11 * 3)
    del engines, requests, request
    gc.collect()
    assert eventually(lambda: own_threads() == 0)


def test_closed_engines(engine: dsi.Engine) -> None:
    request = engine.submit(PROMPT, **FOREVER)
    engine.close()
    engine.close()
    with pytest.raises(Closed, match="engine was closed"):
        request.result()
    with pytest.raises(Closed, match="engine is closed"):
        engine.submit(PROMPT)
    with pytest.raises(Closed):
        engine.generate([PROMPT, PROMPT])
    request.cancel()
    assert engine.unfinished == 0


def test_a_server_that_closes_its_own_engine_is_refused() -> None:
    engines: list[dsi.Engine] = []

    def closes(tokens: np.ndarray, first: int, job: Any) -> None:
        if tokens[0] == 9:
            engines[0].close()

    with dsi.Engine(NumpyLm(before=closes), None, sp=1) as engine:
        engines.append(engine)
        with pytest.raises(RequestFailed, match="own servers"):
            engine.generate([9])
        assert engine.generate(PROMPT, max_new_tokens=24).tokens == TEXT
