"""A schedule of the virtual clock as text: one line per server, time from left to right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FILL = {"used": "-", "wasted": "~", "stopped": "-"}
_END = {"used": "]", "wasted": "]", "stopped": "x"}


def draw_schedule(result: Mapping[str, Any], column_s: float) -> str:
    """The spans of `_core.simulate(record=True)`, each column `column_s` seconds wide.

    `[7+2---]` is a verify whose first judged position is 7, with 2 drafts in its window; `[7---]`
    has the empty window; `[7~~~]` ran to its end in vain; an `x` in place of `]` was stopped
    there. On the drafter's line a span makes the draft for its position. `=` is a prefill. Of a
    label that does not fit the window is left out, then all of it; work that still runs when the
    last token is there is not shown.
    """
    spans = result["spans"]
    drawn = {server: _Line() for server in sorted({span[0] for span in spans})}
    for server, kind, start, end, first, window, fate in sorted(spans, key=lambda span: span[2]):
        if fate == "unfinished":
            continue
        labels = [] if kind == "p" else [f"{first}+{window}"] * (window > 0) + [str(first)]
        fill = "=" if kind == "p" else _FILL[fate]
        drawn[server].add(round(start / column_s), round(end / column_s), labels, fill, _END[fate])
    names = {server: "drafter" if server < 0 else f"target {server}" for server in drawn}
    width = round(result["total_s"] / column_s)
    lines = [("ms", _axis(width, column_s * 1e3))]
    lines += [(names[server], line.text) for server, line in drawn.items()]
    return "\n".join(f"{name:<8} {text}".rstrip() for name, text in lines) + "\n"


class _Line:
    def __init__(self) -> None:
        self.text = ""

    def add(self, start: int, end: int, labels: list[str], fill: str, close: str) -> None:
        width = end - start
        if width < 1:
            return
        label = next((label for label in labels if len(label) + 2 <= width), "")
        body = "[" + label if width > 1 else ""
        self.text = self.text.ljust(start) + body.ljust(width - 1, fill) + close


def _axis(width: int, column_ms: float) -> str:
    text = ""
    for column in range(0, width + 1, 10):
        text = text.ljust(column) + f"{column * column_ms:g}"
    return text


__all__ = ["draw_schedule"]
