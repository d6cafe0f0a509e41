"""Ctrl-C while generate waits for a long forward: heard in 0.2 s. The exit then waits for it.

Arguments: what is slow (stoppable, unstoppable, python), how it is waited for (generate, batch,
stream, async, result), and how long a forward takes.
"""

import asyncio
import os
import signal
import sys
import threading
import time

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm

what, how, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
if what == "python":
    target = NumpyLm(before=lambda *_: time.sleep(seconds))
    engine = dsi.Engine(target, NumpyLm())
else:
    target = dsi.SimulatedModel(seconds, stoppable=what == "stoppable")
    engine = dsi.Engine(target, dsi.SimulatedModel(0.01))
sent = []


def interrupt() -> None:
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)


timer = threading.Timer(0.3, interrupt)
timer.start()
try:
    if how == "generate":
        engine.generate(strict.PROMPT)
    elif how == "batch":
        engine.generate([strict.PROMPT] * 3)
    elif how == "async":
        asyncio.run(engine.agenerate(strict.PROMPT))
    elif how == "stream":
        list(engine.stream(strict.PROMPT))
    else:
        engine.submit(strict.PROMPT).result(timeout=60)
except KeyboardInterrupt:
    took = time.monotonic() - sent[0]
    assert took < 0.2, f"back after {took:.3f} s"
else:
    raise AssertionError("no KeyboardInterrupt")
timer.join()
if how != "result":  # there the request stays the caller's to cancel
    assert engine.unfinished == 0
