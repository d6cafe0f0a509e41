"""Tiny random models for tests: made in milliseconds, a forward takes about one."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB_SIZE = 256


def tiny_target(seed: int = 0, **config: Any) -> LlamaForCausalLM:
    """A random fp32 Llama: 2 layers, width 64, 256 tokens, no end token so text stays varied.

    config: fields of LlamaConfig to change, such as max_position_embeddings.
    """
    fields: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**(fields | config))).eval()


def tiny_drafter(target: LlamaForCausalLM, noise: float, seed: int = 1) -> LlamaForCausalLM:
    """The target's weights plus noise times their deviation: more noise, less greedy agreement.

    noise 0 agrees always, .01/.02/.05/.1/.2 about .84/.71/.41/.21/.05 of the time.
    """
    drafter = LlamaForCausalLM(target.config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for mine, of_target in zip(drafter.parameters(), target.parameters(), strict=True):
            drawn = torch.randn(of_target.shape, generator=generator)
            deviation = of_target.std() if of_target.numel() > 1 else 0.0
            mine.copy_(of_target + noise * deviation * drawn)
    return drafter
