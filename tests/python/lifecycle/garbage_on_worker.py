"""The garbage collector meets a dropped engine on one of its own workers, and on another's."""

import gc
import threading
import time

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm

dropped = threading.Event()
collected = threading.Event()
on_workers = []


def collect(tokens, first, job) -> None:
    if dropped.wait(0.001) and not collected.is_set():
        gc.collect()
        on_workers.append(threading.current_thread().name)
        collected.set()


def make(before) -> None:
    model = NumpyLm(before=before)
    model.engine = dsi.Engine(model, None, sp=2)
    model.request = model.engine.submit(strict.PROMPT, **strict.FOREVER)
    next(model.request.tokens())


gc.disable()
make(collect)  # nothing but garbage refers to it now
dropped.set()
assert collected.wait(10)
gc.collect()

dropped.clear()
collected.clear()
other = dsi.Engine(NumpyLm(before=collect), None, sp=1)
request = other.submit(strict.PROMPT, **strict.FOREVER)
make(lambda *_: time.sleep(0.001))
dropped.set()
assert collected.wait(10)
assert threading.main_thread().name not in on_workers
request.cancel()
other.close()
