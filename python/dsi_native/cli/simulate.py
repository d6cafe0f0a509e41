"""`dsi simulate`: one configuration, decoded by non-SI, SI and DSI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from dsi_native.cli.configured import LOOP, Asked, configured
from dsi_native.cli.generate import loading
from dsi_native.cli.outputs import console
from dsi_native.errors import InvalidArgument
from dsi_native.experiments.configuration import MODES
from dsi_native.experiments.multi import DraftersResult, simulate_drafters
from dsi_native.experiments.run import NAMES, Run
from dsi_native.experiments.run import simulate as simulate_run

_OFFLINE_REPEATS = 100


@configured
def simulate(
    asked: Asked,
    online: Annotated[
        bool,
        typer.Option(
            "--online/--offline",
            help="Real threads that wait in place of forwards, or the virtual clock.",
            rich_help_panel=LOOP,
        ),
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            help="Runs that the times are the mean of. Default: 100, or 1 with --online.",
            rich_help_panel=LOOP,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate non-SI, SI and DSI: models take time and compute nothing, the loop is the real one.

    Every target server has hardware of its own.

    With names of the published simulator, what it refuses is refused, by the same error.

    Examples:

      dsi simulate --target-ms 37.7 --drafter-ms 2.5 --acceptance 0.63

      dsi simulate --target-ms 37.7 --drafter-ms 2.5 --acceptance 0.63 --online

      dsi simulate --c 0.1 --a 0.8 --k 5 --num_target_servers 4

      dsi simulate --target-ms 30 --drafter-ms 3 --acceptance 0.6 \\
        --drafter-ms 9 --acceptance 0.9

      dsi simulate --from measurement.json
    """
    if repeats is None:
        repeats = 1 if online else _OFFLINE_REPEATS
    if repeats < 1:
        raise InvalidArgument(f"--repeats must be at least 1, not {repeats}")
    if len(asked.drafters) > 1:
        if online:
            raise InvalidArgument("--online: several drafters run on the virtual clock only")
        _simulate_drafters(asked, repeats, as_json)
        return
    runs = []
    with loading(console(stderr=True), "Simulating"):
        for mode in MODES:
            runs.append(simulate_run(asked.configuration, mode, online=online, repeats=repeats))
    if as_json:
        typer.echo(json.dumps(_as_object(asked, online, repeats, [_run(r, runs) for r in runs])))
        return
    out = console()
    out.print(_what(asked, online, repeats))
    out.print(_table(runs, online))
    if online and (asked.configuration.target.jitter or asked.configuration.drafter.jitter):
        out.print("wall/virtual: with jitter the two have forwards of other lengths.")
    lookahead, least = runs[-1].lookahead, asked.configuration.least_lookahead
    if lookahead < least:
        out.print(
            f"Equation 1: with {runs[-1].sp} target servers DSI would need a lookahead of at least "
            f"{least}, so here drafts wait for a server.",
            soft_wrap=True,
        )


def _run(run: Run, runs: Sequence[Run]) -> dict[str, Any]:
    """What --json prints of one; the ids of a simulated text are of no use to anybody."""
    row = run.to_dict()
    del row["tokens"]
    return {**row, "speedup": runs[0].total_ms / run.total_ms}


def _as_object(asked: Asked, online: bool, repeats: int, rows: list[Any]) -> dict[str, Any]:
    configuration = asked.configuration.to_dict()
    return {"configuration": configuration, "online": online, "repeats": repeats, "rows": rows}


def _what(asked: Asked, online: bool, repeats: int) -> str:
    """The configuration, in a line or two."""
    of = asked.configuration
    target = of.target.text()
    if len(asked.drafters) == 1:
        drafter = f"{of.drafter.text()}, acceptance {of.acceptance:.3g}"
    else:
        drafter = "; ".join(
            f"{x.latency.text()}, acceptance {x.acceptance:.3g}" for x in asked.drafters
        )
    first = "" if asked.measured is None else f"{asked.measured}, each server on its own hardware\n"
    clock = "real threads" if online else "virtual clock"
    runs = "1 run" if repeats == 1 else f"mean of {repeats} runs"
    return (
        f"{first}target {target}; drafter {drafter}\n"
        f"{of.tokens} tokens, {clock}, {runs}, seed {of.seed}\n"
    )


