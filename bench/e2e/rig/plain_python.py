"""The virtual clock's simulation in plain Python: constant forwards that can be stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TARGET_NS = 1_000_000  # one target forward
_VOCAB = 50_000
_MASK = 2**64 - 1


@dataclass
class Run:
    """What came of one: time until the last token, forwards begun, drafts judged; the ids."""

    total_ns: int = 0
    forwards: int = 0
    accepted: int = 0
    rejected: int = 0
    tokens: Sequence[int] = ()


@dataclass
class Window:
    """Judges the drafts for tokens first .. first+drafts-1, and says the one behind them."""

    first: int
    drafts: int
    end: int
    rows: list[int] | None = None  # the target's ids, once the forward has ended


def ids(seed: int, acceptance: float, tokens: int) -> tuple[list[int], list[int]]:
    """The target's and the drafter's id of each new token, as the native models say them."""

    def mix(x: int) -> int:  # splitmix64
        x = (x + 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return x ^ (x >> 31)

    key = mix(seed)
    target = [mix(key ^ (2 * i)) % _VOCAB for i in range(1, tokens + 1)]
    right = [(mix(key ^ (2 * i + 1)) >> 11) * 2.0**-53 < acceptance for i in range(1, tokens + 1)]
    drafts = [t if ok else (t + 1) % _VOCAB for t, ok in zip(target, right, strict=True)]
    return target, drafts


def simulate(
    mode: str, lookahead: int, sp: int, drafter_ns: int, target: list[int], drafts: list[int]
) -> Run:
    """Decodes len(target) tokens. mode: "non-si", "si" or "dsi"."""
    tokens, run, now = len(target), Run(), 0
    run_ahead = -(-TARGET_NS // drafter_ns) + 2 * lookahead
    path: list[int] = []  # committed tokens, then drafts
    committed = 0
    windows: list[Window] = []
    draft_end: int | None = None
    while True:
        while sum(window.rows is None for window in windows) < sp:  # verifies for free servers
            covered = any(w.first <= committed <= w.first + w.drafts for w in windows)
            end = max([committed, *(w.first + w.drafts for w in windows)])
            may_draft = mode != "non-si" and len(path) <= tokens - 2
            idle = draft_end is None and not may_draft
            if mode == "non-si":
                wanted = not covered
            elif mode == "si":
                wanted = not covered and (len(path) - committed >= lookahead or idle)
            else:
                wanted = not covered or len(path) - end >= lookahead or (len(path) > end and idle)
            if not wanted:
                break
            first = end if covered else committed
            windows.append(Window(first, min(len(path) - first, run_ahead), now + TARGET_NS))
            run.forwards += 1
        if draft_end is None and mode != "non-si" and len(path) <= tokens - 2:
            most = run_ahead if mode == "dsi" else 0 if windows else lookahead
            if len(path) - committed < most:
                draft_end, draft_for = now + drafter_ns, len(path)
                run.forwards += 1
        ends = [window.end for window in windows if window.rows is None]
        now = min(ends) if draft_end is None else min([draft_end, *ends])
        if draft_end == now:
            draft_end = None
            if draft_for >= committed:  # otherwise a bonus has taken its place
                path.append(drafts[draft_for])
        for window in [w for w in windows if w.end == now and w.rows is None]:
            if window not in windows:
                continue  # an epoch ended at this instant
            window.rows = target[window.first : window.first + window.drafts + 1]
            while True:  # commit what is known of the next token
                known = [
                    w
                    for w in windows
                    if w.rows is not None and w.first <= committed <= w.first + w.drafts
                ]
                if not known:
                    break
                rows = known[0].rows
                assert rows is not None
                token = rows[committed - known[0].first]
                if len(path) == committed:  # the bonus
                    path.append(token)
                elif path[committed] == token:
                    run.accepted += 1
                else:  # a new epoch
                    run.rejected += 1
                    path[committed:] = [token]
                    windows, draft_end = [], None
                committed += 1
                if committed == tokens:
                    run.total_ns, run.tokens = now, path[:committed]
                    return run
            windows = [w for w in windows if w.first + w.drafts >= committed]


def least_lookahead(drafter_ns: int, sp: int) -> int:
    """Equation 1."""
    return -(-TARGET_NS // (sp * drafter_ns))
