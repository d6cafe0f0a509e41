"""The same Session driven from Python: by threads and by asyncio, with forwards that wait.

Both give work by the rules of the native engine, stop forwards whose result is stale, and wait as
precisely as Python allows; what differs from the native engine is the language of the scheduler.
"""

from __future__ import annotations

import asyncio
import ctypes
import queue
import selectors
import threading
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from dsi_native import _core

_PR_SET_TIMERSLACK = 29
# The last stretch of a wait is spent looking at the clock; sleeps end late by about this much.
_SPIN_S = 100e-6


@dataclass(frozen=True)
class Script:
    """One run. targets, drafts: ids by position, the prompt's included. Times in seconds."""

    policy: _core.Policy
    sp: int
    tokens: int
    target_s: float
    drafter_s: float
    targets: list[int]
    drafts: list[int]

    def session(self) -> Any:
        return _core.Session([0], self.tokens, self.policy)


def precise_sleeps() -> None:
    """Lets this thread, and those it starts, sleep without Linux's 50 us of slack."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


class _Loop:
    """The decisions, without threads: who works on what, and what an answer leads to."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.session = script.session()
        self.emitted: list[int] = []
        self.idle = list(range(script.sp))  # the one that came free last is taken first
        self.drafting = False
        self.running: dict[int, Any] = {}  # job -> what stops it

    def tasks(self) -> list[tuple[int, int, int, int]]:
        """(server or -1, job, first, length) for each task that can start now."""
        given = []
        session = self.session
        while self.idle and session.verify_urgency():
            job, first, window = session.take_verify()
            given.append((self.idle.pop(), job, first, first + window))
        if not self.drafting and session.wants_draft():
            job, position, _ = session.take_draft()
            self.drafting = True
            given.append((-1, job, position, position))
        return given

    def answer(self, server: int, job: int, first: int, length: int, complete: bool) -> list[Any]:
        """Takes in one completion; returns what stops the tasks that became stale by it."""
        session, script = self.session, self.script
        self.running.pop(job, None)
        if server < 0:
            self.drafting = False
        else:
            self.idle.append(server)
        if not complete:
            session.stopped(job)
        elif server < 0:
            session.drafted(job, [script.drafts[first]])
        else:
            session.judged(job, script.targets[first : length + 1])
        self.emitted += session.take_emitted()
        return [self.running[stale] for stale in session.take_stale() if stale in self.running]


def run_threads(script: Script) -> tuple[float, list[int]]:
    """Seconds from the start to the last token, and the tokens. A thread and a queue per server."""
    loop = _Loop(script)
    lock = threading.Lock()
    ended = threading.Event()
    queues: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(script.sp + 1)]

    def dispatch() -> None:  # with the lock
        if loop.session.finished:
            ended.set()
            return
        for task in loop.tasks():
            stop = threading.Event()
            loop.running[task[1]] = stop
            queues[task[0]].put((task, stop))  # the drafter's is the last one, -1

    def serve(mine: queue.SimpleQueue[Any], length_s: float) -> None:
        while (item := mine.get()) is not None:
            task, stop = item
            deadline = monotonic() + length_s
            complete = not stop.wait(length_s - _SPIN_S)
            while complete and monotonic() < deadline:
                sleep(0)  # lets other threads have the GIL
                complete = not stop.is_set()
            with lock:
                for stale in loop.answer(*task, complete):
                    stale.set()
                dispatch()

    threads = [
        threading.Thread(
            target=serve, args=(queues[i], script.target_s if i < script.sp else script.drafter_s)
        )
        for i in range(script.sp + 1)
    ]
    for thread in threads:
        thread.start()
    start = monotonic()
    with lock:
        dispatch()
    ended.wait()
    total = monotonic() - start
    for mine in queues:
        mine.put(None)
    for thread in threads:
        thread.join()
    return total, loop.emitted


def run_asyncio(script: Script) -> tuple[float, list[int]]:
    """The same with one event loop and a task for each forward."""
    # epoll's timeouts are whole milliseconds, select's are microseconds.
    events = asyncio.SelectorEventLoop(selectors.SelectSelector())
    try:
        return events.run_until_complete(_asyncio(script))
    finally:
        events.close()


async def _asyncio(script: Script) -> tuple[float, list[int]]:
    loop = _Loop(script)
    ended = asyncio.Event()

    def dispatch() -> None:
        if loop.session.finished:
            ended.set()
            return
        for task in loop.tasks():
            length_s = script.drafter_s if task[0] < 0 else script.target_s
            future = asyncio.ensure_future(forward(length_s))
            loop.running[task[1]] = future
            # Not inside forward(): a task that is cancelled before its first step runs none of it.
            future.add_done_callback(lambda done, task=task: answer(task, not done.cancelled()))

    async def forward(length_s: float) -> None:
        deadline = monotonic() + length_s
        await asyncio.sleep(length_s - _SPIN_S)
        while monotonic() < deadline:
            await asyncio.sleep(0)

    def answer(task: tuple[int, int, int, int], complete: bool) -> None:
        for stale in loop.answer(*task, complete):
            stale.cancel()
        dispatch()

    start = monotonic()
    dispatch()
    await ended.wait()
    total = monotonic() - start
    await asyncio.gather(*loop.running.values(), return_exceptions=True)
    return total, loop.emitted