def _table(runs: Sequence[Run], online: bool) -> Table:
    table = _columns(
        "", "look-\nahead", "SP", "total,\nms", "ms per\ntoken", "speedup", "target\nforwards",
        "wasted", "stopped", *(["wall/\nvirtual"] if online else []),
    )  # fmt: skip
    for run in runs:
        table.add_row(
            NAMES[run.mode],
            str(run.lookahead or "-"),
            str(run.sp),
            f"{run.total_ms:.1f}",
            f"{run.ms_per_token:.2f}",
            f"{runs[0].total_ms / run.total_ms:.2f}x",
            f"{run.target_forwards:.1f}",
            f"{run.wasted_forwards:.1f}",
            f"{run.stopped_forwards:.1f}",
            *([f"{run.wall_over_virtual:.4f}"] if online else []),
        )
    return table


def _columns(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for title in titles:
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    return table


# -- several drafters ------------------------------------------------------------------------------


def _simulate_drafters(asked: Asked, repeats: int, as_json: bool) -> None:
    """non-SI, DSI with each drafter alone on the same sequences, DSI with all of them."""
    of, count = asked.configuration, len(asked.drafters)
    alone: list[list[DraftersResult]] = [[] for _ in range(count)]
    together = []
    for number in range(repeats):
        both = simulate_drafters(
            of.target, asked.drafters, tokens=of.tokens, seed=(of.seed + number) % 2**64
        )
        together.append(both)
        for i, drafter in enumerate(asked.drafters):
            alone[i].append(
                simulate_drafters(of.target, [drafter], tokens=of.tokens, right=[both.right[i]])
            )
    plain_ms = simulate_run(of, "non-si", repeats=repeats).total_ms
    rows: list[dict[str, Any]] = [{"mode": "non-si", "drafters": [], "total_ms": plain_ms}]
    for i in range(count):
        rows.append(_summary([i], alone[i]))
    rows.append(_summary(list(range(count)), together))
    for row in rows:
        row["ms_per_token"] = row["total_ms"] / of.tokens
        row["speedup"] = plain_ms / row["total_ms"]
    if as_json:
        answer = _as_object(asked, False, repeats, rows)
        for name in ("drafter", "acceptance", "sp", "lookahead"):
            del answer["configuration"][name]
        answer["configuration"]["drafters"] = [asdict(drafter) for drafter in asked.drafters]
        typer.echo(json.dumps(answer))
        return
    out = console()
    out.print(_what(asked, False, repeats))
    out.print(_drafters_table(rows, of.tokens))
    if any(result.crowded for result in together):
        out.print("The tree was full at times: drafts of the last drafters had to wait.")


def _summary(drafters: list[int], results: Sequence[DraftersResult]) -> dict[str, Any]:
    return {
        "mode": "dsi",
        "drafters": drafters,
        "total_ms": fmean(r.total_ms for r in results),
        "target_forwards": fmean(r.forwards for r in results),
        "wasted_forwards": fmean(r.wasted for r in results),
        "stopped_forwards": fmean(r.stopped for r in results),
        "peak_servers": max(r.peak_servers for r in results),
        "accepted": [fmean(r.accepted[i] for r in results) for i in range(len(drafters))],
    }


def _drafters_table(rows: Sequence[dict[str, Any]], tokens: int) -> Table:
    table = _columns(
        "", "total,\nms", "ms per\ntoken", "speedup", "target\nservers", "target\nforwards",
        "tokens by\ndrafter",
    )  # fmt: skip
    for row in rows:
        if row["mode"] == "non-si":
            name, more = "non-SI", ["1", f"{tokens}", "-"]
        else:
            numbers = [i + 1 for i in row["drafters"]]
            one = len(numbers) == 1
            name = f"DSI, drafter {numbers[0]}" if one else f"DSI, drafters 1-{numbers[-1]}"
            more = [
                str(row["peak_servers"]),
                f"{row['target_forwards']:.1f}",
                ", ".join(f"{x:.1f}" for x in row["accepted"]),
            ]
        table.add_row(
            name, f"{row['total_ms']:.1f}", f"{row['ms_per_token']:.2f}", f"{row['speedup']:.2f}x",
            *more,
        )  # fmt: skip
    return table
