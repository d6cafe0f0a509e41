"""Several drafters on the virtual clock (Algorithm 1 with m > 2), by what it promises."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsi_native import _core
from dsi_native.errors import InvalidArgument
from dsi_native.experiments.configuration import Latency
from dsi_native.experiments.multi import DrafterSpec, default_run_ahead, simulate_drafters

T_MS = 1.0


def specs(*times_ms: float, **of_latency: Any) -> list[DrafterSpec]:
    return [DrafterSpec(Latency(ms, **of_latency)) for ms in times_ms]


def recursion_ms(
    target_ms: float, times_ms: Sequence[float], right: Sequence[Sequence[bool]]
) -> float:
    """When the last token is committed, from the text's own path alone.

    created(n + 1) is when a drafter that is right there has said its last token, or the target.
    """
    created = committed = 0.0
    for i in range(len(right[0]) + 1):
        committed = max(committed, created + target_ms)
        if i < len(right[0]):
            drafts = [created + d for d, x in zip(times_ms, right, strict=True) if x[i]]
            created = min([*drafts, committed])
    return committed


def chain_ms(drafter_ms: float, right: Sequence[bool], lookahead: int = 1) -> float:
    """One drafter, on the Session that decodes."""
    policy = _core.Policy()
    policy.mode, policy.lookahead = _core.Mode.DSI, lookahead
    policy.run_ahead = policy.max_window = 1000
    run = _core.simulate(
        policy,
        1 + math.ceil(T_MS / drafter_ms),
        len(right) + 1,
        _core.Latency(T_MS * 1e-3),
        _core.Latency(drafter_ms * 1e-3),
        right=list(right),
    )
    return run["total_s"] * 1e3


@st.composite
def drafters_and_rights(draw: st.DrawFn) -> tuple[list[float], list[list[bool]]]:
    times_ms = sorted(
        draw(st.lists(st.sampled_from([0.17, 0.25, 0.3, 0.61, 1.3]), min_size=1, max_size=3))
    )
    length = draw(st.integers(0, 25))
    right = st.lists(st.booleans(), min_size=length, max_size=length)
    return times_ms, [draw(right) for _ in times_ms]


@settings(max_examples=200)
@given(drafters_and_rights(), st.booleans())
def test_time_is_that_of_the_recursion(
    case: tuple[list[float], list[list[bool]]], stoppable: bool
) -> None:
    times_ms, right = case
    run = simulate_drafters(
        Latency(T_MS, stoppable=stoppable),
        specs(*times_ms, stoppable=stoppable),
        tokens=len(right[0]) + 1,
        right=right,
    )
    assert run.total_ms == pytest.approx(recursion_ms(T_MS, times_ms, right), abs=1e-5)
    assert run.first_token_ms == pytest.approx(T_MS)
    assert sum(run.accepted) + run.own == len(run.tokens) == len(right[0]) + 1
    assert run.forwards == len(run.tokens) + run.wasted + run.stopped
    assert list(map(list, run.right)) == right


@settings(max_examples=200)
@given(drafters_and_rights())
def test_never_slower_than_any_drafter_alone_nor_than_non_si(
    case: tuple[list[float], list[list[bool]]],
) -> None:
    times_ms, right = case
    run = simulate_drafters(Latency(T_MS), specs(*times_ms), tokens=len(right[0]) + 1, right=right)
    alone = [chain_ms(ms, x) for ms, x in zip(times_ms, right, strict=True)]
    assert run.total_ms <= min([*alone, T_MS * len(run.tokens)]) + 1e-5
    if len(times_ms) == 1:
        assert run.total_ms == pytest.approx(alone[0], abs=1e-5)


def test_text_is_that_of_the_seed_whoever_drafts() -> None:
    texts = {
        simulate_drafters(
            Latency(1.0, ttft_ms=3.0, jitter=0.3),
            [DrafterSpec(Latency(ms), a) for ms, a in drafters],
            seed=5,
            max_nodes=200,
        ).tokens
        for drafters in ([(0.2, 0.5)], [(0.1, 0.9), (0.3, 0.5)], [(0.2, 0.0), (0.2, 1.0)])
    }
    assert len(texts) == 1
    assert texts != {simulate_drafters(Latency(1.0), specs(0.2), seed=6).tokens}


def test_two_drafters_are_faster_than_the_better_one() -> None:
    target, drafters = (
        Latency(1.0),
        [DrafterSpec(Latency(0.1), 0.6), DrafterSpec(Latency(0.2), 0.8)],
    )
    both = simulate_drafters(target, drafters, seed=1)
    assert not both.crowded
    alone = [
        simulate_drafters(target, [x], right=[right]).total_ms
        for x, right in zip(drafters, both.right, strict=True)
    ]
    assert both.total_ms < 0.8 * min(alone)
    assert min(both.accepted) > 0
    assert both.peak_servers > math.ceil(1.0 / 0.1)  # what it costs
    assert both.busy_ms <= both.peak_servers * both.total_ms
    again = simulate_drafters(target, drafters, right=both.right)
    assert again.total_ms == both.total_ms
    assert [sum(x) / len(x) for x in both.right] == pytest.approx([0.6, 0.8], abs=0.12)


def test_few_nodes_bound_the_servers_and_keep_the_first_drafters_time() -> None:
    target = Latency(1.0)
    drafters = [DrafterSpec(Latency(0.1), 0.6), DrafterSpec(Latency(0.2), 0.8)]
    free = simulate_drafters(target, drafters, seed=2)
    tight = simulate_drafters(target, drafters, seed=2, max_nodes=30)
    assert tight.crowded and tight.peak_nodes <= 30 and tight.peak_servers <= 30
    assert tight.tokens == free.tokens
    alone = simulate_drafters(target, drafters[:1], right=free.right[:1])
    assert free.total_ms < tight.total_ms < alone.total_ms


@pytest.mark.parametrize("ttft_ms", [None, 4.0])
@pytest.mark.parametrize("jitter", [0.0, 0.4])
def test_default_run_ahead_is_all_that_can_be_of_use(ttft_ms: float | None, jitter: float) -> None:
    target = Latency(1.0, ttft_ms=ttft_ms, jitter=jitter)
    for seed in range(20):
        drafters = [DrafterSpec(Latency(0.3, jitter=jitter), 0.95)]
        run = simulate_drafters(target, drafters, tokens=60, seed=seed)
        more = simulate_drafters(target, drafters, tokens=60, seed=seed, run_ahead=500)
        assert run.total_ms == more.total_ms
    assert default_run_ahead(Latency(1.0), specs(0.3)) == 5
    fewer = simulate_drafters(target, drafters, tokens=60, seed=seed, run_ahead=1)
    assert fewer.total_ms > run.total_ms


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("drafters", {"drafters": []}),
        ("drafters", {"drafters": [Latency(0.1)]}),
        ("ordered", {"drafters": specs(0.2, 0.1)}),
        ("target", {"target": 1.0}),
        ("target: growth", {"target": Latency(1.0, growth=0.1)}),
        ("drafters: growth", {"drafters": specs(0.1, growth=0.1)}),
        ("tokens", {"tokens": 0}),
        ("seed", {"seed": -1}),
        ("right", {"right": [[True], [True]]}),
        ("run_ahead", {"run_ahead": 0}),
        ("max_nodes", {"max_nodes": 11, "run_ahead": 11}),
    ],
)
def test_misuse_names_the_argument(name: str, changes: dict[str, Any]) -> None:
    good = {"target": Latency(1.0), "drafters": specs(0.1)}
    with pytest.raises(InvalidArgument, match=name):
        simulate_drafters(**(good | changes))


def test_a_drafter_and_a_result_are_values() -> None:
    with pytest.raises(InvalidArgument, match="acceptance"):
        DrafterSpec(Latency(0.1), 1.5)
    with pytest.raises(InvalidArgument, match="latency"):
        DrafterSpec(0.1)  # type: ignore[arg-type]
    run = simulate_drafters(Latency(1.0), specs(0.5), tokens=4)
    assert run.ms_per_token == pytest.approx(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.total_ms = 0.0  # type: ignore[misc]


def test_spans_can_be_recorded() -> None:
    run = _core.simulate_tree(
        6, _core.Latency(1.0), [_core.Latency(0.2), _core.Latency(0.3)], [0.5, 0.5], record=True
    )
    verifies = [x for x in run["spans"] if x[0] == -1]
    assert len(verifies) == run["verifies"]
    assert {x[2] for x in run["spans"]} == {"v", "d"}
    assert 1 + max(server for _, server, *_ in verifies) == run["peak_servers"]
    assert sum(end - start for _, _, _, start, end, *_ in verifies) == pytest.approx(
        run["target_busy_s"]
    )
