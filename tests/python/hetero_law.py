"""Token-level drafting between two vocabularies: its law by enumeration, and its draws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsi_native import reference
from dsi_native.kernels import Sampled, Verified
from dsi_native.reference.laws import judgement_law
from dsi_native.reference.rows import Row, process
from dsi_native.reference.rules import Draft, propose
from hetero_models import Array, HashedModel, States, extended, maps_of, start, state_of
from kernel_implementations import NATIVE

PROMPT = 5
"""Tokens before the first position."""


@dataclass(frozen=True, eq=False)
class Side:
    """A model and how its rows become laws."""

    model: HashedModel
    settings: dict[str, float] = field(default_factory=dict)
    """temperature, top_k, top_p, min_p."""

    def row(self, prefix: tuple[int, ...], d2t: Array | None = None) -> Row:
        logits = self.model.logits(state_of(prefix))
        cut = reference.cut(logits, **self.settings, d2t=d2t)[0]
        allowed = None if d2t is None else d2t >= 0
        return process(logits[0], self.settings.get("temperature", 1.0), cut, allowed=allowed)

    @property
    def temperature(self) -> float:
        return self.settings.get("temperature", 1.0)


class Texts(NamedTuple):
    tokens: NDArray[np.int32]
    """[requests, tokens]"""
    acceptance: float
    """Accepted drafts per judged draft."""


@dataclass(frozen=True, eq=False)
class Tli:
    """Token-level intersection: drafts from q renormalised on the common tokens.

    Texts are those of rounds of `drafts` drafts and the target's token after them. The drafter sees
    the target's prefix, as its own ids would tell it.
    """

    target: Side
    drafter: Side
    drafts: int = 2
    maps: tuple[Array, Array] | None = None
    """(d2t, t2d), by default from the tokens' bytes."""

    @property
    def d2t(self) -> Array:
        return self._maps()[0]

    @property
    def t2d(self) -> Array:
        return self._maps()[1]

    def _maps(self) -> tuple[Array, Array]:
        if self.maps is None:
            object.__setattr__(self, "maps", maps_of(self.target.model, self.drafter.model))
        return self.maps

    # By enumeration.

    def target_row(self, prefix: tuple[int, ...]) -> Row:
        return self.target.row(prefix)

    def proposals(self, prefix: tuple[int, ...]) -> Iterator[tuple[float, Draft]]:
        """What the drafter may propose behind a prefix, and how likely it does."""
        row = self.drafter.row(prefix, self.d2t)
        for d, weight in drawn_from(row):
            yield weight, propose(d, row, None, self.target.model.width, self.d2t, self.t2d)

    def judged_law(self, row: Row, draft: Draft) -> tuple[float, Array]:
        return judgement_law(row, draft)

    def law(self, tokens: int) -> Array:
        """[V] * tokens: the joint law of a text's first tokens. Where no draft exists, none is."""
        width = self.target.model.width
        law = np.zeros((width,) * tokens)
        behind: dict[tuple[tuple[int, ...], int], float] = {((), self.drafts): 1.0}
        for length in range(tokens):
            longer: dict[tuple[tuple[int, ...], int], float] = defaultdict(float)
            for (prefix, left), mass in behind.items():
                stood, fell = self._step(prefix) if left else (0, 0)
                rest = 1.0 - np.sum(stood) - np.sum(fell)
                ended = fell + rest * np.where(rest > 1e-12, bonus_law(self.target_row(prefix)), 0)
                for t in range(width):
                    if left and stood[t]:
                        longer[(*prefix, t), left - 1] += mass * stood[t]
                    if ended[t]:
                        longer[(*prefix, t), self.drafts] += mass * ended[t]
            behind = longer
            if length == tokens - 1:
                for (prefix, _), mass in behind.items():
                    law[prefix] += mass
        return law

    def acceptance(self, prefix: tuple[int, ...] = ()) -> float:
        return float(np.sum(self._step(prefix)[0]))

    def _step(self, prefix: tuple[int, ...]) -> tuple[Array, Array]:
        """(mass [V] of tokens that stood, of tokens that replaced a draft)."""
        width = self.target.model.width
        stood, fell = np.zeros(width), np.zeros(width)
        row = self.target_row(prefix)
        for weight, draft in self.proposals(prefix):
            accepted, otherwise = self.judged_law(row, draft)
            if accepted:
                stood[draft.id] += weight * accepted
            fell += weight * (1 - accepted) * otherwise
        return stood, fell

    # By drawing.

    def sampled(self, logits: Array, where: dict[str, Array], tag: str) -> Sampled:
        settings = self.drafter.settings
        return NATIVE.sample(logits=logits, **where, tag=tag, **settings, d2t=self.d2t)

    def proposed(
        self, states: States, seed: Array, position: Array, tag: str
    ) -> tuple[dict[str, Any], Array]:
        """(what verify() is told of the drafts, states of the target [n, drafts + 1])."""
        rows, samples, behind = [], [], [states]
        for k in range(self.drafts):
            rows.append(self.drafter.model.logits(behind[-1]))
            where = {"seed": seed, "position": position + k}
            samples.append(self.sampled(rows[-1], where, tag))
            t = np.where(samples[-1].token < 0, -1, self.target_ids(samples[-1].token))
            behind.append(extended(behind[-1], np.maximum(t, 0)))
        told = {
            "draft_logits": np.stack(rows, axis=1),
            "draft_ids": np.stack([s.token for s in samples], axis=1),
            "draft_lse": np.stack([s.lse for s in samples], axis=1),
            "draft_cut": np.stack([s.cut for s in samples], axis=1),
            "draft_temperature": np.full(len(seed), self.drafter.temperature, np.float32),
        }
        return told, np.stack(behind, axis=1)

    def target_ids(self, own_ids: Array) -> Array:
        return self.d2t[own_ids]

    def target_logits(self, states: States) -> Array:
        return self.target.model.logits(states)

    def judged(self, states: States, told: dict[str, Any], **where: Any) -> Verified:
        n, rows = states.shape
        logits = self.target_logits(states.ravel())
        cuts = NATIVE.cut(logits=logits, **self.target.settings)
        return NATIVE.verify(
            target_logits=logits.reshape(n, rows, -1),
            cut=cuts.reshape(n, rows),
            temperature=np.full(n, self.target.temperature, np.float32),
            d2t=self.d2t,
            t2d=self.t2d,
            **told,
            **where,
        )

    def texts(self, tokens: int, requests: int, mode: str = "rejection", first: int = 0) -> Texts:
        """Of seeds first .. first + requests - 1, through the kernels in C++."""
        seeds = np.arange(first, first + requests, dtype=np.uint64)
        text = np.full((requests, tokens + self.drafts + 1), -1, np.int32)
        states, lengths = start(requests), np.zeros(requests, np.int64)
        tag = {"rejection": "draft", "coupled": "coupled"}[mode]
        accepted = judged = 0
        while len(live := np.flatnonzero(lengths < tokens)):  # each round adds a token
            seed, position = seeds[live], PROMPT + lengths[live]
            told, behind = self.proposed(states[live], seed, position, tag)
            result = self.judged(behind, told, seed=seed, position=position, mode=mode)
            for column in result.tokens.T:
                there = column >= 0
                text[live[there], lengths[live[there]]] = column[there]
                states[live[there]] = extended(states[live[there]], column[there])
                lengths[live[there]] += 1
            accepted += int(result.num_accepted.sum())
            judged += int(np.minimum(result.num_accepted + 1, self.drafts).sum())
        return Texts(text[:, :tokens], accepted / max(judged, 1))


