"""`dsi measure` on models whose latency and acceptance are known, and the plan made of it."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsi_native import Engine, SimulatedModel
from dsi_native.cli import measure as command
from dsi_native.cli import run
from dsi_native.errors import InvalidArgument
from dsi_native.experiments import probes
from dsi_native.experiments.measure import Models, check, measure, measure_models, open_models
from dsi_native.experiments.measurement import Measurement
from dsi_native.experiments.recorded import RecordedTarget, Text
from numpy_lm import NumpyLm, ScriptedLm

TOKENS, SEED, GROWTH = 32, 3, 0.1
T_MS, FIRST_MS, DRAFTS_MS, ACCEPTANCES = 6.0, 15.0, (1.0, 2.5), (0.85, 0.6)
PROMPTS = [[1] * 5, [2] * 50, [3] * 100]


def simulated() -> Models:
    target = SimulatedModel(T_MS * 1e-3, ttft_s=FIRST_MS * 1e-3, growth=GROWTH, seed=SEED)
    drafters = [
        SimulatedModel(ms * 1e-3, ttft_s=2 * ms * 1e-3, acceptance=a, seed=SEED)
        for ms, a in zip(DRAFTS_MS, ACCEPTANCES, strict=True)
    ]
    return open_models(target, drafters, PROMPTS)


def disturbance() -> float:
    """By which share other programs make waits longer just now: about 0.01 where there are none."""
    with Engine(SimulatedModel(T_MS * 1e-3, seed=SEED), mode="non-si") as engine:
        of = engine.generate([1], max_new_tokens=TOKENS).statistics
    return max(0.0, of.total_s * 1e3 / (T_MS * TOKENS) - 1)


def patiently(test: Callable[..., None]) -> Callable[..., None]:
    """Once more, and once more, where it fails while others keep the machine busy."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        for _ in range(2):
            before = disturbance()
            try:
                return test(*arguments, **named)
            except AssertionError:
                if max(before, disturbance()) < 0.05:
                    raise
        return test(*arguments, **named)

    return run


# Times are what this file is about, so a busy machine must be borne, and only a busy one.
Disturbed = tuple[Measurement, float]


@pytest.fixture(scope="module")
def disturbed() -> Disturbed:
    before = disturbance()
    found = measure_models(simulated(), max_new_tokens=TOKENS, sp=2)
    return found, 3 * max(before, disturbance())


@pytest.fixture(scope="module")
def measurement(disturbed: Disturbed) -> Measurement:
    return disturbed[0]


def test_latencies(disturbed: Disturbed) -> None:
    measurement, more = disturbed
    target = measurement.target
    assert target.tpot_ms == pytest.approx(T_MS, rel=0.15 + more)
    assert target.ttft_ms == pytest.approx(FIRST_MS, rel=0.15 + more)
    assert target.growth == pytest.approx(GROWTH, rel=0.4 + 5 * more)
    assert len(target.tpots_ms) == len(target.ttfts_ms) == len(PROMPTS)
    fitting = [window for window in probes.WINDOWS if 2 * (window + 1) <= TOKENS]
    assert [window for window, _ in target.windows] == [0, *fitting]
    for window, ms in target.windows:
        assert ms == pytest.approx(T_MS * (1 + GROWTH * window), rel=0.2 + more)
    for drafter, ms in zip(measurement.drafters, DRAFTS_MS, strict=True):
        assert drafter.tpot_ms == pytest.approx(ms, rel=0.3 + 3 * more)
        assert drafter.ttft_ms == pytest.approx(2 * ms, rel=0.3 + 3 * more)
    assert 0 < measurement.overhead_ms < (0.1 + more) * T_MS
    assert measurement.tokens == TOKENS
    assert measurement.prompts.tokens == tuple(len(prompt) for prompt in PROMPTS)


def test_own_hardware_is_not_shared(disturbed: Disturbed) -> None:
    measurement, more = disturbed
    assert not measurement.shared_hardware and measurement.contention is None
    # Where the thread that stops them waits for a core, forwards end by themselves.
    assert measurement.stoppable or more > 0.3
    forwards_end = SimulatedModel(2e-3, seed=SEED, stoppable=False)
    text = Text(np.array([1, *range(9)], np.int32), 1)
    assert not probes.is_stoppable(forwards_end, text, None)


