"""An exception in a target: tried once more, then RequestFailed with the cause; the next works."""

import time

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm, greedy

text = greedy(NumpyLm(), strict.PROMPT, 12)
failures = []


def fail(tokens, first, job) -> None:
    time.sleep(0.001)
    if len(failures) < most and first <= 9 <= len(tokens):
        failures.append(first)
        raise OSError(f"failure {len(failures)}")


for mode in ("non-si", "si", "dsi"):
    failures.clear()
    most = 1
    engine = dsi.Engine(NumpyLm(before=fail), NumpyLm(noise=0.1), mode=mode)
    out = engine.generate(strict.PROMPT, max_new_tokens=12)
    assert out.tokens == text
    assert out.statistics.failed_forwards == 1
    failures.clear()
    most = 99
    try:
        engine.generate(strict.PROMPT, max_new_tokens=12)
    except dsi.RequestFailed as error:
        assert "OSError: failure" in str(error)
        assert isinstance(error.__cause__, OSError)
        kept = error  # with its traceback, until the process ends
    else:
        raise AssertionError("no RequestFailed")
    most = 0
    assert engine.generate(strict.PROMPT, max_new_tokens=12).tokens == text
