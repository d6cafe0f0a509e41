"""The CUDA driver as the extension opens it: our prototypes, and reasons where there is none."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dsi_native import _core
from fake_cuda import FakeCuda

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "tests" / "cpp" / "support" / "cuda_prototypes.cpp"
SYSTEM = (Path("/usr/local/cuda/include"), Path("/usr/include"))


def toolkit_headers() -> Path:
    """Where cuda.h is: the toolkit's, or the one that Triton brings."""
    spec = importlib.util.find_spec("triton")
    places = list(SYSTEM)
    if spec is not None and spec.origin is not None:
        places.insert(0, Path(spec.origin).parent / "backends" / "nvidia" / "include")
    for place in places:
        if (place / "cuda.h").is_file():
            return place
    pytest.skip("needs cuda.h: from the CUDA toolkit, or from triton")


def compiled(source: Path, csrc: Path) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    options = ["-std=c++20", "-fsyntax-only", f"-I{csrc}", "-isystem", str(toolkit_headers())]
    return subprocess.run([compiler, *options, source], capture_output=True, text=True)


def test_prototypes_agree_with_the_toolkit() -> None:
    done = compiled(CHECK, ROOT / "csrc")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("symbol", "right", "wrong"),
    [
        ("cuMemAlloc_v2", "std::size_t bytes", "unsigned bytes"),
        ("cuStreamCreateWithPriority", "unsigned flags, int priority", "int priority"),
        ("cuMemcpyHtoDAsync_v2", "const void *from", "void *from"),
        ("cuDeviceGetName", "int length", "std::size_t length"),
        ("cuMemFree_v2", "cuMemFree_v2", "cuMemFreeHost"),
    ],
)
def test_a_wrong_prototype_is_seen(tmp_path: Path, symbol: str, right: str, wrong: str) -> None:
    text = (ROOT / "csrc" / "cuda" / "api.h").read_text()
    entry = next(x for x in re.split(r"(?=ENTRY\()", text) if f", {symbol}," in x)
    assert right in entry
    (tmp_path / "cuda").mkdir()
    changed = text.replace(entry, entry.replace(right, wrong))
    (tmp_path / "cuda" / "api.h").write_text(changed)
    done = compiled(CHECK, tmp_path)
    assert done.returncode != 0 and "does not agree with cuda.h" in done.stderr


def test_the_driver_is_asked(fake_cuda: FakeCuda) -> None:
    fake_cuda.reset(2)
    assert _core.cuda_driver(fake_cuda.path) == {
        "available": True,
        "reason": "",
        "code": 0,
        "version": 12080,
        "devices": ["Fake GPU 0", "Fake GPU 1"],
    }


def test_each_reason_is_a_sentence(fake_cuda: FakeCuda) -> None:
    fake_cuda.set_init(803)
    answer = _core.cuda_driver(fake_cuda.path)
    assert not answer["available"] and answer["code"] == 803
    assert answer["reason"] == "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"
    fake_cuda.set_version(11020)
    answer = _core.cuda_driver(fake_cuda.path)
    assert answer["reason"] == "the driver is for CUDA 11.2, needed is one for 12.0 or newer"
    answer = _core.cuda_driver("libm.so.6")
    assert "libm.so.6 is no CUDA driver" in answer["reason"] and answer["code"] == 0
    answer = _core.cuda_driver("/no/such/file.so")
    assert answer["reason"].startswith("no driver library (/no/such/file.so")


def test_extension_needs_no_cuda_library() -> None:
    extension = Path(_core.__file__)
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf")
    text = subprocess.run(
        ["readelf", "-dW", extension], capture_output=True, text=True, check=True
    ).stdout
    needed = set(re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", text))
    runtime = {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "libpthread.so.0"}
    runtime |= {"libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    assert "libc.so.6" in needed and needed <= runtime
    assert "RUNPATH" not in text and "RPATH" not in text


def test_importing_opens_no_driver(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    code = "import dsi_native._core; print('libcuda' in open('/proc/self/maps').read())"
    assert run_python("-c", code).stdout.strip() == "False"
