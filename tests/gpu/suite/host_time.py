"""What a token costs the host, besides the device's own time, also while Python is busy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from dsi_native import Engine
from dsi_native.experiments.probes import run_ms
from dsi_native.experiments.recorded import RecordedDrafts, Text
from suite import company, device_time, models
from suite.anchor import Anchor
from suite.section import Section, Where

_LOOKAHEAD = 4


def host_time(section: Section, where: Where) -> None:
    """us per token, medians of runs: non-SI, and SI with drafts that are known and cost nothing.

    wall: of a whole request. scheduler: of that, when no server worked. processor: of all cores,
    what waits in a loop included. device: when the device had work, from its own records; host: the
    rest of the wall time of the same run, in which the device waited for the host.
    """
    size = models.TINY if where.tiny else models.SMALL
    module = models.llama(size, where.device, torch.bfloat16, seed=5)
    prompt = models.prompt(size.vocab, 16, seed=5)
    tokens, runs = (12, 2) if where.tiny else (64, 7)
    text = models.generate(module, prompt, tokens)
    drafts = RecordedDrafts(size.vocab)
    drafts.text = Text.of(prompt, text)
    Anchor(module).say(drafts.text.ids)
    target = models.served(module, where)
    rows: dict[str, dict[str, float]] = {}
    for mode in ("non-si", "si"):
        with Engine(
            target,
            drafts.drafter() if mode == "si" else None,
            mode=mode,
            sp=1,
            lookahead=_LOOKAHEAD,
            threads=where.threads,
            break_even=False,
        ) as engine:

            def run(new: int = tokens, engine: Any = engine) -> Any:
                return engine.generate(prompt, max_new_tokens=new, ignore_eos=True)

            run()
            rows[mode] = _medians([_costs(run, tokens) for _ in range(runs)])
            if where.cuda:
                rows[mode] |= _on_device(run, tokens)
            # An eager forward that has to ask for the GIL again and again may take seconds.
            few = 3 if where.tiny else 4
            with company.busy("GIL", company.hold_gil):
                busy = [_costs(lambda few=few, run=run: run(few), few)]
                while len(busy) < 3 and section.left_s > section.budget_s / 2:
                    busy.append(_costs(lambda few=few, run=run: run(few), few))
            rows[f"{mode}, busy Python"] = _medians(busy)
            section.check(f"{mode} gives its text", run().tokens == text)
    if not where.cuda:
        section.skip("the device's share of a token", "needs CUDA: kernels' times")
    section.figures["us_per_token"] = rows
    sound = all(row["wall"] > 0 and row["scheduler"] >= 0 for row in rows.values())
    section.check("every cost is a time", sound, str(rows))


def _costs(run: Callable[[], Any], tokens: int) -> dict[str, float]:
    before = time.process_time()
    of = run().statistics
    spent = time.process_time() - before
    wall = 1e3 * run_ms(of) / tokens
    return {
        "wall": wall,
        "scheduler": max(0.0, wall * (1 - of.target_busy)),
        "processor": 1e6 * spent / tokens,
    }


def _on_device(run: Callable[[], Any], tokens: int) -> dict[str, float]:
    """Recording what the device does slows the host down, so the rest is an upper bound."""
    out, work = device_time.traced(run)
    device = device_time.busy(work) / tokens
    return {"device": device, "host": max(0.0, 1e3 * run_ms(out.statistics) / tokens - device)}


def _medians(samples: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(s[name] for s in samples) for name in samples[0]}


__all__ = ["host_time"]
