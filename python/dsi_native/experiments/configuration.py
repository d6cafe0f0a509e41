"""What an experiment runs: latencies, acceptance, servers, lookahead. Times in milliseconds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from dsi_native import _core, checks
from dsi_native.errors import InvalidArgument

# The virtual clock counts nanoseconds in 64 bits, and looks at each server at each event.
SHORTEST_MS, LONGEST_MS = 1e-6, 1e9
MOST_SERVERS, MOST_TOKENS = 2**16, 10**6
MODES = {"non-si": _core.Mode.NON_SI, "si": _core.Mode.SI, "dsi": _core.Mode.DSI}


class DrafterSlowerThanTargetError(InvalidArgument):
    """A drafter forward takes longer than a target forward (Assumption 2 of arXiv 2405.14105)."""


class NumOfTargetServersInsufficientError(InvalidArgument):
    """Equation 1 does not hold: ceil(T / (lookahead * d)) target servers are more than there are.

    Decided on TPOT: every server prefills at the start, so TTFT says nothing about later windows.
    """


@dataclass(frozen=True)
class Latency:
    """How long the forwards of one model take.

    tpot_ms: every forward but a request's first on a server, from a nanosecond to 1e9. ttft_ms:
    that first one, prompt included; None: the same. growth: each judged draft adds this share of
    tpot_ms. jitter: each forward is scaled by a factor uniform in [1-jitter, 1+jitter], jitter < 1.
    stoppable: whether a forward whose result is not needed any more ends early.
    """

    tpot_ms: float
    ttft_ms: float | None = None
    growth: float = 0.0
    jitter: float = 0.0
    stoppable: bool = True

    def __post_init__(self) -> None:
        for name in ("tpot_ms", "ttft_ms"):
            value = getattr(self, name)
            if name == "tpot_ms" or value is not None:
                object.__setattr__(self, name, _milliseconds(name, value))
        for name in ("growth", "jitter"):
            object.__setattr__(self, name, checks.number(name, getattr(self, name)))
        object.__setattr__(self, "stoppable", checks.flag("stoppable", self.stoppable))
        if not 0 <= self.growth < math.inf:
            raise InvalidArgument(f"growth must be at least 0 and finite, not {self.growth}")
        if not 0 <= self.jitter < 1:
            raise InvalidArgument(f"jitter must be at least 0 and below 1, not {self.jitter}")

    @property
    def first_ms(self) -> float:
        return self.tpot_ms if self.ttft_ms is None else self.ttft_ms

    def text(self) -> str:
        """For people, in milliseconds."""
        text = f"{self.tpot_ms:g} ms"
        if self.first_ms != self.tpot_ms:
            text += f" (first {self.first_ms:g} ms)"
        text += f" ± {100 * self.jitter:g} %" * (self.jitter > 0)
        text += f" + {100 * self.growth:.3g} % per draft" * (self.growth > 0)
        return text + ", unstoppable" * (not self.stoppable)

    def native(self) -> _core.Latency:
        return _core.Latency(
            self.tpot_ms * 1e-3, self.first_ms * 1e-3, self.growth, self.jitter, self.stoppable
        )


def _milliseconds(name: str, value: Any) -> float:
    found = checks.number(name, value)
    if not 0 < found < math.inf:
        raise InvalidArgument(f"{name} must be positive and finite, not {found}")
    if not SHORTEST_MS <= found <= LONGEST_MS:
        raise InvalidArgument(f"{name} must be from {SHORTEST_MS:g} to {LONGEST_MS:g}, not {found}")
    return found


def _published(name: str, first: float, later: float | None) -> Latency:
    """Errors by the names of the published simulator."""
    _milliseconds(name, first)
    return Latency(first if later is None else _milliseconds(f"{name}_sub", later), first)


@dataclass(frozen=True)
class Configuration:
    """One point of an experiment; what is left out has the paper's value.

    acceptance: probability that a draft is right, in [0, 1]; whether the draft at a position is
    right depends on (seed, position) only, so every mode meets the same drafts. sp: target servers
    (DSI; non-SI and SI use one). lookahead: drafts per verification; None: DSI takes the least one
    that Equation 1 allows, SI the best one. tokens: new tokens of a run (S in the paper).

    sp is at most 65,536, lookahead and tokens at most a million.
    """

    target: Latency
    drafter: Latency
    acceptance: float
    sp: int = 7
    lookahead: int | None = None
    tokens: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        checks.instance("target", self.target, Latency)
        checks.instance("drafter", self.drafter, Latency)
        checked: dict[str, Any] = {
            "acceptance": checks.probability("acceptance", self.acceptance),
            "sp": checks.whole("sp", self.sp, high=MOST_SERVERS),
            "tokens": checks.whole("tokens", self.tokens, high=MOST_TOKENS),
            "seed": checks.seed_of(self.seed),
        }
        if self.lookahead is not None:
            checked["lookahead"] = checks.whole("lookahead", self.lookahead, high=MOST_TOKENS)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def published(
        cls,
        c: float,
        a: float,
        k: int | None = None,
        failure_cost: float = 1.0,
        S: int = 100,
        num_target_servers: int = 7,
        c_sub: float | None = None,
        failure_cost_sub: float | None = None,
        **others: Any,
    ) -> Configuration:
        """The names of the published simulator.

        c, failure_cost: the drafter's and the target's first forward (TTFT); c_sub,
        failure_cost_sub: every later one (TPOT), the same where left out; a: acceptance; k:
        lookahead; S: tokens. Raises DrafterSlowerThanTargetError and
        NumOfTargetServersInsufficientError as `check_published` does.
        """
        configuration = cls(
            target=_published("failure_cost", failure_cost, failure_cost_sub),
            drafter=_published("c", c, c_sub),
            acceptance=a,
            sp=num_target_servers,
            lookahead=k,
            tokens=S,
            **others,
        )  # fmt: skip
        configuration.check_published()
        return configuration

    def check_published(self) -> None:
        """Raises where the published simulator would, Equation 1 decided on TPOT."""
        target, drafter = self.target.tpot_ms, self.drafter.tpot_ms
        if drafter > target:
            raise DrafterSlowerThanTargetError(
                f"a drafter forward of {drafter:g} ms is slower than a target forward of "
                f"{target:g} ms"
            )
        least = _core.least_lookahead(target, drafter, self.sp)
        if self.lookahead is not None and self.lookahead < least:
            raise NumOfTargetServersInsufficientError(
                f"lookahead {self.lookahead} needs {math.ceil(target / self.lookahead / drafter)} "
                f"target servers (Equation 1) and there are {self.sp}; the least lookahead for "
                f"{self.sp} is {least}"
            )

    @property
    def least_lookahead(self) -> int:
        """The least lookahead that Equation 1 allows: ceil(T / (sp * d))."""
        return _core.least_lookahead(self.target.tpot_ms, self.drafter.tpot_ms, self.sp)

    def policy(self, mode: str, lookahead: int) -> _core.Policy:
        """The native policy of `mode`, one of MODES."""
        checks.choice("mode", mode, MODES)
        policy = _core.Policy()
        policy.mode, policy.lookahead = MODES[mode], lookahead
        policy.run_ahead = _core.default_run_ahead(
            self.target.tpot_ms, self.drafter.tpot_ms, lookahead, self.sp
        )
        policy.max_window = policy.run_ahead
        policy.prefill = True
        return policy

    def replace(self, **changes: Any) -> Configuration:
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


__all__ = [
    "MODES",
    "Configuration",
    "DrafterSlowerThanTargetError",
    "Latency",
    "NumOfTargetServersInsufficientError",
]
