"""One configuration, decoded by non-SI, SI or DSI: on the virtual clock, or with real threads."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from statistics import fmean
from typing import Any

from dsi_native import _core, checks
from dsi_native.errors import Error
from dsi_native.experiments.configuration import MODES, Configuration
from dsi_native.recording import Recording

NAMES = {"non-si": "non-SI", "si": "SI", "dsi": "DSI"}
_BEST_OF_RUNS = 100  # runs that a best lookahead is the best of
_BEST_WITHIN = 200
_PATIENCE = 10  # lookaheads without a gain that end the search
_WARM_S = 0.01  # until the workers of a new engine wait for work


@dataclass(frozen=True)
class Run:
    """What one configuration took in one mode. Times in milliseconds; counts are means over runs.

    configuration: as asked for; lookahead, sp: in use (non-SI: 0; non-SI and SI have one server).
    repeats: runs with seeds seed, seed+1, ...; total_ms, first_token_ms and the counts are their
    means, total_ms_each the single totals. tokens: of the first run, as is `recording`.
    acceptance: drafts accepted of drafts judged, over all runs; None where none was judged.
    target_forwards: verifications handed out, of them wasted_forwards ran to their end in vain and
    stopped_forwards did not get there. target_busy, drafter_busy: shares of the servers' time.
    virtual_ms: what the virtual clock says of the same runs; total_ms itself where offline.
    """

    mode: str
    configuration: Configuration
    online: bool
    lookahead: int
    sp: int
    repeats: int
    total_ms: float
    first_token_ms: float
    acceptance: float | None
    target_forwards: float
    wasted_forwards: float
    stopped_forwards: float
    draft_forwards: float
    target_busy: float
    drafter_busy: float
    virtual_ms: float
    total_ms_each: tuple[float, ...] = field(repr=False)
    wall_over_virtual_each: tuple[float, ...] = field(repr=False)
    tokens: tuple[int, ...] = field(repr=False)
    recording: Recording | None = field(default=None, repr=False)

    @property
    def ms_per_token(self) -> float:
        """The whole time over all tokens, the first included."""
        return self.total_ms / self.configuration.tokens

    @property
    def wall_over_virtual(self) -> float:
        """Wall time over the virtual clock's, median over the runs; 1 where offline."""
        each = sorted(self.wall_over_virtual_each)
        middle = len(each) // 2
        return each[middle] if len(each) % 2 else (each[middle - 1] + each[middle]) / 2

    def to_dict(self) -> dict[str, Any]:
        """All but the recording, as plain Python types."""
        names = (
            "mode online lookahead sp repeats total_ms first_token_ms ms_per_token acceptance "
            "target_forwards wasted_forwards stopped_forwards draft_forwards target_busy "
            "drafter_busy virtual_ms wall_over_virtual"
        )
        values = {name: getattr(self, name) for name in names.split()}
        return {**values, "total_ms_each": list(self.total_ms_each), "tokens": list(self.tokens)}

    def _repr_html_(self) -> str:
        shown = self.to_dict()
        del shown["tokens"], shown["total_ms_each"]
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td>{escape(_text(value))}</td></tr>"
            for name, value in shown.items()
        )
        return f"<table>{rows}</table>"


