"""Replays of measured requests: the virtual clock's results, and what it does not know."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dsi_native import _core
from dsi_native.errors import InvalidArgument
from dsi_native.experiments.measurement import (
    Acceptance,
    Contention,
    MeasuredDrafter,
    MeasuredLatency,
    MeasuredTarget,
    Measurement,
    Prompts,
    Slowdown,
)
from dsi_native.experiments.predict import predict, predict_one
from dsi_native.experiments.replay import Replay, Setting

PROMPT = 7


def measured(
    target_ms: float,
    drafter_ms: float,
    hits: str,
    *,
    first_ms: float | None = None,
    drafter_first_ms: float | None = None,
    growth: float = 0.0,
    drafter_growth: float = 0.0,
    slowdown: tuple[Slowdown, ...] | None = None,
    stoppable: bool = True,
) -> Measurement:
    acceptance = Acceptance(0.5, 0.0, 1.0, 0, 0.5, (hits,))
    target = MeasuredLatency(target_ms, first_ms or target_ms, growth)
    drafter = MeasuredLatency(drafter_ms, drafter_first_ms or drafter_ms, drafter_growth)
    overlap = None if slowdown is None else Contention(1, target, (drafter,), slowdown)
    return Measurement(
        MeasuredTarget(**vars(target), name="t"),
        (MeasuredDrafter(**vars(drafter), name="d", acceptance=acceptance),),
        shared_hardware=slowdown is not None,
        prompts=Prompts("", (PROMPT,)),
        tokens=len(hits),
        machine={},
        stoppable=stoppable,
        contention=overlap,
    )


def replayed(of: Measurement, mode: str, lookahead: int = 1, sp: int = 1) -> tuple[float, float]:
    (hits,) = of.drafters[0].acceptance.hits
    replay = Replay(of, 0, Setting(mode, lookahead, sp), 0, hits, of.tokens)
    return replay.run(), replay.first_token_ms


@pytest.mark.parametrize("seed", range(40))
def test_own_hardware_is_the_virtual_clock(seed: int) -> None:
    draw = random.Random(seed)
    target, drafter = draw.randint(2, 40) / 4, draw.randint(1, 8) / 4
    firsts = target * draw.choice([1, 1.5, 3]), drafter * draw.choice([1, 2])
    growth, stoppable = draw.choice([0, 0.0625, 0.25]), draw.random() < 0.5
    hits = "".join("01"[draw.random() < 0.7] for _ in range(draw.randint(1, 40)))
    of = measured(target, drafter, hits, first_ms=firsts[0], drafter_first_ms=firsts[1],
                  growth=growth, stoppable=stoppable)  # fmt: skip
    for mode, sp in (("non-si", 1), ("si", 1), ("dsi", 1), ("dsi", 2), ("dsi", 4)):
        lookahead = draw.randint(1, 6)
        result = _core.simulate(
            Setting(mode, lookahead, sp).policy(own_hardware=True),
            sp,
            len(hits),
            _core.Latency(target * 1e-3, firsts[0] * 1e-3, growth, 0.0, stoppable),
            _core.Latency(drafter * 1e-3, firsts[1] * 1e-3, 0.0, 0.0, stoppable),
            right=[letter == "1" for letter in hits],
        )
        expected = result["total_s"] * 1e3, result["first_token_s"] * 1e3
        assert replayed(of, mode, lookahead, sp) == pytest.approx(expected, abs=1e-4), (mode, sp)


def test_forwards_that_overlap_slow_each_other() -> None:
    # The first forward and the draft need 10 ms alone and 20 together; the last token has no draft
    # beside it.
    both = Slowdown(1, 0, target_factor=2.0, drafter_factor=2.0)
    assert replayed(measured(10, 10, "11", slowdown=(both,)), "dsi")[0] == pytest.approx(30)
    assert replayed(measured(10, 10, "11", slowdown=()), "dsi")[0] == pytest.approx(20)
    # The draft is there after 10 ms, when the forward is half done: 5 more without company.
    uneven = Slowdown(1, 0, target_factor=2.0, drafter_factor=1.0)
    assert replayed(measured(10, 10, "11", slowdown=(uneven,)), "dsi")[1] == pytest.approx(15)
    # Models that take turns slow nothing.
    si = measured(10, 10, "11", slowdown=(both,))
    assert replayed(si, "si")[0] == pytest.approx(20)


def test_more_servers_than_were_measured_share_the_same_cores() -> None:
    # Five windows start when the prompt is there.
    hits = "1" * 31
    free, two = (), (Slowdown(2, None, target_factor=2.0),)
    alone = replayed(measured(10, 0.001, hits, slowdown=free), "dsi", 6, 5)[0]
    assert alone == pytest.approx(20, abs=0.1)
    shared = replayed(measured(10, 0.001, hits, slowdown=two), "dsi", 6, 5)[0]
    assert shared == pytest.approx(10 + 2 * 10 * 5 / 2, abs=0.1)


def test_a_position_without_a_draft_costs_no_window() -> None:
    none, wrong = (measured(10, 1, letter * 9, growth=0.5) for letter in "-0")
    # SI: a try at drafting and a forward for each token but the last, which nobody drafts.
    assert replayed(none, "si", 2)[0] == pytest.approx(8 * (1 + 10) + 10)
    # Two drafts, of which the second is as wrong as the first, make the forward twice as long; at
    # the second to last token there is room for one.
    assert replayed(wrong, "si", 2)[0] == pytest.approx(7 * (2 + 20) + (1 + 15) + 10)


def test_a_drafter_catches_up() -> None:
    # After each accepted draft it has the draft and the bonus to read.
    of = measured(10, 2, "1" * 7, drafter_first_ms=2, drafter_growth=0.5)
    assert replayed(of, "si", 1)[0] == pytest.approx((2 + 10) + 2 * (3 + 10) + 10)


def test_servers_of_one_device_compute_a_prompt_once() -> None:
    of = measured(10, 1, "1" * 12, first_ms=100, slowdown=())
    # The second server waits for the first one's prompt: two prompts would take 100 more.
    total, first = replayed(of, "dsi", 2, 2)
    assert first == pytest.approx(100)
    assert total < 150


def test_predictions_choose_the_best_lookahead() -> None:
    of = measured(10, 1, "1" * 24, slowdown=())
    non_si, si, dsi = predict(of, sp=2)
    assert (non_si.ms_per_token, non_si.lookahead, non_si.drafter) == (10, 0, None)
    for row, sp in ((si, 1), (dsi, 2)):
        fixed = [predict_one(of, 0, Setting(row.mode, k, sp)) for k in (1, 2, 4, 8, 12)]
        assert row.ms_per_token <= min(other.ms_per_token for other in fixed)
        assert (row.drafter, row.sp, row.tokens) == ("d", sp, 24)
        assert row.total_ms == pytest.approx(24 * row.ms_per_token)
    assert predict(of, sp=2, lookahead=3)[1].lookahead == 3
    assert predict(of, tokens=100)[0].total_ms == pytest.approx(1000)


def test_without_drafts_the_acceptance_decides() -> None:
    of = measured(10, 1, "1" * 30)
    bare = Acceptance(0.6, 0.5, 0.7, 100, 0.6)
    drafter = MeasuredDrafter(1.0, 1.0, name="d", acceptance=bare)
    plain: dict[str, Any] = vars(of) | {"drafters": (drafter,), "tokens": 100}
    row = predict_one(Measurement(**plain), 0, Setting("dsi", 1, 12))
    # Proposition 1 of arXiv 2405.14105: a*d + (1-a)*T per token.
    assert row.ms_per_token == pytest.approx(0.6 * 1 + 0.4 * 10, rel=0.08)


@pytest.mark.parametrize("wrong", ["sp", "lookahead", "tokens"])
def test_predict_names_what_is_wrong(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{wrong} must be at least 1"):
        predict(measured(10, 1, "1"), **{wrong: 0})
    with pytest.raises(InvalidArgument, match="drafter must be one of"):
        predict(measured(10, 1, "1"), 1)
