"""Graphs of transformers models: their steps on the CPU, their replays on the fake CUDA driver."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import dsi_native as dsi  # noqa: E402
from dsi_native.models import cuda_graph  # noqa: E402
from dsi_native.models.cuda_graph import GraphOptions, TorchRecorder  # noqa: E402
from dsi_native.models.graph_step import Blocks, FixedCache, GraphStep, prove, refusal  # noqa: E402
from dsi_native.models.transformers import TransformersModel  # noqa: E402
from fake_cuda import FakeCuda  # noqa: E402
from graph_models import FakeGraphModel, FakeRecorder, draw_on_host  # noqa: E402
from tiny import tiny_drafter, tiny_target  # noqa: E402

OPTIONS = GraphOptions(capacity=64, window=8, edits=256)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """The servers of a test are garbage before the fake driver is asked what it holds."""
    if "fake_cuda" in request.fixturenames:
        request.getfixturevalue("fake_cuda")
    yield
    gc.collect()


def step_of(
    model: Any, window: int = 8, capacity: int = 32
) -> tuple[GraphStep, Blocks, FixedCache]:
    blocks = Blocks(lambda size: torch.zeros(size, dtype=torch.uint8), window, 16)
    return GraphStep(model, blocks, capacity, draw_on_host), blocks, FixedCache(capacity)


def tiny(kind: str) -> Any:
    sizes = {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    made = {
        "llama": lambda: tiny_target(),
        "eager": lambda: tiny_target(attn_implementation="eager"),
        "qwen": lambda: transformers.Qwen2ForCausalLM(
            transformers.Qwen2Config(**sizes, intermediate_size=64, num_key_value_heads=2)
        ),
        "neox": lambda: transformers.GPTNeoXForCausalLM(
            transformers.GPTNeoXConfig(**sizes, intermediate_size=64)
        ),
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=128, n_embd=32, n_layer=2, n_head=4)
        ),
    }
    torch.manual_seed(0)
    return made[kind]().eval()


@pytest.mark.parametrize("kind", ["llama", "eager", "qwen", "neox", "gpt2"])
def test_steps_give_the_logits_of_a_forward(kind: str) -> None:
    model = TransformersModel(tiny(kind))
    step, blocks, cache = step_of(model)
    assert refusal(model) is None
    prove(model, step, blocks, cache, 32)
    ids = np.array([7, 3, 9, 3, 1, 4, 4, 8, 2, 6, 5], np.int32)
    plain = model.plain_rows(ids)
    with torch.inference_mode():
        for start, length in ((0, 4), (4, 1), (5, 4), (9, 2)):
            blocks.start.fill_(start)
            blocks.position.fill_(start + 1)
            blocks.ids[:length].copy_(torch.from_numpy(ids[start : start + length]))
            rows = step(length, cache)
            torch.testing.assert_close(
                rows.float(), plain[start : start + length], rtol=1e-4, atol=1e-4
            )
            drawn = blocks.tokens[:length]
            assert drawn.tolist() == rows.argmax(1).tolist()
    assert cache.size_bytes > 0


@pytest.mark.parametrize("fault", ["mask", "positions", "cache"])
def test_a_wrong_step_is_seen(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    model = TransformersModel(tiny_target())
    step, blocks, cache = step_of(model)
    if fault == "mask":
        step._columns = torch.zeros_like(step._columns)  # all is seen, the future too
    elif fault == "positions":
        forward = model.model.forward

        def unplaced(*given: Any, position_ids: Any = None, **more: Any) -> Any:
            where = None if position_ids is None else position_ids * 0
            return forward(*given, position_ids=where, **more)

        monkeypatch.setattr(model.model, "forward", unplaced)
    else:
        update = FixedCache.update

        def forgetful(self: FixedCache, *given: Any, **more: Any) -> Any:
            self.positions = self.positions * 0 + torch.arange(len(self.positions))
            return update(self, *given, **more)

        monkeypatch.setattr(FixedCache, "update", forgetful)
    with pytest.raises(dsi.InvalidArgument, match="other logits than a forward"):
        prove(model, step, blocks, cache, 32)


def test_what_cannot_be_captured_is_refused_with_the_reason() -> None:
    model = TransformersModel(tiny_target())
    assert refusal(model) is None
    config = model.model.config
    config.sliding_window = 16
    assert "do not attend to all positions" in (refusal(model) or "")
    config.sliding_window = None
    config.layer_types = ["full_attention", "sliding_attention"]
    assert "do not attend to all positions" in (refusal(model) or "")
    config.layer_types = None
    config._attn_implementation = "flash_attention_2"
    assert "'flash_attention_2'" in (refusal(model) or "")


SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "coupled": {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "seed": 3},
    "edited": {
        "temperature": 0.9,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "logit_bias": {5: 3.0, 181: -9.0},
        "seed": 4,
        "logprobs": 0,
    },
    "stop": {"stop_ids": list(range(40)), "min_new_tokens": 8},
    "rejection": {"temperature": 0.8, "verification": "rejection", "seed": 5},
    "logprobs": {"logprobs": 3},
    "long": {"max_new_tokens": 70},  # longer than the graphs' caches
}


@pytest.mark.parametrize("name", SETTINGS)
def test_texts_agree_with_plain_servers(fake_cuda: FakeCuda, name: str) -> None:
    settings = {"max_new_tokens": 24} | SETTINGS[name]
    target = tiny_target()
    drafter = tiny_drafter(target, 0.05)
    plainly = (TransformersModel(target), TransformersModel(drafter))
    # In rejection mode the text depends on the windows, and these on the timing, but in SI.
    mode = "si" if name == "rejection" else "dsi"
    wanted = _told(plainly, mode, settings)
    graphs = tuple(FakeGraphModel(m, fake_cuda, OPTIONS) for m in (target, drafter))
    before = fake_cuda.calls("cuGraphLaunch")
    given = _told(graphs, mode, settings)
    assert given.tokens == wanted.tokens
    assert given.statistics.failed_forwards == 0
    assert given.statistics.drafter_error == ""
    if settings.get("logprobs") is not None:
        for mine, plain in zip(given.logprobs, wanted.logprobs, strict=True):
            assert mine.logprob == pytest.approx(plain.logprob, rel=2e-4, abs=2e-4)
    if name != "rejection":
        assert fake_cuda.calls("cuGraphLaunch") > before


def _told(models: Any, mode: str, settings: dict[str, Any]) -> Any:
    rules = {"sp": 2, "lookahead": 3, "threads": 1, "break_even": False}
    with dsi.Engine(*models, mode=mode, **rules) as engine:
        return engine.generate(PROMPT, **settings)


def test_a_logits_processor_takes_the_plain_way(fake_cuda: FakeCuda) -> None:
    def odd(prefix: np.ndarray, row: np.ndarray) -> None:
        row[::2] = -np.inf

    model = FakeGraphModel(tiny_target(), fake_cuda, OPTIONS)
    with dsi.Engine(model, None, sp=1, threads=1) as engine:
        out = engine.generate(PROMPT, max_new_tokens=8, logits_processor=odd)
    assert all(token % 2 for token in out.tokens)
    del engine


def test_a_step_that_fails_is_a_cuda_error(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FakeGraphModel(tiny_target(), fake_cuda, OPTIONS)
    with dsi.Engine(model, None, sp=1, threads=1) as engine:
        engine.generate(PROMPT, max_new_tokens=4)

        def broken(*_: Any, **__: Any) -> None:
            raise RuntimeError("no")

        monkeypatch.setattr(model, "step_options", broken)
        with pytest.raises(dsi.EngineFailed, match="CUDA_ERROR_LAUNCH_FAILED") as caught:
            engine.generate(PROMPT, max_new_tokens=4)
    assert isinstance(caught.value.__cause__, dsi.CudaError)
    del engine, caught


def test_graphs_need_cuda() -> None:
    with pytest.raises(dsi.InvalidArgument, match="graphs: need a model on CUDA"):
        TransformersModel(tiny_target(), graphs=True)


def test_where_capturing_fails_the_plain_servers_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TransformersModel(tiny_target())
    model.graphs = True

    def fails(device: torch.device) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(cuda_graph, "TorchRecorder", fails)
    with pytest.warns(RuntimeWarning, match="decodes without CUDA graphs .*not permitted"):
        servers = model.servers(2)
    assert [type(server).__name__ for server in servers] == ["TransformersServer"] * 2


def test_a_cache_is_no_longer_than_the_models_context(fake_cuda: FakeCuda) -> None:
    target = tiny_target(max_position_embeddings=20)
    with dsi.Engine(FakeGraphModel(target, fake_cuda, OPTIONS), None, sp=1, threads=1) as engine:
        given = engine.generate([1, 2], max_new_tokens=40)
    with dsi.Engine(TransformersModel(target), None, sp=1, threads=1) as engine:
        assert given.tokens == engine.generate([1, 2], max_new_tokens=40).tokens
    assert len(given.tokens) < 40
    del engine


def test_a_replay_that_draws_otherwise_is_seen(fake_cuda: FakeCuda) -> None:
    class Stale(FakeRecorder):
        def replay(self, count: int) -> None:
            pass

    model = TransformersModel(tiny_target())
    with pytest.raises(dsi.InvalidArgument, match="a replay of 1 ids draws other tokens"):
        cuda_graph.graph_server(model, None, OPTIONS, Stale(fake_cuda), draw_on_host)


@pytest.mark.parametrize(
    "wrong",
    [{"capacity": 0}, {"window": 12}, {"window": 0}, {"caches": 0}, {"segments": 0}, {"edits": -1}],
)
def test_options_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(dsi.InvalidArgument, match=f"graphs: {next(iter(wrong))}"):
        GraphOptions(**wrong)
    assert GraphOptions(window=8).lengths == [1, 2, 4, 8]


def test_a_forward_is_cut_in_front_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which torch is asked to capture; torch's own part needs a GPU."""
    told: list[str] = []

    class Graph:
        made = 0

        def __init__(self) -> None:
            Graph.made += 1
            self.number = Graph.made

        def capture_begin(self, pool: object, capture_error_mode: str) -> None:
            assert (pool, capture_error_mode) == ("pool", "thread_local")
            told.append(f"begin {self.number}")

        def capture_end(self) -> None:
            told.append(f"end {self.number}")

        def raw_cuda_graph_exec(self) -> int:
            return 100 + self.number

    class Context:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def wait_stream(self, _: object) -> None: ...
        def synchronize(self) -> None: ...

    stub = SimpleNamespace(
        CUDAGraph=Graph,
        Stream=Context,
        stream=Context,
        device=Context,
        graph_pool_handle=lambda: "pool",
        synchronize=lambda device: None,
        current_stream=lambda device: None,
    )
    monkeypatch.setattr(torch, "cuda", stub)
    recorder = TorchRecorder(torch.device("cuda", 0))

    def forward(cut: Any) -> None:
        between = cuda_graph._cuts(8, 3, cut)
        for layer in range(1, 8):
            told.append(str(layer))
            between(layer)

    handles = recorder.record(forward)
    assert handles == [101, 102, 103]
    wanted = "begin 1,1,2,end 1,begin 2,3,4,5,end 2,begin 3,6,7,end 3"
    assert ",".join(told) == wanted
    assert recorder.index == 0
