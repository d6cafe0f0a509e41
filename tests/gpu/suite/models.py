"""Llamas with random weights, made on the spot, in sizes that a device finds small or large."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, logging

from dsi_native import TransformersModel
from suite.section import Where

CONTEXT = 2048


@dataclass(frozen=True)
class Size:
    """A Llama's shape. spread: the deviation of its weights, large where texts should vary."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int = 32_000
    spread: float = 0.05

    @property
    def parameters(self) -> int:
        head = self.hidden // self.heads
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * head * self.kv_heads
        layer = attention + 3 * self.hidden * self.intermediate
        return self.layers * layer + 2 * self.vocab * self.hidden


TINY = Size("tiny", 64, 2, 4, 2, 128, vocab=256, spread=0.3)
TINY_DRAFTER = Size("tiny drafter", 32, 1, 2, 1, 64, vocab=256, spread=0.3)
CHECKED = Size("checked", 512, 6, 8, 4, 1408)
# Deep and narrow: kernels of microseconds, more of them than a host can launch in that time.
SMALL = Size("small", 1024, 16, 16, 4, 2816)
SMALL_DRAFTER = Size("small drafter", 512, 4, 8, 2, 1408)
# Wide and flat: each kernel reads so many weights that no launch is waited for.
WIDE = (
    Size("wide 14B", 16_384, 4, 128, 16, 53_248),
    Size("wide 7B", 8192, 8, 64, 8, 28_672),
    Size("wide 2B", 8192, 2, 64, 8, 28_672),
    Size("wide 0.5B", 4096, 2, 32, 8, 11_008),
)
WIDE_DRAFTERS = {
    "wide 14B": Size("flat 1B", 4096, 4, 32, 8, 11_008),
    "wide 7B": Size("flat 0.4B", 2048, 4, 16, 4, 8192),
    "wide 2B": Size("flat 0.1B", 1024, 2, 16, 4, 4096),
    "wide 0.5B": Size("flat 0.1B", 1024, 2, 16, 4, 4096),
}


def llama(size: Size, device: str, dtype: torch.dtype, seed: int) -> LlamaForCausalLM:
    """A model of that size without an end token, its weights drawn on the device from `seed`."""
    config = LlamaConfig(
        vocab_size=size.vocab,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        max_position_embeddings=CONTEXT,
        initializer_range=size.spread,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval().requires_grad_(False)


def noisy(target: LlamaForCausalLM, noise: float, seed: int) -> LlamaForCausalLM:
    """The target with noise times their deviation on its weights: it agrees in part."""
    drafter = copy.deepcopy(target)
    generator = torch.Generator(target.device).manual_seed(seed)
    with torch.no_grad():
        for weights in drafter.parameters():
            if weights.ndim > 1:
                drawn = torch.randn(
                    weights.shape, generator=generator, device=weights.device, dtype=weights.dtype
                )
                weights.add_(drawn * (noise * weights.std()))
    return drafter


def prompt(vocab: int, tokens: int, seed: int) -> np.ndarray:
    """Random ids int32 [tokens]."""
    return np.random.default_rng(seed).integers(0, vocab, tokens, dtype=np.int32)


def generate(model: Any, ids: np.ndarray, tokens: int, **options: Any) -> list[int]:
    """Exactly `tokens` new ids of transformers' generate(), greedy unless options say otherwise."""
    inputs = torch.from_numpy(ids.astype(np.int64))[None].to(model.device)
    with hushed():
        out = model.generate(
            input_ids=inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=tokens,
            **{"do_sample": False, **options},
        )
    return out[0, len(ids) :].tolist()


def served(module: Any, where: Where, name: str | None = None) -> TransformersModel:
    """For an Engine. Where graphs cannot be captured, making the engine raises and says why."""
    warnings.filterwarnings("error", message=".*without CUDA graphs")
    graphs = where.graphs and module.device.type == "cuda"
    return TransformersModel(module, name=name, graphs=graphs)


@contextmanager
def hushed() -> Iterator[None]:
    """No advice of transformers: it warns of its own calls too."""
    logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def weight_bytes(model: torch.nn.Module) -> int:
    """What a forward of one token reads: all weights but the embeddings it looks up."""
    of_input = model.get_input_embeddings().weight
    return sum(p.nbytes for p in model.parameters() if p is not of_input)


__all__ = [
    "CHECKED",
    "SMALL",
    "SMALL_DRAFTER",
    "TINY",
    "TINY_DRAFTER",
    "WIDE",
    "WIDE_DRAFTERS",
    "Size",
    "generate",
    "llama",
    "noisy",
    "prompt",
    "served",
    "weight_bytes",
]
