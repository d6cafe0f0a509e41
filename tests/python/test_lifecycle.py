"""How engines come to their end. Each script runs in a process of its own, several times.

Exit status 0 and nothing on stderr: no traceback, no abort, no report of leaked objects. The number
of runs is DSI_LIFECYCLE_RUNS, 3 by default.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNS = int(os.environ.get("DSI_LIFECYCLE_RUNS", "3"))
AT_ONCE = 3
SCRIPTS = sorted(
    path.stem for path in (HERE / "lifecycle").glob("*.py") if path.stem not in ("strict", "ctrl_c")
)
FORWARD_S = 1.2


def run_once(command: list[str]) -> tuple[float, str]:
    """How long it took, and what was wrong."""
    environment = os.environ | {"PYTHONPATH": str(HERE), "PYTHONFAULTHANDLER": "1"}
    started = time.monotonic()
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except subprocess.TimeoutExpired as hung:
        return 30.0, f"hangs\n{hung.stdout}\n{hung.stderr}"
    took = time.monotonic() - started
    fine = (done.returncode, done.stderr) == (0, "")
    return took, "" if fine else f"status {done.returncode}\n{done.stdout}\n{done.stderr}"


def run(script: str, *arguments: str) -> list[float]:
    """Runs it RUNS times, some at once; returns how long each took."""
    command = [sys.executable, str(HERE / "lifecycle" / f"{script}.py"), *arguments]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = list(pool.map(run_once, [command] * RUNS))
    wrong = [what for _, what in runs if what]
    assert not wrong, f"{len(wrong)} of {RUNS} runs, the first: {wrong[0]}"
    return [took for took, _ in runs]


@pytest.mark.timeout(30 + 20 * RUNS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_lifecycle(script: str) -> None:
    run(script)


@pytest.mark.timeout(30 + 20 * RUNS)
@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("unstoppable", "generate"),
        ("unstoppable", "batch"),
        ("python", "generate"),
        ("python", "stream"),
        ("python", "async"),
        ("python", "result"),
        ("stoppable", "generate"),
    ],
)
def test_ctrl_c(what: str, how: str) -> None:
    took = run("ctrl_c", what, how, str(FORWARD_S))
    if what != "stoppable":  # a forward that cannot be stopped is waited for at the exit
        assert min(took) > FORWARD_S
