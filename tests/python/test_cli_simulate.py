"""`dsi simulate`: its options, its tables, its JSON; names of the published simulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsi_native.cli import run
from dsi_native.experiments.configuration import Configuration, Latency
from dsi_native.experiments.measurement import (
    Acceptance,
    MeasuredDrafter,
    MeasuredTarget,
    Measurement,
    Prompts,
)
from dsi_native.experiments.multi import DrafterSpec, simulate_drafters
from dsi_native.experiments.run import simulate

BASIC = "--target-ms 8 --drafter-ms 2 --acceptance 0.7"


def simulated(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    assert run(["simulate", *line.split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], line: str) -> str:
    assert run(["simulate", *line.split()]) == 2
    out, err = capsys.readouterr()
    (message,) = err.splitlines()
    assert out == "" and message.startswith("error: ")
    return message.removeprefix("error: ")


def test_rows_are_what_the_api_says(capsys: pytest.CaptureFixture[str]) -> None:
    answer = simulated(capsys, f"{BASIC} --sp 3 --tokens 30 --repeats 5 --seed 9")
    configuration = Configuration(Latency(8), Latency(2), 0.7, sp=3, tokens=30, seed=9)
    assert answer["configuration"] == configuration.to_dict()
    assert [row["mode"] for row in answer["rows"]] == ["non-si", "si", "dsi"]
    plain_ms = answer["rows"][0]["total_ms"]
    assert plain_ms == pytest.approx(240)
    for row in answer["rows"]:
        expected = simulate(configuration, row["mode"], repeats=5)
        assert row["total_ms"] == expected.total_ms
        assert row["lookahead"] == expected.lookahead
        assert row["speedup"] == plain_ms / row["total_ms"]
        assert len(row["total_ms_each"]) == 5 and "tokens" not in row


def test_every_option_of_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        f"{BASIC} --sp 2 --lookahead 3 --tokens 5 --seed 4 --target-ttft-ms 20 --drafter-ttft-ms 3 "
        "--growth 0.1 --target-jitter 0.2 --drafter-jitter 0.3 --unstoppable drafter --repeats 1"
    )
    assert (
        simulated(capsys, line)["configuration"]
        == Configuration(
            Latency(8, 20, 0.1, 0.2, True), Latency(2, 3, 0.0, 0.3, False), 0.7, 2, 3, 5, 4
        ).to_dict()
    )


@pytest.mark.parametrize(
    ("who", "stoppable"),
    [("none", (True, True)), ("target", (False, True)), ("both", (False, False))],
)
def test_unstoppable(
    capsys: pytest.CaptureFixture[str], who: str, stoppable: tuple[bool, bool]
) -> None:
    found = simulated(capsys, f"{BASIC} --unstoppable {who} --repeats 1")["configuration"]
    assert (found["target"]["stoppable"], found["drafter"]["stoppable"]) == stoppable


def test_online_runs_real_threads(capsys: pytest.CaptureFixture[str]) -> None:
    rows = simulated(capsys, f"{BASIC} --online --tokens 10")["rows"]
    assert all(row["online"] and row["repeats"] == 1 for row in rows)
    for row in rows:
        assert row["total_ms"] > row["virtual_ms"] * 0.999
        assert row["wall_over_virtual"] == pytest.approx(row["total_ms"] / row["virtual_ms"])


def test_tables_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    slow = "--target-ms 100 --drafter-ms 20 --acceptance 0.7 --tokens 4 --online"
    two = "--target-ms 100 --drafter-ms 9 --acceptance 0.6 --drafter-ms 30 --acceptance 0.9"
    for line in (slow, two):
        assert run(["simulate", *line.split()]) == 0
        out = capsys.readouterr().out
        assert "…" not in out and max(map(len, out.splitlines())) <= 80
        assert all(name in out for name in ("non-SI", "DSI", "speedup", "virtual"))


def test_names_of_the_published_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--c 3 --c_sub 2 --failure_cost 20 --failure_cost_sub 8 --a 0.7 --k 2 --S 30 "
    found = simulated(capsys, line + "--num_target_servers 3 --repeats 1")["configuration"]
    assert found == Configuration(Latency(8, 20), Latency(2, 3), 0.7, 3, 2, 30).to_dict()
    short = simulated(capsys, "--c 0.1 --a 0.7 --repeats 1 --unstoppable both")["configuration"]
    assert (
        short
        == Configuration(
            Latency(1, 1, stoppable=False), Latency(0.1, 0.1, stoppable=False), 0.7
        ).to_dict()
    )


def test_its_errors_keep_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "--c 1.1 --a 0.7")
    assert message.startswith("DrafterSlowerThanTargetError: ")
    message = refused(capsys, "--c 0.1 --a 0.7 --k 1 --num_target_servers 4")
    assert message.startswith("NumOfTargetServersInsufficientError: ")
    # On TPOT: with these first forwards alone Equation 1 would not hold.
    line = "--c 1 --c_sub 1 --failure_cost 9 --failure_cost_sub 2 --a 0.5 --k 1 "
    simulated(capsys, line + "--num_target_servers 2 --repeats 1")


def test_what_the_published_simulator_refuses_runs_by_our_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "--target-ms 1 --drafter-ms 1.1 --acceptance 0.7 --repeats 3"
    rows = simulated(capsys, line)["rows"]
    assert rows[2]["total_ms"] <= rows[0]["total_ms"] < rows[1]["total_ms"]
    line = "--target-ms 8 --drafter-ms 1 --acceptance 0.7 --lookahead 1 --sp 2"
    assert run(["simulate", *line.split()]) == 0
    assert "lookahead of at least 4" in capsys.readouterr().out


def test_several_drafters(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--target-ms 8 --drafter-ms 2 --acceptance 0.6 --drafter-ms 4 --acceptance 0.9"
    answer = simulated(capsys, f"{line} --repeats 3 --tokens 20 --seed 5")
    plain, fast, right, both = answer["rows"]
    specs = [DrafterSpec(Latency(2), 0.6), DrafterSpec(Latency(4), 0.9)]
    runs = [simulate_drafters(Latency(8), specs, tokens=20, seed=5 + i) for i in range(3)]
    assert plain["total_ms"] == pytest.approx(160)
    assert both["total_ms"] == pytest.approx(sum(x.total_ms for x in runs) / 3)
    assert both["total_ms"] <= min(fast["total_ms"], right["total_ms"]) < plain["total_ms"]
    alone = simulate_drafters(Latency(8), specs[1:], tokens=20, right=[runs[0].right[1]])
    assert simulated(capsys, f"{line} --repeats 1 --tokens 20 --seed 5")["rows"][2][
        "total_ms"
    ] == pytest.approx(alone.total_ms)
    assert len(answer["configuration"]["drafters"]) == 2


def measured(path: Path, **changes: Any) -> Measurement:
    rate = Acceptance(0.8, 0.75, 0.85, 300, 0.8)
    found = Measurement(
        target=MeasuredTarget(8.0, 40.0, 0.02, name="big"),
        drafters=(
            MeasuredDrafter(2.0, 5.0, name="small", acceptance=rate),
            MeasuredDrafter(1.0, 1.5, name="tiny", acceptance=Acceptance(0.5, 0.4, 0.6, 99, 0.5)),
        ),
        shared_hardware=True,
        prompts=Prompts("built in", (7,)),
        tokens=24,
        machine={"cpu": "some"},
        **changes,
    )
    found.save(path)
    return found


def test_a_measurement_in_place_of_latencies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "m.json"
    found = measured(path, stoppable=False)
    answer = simulated(capsys, f"--from {path} --drafter 1 --sp 3 --repeats 1")
    assert answer["configuration"] == found.configuration(1, sp=3).to_dict()
    freed = simulated(capsys, f"--from {path} --unstoppable none --tokens 9 --repeats 1")
    assert freed["configuration"]["target"]["stoppable"]
    assert (freed["configuration"]["tokens"], freed["configuration"]["acceptance"]) == (9, 0.8)
    assert run(["simulate", "--from", str(path), "--repeats", "1"]) == 0
    assert "big, each server on its own hardware" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "--target-ms is missing"),
        ("--target-ms 8 --acceptance 0.7", "--drafter-ms is missing"),
        ("--target-ms 8 --drafter-ms 2", "--acceptance is missing"),
        ("--target-ms 8 --drafter-ms 2 --drafter-ms 3 --acceptance 1", "--acceptance: one for"),
        (f"{BASIC} --drafter-ttft-ms 3 --drafter-ttft-ms 3", "--drafter-ttft-ms: one for each"),
        (f"{BASIC} --drafter 0", "--drafter needs a measurement"),
        (f"{BASIC} --repeats 0", "--repeats must be at least 1"),
        (f"{BASIC} --c 1 --a 1", "--target-ms: not together with names of the published"),
        ("--c 1", "--a is missing"),
        ("--a 1", "--c is missing"),
        ("--c -1 --a 1", "--c must be positive"),
        ("--c 1 --a 1 --c_sub 0", "--c_sub must be positive"),
        ("--c 1 --a 1 --failure_cost nan", "--failure_cost must be positive"),
        ("--c 1 --a nan", "--a must be between 0 and 1"),
        ("--c 1 --a 1 --num_target_servers 0", "--num_target_servers must be at least 1"),
        ("--c 1 --a 1 --S 0", "--S must be at least 1"),
        ("--c 1 --a 1 --k 0", "--k must be at least 1"),
        ("--c 1 --a 1 --seed -1", "--seed must be in"),
        (f"{BASIC} --growth inf", "--growth must be at least 0"),
        (f"{BASIC} --drafter-ttft-ms nan", "--drafter-ttft-ms must be positive"),
        ("--c 1 --a 1 --sp 3", "--sp: not together with names of the published"),
        ("--from x --target-ms 8", "--target-ms: --from says that already"),
        ("--from nowhere.json", "nowhere.json: No such file"),
        ("--target-ms -8 --drafter-ms 2 --acceptance 1", "--target-ms must be positive"),
        ("--target-ms 8 --drafter-ms 0 --acceptance 1", "--drafter-ms must be positive"),
        ("--target-ms 8 --drafter-ms 2 --acceptance 1.1", "--acceptance must be between 0 and 1"),
        (f"{BASIC} --target-jitter 1", "--target-jitter must be"),
        (f"{BASIC} --sp 0", "--sp must be at least 1"),
        (f"{BASIC} --drafter-ms 3 --acceptance 1 --sp 2", "--sp: several drafters"),
        (f"{BASIC} --drafter-ms 3 --acceptance 1 --online", "--online: several drafters"),
        (f"{BASIC} --drafter-ms 1 --acceptance 1", "drafters must be ordered by latency"),
    ],
)
def test_mistakes_are_refused_by_name(
    capsys: pytest.CaptureFixture[str], line: str, says: str
) -> None:
    assert says in refused(capsys, line)
