"""Engines that are dropped, alone and in cycles of garbage, end their threads."""

import gc
import weakref

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm


def dropped() -> None:
    engine = dsi.Engine(NumpyLm(), NumpyLm())
    engine.generate(strict.PROMPT, max_new_tokens=5)


def in_a_cycle(busy: bool) -> weakref.ref:
    model = NumpyLm()
    engine = dsi.Engine(model, model)
    model.engine = engine  # model -> engine -> native engine -> servers -> model
    model.itself = model
    if busy:
        model.request = engine.submit(strict.PROMPT, **strict.FOREVER)
        next(model.request.tokens())
    return weakref.ref(model)


def collected(model: weakref.ref) -> bool:
    """Whether nothing is left. What a forward works on at this moment is no garbage yet."""
    gc.collect()
    return model() is None and strict.own_threads() == 0


def a_failure_that_knows_its_reader() -> weakref.ref:
    def fail(tokens, first, job) -> None:
        raise OSError("device lost")

    model = NumpyLm(before=fail)
    model.request = dsi.Engine(model, None, sp=1).submit(strict.PROMPT)
    try:
        model.request.result()
    except dsi.RequestFailed as error:
        # request -> ticket -> error -> frames of the server -> model -> request
        assert isinstance(error.__cause__, OSError)
    return weakref.ref(model)


def hook_that_knows_the_engine() -> None:
    engine = dsi.Engine(NumpyLm(), None, sp=1)
    request = engine.submit(
        strict.PROMPT,
        logits_processor=lambda prefix, logits: None if engine else logits,
        **strict.FOREVER,
    )
    next(request.tokens())


dropped()
strict.eventually(lambda: strict.own_threads() == 0)
gc.disable()
for busy in (False, True):
    model = in_a_cycle(busy)
    strict.eventually(lambda: strict.own_threads() == 3)
    strict.eventually(lambda model=model: collected(model))
model = a_failure_that_knows_its_reader()
strict.eventually(lambda: collected(model))
gc.enable()
hook_that_knows_the_engine()
gc.collect()
strict.eventually(lambda: strict.own_threads() == 0)
