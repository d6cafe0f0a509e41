"""Figure 2's simulation, native against plain Python, on a part of the grid: same times, how fast.

Python on one core, native on one and on all. Python is given the models' ids, the native side makes
them. The grid's repeats share them, so there is one repeat here.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time

from rich.console import Console
from rich.table import Table
from rig.plain_python import TARGET_NS, ids, simulate

from dsi_native.experiments.heatmap import Grid, heatmap

LEAST = 100  # times as fast
RUNS = 7
CORES = len(os.sched_getaffinity(0))
GRID = Grid(
    (0.03, 0.15, 0.25, 0.45, 0.65, 0.85), (0.15, 0.5, 0.85), max_lookahead=200, repeats=1
)  # fmt: skip
LOOKAHEADS = range(1, GRID.tokens)  # of longer ones none is different


def main() -> None:
    seconds: dict[int, list[float]] = {1: [], CORES: []}
    for _, threads in itertools.product(range(RUNS), seconds):
        start = time.perf_counter()
        native = heatmap(GRID, threads=threads)
        seconds[threads].append(time.perf_counter() - start)
    python_s, forwards = 0.0, 0
    for i, latency in enumerate(GRID.drafter_latencies):
        for j, acceptance in enumerate(GRID.acceptances):
            models = ids(GRID.seed, acceptance, GRID.tokens)
            drafter_ns = round(latency * TARGET_NS)
            for mode, sp, times in (
                ("non-si", 1, native.non_si),
                ("si", 1, native.si),
                ("dsi", GRID.sp, native.dsi),
            ):
                start = time.perf_counter()
                lookaheads = (1,) if mode == "non-si" else LOOKAHEADS
                runs = [simulate(mode, k, sp, drafter_ns, *models) for k in lookaheads]
                best = min(run.total_ns for run in runs) / TARGET_NS
                python_s += time.perf_counter() - start
                forwards += sum(run.forwards for run in runs)
                if best != times[i, j]:
                    sys.exit(f"{mode} at {latency}, {acceptance}: {times[i, j]}, in Python {best}")
    if forwards != native.forwards:
        sys.exit(f"{native.forwards} forwards were simulated, in Python {forwards}")
    table = Table("", "seconds", "simulated forwards a second", "ratio")
    rows = {"plain Python": python_s}
    for threads, each in seconds.items():
        rows[f"native, {threads} thread{'s' * (threads > 1)}"] = statistics.median(each)
    for name, spent in rows.items():
        table.add_row(name, f"{spent:.3f}", f"{forwards / spent:,.0f}", f"{python_s / spent:.0f}x")
    console = Console()
    console.print(f"{GRID.shape[0]} x {GRID.shape[1]} cells: same times, {forwards:,} forwards")
    console.print(table)
    if python_s < LEAST * min(rows.values()):
        sys.exit(f"less than {LEAST} times as fast as plain Python")


if __name__ == "__main__":
    main()
