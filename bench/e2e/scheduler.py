"""What the scheduler costs: real threads against the virtual clock, and native against Python.

1. The ten configurations of the paper with simulated servers: seconds of wall over the seconds the
   same Session takes on a virtual clock, where scheduling is free.
2. The same Session driven by native threads, by Python threads and by asyncio: microseconds of wall
   beyond the virtual clock, per token.
"""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict
from typing import Any

from rig import report
from rig.drivers import Script, precise_sleeps, run_asyncio, run_threads

import dsi_native
from dsi_native import _core
from dsi_native.experiments.paper import PaperRow, paper_rows

SP = 7
TOKENS = 50
MOST = 1.02  # wall over virtual
# Two with long forwards and two with many short ones.
SOME_ROWS = (0, 3, 6, 9)


class Case:
    """One row with one seed: what to run, and what the virtual clock says of it."""

    def __init__(self, row: PaperRow, seed: int, ttft: bool) -> None:
        self.row, self.seed = row, seed
        t, d = row.target_ms * 1e-3, row.drafter_ms * 1e-3
        self.target_s, self.drafter_s = t, d
        self.lookahead = _core.least_lookahead(t, d, SP)
        self.run_ahead = _core.default_run_ahead(t, d, self.lookahead, SP)
        self.target_ttft_s = t * row.target_ttft_ratio if ttft else t
        self.drafter_ttft_s = d * row.drafter_ttft_ratio if ttft else d
        self.virtual = self._simulate(row.acceptance, TOKENS)

    def policy(self) -> Any:
        """As the Engine makes it from the same arguments."""
        policy = _core.Policy()
        policy.mode = _core.Mode.DSI
        policy.lookahead = self.lookahead
        policy.run_ahead = self.run_ahead
        policy.prefill = self.target_ttft_s > self.target_s  # otherwise it takes no time
        return policy

    def _simulate(self, acceptance: float, tokens: int) -> dict[str, Any]:
        return _core.simulate(
            self.policy(),
            SP,
            tokens,
            _core.Latency(self.target_s, self.target_ttft_s),
            _core.Latency(self.drafter_s, self.drafter_ttft_s),
            acceptance,
            seed=self.seed,
        )

    def run_native(self) -> tuple[float, list[int]]:
        """Seconds from submit to the output in Python, and the tokens."""
        t, d = self.target_s, self.drafter_s
        target = dsi_native.SimulatedModel(t, ttft_s=self.target_ttft_s, seed=self.seed)
        drafter = dsi_native.SimulatedModel(
            d, ttft_s=self.drafter_ttft_s, acceptance=self.row.acceptance, seed=self.seed
        )
        engine = dsi_native.Engine(
            target, drafter, sp=SP, lookahead=self.lookahead, run_ahead=self.run_ahead
        )
        with engine:
            time.sleep(0.01)  # the workers have started
            start = time.monotonic()
            output = engine.generate([0], max_new_tokens=TOKENS)
            return time.monotonic() - start, output.tokens

    def script(self) -> Script:
        """The same for the drivers in Python."""
        targets = [0, *self.virtual["tokens"]]
        right = self._rights()
        drafts = [i if ok else (i + 1) % 50000 for i, ok in zip(targets, right, strict=True)]
        return Script(self.policy(), SP, TOKENS, self.target_s, self.drafter_s, targets, drafts)

    def _rights(self) -> list[bool]:
        """Whether the draft at each position is right, as the simulated models have it."""
        return [
            _unit(_mix(self.seed ^ (2 * p + 1))) < self.row.acceptance for p in range(TOKENS + 1)
        ]


