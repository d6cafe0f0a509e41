"""Which lookahead to take, what to expect: Equation 1 and Proposition 1 of arXiv 2405.14105."""

from __future__ import annotations

from dataclasses import dataclass

from dsi_native import _core

MODE_NAMES = {_core.Mode.NON_SI: "non-si", _core.Mode.SI: "si", _core.Mode.DSI: "dsi"}


@dataclass(frozen=True)
class PlanRow:
    """What one mode is expected to cost.

    lookahead: drafts per verification, 0 for non-SI. sp: target servers in use.
    speedup: over non-SI.
    """

    mode: str
    lookahead: int
    sp: int
    ms_per_token: float
    speedup: float


def plan(target_ms: float, drafter_ms: float, acceptance: float, sp: int = 1) -> list[PlanRow]:
    """Expected ms per token of non-SI, SI at its best lookahead, and DSI at the least lookahead.

    target_ms, drafter_ms: one forward (TPOT), constant, on hardware of its own. acceptance: the
    probability that a draft is accepted. sp: target servers that may run at once.
    Raises InvalidArgument naming the argument.
    """
    return [
        PlanRow(MODE_NAMES[row.mode], row.lookahead, row.sp, row.ms_per_token, row.speedup)
        for row in _core.plan(target_ms, drafter_ms, acceptance, sp)
    ]
