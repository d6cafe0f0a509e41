"""`dsi generate` with real engines: a tiny random model from a folder, and the embedded one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from dsi_native.cli import run
from test_text import byte_level
from tiny import tiny_drafter, tiny_target


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Folders of a target and of a drafter that mostly agrees with it."""
    root = tmp_path_factory.mktemp("models")
    target = tiny_target(vocab_size=len(byte_level()))
    for name, model in (("target", target), ("drafter", tiny_drafter(target, 0.02))):
        model.save_pretrained(root / name)
        byte_level().save_pretrained(root / name)
    return str(root / "target"), str(root / "drafter")


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["generate", "Hello there", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_loop_writes_the_same_text(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    target, drafter = folders
    common = ("--target", target, "--max-new-tokens", "40", "--threads", "1", "--seed", "5")
    for sampling in ((), ("--temperature", "0.8", "--top-k", "50")):
        plain = answer(capsys, *common, *sampling, "--mode", "non-si")
        assert plain["statistics"]["acceptance"] is None
        for options in (
            ("--mode", "si", "--drafter", drafter, "--lookahead", "3"),
            ("--mode", "dsi", "--drafter", drafter, "--sp", "3", "--lookahead", "1"),
            ("--mode", "dsi", "--drafter", "lookup"),
        ):
            other = answer(capsys, *common, *sampling, *options)
            assert (other["tokens"], other["text"]) == (plain["tokens"], plain["text"])
            assert other["statistics"]["mode"] == options[1]
    assert len(plain["tokens"]) == 40


def test_the_stream_is_the_text(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    target, drafter = folders
    common = ("--target", target, "--drafter", drafter, "--max-new-tokens", "24")
    text = answer(capsys, *common)["text"]
    assert run(["generate", "Hello there", *common]) == 0
    out, err = capsys.readouterr()
    assert out == text + "\n"
    assert "tokens per target forward" in err
    stop = re.findall(r"[!-~]{2}", text)[-1]
    stopped = answer(capsys, *common, "--stop", stop)
    assert (stopped["finish_reason"], stopped["text"]) == ("stop_string", text[: text.index(stop)])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--sp", "0"], "sp"),
        (["--lookahead", "0"], "lookahead"),
        (["--temperature", "-1"], "temperature"),
        (["--temperature", "nan"], "temperature"),
        (["--max-new-tokens", "0"], "max_new_tokens"),
        (["--top-p", "0"], "top_p"),
        (["--seed", "-1"], "seed"),
        (["--threads", "0"], "threads"),
        (["--chat"], "template"),
        (["--target", "/no/such/folder"], "/no/such/folder"),
        (["--drafter", "/no/such/folder"], "/no/such/folder"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    folders: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    target, _ = folders
    common = ["generate", "a", "--target", target, "--drafter", "lookup", "--max-new-tokens", "2"]
    assert run([*common, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out.strip() == ""
    assert len(err.splitlines()) == 1 and err.startswith("error: ") and says in err


def test_a_real_run_draws_nothing_and_ctrl_c_ends_it_quietly(folders: tuple[str, str]) -> None:
    target, drafter = folders
    line = ["generate", "Hello", "--target", target, "--drafter", drafter]
    child = subprocess.Popen(
        [sys.executable, "-m", "dsi_native", *line, "--max-new-tokens", "900", "--threads", "1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stderr is not None
    assert child.stdout.read(1) != b""
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, error = child.communicate(timeout=50)
    assert (child.returncode, error) == (130, b"")
    assert time.monotonic() - began < 5


@pytest.mark.real_model
def test_the_embedded_model_answers_the_same_in_every_loop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def generated(*options: str) -> dict[str, Any]:
        prompt = ["generate", "Name the three primary colours.", "--max-new-tokens", "12", "--json"]
        assert run([*prompt, *options]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return json.loads(out)

    plain = generated("--mode", "non-si")
    fast = generated("--mode", "dsi", "--drafter", "lookup")
    assert fast["tokens"] == plain["tokens"] and fast["text"] == plain["text"]
    assert len(plain["text"].split()) > 3
