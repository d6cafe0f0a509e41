"""`dsi table`: Table 2 of the DSI paper, corrected and completed."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Drawn

from dsi_native.cli.outputs import check_outputs, naming
from dsi_native.cli.outputs import console as new_console
from dsi_native.errors import InvalidArgument

if TYPE_CHECKING:
    from dsi_native.experiments.sheets import Sheet
    from dsi_native.experiments.table import Progress as Step

# argument of the API -> option
_OPTIONS = {"rows": "--row", "tensor_parallel_efficiency": "--efficiency"}
_SAME = ("repeats", "sp", "tokens", "seed")
_ROWS = "Rows"
_ANY_WIDTH = 1000


def table(
    online: Annotated[
        bool,
        typer.Option(
            "--online/--offline",
            help="Real threads that wait in place of forwards, or the virtual clock.",
        ),
    ] = False,
    row: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            help="Only this row of the paper, 1 to 10. May be given several times.",
            rich_help_panel=_ROWS,
        ),
    ] = None,
    measurement: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="The JSON of `dsi measure`: a further row for each of its drafters, every server "
            "on hardware of its own.",
            rich_help_panel=_ROWS,
        ),
    ] = None,
    sp: Annotated[int, typer.Option("--sp", help="Target servers of DSI.")] = 7,
    tokens: Annotated[int, typer.Option(help="New tokens of a run.")] = 50,
    repeats: Annotated[
        int | None,
        typer.Option(
            help="Runs that the times are the mean of. Default: 300, or 1 with --online.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds meet the same drafts.")] = 0,
    ttft: Annotated[
        bool,
        typer.Option(
            "--ttft/--no-ttft",
            help="First forwards as slow as the paper has measured them (its Table 3), or as fast "
            "as later ones.",
        ),
    ] = True,
    unstoppable: Annotated[
        bool,
        typer.Option("--unstoppable", help="Forwards run to their end, needed or not."),
    ] = False,
    efficiency: Annotated[
        float | None,
        typer.Option(
            help="Of the target tensor-parallel on SP + 1 devices, above 0, at most 1. Default: a "
            "fit of published rates, 0.39 on 8 devices.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the result goes, .json, .csv or .md; may be given several times.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The paper's ten configurations by non-SI, SI and DSI, beside what it publishes.

    SI at its own best lookahead too, Proposition 1's bound, forwards spent per
    token, the target tensor-parallel on as many devices. Online it takes two
    minutes.

    Examples:

      dsi table

      dsi table --online --row 1 --row 7

      dsi table --from measurement.json -o table.md
    """
    from dsi_native.experiments import sheets
    from dsi_native.experiments.measurement import Measurement
    from dsi_native.experiments.table import ENDINGS
    from dsi_native.experiments.table import table as make

    errors = new_console(stderr=True)
    outputs = output or []
    check_outputs(outputs, ENDINGS)
    with naming("--from"):
        measured = None if measurement is None else Measurement.load(measurement)
    start = time.monotonic()
    with _by_option(), _progress(errors, online) as step:
        found = make(
            row or None,
            online=online,
            repeats=repeats,
            sp=sp,
            tokens=tokens,
            seed=seed,
            ttft=ttft,
            stoppable=not unstoppable,
            tensor_parallel_efficiency=efficiency,
            measurement=measured,
            progress=step,
        )
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
    else:
        console = new_console()
        for sheet in sheets.of_table(found):
            _print(console, sheet)
    for path in outputs:
        found.save(path)
        errors.print(f"wrote {path}", soft_wrap=True)
    if online:
        errors.print(f"took {time.monotonic() - start:.0f} s")


@contextlib.contextmanager
def _by_option() -> Iterator[None]:
    """Errors of the API name arguments; here they name options."""
    try:
        yield
    except InvalidArgument as error:
        text = str(error)
        for name, option in {**_OPTIONS, **{x: f"--{x}" for x in _SAME}}.items():
            if text.startswith((f"{name} ", f"{name}:")):
                raise InvalidArgument(option + text.removeprefix(name)) from None
        raise


@contextlib.contextmanager
def _progress(console: Console, online: bool) -> Iterator[Step | None]:
    """Online: a bar with the time left on a terminal, else a line for each row."""
    if not online:
        yield None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=1.0)
            yield lambda share, what: bar.update(task, completed=share, description=what)
    else:
        said = [""]

        def say(_: float, what: str) -> None:
            if what not in ("", said[0]):
                console.print(what)
                said[0] = what

        yield say


def _print(console: Console, sheet: Sheet) -> None:
    drawn = _drawn(sheet, 1)
    if Console(width=_ANY_WIDTH).measure(drawn).maximum > console.width:
        drawn = _drawn(sheet, 0)
    console.print(sheet.title, style="bold")
    console.print(drawn)
    for note in sheet.notes:
        console.print(note)
    console.print()


def _drawn(sheet: Sheet, gap: int) -> Drawn:
    """gap: blanks between columns, beyond one."""
    drawn = Drawn(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))
    drawn.add_column("", overflow="fold")
    for head in sheet.heads:
        drawn.add_column(head.replace(" ", "\n"), justify="right", no_wrap=True)
    for row in sheet.rows:
        drawn.add_row(*row)
    return drawn
