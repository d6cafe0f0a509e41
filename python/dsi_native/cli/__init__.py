"""The command line `dsi`, a module for each command. Needs the extra [cli]."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

import dsi_native
from dsi_native.cli import (
    doctor,
    generate,
    heatmap,
    measure,
    plan,
    simulate,
    table,
    timeline,
    vocab,
)
from dsi_native.errors import InvalidArgument

__all__ = ["app", "run"]

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


@dataclass
class Settings:
    """What the options before the command say."""

    traceback: bool = False


app = typer.Typer(
    name="dsi",
    help="Distributed speculative inference: several target servers and a drafter decode at once, "
    "and the text is the target's own.",
    epilog="Start with: dsi generate 'Tell me a story.'",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    generate.generate,
    plan.plan,
    measure.measure,
    simulate.simulate,
    heatmap.heatmap,
    table.table,
    timeline.timeline,
    vocab.vocab,
    doctor.doctor,
):
    app.command()(_command)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    show_traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an error came from.")
    ] = False,
) -> None:
    if isinstance(context.obj, Settings):
        context.obj.traceback = show_traceback
    if version:
        typer.echo(f"dsi_native {dsi_native.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; arguments None takes the process's. Returns the exit status.

    0: done. 2: the caller's mistake (usage, InvalidArgument). 130: Ctrl-C. 1: any other error.
    An error is one line on stderr, `error: ...`, and no traceback unless `--traceback` is given.
    """
    settings = Settings()
    command: Any = typer.main.get_command(app)
    try:
        status = command.main(
            args=None if arguments is None else list(arguments),
            prog_name="dsi",
            standalone_mode=False,
            obj=settings,
        )
        return status if isinstance(status, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except Exception as error:
        if settings.traceback:
            traceback.print_exc()
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return EXIT_USAGE if _is_usage(error) else EXIT_ERROR


def _is_usage(error: Exception) -> bool:
    # Usage errors live in click or in typer, depending on typer's version; both have this method.
    return isinstance(error, InvalidArgument) or hasattr(error, "format_message")


def _one_line(error: Exception) -> str:
    if hasattr(error, "format_message"):
        text = error.format_message()
    elif isinstance(error, (dsi_native.Error, OSError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    if isinstance(error, InvalidArgument) and type(error) is not InvalidArgument:
        text = f"{type(error).__name__}: {text}"  # those of the published simulator go by name
    cause = error.__cause__
    why = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    if isinstance(error, dsi_native.Error) and cause is not None and why not in text:
        text += f" ({type(cause).__name__}: {cause})"
    return " ".join(text.split())
