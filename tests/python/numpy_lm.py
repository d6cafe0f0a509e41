"""A language model of two numpy tables: forwards of microseconds, the same floats in every window.

Imports neither torch nor transformers, so that subprocesses that use it start in 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Before = Callable[[np.ndarray, int, Any], None]


class NumpyLm:
    """Logits of a position: a row for the token before it plus a row for the one before that.

    noise: 0 is the target itself; more of it makes a drafter that agrees less often.
    before: called as before(tokens, first, job) in each forward: may sleep, raise, take notes.
    edit: called as edit(rows, first) with the float32 [n, V] rows that are about to be returned.
    """

    tokenizer: Any = None

    def __init__(
        self,
        vocab_size: int = 64,
        *,
        noise: float = 0.0,
        seed: int = 0,
        context: int | None = None,
        eos_ids: tuple[int, ...] = (),
        before: Before | None = None,
        edit: Callable[[np.ndarray, int], None] | None = None,
    ) -> None:
        draw = np.random.default_rng(seed)
        self.name = f"tables, noise {noise:g}"
        self.vocab_size = vocab_size
        self.context = context
        self.eos_ids = eos_ids
        self._before = before
        self._edit = edit
        tables = draw.normal(size=(2, vocab_size, vocab_size)) * 2
        tables += noise * draw.normal(size=tables.shape) * 2
        self._last, self._earlier = tables.astype(np.float32)

    def logits(self, tokens: Any, first: int | None = None) -> np.ndarray:
        """float32 [n - first + 1, V]: rows for positions first..n; by default the last alone."""
        tokens = np.asarray(tokens)
        first = len(tokens) if first is None else first
        earlier = np.concatenate([[0], tokens])[first - 1 : len(tokens)]
        return self._last[tokens[first - 1 :]] + self._earlier[earlier]

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        return [NumpyServer(self) for _ in range(n)]


class NumpyServer:
    def __init__(self, model: NumpyLm) -> None:
        self._model = model

    def forward(self, request: int, tokens: np.ndarray, first: int, job: Any) -> np.ndarray:
        if self._model._before is not None:
            self._model._before(tokens, first, job)
        rows = self._model.logits(tokens, first)
        if self._model._edit is not None:
            self._model._edit(rows, first)
        return rows


def greedy(model: NumpyLm, prompt: Any, n: int, edit: Any = None) -> list[int]:
    """n ids that a plain loop chooses. edit(logits, path) changes the logits in place."""
    path = [int(token) for token in prompt]
    for _ in range(n):
        logits = model.logits(path)[0]
        if edit is not None:
            edit(logits, path)
        path.append(int(logits.argmax()))
    return path[len(prompt) :]


class ScriptedLm(NumpyLm):
    """Says `script` after a prompt of `prompt_tokens` tokens, whatever came before."""

    def __init__(self, script: list[int], vocab_size: int, prompt_tokens: int = 1) -> None:
        super().__init__(1)
        self.name = "script"
        self.vocab_size = vocab_size
        self.script = script
        self._prompt_tokens = prompt_tokens

    def logits(self, tokens: Any, first: int | None = None) -> np.ndarray:
        first = len(tokens) if first is None else first
        rows = np.zeros((len(tokens) - first + 1, self.vocab_size), np.float32)
        for row, at in zip(rows, range(first - self._prompt_tokens, 10**9), strict=False):
            row[self.script[at] if at < len(self.script) else 0] = 9
        return rows

    def drafter(self, wrong_every: int) -> Callable[[np.ndarray, int], list[int]]:
        """A function that drafts the script, each `wrong_every`-th position wrong."""

        def propose(tokens: np.ndarray, most: int) -> list[int]:
            at = len(tokens) - self._prompt_tokens
            return [
                (token + ((at + i) % wrong_every == 0)) % self.vocab_size
                for i, token in enumerate(self.script[at : at + most])
            ]

        return propose
