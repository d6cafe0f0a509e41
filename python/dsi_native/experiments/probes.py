"""One quantity of a pair of models each, by an Engine that runs as it always does. Times in ms."""

from __future__ import annotations

import itertools
import statistics
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsi_native.engine import Engine
from dsi_native.experiments.measurement import MeasuredLatency
from dsi_native.experiments.recorded import RecordedDrafts, RecordedTarget, Text
from dsi_native.results import Output, Statistics

# Drafts judged by the forwards that are measured, besides the empty window.
WINDOWS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
# Drafts of a round while a drafter is measured: few, since those behind a wrong one tell nothing.
DRAFTS = 4
# Rounds of each window on each of so many texts.
_ROUNDS, _WINDOW_TEXTS = 2, 5
_OVERLAPPING_TOKENS = 24
_RESOLVED_MS = 0.01  # differences of shorter forwards are noise
_SOONEST_MS = 1e-6  # a time is positive, also where the clock did not move


def generate(engine: Engine, text: Text, tokens: int) -> Output:
    """`tokens` greedy tokens behind the prompt of `text`, past any end of sequence."""
    return engine.generate(text.start, max_new_tokens=tokens, ignore_eos=True)


def run_ms(of: Statistics) -> float:
    """A request's time without its wait for its turn."""
    return (of.total_s - of.queued_s) * 1e3


@dataclass(frozen=True)
class PlainRun:
    """non-SI of all prompts. overhead_ms: of a token, what is not forward."""

    texts: tuple[Text, ...]
    tpots_ms: tuple[float, ...]
    ttfts_ms: tuple[float, ...]
    overhead_ms: float


def plain_run(
    target: Any,
    prompts: Sequence[np.ndarray],
    tokens: int,
    threads: int | None,
) -> PlainRun:
    """The target alone."""
    texts, tpots, ttfts, overheads = [], [], [], []
    with Engine(target, None, sp=1, mode="non-si", threads=threads) as engine:
        generate(engine, Text(prompts[0], len(prompts[0])), 2)  # the first of all is slower
        for prompt in prompts:
            output = generate(engine, Text(prompt, len(prompt)), tokens)
            of = output.statistics
            texts.append(Text.of(prompt, output.tokens))
            tpots.append(of.time_per_token_s * 1e3)
            ttfts.append((of.time_to_first_token_s - of.queued_s) * 1e3)
            overheads.append(run_ms(of) * (1 - of.target_busy) / tokens)
    return PlainRun(tuple(texts), tuple(tpots), tuple(ttfts), statistics.median(overheads))


