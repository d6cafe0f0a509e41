"""Table 2 of the DSI paper, with what it leaves out: every row by non-SI, SI and DSI.

SI at its own best lookahead, Proposition 1's bound, what the speed costs in forwards, and the
target tensor-parallel on the same number of devices.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dsi_native import checks, files
from dsi_native.errors import InvalidArgument
from dsi_native.experiments import sheets
from dsi_native.experiments.configuration import Configuration
from dsi_native.experiments.measurement import Measurement, short_name
from dsi_native.experiments.paper import paper_rows
from dsi_native.experiments.run import Run, best_si_lookahead, simulate

LOOKAHEADS = (1, 5, 10)  # those of the paper
OFFLINE_REPEATS = 300
ENDINGS = (".json", ".csv", ".md")
_LEAST_RUNS = 100  # that a best lookahead is the best of
# Each device more costs a tensor-parallel forward this share of its time on one device. Fitted to
# what gpt-fast's README publishes for Llama-2-7B, 16 bits, one request, A100s: 104.9 tokens/s on
# one, 168.84 on two, 254.02 on four, 328.43 on eight, where it says 0.82, 0.60 and 0.39.
_LOSS_PER_DEVICE = 0.22

Progress = Callable[[float, str], None]


def measured_efficiency(devices: int) -> float:
    """Efficiency of the target tensor-parallel on `devices` devices where nobody says another.

    The speedup over one device, divided by the devices: 1 / (1 + 0.22 (devices - 1)), a fit of
    published figures for a 7B model at batch 1 (0.80, 0.61, 0.39 on 2, 4, 8 A100s with NVLink).
    """
    return 1 / (1 + _LOSS_PER_DEVICE * (devices - 1))


@dataclass(frozen=True)
class Row:
    """One configuration in every mode. Times in milliseconds for `configuration.tokens` tokens.

    target, drafter, dataset: names; dataset is None where the row was measured.
    runs: by (mode, lookahead), 0 for non-SI; SI and DSI at LOOKAHEADS and as follows.
    best_lookahead: SI's fastest; least_lookahead: the least that Equation 1 allows DSI.
    paper_speedup_vs_si: as published, None where the row is not the paper's.
    tensor_parallel_efficiency: see `measured_efficiency`.
    """

    target: str
    drafter: str
    dataset: str | None
    configuration: Configuration
    best_lookahead: int
    tensor_parallel_efficiency: float
    runs: Mapping[tuple[str, int], Run] = field(repr=False)
    paper_speedup_vs_si: float | None = None
    ttft_ratio_assumed: bool = False

    @property
    def name(self) -> str:
        """A drafter that is named after the target by what sets it apart."""
        return f"{self.target}, {self.dataset or short_name(self.drafter, self.target)}"

    @property
    def least_lookahead(self) -> int:
        return self.configuration.least_lookahead

    @property
    def non_si(self) -> Run:
        return self.runs["non-si", 0]

    def si(self, lookahead: int | None = None) -> Run:
        """None: at its best lookahead. Raises InvalidArgument for one that was not run."""
        return self._run("si", self.best_lookahead if lookahead is None else lookahead)

    def dsi(self, lookahead: int | None = None) -> Run:
        """None: at the least lookahead. Raises InvalidArgument for one that was not run."""
        return self._run("dsi", self.least_lookahead if lookahead is None else lookahead)

    def _run(self, mode: str, lookahead: int) -> Run:
        there = [k for of, k in self.runs if of == mode]
        if lookahead not in there:
            raise InvalidArgument(
                f"lookahead must be one of {', '.join(map(str, there))}, not {lookahead!r}"
            )
        return self.runs[mode, lookahead]

    def drafts_wait(self, lookahead: int) -> bool:
        """Whether Equation 1 asks for more target servers than there are.

        DSI runs all the same: drafts wait for a server, which then judges all of them at once.
        """
        return lookahead < self.least_lookahead

    @cached_property
    def bound_ms(self) -> float | None:
        """Proposition 1's bound on DSI's mean: d*a*(N-1) + T*((1-a)*(N-1) + 1).

        For lookahead 1 and as many servers as Equation 1 asks for; the longer one of the two first
        forwards delays everything by what it takes beyond a later one. None where the proposition
        says nothing: T grows with the window, or d > T.
        """
        of = self.configuration
        target, drafter, a, n = of.target, of.drafter, of.acceptance, of.tokens
        if target.growth > 0 or drafter.tpot_ms > target.tpot_ms:
            return None
        first = max(0.0, *(x.first_ms - x.tpot_ms for x in (target, drafter)))
        return first + drafter.tpot_ms * a * (n - 1) + target.tpot_ms * ((1 - a) * (n - 1) + 1)

    # -- the same devices, tensor-parallel ---------------------------------------------------------

    @property
    def devices(self) -> int:
        """Of DSI: one for each target server and one for the drafter."""
        return self.configuration.sp + 1

    @property
    def tensor_parallel_ms(self) -> float:
        """non-SI with every forward shared out over all devices, at the efficiency stated."""
        return self.non_si.virtual_ms / (self.devices * self.tensor_parallel_efficiency)

    @property
    def break_even_efficiency(self) -> float:
        """The efficiency at which tensor parallelism is as fast as DSI; above, DSI loses."""
        return self.non_si.virtual_ms / self.dsi().virtual_ms / self.devices

    # -- real threads ------------------------------------------------------------------------------

    @property
    def wall_over_virtual(self) -> float:
        """Wall time of all runs over the virtual clock's; 1 where offline."""
        runs = self.runs.values()
        return sum(run.total_ms for run in runs) / sum(run.virtual_ms for run in runs)

    @property
    def worst_wall_over_virtual(self) -> float:
        """The same, of the mode and lookahead where it is highest."""
        return max(run.wall_over_virtual for run in self.runs.values())

    def to_dict(self) -> dict[str, Any]:
        """One value to a name, as plain Python types; None where there is none."""
        of = self.configuration
        non_si, si, dsi = self.non_si, self.si(), self.dsi()
        values: dict[str, Any] = {
            "target": self.target,
            "drafter": self.drafter,
            "dataset": self.dataset,
            "target_ms": of.target.tpot_ms,
            "target_ttft_ms": of.target.first_ms,
            "target_growth": of.target.growth,
            "drafter_ms": of.drafter.tpot_ms,
            "drafter_ttft_ms": of.drafter.first_ms,
            "acceptance": of.acceptance,
            "ttft_ratio_assumed": self.ttft_ratio_assumed,
            "stoppable": of.target.stoppable,
            "sp": of.sp,
            "tokens": of.tokens,
            "seed": of.seed,
            "online": non_si.online,
            "repeats": non_si.repeats,
            "non_si_ms": non_si.total_ms,
        }
        values |= {f"si_{k}_ms": self.si(k).total_ms for k in LOOKAHEADS}
        values |= {"si_best_lookahead": self.best_lookahead, "si_best_ms": si.total_ms}
        values |= {f"dsi_{k}_ms": self.dsi(k).total_ms for k in LOOKAHEADS}
        values |= {
            "dsi_least_lookahead": self.least_lookahead,
            "dsi_least_ms": dsi.total_ms,
            "bound_ms": self.bound_ms,
            "si_speedup": non_si.total_ms / si.total_ms,
            "dsi_speedup": non_si.total_ms / dsi.total_ms,
            "dsi_speedup_vs_si": si.total_ms / dsi.total_ms,
        }
        for k in LOOKAHEADS:
            values[f"dsi_speedup_vs_si_{k}"] = self.si(k).total_ms / self.dsi(k).total_ms
        values["paper_speedup_vs_si"] = self.paper_speedup_vs_si
        for name, run in (("si", si), ("dsi", dsi)):
            values |= {f"{name}_{what}": each for what, each in compute_per_token(run).items()}
        return values | {
            "devices": self.devices,
            "tensor_parallel_efficiency": self.tensor_parallel_efficiency,
            "tensor_parallel_ms": self.tensor_parallel_ms,
            "tensor_parallel_speedup": non_si.virtual_ms / self.tensor_parallel_ms,
            "break_even_efficiency": self.break_even_efficiency,
            "virtual_ms": sum(run.virtual_ms for run in self.runs.values()),
            "wall_over_virtual": self.wall_over_virtual,
            "worst_wall_over_virtual": self.worst_wall_over_virtual,
        }


