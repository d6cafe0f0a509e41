"""`dsi measure`: latencies and acceptance of real models, and what they promise for DSI."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dsi_native.cli.generate import EMBEDDED, quieten_transformers, require_model
from dsi_native.cli.outputs import check_output, console
from dsi_native.cli.plan import NAMES
from dsi_native.experiments.measurement import short_name

if TYPE_CHECKING:
    from dsi_native.experiments.measure import Checked, Models
    from dsi_native.experiments.measurement import MeasuredDrafter, MeasuredLatency, Measurement

DRAFTERS = ["int4", "lookup"]


def measure(
    target: Annotated[
        str, typer.Option(help="smollm2 (embedded), a model folder or a .gguf file.")
    ] = EMBEDDED,
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            help="int4, int8, lookup, or a model named like a target. May be given several times. "
            "Default: int4 and lookup."
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help="A prompt on each line, or a JSON list. Default: six built-in ones."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="New tokens of each prompt.")] = 48,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of one forward. Default: as `dsi generate` has in each mode."),
    ] = None,
    sp: Annotated[int, typer.Option("--sp", help="Target servers that overlap in DSI.")] = 2,
    check: Annotated[
        bool,
        typer.Option("--check", help="Then run every mode: predicted beside measured time."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the JSON goes. Default: measurement.json; with --json nowhere."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the JSON instead of the tables.")
    ] = False,
) -> None:
    """Measure TTFT, TPOT and acceptance of real models, for plan, simulate, table and timeline.

    Nothing else should run meanwhile: others' work ends up in the figures.

    Examples:

      dsi measure --check

      dsi measure --target ./my-model --drafter ./my-drafter --drafter lookup --out my.json

      dsi plan --from my.json
    """
    from dsi_native.experiments.measure import check as check_models
    from dsi_native.experiments.measure import measure_models

    errors = console(stderr=True)
    path = out if out is not None or as_json else Path("measurement.json")
    if path is not None:
        check_output("--out", path)
    with _steps(errors) as step:
        step(f"loading {target}")
        models = _open(target, drafter or DRAFTERS, prompts)
        found = measure_models(
            models, max_new_tokens=max_new_tokens, threads=threads, sp=sp, step=step
        )
        if path is not None:
            found.save(path)
        rows = check_models(found, models, sp=sp, threads=threads, step=step) if check else []
    if as_json:
        answer = found.to_dict()
        if check:
            answer = {"measurement": answer, "check": [checked_row(row) for row in rows]}
        typer.echo(json.dumps(answer))
    else:
        out_console = console()
        _print(out_console, found)
        if rows:
            out_console.print(check_table(rows, found.target.name))
    if path is not None:
        errors.print(f"wrote {path}", soft_wrap=True)


def _open(target: str, drafters: list[str], prompts: Path | None) -> Models:
    from dsi_native.experiments.measure import as_chats, open_models
    from dsi_native.experiments.prompts import read_prompts
    from dsi_native.models.load import load_model

    texts = None if prompts is None else read_prompts(prompts)
    require_model(target)
    quieten_transformers()
    if texts is None:
        return open_models(target, drafters)
    model = load_model(target)
    return open_models(model, drafters, as_chats(texts, model.tokenizer), str(prompts))


@contextlib.contextmanager
def _steps(console: Console) -> Iterator[Callable[[str], None]]:
    """Says what is going on: one line that changes on a terminal, else a line for each step."""
    if console.is_terminal:
        with console.status("") as status:
            yield lambda text: status.update(text)
    else:
        yield console.print


def _print(console: Console, found: Measurement) -> None:
    facts = found.machine
    cores = facts.get("cores", "?")
    console.print(
        f"{found.target.name}, {len(found.prompts.tokens)} prompts ({found.prompts.source}), "
        f"{found.tokens} new tokens each, greedy, on {facts.get('cpu', '?')}, {cores} cores; "
        f"load before: {facts.get('load_average', '?')}"
    )
    console.print(latency_table(found))
    console.print(acceptance_table(found))
    if found.contention is not None:
        console.print(slowdown_table(found))


def latency_table(found: Measurement) -> Table:
    """Forwards of each model alone, with each number of threads."""
    table = _table("Alone", "threads", "TTFT, ms", "TPOT, ms", "lowest, highest", "growth")
    sections: list[tuple[int, Any, Any]] = [(found.threads, found.target, found.drafters)]
    both = found.contention
    if both is not None and both.threads != found.threads:
        sections.append((both.threads, both.target, both.drafters))
    for threads, target, drafters in sections:
        table.add_row("target", *_latency(threads, target))
        for named, one in zip(found.drafters, drafters, strict=True):
            table.add_row(f"drafter {_short(found, named)}", *_latency(threads, one))
    table.caption = (
        "TTFT: the prompt's forward. TPOT: every later one, median of the prompts. growth: what a "
        "judged draft adds, in TPOT."
    )
    return table


def _short(found: Measurement, drafter: MeasuredDrafter) -> str:
    return short_name(drafter.name, found.target.name)


def _latency(threads: int, one: MeasuredLatency) -> list[str]:
    span = f"{min(one.tpots_ms):.2f}, {max(one.tpots_ms):.2f}" if one.tpots_ms else "-"
    return [str(threads or "-"), f"{one.ttft_ms:.1f}", f"{one.tpot_ms:.2f}", span,
            f"{one.growth:.3f}"]  # fmt: skip


def acceptance_table(found: Measurement) -> Table:
    table = _table("Drafts", "accepted", "95 % interval", "geometric fit", "judged", "of tokens")
    for drafter in found.drafters:
        of = drafter.acceptance
        table.add_row(
            _short(found, drafter),
            f"{of.direct:.3f}",
            f"{of.low:.3f} to {of.high:.3f}",
            f"{of.geometric:.3f}",
            str(of.judged),
            f"{of.of_positions:.3f}",
        )
    table.caption = "of tokens: share of tokens with a right draft; less where not all have one."
    return table


def slowdown_table(found: Measurement) -> Table:
    """By how much forwards that overlap slow each other."""
    both = found.contention
    assert both is not None
    threads = f"{both.threads} thread" + "s" * (both.threads > 1)
    table = _table(f"At once, {threads} each", "target slower by", "drafter slower by")
    for row in both.slowdown:
        company = f"{row.targets} x target"
        if row.drafter is not None:
            company += f", drafter {_short(found, found.drafters[row.drafter])}"
        drafter = "-" if row.drafter is None else f"{row.drafter_factor:.2f}x"
        table.add_row(company, f"{row.target_factor:.2f}x", drafter)
    return table


def check_table(rows: list[Checked], target: str) -> Table:
    """Predicted beside measured, for each mode and drafter."""
    table = _table(
        *("ms/token", "drafter", "lookahead", "SP", "predicted", "measured", "error", "drift"),
    )
    for row in rows:
        of = row.prediction
        table.add_row(
            NAMES[of.mode],
            "-" if of.drafter is None else short_name(of.drafter, target),
            str(of.lookahead or "-"),
            str(of.sp),
            f"{of.ms_per_token:.2f}",
            f"{row.measured_ms:.2f}",
            f"{100 * row.error:+.1f} %",
            f"{row.drift:.2f}x",
        )
    table.caption = (
        "Of whole requests, first token included. drift: the target alone, now, over when it was "
        "measured: others' work, or a machine that changes its speed. Not taken into account."
    )
    return table


def checked_row(row: Checked) -> dict[str, Any]:
    """What --json prints of one."""
    of = row.prediction
    return {
        "mode": of.mode,
        "drafter": of.drafter,
        "lookahead": of.lookahead or None,
        "sp": of.sp,
        "predicted_ms_per_token": of.ms_per_token,
        "measured_ms_per_token": row.measured_ms,
        "error": row.error,
        "drift": row.drift,
        "error_without_drift": row.steady_error,
    }


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, caption_justify="left", pad_edge=False)
    table.add_column(titles[0], overflow="fold")
    for title in titles[1:]:
        names = title == "drafter"
        table.add_column(
            title,
            justify="left" if names else "right",
            overflow="fold",
            min_width=None if names else max(map(len, title.split())),
        )
    return table
