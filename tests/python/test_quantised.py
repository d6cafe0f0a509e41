"""Quantised copies: exact arithmetic of the packed layers, shared memory, use as a drafter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from dsi_native.errors import InvalidArgument
from dsi_native.models import quantised
from dsi_native.models.lean_llama import LeanLlama
from dsi_native.models.quantised import quantised_copy
from dsi_native.models.transformers import TransformersModel
from tiny import VOCAB_SIZE, tiny_target


def linear(n: int, k: int, bias: bool = False) -> nn.Linear:
    torch.manual_seed(n + k)
    return nn.Linear(k, n, bias=bias).requires_grad_(False)


@pytest.mark.parametrize(("bits", "largest"), [(4, 1 / 15), (8, 1 / 127)])
def test_levels_round_to_the_nearest(bits: int, largest: float) -> None:
    weight = linear(32, 64).weight
    spread = 2 * weight.abs().max()
    error = (quantised._dequantised(weight, bits, 32) - weight).abs().max()
    # Half a step, and what bf16 scales add at the ends of the range.
    assert error <= spread * largest * 0.75


def test_weights_already_on_a_4_bit_grid_are_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 16, (32, 4, 32), generator=generator).float()
    levels[..., 0], levels[..., 1] = 0, 15
    weight = (levels * 0.25 - 2).view(32, 128)
    assert torch.equal(quantised._dequantised(weight, 4, 32), weight)


def test_constant_and_zero_groups_stay_finite() -> None:
    weight = torch.zeros(32, 64)
    weight[3] = 0.5
    for bits in (4, 8):
        got = quantised._dequantised(weight, bits, 32)
        torch.testing.assert_close(got, weight, atol=2e-3, rtol=0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_packed_layers_compute_what_their_levels_say(bits: int, bias: bool, rows: int) -> None:
    plain = linear(96, 128, bias)
    packed, reason = quantised._quantise(plain, bits, 32, {})
    if reason:
        pytest.skip(reason)
    x = torch.randn(1, rows, 128, generator=torch.Generator().manual_seed(1))
    weight = quantised._dequantised(plain.weight, bits, 32)
    want = nn.functional.linear(x.bfloat16().float(), weight, plain.bias)
    got = packed(x)
    assert got.dtype == torch.float32 and got.shape == want.shape
    torch.testing.assert_close(got, want, atol=0.02, rtol=0.01)


def test_shapes_without_a_kernel_say_so_and_still_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TransformersModel(tiny_target())
    packed = quantised_copy(model, 4)
    assert len(packed.quantisation.packed) + len(packed.quantisation.faked) == 9

    def missing(*args: object) -> None:
        raise RuntimeError("no such kernel here\nlong story")

    monkeypatch.setattr(quantised, "_PackedLinear", missing)
    faked = quantised_copy(model, 4)
    assert faked.quantisation.packed == []
    assert set(faked.quantisation.faked.values()) == {"no such kernel here"}
    ids = np.arange(30, dtype=np.int32)
    rows = [m.servers(1)[0].forward(0, ids, 1) for m in (packed, faked, model)]
    likeness = np.corrcoef([r.ravel() for r in rows])
    # Random weights lose much in 4 bits; the two ways to compute with the same levels must agree.
    assert likeness[0, 1] > 0.995 and likeness[0, 2] > 0.8 and likeness[1, 2] > 0.8


def test_rows_that_no_group_divides_take_8_bits() -> None:
    layer, reason = quantised._quantise(linear(32, 48), 4, 32, {})
    assert reason or layer.group is None


def mistral() -> nn.Module:
    torch.manual_seed(3)
    sizes = {"vocab_size": VOCAB_SIZE, "hidden_size": 64, "intermediate_size": 128}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"eos_token_id": None, "bos_token_id": None}
    config = transformers.MistralConfig(**sizes, **heads, **ids, initializer_range=0.3)
    return transformers.MistralForCausalLM(config).requires_grad_(False)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("make", [tiny_target, mistral])
def test_the_copy_shares_the_rest_and_leaves_the_target_alone(
    bits: int, make: Callable[[], nn.Module]
) -> None:
    target = make()
    before = {name: (p.data_ptr(), p.clone()) for name, p in target.named_parameters()}
    model = TransformersModel(target)
    drafter = quantised_copy(model, bits)
    for name, parameter in target.named_parameters():
        assert parameter.data_ptr() == before[name][0] and torch.equal(parameter, before[name][1])
    if not drafter.quantisation.faked:
        shared = {p.data_ptr() for p in target.parameters()}
        assert {p.data_ptr() for p in drafter.model.parameters()} <= shared
    own = sum(b.nbytes for n, b in drafter.model.named_buffers() if n.endswith(("ked", "scales")))
    linears = sum(m.weight.nbytes for m in target.modules() if isinstance(m, nn.Linear))
    assert own < linears / (4 if bits == 4 else 3)
    assert (drafter.vocab_size, drafter.context) == (VOCAB_SIZE, model.context)
    assert drafter.name.endswith(f"-int{bits}")
    ids = np.arange(30, dtype=np.int32)
    ours, theirs = (m.servers(1)[0].forward(0, ids, 1) for m in (drafter, model))
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > (0.8 if bits == 4 else 0.99)


def test_the_best_logits_are_computed_with_the_shared_weights() -> None:
    head = linear(256, 64, bias=True)
    report = quantised.QuantisationReport(8, 32)
    refined = quantised._head(head, "lm_head", report, {})
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    want, got = head(x), refined(x)
    assert torch.equal(want.argmax(-1), got.argmax(-1))
    exact = (want - got).abs() < 1e-5
    assert (exact.sum(-1) >= 16).all()
    assert exact.gather(-1, want.topk(4).indices).all()
    assert (want - got).abs().max() < want.std()


@pytest.mark.parametrize("biases", [False, True])
def test_the_lean_forward_is_the_same_function(biases: bool) -> None:
    source = tiny_target(5, attention_bias=biases, mlp_bias=biases).requires_grad_(False)
    if biases:
        for name, parameter in source.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.linspace(-1, 1, len(parameter)))
    assert LeanLlama.fits(source) and not LeanLlama.fits(mistral())
    lean = TransformersModel(LeanLlama(source, lambda layer: layer, lambda layer: layer))
    (server,) = lean.servers(1)
    ids = np.random.default_rng(0).integers(0, VOCAB_SIZE, 40).astype(np.int32)
    with torch.inference_mode():
        want = source(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].numpy()
    for upto, first in ((20, 1), (21, 21), (30, 25), (40, 40)):
        got = server.forward(0, ids[:upto], first)
        np.testing.assert_allclose(got, want[first - 1 : upto], atol=1e-3, rtol=0)


def test_the_copy_rolls_back_like_its_target() -> None:
    drafter = quantised_copy(TransformersModel(tiny_target()), 4)
    used, fresh = drafter.servers(1)[0], drafter.servers(1)[0]
    path = np.arange(40, dtype=np.int32)
    used.forward(0, path, 40)
    other = np.append(path[:20], path[::-1][:10])
    np.testing.assert_allclose(
        used.forward(0, other, 28), fresh.forward(0, other, 28), atol=0.25, rtol=0
    )


@pytest.mark.parametrize("wrong", [{"bits": 3}, {"group": 33}])
def test_wrong_settings_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=str(next(iter(wrong.values())))):
        quantised_copy(TransformersModel(tiny_target()), **wrong)
