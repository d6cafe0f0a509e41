"""The interpreter exits with a request running, one waiting and one half read, nothing closed."""

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm

simulated = dsi.Engine(dsi.SimulatedModel(1e-4), dsi.SimulatedModel(2e-5, acceptance=0.8))
tables = dsi.Engine(NumpyLm(), NumpyLm(noise=0.2), max_running=1)
assert len(simulated.generate(strict.PROMPT, max_new_tokens=20).tokens) == 20
running = [engine.submit(strict.PROMPT, **strict.FOREVER) for engine in (simulated, tables)]
waiting = tables.submit(strict.PROMPT)
half_read = running[0].tokens()
next(half_read)
