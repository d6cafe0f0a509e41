"""What callers get wrong: values of wrong types, out of range, files that are something else.

Each is an InvalidArgument that names the argument, or one line that names the option.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsi_native.cli import run
from dsi_native.errors import InvalidArgument
from dsi_native.experiments import (
    Configuration,
    DrafterSpec,
    Grid,
    Heatmap,
    Latency,
    Measurement,
    Timeline,
    heatmap,
    predict,
    simulate,
    simulate_drafters,
    table,
    timeline,
)
from dsi_native.experiments.measurement import (
    Acceptance,
    MeasuredDrafter,
    MeasuredTarget,
    Prompts,
)
from dsi_native.files import write
from dsi_native.recording import Recording, save_recordings

SMALL = Configuration(Latency(10), Latency(2), acceptance=0.5, tokens=5)
NO_NUMBERS = ["3", None, [1], np.array([1, 2]), 1j, b"x", True]
NO_WHOLES = [*NO_NUMBERS, 1.5, float("nan"), float("inf"), np.float64(2)]
NO_FLAGS = ["yes", None, 1, [True], np.int64(1)]
MEASURED = Measurement(
    target=MeasuredTarget(30, 60, name="model"),
    drafters=(
        MeasuredDrafter(10, 20, name="model-int4", acceptance=Acceptance(0.5, 0.4, 0.6, 9, 0.5)),
        MeasuredDrafter(9, 9, name="[x]:ok:", acceptance=Acceptance(0.5, 0.4, 0.6, 9, 0.5)),
    ),
    shared_hardware=False,
    prompts=Prompts("[b]mine", (3,)),
    tokens=12,
    machine={},
)


def grid(**changes: Any) -> Any:
    return heatmap(
        Grid(**{"drafter_latencies": (0.1, 0.5), "acceptances": (0, 1), "tokens": 5, **changes})
    )


def drafters(**changes: Any) -> Any:
    return simulate_drafters(Latency(10), [DrafterSpec(Latency(2), 0.5)], **changes)


WHOLES: dict[str, Callable[[Any], Any]] = {
    "sp": lambda x: SMALL.replace(sp=x),
    "tokens": lambda x: SMALL.replace(tokens=x),
    "seed": lambda x: SMALL.replace(seed=x),
    "repeats": lambda x: simulate(SMALL, repeats=x),
    "max_lookahead": lambda x: grid(max_lookahead=x),
    "max_nodes": lambda x: drafters(max_nodes=x) if x is not None else drafters(tokens=x),
    "drafter": lambda x: MEASURED.configuration(x),
    "rows": lambda x: table([x]),
}
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "tpot_ms": lambda x: Latency(x),
    "growth": lambda x: Latency(1, growth=x),
    "jitter": lambda x: Latency(1, jitter=x),
    "acceptance": lambda x: SMALL.replace(acceptance=x),
    "acceptances": lambda x: grid(acceptances=(x,)),
}
FLAGS: dict[str, Callable[[Any], Any]] = {
    "stoppable": lambda x: Latency(1, stoppable=x),
    "online": lambda x: simulate(SMALL, online=x),
    "record": lambda x: simulate(SMALL, record=x),
    "equation_1": lambda x: grid(equation_1=x),
    "ttft": lambda x: table([1], ttft=x),
}


@pytest.mark.parametrize(
    ("name", "call", "value"),
    [
        (name, call, value)
        for calls, values in ((WHOLES, NO_WHOLES), (NUMBERS, NO_NUMBERS), (FLAGS, NO_FLAGS))
        for name, call in calls.items()
        for value in values
    ],
)
def test_a_value_of_a_wrong_type_is_refused_by_name(
    name: str, call: Callable[[Any], Any], value: Any
) -> None:
    with pytest.raises(InvalidArgument) as error:
        call(value)
    if value is not None or name != "max_nodes":
        assert name in str(error.value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: simulate(3), "configuration must be a Configuration, not 3"),
        (lambda: simulate(SMALL, ["si"]), "mode must be one of"),
        (lambda: Configuration(30, Latency(1), 0.5), "target must be a Latency"),
        (lambda: heatmap("paper"), "grid must be a Grid"),
        (lambda: grid().panel(["a"]), "name must be one of"),
        (lambda: Grid("123"), "drafter_latencies must be a sequence"),
        (lambda: Grid(()), "drafter_latencies must be finite, one at least"),
        (lambda: Grid((0.1, float("nan"))), "drafter_latencies must be finite"),
        (lambda: Grid(tokens=10**6, repeats=11), "repeats must be at most 10 with"),
        (lambda: table("12"), "rows must be a sequence"),
        (lambda: table([1], measurement="m.json"), "measurement must be a Measurement"),
        (lambda: table([1], sp="7"), "sp must be a whole number"),
        (lambda: timeline(SMALL, 3), "modes must be a sequence"),
        (lambda: Timeline.of([3]), "each of recordings must be a Recording"),
        (lambda: save_recordings("x.json", "si"), "recordings must be a sequence"),
        (lambda: simulate_drafters(Latency(10), Latency(2)), "drafters must be a sequence"),
        (lambda: drafters(right=True), "right must be a sequence"),
        (lambda: drafters(tokens=2**40), "tokens must be at most 1000000"),
        (lambda: predict("m.json"), "measurement must be a Measurement"),
        (lambda: SMALL.replace(tokens=2**31), "tokens must be at most 1000000"),
        (lambda: SMALL.replace(sp=2**31), "sp must be at most 65536"),
        (lambda: SMALL.replace(lookahead=2**31 - 1), "lookahead must be at most 1000000"),
        (lambda: Latency(1e-7), "tpot_ms must be from 1e-06 to 1e\\+09"),
        (lambda: Latency(1, ttft_ms=1e10), "ttft_ms must be from"),
    ],
)
def test_mistakes_are_refused(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        call()


def test_numbers_of_numpy_are_plain_afterwards() -> None:
    of = Configuration(
        Latency(np.float32(10), growth=np.int64(0), stoppable=np.bool_(True)),
        Latency(np.int64(2)),
        acceptance=np.float64(0.5),
        sp=np.int64(7),
        tokens=np.int32(5),
        seed=np.uint64(2**64 - 1),
    )
    plain = SMALL.replace(seed=2**64 - 1)
    assert of == plain
    assert json.dumps(of.to_dict()) == json.dumps(plain.to_dict())
    assert simulate(of).total_ms == simulate(plain).total_ms


@pytest.mark.parametrize("mode", ["si", "dsi"])
def test_a_run_longer_than_the_clock_is_refused(mode: str) -> None:
    of = Configuration(Latency(1e9), Latency(1e9), acceptance=0, lookahead=50, tokens=10**5)
    with pytest.raises(InvalidArgument, match="longer than the clock can count"):
        simulate(of, mode)
    with pytest.raises(InvalidArgument, match="longer than the clock can count"):
        simulate(Configuration(Latency(1, growth=1e300), Latency(0.1), 0.9), mode)
    with pytest.raises(InvalidArgument, match="longer than the clock can count"):
        simulate_drafters(Latency(1e9), [DrafterSpec(Latency(1e8), 0.5)])


def test_the_largest_values_still_run() -> None:
    of = Configuration(Latency(10), Latency(2), 0.5, sp=2**16, lookahead=10**6, tokens=2)
    assert simulate(of, "dsi").total_ms <= simulate(of, "non-si").total_ms


# -- files -------------------------------------------------------------------------------------


def spoiled(text: str, line: int, with_: str) -> str:
    lines = text.splitlines()
    lines[line] = with_
    return "\n".join(lines)


def test_a_heatmap_whose_cells_are_not_those_of_its_header_is_refused() -> None:
    text = grid().to_csv()
    lines = text.splitlines()
    cell = lines[3].split(",")
    for wrong in (
        "\n".join([*lines[:3], lines[4], lines[3], *lines[5:]]),
        spoiled(text, 3, ",".join([*cell[:2], "nan", *cell[3:]])),
        spoiled(text, 3, ",".join([*cell[:2], "-1", *cell[3:]])),
        spoiled(text, 1, lines[1].replace("[0.1, 0.5]", "[]")),
        spoiled(text, 1, lines[1].replace("[0.1, 0.5]", "[0.1, true]")),
    ):
        with pytest.raises(InvalidArgument, match="not the CSV of a heatmap"):
            Heatmap.from_csv(wrong)


def recording(**changes: Any) -> dict[str, Any]:
    found = simulate(SMALL, record=True).recording
    assert found is not None
    return {**found.to_dict(), **changes}


@pytest.mark.parametrize("option", ["timeline --recording", "heatmap --from", "simulate --from",
                                    "table --from", "timeline --from", "plan --from"])  # fmt: skip
def test_files_that_are_something_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str
) -> None:
    contents = {
        "empty": "", "binary": b"\xff\xfe\x00\x01", "list.json": "[]", "null.json": "null",
        "deep.json": "[" * 100_000, "number.json": "3", "runs.json": '{"recordings": 3}',
        "other.csv": "a,b\n1,2\n",
    }  # fmt: skip
    for name, content in contents.items():
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
    grid().save(tmp_path / "heatmap.csv")
    MEASURED.save(tmp_path / "measured.json")
    save_recordings(tmp_path / "recorded.json", [Recording.from_dict(recording())])
    right = {"timeline --recording": "recorded.json", "heatmap --from": "heatmap.csv"}
    for name in [*contents, "heatmap.csv", "measured.json", "recorded.json", "missing", "."]:
        if name == right.get(option, "measured.json"):
            continue
        assert run([*option.split(), str(tmp_path / name)]) == 2, name
        out, err = capsys.readouterr()
        named = option.split()[1]
        assert out == "" and err.startswith(f"error: {named}: {tmp_path / name}"), err
        assert err.count("\n") == 1 and "Errno" not in err


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("before")
    path.chmod(0o640)
    write(path, "after")
    assert path.read_text() == "after" and path.stat().st_mode & 0o777 == 0o640
    (tmp_path / "link").symlink_to(path)
    write(tmp_path / "link", "through")
    assert path.read_text() == "through" and (tmp_path / "link").is_symlink()
    with pytest.raises(InvalidArgument, match="No such file"):
        write(tmp_path / "nowhere" / "x.json", "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "x.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="/dev/full: No space left"):
        write("/dev/full", "x" * 10)


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "x.json"
    path.write_text("before")
    monkeypatch.setattr(os, "replace", fails)
    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(KeyboardInterrupt):
        write(path, "after")
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


# -- options -----------------------------------------------------------------------------------

BASIC = "--target-ms 10 --drafter-ms 2 --acceptance 0.5 --tokens 5"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"simulate {BASIC} --sp 99999999999", "sp must be at most 65536"),
        (f"simulate {BASIC} --lookahead 2147483647", "lookahead must be at most 1000000"),
        (f"timeline {BASIC} -o a.json -o a.json", "--output: a.json is given twice"),
        ("heatmap -o a.csv -o a.csv", "--output: a.csv is given twice"),
        ("table -o a.csv -o a.csv", "--output: a.csv is given twice"),
        (f"heatmap -o {'a' * 300}.csv", "cannot be written"),
        ("heatmap --latencies 0:inf:1", "--latencies must be FIRST:LAST:STEP"),
        ("heatmap --latencies 0.1:1:1e-9", "--latencies must be FIRST:LAST:STEP"),
        ("heatmap --latencies nan", "--latencies must be finite"),
        ("heatmap --tokens 99999999999", "--tokens must be at most 1000000"),
        ("heatmap --repeats 1000000", "--repeats must be at most 100000 with"),
        ("table --sp 99999999999", "--sp must be at most 65536"),
        ("table --efficiency nan", "--efficiency must be in (0, 1]"),
    ],
)
def test_options_out_of_range(capsys: pytest.CaptureFixture[str], line: str, says: str) -> None:
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1


def test_names_are_shown_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    MEASURED.save("m.json")
    for line, says in (
        ("table --from m.json --row 1 -o [b]:x:.csv", ["model, int4", "[x]:ok:"]),
        ("plan --from m.json", ["int4", "[x]:ok:"]),
    ):
        assert run(line.split()) == 0
        out, err = capsys.readouterr()
        assert all(name in out for name in says)
        assert max(map(len, out.splitlines())) <= 80
        assert line.startswith("plan") or "wrote [b]:x:.csv" in err
    assert Path("[b]:x:.csv").exists()