def test_acceptance_holds_the_truth(measurement: Measurement) -> None:
    for drafter, truth in zip(measurement.drafters, ACCEPTANCES, strict=True):
        found = drafter.acceptance
        assert found.low <= truth <= found.high
        assert found.geometric == pytest.approx(found.direct, abs=0.05)
        # Each token but the last of a prompt, which nobody drafts.
        assert found.judged == len(PROMPTS) * (TOKENS - 1)


@patiently
def test_predictions_hold_where_servers_have_their_own_hardware(disturbed: Disturbed) -> None:
    measurement, more = disturbed
    rows = check(measurement, simulated(), sp=3)
    more += 3 * disturbance()
    assert [row.prediction.mode for row in rows] == ["non-si", "si", "dsi", "si", "dsi"]
    for row in rows:
        assert abs(row.error) < 0.15 + more, row
    # They must differ, or the test would prove nothing.
    plain, si, dsi, *_ = (row.measured_ms for row in rows)
    assert dsi < 0.8 * si < 0.8 * plain


def test_letters_are_those_of_the_text() -> None:
    text = [(7 * i) % 50 for i in range(20)]
    target = ScriptedLm(text, 50)

    def propose(tokens: np.ndarray, most: int) -> list[int]:
        at = len(tokens) - 1
        drafts = []
        for i in range(at, min(at + most, len(text))):
            if i % 7 == 3:
                break  # nothing to say here
            drafts.append((text[i] + (i % 5 == 2)) % 50)
        return drafts

    found = measure(target, propose, [[1]], max_new_tokens=20, sp=1)
    (hits,) = found.drafters[0].acceptance.hits
    expected = ["-" if i % 7 == 3 else "0" if i % 5 == 2 else "1" for i in range(19)]
    assert hits == "".join(expected) + "?"
    assert found.drafters[0].acceptance.direct == expected.count("1") / (19 - expected.count("-"))
    assert found.shared_hardware and found.contention is not None
    assert found.drafters[0].name == "propose"


class Slow:
    """Drafts `text`; reading a token takes 3 ms, and each draft 2 more."""

    vocab_size, context, tokenizer, name = 50, None, None, "slow"

    def __init__(self, text: list[int]) -> None:
        self._text, self._read = text, np.empty(0, np.int32)

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        return [self] * n

    def forward(self, request: int, tokens: np.ndarray, first: int, job: Any) -> np.ndarray:
        same = min(len(self._read), len(tokens) - 1)
        time.sleep(2e-3 + 3e-3 * (len(tokens) - same))
        self._read = np.array(tokens)
        rows = np.zeros((len(tokens) - first + 1, 50), np.float32)
        rows[-1, self._text[len(tokens) - 1]] = 1
        return rows


@patiently
def test_a_drafter_that_has_to_catch_up() -> None:
    text = [(7 * i) % 50 for i in range(24)]
    recorded = RecordedTarget(ScriptedLm(text, 50))
    whole = Text(np.array([1, *text], np.int32), 1)
    growth = probes._catching_up(recorded, Slow(text), whole, 24, None)
    assert growth == pytest.approx(3, rel=0.3)


