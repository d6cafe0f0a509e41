"""Drafters that are not language models: prompt lookup, and any function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dsi_native import _core


class PromptLookup:
    """Proposes what followed the last tokens when they occurred before; native, no GIL, no model.

    Tries the longest suffix, of max_ngram tokens, first, down to min_ngram.
    """

    name = "lookup"
    vocab_size = None
    context = None
    tokenizer = None

    def __init__(self, max_drafts: int = 8, max_ngram: int = 3, min_ngram: int = 1) -> None:
        self._server = _core.NgramDrafter(min_ngram, max_ngram, max_drafts)

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        """n native servers; `threads` means nothing here."""
        return [self._server] * n


class CallableDrafter:
    """Any function as a drafter: `propose(tokens, max_drafts) -> ids that may follow`.

    tokens: int32 [n], read-only. Called on the drafter's worker thread with the GIL; ids beyond
    max_drafts are ignored, none means nothing to propose here. An exception, or an id outside the
    vocabulary, ends the drafting of that request and costs speed only.
    """

    vocab_size = None
    context = None
    tokenizer = None

    def __init__(self, propose: Callable[[np.ndarray, int], Sequence[int]]) -> None:
        self.name = getattr(propose, "__name__", type(propose).__name__)
        self._propose = propose

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        """n servers that call the same function."""
        return [_CallableDrafterServer(self._propose) for _ in range(n)]


class _CallableDrafterServer:
    def __init__(self, propose: Callable[[np.ndarray, int], Sequence[int]]) -> None:
        self._propose = propose

    def draft(self, request: int, tokens: np.ndarray, max_drafts: int) -> Sequence[int]:
        return self._propose(tokens, max_drafts)
