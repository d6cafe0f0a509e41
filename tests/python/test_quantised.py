"""Quantised copies: exact arithmetic of the packed layers, shared memory, use as a drafter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dsi_native.errors import InvalidArgument
from dsi_native.models import quantised
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
    assert len(packed.quantisation.packed) + len(packed.quantisation.faked) == 15

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


@pytest.mark.parametrize("bits", [4, 8])
def test_the_copy_shares_the_rest_and_leaves_the_target_alone(bits: int) -> None:
    target = tiny_target()
    before = {name: (p.data_ptr(), p.clone()) for name, p in target.named_parameters()}
    model = TransformersModel(target)
    drafter = quantised_copy(model, bits)
    for name, parameter in target.named_parameters():
        assert parameter.data_ptr() == before[name][0] and torch.equal(parameter, before[name][1])
    assert all(type(m) is not nn.Linear for m in drafter.model.modules()) or (
        drafter.quantisation.faked
    )
    names = dict(drafter.model.named_parameters())
    assert names["model.embed_tokens.weight"] is target.model.embed_tokens.weight
    assert not any(name.endswith("proj.weight") for name in names) or drafter.quantisation.faked
    own = sum(
        b.nbytes for n, b in drafter.model.named_buffers() if n.endswith(("packed", "scales"))
    )
    linears = sum(m.weight.nbytes for m in target.modules() if isinstance(m, nn.Linear))
    assert own < linears / (2.5 if bits == 4 else 3.5)
    assert (drafter.vocab_size, drafter.context) == (VOCAB_SIZE, model.context)
    assert drafter.name.endswith(f"-int{bits}")


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
