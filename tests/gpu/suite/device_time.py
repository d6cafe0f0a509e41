"""What the device did and when, from its own records: kernels and copies by stream."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")
Interval = tuple[float, float]
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def traced(run: Callable[[], T]) -> tuple[T, dict[int, list[Interval]]]:
    """What run() returns, and the device's work meanwhile: {stream: [(start, end) in us]}.

    Raises RuntimeError where the profiler sees no work of the device.
    """
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        answer = run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        work = work_by_stream(json.loads(path.read_text())["traceEvents"])
    if not work:
        raise RuntimeError("the profiler saw no work of the device")
    return answer, work


def work_by_stream(events: Iterable[dict[str, Any]]) -> dict[int, list[Interval]]:
    """From the events of a trace; intervals of a stream that touch or overlap are one."""
    found: dict[int, list[Interval]] = defaultdict(list)
    for event in events:
        if event.get("cat") in _WORK and "stream" in event.get("args", {}):
            start = float(event["ts"])
            found[int(event["args"]["stream"])].append((start, start + float(event["dur"])))
    return {stream: union(intervals) for stream, intervals in found.items()}


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time without overlaps, in order."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def length(intervals: Iterable[Interval]) -> float:
    """Of intervals that do not overlap."""
    return sum(end - start for start, end in intervals)


def common(one: Sequence[Interval], other: Sequence[Interval]) -> float:
    """How long both had work; each in order and without overlaps."""
    shared, i, j = 0.0, 0, 0
    while i < len(one) and j < len(other):
        shared += max(0.0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return shared


def busy(work: dict[int, list[Interval]]) -> float:
    """us in which any stream had work."""
    return length(union(interval for intervals in work.values() for interval in intervals))


__all__ = ["busy", "common", "length", "traced", "union", "work_by_stream"]
