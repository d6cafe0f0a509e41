"""Imports point down only: C++ layers by their #include lines, Python by what it loads."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"

# layer -> the layers it may include
BELOW = {
    "core": {"core"},
    "kernels": {"core", "kernels"},
    "runtime": {"core", "kernels", "runtime"},
    "cuda": {"core", "kernels", "runtime", "cuda"},
    "bindings": {"core", "kernels", "runtime", "cuda", "bindings"},
}
PYTHON_ONLY_IN_BINDINGS = re.compile(r"^(nanobind/.*|Python\.h)$")
NEVER_IN_LIBRARY = re.compile(r"^(torch|ATen|c10|cuda|cuda_runtime|cudnn)\b")
# core knows no thread and no clock, prints nothing and ends nothing
NEVER_IN_CORE = re.compile(
    r"^(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token"
    r"|atomic|chrono|ctime|iostream|cstdio|pthread\.h|unistd\.h)$"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
MAX_LINES = 400


def violations(layer: str, text: str) -> list[str]:
    """What the text of a file in `layer` includes and must not."""
    found = []
    for name in INCLUDE.findall(text):
        top = name.split("/")[0]
        if (
            ("/" in name and top in BELOW and top not in BELOW[layer])
            or NEVER_IN_LIBRARY.match(name)
            or (layer != "bindings" and PYTHON_ONLY_IN_BINDINGS.match(name))
            or (layer == "core" and NEVER_IN_CORE.match(name))
        ):
            found.append(name)
    return found


def native_files() -> list[Path]:
    return sorted(p for p in CSRC.rglob("*") if p.suffix in {".h", ".cpp"})


@pytest.mark.parametrize("path", native_files(), ids=lambda p: str(p.relative_to(CSRC)))
def test_includes_point_down(path: Path) -> None:
    text = path.read_text()
    assert violations(path.relative_to(CSRC).parts[0], text) == []
    for name in INCLUDE.findall(text):
        if name.split("/")[0] in BELOW:
            assert (CSRC / name).is_file(), f"{name} does not exist"


@pytest.mark.parametrize(
    ("layer", "line"),
    [
        ("core", '#include "runtime/worker.h"'),
        ("core", "#include <mutex>"),
        ("core", "#include <iostream>"),
        ("core", "#  include <nanobind/nanobind.h>"),
        ("runtime", '#include "bindings/module.h"'),
        ("runtime", "#include <Python.h>"),
        ("kernels", '#include "runtime/server.h"'),
        ("cuda", "#include <cuda_runtime.h>"),
        ("bindings", "#include <torch/extension.h>"),
    ],
)
def test_a_violation_is_seen(layer: str, line: str) -> None:
    assert violations(layer, f"// about\n#pragma once\n{line}\n") != []


def test_every_layer_has_a_rule() -> None:
    assert {p.parent.relative_to(CSRC).parts[0] for p in native_files()} <= set(BELOW)
    assert {"core", "kernels", "runtime", "bindings"} <= {p.name for p in CSRC.iterdir()}


def test_files_stay_small() -> None:
    files = [*native_files(), *(ROOT / "python").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    files += (ROOT / "tests" / "cpp").glob("*.cpp")
    too_long = {str(p.relative_to(ROOT)) for p in files if len(p.read_text().splitlines()) > 400}
    assert too_long == set()


def test_import_is_light(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    heavy = "{'torch', 'transformers', 'tokenizers', 'typer', 'rich', 'triton', 'gguf'}"
    code = f"import sys, dsi_native; print(sorted({heavy} & set(sys.modules)))"
    done = run_python("-c", code)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


def test_import_is_fast(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    def import_us() -> int:
        lines = run_python("-X", "importtime", "-c", "import dsi_native").stderr.splitlines()
        (line,) = [x for x in lines if x.split("|")[-1] == " dsi_native"]
        return int(line.split("|")[1])

    # The least of several: other work on the machine only ever adds.
    assert min(import_us() for _ in range(5)) < 150_000
