"""Engines in atexit handlers: they work in those that run before this package's own, not after."""

import atexit

from numpy_lm import NumpyLm

ran = []


def late() -> None:
    assert ran == ["early"]
    for use in (lambda: engine.generate(PROMPT), lambda: dsi.Engine(NumpyLm(), None, sp=1)):
        try:
            use()
        except dsi.Closed:
            continue
        raise AssertionError("no Closed")
    engine.close()
    print("late")


atexit.register(late)  # before dsi_native is imported, so it runs after

import strict  # noqa: E402

import dsi_native as dsi  # noqa: E402

PROMPT = strict.PROMPT
engine = dsi.Engine(NumpyLm(), NumpyLm())


@atexit.register
def early() -> None:
    assert len(engine.generate(PROMPT, max_new_tokens=9).tokens) == 9
    with dsi.Engine(NumpyLm(), NumpyLm()) as own:
        assert len(own.generate(PROMPT, max_new_tokens=9).tokens) == 9
    ran.append("early")
    print("early")
