"""String-level rejection sampling, SLRS (arXiv 2502.05202), for tiny and byte-level drafters.

One token of the target at a time, outside the DSI loop. The drafter draws until the first target
token of its text can no longer change: the candidate t. It stands with min(1, p(t)/psi(t)), see
slrs_psi; else the token is drawn from p until v*p(t) > psi(t), which is a draw of max(p - psi, 0)
renormalised. The text behind the candidate is thrown away: it is no draw from the drafter's law.
Ask slrs_cost what a pair would cost before using it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsi_native.kernels.contract import Tag
from dsi_native.reference.philox import exponential, odd_grid, token_bits
from dsi_native.reference.slrs_psi import GOES_ON, Psi

__all__ = ["Drafted", "Drawn", "draw_by_strings", "draw_draft", "text_by_strings"]


class Drafted(NamedTuple):
    drafts: tuple[int, ...]
    """The drafter's ids."""
    text: bytes
    candidate: int
    """The target's id; -1 where the drafts ended without one."""


class Drawn(NamedTuple):
    token: int
    accepted: bool
    drafted: Drafted
    trials: int
    """Draws from p; 0 where the candidate stood. 1 per position on average."""


def draw_draft(psi: Psi, seed: int, position: int) -> Drafted:
    """Draft j by the noise of (seed, position, Tag.STRING_DRAFT and j, drafter's id)."""
    drafts: tuple[int, ...] = ()
    text = b""
    while True:  # ends: each draft adds a byte or stops, up to most_bytes
        d = _race(psi.law(drafts), seed, position, _numbered(Tag.STRING_DRAFT, len(drafts)))
        candidate = int(psi.stops.after(text)[d])
        drafts, text = (*drafts, d), text + psi.stops.tokens[d]
        if candidate != GOES_ON:
            return Drafted(drafts, text, candidate)


def draw_by_strings(p: NDArray[np.float64], psi: Psi, seed: int, position: int) -> Drawn:
    """One token of the law p [target ids] with the drafts of `psi`.

    Random numbers are functions of (seed, position, purpose, token id): of the same seed, never ask
    for a position twice in one text. Raises InvalidArgument where psi of the candidate, or of a
    token that p draws after a rejection, is beyond psi's budget.
    """
    drafted = draw_draft(psi, seed, position)
    t = drafted.candidate
    if t >= 0 and _coin(seed, position, Tag.STRING_ACCEPT) * psi(t) < p[t]:
        return Drawn(t, True, drafted, 0)
    left = {int(t): float(p[t]) for t in np.flatnonzero(p)}
    trial = 0
    while True:  # ends: in the end some token is taken, or none of p is left
        t = _race(p, seed, position, _numbered(Tag.STRING_RESIDUAL, trial))
        coin = _coin(seed, position, _numbered(Tag.STRING_COIN, trial))
        trial += 1
        if coin * p[t] > psi(t):
            return Drawn(t, False, drafted, trial)
        if psi(t) >= p[t]:
            left.pop(t, None)
        if not left:  # p = psi up to rounding: the residual is zero everywhere
            return Drawn(t, False, drafted, trial)


def text_by_strings(
    p: Callable[[tuple[int, ...]], NDArray[np.float64]],
    psi: Callable[[tuple[int, ...]], Psi],
    tokens: int,
    seed: int,
    position: int = 0,
) -> list[Drawn]:
    """The next `tokens` tokens; p and psi get the target's ids drawn so far, from none on.

    position: that of the first one in the text with its prompt. Each token is drafted afresh, by a
    psi whose law begins behind all of the target's tokens.
    """
    found: list[Drawn] = []
    for at in range(tokens):
        context = tuple(drawn.token for drawn in found)
        found.append(draw_by_strings(p(context), psi(context), seed, position + at))
    return found


def _race(law: NDArray[np.float64], seed: int, position: int, tag: int) -> int:
    e = exponential(token_bits(seed, position, tag, np.arange(len(law))))
    return int(np.argmax(law / e))


def _coin(seed: int, position: int, tag: int) -> float:
    return float(odd_grid(token_bits(seed, position, tag, 0)))


def _numbered(purpose: Tag, number: int) -> int:
    """Up to 2^24 draws of the same purpose at one position."""
    return int(purpose) | number << 8
