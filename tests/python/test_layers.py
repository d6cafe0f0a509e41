"""Imports point down only: C++ layers by their #include lines, Python by what it loads."""

from __future__ import annotations

import ast
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
NEVER_IN_LIBRARY = re.compile(r"^((torch|ATen|c10|cudnn)\b|cuda(_\w+)?\.h$)")
# core knows no thread and no clock, prints nothing and ends nothing
NEVER_IN_CORE = re.compile(
    r"^(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token"
    r"|atomic|chrono|ctime|iostream|cstdio|pthread\.h|unistd\.h)$"
)
# package of Python -> what of dsi_native its modules may import; they know no engine and no model
PYTHON_BELOW = {
    "kernels": ("errors", "kernels"),
    "kernels/native.py": ("errors", "kernels", "_core"),
    "reference": ("errors", "kernels.contract", "reference"),
    "vocab": ("errors", "vocab"),
}
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
        ("cuda", "#include <cuda.h>"),
        ("runtime", '#include "cuda/driver.h"'),
        ("cuda", '#include "bindings/interpreter.h"'),
        ("bindings", "#include <torch/extension.h>"),
    ],
)
def test_a_violation_is_seen(layer: str, line: str) -> None:
    assert violations(layer, f"// about\n#pragma once\n{line}\n") != []


def test_every_layer_has_a_rule() -> None:
    assert {p.parent.relative_to(CSRC).parts[0] for p in native_files()} <= set(BELOW)
    assert {"core", "kernels", "runtime", "cuda", "bindings"} <= {p.name for p in CSRC.iterdir()}


def imported(text: str) -> set[str]:
    """Modules of dsi_native that the text of a file imports, without the package's name."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            within = node.module == "dsi_native"
            found |= {f"dsi_native.{x.name}" for x in node.names} if within else {node.module or ""}
    return {name.removeprefix("dsi_native.") for name in found if name.startswith("dsi_native.")}


@pytest.mark.parametrize("package", PYTHON_BELOW)
def test_python_packages_beside_the_engine_know_nothing_above(package: str) -> None:
    place = ROOT / "python" / "dsi_native" / package
    below = PYTHON_BELOW[package]
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    for path in files:
        if str(path.relative_to(ROOT / "python" / "dsi_native")) in PYTHON_BELOW and path != place:
            continue  # has a rule of its own
        for name in imported(path.read_text()):
            assert any(name == x or name.startswith(f"{x}.") for x in below), f"{path.name}: {name}"


def test_an_import_upwards_is_seen() -> None:
    text = "def f():\n    from dsi_native import engine\n    import dsi_native.hf as hf, numpy\n"
    assert imported(text) == {"engine", "hf"}


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
