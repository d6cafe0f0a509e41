"""Tokens per second of one pair of models, decoded in every way, beside the planner's prediction.

The rows take turns in random order, so that what slows the machine slows them all; figures are
medians, and quotients of the runs of one round. Both models are anchored to a recorded text (see
Anchor): all rows have one text, and the drafter has the acceptance it was given.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dsi_native.experiments.measure import Models, measure_models
from dsi_native.experiments.predict import Prediction, predict
from suite import models
from suite.anchor import Anchor, mistaken
from suite.contestants import Contestant, Decode, Run, engine_for, of_engine, of_transformers
from suite.numbers import spread
from suite.section import Section, Where

ACCEPTANCE = 0.8
SP = 2
_PLAIN = Contestant("transformers", "plain")
_STATIC = Contestant("transformers", "static")
_PROMPT_TOKENS = 32
# transformers' own default, besides what suits our SI.
_ASSISTED_LOOKAHEAD = 5
# Of what a copy on the device moves in the same time. A forward that reads its weights at less than
# the first leaves the device idle, at more than the second it keeps it as busy as it can be.
_IDLE_SHARE, _BUSY_SHARE = 0.4, 0.6
_COPIED_BYTES = 1 << 30


@dataclass(frozen=True)
class Subjects:
    """A pair, anchored; its text and its prompt's length."""

    target: Any
    drafter: Any
    text: np.ndarray
    prompt: np.ndarray

    @property
    def tokens(self) -> list[int]:
        return self.text[len(self.prompt) :].tolist()

    @classmethod
    def made(
        cls, sizes: tuple[models.Size, models.Size], where: Where, tokens: int, share: float
    ) -> Subjects:
        """share: of the drafts that is right."""
        target, drafter = (
            models.llama(size, where.device, torch.bfloat16, seed)
            for seed, size in enumerate(sizes, 20)
        )
        vocab = sizes[0].vocab
        prompt = models.prompt(vocab, _PROMPT_TOKENS, seed=22)
        text = np.concatenate([prompt, models.generate(target, prompt, tokens)]).astype(np.int32)
        Anchor(target).say(text)
        Anchor(drafter).say(mistaken(text, len(prompt), 1 - share, vocab, seed=23))
        return cls(target, drafter, text, prompt)


def idle_pair(section: Section, where: Where) -> None:
    """A target whose lone forward leaves the device idle."""
    sizes = (models.TINY, models.TINY_DRAFTER)
    compare(section, where, sizes if where.tiny else (models.SMALL, models.SMALL_DRAFTER), "idle")


def busy_pair(section: Section, where: Where) -> None:
    """A target whose lone forward keeps the device busy, as wide as its memory allows."""
    if not where.cuda:
        section.skip("a pair that saturates the device", "needs CUDA: a tiny one is the other pair")
        return
    free, _ = torch.cuda.mem_get_info()
    # Weights of 2 bytes, as much again for the caches and what torch keeps.
    fits = [size for size in models.WIDE if 2 * size.parameters * 1.5 + 4e9 < free]
    if not fits:
        section.skip("a pair that saturates the device", f"{free / 2**30:.1f} GiB are free")
        return
    compare(section, where, (fits[0], models.WIDE_DRAFTERS[fits[0].name]), "busy")


def compare(
    section: Section,
    where: Where,
    sizes: tuple[models.Size, models.Size],
    kind: str,
    share: float = ACCEPTANCE,
    subjects: Subjects | None = None,
) -> None:
    """Fills the section with a row for each contestant. share: of the drafts that is right.

    kind: "idle" or "busy", what the pair should do to a device of CUDA. subjects: other models, for
    a test that wants a failure.
    """
    tokens = 24 if where.tiny else 96
    of = subjects or Subjects.made(sizes, where, tokens, share)
    target, drafter = (models.served(m, where) for m in (of.target, of.drafter))
    measurement = measure_models(
        Models(target, (drafter,), (of.prompt,), "recorded"),
        max_new_tokens=tokens,
        threads=where.threads,
        sp=SP,
    )
    predictions = {row.mode: row for row in predict(measurement, sp=SP)}
    si, dsi = predictions["si"].lookahead, predictions["dsi"].lookahead
    assisted = sorted({si, _ASSISTED_LOOKAHEAD})
    contestants = [
        _PLAIN,
        _STATIC,
        *(Contestant("transformers", "assisted", lookahead) for lookahead in assisted),
        Contestant("dsi", "non-si"),
        Contestant("dsi", "si", si),
        Contestant("dsi", "dsi", dsi, SP),
    ]
    if not where.cuda:
        section.skip("a compiled static cache", "needs CUDA; its row has a static cache alone")
    section.figures |= {
        "target": sizes[0].name,
        "target_parameters": sizes[0].parameters,
        "drafter": sizes[1].name,
        "drafter_parameters": sizes[1].parameters,
        "dtype": str(of.target.dtype).removeprefix("torch."),
        "prompt_tokens": len(of.prompt),
        "new_tokens": tokens,
        "target_ms": measurement.target.tpot_ms,
        "drafter_ms": measurement.drafters[0].tpot_ms,
        "acceptance_set": share,
        "static_cache_compiled": where.cuda,
    }
    section.check(
        "the drafter has the acceptance it was given",
        abs(measurement.drafters[0].acceptance.direct - share) <= 0.02 + 1 / tokens,
        f"{measurement.drafters[0].acceptance.direct:.3f} instead of {share}",
    )
    with decoders(contestants, of, (target, drafter), where) as decode:
        runs = take_turns(section, decode, of, 2 if where.tiny else 15)
    section.figures["rounds"] = len(runs[_PLAIN])
    section.figures["rows"] = [row(each, runs, predictions, tokens) for each in contestants]
    others = [each.name for each, done in runs.items() if any(r.tokens != of.tokens for r in done)]
    section.check("every row has the recorded text", not others, ", ".join(others))
    _device_use(section, where, of.target, measurement.target.tpot_ms, kind)


