"""Many tokens through simulated and callable servers, with cancels; prints what the process holds.

    python soak.py TOKENS SECONDS_AT_MOST

One JSON line: tokens, seconds, and resident kB, Python objects, threads and open files by tenth of
the run. Requests of random length end in every way: read, cancelled, dropped, out of time, failed.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import sys
import time
from typing import Any

import dsi_native as dsi
from numpy_lm import NumpyLm

PROMPT = list(range(1, 20))


def resident_kb() -> int:
    with open("/proc/self/statm") as statm:  # noqa: PTH123
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def fails(prefix: Any, logits: Any) -> None:
    if len(prefix) > 40:
        raise ValueError("on purpose")


def engines() -> list[dsi.Engine]:
    simulated = dsi.SimulatedModel(1e-5), dsi.SimulatedModel(4e-6, acceptance=0.8)
    tables = NumpyLm(), NumpyLm(noise=0.15)
    return [
        dsi.Engine(*simulated, sp=2, lookahead=2),
        dsi.Engine(*tables, sp=2, lookahead=2, max_running=3),
    ]


def a_round(engine: dsi.Engine, draw: random.Random, share: int) -> int:
    """A handful of requests, about `share` tokens together; returns how many it was."""
    requests = []
    for way in ("read", "read", "stream", "cancel", "drop", "late", "fail"):
        options: dict[str, Any] = {"max_new_tokens": draw.randint(1, share // 3)}
        options["mode"] = draw.choice(["dsi", "dsi", "si", "non-si"])
        options["temperature"] = draw.choice([0.0, 0.8])
        options["verification"] = draw.choice(["coupled", "rejection"])
        if way == "late":
            options["timeout"] = 0.002
        if way == "fail" and isinstance(engine._pair.target, NumpyLm):
            options |= {"logits_processor": fails, "logprobs": 2}
        requests.append((way, engine.submit(PROMPT, **options)))
    tokens = 0
    for way, request in requests:
        try:
            if way == "cancel":
                request.cancel()
            if way == "drop":
                tokens += sum(1 for _ in itertools.islice(request.tokens(), 3))
                continue
            if way == "stream":
                list(request.pieces())
            tokens += len(request.result().tokens)
        except dsi.RequestFailed:
            tokens += request.statistics.new_tokens
    return tokens


def main(tokens: int, seconds: float) -> None:
    draw = random.Random(5)
    began = time.monotonic()
    done, samples, pair = 0, [], engines()
    for tenth in range(1, 11):
        while done < tokens * tenth // 10 and time.monotonic() - began < seconds:
            # Tables answer in about ten times the time, so they have a tenth of the tokens.
            done += a_round(pair[0], draw, 2000) + a_round(pair[1], draw, 200)
        for engine in pair:
            engine.close()
        pair = engines()
        gc.collect()
        open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
        samples.append([resident_kb(), len(gc.get_objects()), threads, open_files])
    took = time.monotonic() - began
    print(json.dumps({"tokens": done, "seconds": took, "samples": samples}))


if __name__ == "__main__":
    main(int(float(sys.argv[1])), float(sys.argv[2]))
