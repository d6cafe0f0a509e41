"""`dsi timeline` and `dsi generate --record`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import dsi_native
from dsi_native.cli import run
from dsi_native.experiments.configuration import Configuration, Latency
from dsi_native.experiments.timeline import timeline
from dsi_native.recording import load_recordings
from tiny import tiny_drafter, tiny_target

BASIC = "--target-ms 70 --drafter-ms 10 --acceptance 0.7 --tokens 12"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_text_of_a_small_run(capsys: pytest.CaptureFixture[str], terminal: None) -> None:
    line = "--target-ms 70 --target-ttft-ms 90 --drafter-ms 10 --acceptance 0 --unstoppable target "
    line += "--sp 3 --lookahead 1 --tokens 3"
    assert run(["timeline", *line.split()]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\n".join(line.rstrip() for line in out.splitlines()) == TEXT.strip("\n")


TEXT = """
target 70 ms (first 90 ms), unstoppable; drafter 10 ms, acceptance 0; virtual
clock, seed 0

non-SI: 3 tokens in 230 ms
target 1   1███████████████████████2███████████████████3██████████████████
tokens     0             0            1             1            2

SI, lookahead 1: 3 tokens in 250 ms, 0.92x non-SI
drafter    1▓▓                        2▓▓
target 1      1+1▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓   2+1▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓3██████████████████
tokens     0             0            1             1            2

DSI, lookahead 1, SP 3: 3 tokens in 230 ms, 1.00x non-SI
drafter    1▓▓2▒                   2▓▓
target 1   1▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓2▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓3██████████████████
target 2   =====1+2▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒   2+1▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
target 3   =====
tokens     0             0            1             1            2

ms         0             50           100           150          200
██ accepted  ▓▓ rejected  ▒▒ wasted  == prefill
7+2: judges two drafts, from token 7; tokens: how many are final by then

                                  target                  targets drafter
       drafts accepted rejected forwards wasted cancelled    busy    busy
