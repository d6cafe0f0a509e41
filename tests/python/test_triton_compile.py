"""The Triton kernels compiled ahead of time, for GPUs that are not there: what they would need.

The limits keep three programs of four warps on a multiprocessor; loads of 16 bytes are what the
memory's bandwidth takes, and they are lost easily, for example by a mask that is not the width.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triton_worker import needs_triton

pytestmark = needs_triton

HERE = Path(__file__).parent
MOST_REGISTERS = 168
MOST_STACK_BYTES = 16

# All variants on one architecture; on the others what is used most.
TARGETS = [
    pytest.param(80, ["plain"], id="sm_80"),
    pytest.param(90, ["plain"], id="sm_90"),
    pytest.param(90, ["everything"], id="sm_90, everything"),
    pytest.param(90, ["mapped, lse given", "point mass", "drafter"], id="sm_90, other variants"),
    pytest.param(100, ["plain"], id="sm_100"),
]


@pytest.mark.parametrize(("capability", "variants"), TARGETS)
def test_resources(
    capability: int,
    variants: list[str],
    run_python: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    run = run_python(
        str(HERE / "triton_aot.py"),
        str(capability),
        *variants,
        TRITON_CACHE_DIR=str(tmp_path),
        TRITON_INTERPRET="0",
    )
    assert run.returncode == 0, run.stderr
    kernels: list[dict[str, Any]] = [json.loads(line) for line in run.stdout.splitlines()]
    assert {kernel["variant"] for kernel in kernels} == set(variants)
    for kernel in kernels:
        assert kernel["registers"] <= MOST_REGISTERS, kernel
        assert kernel["stack"] <= MOST_STACK_BYTES, kernel
        assert any("v4" in load for load in kernel["loads"]), kernel


def test_no_option_lets_the_compiler_fuse_multiply_and_add(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """The series of the noise would round differently from NumPy's and C++'s."""
    code = (
        "from dsi_native.kernels.triton import launch;"
        "print({x['enable_fp_fusion'] for x in launch.OPTIONS.values()}, len(launch.OPTIONS))"
    )
    run = run_python("-c", code, TRITON_INTERPRET="0")
    assert run.stdout == "{False} 4\n", run.stderr
