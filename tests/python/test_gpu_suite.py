"""tests/gpu/run.sh runs on the CPU as far as that goes, and each of its checks can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GPU = Path(__file__).resolve().parents[1] / "gpu"
SECTIONS = {
    "equality": "passed",
    "independence": "passed",
    "overlap": "passed",
    "aborts": "passed",
    "host-time": "passed",
    "idle-pair": "passed",
    "busy-pair": "skipped",
}

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="needs: pip install transformers"
)


def found(suite: Any, run: Callable[..., None], *arguments: Any, **settings: Any) -> Any:
    """The section that run(section, ...) filled."""
    section = suite.section.Section("", 60)
    run(section, *arguments, **settings)
    return section


def failing(section: Any) -> set[str]:
    assert section.status == "failed"
    return {check.name for check in section.checks if not check.passed}


# -- all of it ----------------------------------------------------------------------------------


def run_script(report: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(GPU / "run.sh"), str(report), *options],
        env=os.environ | {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )


@pytest.mark.timeout(180)
def test_the_whole_script_on_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    run = run_script(path, "--device", "cpu", "--tiny")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    text = path.read_text()
    report = json.loads(text)
    assert (report["format"], report["version"]) == ("dsi-gpu-suite", 1)
    assert report["failed"] == []
    assert report["settings"] == {
        "device": "cpu",
        "tiny": True,
        "eager": False,
        "seconds": pytest.approx(455, 1),
    }
    for fact in ("device", "cores", "python", "commit", "torch", "transformers", "triton"):
        assert report["facts"][fact]
    for path_here in (str(GPU.parents[1]), str(tmp_path), str(Path.home()) + "/"):
        assert path_here not in text
    sections = report["sections"]
    assert {name: entry["status"] for name, entry in sections.items()} == SECTIONS
    for entry in sections.values():
        assert set(entry) == {"status", "seconds", "checks", "skipped", "figures"}
        assert all(set(check) == {"name", "passed", "detail"} for check in entry["checks"])
        assert all("needs CUDA" in skip["reason"] for skip in entry["skipped"])
    assert sections["equality"]["figures"]["texts_compared"] == 6
    assert all(sections["independence"]["figures"]["settings_by_timing"].values())
    assert sections["overlap"]["figures"]["host"]["both"] > 0
    for figure in ("stale_forward_ends_ms", "cancelled_request_ends_ms", "next_first_token_ms"):
        times = sections["aborts"]["figures"][figure]
        assert 0 < times["p50"] <= times["p99"]
    costs = sections["host-time"]["figures"]["us_per_token"]
    assert set(costs) == {"non-si", "non-si, busy Python", "si", "si, busy Python"}
    check_rows(sections["idle-pair"]["figures"]["rows"])
    for shown in ("Tokens per second, idle-pair", "A token's cost", "Texts", "failed: nothing"):
        assert shown in run.stdout


def check_rows(rows: list[dict[str, Any]]) -> None:
    ours = {"non-si", "si", "dsi"}
    assert {row["mode"] for row in rows} == {"plain", "static", "assisted"} | ours
    assert rows[0]["of_plain"] == 1
    for row in rows:
        rate = row["tokens_per_s"]
        assert 0 < rate["lowest"] <= rate["median"] <= rate["highest"]
        assert (row["predicted_tokens_per_s"] is not None) == (row["mode"] in ours)
    (si,) = (row for row in rows if row["mode"] == "si")
    assert si["acceptance"] == pytest.approx(0.8, abs=0.2)
    assert si["tokens_per_target_forward"] > 1


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    run = run_script(tmp_path / "x")
    assert (run.returncode, run.stderr) == (2, "no CUDA device\n")
    assert not (tmp_path / "x").exists()


# -- each check can fail ------------------------------------------------------------------------


@pytest.fixture
def checked(suite: Any, where: Any) -> Any:
    return suite.texts.Checked.made(where, prompts=1, tokens=12)


def changed(checked: Any, **fields: Any) -> Any:
    return type(checked)(**vars(checked) | fields)


def test_another_target_fails_equality(suite: Any, where: Any, checked: Any) -> None:
    other = suite.texts.Checked.made(where, prompts=1, tokens=12, seed=5)
    section = found(suite, suite.texts.equality, where, changed(checked, target=other.target))
    assert "every greedy text is that of transformers' generate()" in failing(section)
    assert section.figures["differences"] > 0


def test_a_wrong_drafter_fails_no_text(suite: Any, where: Any, checked: Any) -> None:
    def wrong(tokens: np.ndarray, most: int) -> list[int]:
        return [0] * most

    section = found(suite, suite.texts.equality, where, changed(checked, drafter=wrong))
    assert failing(section) == {"drafts were accepted"}


def test_a_perfect_drafter_shows_no_rejections(suite: Any, where: Any, checked: Any) -> None:
    section = found(suite, suite.texts.equality, where, changed(checked, drafter=checked.target))
    assert failing(section) == {"drafts were rejected"}


class DependsOnServers:
    """One model alone, another where there are several servers."""

    def __init__(self, one: Any, several: Any) -> None:
        self._one, self._several = one, several

    def __getattr__(self, name: str) -> Any:
        return getattr(self._one, name)

    def servers(self, n: int, threads: int | None = None) -> Any:
        return (self._one if n == 1 else self._several).servers(n, threads)


def test_a_text_that_depends_on_sp_fails_independence(suite: Any, where: Any, checked: Any) -> None:
    other = suite.texts.Checked.made(where, prompts=1, tokens=12, seed=5)
    target = DependsOnServers(checked.target, other.target)
    section = found(suite, suite.texts.independence, where, changed(checked, target=target))
    assert "every text is that of non-SI" in failing(section)


def test_servers_that_do_not_overlap_fail(suite: Any, where: Any) -> None:
    section = found(suite, suite.overlap.overlap, where, sp=1)
    assert failing(section) == {"servers verify at once, as the scheduler sees it"}


def test_without_wrong_drafts_nothing_is_stale(suite: Any, where: Any) -> None:
    section = found(suite, suite.aborts.aborts, where, wrong_drafts=False)
    assert failing(section) == {"stale forwards were seen"}


def test_a_request_that_is_not_cancelled_fails(
    suite: Any, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsi_native.request.Request.cancel", lambda self: None)
    monkeypatch.setattr(suite.aborts, "_LONG_S", 0.05)
    section = found(suite, suite.aborts.aborts, where)
    assert "cancelled requests end and leave no trace" in failing(section)


def test_another_text_fails_host_time(
    suite: Any, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite.host_time.Anchor, "say", lambda self, text: None)
    monkeypatch.setattr(suite.models, "generate", lambda *_: [1] * 12)
    section = found(suite, suite.host_time.host_time, where)
    assert failing(section) == {"non-si gives its text", "si gives its text"}


@pytest.mark.parametrize("whose", ["target", "drafter"])
def test_a_pair_that_says_something_else_fails(suite: Any, where: Any, whose: str) -> None:
    sizes = (suite.models.TINY, suite.models.TINY_DRAFTER)
    of = suite.speed.Subjects.made(sizes, where, 24, 0.8)
    wrong = suite.anchor.mistaken(of.text, len(of.prompt), 0.5, sizes[0].vocab, seed=1)
    if whose == "drafter":
        suite.anchor.Anchor(of.drafter).say(wrong)
    else:
        of = suite.speed.Subjects(of.target, of.drafter, wrong, of.prompt)
    section = found(suite, suite.speed.compare, where, sizes, "idle", subjects=of)
    expected = {
        "target": "every row has the recorded text",
        "drafter": "the drafter has the acceptance it was given",
    }
    assert failing(section) == {expected[whose]}


# -- what only a device does, with records made by hand ------------------------------------------


@pytest.fixture
def pretended(suite: Any) -> Any:
    """The CPU, taken for a device of CUDA."""

    class Pretended(suite.section.Where):
        cuda = True

    return Pretended("cpu", tiny=True)


@pytest.mark.parametrize(
    ("work", "held"),
    [
        ({7: [(0.0, 5.0)], 9: [(4.0, 9.0)]}, True),
        ({7: [(0.0, 4.0)], 9: [(4.0, 9.0)]}, False),
        ({7: [(0.0, 9.0)]}, False),
    ],
    ids=["two streams at once", "in turn", "one stream"],
)
def test_overlap_on_a_device(
    suite: Any, pretended: Any, monkeypatch: pytest.MonkeyPatch, work: Any, held: bool
) -> None:
    monkeypatch.setattr(suite.device_time, "traced", lambda run: (run(), work))
    section = found(suite, suite.overlap.overlap, pretended)
    last = section.checks[-1]
    assert last.name == "kernels of two streams run at once, as the device says"
    assert last.passed == held, last.detail
    assert section.figures["device"]["streams"] == len(work)


def test_host_time_beside_a_device(
    suite: Any, pretended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite.device_time, "traced", lambda run: (run(), {7: [(0.0, 24.0)]}))
    section = found(suite, suite.host_time.host_time, pretended)
    assert section.status == "passed"
    cost = section.figures["us_per_token"]["non-si"]
    assert cost["device"] == 2  # of 12 tokens
    assert cost["host"] > 0


@pytest.mark.parametrize(("rate", "status"), [(1e30, "passed"), (1.0, "failed")])
def test_a_pair_that_should_leave_the_device_idle(
    suite: Any, pretended: Any, monkeypatch: pytest.MonkeyPatch, rate: float, status: str
) -> None:
    monkeypatch.setattr(suite.speed, "_copied_bytes_per_s", lambda: rate)
    section = found(suite, suite.speed.idle_pair, pretended)
    assert section.status == status
    assert section.figures["static_cache_compiled"]


def test_a_device_too_small_for_the_busy_pair(
    suite: Any, pretended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (2**30, 2**34))
    section = found(suite, suite.speed.busy_pair, pretended)
    assert section.status == "skipped"
    assert section.skipped[0].reason == "1.0 GiB are free"
