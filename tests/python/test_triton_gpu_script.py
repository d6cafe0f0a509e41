"""tests/gpu/kernels.py runs on the CPU as far as it can, so that it works where there is a GPU."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from triton_worker import needs_triton

pytestmark = needs_triton

SCRIPT = Path(__file__).resolve().parents[1] / "gpu" / "kernels.py"


def test_dry_run(
    run_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    run = run_python(str(SCRIPT), "--dry-run", "--report", str(report))
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(report.read_text())
    assert found["device"] == "interpreter"
    for part in ("wide", "cases"):
        assert found[part]["failures"] == []
        assert found[part]["tokens compared"] > 0
    assert found["load"] == {"calls": 3, "failures": []}
    (timing,) = found["timings"]
    assert timing["rejection"]["us"] > 0
    assert timing["torch us"] > 0


def test_without_a_gpu_it_says_so(
    run_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    run = run_python(str(SCRIPT), "--report", str(tmp_path / "x"), CUDA_VISIBLE_DEVICES="")
    assert run.returncode == 2
    assert run.stderr.endswith("no CUDA device\n")