@contextmanager
def decoders(
    contestants: list[Contestant], of: Subjects, pair: tuple[Any, Any], where: Where
) -> Iterator[dict[Contestant, Decode]]:
    """All of them, ready to take turns; the engines are closed in the end."""
    with ExitStack() as stack:
        made = {}
        for each in contestants:
            if each.side == "dsi":
                engine = stack.enter_context(engine_for(each, *pair, where.threads))
                made[each] = of_engine(each, engine)
            else:
                made[each] = of_transformers(each, of.target, of.drafter, where.cuda)
        yield made


def take_turns(
    section: Section, decode: dict[Contestant, Decode], of: Subjects, rounds: int
) -> dict[Contestant, list[Run]]:
    """Warms each up, then whole rounds in random order until they are done or the time is."""
    tokens = len(of.tokens)
    for each, run in decode.items():
        # A compiled forward is compiled in the first call, and captured by the second.
        for _ in range(3 if each == _STATIC else 1):
            run(of.prompt, tokens)
    runs: dict[Contestant, list[Run]] = {each: [] for each in decode}
    for number in range(rounds):
        for each in random.Random(number).sample(list(decode), len(decode)):
            runs[each].append(decode[each](of.prompt, tokens))
        if section.left_s < 0:
            break
    return runs


def row(
    each: Contestant,
    runs: dict[Contestant, list[Run]],
    predictions: dict[str, Prediction],
    tokens: int,
) -> dict[str, Any]:
    """A contestant's figures. of_plain, of_static: by how much it is faster than transformers'."""
    mine = [run.seconds for run in runs[each]]
    found: dict[str, Any] = {
        "name": each.name,
        **vars(each),
        "tokens_per_s": spread([tokens / seconds for seconds in mine]),
        "of_plain": _median_quotient(runs[_PLAIN], mine),
        "of_static": _median_quotient(runs[_STATIC], mine),
        "predicted_tokens_per_s": None,
        "prediction_error": None,
    }
    of = runs[each][-1].statistics
    if of is not None:
        predicted = 1e3 / predictions[each.mode].ms_per_token
        found["predicted_tokens_per_s"] = predicted
        found["prediction_error"] = predicted / found["tokens_per_s"]["median"] - 1
        found["acceptance"] = of.acceptance
        found["tokens_per_target_forward"] = of.tokens_per_target_forward
        found["wasted_forwards"] = of.wasted_forwards
        found["stopped_forwards"] = of.stopped_forwards
    return found


def _median_quotient(theirs: list[Run], mine: list[float]) -> float:
    return statistics.median(a.seconds / b for a, b in zip(theirs, mine, strict=True))


def _device_use(section: Section, where: Where, target: Any, forward_ms: float, kind: str) -> None:
    """Whether the lone forward does to the device what the pair is there for."""
    what = f"a lone forward {'leaves the device idle' if kind == 'idle' else 'saturates it'}"
    if not where.cuda:
        section.skip(what, "needs CUDA: the rate at which a device copies its memory")
        return
    read = models.weight_bytes(target) / (forward_ms / 1e3)
    share = read / _copied_bytes_per_s()
    section.figures["bandwidth_share"] = share
    holds = share < _IDLE_SHARE if kind == "idle" else share > _BUSY_SHARE
    section.check(what, holds, f"reads its weights at {share:.0%} of the rate of a copy")


def _copied_bytes_per_s() -> float:
    """Bytes read and written by a copy on the device; the best of a few."""
    source = torch.empty(_COPIED_BYTES, dtype=torch.uint8, device="cuda")
    into = torch.empty_like(source)
    best = float("inf")
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        into.copy_(source)
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end))
    return 2 * _COPIED_BYTES / (best / 1e3)


__all__ = ["ACCEPTANCE", "Subjects", "busy_pair", "compare", "idle_pair"]
