"""The JSON of `dsi measure`: what is kept, what is refused, and what acceptance means in it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dsi_native.errors import InvalidArgument
from dsi_native.experiments.acceptance import acceptance_of, wilson
from dsi_native.experiments.measurement import MeasuredLatency, Measurement
from dsi_native.experiments.prompts import built_in_prompts, read_prompts

LATENCY = {"tpot_ms": 10, "ttft_ms": 20.0}
ACCEPTANCE = {"direct": 0.8, "low": 0.7, "high": 0.9, "judged": 100, "geometric": 0.79}
LEAST: dict[str, Any] = {
    "format": "dsi-measurement",
    "version": 1,
    "target": {"name": "t", **LATENCY, "growth": 0.1},
    "drafters": [{"name": "d", "tpot_ms": 1.0, "ttft_ms": 2.0, "acceptance": ACCEPTANCE}],
    "shared_hardware": False,
    "prompts": {},
    "tokens": 50,
    "machine": {},
}
OVERLAP = {
    "threads": 1,
    "target": {**LATENCY, "windows": [[0, 10.0], [4, 12.0]]},
    "drafters": [LATENCY],
    "slowdown": [{"targets": 2, "drafter": None, "target_factor": 1.5, "drafter_factor": 1.0}],
}


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    full = copy.deepcopy(LEAST) | {"contention": OVERLAP, "shared_hardware": True, "threads": 2}
    full["drafters"][0]["acceptance"]["hits"] = ["11-0?", "1"]
    full["drafters"][0]["ttfts_ms"] = [1, 2.5]
    for content in (LEAST, full):
        measurement = Measurement.from_dict(content)
        measurement.save(tmp_path / "m.json")
        assert Measurement.load(tmp_path / "m.json") == measurement
        assert json.loads((tmp_path / "m.json").read_text())["tokens"] == 50


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("format", "x", "format must be"),
        ("version", 2, "version must be 1"),
        ("target.tpot_ms", 0, "target.tpot_ms must be positive"),
        ("target.tpot_ms", "10", "target.tpot_ms must be a number"),
        ("target.ttft_ms", float("nan"), "target.ttft_ms must be a number"),
        ("target.growth", -0.1, "target.growth must be at least 0"),
        ("target.windows", [[1, 2.0], [1, 3.0]], "target.windows must be rising"),
        ("target.windows", [[1, 2.0, 3.0]], "target.windows[0] must have 2 values"),
        ("target.name", 3, "target.name must be a text"),
        ("target.speed", 3, "target.speed is no field"),
        ("target", [], "target must be an object"),
        ("drafters", {}, "drafters must be a list"),
        ("drafters", [], "drafters must not be empty"),
        ("drafters.0.acceptance.direct", 0.95, "drafters[0].acceptance.direct must lie in"),
        ("drafters.0.acceptance.high", 1.5, "drafters[0].acceptance.high must be between 0 and 1"),
        ("drafters.0.acceptance.judged", 1.5, "drafters[0].acceptance.judged must be a whole"),
        ("drafters.0.acceptance.hits", ["12"], "drafters[0].acceptance.hits has only"),
        ("shared_hardware", 1, "shared_hardware must be true or false"),
        ("tokens", True, "tokens must be a whole number"),
        ("tokens", 0, "tokens must be at least 1"),
        ("machine", "fast", "machine must be an object"),
        ("contention.threads", "2", "contention.threads must be a whole number"),
        ("contention.drafters", [], "contention.drafters must be as many"),
        ("contention.slowdown.0.targets", 0, "contention.slowdown[0].targets must be at least 1"),
        ("contention.slowdown.0.drafter", "d", "contention.slowdown[0].drafter must be a whole"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, where: str, value: Any, said: str) -> None:
    content = copy.deepcopy(LEAST | {"contention": OVERLAP})
    *path, last = where.split(".")
    place: Any = content
    for step in path:
        place = place[int(step) if step.isdigit() else step]
    place[int(last) if last.isdigit() else last] = value
    (tmp_path / "wrong.json").write_text(json.dumps(content))
    with pytest.raises(InvalidArgument) as raised:
        Measurement.load(tmp_path / "wrong.json")
    assert str(raised.value).startswith(f"{tmp_path / 'wrong.json'}: {said}")


@pytest.mark.parametrize("field", ["target", "drafters", "shared_hardware", "prompts", "tokens"])
def test_what_is_missing_is_named(field: str) -> None:
    content = {name: value for name, value in LEAST.items() if name != field}
    with pytest.raises(InvalidArgument, match=f"{field} is missing"):
        Measurement.from_dict(content)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for name, said in (("text", "no JSON"), ("nothing", "No such file")):
        with pytest.raises(InvalidArgument, match=said):
            Measurement.load(tmp_path / name)


def test_configuration_of_one_drafter() -> None:
    content = copy.deepcopy(LEAST)
    content["drafters"].append(copy.deepcopy(content["drafters"][0]) | {"tpot_ms": 4.0})
    content["drafters"][1]["acceptance"] = ACCEPTANCE | {"hits": ["1111", "----"]}
    measurement = Measurement.from_dict(content)
    first, second = (measurement.configuration(i, sp=3, seed=5) for i in (0, 1))
    assert (first.target.tpot_ms, first.target.first_ms, first.target.growth) == (10, 20, 0.1)
    assert (first.drafter.tpot_ms, first.acceptance, first.tokens, first.sp) == (1, 0.8, 50, 3)
    # A token without a draft is one without a right draft.
    assert (second.drafter.tpot_ms, second.acceptance) == (4, 0.4)
    with pytest.raises(InvalidArgument, match=r"drafter must be one of 0 \(d\), 1 \(d\), not 2"):
        measurement.configuration(2)
    with pytest.raises(InvalidArgument, match="bogus"):
        measurement.configuration(bogus=1)


def test_a_forward_between_measured_windows() -> None:
    line = MeasuredLatency(10.0, 20.0, growth=0.1)
    assert [line.forward_ms(w) for w in (0, 3)] == [10, 13]
    points = MeasuredLatency(10.0, 20.0, growth=0.1, windows=((0, 10.0), (2, 20.0), (4, 16.0)))
    assert [points.forward_ms(w) for w in (0, 1, 2, 3, 4, 6)] == [10, 15, 20, 18, 16, 18]


def test_acceptance_from_letters() -> None:
    found = acceptance_of(["1101", "1110?", "-0-"])
    assert (found.judged, found.direct) == (9, 6 / 9)
    # 2 and 1 accepted in a row (the last one cut short by the end), 3, and none.
    assert found.geometric == pytest.approx(1 - 1 / (1 + 6 / 4))
    assert found.of_positions == pytest.approx(6 / 11)
    assert (found.low, found.high) == wilson(6, 9)
    nothing = acceptance_of(["?", "--"])
    assert (nothing.direct, nothing.low, nothing.high, nothing.judged) == (0, 0, 1, 0)


def test_wilson() -> None:
    # Agresti and Coull 1998: 0 of 10 gives 0 to 0.278; and by symmetry.
    assert wilson(0, 10) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert wilson(10, 10) == (pytest.approx(0.7225, abs=1e-4), 1.0)
    assert wilson(8, 10) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


def test_prompts(tmp_path: Path) -> None:
    twelve = built_in_prompts()
    assert len(twelve) == 12 and all(prompt.text for prompt in twelve)
    assert [prompt.kind for prompt in twelve[:4]] == ["code", "prose", "edit", "code"]
    assert built_in_prompts(2) == twelve[:2]
    with pytest.raises(InvalidArgument, match="prompts: there are 1 to 12, not 13"):
        built_in_prompts(13)
    lines, array = tmp_path / "lines.txt", tmp_path / "list.json"
    lines.write_text("one\n\ntwo\n")
    array.write_text(json.dumps(["one", "two\nlines"]))
    assert read_prompts(lines) == ["one", "two"]
    assert read_prompts(array) == ["one", "two\nlines"]
    for text, said in (('{"a": 1}', "must be a list"), ("[1]", "must be a list"), ("[]", "none")):
        array.write_text(text)
        with pytest.raises(InvalidArgument, match=said):
            read_prompts(array)
    with pytest.raises(InvalidArgument, match=r"missing\.txt"):
        read_prompts(tmp_path / "missing.txt")
