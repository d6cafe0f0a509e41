"""String-level exact match between two vocabularies: its law by enumeration, and its draws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dsi_native.kernels import Verified
from dsi_native.reference.first_token import LongestMatch
from hetero_law import PROMPT, Side, Texts, bonus_law, drawn_from
from hetero_models import Array, extended, start, state_of
from kernel_implementations import NATIVE

Ids = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Slem:
    """Drafts as text, encoded with the target's tokenizer (longest match) into candidates.

    Rounds: `drafts` ids of the drafter, which sees the bytes so far. The target draws its own token
    at each place; they are kept up to the first that is not the candidate, and with it.
    """

    target: Side
    drafter: Side
    drafts: int = 4

    @property
    def width(self) -> int:
        return self.target.model.width

    def candidates(self, text: bytes) -> Ids:
        """Of a text without what the target cannot spell."""
        return encoded(self.target.model.tokens, text)

    # By enumeration.

    def windows(self, prefix: Ids) -> dict[Ids, float]:
        """How likely each window of candidates is behind a prefix."""
        windows: dict[Ids, float] = defaultdict(float)
        for text, weight in self._drafted(self._spelled(self.target, prefix), b"", self.drafts):
            windows[self.candidates(text)] += weight
        return windows

    def law(self, tokens: int) -> Array:
        """[V] * tokens: the joint law of a text's first tokens."""
        law = np.zeros((self.width,) * tokens)
        row = lru_cache(None)(lambda prefix: bonus_law(self.target.row(prefix)))
        begun: list[dict[Ids, float]] = [defaultdict(float) for _ in range(tokens)]
        begun[0][()] = 1.0

        def end_round(text: Ids, mass: float) -> None:
            if len(text) < tokens:
                begun[len(text)][text] += mass
            else:
                law[text] += mass

        for rounds in begun:
            for prefix, mass in rounds.items():
                for window, weight in self.windows(prefix).items():
                    text, left = prefix, mass * weight
                    for candidate in (*window[: tokens - len(prefix) - 1], None):
                        for t in np.flatnonzero(row(text)):
                            if t != candidate:
                                end_round((*text, int(t)), left * row(text)[t])
                        if candidate is not None:
                            left *= row(text)[candidate]
                            text = (*text, candidate)
        return law

    def acceptance(self) -> float:
        """sum of p(t) psi(t) of the first place."""
        p = bonus_law(self.target.row(()))
        return sum(weight * p[window[0]] for window, weight in self.windows(()).items() if window)

    def _drafted(self, context: bytes, text: bytes, left: int) -> Iterator[tuple[bytes, float]]:
        if not left:
            yield text, 1.0
            return
        row = self.drafter.row(tuple(context + text))
        for d, weight in drawn_from(row):
            more = text + self._spelled(self.drafter, (d,))
            for whole, rest in self._drafted(context, more, left - 1):
                yield whole, weight * rest

    @staticmethod
    def _spelled(side: Side, ids: Any) -> bytes:
        tokens = side.model.tokens
        return b"".join(tokens[i] for i in ids if i < len(tokens))

    # By drawing.

    def texts(self, tokens: int, requests: int) -> Texts:
        """Of seeds 0 .. requests - 1, through the kernels in C++, which draw the target's own."""
        text = np.full((requests, tokens), -1, np.int32)
        lengths, accepted = np.zeros(requests, np.int64), 0
        first_round = True
        while len(live := np.flatnonzero(lengths < tokens)):  # each round adds a token
            prefixes = [tuple(text[b, : lengths[b]].tolist()) for b in live]
            windows = self._windows(prefixes, live, PROMPT + lengths[live])
            result = self._judged(prefixes, windows, live, PROMPT + lengths[live])
            if first_round:
                accepted = int(np.sum(result.num_accepted > 0))
            first_round = False
            for b, row in zip(live, result.tokens, strict=True):
                row = row[row >= 0][: tokens - lengths[b]]
                text[b, lengths[b] : lengths[b] + len(row)] = row
                lengths[b] += len(row)
        return Texts(text, accepted / requests)

    def _windows(self, prefixes: list[Ids], seeds: Array, position: Array) -> list[Ids]:
        contexts = [self._spelled(self.target, prefix) for prefix in prefixes]
        drafted = [b""] * len(prefixes)
        for k in range(self.drafts):
            states = np.concatenate(
                [state_of(context + text) for context, text in zip(contexts, drafted, strict=True)]
            )
            where = {"seed": seeds.astype(np.uint64), "position": position + k, "tag": "draft"}
            logits = self.drafter.model.logits(states)
            ids = NATIVE.sample(logits=logits, **where, **self.drafter.settings).token
            drafted = [
                text + self._spelled(self.drafter, (d,))
                for text, d in zip(drafted, ids.tolist(), strict=True)
            ]
        return [self.candidates(text) for text in drafted]

    def _judged(
        self, prefixes: list[Ids], windows: list[Ids], seeds: Array, position: Array
    ) -> Verified:
        n, most = len(windows), max(map(len, windows), default=0)
        drafts = np.full((n, most), -1, np.int32)
        for row, window in zip(drafts, windows, strict=True):
            row[: len(window)] = window
        states = [
            np.concatenate([state_of(prefix) for prefix in prefixes]) if prefixes else start(0)
        ]
        for column in drafts.T:
            states.append(extended(states[-1], np.maximum(column, 0)))
        logits = self.target.model.logits(np.stack(states, axis=1).ravel())
        cuts = NATIVE.cut(logits=logits, **self.target.settings)
        return NATIVE.verify(
            target_logits=logits.reshape(n, most + 1, -1),
            draft_ids=drafts,
            num_draft=np.array([len(window) for window in windows], np.int32),
            cut=cuts.reshape(n, most + 1),
            temperature=np.full(n, self.target.temperature, np.float32),
            seed=seeds.astype(np.uint64),
            position=position,
        )


@lru_cache(maxsize=100_000)
def encoded(tokens: tuple[bytes, ...], text: bytes) -> Ids:
    return tuple(LongestMatch(tokens).encode(text))
