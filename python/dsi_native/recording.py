"""What one run did and when: each server's spans, each token's commit; of virtual and real runs."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from dsi_native import checks, files
from dsi_native.errors import InvalidArgument

MODES = ("non-si", "si", "dsi")
_KINDS = {"v": "verify", "d": "draft", "p": "prefill"}
_COMMITS = {"a": "accepted", "c": "correction", "b": "bonus"}
FATES = ("used", "wasted", "stopped", "failed", "unfinished")
VERDICTS = ("accepted", "rejected", "wasted", "cancelled", "failed", "prefill")


@dataclass(frozen=True)
class Span:
    """One stretch of a server's time, in seconds from the start of the run.

    server: target servers 0..sp-1, the drafter is -1. kind: "verify", "draft" or "prefill".
    first: number of the first token judged or drafted, from 1; window: drafts judged, or drafted.
    fate: "used", "wasted" (to its end, in vain), "stopped" (before its end), "failed", or
    "unfinished": still running when the run ended.
    """

    server: int
    kind: str
    start_s: float
    end_s: float
    first: int
    window: int
    fate: str


@dataclass(frozen=True)
class Commit:
    """Token number `token`, from 1, became final: an accepted draft, a correction or a bonus."""

    time_s: float
    token: int
    kind: str


@dataclass(frozen=True)
class Recording:
    """Spans in order of their end, commits in order; total_s: until the last token."""

    mode: str
    sp: int
    lookahead: int
    total_s: float
    spans: tuple[Span, ...]
    commits: tuple[Commit, ...]

    @classmethod
    def of(
        cls, native: Mapping[str, Any], mode: str, sp: int, lookahead: int, prompt_tokens: int
    ) -> Recording:
        """From what the virtual clock or a ticket's ending say; spans of no length are left out."""
        before = prompt_tokens - 1  # tokens count from 1
        spans = [  # threads that end at the same time report in any order
            Span(server, _KINDS[kind], start, end, first - before, window, fate)
            for server, kind, start, end, first, window, fate in native["spans"]
            if end > start
        ]
        return cls(
            mode,
            sp,
            lookahead,
            native["total_s"],
            tuple(sorted(spans, key=lambda span: span.end_s)),
            tuple(
                Commit(time, position - before, _COMMITS[kind])
                for time, position, kind in native["commits"]
            ),
        )

    @cached_property
    def verdicts(self) -> tuple[str, ...]:
        """What came of each span, one of VERDICTS each.

        A verify is "rejected" where it found a wrong draft, "accepted" where tokens of it were
        committed and none was a correction. A draft is what the target said of it (the first, where
        a span made several). "wasted": complete and of no use; "cancelled": stopped, or cut by the
        end of the run.
        """
        found = [_without_commits(span) for span in self.spans]
        drafts: dict[int, list[int]] = defaultdict(list)  # token -> the spans that are about it
        windows: dict[int, list[int]] = defaultdict(list)
        for i, span in enumerate(self.spans):
            if span.kind == "draft":
                drafts[span.first].append(i)
            elif span.kind == "verify" and span.fate == "used":
                last = min(span.first + span.window, len(self.commits))
                for token in range(span.first, last + 1):
                    windows[token].append(i)
        epoch_s = -1.0  # drafts and windows from before the last correction are out of date
        for commit in self.commits:
            timely = self._timely(drafts[commit.token], epoch_s, commit.time_s)
            if timely and commit.kind != "bonus":
                found[timely[-1]] = "accepted" if commit.kind == "accepted" else "rejected"
            timely = self._timely(windows[commit.token], epoch_s, commit.time_s)
            if timely:  # the one that started first is read first
                first = min(timely, key=lambda i: self.spans[i].start_s)
                found[first] = "rejected" if commit.kind == "correction" else "accepted"
            if commit.kind == "correction":
                epoch_s = commit.time_s
        return tuple(found)

    def _timely(self, among: Sequence[int], after_s: float, until_s: float) -> list[int]:
        return [
            i for i in among if after_s <= self.spans[i].start_s and self.spans[i].end_s <= until_s
        ]

    def tokens_by(self, time_s: float) -> int:
        """Tokens that are final at `time_s`."""
        return sum(commit.time_s <= time_s for commit in self.commits)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recording:
        """What to_dict made. Raises KeyError, TypeError or ValueError where it did not."""
        recording = cls(
            str(content["mode"]),
            int(content["sp"]),
            int(content["lookahead"]),
            float(content["total_s"]),
            tuple(Span(**span) for span in content["spans"]),
            tuple(Commit(**commit) for commit in content["commits"]),
        )
        _require(recording.mode in MODES, "the mode is none of ours")
        _require(recording.sp >= 1, "sp is out of range")
        _require(0 <= recording.total_s < math.inf, "the total is no time")
        for span in recording.spans:
            _require(span.kind in _KINDS.values(), "a span's kind is none of ours")
            _require(span.fate in FATES, "a span's fate is none of ours")
            _require(-1 <= _whole(span.server) < recording.sp, "a span's server is out of range")
            _require(0 <= span.start_s <= span.end_s < math.inf, "a span's times are none")
            _require(_whole(span.window) >= 0, "a span's window is out of range")
            _whole(span.first)
        for number, commit in enumerate(recording.commits, 1):
            _require(commit.kind in _COMMITS.values(), "a commit's kind is none of ours")
            _require(_whole(commit.token) == number, "the tokens do not count 1, 2, 3...")
            _require(0 <= commit.time_s < math.inf, "a commit's time is none")
        return recording


def save_recordings(path: str | os.PathLike[str], recordings: Sequence[Recording]) -> None:
    """Writes runs into one JSON file. Raises InvalidArgument naming the file where it cannot."""
    kept = checks.listed("recordings", recordings)
    runs = [checks.instance("each of recordings", one, Recording).to_dict() for one in kept]
    files.write(path, json.dumps({"recordings": runs}) + "\n")


def load_recordings(path: str | os.PathLike[str]) -> tuple[Recording, ...]:
    """What save_recordings wrote, at least one. Raises InvalidArgument naming the file."""
    content = files.read_json(path)
    try:
        recordings = tuple(Recording.from_dict(each) for each in content["recordings"])
        _require(len(recordings) > 0, "it holds no run")
    except KeyError as error:
        raise InvalidArgument(f"{os.fspath(path)}: no recording ({error} is missing)") from None
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{os.fspath(path)}: no recording ({error})") from None
    return recordings


def _without_commits(span: Span) -> str:
    """The verdict of a span that no commit has to do with."""
    if span.fate == "used":
        return "prefill" if span.kind == "prefill" else "wasted"
    return span.fate if span.fate in ("wasted", "failed") else "cancelled"


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


__all__ = [
    "FATES",
    "MODES",
    "VERDICTS",
    "Commit",
    "Recording",
    "Span",
    "load_recordings",
    "save_recordings",
]
