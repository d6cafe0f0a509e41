"""The figures of a report, as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from suite.report import table


def show(out: Console, content: dict[str, Any]) -> None:
    """Those of the sections that have any."""
    texts = table("Texts", "", "compared", "differ", "excused", "acceptance")
    for name, entry in content["sections"].items():
        of = entry["figures"]
        if "texts_compared" in of:
            counts = (of[key] for key in ("texts_compared", "differences", "excused"))
            texts.add_row(name, *map(str, counts), f"{of['acceptance']:.2f}")
    if texts.row_count:
        out.print(texts)


__all__ = ["show"]
