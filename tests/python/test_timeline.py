"""Timelines: what the picture and the trace say."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dsi_native.errors import Error, InvalidArgument
from dsi_native.experiments.configuration import MODES, Configuration, Latency
from dsi_native.experiments.run import simulate
from dsi_native.experiments.timeline import Timeline, timeline
from dsi_native.recording import Recording, Span

CONFIGURATION = Configuration(Latency(70, 160), Latency(10), 0.7, sp=4, lookahead=2, tokens=12)


@pytest.fixture
def plots() -> None:
    pytest.importorskip("matplotlib", reason="needs the extra [plots]")


def recording_of(mode: str, configuration: Configuration = CONFIGURATION) -> Recording:
    recording = simulate(configuration, mode, record=True).recording
    assert recording is not None
    return recording


def test_runs_each_mode_once() -> None:
    found = timeline(CONFIGURATION)
    assert found.recordings == tuple(recording_of(mode) for mode in MODES)
    assert found.names == ["non-SI", "SI", "DSI"]
    totals = [recording.total_s for recording in found.recordings]
    assert found.speedups == [totals[0] / total for total in totals]
    assert repr(found).splitlines() == [
        "target 70 ms (first 160 ms); drafter 10 ms, acceptance 0.7; virtual clock, seed 0",
        "non-SI: 12 tokens in 930 ms",
        "SI, lookahead 2: 12 tokens in 600 ms, 1.55x non-SI",
        "DSI, lookahead 2, SP 4: 12 tokens in 400 ms, 2.33x non-SI",
    ]


def test_with_threads() -> None:
    configuration = Configuration(Latency(7), Latency(1), 0.7, sp=3, tokens=5)
    found = timeline(configuration, ["dsi"], online=True)
    (recording,) = found.recordings
    assert recording.total_s > recording_of("dsi", configuration).total_s
    assert "real threads" in found.title and found.speedups == [None]


def test_of_any_runs() -> None:
    runs = [recording_of("dsi"), recording_of("si", CONFIGURATION.replace(tokens=1))]
    found = Timeline.of([*runs, runs[0], recording_of("non-si")])
    assert found.names == ["DSI (1)", "SI", "DSI (2)", "non-SI"]
    speedups = found.speedups
    assert speedups[1] is None and speedups[0] == speedups[2] and speedups[3] == 1
    assert "SI, lookahead 2: 1 token in" in repr(found)
    with pytest.raises(InvalidArgument, match="recordings must hold"):
        Timeline.of([])
    with pytest.raises(InvalidArgument, match="modes must name"):
        timeline(CONFIGURATION, [])
    with pytest.raises(InvalidArgument, match="mode must be one of"):
        timeline(CONFIGURATION, ["fast"])


# -- the trace -------------------------------------------------------------------------------------


def test_trace(tmp_path: Path) -> None:
    found = timeline(CONFIGURATION)
    found.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace == json.loads(json.dumps(found.trace()))
    assert trace["displayTimeUnit"] == "ms" and trace["otherData"] == {"title": found.title}
    events = trace["traceEvents"]
    named = [event for event in events if event["ph"] == "M"]
    timed = [event for event in events if event["ph"] != "M"]
    assert events == named + timed  # a track has its name before its first event
    starts = [event["ts"] for event in timed]
    assert starts == sorted(starts) and starts[0] >= 0
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in named
        if event["name"] == "thread_name"
    }
    processes = {e["pid"]: e["args"]["name"] for e in named if e["name"] == "process_name"}
    assert list(processes.values()) == found.headings

    tracks: dict[Any, list[Any]] = defaultdict(list)
    for event in timed:
        tracks[event["ph"], event["pid"], event["tid"]].append(event)
    for process, recording in enumerate(found.recordings, 1):
        spans = [event for event in timed if event["ph"] == "X" and event["pid"] == process]
        assert len(spans) == len(recording.spans)
        pairs = zip(recording.spans, recording.verdicts, strict=True)
        for span, verdict in sorted(pairs, key=lambda pair: pair[0].start_s):
            (event,) = (
                e
                for e in spans
                if e["ts"] == span.start_s * 1e6
                and names[process, e["tid"]]
                == ("drafter" if span.server < 0 else f"target {span.server + 1}")
            )
            assert event["dur"] == pytest.approx((span.end_s - span.start_s) * 1e6)
            assert event["name"].startswith(span.kind)
            assert event["args"] == {
                "first": span.first,
                "window": span.window,
                "fate": span.fate,
                "verdict": verdict,
            }
        tokens = [e["args"]["token"] for e in timed if e["ph"] == "i" and e["pid"] == process]
        assert tokens == [*range(1, 13)]
        counts = [e["args"]["tokens"] for e in timed if e["ph"] == "C" and e["pid"] == process]
        assert counts == [*range(1, 13)]
    for (phase, process, track), found_there in tracks.items():
        if phase == "X":
            for event, following in pairwise(found_there):
                assert event["dur"] >= 0
                assert event["ts"] + event["dur"] <= following["ts"] + 1e-6
        elif phase == "i":
            assert names[process, track] == "final tokens"


# -- the picture -----------------------------------------------------------------------------------


def size_of_png(content: bytes) -> tuple[int, int]:
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and content[12:16] == b"IHDR"
    return struct.unpack(">II", content[16:24])


def test_pictures(plots: None, tmp_path: Path) -> None:
    found = timeline(CONFIGURATION)
    for name in ("one.png", "two.png", "one.svg", "two.svg"):
        found.save(tmp_path / name)
    png, svg = (tmp_path / "one.png").read_bytes(), (tmp_path / "one.svg").read_bytes()
    assert png == (tmp_path / "two.png").read_bytes() and svg == (tmp_path / "two.svg").read_bytes()
    width, height = size_of_png(png)
    assert width == 1200 and 400 < height < 800 and 10_000 < len(png) < 150_000
    assert size_of_png(found._repr_png_() or b"") == (width, height)
    text = set(re.findall(r"<text[^>]*>([^<]*)</text>", svg.decode()))
    wanted = {
        found.title,
        *found.headings,
        "drafter",
        "target 4",
        "tokens",
        "8+2",
        "ms",
        "rejected",
    }
    assert wanted <= text
    assert "failed" not in text and "target 5" not in text


def places(timeline: Timeline) -> list[Any]:
    """(text, its box, size of the picture) of all texts, in pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    figure = timeline.plot()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = set(figure.findobj(Text))
    for axes in figure.axes:  # an axis keeps numbers from beyond its ends, and does not draw them
        texts -= {*axes.xaxis.findobj(Text), *axes.yaxis.findobj(Text)}
        texts |= {axes.xaxis.label, *axes.get_yticklabels()}
        end = axes.get_xlim()[1]
        texts |= {text for text in axes.get_xticklabels() if 0 <= text.get_position()[0] <= end}
    width, height = figure.bbox.width, figure.bbox.height
    boxes = [(x.get_text(), x.get_window_extent(renderer)) for x in texts if x.get_visible()]
    return [(text, box, (width, height)) for text, box in boxes if text]


