"""Several drafters at once: Algorithm 1 of arXiv 2405.14105 with m > 2, on the virtual clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dsi_native import _core, checks
from dsi_native.errors import InvalidArgument
from dsi_native.experiments.configuration import MOST_TOKENS, Latency

DEFAULT_MAX_NODES = 4096


@dataclass(frozen=True)
class DrafterSpec:
    """One drafter: its latency, and the probability that its draft is right, in [0, 1]."""

    latency: Latency
    acceptance: float = 0.0

    def __post_init__(self) -> None:
        checks.instance("latency", self.latency, Latency)
        object.__setattr__(self, "acceptance", checks.probability("acceptance", self.acceptance))


@dataclass(frozen=True)
class DraftersResult:
    """What one run took, and what it cost.

    total_ms, first_token_ms: until the last and the first token. tokens: the ids.

    forwards: target forwards begun; each token is that of one of them. wasted: of the others, those
    that ran to their end; stopped: those that did not, because they were stopped or because the run
    was over. drafts: the same count of forwards begun, per drafter.

    accepted: per drafter, the tokens of the text that it was the first to say; own: those that no
    drafter had said before the target. Their sum is len(tokens).

    peak_servers: target forwards running at once, at most; peak_drafter_servers: the same per
    drafter. busy_ms, drafter_busy_ms: summed over servers.

    peak_nodes: paths continued at once, at most. crowded: whether drafts had to wait because
    max_nodes were there; only then may another drafter than the first be faster alone.

    right: per drafter, whether its draft for each of the first len(tokens) - 1 tokens is right.
    `simulate_drafters(target, [drafters[j]], right=[result.right[j]], ...)` is drafter j alone on
    the same sequence.
    """

    total_ms: float
    first_token_ms: float
    tokens: tuple[int, ...]
    forwards: int
    wasted: int
    stopped: int
    drafts: tuple[int, ...]
    accepted: tuple[int, ...]
    own: int
    peak_servers: int
    peak_drafter_servers: tuple[int, ...]
    busy_ms: float
    drafter_busy_ms: tuple[float, ...]
    peak_nodes: int
    crowded: bool
    right: tuple[tuple[bool, ...], ...]

    @property
    def ms_per_token(self) -> float:
        return self.total_ms / len(self.tokens)


def default_run_ahead(target: Latency, drafters: Sequence[DrafterSpec]) -> int:
    """Drafts ahead of the committed prefix; more cannot exist on the text's own path.

    A path grows by a token in no less than the shortest forward, and its first uncommitted token
    has a verdict after no more than the longest target forward.
    """
    models = [target, *(x.latency for x in drafters)]
    longest = max(target.first_ms, target.tpot_ms) * (1 + target.jitter)
    shortest = min(min(x.first_ms, x.tpot_ms) * (1 - x.jitter) for x in models)
    return math.ceil(longest / shortest) + 1


def _check(
    target: Latency,
    drafters: Sequence[DrafterSpec],
    right: Sequence[Sequence[bool]] | None,
) -> None:
    checks.instance("target", target, Latency)
    if not drafters:
        raise InvalidArgument("drafters must not be empty")
    for drafter in drafters:
        checks.instance("each of drafters", drafter, DrafterSpec)
    for whose, latency in (("target", target), *(("drafters", x.latency) for x in drafters)):
        if latency.growth:
            raise InvalidArgument(
                f"{whose}: growth must be 0, not {latency.growth}: in a tree each forward judges "
                "or drafts one position"
            )
    times = [x.latency.tpot_ms for x in drafters]
    if times != sorted(times):
        raise InvalidArgument(
            "drafters must be ordered by latency, the fastest first, not "
            + ", ".join(f"{x:g} ms" for x in times)
        )
    if right is not None and len(right) != len(drafters):
        raise InvalidArgument(
            f"right must have one sequence for each of {len(drafters)} drafters, not {len(right)}"
        )


def simulate_drafters(
    target: Latency,
    drafters: Sequence[DrafterSpec],
    *,
    tokens: int = 100,
    seed: int = 0,
    right: Sequence[Sequence[bool]] | None = None,
    run_ahead: int | None = None,
    max_nodes: int | None = None,
) -> DraftersResult:
    """One run of DSI at lookahead 1 with several drafters, on as many servers as it asks for.

    All drafters continue every path, and the target judges every path; of siblings that the target
    agrees with the first lives. The text is the target's. The time is never above that of non-SI,
    nor of any of the drafters alone on the same sequences (see `DraftersResult.crowded`).

    drafters: ordered by TPOT, the fastest first; latencies without growth. Whether a draft is right
    depends on (seed, drafter, position) only, and drafters are independent of each other; wrong
    drafts of two drafters differ. Every server of a model prefills from the start on.
    right: overrides the acceptance, one sequence per drafter; what is behind its end is right.
    run_ahead: drafts that may exist beyond the committed prefix; None: as many as can be of use.
    max_nodes: paths that may be continued at once, more than run_ahead, since a tree grows
    exponentially; None: 4096, or more where run_ahead asks for it. Where they are used up, the last
    drafters pause first. Where target forwards can be stopped it bounds the target servers too.

    Raises InvalidArgument naming the argument. Cost: about 1 us per forward, up to a second where
    max_nodes are in use all the time.
    """
    drafters = checks.listed("drafters", drafters)
    tokens, seed = checks.whole("tokens", tokens, high=MOST_TOKENS), checks.seed_of(seed)
    if right is not None:
        right = [checks.listed("each of right", one) for one in checks.listed("right", right)]
    _check(target, drafters, right)
    if run_ahead is None:
        run_ahead = min(default_run_ahead(target, drafters), tokens)
    run_ahead = checks.whole("run_ahead", run_ahead)
    if run_ahead >= 2**31:
        raise InvalidArgument(f"run_ahead must be in 1..2**31-1, not {run_ahead}")
    if max_nodes is None:
        max_nodes = max(DEFAULT_MAX_NODES, 4 * run_ahead)
    max_nodes = checks.whole("max_nodes", max_nodes, low=0)
    if not run_ahead < max_nodes < 2**31:
        raise InvalidArgument(
            f"max_nodes must be more than run_ahead = {run_ahead} and below 2**31, not {max_nodes}"
        )
    run = _core.simulate_tree(
        tokens,
        target.native(),
        [x.latency.native() for x in drafters],
        [x.acceptance for x in drafters],
        right=None if right is None else [[bool(x) for x in one] for one in right],
        seed=seed,
        run_ahead=run_ahead,
        max_nodes=max_nodes,
    )
    each = run["drafters"]
    return DraftersResult(
        total_ms=run["total_s"] * 1e3,
        first_token_ms=run["first_token_s"] * 1e3,
        tokens=tuple(run["tokens"]),
        forwards=run["verifies"],
        wasted=run["wasted_verifies"],
        stopped=run["verifies"] - len(run["tokens"]) - run["wasted_verifies"],
        drafts=tuple(x["drafts"] for x in each),
        accepted=tuple(x["accepted"] for x in each),
        own=run["own"],
        peak_servers=run["peak_servers"],
        peak_drafter_servers=tuple(x["peak_servers"] for x in each),
        busy_ms=run["target_busy_s"] * 1e3,
        drafter_busy_ms=tuple(x["busy_s"] * 1e3 for x in each),
        peak_nodes=run["peak_nodes"],
        crowded=run["crowded"],
        right=tuple(tuple(x["right"]) for x in each),
    )


__all__ = ["DrafterSpec", "DraftersResult", "simulate_drafters"]
