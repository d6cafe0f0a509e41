"""Ways to decode one text with one pair of models: transformers' and an engine's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsi_native import Engine
from suite import models

Decode = Callable[[np.ndarray, int], "Run"]


@dataclass(frozen=True)
class Run:
    """One text. statistics: of an engine's request, None for transformers'."""

    tokens: list[int]
    seconds: float
    statistics: Any = None


@dataclass(frozen=True)
class Contestant:
    """side: "transformers" or "dsi". mode: plain, assisted, static; non-si, si, dsi.

    lookahead: drafts of a round, 0 where there is none.
    """

    side: str
    mode: str
    lookahead: int = 0
    sp: int = 1

    @property
    def name(self) -> str:
        words = {"non-si": "non-SI", "si": "SI", "dsi": f"DSI SP={self.sp}"}
        word = words.get(self.mode, f"{self.side} {self.mode}")
        return word + (f", lookahead {self.lookahead}" if self.lookahead else "")


def of_transformers(contestant: Contestant, target: Any, drafter: Any, compiled: bool) -> Decode:
    """generate() with the modules. compiled: whether a static cache's forward is compiled."""
    options: dict[str, Any] = {}
    if contestant.mode == "assisted":
        config = drafter.generation_config
        config.num_assistant_tokens = contestant.lookahead
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = 0.0
        options = {"assistant_model": drafter}
    elif contestant.mode == "static":
        options = {"cache_implementation": "static", "disable_compile": not compiled}

    def run(ids: np.ndarray, tokens: int) -> Run:
        begun = time.perf_counter()
        said = models.generate(target, ids, tokens, **options)
        return Run(said, time.perf_counter() - begun)

    return run


def of_engine(contestant: Contestant, engine: Engine) -> Decode:
    def run(ids: np.ndarray, tokens: int) -> Run:
        begun = time.perf_counter()
        out = engine.generate(ids, max_new_tokens=tokens, ignore_eos=True)
        return Run(out.tokens, time.perf_counter() - begun, out.statistics)

    return run


def engine_for(contestant: Contestant, target: Any, drafter: Any, threads: int | None) -> Engine:
    return Engine(
        target,
        None if contestant.mode == "non-si" else drafter,
        mode=contestant.mode,
        sp=contestant.sp,
        lookahead=max(1, contestant.lookahead),
        threads=threads,
        break_even=False,
    )


__all__ = ["Contestant", "Decode", "Run", "engine_for", "of_engine", "of_transformers"]
