"""Figure 2 of arXiv 2405.14105: who is how much faster, over drafter latency and acceptance."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dsi_native
from dsi_native import _core, checks, files
from dsi_native.errors import Error, InvalidArgument
from dsi_native.experiments.configuration import MOST_SERVERS, MOST_TOKENS
from dsi_native.experiments.figures import png_bytes, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What each panel shows: how many times as fast the first one is.
PANELS = {
    "a": "SI over non-SI",
    "b": "DSI over SI",
    "c": "DSI over non-SI",
    "d": "DSI over the better of SI and non-SI",
}
ROUNDING = 1e-9  # two means of the same times may differ by this
_COLUMNS = ("non_si", "si", "dsi", "si_lookahead", "dsi_lookahead")
_HEADER = "drafter_latency,acceptance," + ",".join(_COLUMNS)
_AXES = ("drafter_latencies", "acceptances")
_MOST = {"max_lookahead": MOST_TOKENS, "sp": MOST_SERVERS, "tokens": MOST_TOKENS,
         "repeats": MOST_TOKENS}  # fmt: skip
_MOST_TOKENS_A_CELL = 10**7  # kept by each thread, for all its runs
MOST_VALUES = 10_000  # of an axis
_STRETCH_S = 0.2  # between two reports of progress


@dataclass(frozen=True)
class Grid:
    """What a heatmap is over; the paper's values are the default.

    drafter_latencies: one drafter forward in target forwards (d/T), each > 0. acceptances: in
    [0, 1]. max_lookahead: lookaheads 1..max_lookahead are tried. sp: target servers of DSI; non-SI
    and SI use one. tokens: new tokens of a run (S in the paper). repeats: runs with seeds seed,
    seed+1, ..., the same in every cell. equation_1: whether DSI is held to lookaheads that Equation
    1 allows, as the paper holds it; without them drafts wait for a server and are judged together,
    which is faster, and where the drafter is very fast it is what keeps DSI ahead of SI.
    """

    drafter_latencies: tuple[float, ...] = tuple(i / 100 for i in range(1, 101))
    acceptances: tuple[float, ...] = tuple(i / 100 for i in range(101))
    max_lookahead: int = 200
    sp: int = 7
    tokens: int = 100
    repeats: int = 5
    seed: int = 0
    equation_1: bool = False

    def __post_init__(self) -> None:
        for name in ("drafter_latencies", "acceptances"):
            values = tuple(checks.number(name, x) for x in checks.listed(name, getattr(self, name)))
            if not values or not all(map(math.isfinite, values)):
                raise InvalidArgument(f"{name} must be finite, one at least, not {values}")
            if any(left >= right for left, right in pairwise(values)):
                raise InvalidArgument(f"{name} must rise from one to the next, not {values}")
            object.__setattr__(self, name, values)
        for name, most in _MOST.items():
            object.__setattr__(self, name, checks.whole(name, getattr(self, name), high=most))
        if self.tokens * self.repeats > _MOST_TOKENS_A_CELL:
            raise InvalidArgument(
                f"repeats must be at most {_MOST_TOKENS_A_CELL // self.tokens} with {self.tokens} "
                f"tokens, not {self.repeats}"
            )
        object.__setattr__(self, "seed", checks.seed_of(self.seed))
        object.__setattr__(self, "equation_1", checks.flag("equation_1", self.equation_1))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.drafter_latencies), len(self.acceptances)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), **{n: list(getattr(self, n)) for n in _AXES}}


@dataclass(frozen=True)
class Heatmap:
    """Mean time of a run in target forwards, each of SI and DSI at its best lookahead.

    non_si, si, dsi: float64 [drafter latencies, acceptances]; si_lookahead, dsi_lookahead: int64 of
    that shape, the least of the fastest ones. forwards: how many the simulations began; seconds:
    of wall, both None where they came from a file.
    """

    grid: Grid = field(repr=False)
    non_si: np.ndarray = field(repr=False)
    si: np.ndarray = field(repr=False)
    dsi: np.ndarray = field(repr=False)
    si_lookahead: np.ndarray = field(repr=False)
    dsi_lookahead: np.ndarray = field(repr=False)
    forwards: int | None = None
    seconds: float | None = None

    def panel(self, name: str) -> np.ndarray:
        """Speedups of one of PANELS, float64 [drafter latencies, acceptances]; below 1: slower."""
        slow, fast = {
            "a": (self.non_si, self.si),
            "b": (self.si, self.dsi),
            "c": (self.non_si, self.dsi),
            "d": (np.minimum(self.si, self.non_si), self.dsi),
        }[checks.choice("name", name, PANELS)]
        return slow / fast

    # -- files --------------------------------------------------------------------------------

    def to_csv(self) -> str:
        """One line for each cell, behind a header that says with what it was made."""
        text = io.StringIO()
        text.write(f"# dsi_native {dsi_native.__version__}: times in target forwards\n")
        text.write(f"# {json.dumps(self.grid.to_dict())}\n{_HEADER}\n")
        for i, latency in enumerate(self.grid.drafter_latencies):
            for j, acceptance in enumerate(self.grid.acceptances):
                cell = [getattr(self, name)[i, j].item() for name in _COLUMNS]
                text.write(",".join(map(repr, (latency, acceptance, *cell))) + "\n")
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str) -> Heatmap:
        """What to_csv made. Raises InvalidArgument where it did not."""
        try:
            lines = text.splitlines()
            content = json.loads(lines[1].removeprefix("# "))
            grid = Grid(**{**content, **{name: tuple(content[name]) for name in _AXES}})
            if lines[2] != _HEADER:
                raise ValueError(f"the third line is not {_HEADER}")
            rows = np.array([[float(x) for x in row] for row in csv.reader(lines[3:])])
            cells = rows[:, 2:].reshape(*grid.shape, len(_COLUMNS))
            wanted = [(x, y) for x in grid.drafter_latencies for y in grid.acceptances]
            if not np.array_equal(rows[:, :2], wanted):
                raise ValueError("its lines are not the cells of its header")
            if not (np.isfinite(cells).all() and (cells > 0).all()):
                raise ValueError("a cell holds no times")
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise InvalidArgument(f"text: not the CSV of a heatmap ({error})") from None
        return cls._of(grid, cells)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Heatmap:
        """From a CSV file that `save` made. Raises InvalidArgument naming the file."""
        text = files.read_text(path)
        try:
            return cls.from_csv(text)
        except InvalidArgument as error:
            raise InvalidArgument(f"{os.fspath(path)}: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """CSV, PNG or SVG, by the ending of `path`.

        Raises InvalidArgument for others and where the file cannot be written, Error where
        matplotlib is missing.
        """
        ending = Path(path).suffix.lower()
        if ending == ".csv":
            files.write(path, self.to_csv())
        elif ending in (".png", ".svg"):
            write_figure(self.figure(), path)
        else:
            raise InvalidArgument(f"path must end in .csv, .png or .svg, not {os.fspath(path)!r}")

    # -- pictures -----------------------------------------------------------------------------

    def figure(self) -> Figure:
        """All four panels. Needs matplotlib, the extra [plots]."""
        from dsi_native.experiments.heatmap_figure import draw

        return draw(self)

    def _repr_png_(self) -> bytes | None:
        try:
            return png_bytes(self.figure())
        except Error:  # no matplotlib; a notebook then shows __repr__
            return None

    @classmethod
    def _of(cls, grid: Grid, cells: np.ndarray, **others: Any) -> Heatmap:
        times = {name: cells[..., i] for i, name in enumerate(_COLUMNS[:3])}
        lookaheads = {name: cells[..., i + 3].astype(int) for i, name in enumerate(_COLUMNS[3:])}
        return cls(grid, **times, **lookaheads, **others)


def heatmap(
    grid: Grid | None = None,
    *,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Heatmap:
    """Runs non-SI, SI and DSI on the virtual clock in every cell of `grid` (None: the paper's).

    Constant forwards that can be stopped, TTFT = TPOT. threads: None takes all cores; the result
    does not depend on it. progress(cells done, of all): called in this thread about five times a
    second, and at the end. Blocks without the GIL; Ctrl-C ends it. Raises InvalidArgument naming
    the argument.
    """
    grid = Grid() if grid is None else checks.instance("grid", grid, Grid)
    threads = len(os.sched_getaffinity(0)) if threads is None else threads
    threads = checks.whole("threads", threads, high=4096)
    start = time.monotonic()
    sweep = _core.Sweep(
        list(grid.drafter_latencies),
        list(grid.acceptances),
        grid.max_lookahead,
        grid.sp,
        grid.tokens,
        grid.repeats,
        grid.seed,
        grid.equation_1,
        threads,
    )
    done = False
    while not done:
        done = sweep.advance(_STRETCH_S)
        if progress is not None:
            progress(sweep.done, sweep.total)
    cells = np.array(sweep.cells(), dtype=float).reshape(*grid.shape, len(_COLUMNS))
    seconds = time.monotonic() - start
    return Heatmap._of(grid, cells, forwards=sweep.forwards, seconds=seconds)


def slower_share(speedups: np.ndarray) -> float:
    """The share of cells with a speedup below 1."""
    return float(np.mean(speedups < 1 - ROUNDING))


def evenly(first: float, last: float, step: float) -> tuple[float, ...]:
    """first, first+step, ... up to last, rounded to nine digits so that they read as asked for."""
    if not (math.inf > step > 0 and -math.inf < first <= last < math.inf):
        raise InvalidArgument(f"first <= last and step > 0 are needed, not {first}, {last}, {step}")
    if (last - first) / step > MOST_VALUES:
        raise InvalidArgument(f"step must make {MOST_VALUES} values at most, not be {step}")
    count = int((last - first) / step + 1e-9) + 1
    return tuple(round(first + i * step, 9) for i in range(count))


__all__ = [
    "MOST_VALUES",
    "PANELS",
    "ROUNDING",
    "Grid",
    "Heatmap",
    "evenly",
    "heatmap",
    "slower_share",
]
