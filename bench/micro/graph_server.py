"""What the host adds to a forward on a GPU: the graph server on a CUDA driver without a device.

One target server decodes token by token; each forward is a graph that takes --forward-us. Per job:
  completion to commit: from the stream reaching the job's event until its token is final;
  submit to launch: from there, where the next job is handed out too, until its ids are handed to
    the driver and the graph is next.
Three times: with nothing beside it; beside a native thread that computes all the time without the
GIL; beside a Python thread that does so with it. The last two differ by the GIL alone; the first
one also by processors that were asleep. Nobody reads meanwhile: waking a reader is no part of it.
The fake driver wakes a waiting host as the operating system wakes a thread; how long a real device
takes to say that it is done is not in here, and no GPU is.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "e2e"), str(ROOT / "tests" / "python")]
from rig import report  # noqa: E402

import dsi_native as dsi  # noqa: E402
from fake_cuda import FakeCuda, build  # noqa: E402
from fake_gpu import FakeGpuModel, moments  # noqa: E402

MOST_US = 50.0
MOST_MORE = 0.20
PROMPT = [1, 2, 3]


def job_times(fake: FakeCuda, forward_s: float, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds from event to commit and from commit to launch, of each job but the first."""
    fake.reset(1)
    model = FakeGpuModel(fake, delay_s=forward_s, capacity=tokens + 8)
    with dsi.Engine(model, None, sp=1, mode="non-si") as engine:
        request = engine.submit(PROMPT, max_new_tokens=tokens, record=True)
        while engine.unfinished:
            time.sleep(0.01)
        if len(request.result().tokens) != tokens:
            raise SystemExit("the request ended early")
        ending = request._ticket.ending()
    told = moments(fake)
    copies, launches, events = (np.array([at for at, kind in told if kind == k]) for k in "ile")
    commits = np.array([time_s for time_s, *_ in ending["commits"]]) + ending["origin_s"]
    if not len(launches) == len(events) == len(commits) == tokens:
        raise SystemExit(f"{tokens} tokens, {len(launches)} launches, {len(commits)} commits")
    done = (commits - events * 1e-9) * 1e6
    begun = (copies[1:] * 1e-9 - commits[:-1]) * 1e6
    return done[1:], begun


class Busy:
    """A thread that never waits: with the GIL, or in native code without it."""

    def __init__(self, fake: FakeCuda | None) -> None:
        self._end = ctypes.c_int(0)
        self._thread = threading.Thread(target=self._compute if fake is None else self._spin)
        self._fake = fake

    def _compute(self) -> None:
        x = 0
        while self._end.value == 0:
            x = (x * 31 + 7) % 1_000_003

    def _spin(self) -> None:
        self._fake.library.fake_cuda_spin(ctypes.byref(self._end))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._end.value = 1
        self._thread.join()


def main() -> int:
    """Exit status 1 where a median is above 50 us, or the GIL adds over 20 % to one."""
    parser = report.options(__doc__)
    parser.add_argument("--forward-us", type=float, default=1000.0)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--runs", type=int)
    short, full = {"tokens": 200, "runs": 10}, {"tokens": 2000, "runs": 10}
    arguments = report.filled(parser.parse_args(), short, full)
    facts = report.begin("graph server: what the host adds to a forward, on a fake device")
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise SystemExit("a C++ compiler is missing, to build the fake driver")
    with tempfile.TemporaryDirectory() as folder:
        fake = FakeCuda(build(compiler, Path(folder) / "libfake_cuda.so"))
        beside = {
            "nothing": contextlib.nullcontext,
            "a busy native thread": lambda: Busy(fake),
            "a busy Python thread": lambda: Busy(None),
        }
        times: dict[str, list[Any]] = {name: [] for name in beside}
        for _ in range(arguments.runs):
            for name, busy in beside.items():
                with busy():
                    times[name].append(
                        job_times(fake, arguments.forward_us * 1e-6, arguments.tokens)
                    )
    shown = report.table(
        f"Microseconds per job, {arguments.runs} interleaved runs of {arguments.tokens} jobs",
        *("beside", "completion to commit p50", "p99", "submit to launch p50", "p99"),
    )
    rows = {}
    for name, runs in times.items():
        figures = [
            np.percentile(np.concatenate(part), (50, 99)) for part in zip(*runs, strict=True)
        ]
        rows[name] = [float(x) for pair in figures for x in pair]
        shown.add_row(name, *(f"{x:.1f}" for x in rows[name]))
    report.console.print(shown)
    _, native, python = rows.values()
    ratios = [python[i] / native[i] for i in (0, 2)]
    highest = max(row[i] for row in rows.values() for i in (0, 2))
    holds = highest < MOST_US and max(ratios) < 1 + MOST_MORE
    report.console.print(
        f"p50 with the GIL held against not: {ratios[0]:.2f}x and {ratios[1]:.2f}x; "
        f"{'holds' if holds else 'DOES NOT HOLD'}: no more than {MOST_MORE:.0%} above, and all "
        f"p50 under {MOST_US:.0f} us"
    )
    report.end(facts, arguments, rows=rows, holds=holds)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
