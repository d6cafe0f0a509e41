"""The engine under asyncio: nothing blocks the loop, and a cancelled task cancels its request."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import dsi_native as dsi
from byte_level import SCRIPT, STORY, TOKENIZER
from dsi_native.errors import Cancelled, Closed, RequestFailed
from numpy_lm import NumpyLm, ScriptedLm, greedy

PROMPT = [3, 1, 4, 1, 5]
TEXT = greedy(NumpyLm(), PROMPT, 24)
FOREVER = {"max_new_tokens": 10**6}


@pytest.fixture
def engine() -> Iterator[dsi.Engine]:
    slow = NumpyLm(before=lambda *_: time.sleep(0.002))
    with dsi.Engine(slow, NumpyLm(noise=0.2)) as made:
        yield made


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(main(), 30), debug=True)


async def freed(engine: dsi.Engine) -> bool:
    for _ in range(1000):
        if engine.unfinished == 0:
            return True
        await asyncio.sleep(0.005)
    return False


def test_generate(engine: dsi.Engine) -> None:
    async def main() -> None:
        out = await engine.agenerate(PROMPT, max_new_tokens=24)
        assert out.tokens == TEXT
        outs = await engine.agenerate([PROMPT, PROMPT], max_new_tokens=24)
        assert [out.tokens for out in outs] == [TEXT, TEXT]
        outs = await asyncio.gather(
            *(engine.agenerate([3, 1, n], max_new_tokens=12) for n in range(12))
        )
        assert [out.tokens for out in outs] == [greedy(NumpyLm(), [3, 1, n], 12) for n in range(12)]
        assert (await engine.submit(PROMPT, max_new_tokens=24).aresult()).tokens == TEXT

    run(main)


def test_the_loop_is_never_blocked(engine: dsi.Engine) -> None:
    async def main() -> None:
        longest = 0.0

        async def tick() -> None:
            nonlocal longest
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.005)
                longest = max(longest, time.monotonic() - before)

        ticking = asyncio.ensure_future(tick())
        with contextlib.suppress(RequestFailed):
            await engine.agenerate(PROMPT, timeout=0.4, **FOREVER)
        ticking.cancel()
        assert 0 < longest < 0.2

    run(main)


def test_stream() -> None:
    async def main() -> None:
        target = ScriptedLm(SCRIPT, 340)
        target.tokenizer = TOKENIZER
        with dsi.Engine(target, target.drafter(wrong_every=5)) as engine:
            stream = engine.stream([5], max_new_tokens=len(SCRIPT))
            pieces = [piece async for piece in stream]
            assert "".join(pieces) == stream.result.text == STORY
            assert len(pieces) > 15
            stream = engine.stream([5], max_new_tokens=len(SCRIPT), stop="stops")
            assert "".join([piece async for piece in stream]) == STORY[: STORY.index("stops")]
            assert stream.result.finish_reason == "stop_string"

    run(main)


def test_a_stream_left_early_frees_its_slot() -> None:
    async def main() -> None:
        target = ScriptedLm(SCRIPT * 10_000, 340)
        target.tokenizer = TOKENIZER
        with dsi.Engine(target, None, sp=1) as engine:
            stream = engine.stream([5], **FOREVER)
            async for _ in stream:
                break
            stream.close()
            assert await freed(engine)
            async for _ in engine.stream([5], **FOREVER):
                break
            gc.collect()
            assert await freed(engine)
            with pytest.raises(Cancelled):
                async for _ in stream:
                    pass

    run(main)


@pytest.mark.parametrize("many", [False, True])
def test_a_cancelled_task_cancels_its_request(engine: dsi.Engine, many: bool) -> None:
    async def main() -> None:
        prompt = [PROMPT, PROMPT] if many else PROMPT
        task = asyncio.ensure_future(engine.agenerate(prompt, **FOREVER))
        await asyncio.sleep(0.05)
        assert engine.unfinished == 1 + many
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await freed(engine)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.agenerate(prompt, **FOREVER), 0.05)
        assert await freed(engine)
        assert (await engine.agenerate(PROMPT, max_new_tokens=24)).tokens == TEXT

    run(main)


def test_failures(engine: dsi.Engine) -> None:
    def fails(prefix: Any, logits: Any) -> None:
        raise KeyError("no such state")

    async def main() -> None:
        began = time.monotonic()
        with pytest.raises(RequestFailed, match="ran out of time"):
            await engine.agenerate(PROMPT, timeout=0.1, **FOREVER)
        assert 0.05 < time.monotonic() - began < 1
        with pytest.raises(RequestFailed, match="no such state") as failure:
            await engine.agenerate(PROMPT, logits_processor=fails)
        assert isinstance(failure.value.__cause__, KeyError)
        with pytest.raises(ValueError, match="prompt: is empty"):
            await engine.agenerate([])
        with pytest.raises(RequestFailed, match="no such state"):
            await engine.agenerate([PROMPT, PROMPT], logits_processor=fails)
        request = engine.submit(PROMPT, **FOREVER)
        waiting = asyncio.ensure_future(request.aresult())
        await asyncio.sleep(0.02)
        request.cancel()
        with pytest.raises(Cancelled):
            await waiting
        waiting = asyncio.ensure_future(engine.agenerate(PROMPT, **FOREVER))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(engine.close)
        with pytest.raises(Closed):
            await waiting

    run(main)


def test_out_of_time_while_a_forward_blocks() -> None:
    async def main() -> None:
        with dsi.Engine(NumpyLm(before=lambda *_: time.sleep(0.6)), None, sp=1) as engine:
            began = time.monotonic()
            with pytest.raises(RequestFailed, match="ran out of time"):
                await engine.agenerate(PROMPT, timeout=0.1)
            assert time.monotonic() - began < 0.4

    run(main)


def test_without_a_file_descriptor_left(engine: dsi.Engine) -> None:
    async def main() -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = max(int(name) for name in os.listdir("/proc/self/fd")) + 1  # noqa: PTH208
        fillers = [os.dup(0) for _ in range(taken - len(os.listdir("/proc/self/fd")) + 1)]  # noqa: PTH208
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(fillers) + 1, limits[1]))
        try:
            assert engine.submit(PROMPT)._ticket.event_fd == -1
            out = await engine.agenerate(PROMPT, max_new_tokens=24)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for descriptor in fillers:
                os.close(descriptor)
        assert out.tokens == TEXT

    run(main)


def test_one_engine_under_several_loops(engine: dsi.Engine) -> None:
    async def main() -> list[int]:
        return (await engine.agenerate(PROMPT, max_new_tokens=24)).tokens

    assert [run(main) for _ in range(3)] == [TEXT] * 3


def test_a_loop_that_ends_with_an_open_stream(engine: dsi.Engine) -> None:
    async def main() -> Any:
        stream = engine.stream(PROMPT, **FOREVER).__aiter__()
        task = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0.02)
        return stream, task  # asyncio.run cancels the task, and with it the request

    stream, task = run(main)
    assert task.cancelled()
    deadline = time.monotonic() + 5
    while engine.unfinished and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.unfinished == 0
    del stream
