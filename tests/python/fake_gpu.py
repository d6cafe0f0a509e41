"""A model on the fake CUDA driver: graphs that compute the toy model of the C++ tests."""

from __future__ import annotations

import ctypes
from typing import Any

from dsi_native import _core
from fake_cuda import FakeCuda

_MASK = 2**64 - 1


class _Toy(ctypes.Structure):
    """fake_cuda_toy of fake_cuda.h."""

    _fields_ = (
        ("device", ctypes.c_int),
        ("inputs", ctypes.c_ulonglong),
        ("outputs", ctypes.c_ulonglong),
        ("widest", ctypes.c_int),
        ("edits", ctypes.c_int),
        ("cache", ctypes.c_void_p),
        ("capacity", ctypes.c_int),
        ("length", ctypes.c_int),
        ("segment", ctypes.c_int),
        ("segments", ctypes.c_int),
        ("seed", ctypes.c_ulonglong),
        ("vocab_size", ctypes.c_int),
        ("acceptance", ctypes.c_double),
        ("delay_ns", ctypes.c_longlong),
        ("before", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
    )


class _Moment(ctypes.Structure):
    _fields_ = (("at_ns", ctypes.c_longlong), ("kind", ctypes.c_int))


def moments(fake: FakeCuda, most: int = 100_000) -> list[tuple[int, str]]:
    """(ns of time.monotonic's clock, "i", "l" or "e"): ids copied in, launches, events reached."""
    room = (_Moment * most)()
    count = fake.library.fake_cuda_moments(room, most)
    return [(room[i].at_ns, chr(room[i].kind)) for i in range(count)]


class _Owned:
    """What one server's graphs are and work on, given back with the last reference."""

    def __init__(self, fake: FakeCuda) -> None:
        self._fake = fake
        self.blocks: list[int] = []
        self.graphs: list[int] = []
        self.caches: list[Any] = []

    def __del__(self) -> None:
        for graph in self.graphs:
            self._fake.library.cuGraphExecDestroy(graph)
        for block in self.blocks:
            self._fake.library.cuMemFree_v2(block)


class FakeGpuModel:
    """A target, or with `acceptance` a drafter, for Engine(). plain: servers behind the graphs."""

    tokenizer = None
    eos_ids: tuple[int, ...] = ()
    own_hardware = True
    name = "toy on a fake GPU"

    def __init__(
        self,
        fake: FakeCuda,
        *,
        acceptance: float | None = None,
        vocab_size: int = 50,
        seed: int = 5,
        window: int = 8,
        edits: int = 8,
        capacity: int = 256,
        segments: int = 1,
        delay_s: float = 0.0,
        plain: Any = None,
    ) -> None:
        self.vocab_size, self.seed, self.context = vocab_size, seed, capacity
        self._fake, self._acceptance, self._plain = fake, acceptance, plain
        self._window, self._edits, self._segments = window, edits, segments
        self._delay_ns = round(delay_s * 1e9)

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        return [self._server() for _ in range(n)]

    def continuation(self, prompt: list[int], count: int) -> list[int]:
        """What the target says behind `prompt`."""
        path = list(prompt)
        for _ in range(count):
            value = _mixed(self.seed)
            for token in path:
                value = _mixed(value ^ token)
            path.append(value % self.vocab_size)
        return path[len(prompt) :]

    def _server(self) -> Any:
        layout = _core.graph_layout(self._window, self._edits)
        owned = _Owned(self._fake)
        for size in ("input_bytes", "output_bytes"):
            owned.blocks.append(self._fake.library.fake_cuda_memory(layout[size]))
        owned.caches.append((ctypes.c_int * self.context)())
        windows = []
        length = 1
        while length <= self._window:
            windows.append((length, [self._graph(owned, length, i) for i in range(self._segments)]))
            length *= 2
        return _core.GraphServer(
            device=0,
            window=self._window,
            edits=self._edits,
            inputs=owned.blocks[0],
            outputs=owned.blocks[1],
            capacity=self.context,
            vocab_size=self.vocab_size,
            caches=[windows],
            owner=owned,
            plain=None if self._plain is None else self._plain.servers(1)[0],
            library=self._fake.path,
        )

    def _graph(self, owned: _Owned, length: int, segment: int) -> int:
        toy = _Toy(
            inputs=owned.blocks[0],
            outputs=owned.blocks[1],
            widest=self._window,
            edits=self._edits,
            cache=ctypes.addressof(owned.caches[0]),
            capacity=self.context,
            length=length,
            segment=segment,
            segments=self._segments,
            seed=self.seed,
            vocab_size=self.vocab_size,
            acceptance=-1.0 if self._acceptance is None else self._acceptance,
            delay_ns=self._delay_ns // self._segments,
        )
        graph = self._fake.library.fake_cuda_toy_graph(ctypes.byref(toy))
        owned.graphs.append(graph)
        return graph


def _mixed(x: int) -> int:
    """splitmix64, as csrc/core/latency.h has it."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
