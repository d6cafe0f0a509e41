"""The interpreter exits while daemon threads wait inside generate, result, stream and submit."""

import asyncio
import threading

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm

engine = dsi.Engine(NumpyLm(), NumpyLm(noise=0.2), max_running=2)
simulated = dsi.Engine(dsi.SimulatedModel(1e-4), dsi.SimulatedModel(2e-5, acceptance=0.8))


def submits() -> None:
    while True:
        simulated.generate(strict.PROMPT, max_new_tokens=3)


def looped() -> None:
    asyncio.run(simulated.agenerate(strict.PROMPT, **strict.FOREVER))


def streams() -> None:
    for _ in simulated.submit(strict.PROMPT, **strict.FOREVER).tokens():
        started.set()


started = threading.Event()
for wait in (
    lambda: engine.generate(strict.PROMPT, **strict.FOREVER),
    lambda: engine.submit(strict.PROMPT, **strict.FOREVER).result(),
    lambda: list(simulated.stream(strict.PROMPT, **strict.FOREVER)),
    submits,
    looped,
    streams,
):
    threading.Thread(target=wait, daemon=True).start()
assert started.wait(10)
