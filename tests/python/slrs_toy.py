"""Small pairs for string-level rejection sampling, and all of their drafts without any sharing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dsi_native.reference.first_token import NO_TOKEN, FirstToken, LongestMatch
from dsi_native.reference.laws import acceptance, one_hot, residual
from dsi_native.reference.slrs import Drawn, draw_by_strings, draw_draft
from dsi_native.reference.slrs_cost import Budget
from dsi_native.reference.slrs_psi import Psi, Stops
from hetero_models import Array, HashedModel, extended, state_of
from kernel_implementations import softmax

Ids = tuple[int, ...]


def split(text: str) -> tuple[bytes, ...]:
    """Tokens from words; "-" is one without bytes."""
    return tuple(b"" if word == "-" else word.encode() for word in text.split())


class Path(NamedTuple):
    """One whole draft."""

    weight: float
    drafts: Ids
    text: bytes
    candidate: int


@dataclass(frozen=True, eq=False)
class StringPair:
    """A target over `first.tokens` and a drafter over `tokens`, both hashed by all before.

    A context is a tuple of target ids. by_text: the drafter sees only the bytes, not how they came
    about.
    """

    first: FirstToken
    tokens: tuple[bytes, ...]
    ends: frozenset[int] = frozenset()
    by_text: bool = False
    salt: int = 3
    budget: Budget | None = None
    stops: Stops = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stops", Stops(self.first, self.tokens, self.ends))

    def p(self, context: Ids = ()) -> Array:
        return softmax(
            HashedModel(tuple(self.first.tokens), self.salt).logits(state_of(context))[0]
        )

    def q(self, context: Ids, drafts: Ids) -> Array:
        if self.by_text:
            spelled = b"".join(self.first.tokens[t] for t in context)
            state = state_of(spelled + b"".join(self.tokens[d] for d in drafts))
        else:
            state = extended(state_of(context), [1000])
            for d in drafts:
                state = extended(state, [d])
        return softmax(HashedModel(self.tokens, self.salt + 1).logits(state)[0])

    def psi(self, context: Ids = (), kind: type[Psi] = Psi) -> Psi:
        return kind(self.stops, lambda drafts: self.q(context, drafts), self.budget)

    def paths(self, context: Ids = (), drafts: Ids = (), begun: bytes = b"") -> Iterator[Path]:
        """All drafts that go on behind `drafts`; the text is `begun` and what they add."""
        for d, weight in enumerate(self.q(context, drafts)):
            text, more = begun + self.tokens[d], (*drafts, d)
            if self.tokens[d]:
                found = self.first.first_token_final(text)
            elif d in self.ends:
                found = self.first.first_token(text)
            else:
                found = NO_TOKEN
            if found is not None:
                yield Path(weight, more, text, found)
                continue
            for path in self.paths(context, more, text):
                yield path._replace(weight=weight * path.weight)

    def candidates_law(self, context: Ids = ()) -> Array:
        """psi [target ids], a sum over all drafts; what is missing from 1 has no candidate."""
        psi = np.zeros(len(self.first.tokens))
        for path in self.paths(context):
            if path.candidate != NO_TOKEN:
                psi[path.candidate] += path.weight
        return psi

    def law(self, context: Ids = ()) -> Array:
        """Of the token, over all drafts, coins and clocks."""
        p, psi = self.p(context), self.candidates_law(context)
        law = np.zeros(len(p))
        for path in self.paths(context):
            law += path.weight * self.judged(path.candidate, p, psi)
        return law

    @staticmethod
    def judged(t: int, p: Array, psi: Array) -> Array:
        """The token's law where t was drafted, if psi were this."""
        stands = min(1.0, p[t] / psi[t]) if t != NO_TOKEN and psi[t] > 0 else 0.0
        rest = 0.0 if stands == 1 else (1 - stands) * residual(p, psi)
        return (stands * one_hot(t, len(p)) if stands else 0.0) + rest

    def acceptance(self, context: Ids = ()) -> float:
        return acceptance(self.p(context), self.candidates_law(context))

    def exact_match_acceptance(self, context: Ids = ()) -> float:
        """SLEM's: the target draws by itself, the draft stands where it is that token."""
        drawn = self.p(context)
        return sum(x.weight * drawn[x.candidate] for x in self.paths(context) if x.candidate >= 0)


