"""Servers whose forwards are CUDA graphs: captured here once, replayed by native code.

Written against the documentation of torch's graphs and shown step by step on a CUDA driver without
a device; no GPU has run the capture itself yet. So it is used where it is asked for
(TransformersModel(graphs=...)), and tests/gpu/run.sh is what a GPU has to pass.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from dsi_native import _core
from dsi_native.errors import InvalidArgument
from dsi_native.models.graph_step import Blocks, FixedCache, GraphStep, prove, refusal

__all__ = ["GraphOptions", "TorchRecorder", "graph_server"]


@dataclass(frozen=True)
class GraphOptions:
    """What is captured for each server.

    capacity: positions that a cache holds, at most the model's context; longer requests run
    plainly. window: the longest window, a power of two; longer ones are cut. caches: requests that
    keep their past at once; each costs a cache and its graphs. edits: bias and penalty entries of
    one window; requests with more run plainly. segments: graphs that a forward is cut into, so that
    a stopped one ends early. priority: of the stream; lower is more urgent, 0 the least.
    """

    capacity: int = 2048
    window: int = 64
    caches: int = 1
    edits: int = 1024
    segments: int = 1
    priority: int = 0

    def __post_init__(self) -> None:
        for name in ("capacity", "window", "caches", "segments"):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"graphs: {name} must be at least 1")
        if self.window & (self.window - 1):
            raise InvalidArgument(f"graphs: window must be a power of two, not {self.window}")
        if self.edits < 0:
            raise InvalidArgument("graphs: edits must be at least 0")

    @property
    def lengths(self) -> list[int]:
        """Of the windows, ascending."""
        return [1 << i for i in range(self.window.bit_length())]


class TorchRecorder:
    """Memory and graphs on one CUDA device, for one server.

    Everything runs on a stream of its own: what cuBLAS keeps between kernels it keeps per stream,
    and servers that shared it would overwrite each other's when they replay at the same time.
    """

    library = "libcuda.so.1"

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.index = device.index if device.index is not None else torch.cuda.current_device()
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def memory(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8, device=self.device)

    def run(self, call: Callable[[], Any]) -> Any:
        """What call() returns, on the recorder's stream, once the device is done with it."""
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            result = call()
        self._stream.synchronize()
        return result

    def record(self, call: Callable[[Callable[[], None]], Any]) -> list[int]:
        """Raw handles of the graphs that call(cut) is captured to, a new one from each cut() on.

        Does not run it. Run it twice before: kernels are compiled, and cuBLAS chooses, in the
        first runs. The graphs live as long as the recorder.
        """
        begun: list[torch.cuda.CUDAGraph] = []

        def begin() -> None:
            begun.append(torch.cuda.CUDAGraph())
            # Other threads may use CUDA meanwhile: "global" would make that an error of theirs.
            begun[-1].capture_begin(pool=self._pool, capture_error_mode="thread_local")

        def cut() -> None:
            begun[-1].capture_end()
            begin()

        gc.collect()  # what is garbage now may hold graphs, which cannot be destroyed in a capture
        torch.cuda.synchronize(self.device)
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            begin()
            try:
                call(cut)
            finally:
                begun[-1].capture_end()
        self._graphs += begun
        return [graph.raw_cuda_graph_exec() for graph in begun]

    def replay(self, count: int) -> None:
        """The last `count` graphs once, in order; waits."""

        def launch() -> None:
            for graph in self._graphs[len(self._graphs) - count :]:
                graph.replay()

        self.run(launch)


def graph_server(
    model: Any, plain: Any, options: GraphOptions, recorder: Any, draw: Callable[..., None]
) -> Any:
    """A native GraphServer over `model`, with the server `plain` behind it.

    recorder: TorchRecorder or its like. Call before any worker runs. Blocks: compiles, captures.
    Raises InvalidArgument with the reason where the model cannot be captured.
    """
    if model.context is not None and model.context < options.capacity:
        options = replace(options, capacity=model.context)
    reason = refusal(model)
    if reason is not None:
        raise InvalidArgument(f"graphs: {reason}")
    blocks = Blocks(recorder.memory, options.window, options.edits)
    step = GraphStep(model, blocks, options.capacity, draw)
    caches, captured = [], []
    for _ in range(options.caches):
        cache = FixedCache(options.capacity)
        recorder.run(lambda cache=cache: prove(model, step, blocks, cache, options.capacity))
        caches.append(cache)
        captured.append(
            [
                (length, _captured(step, blocks, cache, length, options, recorder))
                for length in options.lengths
                if length <= options.capacity
            ]
        )
    return _core.GraphServer(
        device=recorder.index,
        window=options.window,
        edits=options.edits,
        inputs=blocks.inputs.data_ptr(),
        outputs=blocks.outputs.data_ptr(),
        capacity=options.capacity,
        vocab_size=model.vocab_size,
        caches=captured,
        owner=(recorder, blocks, step, caches, draw),
        plain=plain,
        priority=options.priority,
        library=recorder.library,
    )


def _captured(
    step: GraphStep,
    blocks: Blocks,
    cache: FixedCache,
    length: int,
    options: GraphOptions,
    recorder: Any,
) -> list[int]:
    """The graphs of one window length, after proof that replaying them draws what a run draws."""

    def run() -> torch.Tensor:
        with torch.inference_mode():
            return step(length, cache)

    def capture(cut: Callable[[], None]) -> None:
        cache.between = _cuts(len(cache.buffers), options.segments, cut)
        try:
            run()
        finally:
            cache.between = None

    blocks.inputs.zero_()
    blocks.position.fill_(1)
    blocks.count.fill_(length)
    for _ in range(2):
        recorder.run(run)
    wanted = blocks.outputs.clone()
    handles = recorder.record(capture)
    blocks.outputs.zero_()
    recorder.replay(len(handles))
    tokens = slice(0, 4 * length)
    if not torch.equal(wanted[tokens], blocks.outputs[tokens]):
        raise InvalidArgument(f"graphs: a replay of {length} ids draws other tokens than a run")
    return handles


def _cuts(layers: int, segments: int, cut: Callable[[], None]) -> Callable[[int], None]:
    """Calls cut() in front of the layers where equal parts end."""
    places = {layers * i // segments for i in range(1, segments)}

    def between(layer: int) -> None:
        if layer in places:
            cut()

    return between
