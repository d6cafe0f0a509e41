"""non-SI, SI at its best lookahead and DSI on the paper's ten rows, on the virtual clock."""

from __future__ import annotations

import statistics

from rich.console import Console
from rich.table import Table

from dsi_native import _core
from dsi_native.experiments.paper import PaperRow, paper_rows

SP, TOKENS, RUNS = 7, 50, 300


def mean_s(row: PaperRow, mode: _core.Mode, lookahead: int) -> float:
    """Seconds for 50 tokens, TTFT = TPOT, forwards that can be stopped; mean over seeds."""
    target, drafter = row.target_ms, row.drafter_ms
    policy = _core.Policy()
    policy.mode, policy.lookahead = mode, lookahead
    policy.run_ahead = _core.default_run_ahead(target, drafter, lookahead, SP)
    runs = 1 if mode == _core.Mode.NON_SI else RUNS
    return statistics.fmean(
        _core.simulate(
            policy,
            SP,
            TOKENS,
            _core.Latency(target * 1e-3),
            _core.Latency(drafter * 1e-3),
            row.acceptance,
            seed=seed,
        )["total_s"]
        for seed in range(runs)
    )


def main() -> None:
    table = Table("target, data set", "a", "d/T", "non-SI s", "SI s (lookahead)", "DSI s",
                  "DSI over non-SI", "DSI over SI")  # fmt: skip
    for row in paper_rows():
        non_si = mean_s(row, _core.Mode.NON_SI, 1)
        si, best = min((mean_s(row, _core.Mode.SI, k), k) for k in range(1, 13))
        least = _core.least_lookahead(row.target_ms, row.drafter_ms, SP)
        dsi = mean_s(row, _core.Mode.DSI, least)
        table.add_row(
            row.name,
            f"{row.acceptance:.2f}",
            f"{row.drafter_ms / row.target_ms:.2f}",
            f"{non_si:.2f}",
            f"{si:.2f} ({best})",
            f"{dsi:.2f}",
            f"{non_si / dsi:.2f}x",
            f"{si / dsi:.2f}x",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