def _mix(x: int) -> int:
    """splitmix64 (Steele, Lea, Flood 2014), as in csrc/core/latency.h."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def _unit(hash_: int) -> float:
    return (hash_ >> 11) * 2.0**-53


def wall_over_virtual(rows: list[PaperRow], runs: int, ttft: bool) -> list[dict[str, Any]]:
    """Median, over runs in random order with a new seed each, of wall over virtual per row."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for seed in range(runs):
        for row in random.Random(seed).sample(rows, len(rows)):
            case = Case(row, seed, ttft)
            wall, tokens = case.run_native()
            _check_tokens(tokens, case)
            found[row.name].append((wall, case.virtual["total_s"]))
    shown = report.table(
        f"Wall over virtual time, SP = {SP}, least lookahead, {TOKENS} tokens, "
        f"TTFT {'as in Table 3' if ttft else '= TPOT'}, median of {runs} interleaved runs",
        *("target, data set", "lookahead", "T ms", "d ms", "a", "virtual s", "wall s"),
        *("wall/virtual", "lowest-highest"),
    )
    results = []
    for row in rows:
        ratios = [wall / virtual for wall, virtual in found[row.name]]
        result = {
            "row": row.name,
            "lookahead": _core.least_lookahead(row.target_ms, row.drafter_ms, SP),
            "virtual_s": report.median(virtual for _, virtual in found[row.name]),
            "wall_s": report.median(wall for wall, _ in found[row.name]),
            "ratio": report.median(ratios),
            "ratios": ratios,
        }
        results.append(result)
        shown.add_row(
            row.name,
            str(result["lookahead"]),
            f"{row.target_ms:.1f}",
            f"{row.drafter_ms:.1f}",
            f"{row.acceptance:.2f}",
            f"{result['virtual_s']:.4f}",
            f"{result['wall_s']:.4f}",
            f"{result['ratio']:.4f}",
            report.spread(ratios),
        )
    report.console.print(shown)
    return results


def native_against_python(rows: list[PaperRow], runs: int) -> list[dict[str, Any]]:
    """Median overhead per token of the three drivers, in random order within each run."""
    drivers = {
        "native": lambda case: case.run_native(),
        "threads": lambda case: run_threads(case.script()),
        "asyncio": lambda case: run_asyncio(case.script()),
    }
    wall_us: dict[tuple[str, str], list[float]] = defaultdict(list)
    cpu_us: dict[tuple[str, str], list[float]] = defaultdict(list)
    for seed in range(runs):
        pairs = [(row, name) for row in rows for name in drivers]
        for row, name in random.Random(seed).sample(pairs, len(pairs)):
            case = Case(row, seed, ttft=False)
            cpu = time.process_time()
            wall, tokens = drivers[name](case)
            cpu_us[row.name, name].append((time.process_time() - cpu) / TOKENS * 1e6)
            _check_tokens(tokens, case)
            wall_us[row.name, name].append((wall - case.virtual["total_s"]) / TOKENS * 1e6)
    shown = report.table(
        f"Overhead per token of the same Session: us of wall beyond virtual time "
        f"(and us of CPU, waits included), median of {runs} interleaved runs",
        *("target, data set", "ms/token", "native", "Python threads", "asyncio"),
        *("threads/native", "asyncio/native"),
    )
    results = []
    for row in rows:
        wall = {name: report.median(wall_us[row.name, name]) for name in drivers}
        cpu = {name: report.median(cpu_us[row.name, name]) for name in drivers}
        virtual = report.median(Case(row, s, False).virtual["total_s"] for s in range(runs))
        results.append({"row": row.name, "wall_us": wall, "cpu_us": cpu, "virtual_s": virtual})
        shown.add_row(
            row.name,
            f"{virtual / TOKENS * 1e3:.2f}",
            *(f"{wall[name]:.0f} ({cpu[name]:.0f})" for name in drivers),
            *(f"{wall[name] / max(wall['native'], 1.0):.1f}x" for name in ("threads", "asyncio")),
        )
    report.console.print(shown)
    return results


def _check_tokens(tokens: list[int], case: Case) -> None:
    if tokens != case.virtual["tokens"]:
        raise SystemExit(
            f"{case.row.name}, seed {case.seed}: tokens differ from the virtual clock's"
        )


def main() -> int:
    parser = report.options(__doc__)
    parser.add_argument("--runs", type=int, help="runs of each row (default 5, --full 15)")
    parser.add_argument("--rows", type=int, nargs="*", help="only these rows, from 0")
    parser.add_argument("--ttft", action="store_true", help="first forwards as slow as in Table 3")
    arguments = parser.parse_args()
    runs = arguments.runs or (15 if arguments.full else 5)
    rows = list(paper_rows())
    chosen = [rows[i] for i in arguments.rows] if arguments.rows else rows
    facts = report.begin("scheduler: wall over virtual time")
    precise_sleeps()
    first = wall_over_virtual(chosen, runs, arguments.ttft)
    some = chosen if arguments.full or arguments.rows else [rows[i] for i in SOME_ROWS]
    second = native_against_python(some, runs)
    worst = max(result["ratio"] for result in first)
    ok = report.verdict(worst <= MOST, f"wall over virtual is at most {MOST} ({worst:.4f})")
    report.end(facts, arguments, wall_over_virtual=first, overhead_per_token=second)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
