"""Imported first by every script here: what leaks is reported on stderr, which must stay empty."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from dsi_native import _core

_core._set_leak_warnings(True)
# Python 3.12 and later warn of every fork of a process with threads; that it works is the test.
warnings.filterwarnings("ignore", message=".*multi-threaded", category=DeprecationWarning)

PROMPT = [3, 1, 4, 1, 5]
FOREVER = {"max_new_tokens": 10**9}


def own_threads() -> int:
    """Ask through `eventually`: the kernel lists a thread a moment longer than join waits."""
    count = 0
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # ended since it was listed
            count += path.read_text().startswith("dsi-")
    return count


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)
