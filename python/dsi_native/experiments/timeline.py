"""Figure 1 of the paper (arXiv 2405.14105): what each server did when, in each mode."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsi_native import checks, files
from dsi_native.errors import Error, InvalidArgument
from dsi_native.experiments.configuration import MODES, Configuration
from dsi_native.experiments.run import NAMES, simulate
from dsi_native.recording import Recording, Span

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".json")


def timeline(
    configuration: Configuration, modes: Sequence[str] = tuple(MODES), *, online: bool = False
) -> Timeline:
    """Runs `configuration` once in each of `modes` and keeps what its servers did.

    online: with real threads, else on the virtual clock; blocks like `simulate`. Raises
    InvalidArgument naming the argument.
    """
    modes = checks.listed("modes", modes)
    if not modes:
        raise InvalidArgument("modes must name at least one")
    recordings = []
    for mode in modes:
        recording = simulate(configuration, mode, online=online, record=True).recording
        assert recording is not None
        recordings.append(recording)
    clock = "real threads" if online else "virtual clock"
    of = configuration
    title = (
        f"target {of.target.text()}; drafter {of.drafter.text()}, acceptance {of.acceptance:.3g}"
    )
    return Timeline(tuple(recordings), f"{title}; {clock}, seed {of.seed}")


@dataclass(frozen=True)
class Timeline:
    """Runs on one axis of time. title: what ran; "" where nothing is known of it.

    A notebook shows the picture, where matplotlib is installed (the extra [plots]).
    """

    recordings: tuple[Recording, ...]
    title: str = ""

    @classmethod
    def of(cls, recordings: Iterable[Recording], title: str = "") -> Timeline:
        """Of any runs, such as `Output.recording` of real ones. Raises InvalidArgument for none."""
        found = tuple(checks.listed("recordings", recordings))
        for recording in found:
            checks.instance("each of recordings", recording, Recording)
        if not found:
            raise InvalidArgument("recordings must hold at least one run")
        return cls(found, title)

    @property
    def names(self) -> list[str]:
        """The modes, numbered where one is there several times."""
        modes = [recording.mode for recording in self.recordings]
        many, seen = Counter(modes), Counter[str]()
        names = []
        for mode in modes:
            seen[mode] += 1
            names.append(NAMES[mode] + (f" ({seen[mode]})" if many[mode] > 1 else ""))
        return names

    @property
    def speedups(self) -> list[float | None]:
        """The first non-SI run's time over each run's; None where the counts of tokens differ."""
        plain = next((r for r in self.recordings if r.mode == "non-si"), None)
        return [
            plain.total_s / recording.total_s
            if plain is not None and len(plain.commits) == len(recording.commits)
            else None
            for recording in self.recordings
        ]

    @property
    def headings(self) -> list[str]:
        """One line about each run."""
        return [heading(*of) for of in zip(self.names, self.recordings, self.speedups, strict=True)]

    def plot(self) -> Figure:
        """The picture. Raises Error where matplotlib is missing."""
        from dsi_native.experiments.timeline_figure import draw

        return draw(self)

    def trace(self) -> dict[str, Any]:
        """Trace events, for Perfetto (https://ui.perfetto.dev) and chrome://tracing."""
        from dsi_native.experiments.timeline_trace import trace

        return trace(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a picture, .png or .svg, or a trace, .json.

        Raises InvalidArgument for other endings and where the file cannot be written, Error where
        matplotlib is missing.
        """
        ending = Path(path).suffix.lower()
        if ending not in ENDINGS:
            raise InvalidArgument(f"{os.fspath(path)}: must end in {', '.join(ENDINGS)}")
        if ending == ".json":
            files.write(path, json.dumps(self.trace()) + "\n")
            return
        from dsi_native.experiments.figures import write_figure

        write_figure(self.plot(), path)

    def to_dict(self) -> dict[str, Any]:
        """As plain Python types; as JSON what `load_recordings` reads."""
        return {"title": self.title, "recordings": [r.to_dict() for r in self.recordings]}

    def __repr__(self) -> str:
        return "\n".join([self.title] * bool(self.title) + self.headings)

    def _repr_png_(self) -> bytes | None:
        from dsi_native.experiments.figures import png_bytes

        try:
            return png_bytes(self.plot())
        except Error:  # no matplotlib; a notebook then shows __repr__
            return None


def heading(name: str, recording: Recording, speedup: float | None) -> str:
    """What the run was and took, in a line."""
    what = {
        "non-si": "",
        "si": f", lookahead {recording.lookahead}",
        "dsi": f", lookahead {recording.lookahead}, SP {recording.sp}",
    }[recording.mode]
    count = len(recording.commits)
    tokens = "1 token" if count == 1 else f"{count} tokens"
    times = "" if speedup is None or recording.mode == "non-si" else f", {speedup:.2f}x non-SI"
    return f"{name}{what}: {tokens} in {milliseconds(recording.total_s)}{times}"


def milliseconds(time_s: float) -> str:
    """Three digits or more."""
    ms = time_s * 1e3
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def server_name(server: int) -> str:
    """A track's name; people count from 1."""
    return "drafter" if server < 0 else f"target {server + 1}"


def servers_of(recording: Recording) -> list[int]:
    """Those that did anything, the drafter (-1) first."""
    return sorted({span.server for span in recording.spans})


def labels_of(span: Span) -> list[str]:
    """What a bar may say, the longest first: `7+2` judges two drafts, `7-9` drafts three."""
    if span.kind == "prefill":
        return []
    first = str(span.first)
    if span.kind == "draft":
        return [f"{first}-{span.first + span.window - 1}"] * (span.window > 1) + [first]
    return [f"{first}+{span.window}"] * (span.window > 0) + [first]


__all__ = ["ENDINGS", "Timeline", "timeline"]
