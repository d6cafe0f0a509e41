"""Ten schedules of the virtual clock as pictures; what the signs mean: see draw_schedule."""

from __future__ import annotations

from typing import Any

import pytest

from dsi_native import _core
from dsi_native.schedule import draw_schedule

MS = 1e-3
NON_SI, SI, DSI = _core.Mode.NON_SI, _core.Mode.SI, _core.Mode.DSI


def schedule(
    mode: _core.Mode,
    right: str,
    *,
    t: float = 8,
    d: float = 2,
    lookahead: int = 1,
    sp: int = 1,
    stoppable: bool = True,
    **more: Any,
) -> str:
    """right: "+" where the draft is right, "." where it is wrong; times in ms, a column each."""
    policy = _core.Policy()
    policy.mode, policy.lookahead = mode, lookahead
    policy.run_ahead = more.get("run_ahead", 64)
    policy.prefill = more.get("ttft", 0) > 0
    result = _core.simulate(
        policy,
        sp,
        len(right) + 1,
        _core.Latency(t * MS, ttft_s=more.get("ttft", 0) * MS, stoppable=stoppable),
        _core.Latency(d * MS, stoppable=stoppable),
        right=[sign == "+" for sign in right],
        record=True,
    )
    return draw_schedule(result, MS)


GOLDEN: dict[str, tuple[dict[str, Any], str]] = {
    "non-SI: one forward per token": (
        {"mode": NON_SI, "right": "+++"},
        """
ms       0         10        20        30
target 0 [1-----][2-----][3-----][4-----]
""",
    ),
    "SI: drafts, then one forward; the last token is the target's own": (
        {"mode": SI, "right": "++.+++", "lookahead": 3},
        """
ms       0         10        20
drafter  [][][]        [][][]
target 0       [1+3---]      [4+3---]
""",
    ),
    "DSI, all drafts right: every forward but the last is hidden": (
        {"mode": DSI, "right": "++++++", "sp": 5},
        """
ms       0         10        20
drafter  [][][][][][]
target 0 [1-----][4+1---]
target 1   [1+1---][5+1---]
target 2     [2+1---][6+1---]
target 3       [3+1---]
""",
    ),
    "DSI, all drafts wrong: as fast as non-SI": (
        {"mode": DSI, "right": "...", "sp": 5},
        """
ms       0         10        20        30
drafter  [][][]  [][]    []
target 0 [1-----][2-----][3-----][4-----]
target 1   [1+1-x  [2+1-x  [3+1-x
target 2     [2-x    [3-x
target 3       [x
""",
    ),
    "DSI: a rejection stops what stood on it": (
        {"mode": DSI, "right": "++.+++", "sp": 4},
        """
ms       0         10        20
drafter  [][][][][][][][][]
target 0 [1-----][4-x[4-----]
target 1   [1+1---][x  [4+1---]
target 2     [2+1---]    [5+1---]
target 3       [3+1-x      [6+1---]
""",
    ),
    "DSI: where nothing can be stopped, stale forwards run to their end in vain": (
        {"mode": DSI, "right": "++.+++", "sp": 4, "stoppable": False},
        """
ms       0         10        20
drafter  [][][][][][][][][]
target 0 [1-----][4+1~~~][5+1---]
target 1   [1+1---][5+1~~~][6+1---]
target 2     [2+1---][4-----]
target 3       [3+1~~~][4+1---]
""",
    ),
    "DSI, lookahead 2: half as many servers, windows of two drafts": (
        {"mode": DSI, "right": "+++.++++", "sp": 3, "lookahead": 2},
        """
ms       0         10        20        30
drafter  [][][][][][][][][][][][]
target 0 [1-----][3+2---][5-----][7+2---]
target 1     [1+2---][5-x    [5+2---]
""",
    ),
    "DSI, one server: drafts gather while it is busy": (
        {"mode": DSI, "right": "++++.+++", "sp": 1},
        """
ms       0         10        20        30
drafter  [][][][][][][][][][][]
target 0 [1-----][2+3---][6-----][7+2---]
""",
    ),
    "DSI, a drafter slower than the target: its late drafts are met or thrown away": (
        {"mode": DSI, "right": "+++.+", "sp": 2, "d": 10, "t": 8},
        """
ms       0         10        20        30        40
drafter  [1-------][2-------][3-------][4-------]
target 0 [1-----][2-----][3-----][4-----][5-----][6-----]
""",
    ),
    "DSI, slow prompt: every server prefills at the start": (
        {"mode": DSI, "right": "+++.", "sp": 3, "d": 4, "t": 8, "ttft": 16},
        """
ms       0         10        20
drafter  [1-][2-][3-][4-]
target 0 [1-------------][4-x[5-----]
target 1 [======][1+2---]
target 2 [======]    [3+1---]
""",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_schedule(name: str) -> None:
    arguments, picture = GOLDEN[name]
    assert schedule(**arguments) == picture.lstrip("\n")
