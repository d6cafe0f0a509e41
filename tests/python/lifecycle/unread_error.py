"""A request fails and nobody reads it; also one that is dropped before, and one kept for ever."""

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm


def fail(tokens, first, job) -> None:
    if tokens[0] == 9:
        raise OSError("device lost")


engine = dsi.Engine(NumpyLm(before=fail), NumpyLm())
kept = engine.submit([9])
dropped = engine.submit([9])
del dropped
strict.eventually(lambda: kept.done)
assert len(engine.generate(strict.PROMPT, max_new_tokens=9).tokens) == 9