@patiently
def test_forwards_that_compete_are_found_out() -> None:
    device = threading.Lock()

    def hold(*_: Any) -> None:
        with device:
            time.sleep(4e-3)

    target, drafter = NumpyLm(before=hold), NumpyLm(noise=0.1, before=hold)
    found = measure(target, drafter, [[1, 2]], max_new_tokens=16, sp=2, threads=1)
    assert found.contention is not None and not found.stoppable
    by_company = {(s.targets, s.drafter): s for s in found.contention.slowdown}
    assert set(by_company) == {(2, None), (1, 0), (2, 0)}
    assert by_company[2, None].target_factor > 1.5
    # A lock may favour one of two, so neither factor has to be 2.
    assert by_company[1, 0].target_factor + by_company[1, 0].drafter_factor > 2.5


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_new_tokens": 3}, "max_new_tokens must be at least 4"),
        ({"sp": 0}, "sp must be at least 1"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"drafters": []}, "drafters: at least one"),
        ({"drafters": "none"}, "drafters: 'none' is no drafter"),
        ({"prompts": [1, 2]}, "prompts: must be a list of prompts"),
    ],
)
def test_measure_names_what_is_wrong(wrong: dict[str, Any], said: str) -> None:
    asked: dict[str, Any] = {"drafters": "lookup", "prompts": [[1]]} | wrong
    with pytest.raises(InvalidArgument, match=said):
        measure(SimulatedModel(1e-3), **asked)


@patiently
def test_the_command_and_the_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "96")
    models = Models(*vars(simulated()).values())
    short = Models(models.target, models.drafters[:1], models.prompts[:1], "built in")
    monkeypatch.setattr(command, "_open", lambda *_: short)
    path = tmp_path / "m.json"
    assert run(["measure", "--max-new-tokens", "16", "--check", "--out", str(path)]) == 0
    out, err = capsys.readouterr()
    for word in ("TTFT, ms", "95 % interval", "predicted", "measured", "error", "DSI"):
        assert word in out
    assert f"wrote {path}" in " ".join(err.split()) and "check: dsi" in err
    found = Measurement.load(path)
    assert run(["plan", "--from", str(path), "--sp", "3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["mode"] for row in answer["rows"]] == ["non-si", "si", "dsi"]
    assert answer["rows"][0]["speedup"] == 1 and answer["rows"][2]["sp"] == 3
    assert answer["inputs"]["tokens"] == 16
    assert answer["rows"][0]["total_ms"] == pytest.approx(FIRST_MS + 15 * T_MS, rel=0.2)
    assert run(["plan", "--from", str(path), "--drafter", "0", "--tokens", "32"]) == 0
    out = capsys.readouterr().out
    assert "32 tokens" in out and found.drafters[0].name in " ".join(out.split())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("plan --from FILE --target-ms 3", "--target-ms: --from says that already"),
        ("plan --from FILE --drafter 5", "drafter must be one of"),
        ("plan --from FILE --sp 0", "sp must be at least 1"),
        ("plan --from missing.json", "missing.json: No such file"),
        ("plan --target-ms 3 --drafter-ms 1", "--acceptance is missing"),
        ("plan --target-ms 3 --drafter-ms 1 --acceptance 1 --drafter 0", "--drafter needs"),
        ("measure --prompts missing.txt", "prompts: missing.txt: No such file"),
        ("measure --out nowhere/m.json", "--out: nowhere/m.json cannot be written"),
        ("measure --target nothing", "'nothing' is no local folder"),
    ],
)
def test_the_commands_say_what_is_wrong(
    capsys: pytest.CaptureFixture[str], measurement: Measurement, tmp_path: Path, line: str,
    said: str,
) -> None:  # fmt: skip
    measurement.save(tmp_path / "m.json")
    assert run(line.replace("FILE", str(tmp_path / "m.json")).split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err.splitlines()[-1]


@pytest.mark.real_model
@pytest.mark.slow
@pytest.mark.timeout(300)
@patiently
def test_the_embedded_model_and_a_copy_of_it() -> None:
    models = open_models("smollm2", "int4")
    one = Models(models.target, models.drafters, models.prompts[1:2], "built in")
    found = measure_models(one, max_new_tokens=8, threads=1, sp=1)
    drafter = found.drafters[0]
    assert 0 < drafter.tpot_ms < found.target.tpot_ms < found.target.ttft_ms
    assert drafter.acceptance.judged == 7 and drafter.acceptance.direct > 0.5
    assert found.stoppable and found.shared_hardware and found.contention is not None
    assert found.machine["cpu"] and found.machine["torch"]
    (row, *_) = check(found, one, sp=1, threads=1)
    assert abs(row.steady_error) < 0.5, row
