"""close() with requests running, waiting and half read: each of them ends with Closed."""

import time

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm

slow = NumpyLm(before=lambda *_: time.sleep(0.02))
for target, drafter in (
    (slow, slow),
    (dsi.SimulatedModel(1e-4), dsi.SimulatedModel(2e-5, acceptance=0.8)),
    (dsi.SimulatedModel(0.05, stoppable=False), dsi.SimulatedModel(0.01, stoppable=False)),
):
    engine = dsi.Engine(target, drafter, sp=3, max_running=2)
    requests = [engine.submit(strict.PROMPT, **strict.FOREVER) for _ in range(6)]
    next(requests[0].tokens())
    engine.close()
    strict.eventually(lambda: strict.own_threads() == 0)
    for request in requests:
        try:
            request.result()
        except dsi.Closed:
            continue
        raise AssertionError("no Closed")
