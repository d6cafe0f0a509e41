"""The table `dsi generate` ends with."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table


def statistics_table(finish_reason: str, statistics: dict[str, Any]) -> Table:
    """statistics: `Statistics.to_dict()`. What was not measured (None) is shown as a dash."""
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for label, text in rows(statistics):
        table.add_row(label, text)
    table.add_row("finish reason", finish_reason)
    return table


def rows(statistics: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) for each line of the table."""
    get = statistics.get
    forwards = get("target_forwards")
    wasted = get("wasted_forwards")
    return [
        ("mode", str(get("mode", "-"))),
        ("new tokens", _number(get("new_tokens"), "d")),
        ("time to first token", _number(_scaled(get("time_to_first_token_s"), 1e3), ".0f", " ms")),
        ("time per token", _number(_scaled(get("time_per_token_s"), 1e3), ".1f", " ms")),
        ("tokens per target forward", _number(get("tokens_per_target_forward"), ".2f")),
        ("acceptance", _number(_scaled(get("acceptance"), 100), ".1f", " %")),
        ("wasted target forwards", f"{_number(wasted, 'd')} of {_number(forwards, 'd')}"),
        ("target servers busy", _shares(get("target_busy"))),
        ("drafter busy", _shares(get("drafter_busy"))),
        ("a plain run would have cost", _number(get("plain_run_s"), ".2f", " s")),
    ]


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _number(value: float | None, spec: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{spec}}{unit}"


def _shares(values: Any) -> str:
    if values is None:
        return "-"
    shares = values if isinstance(values, (list, tuple)) else [values]
    return "  ".join(f"{100 * share:.0f} %" for share in shares) or "-"
