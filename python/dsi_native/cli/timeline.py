"""`dsi timeline`: what each server did when, simulated or in a real run."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Annotated

import typer

from dsi_native.cli.configured import LOOP, Asked, configured
from dsi_native.cli.generate import Mode, loading
from dsi_native.cli.outputs import check_outputs, console, naming
from dsi_native.cli.timeline_text import print_timeline
from dsi_native.errors import InvalidArgument
from dsi_native.experiments.configuration import MODES
from dsi_native.experiments.timeline import ENDINGS, Timeline
from dsi_native.experiments.timeline import timeline as run_timeline
from dsi_native.recording import load_recordings


@functools.partial(configured, unless="recording")
def timeline(
    asked: Asked | None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A picture (.png, .svg) or a trace for Perfetto (.json), in place of text; may be "
            "given several times.",
        ),
    ] = None,
    recording: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Show a real run, as `dsi generate --record` wrote it, and simulate nothing; may "
            "be given several times.",
        ),
    ] = None,
    mode: Annotated[
        list[Mode] | None,
        typer.Option(
            metavar="MODE",
            help="non-si, si or dsi; may be given several times. Default: all.",
            rich_help_panel=LOOP,
        ),
    ] = None,
    online: Annotated[
        bool,
        typer.Option(
            "--online/--offline",
            help="Real threads that wait in place of forwards, or the virtual clock.",
            rich_help_panel=LOOP,
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the runs as JSON, as --recording takes them.")
    ] = False,
) -> None:
    """Show what each server did when, for non-SI, SI and DSI: Figure 1 of the paper.

    Traces open in https://ui.perfetto.dev (Open trace file).

    Examples:

      dsi timeline --target-ms 70 --drafter-ms 10 --acceptance 0.8 --tokens 20

      dsi timeline --target-ms 70 --drafter-ms 10 --acceptance 0.8 --tokens 20 \\
        -o timeline.png -o trace.json

      dsi timeline --from measurement.json --mode si --mode dsi -o timeline.svg

      dsi generate "Why is the sky blue?" --record run.json

      dsi timeline --recording run.json
    """
    outputs = output or []
    check_outputs(outputs, ENDINGS)
    found = _recorded(recording or [], mode, online) if asked is None else _run(asked, mode, online)
    for path in outputs:
        found.save(path)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    out = console()
    if not outputs:
        print_timeline(out, found)
        return
    for heading in found.headings:
        out.print(heading)
    for path in outputs:
        out.print(f"wrote {path}", soft_wrap=True)


def _recorded(paths: list[Path], mode: list[Mode] | None, online: bool) -> Timeline:
    for given, option in ((mode, "--mode"), (online, "--online")):
        if given:
            raise InvalidArgument(f"{option}: --recording says that already")
    with naming("--recording"):
        return Timeline.of(run for path in paths for run in load_recordings(path))


def _run(asked: Asked, mode: list[Mode] | None, online: bool) -> Timeline:
    if len(asked.drafters) > 1:
        raise InvalidArgument("--drafter-ms: a timeline shows one drafter")
    modes = [one.value for one in mode] if mode else list(MODES)
    with loading(console(stderr=True), "Simulating"):
        return run_timeline(asked.configuration, modes, online=online)
