"""The CUDA driver without a device that the C++ tests use, for Python."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "cpp" / "support" / "fake_cuda"


def build(compiler: str, into: Path) -> Path:
    """Compiles the fake driver to the shared library `into`. Takes seconds."""
    sources = sorted(SOURCES.glob("*.cpp"))
    options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"]
    include = f"-I{ROOT / 'csrc'}"
    subprocess.run([compiler, *options, include, *sources, "-o", into], check=True)
    return into


class FakeCuda:
    """Its switches, see fake_cuda.h. They belong to the library, not to this object."""

    def __init__(self, library: Path) -> None:
        self.path = str(library)
        self.library = ctypes.CDLL(self.path)
        self.library.fake_cuda_calls.restype = ctypes.c_longlong
        self.library.fake_cuda_memory.restype = ctypes.c_ulonglong
        self.library.fake_cuda_memory.argtypes = (ctypes.c_longlong,)
        self.library.cuMemFree_v2.argtypes = (ctypes.c_ulonglong,)
        self.library.cuGraphExecDestroy.argtypes = (ctypes.c_void_p,)
        self.library.fake_cuda_toy_graph.restype = ctypes.c_void_p

    def reset(self, devices: int) -> None:
        self.library.fake_cuda_reset(devices)

    def set_init(self, code: int) -> None:
        self.library.fake_cuda_set_init(code)

    def set_version(self, version: int) -> None:
        self.library.fake_cuda_set_version(version)

    def fail(self, symbol: str, code: int, after: int = 0) -> None:
        self.library.fake_cuda_fail(symbol.encode(), code, after)

    def calls(self, symbol: str) -> int:
        return self.library.fake_cuda_calls(symbol.encode())

    def break_device(self, device: int, code: int) -> None:
        self.library.fake_cuda_break(device, code)

    def live(self) -> int:
        return self.library.fake_cuda_live()
