"""psi(t): how likely string-level drafts begin with the target's token t (arXiv 2502.05202)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsi_native.errors import InvalidArgument
from dsi_native.reference.first_token import NO_TOKEN, FirstToken
from dsi_native.reference.slrs_cost import Budget, Cost

__all__ = ["GOES_ON", "Psi", "Stops"]

GOES_ON = -2
"""The draft is not over; NO_TOKEN (-1) where it is, without a candidate."""


class Stops:
    """Which drafts end a text, and with which candidate: all that the two vocabularies decide.

    A draft ends where the first target token of its text can no longer change, at most_bytes (with
    the first token of the text as it is), at an id of `ends` (the text's end), and at any other id
    that adds no byte (without a candidate). drafter_tokens: the bytes of each drafter id. Keeps
    what it has found, 4 bytes * drafter ids for each text; share one among all positions.
    """

    def __init__(
        self,
        first: FirstToken,
        drafter_tokens: Sequence[bytes],
        ends: frozenset[int] = frozenset(),
        most_bytes: int = 256,
    ) -> None:
        if most_bytes < 1:
            raise InvalidArgument(f"most_bytes: expected a number from 1, given {most_bytes}")
        self.first = first
        self.tokens = drafter_tokens
        self.ends = ends
        self.most_bytes = most_bytes
        self._found: dict[bytes, NDArray[np.int32]] = {}

    def after(self, text: bytes) -> NDArray[np.int32]:
        """[drafter ids]: the candidate if that id is drafted behind `text`, or GOES_ON."""
        if text not in self._found:
            known: dict[bytes, int] = {}
            candidates = np.empty(len(self.tokens), np.int32)
            for d, token in enumerate(self.tokens):
                if not token:
                    candidates[d] = self._ended(text) if d in self.ends else NO_TOKEN
                elif token not in known:
                    known[token] = self._grown(text + token)
                if token:
                    candidates[d] = known[token]
            self._found[text] = candidates
        return self._found[text]

    def may_begin(self, text: bytes, t: int) -> bool:
        """False only where no draft that begins with `text` ends with the candidate t."""
        token = self.first.tokens[t]
        if not (text.startswith(token) or token.startswith(text)):
            return False
        return len(text) < self.most_bytes and self.first.may_begin(text, t)

    def _grown(self, text: bytes) -> int:
        found = self.first.first_token_final(text)
        if found is None and len(text) < self.most_bytes:
            return GOES_ON
        return self._spelled(text, self.first.first_token(text) if found is None else found)

    def _ended(self, text: bytes) -> int:
        end = self.first.first_token(text)
        return self._spelled(text, end) if text else end

    def _spelled(self, text: bytes, t: int) -> int:
        # A candidate that the text does not begin with (a tokenizer that lower-cases) is none:
        # psi looks only at drafts that spell its token.
        return t if t >= 0 and text.startswith(self.first.tokens[t]) else NO_TOKEN


class Psi:
    """psi of one position: a sum over all drafts, each prefix of which is asked for once.

    psi(t) = sum of q(d1) q(d2 | d1) ... over all drafts that end with the candidate t. Where some
    end without a candidate these add up to less than 1. law(drafts): float64 [drafter ids], the
    drafter's law behind the ids drafted here; a forward of the drafter, called once per prefix.
    """

    def __init__(
        self,
        stops: Stops,
        law: Callable[[tuple[int, ...]], NDArray[np.float64]],
        budget: Budget | None = None,
    ) -> None:
        self.stops = stops
        self.budget = Budget() if budget is None else budget
        self._law = law
        self._laws: dict[tuple[int, ...], NDArray[np.float64]] = {}
        self._sums: dict[int, float] = {}

    @property
    def forwards(self) -> int:
        """Calls of `law` so far."""
        return len(self._laws)

    def law(self, drafts: tuple[int, ...]) -> NDArray[np.float64]:
        if drafts not in self._laws:
            self._laws[drafts] = np.asarray(self._law(drafts), float)
        return self._laws[drafts]

    def __call__(self, t: int) -> float:
        """Raises InvalidArgument where it would cost more than the budget, before any forward."""
        if t not in self._sums:
            branches, cost = self._branches(t)
            if cost.terms > self.budget.terms or cost.forwards > self.budget.forwards:
                raise InvalidArgument(
                    f"string-level rejection sampling: token {t} ({self.stops.first.tokens[t]!r}) "
                    f"takes at least {cost.terms:,} terms and {cost.forwards:,} forwards of the "
                    f"drafter, and the budget is {self.budget.terms:,} and "
                    f"{self.budget.forwards:,}; use the methods slem or tli for this pair"
                )
            self._sums[t] = self._sum(branches, (), b"")
        return self._sums[t]

    def cost(self, t: int) -> Cost:
        """What psi(t) costs without what others have asked before; at least, beyond the budget."""
        return self._branches(t)[1]

    def _branches(self, t: int) -> tuple[dict[bytes, _Branch], Cost]:
        """What follows each unfinished text that may begin with t. Counts texts, not drafts."""
        branches: dict[bytes, _Branch] = {}
        drafts = {b"": 1}
        terms = forwards = 0
        pending = [(0, b"")]
        while pending:  # ends: texts grow, up to most_bytes
            _, text = heapq.heappop(pending)
            branch = branches[text] = self._branch(text, t)
            forwards += drafts[text] if branch.others or len(branch.last) else 0
            terms += drafts[text] * len(branch.last)
            beyond = forwards > self.budget.forwards or terms > self.budget.terms
            if beyond and len(text) >= len(self.stops.first.tokens[t]):
                break
            for d in branch.others:
                grown = text + self.stops.tokens[d]
                if grown not in drafts:
                    heapq.heappush(pending, (len(grown), grown))
                    drafts[grown] = 0
                drafts[grown] += drafts[text]
        return branches, Cost(terms, forwards)

    def _branch(self, text: bytes, t: int) -> _Branch:
        after = self.stops.after(text)
        others = np.flatnonzero(after == GOES_ON).tolist()
        others = [d for d in others if self.stops.may_begin(text + self.stops.tokens[d], t)]
        return _Branch(np.flatnonzero(after == t), others)

    def _sum(self, branches: dict[bytes, _Branch], drafts: tuple[int, ...], text: bytes) -> float:
        branch = branches[text]
        if not len(branch.last) and not branch.others:
            return 0.0
        q = self.law(drafts)
        total = float(q[branch.last].sum())
        for d in branch.others:
            if q[d] > 0:
                grown = text + self.stops.tokens[d]
                total += float(q[d]) * self._sum(branches, (*drafts, d), grown)
        return total


class _Branch(NamedTuple):
    """Drafter ids behind one text, on the way to one token."""

    last: NDArray[np.int64]
    others: list[int]
