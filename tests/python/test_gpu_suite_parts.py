"""The parts of tests/gpu/suite, each on its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="needs: pip install transformers"
)


def test_a_report_has_no_number_that_json_lacks(suite: Any, tmp_path: Path) -> None:
    report = suite.report.Report({}, {})
    figures = {"a": [float("nan"), 1.0], "b": float("inf")}
    report.add("x", {"status": "failed", "figures": figures}, 1.0)
    report.write(tmp_path / "x")
    content = json.loads((tmp_path / "x").read_text())
    assert content["sections"]["x"]["figures"] == {"a": [None, 1.0], "b": None}
    assert content["failed"] == ["x"]


def test_a_section_that_checked_nothing_has_failed(suite: Any) -> None:
    section = suite.section.Section("", 1)
    assert section.status == "failed"
    section.skip("all of it", "needs CUDA")
    assert section.status == "skipped"
    section.check("this", True)
    assert section.status == "passed"


def test_no_path_of_the_machine_is_reported(suite: Any) -> None:
    said = suite.section.without_paths('File "/home/me/x/a.py", 1/2 of https://a.b/c, (/tmp/y/)')
    assert said == 'File "a.py", 1/2 of https://a.b/c, ()'


ISOLATED = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from suite.isolation import run_section
from suite.section import Where

def ends(section, where):
    section.check("first", True)
    os._exit(3)

def hangs(section, where):
    section.check("first", True)
    time.sleep(60)

def raises(section, where):
    section.check("first", True)
    raise ValueError("in /a/b/c.py")

for run in (ends, hangs, raises):
    entry = run_section("", run, Where("cpu", True), 1, 8 if run is not hangs else 1.5)
    print(entry["status"], [(c["name"], c["passed"], c["detail"]) for c in entry["checks"]])
"""


def test_what_breaks_a_section_breaks_it_alone(
    suite: Any,
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run = run_python("-c", ISOLATED, str(Path(suite.__file__).parents[1]))
    first, last = "failed [('first', True, ''), ('runs to its end', False, ", ")]"
    assert run.stdout.splitlines() == [
        f"{first}'its process ended with 3'{last}",
        f"{first}'still running after 1.5 s'{last}",
        f"{first}'ValueError: in c.py'{last}",
    ]
    assert "ValueError: in c.py" in run.stderr


def test_work_of_a_device_by_stream(suite: Any) -> None:
    def event(stream: int, ts: float, dur: float, cat: str = "kernel") -> dict[str, Any]:
        return {"cat": cat, "ts": ts, "dur": dur, "args": {"stream": stream}}

    of = suite.device_time
    events = [event(7, 0, 4), event(7, 3, 2), event(9, 4, 4, "gpu_memcpy"), event(7, 10, 1)]
    events += [{"cat": "cpu_op", "ts": 0, "dur": 99}, {"ph": "M"}]
    work = of.work_by_stream(events)
    assert work == {7: [(0, 5), (10, 11)], 9: [(4, 8)]}
    assert of.common(work[7], work[9]) == 1
    assert of.length(work[7]) == 6
    assert of.busy(work) == 9


def test_stale_forwards_end_after_their_correction(suite: Any) -> None:
    from dsi_native.recording import Commit, Recording, Span

    spans = (
        Span(0, "verify", 0.0, 1.0, 1, 0, "used"),
        Span(1, "verify", 0.5, 1.25, 2, 1, "stopped"),
        Span(-1, "draft", 0.5, 1.5, 3, 1, "stopped"),
        Span(0, "verify", 1.0, 3.0, 2, 0, "used"),
        Span(1, "verify", 2.0, 4.0, 3, 1, "wasted"),
    )
    commits = (Commit(1.0, 1, "correction"), Commit(3.0, 2, "bonus"))
    recording = Recording("dsi", 2, 1, 3.0, spans, commits)
    assert list(suite.aborts.stale_s(recording)) == [0.25]


def test_an_anchored_model_says_its_text_with_any_cache(suite: Any, where: Any) -> None:
    import torch

    model = suite.models.llama(suite.models.TINY, "cpu", torch.bfloat16, seed=1)
    prompt = suite.models.prompt(256, 5, seed=1)
    plain = suite.models.generate(model, prompt, 12)
    text = np.concatenate([prompt, np.arange(40, 52)])
    suite.anchor.Anchor(model).say(text)
    assert plain != list(range(40, 52))
    for options in ({}, {"cache_implementation": "static"}):
        assert suite.models.generate(model, prompt, 12, **options) == list(range(40, 52))


def test_mistakes_are_as_many_as_asked_for(suite: Any) -> None:
    text = np.arange(60)
    wrong = suite.anchor.mistaken(text, 20, 0.25, 256, seed=0)
    assert (wrong[:20] == text[:20]).all()
    assert (wrong != text).sum() == 10
