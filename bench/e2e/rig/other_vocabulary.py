"""The ways to decode that heterogeneous.py compares: a pair with two vocabularies."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rig.contestants import Run

SEED = 20250205


@dataclass(frozen=True)
class Way:
    """One way to decode.

    side: "dsi" or "transformers". mode: non-si, si, dsi; plain, assisted. method: tli, slem, auto;
    None where nothing is translated, or the library chooses. lookahead: most drafts per
    verification. break_even: drafting may stop where it does not pay.
    """

    side: str
    mode: str
    temperature: float
    method: str | None = None
    lookahead: int | str | None = None
    break_even: bool = False

    @property
    def name(self) -> str:
        words = {"non-si": "non-SI", "si": "SI", "dsi": "DSI"}
        parts = [self.side, words.get(self.mode, self.mode), self.method and self.method.upper()]
        parts += ["and break-even" if self.break_even else None]
        return " ".join(part for part in parts if part)

    @property
    def key(self) -> str:
        return f"{self.name}, lookahead {self.lookahead}, temperature {self.temperature}"


def ways(temperatures: list[float]) -> list[Way]:
    """All of them; for each temperature what others are compared with comes first."""
    found = []
    for temperature in temperatures:
        found.append(Way("dsi", "non-si", temperature))
        for mode in ("si", "dsi"):
            found += [Way("dsi", mode, temperature, method, "auto") for method in ("tli", "slem")]
        found.append(Way("dsi", "si", temperature, "auto", "auto", break_even=True))
        found.append(Way("transformers", "plain", temperature))
        # Text for greedy decoding, tokens for sampling; 20 drafts is its default.
        method = "tli" if temperature else "slem"
        for lookahead in (20, 5):
            found.append(Way("transformers", "assisted", temperature, method, lookahead))
    return found


@dataclass(frozen=True)
class Host:
    """A process that decodes in several ways. key: what messages call it."""

    key: str
    side: str
    threads: int


def hosts(chosen: list[Way], threads: int) -> dict[Host, list[Way]]:
    """Which ways share a process.

    transformers alters its assistant for good where it samples, and what fails ends its process:
    these are on their own.
    """
    found: dict[Host, list[Way]] = {}
    for way in chosen:
        key = way.key if way.mode == "assisted" else way.side
        found.setdefault(Host(key, way.side, threads), []).append(way)
    return found


def make(host: Host, target: Any, drafter: Any) -> Any:
    """run(way, ids, tokens) -> Run, in the process that calls it."""
    return (_transformers if host.side == "transformers" else _dsi)(host, target, drafter)


def _dsi(host: Host, target: Any, drafter: Any) -> Any:
    import dsi_native

    engines: dict[bool, Any] = {}

    def engine(break_even: bool) -> Any:
        if break_even not in engines:
            engines[break_even] = dsi_native.Engine(
                target, drafter, sp=1, threads=host.threads, break_even=break_even
            )
        return engines[break_even]

    def run(way: Way, ids: np.ndarray, tokens: int) -> Run:
        chosen = engine(way.break_even)
        start = time.perf_counter()
        out = chosen.generate(
            ids,
            max_new_tokens=tokens,
            temperature=way.temperature,
            seed=SEED,
            mode=way.mode,
            method=way.method,
            lookahead=way.lookahead,
            ignore_eos=True,
        )
        seconds = time.perf_counter() - start
        stats = out.statistics
        if stats.drafter_error:
            raise RuntimeError(f"{way.key}: {stats.drafter_error}")
        return Run(out.tokens, seconds, stats.target_forwards, stats.wasted_forwards, asdict(stats))

    return run


def _transformers(host: Host, target: Any, drafter: Any) -> Any:
    import torch

    from rig import transformers_side

    assistant = transformers_side.as_assistant(drafter)
    forwards = 0

    def count(*_: Any) -> None:
        nonlocal forwards
        forwards += 1

    target.model.register_forward_pre_hook(count)

    def run(way: Way, ids: np.ndarray, tokens: int) -> Run:
        nonlocal forwards
        options: dict[str, Any] = {}
        if way.mode == "assisted":
            assistant.generation_config.num_assistant_tokens = way.lookahead
            options = {
                "assistant_model": assistant,
                "tokenizer": target.tokenizer,
                "assistant_tokenizer": drafter.tokenizer,
            }
        if way.temperature:
            options |= {"do_sample": True, "temperature": way.temperature, "top_k": 0}
        torch.manual_seed(SEED)
        forwards = 0
        start = time.perf_counter()
        new = transformers_side.generate(target.model, ids, tokens, **options)
        return Run(new, time.perf_counter() - start, forwards)

    return run
