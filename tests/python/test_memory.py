"""A soak with flat memory; DSI_SOAK_TOKENS sets how long, 10^5 tokens by default."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOKENS = int(float(os.environ.get("DSI_SOAK_TOKENS", "1e5")))
LIMIT_S = 60 + TOKENS / 2000


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_a_soak_ends_with_flat_memory(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run_python(
        str(HERE / "soak.py"),
        str(TOKENS),
        str(LIMIT_S),
        timeout_s=1.5 * LIMIT_S,
        PYTHONPATH=str(HERE),
    )
    assert (done.returncode, done.stderr) == (0, "")
    run = json.loads(done.stdout)
    print(run)
    assert run["tokens"] >= TOKENS
    resident_kb, objects, threads, open_files = zip(*run["samples"], strict=True)
    # The first tenths fill the allocator's arenas, which stay.
    assert max(resident_kb[3:]) - resident_kb[2] < 2048
    assert max(objects[1:]) - objects[0] < 200
    assert len(set(threads)) == 1
    assert max(open_files) == open_files[0]
