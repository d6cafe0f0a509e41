"""Weight-only quantised copies of a target: every model has a drafter without a download."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import torch
from torch import nn

from dsi_native.errors import InvalidArgument
from dsi_native.models.lean_llama import LeanLlama
from dsi_native.models.transformers import TransformersModel

_REFINED = 16
_PROBE_ROWS = 2


@dataclass
class QuantisationReport:
    """What became of the linear layers of a quantised copy.

    packed: names that run in torch's packed kernels. faked: names, with the reason, that compute in
    the model's own precision with quantised weights: as good a drafter, but as slow as the target
    and with weights of their own.
    """

    bits: int
    group: int
    packed: list[str] = field(default_factory=list)
    faked: dict[str, str] = field(default_factory=dict)


def quantised_copy(model: TransformersModel, bits: int = 4, group: int = 32) -> TransformersModel:
    """A drafter with the linear weights of `model` in 4 or 8 bits; all else is shared, not copied.

    4 bits: one scale and one offset for each `group` weights of a row; 8 bits: one scale a row. The
    output head takes 4 bits in either case, and the 16 best logits of each row are computed again
    with the shared weights: they decide; 8 bits for all cost three times as much and agree less.
    The copy has an attribute `quantisation`, a QuantisationReport. Llama models run in a forward
    of their own (LeanLlama), others inside transformers. Costs about 2 s and, in 4 bits, a fifth of
    the memory of the fp32 weights. Raises InvalidArgument where there is nothing to quantise.
    """
    if bits not in (4, 8):
        raise InvalidArgument(f"bits must be 4 or 8, not {bits}")
    if group not in (32, 64, 128, 256):
        raise InvalidArgument(f"group must be 32, 64, 128 or 256, not {group}")
    source = model.model
    report = QuantisationReport(bits, group)
    with torch.no_grad():
        if LeanLlama.fits(source):
            module = _lean_copy(source, report)
        else:
            module = _module_copy(source, report)
    if not report.packed and not report.faked:
        raise InvalidArgument(f"{type(source).__name__} has no nn.Linear to quantise")
    drafter = TransformersModel(
        module,
        model.tokenizer,
        f"{model.name}-int{bits}",
        model.cache_budget_bytes,
        model.judge_on_device,
    )
    drafter.quantisation = report
    return drafter


def _lean_copy(source: Any, report: QuantisationReport) -> nn.Module:
    sound: dict[Any, str] = {}
    names = (f"layers.{i}.{kind}" for i in count() for kind in ("qkv", "out", "gate_up", "down"))

    def convert(linear: nn.Linear) -> nn.Module:
        return _noted(linear, next(names), report.bits, report, sound)

    def convert_head(linear: nn.Linear) -> nn.Module:
        return _head(linear, "lm_head", report, sound)

    return LeanLlama(source, convert, convert_head)


def _module_copy(source: Any, report: QuantisationReport) -> nn.Module:
    # Tensors found in the memo are taken as they are, so only the module objects are copied.
    shared = {id(t): t for t in chain(source.parameters(), source.buffers())}
    module = copy.deepcopy(source, shared)
    head = module.get_output_embeddings()
    sound: dict[Any, str] = {}
    for name, linear in list(module.named_modules()):
        if type(linear) is nn.Linear:
            if linear is head:
                quantised = _head(linear, name, report, sound)
            else:
                quantised = _noted(linear, name, report.bits, report, sound)
            module.set_submodule(name, quantised)
    return module


def _noted(
    linear: nn.Linear, name: str, bits: int, report: QuantisationReport, sound: dict[Any, str]
) -> nn.Module:
    quantised, reason = _quantise(linear, bits, report.group, sound)
    if reason:
        report.faked[name] = reason
    else:
        report.packed.append(name)
    return quantised


def _head(
    linear: nn.Linear, name: str, report: QuantisationReport, sound: dict[Any, str]
) -> nn.Module:
    """The head in 4 bits with its best logits exact, or as it is where that cannot be packed."""
    rough = _noted(linear, name, 4, report, sound)
    return linear if name in report.faked else _RefinedHead(rough, linear)


class _RefinedHead(nn.Module):
    """Rough logits for all tokens, exact ones for the best of each row."""

    def __init__(self, rough: nn.Module, exact: nn.Linear) -> None:
        super().__init__()
        self.rough, self.weight, self.bias = rough, exact.weight, exact.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.rough(x)
        best = logits.topk(min(_REFINED, logits.shape[-1]), -1, sorted=False).indices
        exact = (self.weight[best] @ x[..., None])[..., 0]
        if self.bias is not None:
            exact = exact + self.bias[best]
        return logits.scatter_(-1, best, exact)


class _PackedLinear(nn.Module):
    """y = x W^T + b with W packed in 4 or 8 bits; inside in bf16, outside in the type of x."""

    def __init__(self, linear: nn.Linear, bits: int, group: int) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self.group = group if bits == 4 else None
        if bits == 4:
            levels, scales, offsets = int4_levels(linear.weight, group)
            packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.int(), 1)
            # w = (level - 8) * scale + zero, laid out [groups, rows, 2].
            zeros = (offsets + 8 * scales).bfloat16()
            scales = torch.stack([scales, zeros], -1).transpose(0, 1).contiguous()
        else:
            packed, scales = int8_levels(linear.weight)
        self.register_buffer("packed", packed, persistent=False)
        self.register_buffer("scales", scales.bfloat16(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features).to(torch.bfloat16)
        if self.group is None:
            y = torch.ops.aten._weight_int8pack_mm(rows, self.packed, self.scales)
        else:
            y = torch.ops.aten._weight_int4pack_mm_for_cpu(
                rows, self.packed, self.group, self.scales
            )
        y = y.to(x.dtype).view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias


def int4_levels(
    weight: torch.Tensor, group: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Levels 0..15 [N, K] and, fp32 but exact in bf16, scales and offsets [N, K / group].

    weight ~ level * scale + offset, with scale = (max - min) / 15 and offset = min of each group.
    """
    groups = weight.float().view(weight.shape[0], -1, group)
    low, high = groups.amin(-1), groups.amax(-1)
    scales = ((high - low) / 15).clamp_min(1e-8).bfloat16().float()
    # The kernel adds the middle, low + 8 * scale, in bf16: what it will add decides the levels.
    offsets = (low + 8 * scales).bfloat16().float() - 8 * scales
    levels = ((groups - offsets[..., None]) / scales[..., None]).round().clamp(0, 15)
    return levels.view_as(weight), scales, offsets


