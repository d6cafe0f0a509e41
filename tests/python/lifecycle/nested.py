"""An engine whose servers use another engine: closed in any order, or left to the exit."""

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm, greedy

text = greedy(NumpyLm(), strict.PROMPT, 12)


def make() -> dsi.Engine:
    inner = dsi.Engine(NumpyLm(), None, sp=1)
    inners.append(inner)

    def draft(tokens, most):
        return inner.generate(tokens, max_new_tokens=min(most, 3)).tokens

    return dsi.Engine(dsi.CallableModel(factory=lambda: forward), draft)


def forward(tokens, start):
    # Called with the new tokens only; one sequence is enough for a model of two tokens' memory.
    if start == 0:
        past.clear()
    del past[start:]
    past.extend(tokens.tolist())
    inners[-1].generate([1], max_new_tokens=1)
    return NumpyLm().logits(past, start + 1)


inners, past = [], []
with make() as outer:
    assert outer.generate(strict.PROMPT, max_new_tokens=12, mode="si").tokens == text
outer = make()
request = outer.submit(strict.PROMPT, **strict.FOREVER)
next(request.tokens())
inners[-1].close()
try:
    request.result()
except dsi.RequestFailed as error:
    assert isinstance(error.__cause__, dsi.Closed)
left = make()
request = left.submit(strict.PROMPT, **strict.FOREVER)
next(request.tokens())
