"""close() in one thread while others wait in generate, stream and close: they get Closed."""

import threading
import time

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm

engine = dsi.Engine(NumpyLm(before=lambda *_: time.sleep(0.05)), NumpyLm())
ends = []


def waits(wait) -> None:
    try:
        wait()
        ends.append("returned")
    except dsi.Closed:
        ends.append("closed")


threads = [
    threading.Thread(target=waits, args=(wait,))
    for wait in (
        lambda: engine.generate([strict.PROMPT] * 3, **strict.FOREVER),
        lambda: list(engine.stream(strict.PROMPT, **strict.FOREVER)),
        engine.close,
        engine.close,
    )
]
for thread in threads[:2]:
    thread.start()
strict.eventually(lambda: engine.unfinished == 4)
timer = threading.Timer(0.05, engine.close)
timer.start()
try:
    engine.generate(strict.PROMPT, **strict.FOREVER)
except dsi.Closed:
    ends.append("closed")
for thread in threads[2:]:
    thread.start()
for thread in (timer, *threads):
    thread.join()
assert sorted(ends) == ["closed"] * 3 + ["returned"] * 2, ends
