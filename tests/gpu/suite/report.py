"""The report: where it ran, what each section found; as JSON, and as tables for people."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from suite.section import FAILED, PASSED, Where

FORMAT = "dsi-gpu-suite"
VERSION = 1
_ROOT = Path(__file__).resolve().parents[3]
_STYLES = {PASSED: "green", FAILED: "bold red"}
_MOST_SHOWN = 300


class Report:
    """One object of JSON: format, version, facts, settings, sections, failed, seconds.

    sections: by name, each with status (passed, failed, skipped), seconds, checks (name, passed,
    detail), skipped (what, reason) and figures. failed: names of the sections that did.
    """

    def __init__(self, facts: dict[str, Any], settings: dict[str, Any]) -> None:
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "facts": facts,
            "settings": settings,
            "sections": {},
            "failed": [],
            "seconds": 0.0,
        }

    def add(self, name: str, entry: dict[str, Any], seconds: float) -> None:
        """seconds: since the start of all."""
        self.content["sections"][name] = entry
        self.content["seconds"] = round(seconds, 1)
        if entry["status"] == FAILED:
            self.content["failed"].append(name)

    def write(self, path: Path) -> None:
        """After each section: a run that is cut off leaves what it found."""
        text = json.dumps(_finite(self.content), indent=1, allow_nan=False, default=str)
        path.write_text(text + "\n")

    @property
    def failed(self) -> list[str]:
        return self.content["failed"]


def _finite(value: Any) -> Any:
    """The same with null for every number that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def facts(where: Where) -> dict[str, Any]:
    """What figures depend on, with no path of the machine. Touches the device."""
    import torch

    found: dict[str, Any] = {
        "device": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "commit": _commit(),
        **{name: _version(name) for name in ("torch", "transformers", "triton", "numpy")},
    }
    if where.cuda:
        card = torch.cuda.get_device_properties(0)
        found |= {
            "device": card.name,
            "device_memory_gib": round(card.total_memory / 2**30, 1),
            "capability": f"{card.major}.{card.minor}",
            "multiprocessors": card.multi_processor_count,
            "driver": _driver(),
            "cuda": str(torch.version.cuda),
        }
    return found


def _commit() -> str:
    """Of the checkout, with a note where files differ from it."""
    try:
        hash_ = _said("git", "-C", str(_ROOT), "rev-parse", "HEAD")
        changed = _said("git", "-C", str(_ROOT), "status", "--porcelain", "-uno")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return hash_ + " with changes" * bool(changed)


def _driver() -> str:
    smi = shutil.which("nvidia-smi")
    if smi is not None:
        try:
            asked = "--query-gpu=driver_version"
            return _said(smi, asked, "--format=csv,noheader").splitlines()[0]
        except (OSError, subprocess.SubprocessError, IndexError):
            pass
    try:  # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54  Thu ..."
        words = Path("/proc/driver/nvidia/version").read_text().split("Kernel Module")[1].split()
        return next(word for word in words if word[0].isdigit())
    except (OSError, IndexError, StopIteration):
        return "unknown"


def _said(*command: str) -> str:
    run = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return run.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def console() -> Console:
    return Console(width=None if os.isatty(1) else 100, highlight=False)


def show_section(out: Console, name: str, entry: dict[str, Any]) -> None:
    """A line for the section, then what failed and what was left out."""
    status, checks = entry["status"], entry["checks"]
    held = sum(check["passed"] for check in checks)
    style = _STYLES.get(status, "yellow")
    out.print(
        f"[{style}]{status:8}[/]{name}: {held} of {len(checks)} checks hold, "
        f"{entry['seconds']:.1f} s"
    )
    for check in checks:
        if not check["passed"]:
            said = check["detail"][:_MOST_SHOWN]
            out.print(f"        [red]fails:[/] {check['name']}", end="")
            out.print(f" ({said})" if said else "", markup=False)
    for skip in entry["skipped"]:
        out.print(f"        skipped: {skip['what']} ({skip['reason']})", markup=False)


def table(title: str, *columns: str, left: int = 1) -> Table:
    """A table whose first `left` columns are words and whose others are numbers."""
    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < left else "right")
    return made


__all__ = ["FORMAT", "VERSION", "Report", "console", "facts", "show_section", "table"]
