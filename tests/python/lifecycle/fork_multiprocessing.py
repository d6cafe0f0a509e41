"""multiprocessing with the fork method, while an engine works in the parent."""

import multiprocessing

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm, greedy


def use_parents(n: int) -> str:
    try:
        return str(engine.generate([n]).tokens)
    except dsi.Closed:
        return "closed"


def use_own(n: int) -> list:
    with dsi.Engine(NumpyLm(), NumpyLm()) as own:
        return own.generate([n], max_new_tokens=5).tokens


engine = dsi.Engine(NumpyLm(), NumpyLm())
request = engine.submit(strict.PROMPT, **strict.FOREVER)
next(request.tokens())
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(use_parents, range(4)) == ["closed"] * 4
    assert pool.map(use_own, range(4)) == [greedy(NumpyLm(), [n], 5) for n in range(4)]
    pool.close()
    pool.join()
request.cancel()
assert len(engine.generate(strict.PROMPT, max_new_tokens=5).tokens) == 5
