"""An exception in a drafter: the text is the same, the run goes on, later requests too."""

import time

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm, greedy

text = greedy(NumpyLm(), strict.PROMPT, 30)
calls = []


def drafter(tokens, most):
    calls.append(len(tokens))
    if len(tokens) > 12:
        raise ValueError("no more drafts")
    return text[len(tokens) - 5 :][:2]


target = NumpyLm(before=lambda *_: time.sleep(0.001))
for mode in ("si", "dsi"):
    engine = dsi.Engine(target, drafter, mode=mode)
    for _ in range(5):
        out = engine.generate(strict.PROMPT, max_new_tokens=30)
        assert out.tokens == text
        assert out.statistics.drafter_error.startswith("ValueError: no more drafts")
