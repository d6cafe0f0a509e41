"""transformers' own generate(): plain, prompt lookup, and assisted by the very drafter we use."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, GenerationMixin, LlamaPreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast


class Assistant(LlamaPreTrainedModel, GenerationMixin):
    """A LeanLlama as transformers wants its assistants: the same weights and the same forward."""

    def __init__(self, lean: Any) -> None:
        super().__init__(lean.config)
        self.lean = lean
        self.generation_config = GenerationConfig.from_model_config(lean.config)
        self.generation_config.eos_token_id = None

    def forward(
        self,
        input_ids: Any,
        cache: Any = None,
        attention_mask: Any = None,
        position_ids: Any = None,
        use_cache: bool = True,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        rows = logits_to_keep or input_ids.shape[1]
        out = self.lean(input_ids, cache=cache, use_cache=True, logits_to_keep=rows)
        return CausalLMOutputWithPast(logits=out.logits, cache=cache)


def as_assistant(drafter: Any) -> Any:
    """The module of a quantised copy as something generate() takes as assistant_model."""
    module = drafter.model
    return module if hasattr(module, "generate") else Assistant(module).eval()


def generate(model: Any, ids: np.ndarray, tokens: int, **options: Any) -> list[int]:
    """Exactly `tokens` new ids of model.generate(): the end of sequence does not end it.

    options: of generate(); it is greedy unless they say otherwise. The model's own end-of-sequence
    ids are taken from its generation_config for good, since generate() falls back on them.
    """
    model.generation_config.eos_token_id = None
    inputs = torch.from_numpy(ids.astype(np.int64))[None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = model.generate(
            input_ids=inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=tokens,
            **{"do_sample": False, **options},
        )
    new = out[0, len(ids) :].tolist()
    if len(new) != tokens:
        raise RuntimeError(f"generate() gave {len(new)} tokens, not {tokens}")
    return new


def quiet() -> None:
    """No progress bars, no advice."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
