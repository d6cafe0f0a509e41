"""A forked child gets Closed and can make engines of its own; the parent goes on."""

import gc
import os
import sys

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm, greedy


def child() -> None:
    for use in (
        lambda: engine.generate(strict.PROMPT),
        lambda: engine.submit(strict.PROMPT),
        lambda: request.result(),
        lambda: list(request.tokens()),
        lambda: list(request.pieces()),
        lambda: request.statistics,
        lambda: engine.unfinished,
    ):
        try:
            use()
        except dsi.Closed as error:
            assert "parent" in str(error)
        else:
            raise AssertionError("no Closed")
    request.cancel()
    engine.close()
    with dsi.Engine(NumpyLm(), NumpyLm()) as own:
        assert own.generate(strict.PROMPT, max_new_tokens=12).tokens == text
    globals().pop("request")
    globals().pop("engine")
    gc.collect()


def wait_for(pid: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


text = greedy(NumpyLm(), strict.PROMPT, 12)
engine = dsi.Engine(NumpyLm(), NumpyLm(noise=0.2))
request = engine.submit(strict.PROMPT, **strict.FOREVER)
tokens = request.tokens()
for _ in range(4):  # while the workers are busy, so that a lock may be held somewhere
    next(tokens)
    if (pid := os.fork()) == 0:
        child()
        sys.exit()
    wait_for(pid)
    assert engine.generate(strict.PROMPT, max_new_tokens=12).tokens == text
request.cancel()
