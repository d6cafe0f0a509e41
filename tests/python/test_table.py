"""Table 2: its figures against formulas and another simulation, its files, its command line."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dsi_native.cli import run
from dsi_native.errors import InvalidArgument
from dsi_native.experiments.measurement import (
    Acceptance,
    MeasuredDrafter,
    MeasuredTarget,
    Measurement,
    Prompts,
)
from dsi_native.experiments.paper import paper_rows
from dsi_native.experiments.run import simulate
from dsi_native.experiments.table import LOOKAHEADS, Table, measured_efficiency, table

DOCS = Path(__file__).resolve().parents[2] / "docs" / "table.md"

# Seconds for 50 tokens by a simulation that shares no code with this project (mean of 1500 runs):
# SI at its best lookahead, and DSI.
INDEPENDENT_S = (
    (0.554, 0.405), (0.604, 0.429), (2.24, 1.8), (2.111, 1.772), (2.476, 1.942),
    (2.162, 1.799), (1.156, 1.0), (0.979, 0.814), (0.86, 0.704), (0.791, 0.643),
)  # fmt: skip


@pytest.fixture(scope="module")
def offline() -> Table:
    return table()


def test_the_papers_rows() -> None:
    rows = paper_rows()
    assert len(rows) == 10 and len({row.name for row in rows}) == 10
    assert min(row.paper_speedup_vs_si for row in rows) == 1.29
    assert max(row.paper_speedup_vs_si for row in rows) == 1.92
    assert [row.dataset for row in rows if row.ttft_ratio_assumed] == ["Alpaca"]
    slow, plain = (rows[6].configuration(ttft=x, sp=3) for x in (True, False))
    assert slow.target.first_ms == pytest.approx(37.7 * 5.36)
    assert plain.target.first_ms == 37.7 and slow.sp == plain.sp == 3


def test_times(offline: Table) -> None:
    for row, paper in zip(offline.rows, paper_rows(), strict=True):
        plain_ms = (49 + paper.target_ttft_ratio) * paper.target_ms
        assert row.non_si.total_ms == pytest.approx(plain_ms, abs=1e-3)
        dsi = [row.dsi(k).total_ms for k in (None, *LOOKAHEADS)]
        assert max(dsi) <= row.non_si.total_ms
        assert all(row.si().total_ms <= row.si(k).total_ms for k in LOOKAHEADS)
        assert all(row.dsi(k).total_ms <= row.si(k).total_ms for k in LOOKAHEADS)
        assert row.dsi().total_ms < row.si().total_ms
        assert row.dsi().lookahead == row.least_lookahead


def test_an_independent_simulation_agrees(offline: Table) -> None:
    for row, (si_s, dsi_s) in zip(offline.rows, INDEPENDENT_S, strict=True):
        assert row.si().total_ms == pytest.approx(si_s * 1e3, rel=0.015), row.name
        assert row.dsi().total_ms == pytest.approx(dsi_s * 1e3, rel=0.015), row.name


@pytest.mark.parametrize("ttft", [True, False])
def test_dsi_stays_near_proposition_1(ttft: bool) -> None:
    for row, paper in zip(table(ttft=ttft).rows, paper_rows(), strict=True):
        t, d, a = paper.target_ms, paper.drafter_ms, paper.acceptance
        bound_ms = d * a * 49 + t * ((1 - a) * 49 + 1) + ttft * t * (paper.target_ttft_ratio - 1)
        assert row.bound_ms == pytest.approx(bound_ms)
        # 2 %: a mean of 300 runs. With a longer prompt drafts are ready before it has been read.
        if row.least_lookahead == 1:
            assert 0.95 * bound_ms < row.dsi().total_ms < 1.02 * bound_ms
        else:
            assert bound_ms < row.dsi().total_ms < 1.07 * bound_ms


def test_enough_servers_meet_proposition_1() -> None:
    for row in table(sp=17, ttft=False).rows:
        assert row.least_lookahead == 1
        assert row.dsi().total_ms == pytest.approx(row.bound_ms, rel=0.01), row.name


def test_equation_1_marks_lookaheads(offline: Table) -> None:
    assert [row.least_lookahead for row in offline.rows] == [1] * 6 + [3, 2, 2, 2]
    assert all(row.drafts_wait(1) == (row.least_lookahead > 1) for row in offline.rows)
    assert not any(row.drafts_wait(k) for row in offline.rows for k in (5, 10))


def test_what_a_token_costs(offline: Table) -> None:
    for row in offline.rows:
        values = row.to_dict()
        a = row.configuration.acceptance
        # A window and its end: the mean number of tokens that a verification commits.
        k = row.best_lookahead
        assert values["si_target_forwards"] == pytest.approx((1 - a) / (1 - a ** (k + 1)), rel=0.06)
        assert values["si_draft_forwards"] <= k * values["si_target_forwards"]
        # Of DSI every forward is of use or stopped; one of use commits 1 to lookahead+1 tokens.
        assert values["dsi_wasted_forwards"] == 0 < values["dsi_stopped_forwards"]
        of_use = values["dsi_target_forwards"] - values["dsi_stopped_forwards"]
        assert 1 / (1 + row.least_lookahead) < of_use <= 1 + 1e-9
        assert values["dsi_target_time"] > values["si_target_forwards"]


def test_forwards_that_run_to_their_end() -> None:
    free, bound = (table([1, 7], stoppable=x, repeats=20) for x in (True, False))
    for one, other in zip(free.rows, bound.rows, strict=True):
        assert one.dsi().stopped_forwards > 0 == one.dsi().wasted_forwards
        assert other.dsi().wasted_forwards > 0 == other.dsi().stopped_forwards
        assert one.dsi().total_ms < other.dsi().total_ms <= other.non_si.total_ms


def test_the_same_devices_tensor_parallel(offline: Table) -> None:
    # Rates published for a 7B model, 16 bits, on 1, 2, 4, 8 devices.
    for devices, rate in ((1, 104.9), (2, 168.84), (4, 254.02), (8, 328.43)):
        assert measured_efficiency(devices) == pytest.approx(rate / 104.9 / devices, abs=0.02)
    for row in offline.rows:
        assert row.devices == 8
        assert row.tensor_parallel_ms == pytest.approx(
            row.non_si.total_ms / 8 / measured_efficiency(8)
        )
    assert all(row.tensor_parallel_ms < row.dsi().total_ms for row in offline.rows)
    (row,) = table([1], tensor_parallel_efficiency=offline.rows[0].break_even_efficiency).rows
    assert row.tensor_parallel_ms == pytest.approx(row.dsi().total_ms)


def test_files_say_the_same(offline: Table, tmp_path: Path) -> None:
    for name in ("t.json", "t.csv", "t.md"):
        offline.save(tmp_path / name)
    rows = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert len(rows) == 10
    for row, found in zip(offline.rows, rows, strict=True):
        runs = found.pop("runs")
        assert found == row.to_dict()
        assert [r["total_ms"] for r in runs] == [r.total_ms for r in row.runs.values()]
    with (tmp_path / "t.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    for line, row in zip(lines, rows, strict=True):
        assert line == {name: "" if x is None else str(x) for name, x in row.items()}
    text = (tmp_path / "t.md").read_text()
    assert text == offline.to_markdown()
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.M)
    assert [len(one.splitlines()) for one in tables] == [12] * 4
    for line in text.splitlines():
        if line.startswith("| Vicuna-13B, CNN-DM"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            break
    first = rows[6]
    assert cells[1] == f"{first['non_si_ms']:.0f}" and cells[-2] == f"{first['dsi_least_ms']:.0f}"
    assert cells[6] == f"{first['dsi_1_ms']:.0f}\\*"
    assert "<table>" in offline._repr_html_() and "Vicuna-7B, Alpaca" in offline._repr_html_()


def test_the_page_of_the_documentation_is_up_to_date(offline: Table) -> None:
    text = DOCS.read_text()
    begin, end = "<!-- dsi table -o table.md -->\n", "<!-- end -->\n"
    assert text[text.index(begin) + len(begin) : text.index(end)] == offline.to_markdown()


def measured(path: Path) -> Measurement:
    found = Measurement(
        target=MeasuredTarget(8.0, 40.0, 0.02, name="big"),
        drafters=(
            MeasuredDrafter(2.0, 5.0, name="[small]", acceptance=Acceptance(0.8, 0.7, 0.9, 9, 0.8)),
            MeasuredDrafter(1.0, 1.5, name="tiny", acceptance=Acceptance(0.5, 0.4, 0.6, 99, 0.5)),
        ),
        shared_hardware=True,
        prompts=Prompts("built in", (7,)),
        tokens=24,
        machine={"cpu": "some"},
    )
    found.save(path)
    return found


def test_a_measurement_gives_further_rows(tmp_path: Path) -> None:
    found = measured(tmp_path / "m.json")
    made = table([9], measurement=found, repeats=5, tokens=20, sp=3)
    assert [row.name for row in made.rows] == ["Vicuna-7B, CNN-DM", "big, [small]", "big, tiny"]
    for number, row in enumerate(made.rows[1:]):
        assert row.configuration == found.configuration(number, tokens=20, sp=3)
        assert row.paper_speedup_vs_si is None
        assert row.bound_ms is None  # T grows with the window
        assert row.dsi().total_ms == simulate(row.configuration, "dsi", repeats=5).total_ms
    (row,) = table([], measurement=found, repeats=5, ttft=False).rows[1:]
    assert row.non_si.total_ms == pytest.approx(50 * 8)


def test_real_threads_say_the_same_and_take_a_little_longer() -> None:
    calls: list[tuple[float, str]] = []
    made = table([10], online=True, tokens=6, progress=lambda *x: calls.append(x))
    (row,) = made.rows
    (expected,) = table([10], tokens=6, repeats=1).rows
    assert row.runs.keys() == expected.runs.keys()
    for cell, run_ in row.runs.items():
        assert run_.online and run_.tokens == expected.runs[cell].tokens
        assert run_.virtual_ms == expected.runs[cell].total_ms
        assert run_.total_ms >= 0.999 * run_.virtual_ms
    assert row.tensor_parallel_ms == expected.tensor_parallel_ms
    assert 0.999 < row.wall_over_virtual <= row.worst_wall_over_virtual
    shares = [share for share, _ in calls]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1
    assert [what for _, what in calls] == ["row 1 of 1"] * len(row.runs) + [""]
    assert "What real threads add" in made.to_markdown()


# -- the command -----------------------------------------------------------------------------------


def said(capsys: pytest.CaptureFixture[str], line: str, status: int = 0) -> tuple[str, str]:
    assert run(["table", *line.split()]) == status
    return capsys.readouterr()


def test_the_json_is_the_apis(capsys: pytest.CaptureFixture[str], offline: Table) -> None:
    out, err = said(capsys, "--json")
    assert (json.loads(out), err) == (offline.to_dict(), "")


def test_every_option(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, more = tmp_path / "out.csv", tmp_path / "out.md"
    found = measured(tmp_path / "m.json")
    line = "--row 2 --row 7 --sp 3 --tokens 9 --repeats 4 --seed 5 --no-ttft --unstoppable "
    out, err = said(
        capsys, line + f"--efficiency 0.5 --from {tmp_path / 'm.json'} --json -o {path} -o {more}"
    )
    made = table(
        [2, 7], sp=3, tokens=9, repeats=4, seed=5, ttft=False, stoppable=False,
        tensor_parallel_efficiency=0.5, measurement=found,
    )  # fmt: skip
    assert json.loads(out) == made.to_dict()
    assert path.read_text() == made.to_csv()
    assert err == f"wrote {path}\nwrote {more}\n" and more.read_text() == made.to_markdown()


@pytest.mark.parametrize(
    "more", ["", "--online --row 10 --tokens 2", "--row 4 --tokens 2000 --repeats 1"]
)
def test_it_fits_80_columns(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    measured(tmp_path / "m.json")
    out, err = said(capsys, f"--from {tmp_path / 'm.json'} {more}")
    assert "…" not in out and max(map(len, out.splitlines())) <= 80
    for word in ("non-", "best", "least", "bound", "wasted", "stopped", "paper", "equal", "big,"):
        assert word in out
    assert "[small]" in out
    assert ("What real threads add" in out) == ("row 3 of 3" in err) == ("--online" in more)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--row 11", "--row must be 1 to 10, not 11"),
        ("--row 0", "--row must be 1 to 10, not 0"),
        ("--repeats 0", "--repeats must be at least 1"),
        ("--sp 0", "--sp must be at least 1"),
        ("--tokens 0", "--tokens must be at least 1"),
        ("--seed -1", "--seed must be in"),
        ("--efficiency 0", "--efficiency must be in (0, 1]"),
        ("--efficiency 1.5", "--efficiency must be in (0, 1]"),
        ("-o table.txt", "--output must end in .json, .csv, .md, not 'table.txt'"),
        ("-o no/where.csv", "--output: no/where.csv cannot be written"),
        ("--from nowhere.json", "--from: nowhere.json: No such file"),
    ],
)
def test_mistakes_are_refused_by_name(
    capsys: pytest.CaptureFixture[str], line: str, says: str
) -> None:
    out, err = said(capsys, line, status=2)
    assert out == "" and err.startswith(f"error: {says}") and len(err.splitlines()) == 1


def test_no_rows_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="rows must not be empty"):
        table([])


def test_saving_where_one_cannot(offline: Table, tmp_path: Path) -> None:
    (tmp_path / "folder.md").mkdir()
    values: list[tuple[Any, str]] = [
        (tmp_path / "folder.md", "folder.md: Is a directory"), ("x.png", "path must end in"),
    ]  # fmt: skip
    for path, says in values:
        with pytest.raises(InvalidArgument, match=says):
            offline.save(path)
