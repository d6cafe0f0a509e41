"""What one section found: checks that hold or not, parts left out with the reason, figures."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_MOST_DETAIL = 1000
_PATH = re.compile(r"(?<![\w.:/])/(?:[\w.+@-]+/)+([\w.+@-]*)")


@dataclass(frozen=True)
class Where:
    """device: "cuda" or "cpu". tiny: the smallest models and the fewest runs that show anything.

    eager: without CUDA graphs, through the Python servers.
    """

    device: str
    tiny: bool
    eager: bool = False

    @property
    def cuda(self) -> bool:
        return self.device == "cuda"

    @property
    def graphs(self) -> bool:
        return self.cuda and not self.eager

    @property
    def threads(self) -> int | None:
        """Of a forward on a CPU; a tiny one is over before a team of threads has met."""
        return 1 if self.tiny else None


@dataclass(frozen=True)
class Check:
    name: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class Skip:
    """A part that was not run. reason: what it needs."""

    what: str
    reason: str


@dataclass
class Section:
    """Filled while the section runs; `budget_s` is what it should take, which it sees to itself.

    news: called after each check, so that what is known outlives a section that is cut off.
    """

    name: str
    budget_s: float
    news: Callable[[Section], None] | None = None
    checks: list[Check] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    begun_s: float = field(default_factory=time.monotonic)

    def check(self, name: str, holds: Any, detail: str = "") -> bool:
        """Notes whether something held; the detail is for those who read a failure."""
        holds = bool(holds)
        self.checks.append(Check(name, holds, without_paths(detail)))
        if self.news is not None:
            self.news(self)
        return holds

    def skip(self, what: str, reason: str) -> None:
        self.skipped.append(Skip(what, without_paths(reason)))

    @property
    def left_s(self) -> float:
        """Of the budget; negative once it is spent."""
        return self.begun_s + self.budget_s - time.monotonic()

    @property
    def status(self) -> str:
        """A section that checked nothing has shown nothing: failed, unless it says why."""
        if any(not check.passed for check in self.checks):
            return FAILED
        if not self.checks:
            return SKIPPED if self.skipped else FAILED
        return PASSED

    def to_dict(self) -> dict[str, Any]:
        """Its entry in the report."""
        return {
            "status": self.status,
            "seconds": round(time.monotonic() - self.begun_s, 2),
            "checks": [asdict(check) for check in self.checks],
            "skipped": [asdict(skip) for skip in self.skipped],
            "figures": self.figures,
        }


def failure_of(error: BaseException) -> str:
    """What an exception says, for a report."""
    return f"{type(error).__name__}: {error}"


def without_paths(text: str) -> str:
    """`text` with only the last part of each absolute path: where it ran is nobody's business."""
    return _PATH.sub(r"\1", text)[:_MOST_DETAIL]


__all__ = [
    "FAILED",
    "PASSED",
    "SKIPPED",
    "Check",
    "Section",
    "Skip",
    "Where",
    "failure_of",
    "without_paths",
]
