"""Where a figure comes from (machine, load, versions), and how figures are shown and kept."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

console = Console(width=None if os.isatty(1) else 132, highlight=False)
# Load from others, in cores, from which on timings say little.
_BUSY_CORES = 0.3


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser with what every benchmark offers: --full, --json PATH."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--full", action="store_true", help="the long version, see bench/README.md")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures there")
    return parser


def filled(
    arguments: argparse.Namespace, short: dict[str, int], full: dict[str, int]
) -> argparse.Namespace:
    """The arguments, where none was given those of the short or the full version."""
    for name, value in (full if arguments.full else short).items():
        setattr(arguments, name, getattr(arguments, name) or value)
    return arguments


def machine() -> dict[str, Any]:
    """Facts that a figure depends on. Blocks for 1 s to see what others do with the cores."""
    cores = len(os.sched_getaffinity(0))
    return {
        "cpu": _cpu_model(),
        "cores": cores,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("dsi-native", "torch", "transformers")},
        "load_average": [round(x, 2) for x in os.getloadavg()],
        "others_use_cores": round(psutil.cpu_percent(1.0) / 100 * (os.cpu_count() or 1), 2),
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def begin(title: str) -> dict[str, Any]:
    """Prints the title and the machine, warns if the machine is busy; returns machine()."""
    facts = machine()
    console.rule(title)
    console.print(
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB; "
        f"Python {facts['python']}, torch {facts['torch']}, transformers {facts['transformers']}, "
        f"dsi-native {facts['dsi-native']}; load {facts['load_average'][0]}"
    )
    if facts["others_use_cores"] > _BUSY_CORES:
        console.print(
            f"[bold yellow]warning:[/] others use {facts['others_use_cores']} cores of this "
            "machine: timings will be wrong"
        )
    return facts


def end(facts: dict[str, Any], arguments: argparse.Namespace, **figures: Any) -> None:
    """Writes everything to --json, if asked for."""
    if arguments.json is None:
        return
    used = {key: value for key, value in vars(arguments).items() if key != "json"}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": facts, "arguments": used, **figures}
    arguments.json.write_text(json.dumps(content, indent=1, default=str) + "\n")
    console.print(f"written: {arguments.json}")


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, else a line for each tenth; call the step before each of `total`."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    done = 0
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=total)

        def step(what: str) -> None:
            nonlocal done
            bar.update(task, completed=done, description=what)
            if not console.is_terminal and done * 10 // total != (done - 1) * 10 // total:
                console.print(f"{time.strftime('%H:%M:%S')} {done} of {total}: {what}")
            done += 1

        yield step


def table(title: str, *columns: str, left: int = 1) -> Table:
    """A table whose first `left` columns are words and whose others are numbers."""
    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < left else "right")
    return made


def verdict(ok: bool, claim: str) -> bool:
    """Prints a claim with whether it held; returns `ok`."""
    console.print(("[green]holds [/] " if ok else "[bold red]FAILS [/] ") + claim)
    return ok


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """The lowest and the highest, as text."""
    return f"{min(values):.3f}-{max(values):.3f}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name != "dsi-native":
            return "not installed"
        import dsi_native

        return str(dsi_native.__version__)
