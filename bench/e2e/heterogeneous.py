"""Two real models with different tokenizers: one text by every method, and what each costs.

gemma-3-270m and SmolLM2-135M draft for each other by TLI and by SLEM, greedy and sampled (coupled,
one seed). Every SI and DSI text must be non-SI's; beside them, in the same run and interleaved,
transformers' plain generate and its universal assisted decoding of the same pair. Rates are over
non-SI's. Exits with 1 where a text differs and rounding does not excuse it, or where transformers'
assisted decoding is faster than the better of our two methods at the same, greedy text.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rig import report
from rig.contestants import Process, Run
from rig.gemma import load_gemma
from rig.other_vocabulary import SEED, Way, hosts, make, ways
from rig.texts import openings

import dsi_native
from dsi_native.audit import first_difference

# Target and drafter.
PAIRS = {
    "gemma-smollm2-int4": ("gemma", "smollm2-int4"),
    "gemma-smollm2": ("gemma", "smollm2"),
    "smollm2-gemma": ("smollm2", "gemma"),
}
OURS_OF_THEIRS = 0.97

Runs = dict[Way, list[Run]]


def say(*words: Any) -> None:
    print(time.strftime("%H:%M:%S"), *words, flush=True)


def measure(
    target: Any, drafter: Any, chosen: list[Way], ids: list[np.ndarray], arguments: Any
) -> tuple[Runs, dict[Way, str]]:
    """Runs by way and prompt, taking turns in random order; and why a way cannot run at all."""
    processes: dict[Way, Process] = {}
    opened = []
    for host, mine in hosts(chosen, arguments.threads).items():
        opened.append(Process(host, target, drafter, make))
        processes |= dict.fromkeys(mine, opened[-1])
    failed: dict[Way, str] = {}
    runs: Runs = {}
    try:
        for way, process in processes.items():
            try:
                process.run(way, ids[0], min(8, arguments.tokens))
                runs[way] = []
            except SystemExit as error:
                failed[way] = str(error)
        say("warm")
        for index, prompt in enumerate(ids):
            for way in random.Random(index).sample(list(runs), len(runs)):
                runs[way].append(processes[way].run(way, prompt, arguments.tokens))
            say(f"prompt {index + 1} of {len(ids)}")
    finally:
        for process in opened:
            process.close()
    return runs, failed


def summary(way: Way, runs: list[Run], plain: list[Run]) -> dict[str, Any]:
    """One row. of_non_si: how many times non-SI's rate, over all prompts, prefill included."""

    def total(name: str) -> int:
        return sum(run.statistics.get(name, 0) for run in runs)

    judged = total("accepted") + total("rejected")
    tokens, seconds = sum(len(run.tokens) for run in runs), sum(run.seconds for run in runs)
    used = [run.statistics["method"] for run in runs if way.method == "auto"]
    return {
        **vars(way),
        "name": way.name,
        "tokens_per_s": tokens / seconds,
        "of_non_si": sum(run.seconds for run in plain) / seconds,
        "acceptance": total("accepted") / judged if judged else None,
        "tokens_per_forward": tokens / sum(run.forwards for run in runs),
        "drafted": total("drafted"),
        "lookahead_at_end": [r.statistics["lookahead"] for r in runs if r.statistics],
        "undrafted": total("undrafted"),
        "used": {method: used.count(method) for method in sorted(set(used))},
    }


def show(title: str, rows: list[dict[str, Any]], failed: dict[Way, str]) -> None:
    shown = report.table(
        title,
        *("", "temperature", "lookahead", "tok/s", "of non-SI", "acceptance", "tok/target forward"),
        "undrafted",
    )
    for row in rows:
        at_end = row["lookahead_at_end"]
        auto = f"auto: {report.median(at_end):g}" if row["lookahead"] == "auto" and at_end else ""
        used = ", ".join(f"{count} {method}" for method, count in row["used"].items())
        shown.add_row(
            row["name"] + (f" ({used})" if used else ""),
            f"{row['temperature']}",
            auto or str(row["lookahead"] or ""),
            f"{row['tokens_per_s']:.2f}",
            f"{row['of_non_si']:.2f}x",
            "" if row["acceptance"] is None else f"{row['acceptance']:.2f}",
            f"{row['tokens_per_forward']:.2f}",
            str(row["undrafted"]) if row["break_even"] else "",
        )
    report.console.print(shown)
    for why in failed.values():
        report.console.print(f"cannot run: {why}", markup=False)