def simulate(
    configuration: Configuration,
    mode: str = "dsi",
    *,
    online: bool = False,
    record: bool = False,
    repeats: int = 1,
) -> Run:
    """Decodes `configuration.tokens` tokens with models that take time and compute nothing.

    mode: "non-si", "si" or "dsi". A lookahead of None is SI's best (see best_si_lookahead) and the
    least one that Equation 1 allows for DSI.
    online: with real threads, which wait in place of forwards, from submission to the last token;
    else on the virtual clock, where scheduling is free. Equal seeds meet the same drafts in both,
    in every mode; with jitter the single forwards differ.
    record: keep the first run's spans and commits. repeats: runs with seeds seed, seed+1, ...
    Blocks; online for about the sum of the times it returns. Raises InvalidArgument naming the
    argument.
    """
    checks.instance("configuration", configuration, Configuration)
    checks.choice("mode", mode, MODES)
    online, record = checks.flag("online", online), checks.flag("record", record)
    repeats = checks.whole("repeats", repeats)
    lookahead = lookahead_of(configuration, mode)
    virtual, wall = [], []
    for number in range(repeats):
        one = configuration.replace(seed=(configuration.seed + number) % 2**64)
        with_spans = record and number == 0
        virtual.append(_offline(one, mode, lookahead, with_spans and not online))
        if online:
            wall.append(_online(one, mode, lookahead, with_spans, virtual[-1]["tokens"]))
    measured = wall or virtual
    total_ms_each = tuple(run["total_s"] * 1e3 for run in measured)
    sp = _servers(configuration, mode)

    def mean(name: str) -> float:
        return fmean(run[name] for run in measured)

    accepted, rejected = mean("accepted"), mean("rejected")
    shown = 0 if mode == "non-si" else lookahead
    total_s = mean("total_s")
    return Run(
        mode=mode,
        configuration=configuration,
        online=online,
        lookahead=shown,
        sp=sp,
        repeats=repeats,
        total_ms=total_s * 1e3,
        first_token_ms=mean("first_token_s") * 1e3,
        acceptance=accepted / (accepted + rejected) if accepted + rejected else None,
        target_forwards=mean("verifies"),
        wasted_forwards=mean("wasted_verifies"),
        stopped_forwards=mean("stopped_verifies"),
        draft_forwards=mean("draft_jobs"),
        target_busy=mean("target_busy_s") / (sp * total_s),
        drafter_busy=mean("drafter_busy_s") / total_s,
        virtual_ms=fmean(run["total_s"] for run in virtual) * 1e3,
        total_ms_each=total_ms_each,
        wall_over_virtual_each=tuple(
            one["total_s"] / other["total_s"] for one, other in zip(measured, virtual, strict=True)
        ),
        tokens=tuple(measured[0]["tokens"]),
        recording=Recording.of(measured[0], mode, sp, shown, 1) if record else None,
    )


def lookahead_of(configuration: Configuration, mode: str) -> int:
    """The lookahead in use: the configuration's own, or what None stands for; 1 for non-SI."""
    if mode == "non-si":
        return 1
    if configuration.lookahead is not None:
        return configuration.lookahead
    return best_si_lookahead(configuration) if mode == "si" else configuration.least_lookahead


@lru_cache(maxsize=256)
def best_si_lookahead(configuration: Configuration, runs: int = _BEST_OF_RUNS) -> int:
    """SI's fastest lookahead, by the mean of `runs` runs each on the virtual clock."""
    best, best_s = 1, float("inf")
    for lookahead in range(1, min(_BEST_WITHIN, configuration.tokens) + 1):
        total_s = 0.0
        for seed in range(runs):
            one = configuration.replace(seed=(configuration.seed + seed) % 2**64)
            total_s += _offline(one, "si", lookahead, False)["total_s"]
        if total_s < best_s:
            best, best_s = lookahead, total_s
        elif lookahead - best >= _PATIENCE:
            break
    return best


def _servers(configuration: Configuration, mode: str) -> int:
    return configuration.sp if mode == "dsi" else 1


def _offline(
    configuration: Configuration, mode: str, lookahead: int, record: bool
) -> dict[str, Any]:
    return _core.simulate(
        configuration.policy(mode, lookahead),
        _servers(configuration, mode),
        configuration.tokens,
        configuration.target.native(),
        configuration.drafter.native(),
        configuration.acceptance,
        seed=configuration.seed,
        record=record,
    )


def _online(
    configuration: Configuration, mode: str, lookahead: int, record: bool, tokens: list[int]
) -> dict[str, Any]:
    """The same with an engine's threads; `tokens`: what has to come out."""
    from dsi_native.engine import Engine

    policy = configuration.policy(mode, lookahead)
    engine = Engine(
        _model(configuration, "target"),
        None if mode == "non-si" else _model(configuration, "drafter"),
        sp=_servers(configuration, mode),
        lookahead=lookahead,
        mode=mode,
        run_ahead=policy.run_ahead,
        max_window=policy.max_window,
        break_even=False,
    )
    with engine:
        time.sleep(_WARM_S)
        start = time.monotonic()
        request = engine.submit([0], max_new_tokens=configuration.tokens, record=record)
        output = request.result()
        wall_s = time.monotonic() - start
        ending = request.native_ending()
    if output.tokens != tokens:
        raise Error("the threads' tokens are not the virtual clock's: please report this")
    return {**ending, "total_s": wall_s, "tokens": output.tokens}


def _model(configuration: Configuration, which: str) -> Any:
    from dsi_native.simulated import SimulatedModel

    latency = getattr(configuration, which)
    return SimulatedModel(
        latency.tpot_ms * 1e-3,
        ttft_s=latency.first_ms * 1e-3,
        acceptance=configuration.acceptance,
        seed=configuration.seed,
        growth=latency.growth,
        jitter=latency.jitter,
        stoppable=latency.stoppable,
    )


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


__all__ = ["NAMES", "Run", "best_si_lookahead", "lookahead_of", "simulate"]
