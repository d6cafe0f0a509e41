"""The ten configurations of the DSI paper, with what it publishes about them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from dsi_native.experiments.configuration import Configuration, Latency

_PACKAGE, _FILE = "dsi_native.experiments", "paper_rows.json"


@dataclass(frozen=True)
class PaperRow:
    """A row of arXiv 2405.14105v5, Table 2, with the ratios TTFT / TPOT of its Table 3.

    target_ms, drafter_ms: one forward (TPOT). paper_speedup_vs_si: time of SI over time of DSI, at
    a lookahead of 1, 5 or 10. ttft_ratio_assumed: Table 3 has no such row.
    """

    target: str
    drafter: str
    dataset: str
    target_ms: float
    drafter_ms: float
    acceptance: float
    paper_speedup_vs_si: float
    target_ttft_ratio: float
    drafter_ttft_ratio: float
    ttft_ratio_assumed: bool = False

    @property
    def name(self) -> str:
        return f"{self.target}, {self.dataset}"

    def configuration(
        self, *, ttft: bool = True, stoppable: bool = True, **others: Any
    ) -> Configuration:
        """The row for a simulation. ttft: whether first forwards are slower, as in Table 3.

        others: further fields of Configuration. Raises InvalidArgument naming the field.
        """
        models = (
            (self.target_ms, self.target_ttft_ratio),
            (self.drafter_ms, self.drafter_ttft_ratio),
        )
        target, drafter = (
            Latency(ms, ms * ratio if ttft else None, stoppable=stoppable) for ms, ratio in models
        )
        return Configuration(target, drafter, self.acceptance, **others)


@cache
def paper_rows() -> tuple[PaperRow, ...]:
    """The ten rows, in the order of Table 2."""
    text = resources.files(_PACKAGE).joinpath(_FILE).read_text(encoding="utf-8")
    return tuple(PaperRow(**row) for row in json.loads(text)["rows"])


__all__ = ["PaperRow", "paper_rows"]