def window_forwards(
    target: Any, texts: Sequence[Text], threads: int | None
) -> list[tuple[int, float]]:
    """[(drafts judged, ms)]: rounds of SI whose drafts are all right and cost nothing.

    The median of some texts, the windows in turn: what else the machine does meets them all.
    """
    drafts = RecordedDrafts(target.vocab_size)
    found: dict[int, list[float]] = {}
    with Engine(
        target, drafts.drafter(), sp=1, mode="si", threads=threads, break_even=False
    ) as engine:
        for text, window in itertools.product(texts[:_WINDOW_TEXTS], WINDOWS):
            # Another round pays for the prompt.
            rounds = min(_ROUNDS, text.tokens // (window + 1) - 1)
            if rounds < 1:
                continue
            drafts.text = text
            new = (rounds + 1) * (window + 1)
            of = engine.generate(
                text.start, max_new_tokens=new, ignore_eos=True, lookahead=window
            ).statistics
            spent = (of.total_s - of.time_to_first_token_s) * 1e3
            found.setdefault(window, []).append(spent / rounds)
    return [(window, statistics.median(each)) for window, each in sorted(found.items())]


def fitted_growth(tpot_ms: float, points: Sequence[tuple[int, float]]) -> float:
    """The line from the empty window that misses the points least, per draft and in tpot_ms."""
    square = sum(window * window for window, _ in points)
    slope = sum(window * (ms - tpot_ms) for window, ms in points) / square if square else 0.0
    return max(0.0, slope / tpot_ms)


def target_latency(plain: PlainRun, points: Sequence[tuple[int, float]]) -> MeasuredLatency:
    tpot = statistics.median(plain.tpots_ms)
    return MeasuredLatency(
        tpot_ms=tpot,
        ttft_ms=statistics.median(plain.ttfts_ms),
        growth=fitted_growth(tpot, points),
        tpots_ms=plain.tpots_ms,
        ttfts_ms=plain.ttfts_ms,
        windows=((0, tpot), *points) if points else (),
    )


def drafter_run(
    target: Any, drafter: Any, texts: Sequence[Text], tokens: int, threads: int | None
) -> tuple[MeasuredLatency, tuple[str, ...]]:
    """What a draft costs behind the target's own text, and which drafts were right.

    The first draft of a prompt pays for it. growth: what one more token costs that the drafter has
    not seen, as the one before a bonus.
    """
    recorded = RecordedTarget(target)
    tpots, ttfts, hits = [], [], []
    with Engine(recorded, drafter, sp=1, mode="si", threads=threads, break_even=False) as engine:

        def run(text: Text, new: int, lookahead: int, bonus: bool = False) -> Statistics:
            recorded.start(text, lookahead, bonus)
            return engine.generate(
                text.start, max_new_tokens=new, ignore_eos=True, lookahead=lookahead
            ).statistics

        run(texts[0], 2, 1)
        for text in texts:
            of = run(text, 2, 1)
            ttfts.append(max(_SOONEST_MS, of.drafter_busy * run_ms(of)))
            of = run(text, tokens, DRAFTS)
            hits.append(recorded.hits[:tokens])
            if of.drafter_forward_s is not None:
                tpots.append(max(_SOONEST_MS, of.drafter_forward_s * 1e3))
    tpot = statistics.median(tpots or ttfts)
    latency = MeasuredLatency(
        tpot_ms=tpot,
        ttft_ms=statistics.median(ttfts),
        growth=0.0
        if tpot < _RESOLVED_MS
        else _catching_up(recorded, drafter, texts[0], tokens, threads) / tpot,
        tpots_ms=tuple(tpots),
        ttfts_ms=tuple(ttfts),
    )
    return latency, tuple(hits)


def _catching_up(
    recorded: RecordedTarget, drafter: Any, text: Text, tokens: int, threads: int | None
) -> float:
    """ms that a second token not seen before adds: lookahead 1 has it behind each right draft."""
    forwards = []
    for bonus in (False, True):
        with Engine(
            recorded, drafter, sp=1, mode="si", threads=threads, lookahead=1, break_even=False
        ) as engine:
            recorded.start(text, 1, bonus)
            of = generate(engine, text, tokens).statistics
        if not of.accepted:
            return 0.0
        share = of.accepted / (of.accepted + of.rejected)
        forwards.append((of.drafter_forward_s or 0.0) * 1e3)
    return max(0.0, (forwards[1] - forwards[0]) / share)


def is_stoppable(target: Any, text: Text, threads: int | None) -> bool:
    """Whether forwards end early: DSI with drafts that are always wrong makes many stale ones."""
    drafts = RecordedDrafts(target.vocab_size, wrong=True)
    drafts.text = text
    with Engine(
        target, drafts.drafter(), sp=2, mode="dsi", lookahead=1, threads=threads, break_even=False
    ) as engine:
        of = generate(engine, text, min(8, text.tokens)).statistics
    return of.stopped_forwards > of.wasted_forwards


def overlapping(
    target: Any, drafter: Any, text: Text, targets: int, threads: int | None
) -> tuple[float, float | None]:
    """ms of a target's token and of a draft while `targets` target servers and a drafter all work.

    drafter: None for none; its time is then None too.
    """
    tokens = min(_OVERLAPPING_TOKENS, text.tokens)
    recorded = RecordedTarget(target)
    drafting = Engine(
        recorded, drafter, sp=1, mode="si", threads=threads, lookahead=DRAFTS, break_even=False
    )
    over = threading.Event()
    drafts: list[float] = []

    def draft() -> None:
        while not over.is_set():
            recorded.start(text, DRAFTS)
            of = generate(drafting, text, tokens).statistics
            if of.drafter_forward_s is not None and not over.is_set():
                drafts.append(of.drafter_forward_s * 1e3)

    others = [threading.Thread(target=draft)] if drafter is not None else []
    with drafting, Engine(target, None, sp=targets, mode="non-si", threads=threads) as engine:
        generate(engine, text, 2)
        for other in others:
            other.start()
        try:
            outputs = engine.generate([text.start] * targets, max_new_tokens=tokens,
                                      ignore_eos=True)  # fmt: skip
        finally:
            over.set()
            for other in others:
                other.join()
    tpot = statistics.mean(output.statistics.time_per_token_s * 1e3 for output in outputs)
    # Later estimates hold fewer forwards of the start, when the targets did not run yet.
    return tpot, drafts[-1] if drafts else None


__all__ = [
    "DRAFTS",
    "WINDOWS",
    "PlainRun",
    "drafter_run",
    "fitted_growth",
    "generate",
    "is_stoppable",
    "overlapping",
    "plain_run",
    "run_ms",
    "target_latency",
    "window_forwards",
]
