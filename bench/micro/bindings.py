"""What a call costs from Python through nanobind and through pybind11: three equal functions.

Builds them into build/bench-bindings first; needs cmake, ninja, nanobind and pybind11.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from rig import report

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "bench-bindings"
CALLS, RUNS = 20_000, 15


def build() -> None:
    """Raises SystemExit with what is missing."""
    # cmake and ninja may come from the virtual environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    for command in ("cmake", "ninja"):
        if shutil.which(command, path=path) is None:
            raise SystemExit(f"{command} is missing: pip install {command}")
    cmake, environment = shutil.which("cmake", path=path), {**os.environ, "PATH": path}
    folders = {}
    for name, option in (("nanobind", "--cmake_dir"), ("pybind11", "--cmakedir")):
        if importlib.util.find_spec(name) is None:
            raise SystemExit(f"{name} is missing: pip install {name}")
        asked = [sys.executable, "-m", name, option]
        folders[name] = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    for command in (
        [cmake, "-G", "Ninja", "-S", str(HERE / "bindings"), "-B", str(BUILD)]
        + [f"-D{name}_DIR={folder.strip()}" for name, folder in folders.items()]
        + [f"-DPython_EXECUTABLE={sys.executable}"],
        [cmake, "--build", str(BUILD)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)


def nanoseconds(call: Callable[..., Any], *arguments: Any) -> float:
    """Of one call, over CALLS of them; the loop's own share is in it."""
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call(*arguments)
    return (time.perf_counter_ns() - start) / CALLS


def main() -> int:
    arguments = report.options(__doc__).parse_args()
    facts = report.begin("bindings: what a call costs")
    build()
    sys.path.insert(0, str(BUILD))
    import with_nanobind
    import with_pybind11

    array = np.ones(1000, np.float32)
    cases = {
        "nothing": (),
        "pointer": (array.ctypes.data, array.size),
        "array": (array,),
    }
    for module in (with_nanobind, with_pybind11):
        assert module.pointer(*cases["pointer"]) == module.array(array) == 1.0
    rows = []
    shown = report.table(
        f"Nanoseconds per call, median of {RUNS} interleaved runs of {CALLS:,} calls",
        *("", "nanobind", "pybind11", "pybind11/nanobind"),
    )
    for name, given in cases.items():
        taken: dict[Any, list[float]] = {with_nanobind: [], with_pybind11: []}
        for _ in range(RUNS):
            for module, times in taken.items():
                times.append(nanoseconds(getattr(module, name), *given))
        ours, theirs = (report.median(times) for times in taken.values())
        shown.add_row(name, f"{ours:.0f}", f"{theirs:.0f}", f"{theirs / ours:.2f}x")
        rows.append({"function": name, "nanobind_ns": ours, "pybind11_ns": theirs})
    report.console.print(shown)
    versions = {name: importlib.metadata.version(name) for name in ("nanobind", "pybind11")}
    report.console.print(", ".join(f"{name} {version}" for name, version in versions.items()))
    report.end(facts, arguments, rows=rows, versions=versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
