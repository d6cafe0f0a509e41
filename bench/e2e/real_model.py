"""Tokens per second of a real model: transformers' generate() against non-SI, SI and DSI.

Same prompts, same greedy text (checked), interleaved in random order, each way to decode in a
process of its own; medians over repetitions.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

import numpy as np
from rig import report
from rig.contestants import Contestant, Process, Run, contestants
from rig.inputs import prompts

import dsi_native
from dsi_native.audit import first_difference

# What must hold on two idle cores.
OURS_OF_THEIRS = 0.97
INT4_OF_PLAIN = 1.3


class Figures:
    """All runs of one contestant: runs[repetition][prompt]."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.runs: list[list[Run]] = []

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each repetition, over all prompts, prefill included."""
        return [
            sum(len(r.tokens) for r in turn) / sum(r.seconds for r in turn) for turn in self.runs
        ]

    @property
    def rate(self) -> float:
        return report.median(self.rates)

    def over(self, other: Figures) -> float:
        """Median over repetitions of the quotient of both rates: what slows both cancels."""
        return report.median(a / b for a, b in zip(self.rates, other.rates, strict=True))

    def total(self, name: str) -> int:
        return sum(r.statistics.get(name, 0) for turn in self.runs for r in turn)

    def summary(self) -> dict[str, Any]:
        runs = [r for turn in self.runs for r in turn]
        judged = self.total("accepted") + self.total("rejected")
        forwards = sum(r.forwards for r in runs)
        lookaheads = [r.statistics["lookahead"] for r in runs if "lookahead" in r.statistics]
        return {
            **vars(self.contestant),
            "name": self.contestant.name,
            "tokens_per_s": self.rate,
            "rates": self.rates,
            "acceptance": self.total("accepted") / judged if judged else None,
            "tokens_per_forward": sum(len(r.tokens) for r in runs) / forwards,
            "wasted_per_run": sum(r.wasted for r in runs) / len(runs),
            "lookahead_at_end": report.median(lookaheads) if lookaheads else None,
        }


def measure(
    processes: list[Process], ids: list[np.ndarray], tokens: int, repetitions: int
) -> list[Figures]:
    """Warms each up with one whole prompt, then takes turns in random order."""
    figures = {process.contestant.key: Figures(process.contestant) for process in processes}
    with report.progress(len(processes) * (1 + repetitions * len(ids))) as step:
        for process in processes:
            step(f"warming up: {process.contestant.key}")
            process.run(ids[0], tokens)
        for repetition in range(repetitions):
            for of in figures.values():
                of.runs.append([])
            for index, prompt in enumerate(ids):
                order = random.Random(repetition * 1000 + index).sample(processes, len(processes))
                for process in order:
                    step(f"repetition {repetition + 1}, prompt {index}: {process.contestant.key}")
                    figures[process.contestant.key].runs[-1].append(process.run(prompt, tokens))
    return list(figures.values())


def different_texts(
    model: Any, figures: list[Figures], ids: list[np.ndarray]
) -> tuple[list[str], bool]:
    """Where a text is not the first contestant's, and whether rounding excuses all of that."""
    lines, all_excused = [], True
    for of in figures:
        for turn in of.runs:
            for index, run in enumerate(turn):
                expected = figures[0].runs[0][index].tokens
                found = first_difference(model, ids[index], expected, run.tokens)
                if found is not None:
                    lines.append(f"{of.contestant.key}, prompt {index}: {found}")
                    all_excused &= found.excused
    return lines, all_excused


def show(figures: list[Figures], plain: dict[int, Figures]) -> None:
    for threads in (2, 1):
        some = [f for f in figures if f.contestant.threads == threads]
        if not some:
            continue
        shown = report.table(
            f"{threads} threads per forward" if threads > 1 else "1 thread per forward",
            *("", "lookahead", "tok/s", "lowest-highest", "of plain", "acceptance"),
            *("tok/target forward", "wasted"),
        )
        for of in some:
            row = of.summary()
            shown.add_row(
                of.contestant.name,
                _lookahead(of.contestant, row["lookahead_at_end"]),
                f"{row['tokens_per_s']:.2f}",
                f"{min(of.rates):.1f}-{max(of.rates):.1f}",
                f"{of.over(plain[threads]):.2f}x" if threads in plain else "",
                "" if row["acceptance"] is None else f"{row['acceptance']:.2f}",
                f"{row['tokens_per_forward']:.2f}",
                f"{row['wasted_per_run']:.1f}" if of.contestant.side == "dsi" else "",
            )
        report.console.print(shown)


