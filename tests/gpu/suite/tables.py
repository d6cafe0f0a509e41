"""The figures of a report, as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from suite.report import table


def show(out: Console, content: dict[str, Any]) -> None:
    """Those of the sections that have any."""
    texts = table("Texts", "", "compared", "differ", "excused", "acceptance")
    for name, entry in content["sections"].items():
        of = entry["figures"]
        if "texts_compared" in of:
            counts = (of[key] for key in ("texts_compared", "differences", "excused"))
            texts.add_row(name, *map(str, counts), f"{of['acceptance']:.2f}")
        for made in (_times(of), _costs(of), _rows(name, of)):
            if made is not None:
                out.print(made)
    if texts.row_count:
        out.print(texts)


def _times(of: dict[str, Any]) -> Table | None:
    """Every figure that is a list of samples in ms."""
    samples = {n: v for n, v in of.items() if isinstance(v, dict) and "p99" in v}
    if not samples:
        return None
    made = table("What is no longer wanted ends", "ms", "p50", "p99", "samples")
    for name, value in samples.items():
        words = name.removesuffix("_ms").replace("_", " ")
        made.add_row(words, f"{value['p50']:.3f}", f"{value['p99']:.3f}", str(value["samples"]))
    return made


def _costs(of: dict[str, Any]) -> Table | None:
    rows = of.get("us_per_token")
    if not rows:
        return None
    columns = ("wall", "scheduler", "processor", "device", "host")
    made = table("A token's cost", "us", *columns)
    for name, row in rows.items():
        made.add_row(name, *(f"{row[c]:.0f}" if c in row else "" for c in columns))
    return made


def _rows(section: str, of: dict[str, Any]) -> Table | None:
    if "rows" not in of:
        return None
    title = (
        f"Tokens per second, {section}: {of['target']} ({of['target_ms']:.2f} ms) with "
        f"{of['drafter']} ({of['drafter_ms']:.2f} ms), {of['dtype']}, "
        f"acceptance {of['acceptance_set']}, {of['rounds']} rounds"
    )
    made = table(title, "", "tok/s", "range", "of plain", "of static", "predicted", "error")
    for row in of["rows"]:
        rate, error = row["tokens_per_s"], row["prediction_error"]
        known = error is not None
        compiled = row["mode"] == "static" and of["static_cache_compiled"]
        made.add_row(
            row["name"] + ", compiled" * compiled,
            f"{rate['median']:.1f}",
            f"{rate['lowest']:.0f}-{rate['highest']:.0f}",
            f"{row['of_plain']:.2f}x",
            f"{row['of_static']:.2f}x",
            f"{row['predicted_tokens_per_s']:.1f}" if known else "",
            f"{error:+.0%}" if known else "",
        )
    return made


__all__ = ["show"]
