"""Graph servers under the Python engine, on the fake CUDA driver."""

from __future__ import annotations

import gc
import subprocess
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dsi_native as dsi
from dsi_native import _core
from fake_cuda import FakeCuda
from fake_gpu import FakeGpuModel, moments

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


@pytest.mark.parametrize("mode", ["non-si", "si", "dsi"])
@pytest.mark.parametrize("segments", [1, 3])
def test_text_is_the_targets(fake_cuda: FakeCuda, mode: str, segments: int) -> None:
    target = FakeGpuModel(fake_cuda, segments=segments, delay_s=2e-4)
    drafter = FakeGpuModel(fake_cuda, acceptance=0.8)
    with dsi.Engine(target, drafter, sp=2, lookahead=2, mode=mode) as engine:
        out = engine.generate(PROMPT, max_new_tokens=40, temperature=0.7, seed=1)
    assert out.tokens == target.continuation(PROMPT, 40)
    assert (out.statistics.acceptance or 0) > 0 or mode == "non-si"
    del engine, out
    gc.collect()


def test_what_graphs_cannot_do_goes_to_the_plain_server(fake_cuda: FakeCuda) -> None:
    def forward(tokens: np.ndarray, start: int) -> np.ndarray:
        return (
            np.where(np.arange(50) == 7, 10.0, 0.0).astype(np.float32)[None].repeat(len(tokens), 0)
        )

    plain = dsi.CallableModel(forward, vocab_size=50)
    target = FakeGpuModel(fake_cuda, plain=plain)
    with dsi.Engine(target, None, sp=1) as engine:
        graphs = engine.generate(PROMPT, max_new_tokens=5)
        plainly = engine.generate(
            PROMPT, max_new_tokens=5, logits_processor=lambda prefix, row: row
        )
    assert graphs.tokens == target.continuation(PROMPT, 5)
    assert plainly.tokens == [7] * 5
    del engine


def test_a_broken_device_is_a_cuda_error(fake_cuda: FakeCuda) -> None:
    with dsi.Engine(FakeGpuModel(fake_cuda), None, sp=1) as engine:
        assert len(engine.generate(PROMPT, max_new_tokens=3).tokens) == 3
        fake_cuda.break_device(0, 719)
        with pytest.raises(dsi.EngineFailed, match="CUDA_ERROR_LAUNCH_FAILED") as caught:
            engine.generate(PROMPT, max_new_tokens=3)
        cause = caught.value.__cause__
        assert isinstance(cause, dsi.CudaError)
        assert (cause.code, cause.name) == (719, "CUDA_ERROR_LAUNCH_FAILED")
    del engine, caught, cause
    gc.collect()


def test_a_call_that_fails_twice_fails_its_request_only(fake_cuda: FakeCuda) -> None:
    target = FakeGpuModel(fake_cuda)
    with dsi.Engine(target, None, sp=1) as engine:
        fake_cuda.fail("cuGraphLaunch", 2, after=3)
        assert engine.generate(PROMPT, max_new_tokens=9).tokens == target.continuation(PROMPT, 9)
        assert fake_cuda.calls("cuGraphLaunch") >= 10
    del engine


def test_no_driver_is_an_error_with_the_reason(fake_cuda: FakeCuda) -> None:
    fake_cuda.set_init(100)
    with pytest.raises(dsi.CudaError, match="CUDA is unavailable: cuInit: CUDA_ERROR_NO_DEVICE"):
        dsi.Engine(FakeGpuModel(fake_cuda), None)
    fake_cuda.set_init(0)
    fake_cuda.fail("cuStreamCreateWithPriority", 2)
    with pytest.raises(dsi.CudaError) as caught:
        dsi.Engine(FakeGpuModel(fake_cuda), None)
    assert (caught.value.code, caught.value.name) == (2, "CUDA_ERROR_OUT_OF_MEMORY")
    del caught
    gc.collect()


def test_the_owner_lives_as_long_as_its_server(fake_cuda: FakeCuda) -> None:
    class Owner:
        pass

    layout = _core.graph_layout(1, 0)
    blocks = [
        fake_cuda.library.fake_cuda_memory(layout[x]) for x in ("input_bytes", "output_bytes")
    ]
    graph = fake_cuda.library.fake_cuda_graph
    graph.restype = int
    owner = Owner()
    gone = weakref.ref(owner)
    spec = _core.GraphServer(0, 1, 0, *blocks, 8, 8, [[(1, [1])]], owner, library=fake_cuda.path)
    engine = _core.Engine([spec], None, 1, 8, False)
    del owner, spec
    assert gone() is not None
    engine.close()
    del engine
    assert gone() is None
    for block in blocks:
        fake_cuda.library.cuMemFree_v2(block)


def test_layout_has_no_overlaps() -> None:
    layout = _core.graph_layout(8, 5)
    starts = sorted(v for k, v in layout.items() if k in ("ids", "offsets") or "edit_" in k)
    assert starts == [64, 96, 168, 188, 208] and layout["input_bytes"] == 228
    assert layout["output_bytes"] == 3 * 8 * 4
    with pytest.raises(dsi.InvalidArgument, match="window"):
        _core.graph_layout(0, 1)


def test_launches_and_events_are_told(fake_cuda: FakeCuda) -> None:
    with dsi.Engine(FakeGpuModel(fake_cuda), None, sp=1) as engine:
        engine.generate([1], max_new_tokens=5)
    assert "".join(kind for _, kind in moments(fake_cuda)) == "ile" * 5
    del engine


def test_exit_with_an_engine_at_work(
    fake_cuda_library: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import dsi_native as dsi\n"
        "from fake_cuda import FakeCuda\n"
        "from fake_gpu import FakeGpuModel\n"
        "fake = FakeCuda(sys.argv[2])\n"
        "engine = dsi.Engine(FakeGpuModel(fake, delay_s=0.01), None, sp=2)\n"
        "request = engine.submit([1], max_new_tokens=200)\n"
    )
    done = run_python("-c", code, str(Path(__file__).parent), str(fake_cuda_library))
    assert (done.returncode, done.stderr) == (0, "")