def _lookahead(contestant: Contestant, at_end: float | None) -> str:
    if contestant.lookahead == "auto" and at_end is not None:
        return f"auto: {at_end:g}"
    return str(contestant.lookahead or "")


def _named(figures: list[Figures], **wanted: Any) -> list[Figures]:
    return [f for f in figures if all(getattr(f.contestant, k) == v for k, v in wanted.items())]


def verdicts(figures: list[Figures]) -> bool:
    """The claims about two threads; those whose rows were left out by --only are not made."""
    ok = True
    plain = _named(figures, side="transformers", method="plain", threads=2)
    non_si = _named(figures, method="non-si", threads=2)
    if plain and non_si:
        ratio = non_si[0].over(plain[0])
        claim = f"non-SI is at least {OURS_OF_THEIRS}x transformers' plain generate ({ratio:.2f}x)"
        ok &= report.verdict(ratio >= OURS_OF_THEIRS, claim)
    for drafter in ("lookup", "int4"):
        theirs = _named(figures, method="assisted", drafter=drafter, threads=2)
        ours = _named(figures, method="si", drafter=drafter, threads=2)
        if theirs and ours:
            rival = max(theirs, key=lambda f: f.rate)
            best = max(ours, key=lambda f: f.rate)
            ratio = best.over(rival)
            ok &= report.verdict(
                ratio >= OURS_OF_THEIRS,
                f"SI with {drafter} is at least {OURS_OF_THEIRS}x transformers' assisted generate "
                f"at its best ({ratio:.2f}x, lookahead {best.contestant.lookahead})",
            )
    int4 = [f for f in _named(figures, side="dsi", drafter="int4") if plain]
    if int4:
        best = max(int4, key=lambda f: f.rate)
        ratio = best.over(plain[0])
        ok &= report.verdict(
            ratio >= INT4_OF_PLAIN,
            f"the best with int4 is at least {INT4_OF_PLAIN}x plain on 2 threads ({ratio:.2f}x, "
            f"{best.contestant.key})",
        )
    for f in _named(figures, method="dsi"):
        of = {t: f.over(p) for t, p in _plain(figures).items()}
        against = ", ".join(f"{ratio:.2f}x plain on {t} threads" for t, ratio in of.items())
        report.console.print(f"as it is: {f.contestant.name}: {against}")
    return ok


def _plain(figures: list[Figures]) -> dict[int, Figures]:
    found = _named(figures, side="transformers", method="plain")
    return {f.contestant.threads: f for f in found}


def _arguments() -> argparse.Namespace:
    parser = report.options(__doc__)
    parser.add_argument("--prompts", type=int, help="how many (default 3, --full 6)")
    parser.add_argument("--tokens", type=int, help="new tokens of each (default 48, --full 96)")
    parser.add_argument("--runs", type=int, help="repetitions (default 3, --full 5)")
    parser.add_argument(
        "--only", nargs="+", help="only rows whose name has one of these words in it"
    )
    parser.add_argument("--threads", type=int, help="only rows with so many threads")
    short = {"prompts": 3, "tokens": 48, "runs": 3}
    full = {"prompts": 6, "tokens": 96, "runs": 5}
    return report.filled(parser.parse_args(), short, full)


def main() -> int:
    arguments = _arguments()
    facts = report.begin("real model: tokens per second")

    import torch
    from rig import transformers_side

    transformers_side.quiet()
    torch.set_num_threads(1)  # no team of threads in the process that is forked
    model = dsi_native.load_model("smollm2", dtype="float32")
    drafter = dsi_native.quantised_copy(model, 4)
    ids = [p.ids(model.tokenizer) for p in prompts(arguments.prompts)]
    chosen = [
        c
        for c in contestants()
        if (not arguments.only or any(word.lower() in c.key.lower() for word in arguments.only))
        and arguments.threads in (None, c.threads)
    ]
    processes = [Process(contestant, model, drafter) for contestant in chosen]
    try:
        figures = measure(processes, ids, arguments.tokens, arguments.runs)
    finally:
        for process in processes:
            process.close()
    report.console.print(
        f"{model.name}, fp32, greedy, {len(ids)} prompts of {min(map(len, ids))} to "
        f"{max(map(len, ids))} tokens, {arguments.tokens} new ones each, "
        f"{arguments.runs} repetitions"
    )
    show(figures, _plain(figures))
    ok = verdicts(figures)
    different, same = different_texts(model, figures, ids)
    for line in different:
        report.console.print(line)
    ok &= report.verdict(same, f"same text everywhere ({len(different)} differences)")
    rows = [of.summary() for of in figures]
    report.end(facts, arguments, rows=rows, differences=different)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