def different_texts(
    target: Any, runs: Runs, ids: list[np.ndarray], tokens: int
) -> tuple[list[str], int, bool]:
    """Where a text is not non-SI's, how many were compared, and whether rounding excuses all."""
    lines, compared, all_excused = [], 0, True
    for way, mine in runs.items():
        if way.mode == "non-si" or (way.side == "transformers" and way.temperature):
            continue
        plain = runs[next(w for w in runs if w.mode == "non-si" and same_law(w, way))]
        for index, run in enumerate(mine):
            compared += 1
            sampled = {"temperature": way.temperature, "seed": SEED}
            expected = plain[index].tokens
            found = first_difference(target, ids[index], expected, run.tokens, **sampled)
            if found is not None:
                lines.append(f"{way.key}, prompt {index}: {found}")
                all_excused &= found.excused
    return lines, compared, all_excused


def same_law(one: Way, other: Way) -> bool:
    return one.temperature == other.temperature


def faster(rows: list[dict[str, Any]], pair: str) -> bool:
    """The claim about transformers, greedy: only there both decode the same text."""
    greedy = [row for row in rows if not row["temperature"]]
    ours = [r for r in greedy if r["mode"] == "si" and not r["break_even"]]
    theirs = [r for r in greedy if r["mode"] == "assisted"]
    if not ours or not theirs:
        return True
    best, rival = (max(some, key=lambda r: r["tokens_per_s"]) for some in (ours, theirs))
    ratio = best["tokens_per_s"] / rival["tokens_per_s"]
    return report.verdict(
        ratio >= OURS_OF_THEIRS,
        f"{pair}: {best['name']} is at least {OURS_OF_THEIRS}x transformers' universal assisted "
        f"decoding at its best, greedy ({ratio:.2f}x)",
    )


def _models(names: list[str], gemma: Path | None) -> dict[str, Any]:
    found = {}
    if any("gemma" in name for name in names):
        found["gemma"] = load_gemma(gemma)
        say("gemma is loaded")
    if any("smollm2" in name for name in names):
        found["smollm2"] = dsi_native.load_model("smollm2", dtype="float32")
    if "smollm2-int4" in names:
        found["smollm2-int4"] = dsi_native.quantised_copy(found["smollm2"], 4)
    return found


def _arguments() -> argparse.Namespace:
    parser = report.options(__doc__)
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--prompts", type=int, help="how many (default 5, --full 20)")
    parser.add_argument("--tokens", type=int, help="new tokens of each (default 32, --full 64)")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--only", nargs="+", help="ways whose name has one of these, and non-SI")
    parser.add_argument("--threads", type=int, default=1, help="of each forward")
    parser.add_argument("--gemma", type=Path, help="a folder or .gguf file instead of the packages")
    short, full = {"prompts": 5, "tokens": 32}, {"prompts": 20, "tokens": 64}
    return report.filled(parser.parse_args(), short, full)


def main() -> int:
    arguments = _arguments()
    facts = report.begin("two models, two vocabularies")

    import torch
    from rig import transformers_side

    from dsi_native.prompts import prompt_ids

    transformers_side.quiet()
    torch.set_num_threads(1)  # no team of threads in the process that is forked
    models = _models([name for pair in arguments.pairs for name in PAIRS[pair]], arguments.gemma)
    chosen = [
        way
        for way in ways(arguments.temperatures)
        if not arguments.only
        or way.mode == "non-si"
        or any(word.lower() in way.name.lower() for word in arguments.only)
    ]
    ok, tables = True, {}
    for pair in arguments.pairs:
        target, drafter = (models[name] for name in PAIRS[pair])
        texts = openings(arguments.prompts)
        ids = [prompt_ids(text, target.tokenizer, target.vocab_size) for text in texts]
        say(f"{pair}: {len(chosen)} ways, {len(ids)} prompts, {arguments.tokens} tokens each")
        runs, failed = measure(target, drafter, chosen, ids, arguments)
        plain = {way.temperature: mine for way, mine in runs.items() if way.mode == "non-si"}
        rows = [summary(way, mine, plain[way.temperature]) for way, mine in runs.items()]
        named = " from ".join(PAIRS[pair])
        show(f"{named}, {arguments.threads} thread(s) for each forward", rows, failed)
        lines, compared, excused = different_texts(target, runs, ids, arguments.tokens)
        for line in lines:
            report.console.print(line, markup=False)
        ok &= report.verdict(
            excused, f"{pair}: {compared - len(lines)} of {compared} texts are non-SI's"
        )
        ok &= faster(rows, pair)
        tables[pair] = {"rows": rows, "differences": lines, "failed": list(failed.values())}
    report.end(facts, arguments, pairs=tables)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
