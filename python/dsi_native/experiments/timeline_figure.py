"""The picture of a timeline: a group of rows for each run, a row for each server."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from dsi_native.experiments import figures
from dsi_native.experiments.timeline import Timeline, labels_of, server_name, servers_of
from dsi_native.recording import VERDICTS, Recording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# verdict -> colour of a bar, of the text in it, words in the legend
_STYLES = {
    "accepted": (figures.BLUE, "white", "accepted"),
    "rejected": (figures.ORANGE, "black", "rejected"),
    "wasted": (figures.GREY, "black", "wasted: ran in vain"),
    "cancelled": (figures.PALE, "#555555", "cancelled: stopped"),
    "prefill": (figures.PURPLE, "black", "prefill"),
    "failed": (figures.BLACK, "white", "failed"),
}
_HEIGHTS = {"draft": 0.46, "verify": 0.84, "prefill": 0.84}  # of a row

# Inches
_WIDTH, _LEFT, _RIGHT = 10.0, 0.72, 0.15
_HEAD, _FOOT, _HEADING, _GAP, _ROW, _TICKS = 0.3, 0.48, 0.26, 0.08, 0.2, 0.26
_TEXT_PT = 9.0
_TITLE_LINE = 0.17
_TITLE_CHARACTERS = 120  # in a line
_LABEL_PT = {"draft": 6.0, "verify": 7.0}
_DIGIT = 0.64 / 72  # inches of width at a size of 1 pt
_COUNT_ROOM = 0.3  # between two counts of tokens
_EDGED = 0.035  # bars wider than this have an edge


def draw(timeline: Timeline) -> Figure:
    """All runs on one axis of milliseconds. Raises Error where matplotlib is missing."""
    groups = [_HEADING + _ROW * len(servers_of(r)) + _TICKS for r in timeline.recordings]
    title = textwrap.wrap(timeline.title, _TITLE_CHARACTERS)
    head = _HEAD + _TITLE_LINE * len(title)
    height = head + sum(groups) + _GAP * (len(groups) - 1) + _FOOT
    figure = figures.new_figure(_WIDTH, height)
    figure.set_layout_engine("none")  # all places are given here
    end_ms = max(recording.total_s for recording in timeline.recordings) * 1e3
    end_ms *= 1 + 0.1 / _WIDTH  # room for half a count of tokens
    top = height - head
    runs = list(zip(timeline.recordings, timeline.headings, groups, strict=True))
    for recording, heading, group in runs:
        rows = group - _HEADING
        box = (
            _LEFT / _WIDTH,
            (top - group) / height,
            1 - (_LEFT + _RIGHT) / _WIDTH,
            rows / height,
        )
        _group(figure.add_axes(box), recording, heading, end_ms, recording is runs[-1][0])
        top -= group + _GAP
    _head(figure, timeline, title, height)
    return figure


def _head(figure: Figure, timeline: Timeline, title: list[str], height: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    used = {verdict for recording in timeline.recordings for verdict in recording.verdicts}
    handles: list[Patch | Line2D] = [
        Patch(facecolor=colour, edgecolor=figures.GREY, linewidth=0.4, label=words)
        for colour, _, words in (_STYLES[verdict] for verdict in VERDICTS if verdict in used)
    ]
    handles.append(
        Line2D([], [], color=figures.BLACK, marker="|", linestyle="none", label="token final")
    )
    if any(span.window and span.kind == "verify" for r in timeline.recordings for span in r.spans):
        handles.append(
            Line2D([], [], linestyle="none", label="7+2: judges two drafts, from token 7")
        )
    left = _LEFT / _WIDTH
    figure.text(left, 1 - 0.1 / height, "\n".join(title), va="top", fontsize=_TEXT_PT)
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(left, 1 - (0.13 + _TITLE_LINE * len(title)) / height),
        ncols=len(handles),
        fontsize=_TEXT_PT - 1,
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.2,
        handletextpad=0.5,
        columnspacing=1.4,
    )


def _group(axes: Axes, recording: Recording, heading: str, end_ms: float, last: bool) -> None:
    servers = servers_of(recording)
    rows = len(servers) + _TICKS / _ROW
    axes.set(xlim=(0, end_ms), ylim=(rows, 0))
    axes.set_title(heading, loc="left", fontsize=_TEXT_PT, fontweight="bold", pad=4)
    centres = [row + 0.5 for row in range(len(servers))]
    axes.set_yticks([*centres, len(servers) + 0.3])
    axes.set_yticklabels([*map(server_name, servers), "tokens"], fontsize=_TEXT_PT - 1)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=_TEXT_PT - 1, labelbottom=last, length=3 if last else 0)
    axes.grid(axis="x", color=figures.PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(last and side == "bottom")
    if last:
        axes.set_xlabel("ms", fontsize=_TEXT_PT - 1, labelpad=2)
    inch_ms = end_ms / (_WIDTH - _LEFT - _RIGHT)
    _bars(axes, recording, servers, inch_ms)
    _tokens(axes, recording, len(servers), inch_ms)
    # Where the run ends, through all its rows.
    axes.axvline(
        recording.total_s * 1e3, color=figures.BLACK, linewidth=0.8, ymin=_TICKS / _ROW / rows
    )


def _bars(axes: Axes, recording: Recording, servers: list[int], inch_ms: float) -> None:
    from matplotlib.collections import PolyCollection

    row_of = {server: row for row, server in enumerate(servers)}
    room = _room(recording)
    shapes, colours, borders, edges = [], [], [], []
    for span, verdict in zip(recording.spans, recording.verdicts, strict=True):
        colour, ink, _ = _STYLES[verdict]
        left, right = span.start_s * 1e3, span.end_s * 1e3
        middle, half = row_of[span.server] + 0.5, _HEIGHTS[span.kind] / 2
        shapes.append(
            [
                (left, middle - half),
                (right, middle - half),
                (right, middle + half),
                (left, middle + half),
            ]
        )
        colours.append(colour)
        borders.append(figures.GREY if colour == figures.PALE else "white")
        inches = (right - left) / inch_ms
        edges.append(0.5 if inches > _EDGED else 0.0)
        label = next((x for x in labels_of(span) if room[span.kind, x.isdigit()] < inches), "")
        if label:
            axes.text(
                (left + right) / 2,
                middle,
                label,
                color=ink,
                fontsize=_LABEL_PT[span.kind],
                ha="center",
                va="center_baseline",
                clip_on=True,
            )
    axes.add_collection(
        PolyCollection(shapes, facecolors=colours, edgecolors=borders, linewidths=edges)
    )


def _room(recording: Recording) -> dict[tuple[str, bool], float]:
    """Inches that the longest label takes, by kind of span and by whether it is one number only.

    The longest decides for all: a row whose numbers end with the last short one would look broken.
    """
    room: dict[tuple[str, bool], float] = {}
    for span in recording.spans:
        for label in labels_of(span):
            key = span.kind, label.isdigit()
            needed = (len(label) + 0.4) * _DIGIT * _LABEL_PT[span.kind]
            room[key] = max(room.get(key, 0.0), needed)
    return room


def _tokens(axes: Axes, recording: Recording, below: int, inch_ms: float) -> None:
    """A tick for each token that became final, and how many had by then where there is room."""
    times = [commit.time_s * 1e3 for commit in recording.commits]
    axes.vlines(times, below + 0.12, below + 0.48, color=figures.BLACK, linewidth=0.6)
    counts = {time: count for count, time in enumerate(times, 1)}  # the last of equal times
    free = float("inf")
    for time, count in reversed(counts.items()):  # the last one is always there
        if time + _COUNT_ROOM * inch_ms <= free:
            axes.text(
                time, below + 0.55, str(count), fontsize=_LABEL_PT["verify"], ha="center", va="top"
            )
            free = time


__all__ = ["draw"]
