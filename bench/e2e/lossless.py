"""The same text under every policy, on the real model in fp32.

Greedy: transformers' generate() = non-SI = SI = DSI. Coupled at temperature 0.8 with one seed:
non-SI = SI = DSI. Over SP, lookahead and drafters. Exits with 1 on a difference where the two
choices were 1e-3 or more apart.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rig import report
from rig.inputs import Prompt, prompts

import dsi_native
from dsi_native.audit import EXCUSED_GAP, first_difference

LOOKAHEADS: tuple[int | str, ...] = (1, 2, 5, "auto")
DRAFTERS = ("int4", "lookup")
SEED = 20240514


@dataclass(frozen=True)
class Setting:
    """One place in the grid."""

    sp: int
    drafter: str
    mode: str
    lookahead: int | str


def grid(sps: list[int]) -> Iterator[tuple[int, str, list[Setting]]]:
    """(sp, drafter, settings) for each engine."""
    for sp, drafter in itertools.product(sps, DRAFTERS):
        settings = [
            Setting(sp, drafter, mode, lookahead)
            for mode, lookahead in itertools.product(("si", "dsi"), LOOKAHEADS)
        ]
        if drafter == DRAFTERS[0]:
            settings.insert(0, Setting(sp, drafter, "non-si", 1))  # it has no use for a drafter
        yield sp, drafter, settings


class Comparison:
    """Expected texts by (temperature, prompt), and what differs from them."""

    def __init__(self, model: Any, tokens: int) -> None:
        self.model = model
        self.tokens = tokens
        self.expected: dict[tuple[float, str], list[int]] = {}
        self.differences: list[dict[str, Any]] = []
        self.compared = 0

    def check(
        self, prompt: Prompt, ids: np.ndarray, temperature: float, setting: Setting, got: list[int]
    ) -> None:
        """The first output for a prompt and temperature is what the others must equal."""
        expected = self.expected.setdefault((temperature, prompt.name), got)
        if expected is got:
            return
        self.compared += 1
        found = first_difference(self.model, ids, expected, got, temperature=temperature, seed=SEED)
        if found is None:
            return
        record = {"prompt": prompt.name, "temperature": temperature, "excused": found.excused}
        record |= vars(setting) | vars(found) | {"gap": found.gap}
        self.differences.append(record)
        report.console.print(
            f"[yellow]difference[/] {prompt.name}, temperature {temperature}, {setting}: {found}"
        )


def run_engine(
    engine: dsi_native.Engine,
    settings: list[Setting],
    temperatures: tuple[float, ...],
    chosen: list[tuple[Prompt, np.ndarray]],
    comparison: Comparison,
) -> list[dict[str, Any]]:
    """Every setting of one engine; one figure for each setting and temperature."""
    figures = []
    for temperature, setting in itertools.product(temperatures, settings):
        start, before = time.monotonic(), len(comparison.differences)
        rate: list[float] = []
        for prompt, ids in chosen:
            out = engine.generate(
                ids,
                max_new_tokens=comparison.tokens,
                temperature=temperature,
                seed=SEED,
                mode=setting.mode,
                lookahead=setting.lookahead,
                ignore_eos=True,
            )
            comparison.check(prompt, ids, temperature, setting, out.tokens)
            rate += [] if out.statistics.acceptance is None else [out.statistics.acceptance]
        figures.append(
            vars(setting)
            | {
                "temperature": temperature,
                "differences": len(comparison.differences) - before,
                "acceptance": sum(rate) / len(rate) if rate else None,
                "seconds": time.monotonic() - start,
            }
        )
    return figures


def show(figures: list[dict[str, Any]], prompts_used: int) -> None:
    shown = report.table(
        f"Differences of {prompts_used} texts each (acceptance, mean over prompts), by lookahead",
        *("temperature", "mode", "drafter", "SP", *(str(k) for k in LOOKAHEADS), "s"),
        left=3,
    )
    by_row: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for figure in figures:
        drafter = "-" if figure["mode"] == "non-si" else figure["drafter"]
        key = (figure["temperature"], figure["mode"], drafter, figure["sp"])
        by_row.setdefault(key, []).append(figure)
    for key in sorted(by_row, key=str):
        cells = [
            str(f["differences"]) + ("" if f["acceptance"] is None else f" ({f['acceptance']:.2f})")
            for f in by_row[key]
        ]
        cells += [""] * (len(LOOKAHEADS) - len(cells))
        seconds = sum(f["seconds"] for f in by_row[key])
        shown.add_row(*(str(part) for part in key), *cells, f"{seconds:.1f}")
    report.console.print(shown)


def main() -> int:
    parser = report.options(__doc__)
    parser.add_argument("--quick", action="store_true", help="one prompt, 8 tokens")
    parser.add_argument("--prompts", type=int, help="how many (default 3, --full 6)")
    parser.add_argument("--tokens", type=int, help="new tokens of each (default 24, --full 64)")
    parser.add_argument("--sp", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    arguments = parser.parse_args()
    sizes = (1, 8) if arguments.quick else (6, 64) if arguments.full else (3, 24)
    facts = report.begin("lossless: one text under every policy")

    import torch
    from rig import transformers_side

    transformers_side.quiet()
    torch.set_num_threads(1)
    model = dsi_native.load_model("smollm2", dtype="float32")
    drafters = {"int4": dsi_native.quantised_copy(model, 4), "lookup": "lookup"}
    tokens = arguments.tokens or sizes[1]
    chosen = [(p, p.ids(model.tokenizer)) for p in prompts(arguments.prompts or sizes[0])]
    comparison = Comparison(model, tokens)
    start = time.monotonic()
    if 0.0 in arguments.temperatures:
        for prompt, ids in chosen:
            plain = transformers_side.generate(model.model, ids, tokens)
            comparison.expected[0.0, prompt.name] = plain
    figures = []
    for sp, drafter, settings in grid(arguments.sp):
        with dsi_native.Engine(model, drafters[drafter], sp=sp, threads=1) as engine:
            temperatures = tuple(arguments.temperatures)
            figures += run_engine(engine, settings, temperatures, chosen, comparison)
    show(figures, len(chosen))
    worst = [d for d in comparison.differences if not d["excused"]]
    ok = report.verdict(
        not worst,
        f"{comparison.compared - len(worst)} of {comparison.compared} texts of {tokens} tokens are "
        f"their reference's "
        f"({len(comparison.differences)} differences, {len(worst)} not excused by a gap below "
        f"{EXCUSED_GAP}; {time.monotonic() - start:.0f} s)",
    )
    differences = comparison.differences
    report.end(
        facts, arguments, settings=figures, differences=differences, texts=comparison.compared
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
