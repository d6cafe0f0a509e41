"""Imported first by every script here: what leaks is reported on stderr, which must stay empty."""

from __future__ import annotations

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
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("dsi-") for name in names)


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)
