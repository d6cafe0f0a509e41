"""What one run did and when: each server's spans, each token's commit; of virtual and real runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

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
        return cls(
            mode,
            sp,
            lookahead,
            native["total_s"],
            tuple(
                Span(server, _KINDS[kind], start, end, first - before, window, fate)
                for server, kind, start, end, first, window, fate in native["spans"]
                if end > start
            ),
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
        epoch_s = -1.0  # drafts and windows from before the last correction are out of date
        for commit in self.commits:
            if commit.kind != "bonus":
                self._judge_draft(commit, epoch_s, found)
            self._judge_verify(commit, epoch_s, found)
            if commit.kind == "correction":
                epoch_s = commit.time_s
        return tuple(found)

    def _judge_draft(self, commit: Commit, epoch_s: float, found: list[str]) -> None:
        drafts = [
            i
            for i, span in enumerate(self.spans)
            if span.kind == "draft"
            and span.first == commit.token
            and epoch_s <= span.start_s
            and span.end_s <= commit.time_s
        ]
        if drafts:
            found[drafts[-1]] = "accepted" if commit.kind == "accepted" else "rejected"

    def _judge_verify(self, commit: Commit, epoch_s: float, found: list[str]) -> None:
        windows = [
            i
            for i, span in enumerate(self.spans)
            if span.kind == "verify"
            and span.fate == "used"
            and span.first <= commit.token <= span.first + span.window
            and epoch_s <= span.start_s
            and span.end_s <= commit.time_s
        ]
        if windows:  # the one that started first is read first
            first = min(windows, key=lambda i: self.spans[i].start_s)
            found[first] = "rejected" if commit.kind == "correction" else "accepted"

    def tokens_by(self, time_s: float) -> int:
        """Tokens that are final at `time_s`."""
        return sum(commit.time_s <= time_s for commit in self.commits)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recording:
        """What to_dict made. Raises KeyError, TypeError or ValueError where it did not."""
        spans = tuple(Span(**span) for span in content["spans"])
        commits = tuple(Commit(**commit) for commit in content["commits"])
        if not all(s.fate in FATES and s.kind in _KINDS.values() for s in spans):
            raise ValueError("a span's kind or fate is none of ours")
        if not all(commit.kind in _COMMITS.values() for commit in commits):
            raise ValueError("a commit's kind is none of ours")
        return cls(
            str(content["mode"]),
            int(content["sp"]),
            int(content["lookahead"]),
            float(content["total_s"]),
            spans,
            commits,
        )


def _without_commits(span: Span) -> str:
    """The verdict of a span that no commit has to do with."""
    if span.fate == "used":
        return "prefill" if span.kind == "prefill" else "wasted"
    return span.fate if span.fate in ("wasted", "failed") else "cancelled"


__all__ = ["FATES", "VERDICTS", "Commit", "Recording", "Span"]