class PathAlone(Psi):
    """Mistake: psi of the candidate is the probability of the drafts that were drawn."""

    where = (0, 0)

    def __call__(self, t: int) -> float:
        drafted = draw_draft(self, *self.where)
        return path_weight(self, drafted.drafts) if t == drafted.candidate else 0.0


class CanonicalAlone(Psi):
    """Mistake: psi is the probability that the drafter spells the token as its tokenizer would."""

    def __call__(self, t: int) -> float:
        return path_weight(self, canonical(self.stops.first.tokens[t], self.stops.tokens))


def path_weight(psi: Psi, drafts: Sequence[int]) -> float:
    return float(np.prod([psi.law(tuple(drafts[:k]))[d] for k, d in enumerate(drafts)]))


def canonical(text: bytes, tokens: tuple[bytes, ...]) -> list[int]:
    return LongestMatch(tokens).encode(text)


def drawn(toy: StringPair, n: int, kind: type[Psi] = Psi) -> list[Drawn]:
    psi, p = toy.psi(kind=kind), toy.p()
    found = []
    for seed in range(n):
        psi.where = (seed, 9)
        found.append(draw_by_strings(p, psi, seed, 9))
    return found


def mistaken_law(toy: StringPair, kind: type[Psi]) -> Array:
    """Of the token over all drafts. PathAlone takes psi of all other tokens for zero."""
    p, law = toy.p(), np.zeros(len(toy.first.tokens))
    for path in toy.paths():
        if kind is PathAlone:
            psi = path.weight * np.eye(len(p))[path.candidate]
        else:
            psi = np.array([toy.psi(kind=kind)(t) for t in range(len(p))])
        law += path.weight * toy.judged(path.candidate, p, psi)
    return law


def two_tokens(toy: StringPair, reuse: bool) -> Array:
    """Joint law; with `reuse` the text left behind an accepted token begins the next draft."""
    p1, psi1 = toy.p(), toy.candidates_law()
    joint = np.zeros((len(p1), len(p1)))
    second = [(toy.p((t,)), toy.candidates_law((t,))) for t in range(len(p1))]
    for path in toy.paths():
        t = path.candidate
        stands = min(1.0, p1[t] / psi1[t])
        fell = toy.judged(t, p1, psi1)
        fell[t] -= stands
        for x, mass in enumerate(fell):
            joint[x] += path.weight * mass * toy.law((x,))
        left = path.text[len(toy.first.tokens[t]) :] if reuse else b""
        found = toy.first.first_token_final(left)
        if not left:
            joint[t] += path.weight * stands * toy.law((t,))
        elif found is not None:
            joint[t] += path.weight * stands * toy.judged(found, *second[t])
        else:
            for more in toy.paths((), path.drafts, left):
                mass = path.weight * stands * more.weight
                joint[t] += mass * toy.judged(more.candidate, *second[t])
    return joint


STRING_MUTATIONS: dict[str, type[Psi]] = {
    "the drawn path alone": PathAlone,
    "the canonical spelling alone": CanonicalAlone,
}


TOYS = {
    "subwords": StringPair(LongestMatch(split("a b ab aab ba")), split("a b ab bb")),
    "bytes": StringPair(LongestMatch(split("a b c ab abc bc")), split("a b c"), by_text=True),
    "tokens longer than the target's": StringPair(
        LongestMatch(split("a b ab")), split("a b abab bba")
    ),
    "duplicates": StringPair(LongestMatch(split("a b a ab b")), split("b a b ab")),
    "text ends": StringPair(
        LongestMatch(split("a - b ab"), end=1), split("a - b -"), frozenset([1])
    ),
    "no token begins with c": StringPair(LongestMatch(split("a b ab")), split("a b c")),
}