def compute_per_token(run: Run) -> dict[str, float]:
    """What a token costs: forwards by kind, and the servers' time in lone target forwards."""
    of = run.configuration
    busy_ms = run.target_busy * run.sp * run.total_ms
    return {
        "target_forwards": run.target_forwards / of.tokens,
        "wasted_forwards": run.wasted_forwards / of.tokens,
        "stopped_forwards": run.stopped_forwards / of.tokens,
        "target_time": busy_ms / of.target.tpot_ms / of.tokens,
        "draft_forwards": run.draft_forwards / of.tokens,
    }


@dataclass(frozen=True)
class Table:
    """What `table()` gives: rows, as text, as files and in a notebook."""

    rows: tuple[Row, ...]

    @property
    def online(self) -> bool:
        return self.rows[0].non_si.online

    def to_dict(self) -> dict[str, Any]:
        """{"rows": [...]}: of each `Row.to_dict`, and under "runs" all its runs."""
        rows = []
        for row in self.rows:
            runs = [run.to_dict() for run in row.runs.values()]
            for run in runs:
                del run["tokens"]  # ids of a simulated text
            rows.append({**row.to_dict(), "runs": runs})
        return {"rows": rows}

    def to_csv(self) -> str:
        """A line for each row, under the names of `Row.to_dict`; empty where there is no value."""
        out = io.StringIO()
        lines = [row.to_dict() for row in self.rows]
        writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        return out.getvalue()

    def to_markdown(self) -> str:
        return sheets.as_markdown(sheets.of_table(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `path`, which ends in .json, .csv or .md. Raises InvalidArgument otherwise."""
        written = dict(zip(ENDINGS, (self._json, self.to_csv, self.to_markdown), strict=True))
        ending = Path(path).suffix.lower()
        if ending not in written:
            raise InvalidArgument(f"path must end in {', '.join(ENDINGS)}, not {os.fspath(path)!r}")
        files.write(path, written[ending]())

    def _json(self) -> str:
        return json.dumps(self.to_dict(), indent=1) + "\n"

    def _repr_html_(self) -> str:
        return sheets.as_html(sheets.of_table(self))


def table(
    rows: Sequence[int] | None = None,
    *,
    online: bool = False,
    repeats: int | None = None,
    sp: int = 7,
    tokens: int = 50,
    seed: int = 0,
    ttft: bool = True,
    stoppable: bool = True,
    tensor_parallel_efficiency: float | None = None,
    measurement: Measurement | None = None,
    progress: Progress | None = None,
) -> Table:
    """The ten rows of the paper, and those of a measurement, by non-SI, SI and DSI.

    rows: which of the ten, from 1; None: all. measurement: a row for each of its drafters follows,
    every server on hardware of its own.
    online: with real threads that wait in place of forwards, one run after the other; else on the
    virtual clock. repeats: runs with seeds seed, seed+1, ... that each time is the mean of; None:
    300, or 1 online. SI's best lookahead is the virtual clock's, over as many runs, at least 100.
    ttft: whether first forwards are slower, as the paper has measured them (its Table 3) and as its
    figures have them; False: all forwards of a model take equally long.
    stoppable: whether forwards whose result is not needed end early.
    tensor_parallel_efficiency: in (0, 1]; None: see `measured_efficiency`.
    progress: called with the share that is done, in [0, 1], and what comes next ("" at the end).

    Blocks: offline for a second or two, online for the sum of the times in the table (two minutes
    for all ten rows). Raises InvalidArgument naming the argument.
    """
    if repeats is None:
        repeats = 1 if online else OFFLINE_REPEATS
    repeats = checks.whole("repeats", repeats)
    ttft, stoppable = checks.flag("ttft", ttft), checks.flag("stoppable", stoppable)
    sp = checks.whole("sp", sp)
    if measurement is not None:
        checks.instance("measurement", measurement, Measurement)
    if tensor_parallel_efficiency is None:
        efficiency = measured_efficiency(sp + 1)
    else:
        efficiency = checks.number("tensor_parallel_efficiency", tensor_parallel_efficiency)
    if not 0 < efficiency <= 1:
        raise InvalidArgument(f"tensor_parallel_efficiency must be in (0, 1], not {efficiency}")
    of_all = {"sp": sp, "tokens": tokens, "seed": seed}
    asked = [*_of_paper(rows, ttft, stoppable, of_all)]
    if measurement is not None:
        asked += _of_measurement(measurement, ttft, stoppable, of_all)
    if not asked:
        raise InvalidArgument("rows must not be empty")
    runs = max(repeats, _LEAST_RUNS)
    best = [best_si_lookahead(about["configuration"], runs) for about in asked]
    cells = [_cells(about["configuration"], k) for about, k in zip(asked, best, strict=True)]
    found = _run([about["configuration"] for about in asked], cells, online, repeats, progress)
    return Table(
        tuple(
            Row(**about, best_lookahead=k, tensor_parallel_efficiency=efficiency, runs=each)
            for about, k, each in zip(asked, best, found, strict=True)
        )
    )


def _of_paper(
    rows: Sequence[int] | None, ttft: bool, stoppable: bool, of_all: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    every = paper_rows()
    for number in range(1, len(every) + 1) if rows is None else checks.listed("rows", rows):
        if not 1 <= checks.whole("rows", number, low=0) <= len(every):
            raise InvalidArgument(f"rows must be 1 to {len(every)}, not {number}")
        row = every[number - 1]
        yield {
            "target": row.target,
            "drafter": row.drafter,
            "dataset": row.dataset,
            "configuration": row.configuration(ttft=ttft, stoppable=stoppable, **of_all),
            "paper_speedup_vs_si": row.paper_speedup_vs_si,
            "ttft_ratio_assumed": ttft and row.ttft_ratio_assumed,
        }


def _of_measurement(
    measurement: Measurement, ttft: bool, stoppable: bool, of_all: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    for number, drafter in enumerate(measurement.drafters):
        found = measurement.configuration(number, **of_all)
        changes: dict[str, Any] = {} if ttft else {"ttft_ms": None}
        changes |= {} if stoppable else {"stoppable": False}
        models = {x: replace(getattr(found, x), **changes) for x in ("target", "drafter")}
        yield {
            "target": measurement.target.name,
            "drafter": drafter.name,
            "dataset": None,
            "configuration": found.replace(**models),
        }


def _cells(configuration: Configuration, best: int) -> list[tuple[str, int]]:
    """Mode and lookahead of every run, each once."""
    si = [("si", k) for k in (*LOOKAHEADS, best)]
    dsi = [("dsi", k) for k in (*LOOKAHEADS, configuration.least_lookahead)]
    return list(dict.fromkeys([("non-si", 0), *si, *dsi]))


def _run(
    configurations: Sequence[Configuration],
    cells: Sequence[Sequence[tuple[str, int]]],
    online: bool,
    repeats: int,
    progress: Progress | None,
) -> list[dict[tuple[str, int], Run]]:
    def run(row: int, mode: str, k: int, online: bool) -> Run:
        configuration = configurations[row]
        if mode != "non-si":
            configuration = configuration.replace(lookahead=k)
        return simulate(configuration, mode, online=online, repeats=repeats)

    every = [(row, *cell) for row, of_row in enumerate(cells) for cell in of_row]
    # What online will take is known; offline all take equally long, near enough.
    costs = [run(*cell, False).total_ms if online else 1.0 for cell in every]
    found: list[dict[tuple[str, int], Run]] = [{} for _ in cells]
    done = 0.0
    for (row, mode, k), cost in zip(every, costs, strict=True):
        if progress is not None:
            progress(done / sum(costs), f"row {row + 1} of {len(cells)}")
        found[row][mode, k] = run(row, mode, k, online)
        done += cost
    if progress is not None:
        progress(1.0, "")
    return found


__all__ = ["LOOKAHEADS", "Row", "Table", "compute_per_token", "measured_efficiency", "table"]
