"""Table 2 as text: a few narrow sheets, the same in a terminal, in Markdown and in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsi_native.experiments.table import Row, Table

_NONE = "-"
_WAITS = "*"
_WIDEST_MS = 1e5  # longer times are shown in seconds

WHY_THE_PAPER_DIFFERS = (
    "The paper's figure compares both at a lookahead of 1, 5 or 10, which is rarely SI's best; its "
    "simulator ends a process at each rejection (15 to 34 ms each), subtracts 100 ms, and gains no "
    "correction token. Here both are one loop on one clock, and SI has its own best lookahead."
)


@dataclass(frozen=True)
class Sheet:
    """One table. heads: of the columns behind the name, a word or two each; notes: sentences."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def of_table(table: Table) -> list[Sheet]:
    """Times; speedups; compute; the same devices tensor-parallel; online, what threads add."""
    made = [_times(table), _speedups(table), _compute(table), _tensor_parallel(table)]
    return [*made, _wall(table)] if table.online else made


def _times(table: Table) -> Sheet:
    lookaheads = _paper_lookaheads(table)
    of = table.rows[0].configuration
    run = table.rows[0].non_si
    slow = any(run.total_ms >= _WIDEST_MS for row in table.rows for run in row.runs.values())

    def time(ms: float) -> str:
        return f"{ms * 1e-3:.1f}" if slow else f"{ms:.0f}"

    def cells(row: Row) -> list[str]:
        return [
            time(row.non_si.total_ms),
            *(time(row.si(k).total_ms) for k in lookaheads),
            time(row.si().total_ms),
            *(time(row.dsi(k).total_ms) + _WAITS * row.drafts_wait(k) for k in lookaheads),
            time(row.dsi().total_ms),
            _NONE if row.bound_ms is None else time(row.bound_ms),
        ]

    clock = "real threads" if table.online else "virtual clock"
    repeats = "1 run" if run.repeats == 1 else f"mean of {run.repeats} runs"
    notes = [
        "SI, DSI: at a lookahead of 1, 5, 10; SI at its best; DSI at the least that Equation 1 "
        "allows. bound: Proposition 1, for DSI at 1 with servers enough, forwards stoppable."
    ]
    if any(row.drafts_wait(k) for row in table.rows for k in lookaheads):
        notes.append(
            f"{_WAITS} Equation 1 asks for more than {of.sp} target servers: drafts wait for a "
            "free one, which judges all of them at once."
        )
    if any(row.ttft_ratio_assumed for row in table.rows):
        notes.append("Phi3-14B on Alpaca: first forwards assumed, the paper has none.")
    if any(not row.configuration.target.stoppable for row in table.rows):
        notes.append("Forwards whose result is not needed run to their end.")
    heads = [*(f"SI {k}" for k in (*lookaheads, "best")),
             *(f"DSI {k}" for k in (*lookaheads, "least"))]  # fmt: skip
    unit = "Seconds" if slow else "Milliseconds"
    title = f"{unit} for {of.tokens} tokens; SP = {of.sp}, {clock}, {repeats}, seed {of.seed}"
    return _sheet(table, title, ["non- SI", *heads, "bound"], cells, notes)


def _speedups(table: Table) -> Sheet:
    lookaheads = _paper_lookaheads(table)

    def cells(row: Row) -> list[str]:
        si, dsi, plain = row.si().total_ms, row.dsi().total_ms, row.non_si.total_ms
        same = [row.si(k).total_ms / row.dsi(k).total_ms for k in lookaheads]
        paper = row.paper_speedup_vs_si
        return [
            *(f"{x:.2f}x" for x in (plain / si, plain / dsi, si / dsi)),
            _NONE if paper is None else f"{paper:.2f}x",
            *(f"{x:.2f}x" for x in same),
        ]

    heads = ["SI/ non-SI", "DSI/ non-SI", "DSI/ SI", "paper DSI/SI"]
    heads += [f"both at {k}" for k in lookaheads]
    notes = [
        "DSI/SI: DSI at its least lookahead over SI at its best; both at: at the same lookahead."
    ]
    if any(row.paper_speedup_vs_si is not None for row in table.rows):
        notes.append(WHY_THE_PAPER_DIFFERS)
    return _sheet(table, "Speedups", heads, cells, notes)


