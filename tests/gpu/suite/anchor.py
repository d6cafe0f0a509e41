"""Models that compute all they have, and say what a text says: its acceptance is set beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from suite import models

# A logit that no other comes near, in any dtype.
_SURE = 1e4


class Anchor:
    """Makes a causal LM say text[p + 1] at position p, behind the forward that it runs anyway.

    The logit of that id is raised, on the device, without a synchronisation, from memory that stays
    in its place: eager, compiled and captured forwards all do it, in an engine as in generate().
    A target that is anchored says its recorded text also where bf16 rounds otherwise in another
    window; a drafter that is anchored to the same text with mistakes has the acceptance they leave.
    Positions beyond the text say id 0.
    """

    def __init__(self, module: Any) -> None:
        self._next = torch.zeros(models.CONTEXT, dtype=torch.long, device=module.device)
        module.register_forward_hook(self._say, with_kwargs=True)

    def say(self, text: Sequence[int] | np.ndarray) -> None:
        """ids of prompt and new tokens, from position 0 on; no forward may be running."""
        ids = torch.as_tensor(np.asarray(text, np.int64))
        self._next.zero_()
        self._next[: len(ids) - 1] = ids[1:].to(self._next.device)
        if self._next.is_cuda:
            torch.cuda.synchronize()  # forwards run on streams of their own

    def _say(self, module: Any, arguments: Any, keywords: dict[str, Any], out: Any) -> Any:
        logits = out.logits  # [1, rows, V], of the last positions
        rows = logits.shape[1]
        positions = keywords.get("position_ids")
        if positions is None:
            positions = keywords.get("cache_position")
        if positions is None:
            cache = keywords.get("cache", keywords.get("past_key_values"))
            end = cache.get_seq_length()
            ids = self._next[end - rows : end]
        else:
            ids = self._next[positions.reshape(-1)[-rows:]]
        logits.scatter_(2, ids.view(1, rows, 1), _SURE)
        return out


def mistaken(
    text: Sequence[int] | np.ndarray, prompt: int, share: float, vocab: int, seed: int
) -> np.ndarray:
    """The text int32, another id in place of `share` of its new tokens, at places from `seed`."""
    ids = np.array(text, np.int32)
    places = np.random.default_rng(seed).permutation(np.arange(prompt, len(ids)))
    wrong = places[: round(share * len(places))]
    ids[wrong] = (ids[wrong] + 1) % vocab
    return ids


__all__ = ["Anchor", "mistaken"]
