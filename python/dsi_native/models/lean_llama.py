"""A Llama forward without transformers' overhead, for quantised drafters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from dsi_native.models.kv_cache import RequestCache


class Logits(NamedTuple):
    """The part of transformers' output that servers read: [1, rows, V]."""

    logits: torch.Tensor


class _Layer(nn.Module):
    def __init__(self, source: Any, convert: Callable[[nn.Linear], nn.Module]) -> None:
        super().__init__()
        attention, mlp = source.self_attn, source.mlp
        self.attention_norm = source.input_layernorm.weight
        self.mlp_norm = source.post_attention_layernorm.weight
        self.qkv = convert(_side_by_side(attention.q_proj, attention.k_proj, attention.v_proj))
        self.out = convert(attention.o_proj)
        self.gate_up = convert(_side_by_side(mlp.gate_proj, mlp.up_proj))
        self.down = convert(mlp.down_proj)


class LeanLlama(nn.Module):
    """The same function as a LlamaForCausalLM whose linear layers went through `convert`.

    Shares embeddings, norms and rotary angles with `source`. Query, key and value are one product,
    so are gate and up; grouped queries attend without repeating keys. With packed 4-bit weights
    (SmolLM2, 1 to 4 queries, 1 thread) a forward takes 0.8 of what it takes inside transformers.
    """

    def __init__(
        self,
        source: Any,
        convert: Callable[[nn.Linear], nn.Module],
        convert_head: Callable[[nn.Linear], nn.Module],
    ) -> None:
        super().__init__()
        config = source.config
        self.config, self.generation_config = config, source.generation_config
        self.embed_tokens = source.model.embed_tokens
        self.rotary_emb = source.model.rotary_emb
        self.norm = source.model.norm.weight
        self.layers = nn.ModuleList(_Layer(layer, convert) for layer in source.model.layers)
        self.lm_head = convert_head(source.lm_head)
        width = source.model.layers[0].self_attn.head_dim
        # rotate_half(x) is x rolled by half, with the first half negated.
        self._signs = torch.ones(width, device=self.norm.device, dtype=self.norm.dtype)
        self._signs[: width // 2] = -1

    @staticmethod
    def fits(model: Any) -> bool:
        """True for models that this class computes exactly."""
        config = model.config
        return (
            type(model).__name__ == "LlamaForCausalLM"
            and config.hidden_act == "silu"
            and getattr(config, "pretraining_tp", 1) == 1
        )

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def forward(
        self,
        input_ids: torch.Tensor,
        cache: RequestCache,
        use_cache: bool = True,
        logits_to_keep: int = 1,
    ) -> Logits:
        """Logits of the last `logits_to_keep` of ids [1, q], which follow what `cache` holds."""
        config = self.config
        x = self.embed_tokens(input_ids[0])
        queries, start = input_ids.shape[1], cache.get_seq_length()
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        per_kv, width = heads // kv_heads, self._signs.shape[0]
        eps = x.new_tensor(config.rms_norm_eps)
        positions = torch.arange(start, start + queries, device=x.device)[None]
        cos, sin = self.rotary_emb(x, position_ids=positions)
        cos, sin = cos[0, :, None], (sin[0] * self._signs)[:, None]
        mask = None
        if queries > 1:
            mask = torch.ones(queries, start + queries, dtype=torch.bool, device=x.device)
            mask = mask.tril(start).repeat(per_kv, 1)
        for index, layer in enumerate(self.layers):
            h = _rms_norm(x, layer.attention_norm, eps)
            qkv = layer.qkv(h).view(queries, heads + 2 * kv_heads, width)
            qk, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
            qk = torch.addcmul(qk * cos, qk.roll(width // 2, -1), sin)
            k, v = cache.update(qk[None, :, heads:].transpose(1, 2), v[None].transpose(1, 2), index)
            # All queries that share a key head become rows of one product.
            q = qk[:, :heads].view(queries, kv_heads, per_kv, width).permute(1, 2, 0, 3)
            q = q.reshape(1, kv_heads, per_kv * queries, width)
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            a = a.view(kv_heads, per_kv, queries, width).permute(2, 0, 1, 3)
            x = x + layer.out(a.reshape(queries, heads * width))
            h = _rms_norm(x, layer.mlp_norm, eps)
            gate, up = layer.gate_up(h).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
        x = _rms_norm(x[-logits_to_keep:], self.norm, eps)
        return Logits(self.lm_head(x)[None])


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight; 10 us for one row where torch's own takes 16."""
    length = torch.linalg.vector_norm(x, 2, -1, True)
    return x * torch.addcmul(eps, length, length, value=1 / x.shape[-1]).rsqrt_() * weight


def _side_by_side(*linears: nn.Linear) -> nn.Linear:
    """One linear layer that computes all, their outputs one after another."""
    rows = sum(linear.out_features for linear in linears)
    joined = nn.Linear(linears[0].in_features, rows, bias=False, device="meta")
    weight = torch.cat([linear.weight for linear in linears])
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if linears[0].bias is not None:
        bias = torch.cat([linear.bias for linear in linears])
        joined.bias = nn.Parameter(bias, requires_grad=False)
    return joined
