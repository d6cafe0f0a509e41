"""What string-level rejection sampling costs for a pair of vocabularies, from their bytes alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Budget", "Cost", "LengthCost", "SlrsCost", "slrs_cost"]


class Cost(NamedTuple):
    """Of psi of one token."""

    terms: int
    forwards: int


class Budget(NamedTuple):
    """The most that psi of one token may cost."""

    terms: int = 2**24
    forwards: int = 2**12


class LengthCost(NamedTuple):
    """Of the target's tokens of one length."""

    tokens: int
    """How many there are."""
    spelled: int
    """How many of them the drafter can spell; the others cost nothing and are never drafted."""
    median_terms: float
    max_terms: int
    median_forwards: float
    max_forwards: int


class SlrsCost(NamedTuple):
    """See slrs_cost()."""

    by_length: dict[int, LengthCost]
    """By the token's length in bytes, ascending."""
    within_budget: float
    """The part of the spelled tokens that cost no more; 1 where none is spelled."""


def slrs_cost(
    target_tokens: Sequence[bytes], drafter_tokens: Sequence[bytes], budget: Budget | None = None
) -> SlrsCost:
    """How many terms and forwards psi(t) takes at least, by the length of t.

    Tokens are the bytes of each id, b"" for those that add none. Terms: the ways to spell t with
    the drafter's tokens, of which ids with the same bytes are different ones. Forwards: the ways to
    spell its beginnings, the empty one included; a drafter answers differently on each. Drafts
    that go beyond t before its text is settled come on top of both: Psi.cost() counts those.
    A token of m bytes has up to 2^(m - 1) of either. O(bytes of the target's tokens * the longest
    drafter token): 3 s for Qwen's 151,643 from SmolLM2's 49,152 tokens, where half of the tokens of
    8 bytes take 72 terms, and half of those of 16 take 4,704.
    """
    budget = Budget() if budget is None else budget
    ids = dict(Counter(token for token in drafter_tokens if token))
    longest = max(map(len, ids), default=0)
    costs: dict[int, list[Cost]] = defaultdict(list)
    before, ways = b"", [1]  # ways[n]: to spell the first n bytes of `before`
    for token in sorted(token for token in target_tokens if token):
        shared = 0
        while shared < min(len(before), len(token)) and before[shared] == token[shared]:
            shared += 1
        before, ways = token, _ways(token, ways[: shared + 1], ids, longest)
        costs[len(token)].append(Cost(ways[-1], sum(ways[:-1])))
    spelled = [cost for of in costs.values() for cost in of if cost.terms]
    fits = sum(c.terms <= budget.terms and c.forwards <= budget.forwards for c in spelled)
    return SlrsCost(
        {length: _of_length(costs[length]) for length in sorted(costs)},
        fits / len(spelled) if spelled else 1.0,
    )


def _ways(token: bytes, begun: list[int], ids: dict[bytes, int], longest: int) -> list[int]:
    ways = begun
    for end in range(len(begun), len(token) + 1):
        starts = range(max(0, end - longest), end)
        ways.append(
            sum(ways[start] * ids.get(token[start:end], 0) for start in starts if ways[start])
        )
    return ways


def _of_length(costs: list[Cost]) -> LengthCost:
    spelled = [cost for cost in costs if cost.terms] or [Cost(0, 0)]
    terms, forwards = zip(*spelled, strict=True)
    return LengthCost(
        len(costs),
        sum(cost.terms > 0 for cost in costs),
        float(np.median(np.array(terms, float))),
        max(terms),
        float(np.median(np.array(forwards, float))),
        max(forwards),
    )
