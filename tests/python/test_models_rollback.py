"""Rollback, sharing and stopping of transformers servers: every answer equals a fresh prefill."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from dsi_native.errors import InvalidArgument, Stopped
from dsi_native.models.kv_cache import common_prefix
from dsi_native.models.transformers import TransformersModel
from tiny import VOCAB_SIZE, tiny_target

RUNNING = SimpleNamespace(stopped=False)


def ids_of(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCAB_SIZE, n).astype(np.int32)


def fresh(model: TransformersModel, tokens: np.ndarray, first: int) -> np.ndarray:
    with torch.inference_mode():
        inputs = torch.from_numpy(tokens.astype(np.int64))[None]
        return model.model(input_ids=inputs, use_cache=False).logits[0, first - 1 :].numpy()


def assert_same_rows(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == np.float32 and got.flags.c_contiguous
    np.testing.assert_allclose(got, want, atol=1e-3, rtol=0)
    assert (got.argmax(-1) == want.argmax(-1)).all()


def sliding(kind: str) -> torch.nn.Module:
    """A tiny model whose attention forgets what is more than 8 positions back."""
    fields = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "initializer_range": 0.3,
        "max_position_embeddings": 256,
        "sliding_window": 8,
        "eos_token_id": None,
        "pad_token_id": None,
        "bos_token_id": None,
    }
    torch.manual_seed(3)
    if kind == "gemma3":
        layers = ["sliding_attention", "sliding_attention", "full_attention"]
        config = transformers.Gemma3TextConfig(**fields, layer_types=layers)
        return transformers.Gemma3ForCausalLM(config)
    return transformers.MistralForCausalLM(transformers.MistralConfig(**fields))


MODELS = {
    "llama": lambda: tiny_target(0),
    "gemma3": lambda: sliding("gemma3"),
    "mistral": lambda: sliding("mistral"),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCAB_SIZE, n_embd=32, n_layer=2, n_head=2, n_positions=64,
            initializer_range=0.3, bos_token_id=None, eos_token_id=None,
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_rows_after_any_rollback_equal_a_fresh_prefill(kind: str) -> None:
    model = TransformersModel(MODELS[kind]())
    (server,) = model.servers(1, threads=1)
    draw = np.random.default_rng(7)
    path = ids_of(1, 5)
    for step in range(40):
        kept = int(draw.integers(max(1, len(path) - 12), len(path) + 1))
        grown = int(draw.integers(0 if kept > 1 else 1, 9))
        path = np.concatenate([path[:kept], ids_of(100 + step, grown)])[:48]
        first = int(draw.integers(max(1, len(path) - 9), len(path) + 1))
        assert_same_rows(server.forward(0, path, first, RUNNING), fresh(model, path, first))


def test_the_sliding_window_is_really_passed() -> None:
    model = TransformersModel(sliding("mistral"))
    far = ids_of(1, 40)
    changed = far.copy()
    changed[0] ^= 1
    # Three layers of window 8 see 21 positions back: the last row no longer depends on the first.
    assert np.allclose(fresh(model, far, 40), fresh(model, changed, 40), atol=1e-5)
    assert not np.allclose(fresh(model, far, 10), fresh(model, changed, 10)[:31], atol=1e-5)


def test_requests_do_not_mix_and_evicted_ones_come_back() -> None:
    model = TransformersModel(tiny_target(), cache_budget_bytes=70_000)
    (server,) = model.servers(1)
    paths = {request: ids_of(request, 30) for request in range(4)}
    for _ in range(2):
        for request, path in paths.items():
            paths[request] = path = np.append(path, np.int32(request))
            assert_same_rows(server.forward(request, path, 30, RUNNING), fresh(model, path, 30))
            assert server.cache_bytes <= 70_000
    assert len(server._caches) < 4
    for request in paths:
        server.release(request)
        server.release(request)
    assert server.cache_bytes == 0


class CountedModel:
    """Counts the tokens that go through a model, and can pause its first forward."""

    def __init__(self) -> None:
        self.inner = TransformersModel(tiny_target())
        self.tokens: list[int] = []
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.fails = False
        run = self.inner.forward

        def forward(ids: np.ndarray, cache: object, rows: int) -> torch.Tensor:
            self.tokens.append(len(ids))
            self.entered.set()
            assert self.go_on.wait(20)
            if self.fails:
                self.fails = False
                raise OSError("device lost")
            return run(ids, cache, rows)

        self.inner.forward = forward


def test_a_prompt_is_computed_once_for_all_servers() -> None:
    counted = CountedModel()
    one, two, three = counted.inner.servers(3)
    prompt = ids_of(5, 100)
    counted.go_on.clear()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(one.forward, 9, prompt, 100, RUNNING)
        assert counted.entered.wait(20)
        others = [pool.submit(two.forward, 9, prompt, 100, RUNNING)]
        others.append(pool.submit(three.prefill, 9, prompt, RUNNING))
        counted.go_on.set()
        rows = [first.result(20), others[0].result(20)]
        others[1].result(20)
    assert sorted(counted.tokens) == [1, 100]
    for got in rows:
        assert_same_rows(got, fresh(counted.inner, prompt, 100))
    # What was borrowed is the borrower's own: the lender's later path does not change it.
    lender_path = np.append(prompt[:50], ids_of(6, 20))
    assert_same_rows(
        one.forward(9, lender_path, 60, RUNNING), fresh(counted.inner, lender_path, 60)
    )
    path = np.append(prompt, ids_of(8, 3))
    for server in (two, three):
        assert_same_rows(server.forward(9, path, 101, RUNNING), fresh(counted.inner, path, 101))


def test_waiting_for_another_server_ends_when_that_one_fails_or_the_job_is_stopped() -> None:
    counted = CountedModel()
    one, two = counted.inner.servers(2)
    prompt = ids_of(5, 100)
    counted.go_on.clear()
    job = SimpleNamespace(stopped=False)
    with ThreadPoolExecutor(2) as pool:
        counted.fails = True
        failing = pool.submit(one.forward, 9, prompt, 100, RUNNING)
        assert counted.entered.wait(20)
        stopped = pool.submit(two.forward, 9, prompt, 100, job)
        job.stopped = True
        with pytest.raises(Stopped):
            stopped.result(20)
        waiting = pool.submit(two.forward, 9, prompt, 100, RUNNING)
        counted.go_on.set()
        with pytest.raises(OSError, match="device lost"):
            failing.result(20)
        assert_same_rows(waiting.result(20), fresh(counted.inner, prompt, 100))
    assert_same_rows(one.forward(9, prompt, 99, RUNNING), fresh(counted.inner, prompt, 99))


@pytest.mark.parametrize("layer", [0, 1])
def test_a_forward_stopped_between_layers_leaves_a_right_cache(layer: int) -> None:
    class StopsAt:
        asked = -1

        @property
        def stopped(self) -> bool:
            self.asked += 1
            return self.asked >= layer

    model = TransformersModel(tiny_target())
    (server,) = model.servers(1)
    path = ids_of(2, 20)
    server.forward(0, path, 20, RUNNING)
    longer = np.append(path, ids_of(3, 8))
    with pytest.raises(Stopped):
        server.forward(0, longer, 21, StopsAt())
    held = {cached.length for cached in server._caches[0].layers}
    assert held == {20}, "layers that ran before the stop are cropped back"
    other = np.append(path[:15], ids_of(4, 10))
    assert_same_rows(server.forward(0, other, 16, RUNNING), fresh(model, other, 16))


def test_servers_may_run_at_once() -> None:
    model = TransformersModel(tiny_target())
    servers = model.servers(4)

    def run(index: int) -> None:
        draw = np.random.default_rng(index)
        path = ids_of(50, 12)
        for step in range(25):
            kept = int(draw.integers(12, len(path) + 1))
            path = np.append(path[:kept], ids_of(60 + step, int(draw.integers(1, 5))))[:200]
            got = servers[index].forward(1, path, len(path) - 1, RUNNING)
            assert_same_rows(got, fresh(model, path, len(path) - 1))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run, index) for index in range(4)]:
            done.result(50)


def test_grad_mode_is_off_in_a_worker_and_results_are_views() -> None:
    model = TransformersModel(tiny_target())
    seen = {}
    run = model.forward

    def forward(*args: object) -> torch.Tensor:
        logits = run(*args)
        seen.update(
            grad=logits.requires_grad, inference=logits.is_inference(), at=logits.data_ptr()
        )
        return logits

    model.forward = forward

    def work() -> None:
        (server,) = model.servers(1, threads=1)
        server.started()
        seen["rows"] = server.forward(0, ids_of(0, 4), 2, RUNNING)
        seen["threads"] = torch.get_num_threads()

    before = torch.get_num_threads()
    worker = threading.Thread(target=work)
    worker.start()
    worker.join(20)
    torch.set_num_threads(before)
    assert (seen["grad"], seen["inference"], seen["threads"]) == (False, True, 1)
    assert seen["rows"].shape == (3, VOCAB_SIZE)
    assert seen["rows"].__array_interface__["data"][0] == seen["at"]


def test_bf16_rows_are_float32() -> None:
    (server,) = TransformersModel(tiny_target().to(torch.bfloat16)).servers(1)
    assert server.forward(0, ids_of(0, 4), 4, RUNNING).dtype == np.float32


def test_limits_name_their_numbers() -> None:
    model = TransformersModel(tiny_target(max_position_embeddings=16))
    (server,) = model.servers(1)
    assert model.context == server.context == 16
    server.forward(0, ids_of(0, 16), 16, RUNNING)
    with pytest.raises(ValueError, match="17 tokens exceed the context of 16"):
        server.forward(0, ids_of(0, 17), 17, RUNNING)
    with pytest.raises(InvalidArgument, match=r"first must be in 1\.\.4"):
        server.forward(0, ids_of(0, 4), 5, RUNNING)
    with pytest.raises(InvalidArgument, match="at least one server"):
        model.servers(0)


def test_models_without_a_croppable_cache_are_refused_by_name() -> None:
    common = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "num_hidden_layers": 2}
    mamba = transformers.MambaForCausalLM(transformers.MambaConfig(**common, state_size=4))
    with pytest.raises(InvalidArgument, match=r"MambaForCausalLM keeps its past in \w*Cache"):
        TransformersModel(mamba)
    hybrid = transformers.BambaForCausalLM(
        transformers.BambaConfig(
            **common, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1,
            attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1,
            mamba_d_state=4,
        )
    )  # fmt: skip
    with pytest.raises(InvalidArgument, match="BambaForCausalLM keeps its past in"):
        TransformersModel(hybrid)


def test_a_model_with_memory_outside_the_cache_is_refused() -> None:
    model = tiny_target()
    plain = model.forward

    @functools.wraps(plain)
    def remembers(**kwargs: object) -> object:
        out = plain(**kwargs)
        model.calls = getattr(model, "calls", 0) + 9
        out.logits = out.logits + model.calls * torch.linspace(0, 1, VOCAB_SIZE)
        return out

    model.forward = remembers
    with pytest.raises(InvalidArgument, match="differ from fresh ones"):
        TransformersModel(model)


def test_end_tokens_come_from_the_generation_config() -> None:
    model = tiny_target()
    assert TransformersModel(model).eos_ids == ()
    model.generation_config.eos_token_id = [3, 5]
    assert TransformersModel(model).eos_ids == (3, 5)


@pytest.mark.parametrize(
    ("a", "b", "n"), [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 9, 3], 1), ([4], [5], 0)]
)
def test_common_prefix(a: list[int], b: list[int], n: int) -> None:
    assert common_prefix(np.array(a, np.int32), np.array(b, np.int32)) == n