def _compute(table: Table) -> Sheet:
    from dsi_native.experiments.table import compute_per_token

    def cells(row: Row) -> list[str]:
        si, dsi = compute_per_token(row.si()), compute_per_token(row.dsi())
        return [
            str(row.best_lookahead),
            *(f"{si[x]:.2f}" for x in ("target_forwards", "draft_forwards")),
            str(row.least_lookahead),
            *(f"{dsi[x]:.2f}" for x in ("target_forwards", "draft_forwards", "wasted_forwards",
                                        "stopped_forwards", "target_time")),
        ]  # fmt: skip

    heads = ["SI at", "target", "drafts", "DSI at", "target", "drafts", "wasted", "stopped"]
    notes = [
        "non-SI: 1 target forward. at: the lookahead. drafts: drafter forwards. wasted, stopped: "
        "of DSI's target forwards, those that ended in vain and those stopped before. busy: time "
        "of all target servers, prompts included, in target forwards."
    ]
    return _sheet(table, "Forwards per token", [*heads, "busy"], cells, notes)


def _tensor_parallel(table: Table) -> Sheet:
    first = table.rows[0]

    def cells(row: Row) -> list[str]:
        plain, parallel = row.non_si.virtual_ms, row.tensor_parallel_ms
        return [
            f"{parallel:.0f}",
            f"{plain / parallel:.2f}x",
            f"{plain / row.dsi().virtual_ms:.2f}x",
            f"{parallel / row.dsi().virtual_ms:.2f}x",
            f"{100 * row.break_even_efficiency:.0f} %",
        ]

    efficiency = 100 * first.tensor_parallel_efficiency
    title = (
        f"The same {first.devices} devices with the target tensor-parallel, "
        f"{efficiency:.0f} % efficient"
    )
    heads = ["ms", "TP/ non-SI", "DSI/ non-SI", "DSI/ TP", "equal at"]
    lost = sum(row.tensor_parallel_ms < row.dsi().virtual_ms for row in table.rows)
    notes = [
        f"DSI/TP below 1: DSI loses, here on {lost} of {len(table.rows)} rows. equal at: the "
        "efficiency at which both are as fast. The efficiency is an assumption: unless given, a "
        "fit of published decoding rates of a 7B model on 1 to 8 A100s with fast links."
    ]
    return _sheet(table, title, heads, cells, notes)


def _wall(table: Table) -> Sheet:
    def cells(row: Row) -> list[str]:
        runs = row.runs.values()
        return [
            f"{sum(run.virtual_ms for run in runs):.0f}",
            f"{sum(run.total_ms for run in runs):.0f}",
            f"{row.wall_over_virtual:.4f}",
            f"{row.worst_wall_over_virtual:.4f}",
        ]

    notes = ["All runs of a row together; worst: of the mode and lookahead where it is highest."]
    heads = ["virtual, ms", "wall, ms", "wall/ virtual", "worst"]
    return _sheet(table, "What real threads add", heads, cells, notes)


def _paper_lookaheads(table: Table) -> Sequence[int]:
    from dsi_native.experiments.table import LOOKAHEADS

    return LOOKAHEADS


def _sheet(
    table: Table,
    title: str,
    heads: Sequence[str],
    cells: Callable[[Row], Sequence[str]],
    notes: Sequence[str],
) -> Sheet:
    rows = tuple((row.name, *cells(row)) for row in table.rows)
    return Sheet(title, tuple(heads), rows, tuple(notes))


def as_markdown(sheets: Sequence[Sheet]) -> str:
    parts: list[str] = []
    for sheet in sheets:
        lines = [("", *(_joined(head) for head in sheet.heads)),
                 ("---", *("---:" for _ in sheet.heads)), *sheet.rows]  # fmt: skip
        parts.append(f"**{sheet.title}**\n")
        parts.append("".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines))
        parts += [note.replace(_WAITS, f"\\{_WAITS}") + "\n" for note in sheet.notes]
    return "\n".join(parts)


def as_html(sheets: Sequence[Sheet]) -> str:
    parts = []
    for sheet in sheets:
        heads = "".join(f"<th>{escape(_joined(head))}</th>" for head in ("", *sheet.heads))
        body = "".join(
            f"<tr><th style='text-align:left'>{escape(row[0])}</th>"
            + "".join(f"<td>{escape(value)}</td>" for value in row[1:])
            + "</tr>"
            for row in sheet.rows
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in sheet.notes)
        parts.append(
            f"<table><caption>{escape(sheet.title)}</caption><tr>{heads}</tr>{body}</table>{notes}"
        )
    return "".join(parts)


def _joined(head: str) -> str:
    """A head on one line; a blank behind "/" or "-" is only where a narrow column may break."""
    return head.replace("/ ", "/").replace("- ", "-")


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace(_WAITS, f"\\{_WAITS}")


__all__ = ["WHY_THE_PAPER_DIFFERS", "Sheet", "as_html", "as_markdown", "of_table"]