─────────────────────────────────────────────────────────────────────────
non-SI      0        0        0        3      0         0   100 %     0 %
SI          2        0        2        3      0         0    92 %     8 %
DSI         3        0        2        5      2         0    59 %    13 %
"""


@pytest.mark.parametrize(
    "line",
    [
        BASIC,
        "--target-ms 70 --drafter-ms 10 --acceptance 0.7 --target-ttft-ms 900 --unstoppable target",
        "--target-ms 20 --drafter-ms 2 --acceptance 0.7 --tokens 9 --online",
        "--target-ms 70 --drafter-ms 1 --acceptance 0.9 --sp 12 --tokens 3000",
        "--target-ms 0.7 --drafter-ms 0.1 --acceptance 0.9 --tokens 1",
    ],
)
def test_text_fits_80_columns(
    capsys: pytest.CaptureFixture[str], terminal: None, line: str
) -> None:
    assert run(["timeline", *line.split()]) == 0
    _, _, out = capsys.readouterr().out.partition("\n")  # the first line is all options, and wraps
    assert "…" not in out and max(map(len, out.splitlines())) <= 80
    assert all(name in out for name in ("DSI", "target 1", "tokens", "accepted", "judges"))


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra [plots]")
    paths = [tmp_path / name for name in ("a.png", "a.svg", "a.json")]
    options = [x for path in paths for x in ("-o", str(path))]
    assert run(["timeline", *BASIC.split(), *options]) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.splitlines()[3:] == [f"wrote {path}" for path in paths]
    assert out.startswith("non-SI: 12 tokens in 840 ms\nSI, lookahead")
    assert all(path.stat().st_size > 1000 for path in paths)
    assert json.loads(paths[2].read_text())["traceEvents"]


def test_json_is_what_recording_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["timeline", *BASIC.split(), "--json", "--mode", "si", "--mode", "dsi"]) == 0
    path = tmp_path / "runs.json"
    path.write_text(capsys.readouterr().out)
    modes = [recording.mode for recording in load_recordings(path)]
    assert modes == ["si", "dsi"]
    plain = tmp_path / "plain.json"
    assert run(["timeline", *BASIC.split(), "--json", "--mode", "non-si"]) == 0
    plain.write_text(capsys.readouterr().out)
    assert run(["timeline", "--recording", str(plain), "--recording", str(path), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [recording["mode"] for recording in content["recordings"]] == ["non-si", "si", "dsi"]
    assert run(["timeline", "--recording", str(plain), "--recording", str(path)]) == 0
    assert "x non-SI" in capsys.readouterr().out


def test_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(["timeline", *BASIC.split(), "-o", str(tmp_path / "x.svg")]) == 1
    assert "pip install 'dsi-native[plots]'" in capsys.readouterr().err
    assert run(["timeline", *BASIC.split(), "-o", str(tmp_path / "x.json")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"x.json"}


def test_every_verdict_has_a_colour_and_a_sign() -> None:
    from dsi_native.cli.timeline_text import _SIGNS
    from dsi_native.experiments.timeline_figure import _STYLES
    from dsi_native.recording import VERDICTS

    assert set(_STYLES) == set(_SIGNS) == set(VERDICTS)
    assert len({colour for colour, _, _ in _STYLES.values()}) == len(VERDICTS)
    for place in (0, 1):
        assert len({sign[place] for sign in _SIGNS.values()}) == len(VERDICTS)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "--target-ms is missing"),
        (f"{BASIC} -o x.pdf", "--output must end in .png, .svg, .json, not 'x.pdf'"),
        (f"{BASIC} -o nowhere/x.json", "--output: nowhere/x.json cannot be written"),
        ("--recording none.json", "--recording: none.json: No such file"),
        ("--recording bad.json", "--recording: bad.json: no JSON"),
        ("--recording trace.json", "--recording: trace.json: no recording"),
        ("--recording trace.json --tokens 3", "--tokens: --recording says that already"),
        ("--recording trace.json --c 0.1", "--c: --recording says that already"),
        ("--recording trace.json --from x", "--from: --recording says that already"),
        ("--recording trace.json --mode si", "--mode: --recording says that already"),
        ("--recording trace.json --online", "--online: --recording says that already"),
        (f"{BASIC} --drafter-ms 20 --acceptance 0.9", "--drafter-ms: a timeline shows one"),
        (f"{BASIC} --sp 0", "--sp must be at least 1"),
    ],
)
def test_mistakes_are_refused_by_name(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    line: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("no")
    timeline(Configuration(Latency(70), Latency(10), 0.7, tokens=3), ["si"]).save("trace.json")
    assert run(["timeline", *line.split()]) == 2
    out, err = capsys.readouterr()
    (message,) = err.splitlines()
    assert out == "" and message.startswith(f"error: {says}")


# -- dsi generate --record -------------------------------------------------------------------------


def test_a_real_run_is_recorded_and_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = tiny_target()
    engine = dsi_native.Engine

    def tiny(_target: Any, drafter: Any, **options: Any) -> Any:
        return engine(target, tiny_drafter(target, 0.02), **options)

    monkeypatch.setattr(dsi_native, "Engine", tiny)
    monkeypatch.setattr("dsi_native.cli.generate.as_prompt", lambda *_: [1, 2, 3])
    path = tmp_path / "run.json"
    line = ["generate", "x", "--target", "tiny", "--max-new-tokens", "9", "--lookahead", "2"]
    assert run([*line, "--record", str(path), "--json"]) == 0
    statistics = json.loads(capsys.readouterr().out)["statistics"]
    (recording,) = load_recordings(path)
    assert len(recording.commits) == 9 and recording.total_s == statistics["total_s"]
    assert run(["timeline", "--recording", str(path)]) == 0
    assert "DSI, lookahead 2, SP 2: 9 tokens in " in capsys.readouterr().out
    for bad in (tmp_path, tmp_path / "nowhere" / "x.json"):
        assert run([*line, "--record", str(bad)]) == 2
        assert f"error: --record: {bad} cannot be written" in capsys.readouterr().err
