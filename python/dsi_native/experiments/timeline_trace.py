"""A timeline as trace events: a process for each run, a track for each server.

The JSON object format that Perfetto and chrome://tracing open; times are microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsi_native.experiments.timeline import labels_of, server_name, servers_of

if TYPE_CHECKING:
    from dsi_native.experiments.timeline import Timeline
    from dsi_native.recording import Recording

_TOKENS = 1  # the track of tokens that became final; the drafter's is 2, target 1's is 3
_DRAFTER = 2
_US = 1e6


def trace(timeline: Timeline) -> dict[str, Any]:
    """What json.dumps makes a trace of. Events are in order of time, the names of tracks first."""
    named: list[dict[str, Any]] = []
    timed: list[dict[str, Any]] = []
    runs = zip(timeline.recordings, timeline.headings, strict=True)
    for process, (recording, heading) in enumerate(runs, 1):
        named += _names(process, recording, heading)
        timed += _spans(process, recording) + _commits(process, recording)
    timed.sort(key=lambda event: event["ts"])
    return {
        "traceEvents": named + timed,
        "displayTimeUnit": "ms",
        "otherData": {"title": timeline.title},
    }


def _names(process: int, recording: Recording, heading: str) -> list[dict[str, Any]]:
    tracks = [(_TOKENS, "final tokens")]
    tracks += [(_track(server), server_name(server)) for server in servers_of(recording)]
    events = [
        _event("M", process, name="process_name", args={"name": heading}),
        _event("M", process, name="process_sort_index", args={"sort_index": process}),
    ]
    for track, name in tracks:
        events.append(_event("M", process, track, name="thread_name", args={"name": name}))
        sort = {"sort_index": track}
        events.append(_event("M", process, track, name="thread_sort_index", args=sort))
    return events


def _spans(process: int, recording: Recording) -> list[dict[str, Any]]:
    return [
        _event(
            "X",
            process,
            _track(span.server),
            ts=span.start_s * _US,
            dur=(span.end_s - span.start_s) * _US,
            name=" ".join([span.kind, *labels_of(span)[:1]]),
            cat=f"{span.kind},{verdict}",
            args={
                "first": span.first,
                "window": span.window,
                "fate": span.fate,
                "verdict": verdict,
            },
        )
        for span, verdict in zip(recording.spans, recording.verdicts, strict=True)
    ]


def _commits(process: int, recording: Recording) -> list[dict[str, Any]]:
    events = []
    for commit in recording.commits:
        at: dict[str, Any] = {"ts": commit.time_s * _US, "cat": "token"}
        name = f"token {commit.token}, {commit.kind}"
        args = {"token": commit.token, "kind": commit.kind}
        events.append(_event("i", process, _TOKENS, s="t", name=name, args=args, **at))
        count = {"tokens": commit.token}
        events.append(_event("C", process, name="final tokens", args=count, **at))
    return events


def _track(server: int) -> int:
    return _DRAFTER + 1 + server


def _event(phase: str, process: int, track: int = 0, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "pid": process, "tid": track, **more}


__all__ = ["trace"]
