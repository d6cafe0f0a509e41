"""Known mistakes of token-level drafting between two vocabularies, each with its law and draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dsi_native.kernels import Sampled
from dsi_native.reference.rows import Row
from dsi_native.reference.rules import Draft, propose, propose_from_union
from hetero_law import NATIVE, Side, Tli, drawn_from
from hetero_models import Array, HashedModel, States

DRAFTER_TEMPERATURE = 0.6
"""What WrongTemperature draws at, and calls 1."""


def toy(kind: type[Tli] = Tli) -> Tli:
    """Six tokens against nine, five in common, two of these twice in the drafter."""
    target = HashedModel(tuple(bytes([x]) for x in b"abcdef"), 1)
    drafter = HashedModel(tuple(bytes([x]) for x in b"dxacybead"), 2)
    return kind(Side(target), Side(drafter))


class Union(Tli):
    """No mistake, and the baseline: draft from q, reject what the target does not have."""

    def proposals(self, prefix: tuple[int, ...]) -> Iterator[tuple[float, Draft]]:
        row = self.drafter.row(prefix)
        for d, weight in drawn_from(row):
            yield weight, propose_from_union(d, row, self._width, self.d2t, self.t2d)

    def sampled(self, logits: Array, where: dict[str, Array], tag: str) -> Sampled:
        return NATIVE.sample(logits=logits, **where, tag=tag, **self.drafter.settings)

    @property
    def _width(self) -> int:
        return self.target.model.width


class PermutedQ(Tli):
    """The drafter's rows are in another order than the ids by which the target reads them."""

    def proposals(self, prefix: tuple[int, ...]) -> Iterator[tuple[float, Draft]]:
        row = self.drafter.row(prefix, self.d2t)
        told = Row(self._rolled(row.z), self._rolled(row.kept), row.greedy, row.status)
        for d, weight in drawn_from(row):
            width = self.target.model.width
            yield weight, propose(d, told, None, width, self.d2t, self.t2d)

    def proposed(self, states: States, *where: Any) -> tuple[dict[str, Any], Array]:
        told, behind = super().proposed(states, *where)
        return told | {"draft_logits": self._rolled(told["draft_logits"])}, behind

    def _rolled(self, values: Array) -> Array:
        common = np.flatnonzero(self.d2t >= 0)
        rolled = values.copy()
        rolled[..., common] = values[..., np.roll(common, 1)]
        return rolled


class MaskedTarget(Tli):
    """The target's law, too, is restricted to the common tokens."""

    def target_row(self, prefix: tuple[int, ...]) -> Row:
        row = self.target.row(prefix)
        return replace(row, kept=row.kept & (self.t2d >= 0))

    def target_logits(self, states: States) -> Array:
        logits = self.target.model.logits(states)
        logits[:, self.t2d < 0] = -np.inf
        return logits


class GreedyWithSoftQ(Tli):
    """The draft is the argmax, and q is said to be the softmax."""

    def proposals(self, prefix: tuple[int, ...]) -> Iterator[tuple[float, Draft]]:
        row = self.drafter.row(prefix, self.d2t)
        yield 1.0, propose(row.argmax, row, None, self.target.model.width, self.d2t, self.t2d)

    def sampled(self, logits: Array, where: dict[str, Array], tag: str) -> Sampled:
        return NATIVE.sample(logits=logits, **where, tag=tag, temperature=0.0, d2t=self.d2t)


class WrongTemperature(Tli):
    """Drafts are drawn at DRAFTER_TEMPERATURE, and q is said to be that of temperature 1."""

    def proposals(self, prefix: tuple[int, ...]) -> Iterator[tuple[float, Draft]]:
        told = self.drafter.row(prefix, self.d2t)
        row = Side(self.drafter.model, {"temperature": DRAFTER_TEMPERATURE}).row(prefix, self.d2t)
        for d, weight in drawn_from(row):
            width = self.target.model.width
            yield weight, propose(d, told, None, width, self.d2t, self.t2d)

    def sampled(self, logits: Array, where: dict[str, Array], tag: str) -> Sampled:
        right = super().sampled(logits, where, tag)
        temperature = DRAFTER_TEMPERATURE
        wrong = NATIVE.sample(
            logits=logits, **where, tag=tag, temperature=temperature, d2t=self.d2t
        )
        return right._replace(token=wrong.token)


class OutsideFromP(Union):
    """After a draft that the target does not have, the token is drawn from p, not the residual.

    So would the kernels, if such drafts came from a sampler without the map.
    """

    def judged_law(self, row: Row, draft: Draft) -> tuple[float, Array]:
        return (0.0, row.p) if draft.id < 0 else super().judged_law(row, draft)


@dataclass(frozen=True, eq=False)
class LastDuplicate(Tli):
    """All ids of the same bytes are drafted, and q is that of the last one.

    The maps cannot say so, they refuse two ids of one token: only the last one is in them.
    """

    def __post_init__(self) -> None:
        target, drafter = self.target.model, self.drafter.model
        d2t, t2d = np.full(drafter.width, -1, np.int32), np.full(target.width, -1, np.int32)
        for d in self._drafted():
            t = target.tokens.index(drafter.tokens[d])
            d2t[t2d[t]] = -1 if t2d[t] >= 0 else d2t[t2d[t]]
            d2t[d], t2d[t] = t, d
        object.__setattr__(self, "maps", (d2t, t2d))

    def proposals(self, prefix: tuple[int, ...]) -> Iterator[tuple[float, Draft]]:
        row = self.drafter.row(prefix, self._allowed())
        for d, weight in drawn_from(row):
            width, last = self.target.model.width, int(self._last()[d])
            yield weight, propose(last, row, None, width, self.d2t, self.t2d)

    def sampled(self, logits: Array, where: dict[str, Array], tag: str) -> Sampled:
        common = np.where(self._allowed() >= 0, logits, -np.inf).astype(np.float32)
        drawn = NATIVE.sample(logits=common, **where, tag=tag)
        return drawn._replace(token=self._last()[drawn.token])

    def _drafted(self) -> list[int]:
        common = set(self.target.model.tokens)
        return [d for d, token in enumerate(self.drafter.model.tokens) if token in common]

    def _allowed(self) -> Array:
        allowed = np.full(self.drafter.model.width, -1, np.int32)
        allowed[self._drafted()] = 0
        return allowed

    def _last(self) -> Array:
        tokens = self.drafter.model.tokens
        ids = [len(tokens) - 1 - tokens[::-1].index(token) for token in tokens]
        return np.array(ids, np.int32)


MUTATIONS: dict[str, type[Tli]] = {
    "q permuted": PermutedQ,
    "target masked": MaskedTarget,
    "greedy draft with soft q": GreedyWithSoftQ,
    "wrong temperature reported": WrongTemperature,
    "out-of-vocabulary drawn from p": OutsideFromP,
    "last duplicate wins": LastDuplicate,
}
