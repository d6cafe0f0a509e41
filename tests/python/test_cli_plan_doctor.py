"""`dsi plan` against the closed forms, and `dsi doctor` on machines of every kind."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsi_native.cli import run
from dsi_native.cli.doctor import examine_cpu, examine_cuda, examine_torch
from fake_cuda import FakeCuda

T, D, A = 37.7, 2.5, 0.8


def planned(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    line = ["plan", "--target-ms", str(T), "--drafter-ms", str(D), "--acceptance", str(A), "--json"]
    assert run([*line, *more]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def si_ms(lookahead: int) -> float:
    """lookahead drafts and one forward per iteration, over the expected tokens it yields."""
    return (lookahead * D + T) / ((1 - A ** (lookahead + 1)) / (1 - A))


def test_plan_follows_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    answer = planned(capsys, "--sp", "16", "--tokens", "100")
    non_si, si, dsi = answer["rows"]
    assert (non_si["mode"], non_si["ms_per_token"], non_si["lookahead"]) == ("non-si", T, None)
    assert si["mode"] == "si"
    assert si["ms_per_token"] == pytest.approx(min(si_ms(k) for k in range(1, 100)))
    assert si["ms_per_token"] == pytest.approx(si_ms(si["lookahead"]))
    assert (dsi["mode"], dsi["lookahead"]) == ("dsi", math.ceil(T / (16 * D)))
    assert dsi["ms_per_token"] == pytest.approx(A * D + (1 - A) * T)
    for row in answer["rows"]:
        assert row["total_ms"] == pytest.approx(row["first_token_ms"] + 99 * row["ms_per_token"])
        assert row["speedup"] == pytest.approx(non_si["total_ms"] / row["total_ms"])


def test_plan_chooses_as_many_servers_as_help(capsys: pytest.CaptureFixture[str]) -> None:
    answer = planned(capsys)
    assert answer["inputs"]["sp"] == math.ceil(T / D)
    assert answer["rows"][-1]["lookahead"] == 1
    fewer = planned(capsys, "--sp", "4")
    assert fewer["rows"][-1]["lookahead"] == math.ceil(T / (4 * D))


def test_plan_takes_first_token_latencies(capsys: pytest.CaptureFixture[str]) -> None:
    slow_start = ("--target-ttft-ms", "400", "--drafter-ttft-ms", "10")
    non_si, si, dsi = planned(capsys, "--sp", "8", *slow_start)["rows"]
    assert non_si["first_token_ms"] == dsi["first_token_ms"] == 400
    assert si["first_token_ms"] == pytest.approx(410 + (si["lookahead"] - 1) * D)
    assert not planned(capsys, "--sp", "8", *slow_start)["equation_1_at_first_token"]
    assert planned(capsys, "--sp", "8")["equation_1_at_first_token"]


def test_plan_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--target-ms", "30", "--drafter-ms", "3", "--acceptance", "0.9"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("non-SI", "SI", "DSI", "lookahead", "ms/token"))
    assert "30.00" in out and f"{0.9 * 3 + 0.1 * 30:.2f}" in out


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--target-ms", "0"),
        ("--target-ms", "nan"),
        ("--drafter-ms", "-1"),
        ("--drafter-ms", "inf"),
        ("--acceptance", "1.1"),
        ("--acceptance", "nan"),
        ("--sp", "0"),
        ("--tokens", "0"),
        ("--target-ttft-ms", "0"),
        ("--drafter-ttft-ms", "nan"),
    ],
)
def test_plan_refuses_nonsense(capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    line = {"--target-ms": "30", "--drafter-ms": "3", "--acceptance": "0.5"} | {option: value}
    assert run(["plan", *(word for pair in line.items() for word in pair)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and len(err.splitlines()) == 1


def test_doctor_says_why_cuda_is_unavailable(fake_cuda: FakeCuda) -> None:
    fake_cuda.reset(2)
    answer = examine_cuda(fake_cuda.path)
    assert answer["summary"] == "driver for CUDA 12.8: Fake GPU 0, Fake GPU 1"
    assert (answer["available"], answer["devices"]) == (True, ["Fake GPU 0", "Fake GPU 1"])
    fake_cuda.set_init(100)
    answer = examine_cuda(fake_cuda.path)
    assert answer["summary"] == "unavailable: cuInit: CUDA_ERROR_NO_DEVICE (100)"
    assert (answer["available"], answer["devices"], answer["code"]) == (False, [], 100)
    assert json.loads(json.dumps(answer)) == answer


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cuda: Optional[str] = None\n", "built without CUDA"),
        ("cuda: Optional[str] = '12.8'\n", "built for CUDA 12.8"),
        ("cuda = '13.0'\n", "built for CUDA 13.0"),
        (None, "unknown"),
    ],
)
def test_doctor_reads_what_torch_was_built_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, says: str
) -> None:
    if text is not None:
        (tmp_path / "version.py").write_text(text)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    assert examine_torch() == says
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert examine_torch() == "not installed"


def test_doctor_without_a_driver_library() -> None:
    answer = examine_cuda("libno-such-driver.so.1")
    assert not answer["available"] and "no driver library" in answer["summary"]
    assert "libno-such-driver.so.1" in answer["summary"]


def test_doctor_reads_the_cpu(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    thread = "model name\t: Some CPU\nphysical id\t: 0\ncore id\t: {}\nflags\t: fpu avx2 fma\n\n"
    cpuinfo.write_text(thread.format(0) + thread.format(0) + thread.format(1))
    answer = examine_cpu(cpuinfo)
    assert (answer["name"], answer["cores"], answer["isa"]) == ("Some CPU", 2, ["avx2", "fma"])
    assert examine_cpu(tmp_path / "missing")["cores"] >= 1


def test_doctor_names_one_command_for_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = {"transformers", "gguf", "torch", "triton"}
    versions = lambda name: None if name in missing else "1.0"  # noqa: E731
    monkeypatch.setattr("dsi_native.cli.doctor._version", versions)
    monkeypatch.setattr("dsi_native.cli.doctor._embedded_model", lambda: (None, "get the model"))
    monkeypatch.setattr(
        "dsi_native.cli.doctor.examine_cuda",
        lambda: {"available": False, "summary": "none", "torch": "not installed"},
    )
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.count("not installed") == len(missing) + 2
    assert 'pip install "dsi-native[hf,torch]"' in out and "get the model" in out
    assert run(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["packages"]["torch"] is None


def test_doctor_exits_0_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "CUDA" in out and "Python" in out
