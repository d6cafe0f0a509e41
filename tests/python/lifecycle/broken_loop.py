"""asyncio.run ends with requests open: tasks cancelled, streams half read, a loop that failed."""

import asyncio
import contextlib

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm

engine = dsi.Engine(NumpyLm(), NumpyLm(noise=0.2))


async def leave_open() -> None:
    asyncio.ensure_future(engine.agenerate(strict.PROMPT, **strict.FOREVER))  # noqa: RUF006
    stream = engine.stream(strict.PROMPT, **strict.FOREVER)
    asyncio.ensure_future(stream.__anext__())  # noqa: RUF006
    await asyncio.sleep(0.05)


async def fail() -> None:
    asyncio.ensure_future(engine.agenerate(strict.PROMPT, **strict.FOREVER))  # noqa: RUF006
    await asyncio.sleep(0.02)
    raise KeyError("the loop's owner failed")


asyncio.run(leave_open())
strict.eventually(lambda: engine.unfinished == 0)
with contextlib.suppress(KeyError):
    asyncio.run(fail())
strict.eventually(lambda: engine.unfinished == 0)
