"""`dsi heatmap`: Figure 2 of the paper."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dsi_native.cli.outputs import check_outputs, naming
from dsi_native.cli.outputs import console as new_console
from dsi_native.errors import InvalidArgument
from dsi_native.experiments.heatmap import MOST_VALUES, PANELS, Grid, Heatmap, evenly, slower_share
from dsi_native.experiments.heatmap import heatmap as run_heatmap

GRID, RUN = "Grid", "Runs"
_ENDINGS = (".csv", ".png", ".svg")
_PAPER = Grid()


def heatmap(
    latencies: Annotated[
        str,
        typer.Option(
            metavar="FIRST:LAST:STEP",
            help="Drafter latencies, in target forwards.",
            rich_help_panel=GRID,
        ),
    ] = "0.01:1:0.01",
    acceptances: Annotated[
        str,
        typer.Option(
            metavar="FIRST:LAST:STEP", help="Acceptance rates, 0 to 1.", rich_help_panel=GRID
        ),
    ] = "0:1:0.01",
    max_lookahead: Annotated[
        int, typer.Option(help="SI and DSI take the best of 1 to this.", rich_help_panel=GRID)
    ] = _PAPER.max_lookahead,
    sp: Annotated[
        int, typer.Option("--sp", help="Target servers of DSI.", rich_help_panel=GRID)
    ] = _PAPER.sp,
    equation_1: Annotated[
        bool,
        typer.Option(
            "--equation-1",
            help="Hold DSI to lookaheads that Equation 1 allows, as the paper does.",
            rich_help_panel=GRID,
        ),
    ] = False,
    tokens: Annotated[
        int, typer.Option(help="New tokens of a run.", rich_help_panel=GRID)
    ] = _PAPER.tokens,
    repeats: Annotated[
        int, typer.Option(help="Runs that each time is the mean of.", rich_help_panel=RUN)
    ] = _PAPER.repeats,
    seed: Annotated[int, typer.Option(help="Seed of the first run.", rich_help_panel=RUN)] = 0,
    threads: Annotated[
        int | None, typer.Option(help="Default: one for each core.", rich_help_panel=RUN)
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the result goes, .csv, .png or .svg; may be given several times.",
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Draw an earlier result, a .csv, and run nothing."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Speedups over drafter latency and acceptance: Figure 2 of the paper.

    The defaults are the paper's grid, which takes minutes.

    Examples:

      dsi heatmap -o heatmap.csv -o heatmap.png

      dsi heatmap --latencies 0.05:1:0.05 --acceptances 0:1:0.05

      dsi heatmap --from heatmap.csv -o heatmap.svg
    """
    outputs = output or []
    check_outputs(outputs, _ENDINGS)
    if csv is not None:
        result = _load(csv)
    else:
        asked = {
            "drafter_latencies": _range("--latencies", latencies),
            "acceptances": _range("--acceptances", acceptances),
            "max_lookahead": max_lookahead,
            "sp": sp,
            "tokens": tokens,
            "repeats": repeats,
            "seed": seed,
            "equation_1": equation_1,
        }
        try:
            result = _run(Grid(**asked), threads)
        except InvalidArgument as error:
            raise InvalidArgument(_with_option(str(error))) from None
    for path in outputs:
        result.save(path)
    if as_json:
        typer.echo(json.dumps(_as_object(result, outputs)))
        return
    console = new_console()
    console.print(_what(result))
    console.print(_table(result))
    for path in outputs:
        console.print(f"wrote {path}", soft_wrap=True)
    if not outputs:
        console.print("To keep it: -o heatmap.csv -o heatmap.png")


def _range(option: str, text: str) -> tuple[float, ...]:
    parts = text.split(":")
    try:
        numbers = [float(part) for part in parts]
        if len(numbers) == 1:
            return (numbers[0],)
        first, last, step = numbers
        return evenly(first, last, step)
    except ValueError:  # InvalidArgument is one
        raise InvalidArgument(
            f"{option} must be FIRST:LAST:STEP, up to {MOST_VALUES:,} rising values, or one "
            f"number, not {text!r}"
        ) from None


def _load(path: Path) -> Heatmap:
    with naming("--from"):
        return Heatmap.load(path)


def _run(grid: Grid, threads: int | None) -> Heatmap:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=new_console(stderr=True), transient=True)
    task = bar.add_task("Cells", total=grid.shape[0] * grid.shape[1])

    def show(done: int, _: int) -> None:
        bar.start()
        bar.update(task, completed=done)

    try:
        return run_heatmap(grid, threads=threads, progress=show)
    finally:
        if bar.live.is_started:  # otherwise it would print an empty line
            bar.stop()


def _with_option(message: str) -> str:
    """Errors begin with the name of the argument; the user knows the option."""
    names = {"drafter_latencies": "latencies"}
    found = re.match(r"\w+", message)
    assert found is not None
    return f"--{names.get(found[0], found[0]).replace('_', '-')}{message[found.end() :]}"


def _what(result: Heatmap) -> str:
    grid = result.grid
    latencies, acceptances = grid.drafter_latencies, grid.acceptances
    lines = [
        f"drafter latency {latencies[0]:g} to {latencies[-1]:g} target forwards, acceptance "
        f"{acceptances[0]:g} to {acceptances[-1]:g}: {len(latencies)} x {len(acceptances)} cells",
        f"{grid.tokens} tokens, SP = {grid.sp}, best lookahead up to {grid.max_lookahead}, "
        f"mean of {grid.repeats}, virtual clock" + ", Equation 1" * grid.equation_1,
    ]
    if result.seconds is not None and result.forwards is not None:
        lines.append(
            f"{result.seconds:.1f} s, {result.forwards / result.seconds / 1e6:.1f} million "
            f"simulated forwards a second"
        )
    return "\n".join(lines) + "\n"


def _table(result: Heatmap) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("speedup", no_wrap=True)
    for title in ("least", "median", "most", "at latency,\nacceptance", "slower\nin"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, title in PANELS.items():
        speedups = result.panel(name)
        i, j = np.unravel_index(int(speedups.argmax()), speedups.shape)
        where = f"{result.grid.drafter_latencies[i]:g}, {result.grid.acceptances[j]:g}"
        table.add_row(
            f"({name}) {title.replace('SI and non-SI', 'the two')}",
            f"{speedups.min():.2f}x",
            f"{np.median(speedups):.2f}x",
            f"{speedups.max():.2f}x",
            where,
            f"{100 * slower_share(speedups):.1f} %",
        )
    return table


def _as_object(result: Heatmap, outputs: list[Path]) -> dict[str, Any]:
    panels = {}
    for name, title in PANELS.items():
        speedups = result.panel(name)
        panels[name] = {
            "title": title,
            "least": float(speedups.min()),
            "median": float(np.median(speedups)),
            "most": float(speedups.max()),
            "slower_share": slower_share(speedups),
        }
    return {
        "configuration": result.grid.to_dict(),
        "forwards": result.forwards,
        "seconds": result.seconds,
        "panels": panels,
        "files": [str(path) for path in outputs],
    }
