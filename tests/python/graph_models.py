"""Steps of a transformers model as graphs of the fake CUDA driver: recorded on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dsi_native import kernels
from dsi_native.kernels.contract import Edits, Status
from dsi_native.models.cuda_graph import GraphOptions, graph_server
from dsi_native.models.transformers import TransformersModel
from fake_cuda import FakeCuda

_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class FakeRecorder:
    """As TorchRecorder, on the fake driver: a graph calls back into Python, on its stream."""

    index = 0

    def __init__(self, fake: FakeCuda) -> None:
        self.library = fake.path
        self._fake = fake.library
        self._fake.fake_cuda_graph.restype = ctypes.c_void_p
        self._fake.fake_cuda_graph.argtypes = (
            ctypes.c_int,
            _KERNEL,
            ctypes.c_void_p,
            ctypes.c_longlong,
        )
        self._blocks: list[int] = []
        self._graphs: list[tuple[int, Any, Callable[[], Any]]] = []

    def memory(self, size: int) -> torch.Tensor:
        address = self._fake.fake_cuda_memory(size)
        self._blocks.append(address)
        return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)

    def run(self, call: Callable[[], Any]) -> Any:
        return call()

    def record(self, call: Callable[[Callable[[], None]], Any]) -> list[int]:
        def kernel(_: object) -> int:
            try:
                call(lambda: None)
            except Exception:
                return 719
            return 0

        native = _KERNEL(kernel)
        handle = self._fake.fake_cuda_graph(0, native, None, 0)
        self._graphs.append((handle, native, kernel))
        return [handle]

    def replay(self, count: int) -> None:
        for _, _, kernel in self._graphs[len(self._graphs) - count :]:
            assert kernel(None) == 0

    def __del__(self) -> None:
        for handle, *_ in self._graphs:
            self._fake.cuGraphExecDestroy(handle)
        for block in self._blocks:
            self._fake.cuMemFree_v2(block)


def draw_on_host(rows: torch.Tensor, blocks: Any, n: int) -> None:
    """As TritonDraw, by the C++ kernels."""
    logits = rows.float().numpy()
    offsets = blocks.offsets[: n + 1].numpy()
    lists = (blocks.edit_ids, blocks.edit_operations, blocks.edit_values)
    edits = Edits(offsets, *(x.numpy()[: offsets[-1]] for x in lists))
    temperature = np.full(n, float(blocks.temperature), np.float32)
    cut = kernels.cut(
        logits,
        temperature=temperature,
        top_k=np.full(n, int(blocks.top_k), np.int32),
        top_p=np.full(n, float(blocks.top_p), np.float32),
        min_p=np.full(n, float(blocks.min_p), np.float32),
        edits=edits,
    )
    out = kernels.verify(
        logits[:, None],
        np.empty((n, 0), np.int32),
        seed=np.full(n, int(blocks.seed)).view(np.uint64),
        position=int(blocks.position) + np.arange(n),
        temperature=temperature,
        cut=cut[:, None],
        edits=edits,
        with_logprobs=True,
    )
    # Status is cleared of what the draw itself says by -1.
    odd = np.isnan(logits).any(1) * int(Status.NAN)
    odd |= np.asarray(out.status) & (int(Status.NAN) | int(Status.INF))
    for block, given in (
        (blocks.tokens, np.asarray(out.tokens)[:, 0]),
        (blocks.status, odd),
        (blocks.logprobs, np.asarray(out.logprob)[:, 0]),
    ):
        block[:n].copy_(torch.from_numpy(given.copy()))


class FakeGraphModel(TransformersModel):
    """A model on the CPU whose servers replay graphs on the fake driver."""

    def __init__(self, module: Any, fake: FakeCuda, options: GraphOptions, **more: Any) -> None:
        super().__init__(module, **more)
        self._fake, self.options = fake, options

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        return [
            graph_server(self, plain, self.options, FakeRecorder(self._fake), draw_on_host)
            for plain in super().servers(n, threads)
        ]