def int8_levels(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Levels -127..127 int8 [N, K] and scales [N], exact in bf16: weight ~ level * scale."""
    scales = (weight.float().abs().amax(1) / 127).clamp_min(1e-8).bfloat16().float()
    levels = (weight.float() / scales[:, None]).round().clamp(-127, 127)
    return levels.to(torch.int8), scales


def _dequantised(weight: torch.Tensor, bits: int, group: int) -> torch.Tensor:
    if bits == 8:
        levels, scales = int8_levels(weight)
        return levels.float() * scales[:, None]
    levels, scales, offsets = int4_levels(weight, group)
    levels = levels.view(*scales.shape, group)
    return (levels * scales[..., None] + offsets[..., None]).view_as(weight)


def _quantise(
    linear: nn.Linear, bits: int, group: int, sound: dict[Any, str]
) -> tuple[nn.Module, str]:
    """The quantised layer, and why it could not be packed ("" where it could).

    sound: objections by shape; a kernel is trusted after it agreed once with plain arithmetic.
    """
    n, k = linear.weight.shape
    if bits == 4 and k % group:
        # Per-row 8 bits need no groups.
        quantised, reason = _quantise(linear, 8, group, sound)
        return quantised, reason
    key = (n, k, bits)
    if key not in sound:
        sound[key] = _objection(linear, bits, group)
    if not sound[key]:
        return _PackedLinear(linear, bits, group), ""
    faked = nn.Linear(k, n, bias=False, device="meta")
    weight = _dequantised(linear.weight, bits, group).to(linear.weight.dtype)
    faked.weight = nn.Parameter(weight, requires_grad=False)
    faked.bias = linear.bias
    return faked, sound[key]


def _objection(linear: nn.Linear, bits: int, group: int) -> str:
    if linear.weight.device.type != "cpu":
        return f"no packed kernel on {linear.weight.device.type}"
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_PROBE_ROWS, linear.in_features, generator=generator)
    try:
        got = _PackedLinear(linear, bits, group)(x.to(linear.weight.dtype)).float()
    except (RuntimeError, AttributeError) as error:
        return str(error).splitlines()[0]
    want = nn.functional.linear(x.bfloat16().float(), _dequantised(linear.weight, bits, group))
    want = want if linear.bias is None else want + linear.bias
    if not (got - want).abs().max() <= 0.05 * want.std() + 1e-6:
        return "the packed kernel disagrees with plain arithmetic"
    return ""
