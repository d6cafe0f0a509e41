"""Texts: those of transformers' generate(), and the same whatever the schedule and its timing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dsi_native import Engine
from dsi_native.audit import first_difference
from suite import company, models
from suite.section import Section, Where

# A copy with so much noise is right often, and wrong often.
_NOISE, _TINY_NOISE = 0.01, 0.02
_SHOWN = 5


@dataclass
class Tally:
    """Texts that should be one: how many were compared, and where they part.

    excused: differences where the target's choices were so close that rounding decides.
    """

    target: Any
    compared: int = 0
    excused: int = 0
    accepted: int = 0
    rejected: int = 0
    differences: list[str] = field(default_factory=list)

    def compare(
        self,
        what: str,
        prompt: np.ndarray,
        wanted: Sequence[int],
        got: Sequence[int],
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.compared += 1
        found = first_difference(
            self.target, prompt, wanted, got, temperature=temperature, seed=seed
        )
        if found is not None and found.excused:
            self.excused += 1
        elif found is not None:
            self.differences.append(f"{what}: {found}")

    def count(self, statistics: Any) -> None:
        self.accepted += statistics.accepted
        self.rejected += statistics.rejected

    def judge(self, section: Section, claim: str) -> None:
        """The checks that every comparison of texts ends with."""
        shown = "; ".join(self.differences[:_SHOWN])
        detail = f"{len(self.differences)} of {self.compared} differ: {shown}"
        section.check(claim, self.compared and not self.differences, detail)
        section.check("drafts were accepted", self.accepted)
        section.check("drafts were rejected", self.rejected)
        section.figures |= {
            "texts_compared": self.compared,
            "differences": len(self.differences),
            "excused": self.excused,
            "acceptance": self.accepted / max(1, self.accepted + self.rejected),
        }


@dataclass(frozen=True)
class Checked:
    """fp32 models for comparisons of texts; `module` is what transformers decodes with."""

    module: Any
    target: Any
    drafter: Any
    prompts: tuple[np.ndarray, ...]
    tokens: int

    @classmethod
    def made(cls, where: Where, prompts: int, tokens: int, seed: int = 0) -> Checked:
        # TF32 would round more than fp32 does, and texts of different windows would part.
        torch.set_float32_matmul_precision("highest")
        size = models.TINY if where.tiny else models.CHECKED
        module = models.llama(size, where.device, torch.float32, seed)
        drafter = models.noisy(module, _TINY_NOISE if where.tiny else _NOISE, seed + 1)
        return cls(
            module,
            models.served(module, where, "target"),
            models.served(drafter, where, "drafter"),
            tuple(models.prompt(size.vocab, 4 + 9 * i, 100 + i) for i in range(prompts)),
            tokens,
        )


def equality(section: Section, where: Where, made: Checked | None = None) -> None:
    """Greedy texts of each mode against transformers' generate() with the same fp32 module.

    made: other models, for a test that wants a failure.
    """
    made = made or Checked.made(where, 2 if where.tiny else 4, 12 if where.tiny else 96)
    wanted = [models.generate(made.module, prompt, made.tokens) for prompt in made.prompts]
    tally = Tally(made.target)
    rows = [("non-si", 1, 1), ("si", 1, 3), ("dsi", 2, 2)]
    if not where.tiny:
        rows += [("si", 1, "auto"), ("dsi", 2, "auto"), ("dsi", 4, 1)]
    for mode, sp, lookahead in rows:
        with Engine(
            made.target,
            made.drafter,
            mode=mode,
            sp=sp,
            lookahead=lookahead,
            threads=where.threads,
            break_even=False,
        ) as engine:
            for number, (prompt, text) in enumerate(zip(made.prompts, wanted, strict=True)):
                if section.left_s < 0 and tally.compared:
                    section.skip(f"{mode}, SP {sp}", "the section's time is spent")
                    break
                out = engine.generate(prompt, max_new_tokens=made.tokens, ignore_eos=True)
                tally.compare(f"{mode}, SP {sp}, prompt {number}", prompt, text, out.tokens)
                tally.count(out.statistics)
    tally.judge(section, "every greedy text is that of transformers' generate()")


@dataclass(frozen=True)
class Setting:
    """One way to come to a text that should not depend on it."""

    mode: str
    sp: int
    lookahead: int | str
    company: str

    def __str__(self) -> str:
        return f"{self.mode}, SP {self.sp}, lookahead {self.lookahead}, {self.company}"


def settings(where: Where) -> list[Setting]:
    """Every lookahead and SP, with the timings in turn, in an order that may end anywhere."""
    made = list(_settings(where))
    # The first ones have every timing.
    some = len(company.NAMES)
    return made[:some] + random.Random(0).sample(made[some:], len(made) - some)


def _settings(where: Where) -> Iterator[Setting]:
    timings = itertools.cycle(company.NAMES)
    lookaheads: tuple[int | str, ...] = (1, 3) if where.tiny else (1, 2, 5, "auto")
    for sp in (2,) if where.tiny else (1, 2, 4):
        for mode, lookahead in itertools.product(("si", "dsi"), lookaheads):
            yield Setting(mode, sp, lookahead, next(timings))
            if mode == "dsi" and not where.tiny:
                yield Setting(mode, sp, lookahead, next(timings))


def independence(section: Section, where: Where, made: Checked | None = None) -> None:
    """Greedy and coupled texts under any SP, lookahead and timing: those of non-SI, left alone.

    Rejection mode keeps the law, not the text, and is no subject here. made: as for equality().
    """
    made = made or Checked.made(where, 1 if where.tiny else 2, 12 if where.tiny else 64, seed=7)
    ways: list[dict[str, Any]] = [{"temperature": 0.0, "seed": 0}, {"temperature": 0.8, "seed": 11}]
    cases = list(itertools.product(range(len(made.prompts)), range(len(ways))))
    with Engine(made.target, None, mode="non-si", sp=1, threads=where.threads) as engine:
        wanted = {
            (i, j): engine.generate(
                made.prompts[i], max_new_tokens=made.tokens, ignore_eos=True, **ways[j]
            ).tokens
            for i, j in cases
        }
    tally = Tally(made.target)
    met: dict[str, int] = dict.fromkeys(company.NAMES, 0)
    for setting in settings(where):
        if section.left_s < 0 and tally.compared:
            section.skip(str(setting), "the section's time is spent")
            continue
        with (
            company.of(setting.company, where.device, made.target),
            Engine(
                made.target,
                made.drafter,
                mode=setting.mode,
                sp=setting.sp,
                lookahead=setting.lookahead,
                threads=where.threads,
                break_even=False,
            ) as engine,
        ):
            for i, j in cases:
                if section.left_s < 0 and tally.compared:
                    section.skip(f"{setting}, the rest of it", "the section's time is spent")
                    break
                out = engine.generate(
                    made.prompts[i], max_new_tokens=made.tokens, ignore_eos=True, **ways[j]
                )
                what = f"{setting}, prompt {i}, temperature {ways[j]['temperature']}"
                tally.compare(what, made.prompts[i], wanted[i, j], out.tokens, **ways[j])
                tally.count(out.statistics)
        met[setting.company] += 1
    tally.judge(section, "every text is that of non-SI")
    section.check("every timing was met", all(met.values()), str(met))
    section.figures["settings_by_timing"] = met


__all__ = ["Checked", "Setting", "Tally", "equality", "independence", "settings"]
