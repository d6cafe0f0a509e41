"""Stand-ins that know a text: a target that says it for nothing, a drafter that drafts it.

With one of them in place of a model, an Engine pays for the other model alone, in the loop, with
the caches and the rules it always has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsi_native.drafters import CallableDrafter


@dataclass(frozen=True)
class Text:
    """ids int32 [prompt and new tokens], the first `prompt` of them the prompt."""

    ids: np.ndarray
    prompt: int

    @classmethod
    def of(cls, prompt: np.ndarray, tokens: Sequence[int]) -> Text:
        return cls(np.concatenate([prompt, np.asarray(tokens, np.int32)]), len(prompt))

    @property
    def start(self) -> np.ndarray:
        return self.ids[: self.prompt]

    @property
    def tokens(self) -> int:
        """New ones."""
        return len(self.ids) - self.prompt


NOTHING = Text(np.empty(0, np.int32), 0)


class RecordedTarget:
    """Says `text`, to be set before each request, and notes which drafts for it were right.

    For SI, one request at a time: there a window holds every draft behind the committed tokens, so
    its length tells where the drafter had none. bonus: whether it says its own token behind a
    window that is right, as targets do; without, that position is drafted and noted as well. hits:
    a letter of `measurement.HITS` for each new token of `text`; the last is never drafted.
    """

    judges_on_device = True  # it says tokens, not rows of logits

    def __init__(self, target: Any) -> None:
        self.name = "recorded text"
        self.vocab_size = target.vocab_size
        self.tokenizer = getattr(target, "tokenizer", None)
        self.vocabulary = getattr(target, "vocabulary", None)
        self.text = NOTHING
        self._lookahead, self._bonus = 1, False
        self._letters: list[str] = []

    def start(self, text: Text, lookahead: int, bonus: bool = False) -> None:
        """The next request is about `text`, in SI with this lookahead."""
        self.text, self._lookahead, self._bonus = text, lookahead, bonus
        self._letters = ["?"] * text.tokens

    @property
    def hits(self) -> str:
        return "".join(self._letters)

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        return [self] * n

    def verify(self, request: int, tokens: np.ndarray, first: int, job: Any) -> Any:
        """See bindings/device_judge.h: (tokens, no logprobs, status, no frontier)."""
        ids, window = self.text.ids, len(tokens) - first
        wrong = np.flatnonzero(tokens[first:] != ids[first : len(tokens)])
        right = int(wrong[0]) if len(wrong) else window
        at = first - self.text.prompt
        self._letters[at : at + right] = "1" * right
        if right < window:
            self._letters[at + right] = "0"
        elif window < self._lookahead and len(tokens) < len(ids) - 1:
            self._letters[at + right] = "-"
        silent = right == window == self._lookahead and not self._bonus
        said = ids[first : first + right + (not silent)]
        return said, None, np.zeros(len(said), np.int32), False


class RecordedDrafts:
    """What to draft: `text`, or with `wrong` always another token than the text has."""

    def __init__(self, vocab_size: int, wrong: bool = False) -> None:
        self.text = NOTHING
        self._shift, self._vocab_size = int(wrong), vocab_size

    def drafter(self) -> CallableDrafter:
        return CallableDrafter(self._propose)

    def _propose(self, tokens: np.ndarray, most: int) -> list[int]:
        said = self.text.ids[len(tokens) : len(tokens) + most]
        return [(int(token) + self._shift) % self._vocab_size for token in said]


__all__ = ["RecordedDrafts", "RecordedTarget", "Text"]
