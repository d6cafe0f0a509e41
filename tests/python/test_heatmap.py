"""Figure 2's grid: its oracles, its files, its command."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dsi_native.cli import run
from dsi_native.errors import Error, InvalidArgument
from dsi_native.experiments.configuration import Configuration, Latency
from dsi_native.experiments.heatmap import PANELS, Grid, Heatmap, evenly, heatmap, slower_share
from dsi_native.experiments.run import simulate

LATENCIES, ACCEPTANCES = (0.05, 0.2, 0.55, 1.0), (0.0, 0.4, 0.8, 1.0)
SMALL = Grid(LATENCIES, ACCEPTANCES, max_lookahead=30, sp=5, tokens=30, repeats=2, seed=4)


@pytest.fixture(scope="module")
def small() -> Heatmap:
    return heatmap(SMALL)


def test_paper_grid_is_the_default() -> None:
    grid = Grid()
    assert grid.shape == (100, 101)
    assert grid.drafter_latencies[0] == 0.01 and grid.drafter_latencies[-1] == 1.0
    assert grid.acceptances[0] == 0.0 and grid.acceptances[-1] == 1.0
    assert (grid.max_lookahead, grid.sp, grid.tokens, grid.repeats) == (200, 7, 100, 5)


def test_closed_forms_at_the_borders(small: Heatmap) -> None:
    tokens = SMALL.tokens
    assert (small.non_si == tokens).all()
    assert small.dsi[:, 0] == pytest.approx(tokens)  # nothing accepted
    all_right = [(tokens - 1) * d + 1 for d in LATENCIES]
    assert small.dsi[:, -1] == pytest.approx(all_right)
    assert small.si[:, -1] == pytest.approx(all_right)  # its one window holds all drafts
    assert small.si_lookahead[:, -1].tolist() == [29, 29, 29, 1]  # the last: all are as fast
    # Nothing accepted: each token costs a draft, the last one needs none.
    assert small.si[:, 0] == pytest.approx([tokens + (tokens - 1) * d for d in LATENCIES])
    assert (small.si_lookahead[:, 0] == 1).all()


def test_cells_are_what_simulate_says(small: Heatmap) -> None:
    for i, latency in enumerate(LATENCIES[:3]):
        for j, acceptance in enumerate(ACCEPTANCES):
            of = Configuration(
                Latency(1.0), Latency(latency), acceptance, SMALL.sp, tokens=SMALL.tokens,
                seed=SMALL.seed,
            )  # fmt: skip
            for mode, times, lookaheads in (
                ("si", small.si, small.si_lookahead),
                ("dsi", small.dsi, small.dsi_lookahead),
            ):
                one = of.replace(lookahead=int(lookaheads[i, j]))
                found = simulate(one, mode, repeats=SMALL.repeats).total_ms
                assert found == pytest.approx(times[i, j], rel=1e-6)


def test_theorem_1_in_every_cell(small: Heatmap) -> None:
    assert slower_share(small.panel("c")) == 0
    assert slower_share(small.panel("a")) > 0.3  # SI does lose where the drafter is slow or wrong
    assert (small.panel("d") <= small.panel("c") + 1e-12).all()
    assert (small.panel("d") <= small.panel("b") + 1e-12).all()
    with pytest.raises(InvalidArgument, match="name must be one of a, b, c, d"):
        small.panel("e")


def test_equation_1_costs_dsi_something_where_servers_are_few() -> None:
    few = Grid((0.01,), tuple(i / 10 for i in range(3, 7)), tokens=60, repeats=5)
    free, held = heatmap(few), heatmap(Grid(**{**vars(few), "equation_1": True}))
    assert (held.dsi_lookahead >= 15).all()  # 1 / (7 * 0.01)
    assert (free.dsi < held.dsi).all()
    # The paper's rule lets SI, at its best lookahead, win here; drafts that wait do not.
    assert slower_share(held.panel("b")) > 0
    assert slower_share(free.panel("b")) == 0


def test_threads_change_nothing(small: Heatmap) -> None:
    other = heatmap(SMALL, threads=3)
    assert (other.dsi == small.dsi).all() and (other.si_lookahead == small.si_lookahead).all()
    assert other.forwards == small.forwards


def test_progress_comes_in_the_calling_thread_and_ends_with_all() -> None:
    seen: list[tuple[int, int]] = []
    threads = set()

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        threads.add(threading.get_ident())

    heatmap(SMALL, progress=progress)
    assert seen[-1] == (16, 16)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert threads == {threading.get_ident()}


def test_what_progress_raises_ends_the_run() -> None:
    def progress(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        heatmap(Grid(), progress=progress)  # the whole grid would take minutes


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"sp": 0}, "sp"),
        ({"tokens": 0}, "tokens"),
        ({"repeats": 0}, "repeats"),
        ({"acceptances": (0.5, 1.5)}, "acceptances"),
        ({"drafter_latencies": (0.0, 0.5)}, "drafter_latencies"),
        ({"drafter_latencies": ()}, "drafter_latencies"),
        ({"max_lookahead": 0}, "max_lookahead"),
        # Equation 1 asks for 4 at a latency of 0.05.
        ({"max_lookahead": 3, "equation_1": True}, "max_lookahead"),
        ({"drafter_latencies": (0.5, 0.5)}, "drafter_latencies"),
        ({"acceptances": (0.5, 0.1)}, "acceptances"),
        ({"seed": -1}, "seed"),
    ],
)
def test_misuse_names_the_argument(changed: dict, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        heatmap(Grid(**{**vars(SMALL), **changed}))


def test_threads_must_be_positive() -> None:
    with pytest.raises(InvalidArgument, match="threads"):
        heatmap(SMALL, threads=0)


def test_evenly() -> None:
    assert evenly(0.01, 1, 0.01) == Grid().drafter_latencies
    assert evenly(0, 1, 0.3) == (0.0, 0.3, 0.6, 0.9)
    for wrong in ((1, 0, 0.1), (0, 1, 0), (0, 1, -0.1)):
        with pytest.raises(InvalidArgument):
            evenly(*wrong)


def test_csv_round_trip(small: Heatmap, tmp_path: Path) -> None:
    path = tmp_path / "small.csv"
    small.save(path)
    loaded = Heatmap.load(path)
    assert loaded.grid == SMALL  # the full configuration is in the header
    for name in ("non_si", "si", "dsi", "si_lookahead", "dsi_lookahead"):
        assert (getattr(loaded, name) == getattr(small, name)).all()
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# dsi_native") and lines[2].startswith("drafter_latency,acceptance")
    assert len(lines) == 3 + 16
    assert np.loadtxt(path, delimiter=",", skiprows=3).shape == (16, 7)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda text: "",
        lambda text: text.replace("# {", "# ["),
        lambda text: text[:-40],
        lambda text: text.replace("drafter_latency,", "latency,"),
        lambda text: "\n".join(text.split("\n")[:-4]),
    ],
)
def test_a_broken_csv_is_refused(small: Heatmap, tmp_path: Path, break_it) -> None:
    path = tmp_path / "broken.csv"
    path.write_text(break_it(small.to_csv()))
    with pytest.raises(InvalidArgument, match=r"broken\.csv"):
        Heatmap.load(path)


def test_pictures(small: Heatmap, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    small.save(tmp_path / "small.svg")
    text = (tmp_path / "small.svg").read_text()
    assert text.count("<image") >= 4  # one for each panel, not a path for each cell
    small.save(tmp_path / "small.png")
    assert (tmp_path / "small.png").read_bytes() == small._repr_png_()
    figure = small.figure()
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert [title.split("\n")[0] for title in titles] == [f"({k}) {v}" for k, v in PANELS.items()]
    assert ["pink" in title for title in titles] == [True, False, False, False]
    heatmap(Grid((0.5,), (0.5,), tokens=5)).figure()  # one cell is a picture too
    with pytest.raises(InvalidArgument, match=r"\.csv, \.png or \.svg"):
        small.save(tmp_path / "small.pdf")


def test_without_matplotlib(small: Heatmap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(Error, match=r"pip install 'dsi-native\[plots\]'"):
        small.figure()


# -- the command -----------------------------------------------------------------------------------

ASKED = ["--latencies", "0.1:1:0.3", "--acceptances", "0:1:0.5", "--tokens", "20", "--repeats", "1"]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    csv = tmp_path / "out.csv"
    assert run(["heatmap", *ASKED, "-o", str(csv)]) == 0
    shown = capsys.readouterr().out
    assert (
        "4 x 3 cells" in shown
        and "never" not in shown
        and f"wrote {csv}" in shown.replace("\n", "")
    )
    assert all(len(line) <= 80 for line in shown.splitlines() if "wrote" not in line)
    assert run(["heatmap", "--from", str(csv), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["configuration"]["drafter_latencies"] == [0.1, 0.4, 0.7, 1.0]
    assert answer["panels"]["c"]["slower_share"] == 0
    assert answer["panels"]["c"]["most"] == pytest.approx(20 / (19 * 0.1 + 1))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (["--latencies", "1:0:0.1"], "--latencies"),
        (["--acceptances", "x"], "--acceptances"),
        (["--sp", "0"], "--sp"),
        (["--threads", "0"], "--threads"),
        (["--max-lookahead", "1", "--latencies", "0.05", "--equation-1"], "--max-lookahead"),
        (["-o", "x.pdf"], "--output"),
        (["-o", "no/such/folder/x.csv"], "--output"),
        (["--from", "README.md"], "--from"),
    ],
)
def test_command_misuse(
    asked: list[str], named: str, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert run(["heatmap", *asked]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(f"error: {named}")
    assert captured.err.count("\n") == 1
