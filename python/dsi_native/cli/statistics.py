"""The table `dsi generate` ends with."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

POSITIONS_SHOWN = 6


def statistics_table(answer: dict[str, Any]) -> Table:
    """answer: what --json prints. What was not measured (None) is shown as a dash."""
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    for label, text in rows(answer):
        table.add_row(label, text)
    return table


def rows(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) for each line of the table."""
    got = answer["statistics"]
    loop = f"{got['mode']}, SP {got['sp']}, lookahead {got['lookahead']}"
    loop += f", {got['method']}" * (got["method"] is not None)
    lines = [
        ("decode loop", "non-si" if got["mode"] == "non-si" else loop),
        ("new tokens", f"{got['new_tokens']} ({answer['finish_reason']})"),
        ("seed", str(answer["seed"])),
        ("time to first token", _scaled(got["time_to_first_token_s"], 1e3, ".0f", " ms")),
        ("time per token", _scaled(got["time_per_token_s"], 1e3, ".1f", " ms")),
        ("tokens per target forward", _scaled(got["tokens_per_target_forward"], 1, ".2f")),
        ("acceptance", _acceptance(got["acceptance"], got["acceptance_at"])),
        ("wasted target forwards", _wasted(got)),
        ("target servers busy", _scaled(got["target_busy"], 100, ".0f", " %")),
        ("drafter busy", _scaled(got["drafter_busy"], 100, ".0f", " %")),
        ("whole run", _scaled(got["total_s"], 1, ".2f", " s")),
        ("a plain run would have cost", _plain(got)),
    ]
    if got["undrafted"]:
        lines.append(("drafting", _paused(got)))
    if got["drafter_error"]:
        lines.append(("drafting ended early", got["drafter_error"]))
    return lines


def _scaled(value: float | None, factor: float, spec: str, unit: str = "") -> str:
    return "-" if value is None else f"{value * factor:{spec}}{unit}"


def _acceptance(overall: float | None, at: list[float | None]) -> str:
    if overall is None:
        return "-"
    by_position = " ".join(_scaled(share, 100, ".0f") for share in at[:POSITIONS_SHOWN])
    return f"{100 * overall:.1f} %  (by position: {by_position})"


def _wasted(got: dict[str, Any]) -> str:
    text = f"{got['wasted_forwards']} of {got['target_forwards']}"
    return text + f", {got['stopped_forwards']} others stopped early" * (
        got["stopped_forwards"] > 0
    )


def _paused(got: dict[str, Any]) -> str:
    if got["draft_pauses"] == 0:
        return f"paid; {got['undrafted']} tokens went without, to measure that"
    return f"did not pay and paused {got['draft_pauses']}x, for {got['undrafted']} tokens"


def _plain(got: dict[str, Any]) -> str:
    plain_s, total_s = got["plain_run_s"], got["total_s"]
    if plain_s is None:
        return "-"
    if got["forwards_compete"]:
        return f"less than {plain_s:.2f} s: here forwards competed for cores (--mode non-si tells)"
    return f"{plain_s:.2f} s, {plain_s / total_s:.2f}x" if total_s > 0 else f"{plain_s:.2f} s"
