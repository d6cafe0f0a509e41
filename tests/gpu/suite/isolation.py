"""A section in a process of its own: what it breaks, breaks for it alone.

A CUDA error can leave a process's device unusable, a hang would take the time of all that follows,
and memory that torch keeps is gone from the device. Forked from a parent that has imported torch
and touched no device, a child costs what the device's context costs.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from suite.section import FAILED, Section, Where, failure_of, without_paths

Run = Callable[[Section, Where], None]
# Beyond its budget a section is finishing what it began.
GRACE_S = 30.0


def run_section(
    name: str, run: Run, where: Where, budget_s: float, limit_s: float
) -> dict[str, Any]:
    """The section's entry in the report; its process is ended after limit_s. Blocks."""
    begun = time.monotonic()
    if limit_s <= 0:
        section = Section(name, budget_s)
        section.check("runs to its end", False, "no time was left for it")
        return section.to_dict()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(theirs, name, run, where, budget_s)
    )
    process.start()
    theirs.close()
    entry = Section(name, budget_s).to_dict()
    done, ending = False, ""
    while not done and not ending:
        left = begun + limit_s - time.monotonic()
        if left <= 0 or not ours.poll(left):
            ending = f"still running after {limit_s:.1f} s"
            process.kill()
        else:
            try:
                done, entry = ours.recv()
            except EOFError:
                process.join()
                ending = f"its process ended with {process.exitcode}"
    process.join()
    ours.close()
    if ending:
        entry["checks"].append({"name": "runs to its end", "passed": False, "detail": ending})
        entry["status"] = FAILED
    entry["seconds"] = round(time.monotonic() - begun, 2)
    return entry


def in_child(function: Callable[[], Any], limit_s: float) -> Any:
    """What function() returns in a process of its own. Raises RuntimeError where it fails."""

    def run(section: Section, where: Where) -> None:
        section.figures["answer"] = function()
        section.check("answers", True)

    entry = run_section("", run, Where("cpu", True), limit_s, limit_s)
    if entry["status"] == FAILED:
        raise RuntimeError(entry["checks"][-1]["detail"])
    return entry["figures"]["answer"]


def fill(section: Section, run: Run, where: Where) -> None:
    """Runs it; an exception is a failure of the section, and its trace goes to stderr."""
    if where.threads is not None:
        torch.set_num_threads(where.threads)  # for what this thread computes itself
    try:
        run(section, where)
    except Exception as error:
        section.check("runs to its end", False, failure_of(error))
        print(without_paths_by_line(traceback.format_exc()), file=sys.stderr)


def without_paths_by_line(text: str) -> str:
    return "\n".join(without_paths(line) for line in text.splitlines())


def _serve(connection: Connection, name: str, run: Run, where: Where, budget_s: float) -> None:
    def tell(section: Section, done: bool = False) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            connection.send((done, section.to_dict()))

    section = Section(name, budget_s, news=tell)
    fill(section, run, where)
    tell(section, done=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a device that is in a bad way must not keep it from ending


__all__ = ["GRACE_S", "Run", "fill", "in_child", "run_section"]
