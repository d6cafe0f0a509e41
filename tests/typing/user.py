"""Checked by mypy, never run: what a user of the typed package writes."""

from __future__ import annotations

import asyncio

import numpy as np

import dsi_native as dsi


def forward(tokens: np.ndarray, start: int) -> np.ndarray:
    return np.zeros((len(tokens), 8), np.float32)


def text_of(engine: dsi.Engine, prompt: str) -> str:
    stream = engine.stream(prompt, max_new_tokens=8, temperature=0.5, seed=1)
    pieces: list[str] = list(stream)
    output: dsi.Output = stream.result
    statistics: dsi.Statistics = output.statistics
    rate: float | None = statistics.acceptance
    return "".join(pieces) if rate is None else output.text


def ids_of(engine: dsi.Engine) -> list[int]:
    request: dsi.Request = engine.submit([1, 2, 3])
    try:
        return request.result(timeout=1.0).tokens
    except dsi.RequestFailed:
        request.cancel()
        return []


async def pieces_of(engine: dsi.Engine) -> str:
    return "".join([piece async for piece in engine.stream("Hello")])


def main() -> None:
    target = dsi.CallableModel(forward, vocab_size=8)
    with dsi.Engine(target, "lookup", sp=1, lookahead="auto", mode="dsi") as engine:
        text_of(engine, "Hello")
        ids_of(engine)
        asyncio.run(pieces_of(engine))
    row: dsi.PlanRow = dsi.plan(30.0, 3.0, 0.8, sp=4)[2]
    assert row.ms_per_token < 30.0