def drawn_from(row: Row) -> Iterator[tuple[int, float]]:
    """(id, probability) of what sample() may draw of a row."""
    if row.greedy:
        if row.argmax >= 0:
            yield row.argmax, 1.0
        return
    yield from ((int(d), float(row.p[d])) for d in np.flatnonzero(row.p))


def bonus_law(row: Row) -> Array:
    if row.greedy:
        return np.eye(len(row.z))[row.argmax]
    return row.p


def target_law(side: Side, tokens: int) -> Array:
    """[V] * tokens: the joint law of plain decoding."""
    law = np.ones(1)
    for length in range(tokens):
        prefixes = np.ndindex((side.model.width,) * length)
        law = np.stack([law[i] * bonus_law(side.row(p)) for i, p in enumerate(prefixes)]).ravel()
    return law.reshape((side.model.width,) * tokens)


def own_texts(side: Side, tokens: int, requests: int, first: int = 0) -> NDArray[np.int32]:
    """What the target draws alone, coupled noise, seeds as in Tli.texts()."""
    seed = np.arange(first, first + requests, dtype=np.uint64)
    states, columns = start(requests), []
    for length in range(tokens):
        where = {"seed": seed, "position": np.full(requests, PROMPT + length)}
        drawn = NATIVE.sample(logits=side.model.logits(states), **where, **side.settings)
        columns.append(drawn.token)
        states = extended(states, drawn.token)
    return np.stack(columns, axis=1)


def counted(texts: Array, width: int) -> Array:
    counts = np.zeros((width,) * texts.shape[1])
    np.add.at(counts, tuple(texts.T), 1)
    return counts
