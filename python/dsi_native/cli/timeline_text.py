"""A timeline in a terminal: a line for each server, time from left to right."""

from __future__ import annotations

from collections import Counter, defaultdict

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsi_native.experiments.timeline import Timeline, labels_of, server_name, servers_of
from dsi_native.recording import VERDICTS, Recording, Span

# verdict -> sign, the same where the terminal has ASCII only, colour
_SIGNS = {
    "accepted": ("█", "#", "cyan"),
    "rejected": ("▓", "%", "yellow"),
    "wasted": ("▒", "~", "bright_black"),
    "cancelled": ("░", ".", "bright_black"),
    "prefill": ("=", "=", "magenta"),
    "failed": ("!", "!", "red"),
}
_INK = {"accepted": "black on cyan", "rejected": "black on yellow"}  # of numbers in a bar
_NAMES = 11  # characters
_WIDEST = 160
_TICK = 8  # characters at least
_LEAST_SEEN = 10  # what takes less than this part of a column is not shown
_HINT = "7+2: judges two drafts, from token 7; tokens: how many are final by then\n"


def print_timeline(console: Console, timeline: Timeline) -> None:
    """All runs on one axis as wide as the terminal, what the signs mean, and counts."""
    columns = min(console.width, _WIDEST) - _NAMES - 1
    longest_s = max(recording.total_s for recording in timeline.recordings)
    column_s = longest_s / columns
    tick_s = _tick(column_s)
    ascii_only = console.options.ascii_only
    if timeline.title:
        console.print(timeline.title)
    for heading, recording in zip(timeline.headings, timeline.recordings, strict=True):
        console.print()
        console.print(Text(heading, style="bold"))
        for server in servers_of(recording):
            line = Text(server_name(server).ljust(_NAMES))
            line.append_text(_line(recording, server, column_s, columns, ascii_only))
            console.print(line, no_wrap=True, overflow="crop")
        times = _ticks(tick_s, recording.total_s)
        counts = [(time, str(recording.tokens_by(time + 1e-9))) for time in times]
        console.print("tokens".ljust(_NAMES) + _places(counts, column_s, columns))
    axis = [(time, f"{time * 1e3:g}") for time in _ticks(tick_s, longest_s)]
    console.print("\n" + "ms".ljust(_NAMES) + _places(axis, column_s, columns))
    console.print(_signs(timeline, ascii_only))
    console.print(_HINT)
    console.print(_counts(timeline))


def _line(
    recording: Recording, server: int, column_s: float, columns: int, ascii_only: bool
) -> Text:
    """What took most of each column; what got none for that is shown where nothing else is."""
    took: list[dict[str, float]] = [defaultdict(float) for _ in range(columns)]
    mine = [
        (span, verdict)
        for span, verdict in zip(recording.spans, recording.verdicts, strict=True)
        if span.server == server
    ]
    for span, verdict in mine:
        for column in range(int(span.start_s / column_s), columns):
            start_s = column * column_s
            if start_s >= span.end_s:
                break
            inside_s = min(span.end_s, start_s + column_s) - max(span.start_s, start_s)
            took[column][verdict] += inside_s
    shown = [max(by, key=by.__getitem__) if sum(by.values()) * 2 > column_s else ""
             for by in map(dict, took)]  # fmt: skip
    for span, verdict in mine:
        first, behind = _columns(span, column_s, columns)
        long_enough = span.end_s - span.start_s > column_s / _LEAST_SEEN
        if first == behind and long_enough and not shown[min(first, columns - 1)]:
            shown[min(first, columns - 1)] = verdict
    line = Text("".join(_sign(verdict, ascii_only) for verdict in shown))
    for column, verdict in enumerate(shown):
        if verdict:
            line.stylize(_SIGNS[verdict][2], column, column + 1)
    for span, verdict in mine:
        first, behind = _columns(span, column_s, columns)
        label = next((x for x in labels_of(span) if len(x) < behind - first), "")
        if label and set(shown[first:behind]) == {verdict}:
            end = first + len(label)
            line = Text.assemble(line[:first], (label, _INK.get(verdict, "")), line[end:])
    return line


def _columns(span: Span, column_s: float, columns: int) -> tuple[int, int]:
    return (
        min(round(span.start_s / column_s), columns),
        min(round(span.end_s / column_s), columns),
    )


def _sign(verdict: str, ascii_only: bool) -> str:
    return _SIGNS[verdict][ascii_only] if verdict else " "


def _signs(timeline: Timeline, ascii_only: bool) -> Text:
    used = {verdict for recording in timeline.recordings for verdict in recording.verdicts}
    line = Text()
    for verdict in VERDICTS:
        if verdict in used:
            line.append(_sign(verdict, ascii_only) * 2, style=_SIGNS[verdict][2])
            line.append(f" {verdict}  ")
    return line


def _tick(column_s: float) -> float:
    """The least of 1, 2, 5, 10, ... ms (or parts of one) with room for a number."""
    tick_s = 1e-6
    while True:
        for factor in (1, 2, 5):
            if tick_s * factor >= column_s * _TICK:
                return tick_s * factor
        tick_s *= 10


def _ticks(tick_s: float, end_s: float) -> list[float]:
    return [number * tick_s for number in range(int(end_s / tick_s + 1e-9) + 1)]


def _places(texts: list[tuple[float, str]], column_s: float, columns: int) -> str:
    line = ""
    for time_s, text in texts:
        place = round(time_s / column_s)
        if place + len(text) <= columns:
            line = line.ljust(place) + text
    return line


def _counts(timeline: Timeline) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    for title in ("", "drafts", "accepted", "rejected", "target\nforwards", "wasted", "cancelled",
                  "targets\nbusy", "drafter\nbusy"):  # fmt: skip
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for name, recording in zip(timeline.names, timeline.recordings, strict=True):
        pairs = list(zip(recording.spans, recording.verdicts, strict=True))
        drafts = Counter(verdict for span, verdict in pairs if span.kind == "draft")
        verifies = Counter(verdict for span, verdict in pairs if span.kind == "verify")
        target_s = sum(span.end_s - span.start_s for span, _ in pairs if span.server >= 0)
        drafter_s = sum(span.end_s - span.start_s for span, _ in pairs if span.server < 0)
        servers = recording.sp if recording.mode == "dsi" else 1
        table.add_row(
            name,
            *(str(n) for n in (sum(drafts.values()), drafts["accepted"], drafts["rejected"])),
            *(str(n) for n in (sum(verifies.values()), verifies["wasted"], verifies["cancelled"])),
            f"{100 * target_s / servers / recording.total_s:.0f} %",
            f"{100 * drafter_s / recording.total_s:.0f} %",
        )
    return table


__all__ = ["print_timeline"]