@pytest.mark.parametrize(
    "configuration",
    [
        CONFIGURATION,
        Configuration(Latency(70), Latency(10), 0, sp=7, lookahead=1, tokens=9),
        Configuration(Latency(70), Latency(10), 1, sp=7, lookahead=1, tokens=16),
        Configuration(Latency(70), Latency(10), 0.7, sp=7, tokens=100),
        Configuration(
            Latency(37.7, 120, 0.05, 0.2, False), Latency(2.5, 9, 0, 0.3, False), 0.63, sp=12,
            lookahead=3, tokens=40, seed=2**63,
        ),
        Configuration(Latency(70), Latency(10), 1, tokens=1),
    ],
    ids=["prefill", "worst", "best", "long", "wide", "short"],
)  # fmt: skip
def test_no_text_covers_another(plots: None, configuration: Configuration) -> None:
    boxes = places(timeline(configuration))
    labelled = 0
    for i, (text, box, (width, height)) in enumerate(boxes):
        assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height, text
        for other, there, _ in boxes[i + 1 :]:
            apart = (
                min(box.x1, there.x1) - max(box.x0, there.x0) < 0.5
                or min(box.y1, there.y1) - max(box.y0, there.y0) < 0.5
            )
            assert apart, f"{text!r} and {other!r}"
        labelled += text.isdigit()
    assert labelled > 0


def test_failed_work_is_drawn(plots: None, tmp_path: Path) -> None:
    failed = Span(0, "verify", 0.0, 0.01, 1, 0, "failed")
    recording = recording_of("non-si")
    spans = (failed, *recording.spans)
    changed = Recording("non-si", 1, 0, recording.total_s, spans, recording.commits)
    Timeline.of([changed]).save(tmp_path / "failed.svg")
    assert ">failed<" in (tmp_path / "failed.svg").read_text()


def test_draws_without_a_global_state(
    plots: None, run_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    code = (
        "import sys\n"
        "from dsi_native.experiments.configuration import Configuration, Latency\n"
        "from dsi_native.experiments.timeline import timeline\n"
        "found = timeline(Configuration(Latency(7), Latency(1), 1, tokens=5))\n"
        "assert 'matplotlib' not in sys.modules\n"
        "found.save(sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = run_python("-c", code, str(tmp_path / "x.png"))
    assert (done.returncode, done.stderr) == (0, "")


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    found = timeline(CONFIGURATION, ["dsi"])
    with pytest.raises(Error, match=r"pip install 'dsi-native\[plots\]'"):
        found.save(tmp_path / "x.png")
    assert found._repr_png_() is None
    found.save(tmp_path / "x.json")


@pytest.mark.parametrize("name", ["x", "x.pdf", "x.csv"])
def test_other_endings_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"must end in \.png, \.svg, \.json"):
        timeline(CONFIGURATION, ["dsi"]).save(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_places_that_cannot_be_written(plots: None, tmp_path: Path) -> None:
    for name in ("x.png", "x.svg", "x.json"):
        with pytest.raises(InvalidArgument, match=r"nowhere.*No such file"):
            timeline(CONFIGURATION, ["dsi"]).save(tmp_path / "nowhere" / name)
