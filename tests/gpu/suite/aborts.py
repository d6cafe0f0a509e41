"""How soon work ends that nobody wants any more: stale forwards, and cancelled requests."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dsi_native import Cancelled, Engine
from dsi_native.experiments.recorded import RecordedDrafts, Text
from dsi_native.recording import Recording
from suite import models
from suite.numbers import quantiles
from suite.section import Section, Where

_LONG_S = 10.0  # a cancelled request that has not ended by then never will


def stale_s(recording: Recording) -> Iterator[float]:
    """s from each correction to the end of every forward that it made stale."""
    for commit in recording.commits:
        if commit.kind != "correction":
            continue
        for span in recording.spans:
            stale = span.kind == "verify" and span.fate in ("stopped", "wasted")
            if stale and span.start_s < commit.time_s < span.end_s:
                yield span.end_s - commit.time_s


@dataclass
class Cancelling:
    """Of each cancelled request, in ms: until it had ended, and until the next one's first token,
    from the call of cancel()."""

    ended: list[float] = field(default_factory=list)
    next_token: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def once(self, engine: Any, prompt: np.ndarray, pause_s: float, wanted: list[int]) -> None:
        """Cancels a request in the middle of its text, then asks for the start of the same."""
        request = engine.submit(prompt, max_new_tokens=models.CONTEXT // 2, ignore_eos=True)
        tokens = request.tokens()
        next(tokens)
        time.sleep(pause_s)
        begun = time.perf_counter()
        request.cancel()
        try:
            request.result(timeout=_LONG_S)
            self.wrong.append("a cancelled request gave a result")
        except Cancelled:
            self.ended.append(1e3 * (time.perf_counter() - begun))
        except TimeoutError:
            self.wrong.append(f"a cancelled request had not ended after {_LONG_S:.0f} s")
            return
        following = engine.submit(prompt, max_new_tokens=len(wanted), ignore_eos=True)
        next(following.tokens())
        self.next_token.append(1e3 * (time.perf_counter() - begun))
        if following.result(timeout=_LONG_S).tokens != wanted:
            self.wrong.append("the text behind a cancelled request is another one")


def aborts(section: Section, where: Where, wrong_drafts: bool = True) -> None:
    """Drafts that are always wrong make a stale forward of each that is in flight.

    wrong_drafts: for a test that wants a failure.
    """
    size = models.TINY if where.tiny else models.SMALL
    # In bf16 the text could be another one in a window of another length.
    module = models.llama(size, where.device, torch.float32, seed=4)
    prompt = models.prompt(size.vocab, 16, seed=4)
    tokens, least = (24, 1) if where.tiny else (96, 50)
    drafts = RecordedDrafts(size.vocab, wrong=wrong_drafts)
    # Past the text there is nothing to draft: what is cancelled is then a plain request.
    drafts.text = Text.of(prompt, models.generate(module, prompt, tokens))
    stale: list[float] = []
    forwards: list[float] = []
    with Engine(
        models.served(module, where),
        drafts.drafter(),
        mode="dsi",
        sp=2,
        lookahead=1,
        threads=where.threads,
        break_even=False,
    ) as engine:

        def run(new: int) -> Any:
            return engine.generate(prompt, max_new_tokens=new, ignore_eos=True, record=True)

        wanted = run(4).tokens
        for _ in range(4 if where.tiny else 8):
            out = run(tokens)
            stale += [1e3 * s for s in stale_s(out.recording)]
            forwards += [
                1e3 * (span.end_s - span.start_s)
                for span in out.recording.spans
                if span.kind == "verify" and span.fate == "used"
            ]
            if section.left_s < section.budget_s / 2:
                break
        draw, cancelling = random.Random(0), Cancelling()
        alone = [_first_token_ms(engine, prompt) for _ in range(3 if where.tiny else 10)]
        for _ in range(5 if where.tiny else 100):
            pause = draw.uniform(0, 3e-3 * forwards[-1])
            cancelling.once(engine, prompt, pause, wanted)
            if cancelling.wrong or section.left_s < 0:
                break
        left = engine.unfinished
    section.check("stale forwards were seen", len(stale) >= least, f"{len(stale)} of {least}")
    section.check("cancelled requests end and leave no trace", not cancelling.wrong,
                  "; ".join(cancelling.wrong))  # fmt: skip
    section.check("no request is left", left == 0, f"{left} are")
    named = {
        "forward_ms": forwards,
        "stale_forward_ends_ms": stale,
        "cancelled_request_ends_ms": cancelling.ended,
        "next_first_token_ms": cancelling.next_token,
        "first_token_alone_ms": alone,
    }
    section.figures |= {name: quantiles(each) for name, each in named.items() if each}


def _first_token_ms(engine: Any, prompt: np.ndarray) -> float:
    begun = time.perf_counter()
    engine.generate(prompt, max_new_tokens=1, ignore_eos=True)
    return 1e3 * (time.perf_counter() - begun)


__all__ = ["aborts", "stale_s"]
