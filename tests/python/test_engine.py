"""The engine as a whole: what it takes, what it reports, and that overlapping pays."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

import dsi_native as dsi
from dsi_native.errors import InvalidArgument
from numpy_lm import NumpyLm, ScriptedLm, greedy

PROMPT = [3, 1, 4, 1, 5]
TEXT = greedy(NumpyLm(), PROMPT, 40)
MODES = ("non-si", "si", "dsi")


def slow(seconds: float = 0.002, **options: Any) -> NumpyLm:
    return NumpyLm(before=lambda *_: time.sleep(seconds), **options)


@pytest.mark.parametrize("mode", MODES)
def test_statistics_add_up(mode: str) -> None:
    with dsi.Engine(slow(), NumpyLm(noise=0.2), mode=mode, sp=3, lookahead=2) as engine:
        out = engine.generate(PROMPT, max_new_tokens=40)
    s = out.statistics
    assert (s.mode, s.sp, s.prompt_tokens, s.new_tokens) == (mode, 3, 5, 40)
    assert s.accepted + s.rejected + s.bonus == 40
    assert s.tokens_per_target_forward == 40 / s.target_forwards
    assert 0 < s.time_to_first_token_s < s.total_s
    assert s.time_per_token_s == pytest.approx((s.total_s - s.time_to_first_token_s) / 39)
    assert 0 < s.target_busy <= 1 and 0 <= s.queued_s < s.total_s
    assert 0.002 < s.target_forward_s < 0.1
    assert s.plain_run_s == pytest.approx(s.time_to_first_token_s + 39 * s.target_forward_s)
    assert s.wasted_forwards + s.stopped_forwards + s.failed_forwards <= s.target_forwards
    assert json.loads(json.dumps(s.to_dict()))["accepted"] == s.accepted
    if mode == "non-si":
        assert (s.target_forwards, s.bonus, s.drafted, s.acceptance) == (40, 40, 0, None)
    else:
        assert s.lookahead == 2
        assert 0 < s.acceptance < 1 and s.acceptance == s.accepted / (s.accepted + s.rejected)
        assert s.acceptance_at[0] is not None and all(
            ratio is None or 0 <= ratio <= 1 for ratio in s.acceptance_at
        )
        assert s.drafted >= s.accepted + s.rejected
    if mode == "si":
        assert s.target_forwards < 40 and s.wasted_forwards == 0


def test_acceptance_by_position() -> None:
    script = [n % 50 + 1 for n in range(60)]
    target = ScriptedLm(script, 64)

    def drafts(tokens: np.ndarray, most: int) -> list[int]:
        at = len(tokens) - 1
        return [script[at], script[at + 1], 0][:most] if at + 1 < len(script) else []

    with dsi.Engine(target, drafts, mode="si", lookahead=3, sp=1, break_even=False) as engine:
        s = engine.generate([5], max_new_tokens=30).statistics
    assert s.acceptance_at == [1.0, 1.0, 0.0]
    assert (s.accepted, s.rejected, s.bonus) == (20, 9, 1)  # the last place is never drafted
    assert s.tokens_per_target_forward == pytest.approx(3)


@pytest.mark.parametrize("lookahead", [1, 3, "auto"])
def test_a_request_may_choose_its_mode_and_lookahead(lookahead: int | str) -> None:
    with dsi.Engine(slow(), NumpyLm(noise=0.1), lookahead=4) as engine:
        for mode in MODES:
            out = engine.generate(PROMPT, max_new_tokens=40, mode=mode, lookahead=lookahead)
            assert out.tokens == TEXT
            assert out.statistics.mode == mode
            if lookahead != "auto":
                assert out.statistics.lookahead == lookahead
        assert engine.generate(PROMPT, max_new_tokens=40).statistics.lookahead == 4


@pytest.mark.parametrize("options", [{"run_ahead": 1}, {"max_window": 1}, {"run_ahead": 50}])
def test_limits_on_drafts_never_change_the_text(options: dict[str, int]) -> None:
    widest = []

    def note(tokens: np.ndarray, first: int, job: Any) -> None:
        widest.append(len(tokens) - first)
        time.sleep(0.002)

    with dsi.Engine(NumpyLm(before=note), NumpyLm(noise=0.1), lookahead=1, **options) as engine:
        assert engine.generate(PROMPT, max_new_tokens=40).tokens == TEXT
    if min(options.values()) == 1:
        assert max(widest) == 1


@pytest.mark.parametrize("mode", MODES)
def test_simulated_models(mode: str) -> None:
    target = dsi.SimulatedModel(0.001, seed=3)
    drafter = dsi.SimulatedModel(0.0001, acceptance=0.7, seed=3)
    with dsi.Engine(target, drafter, mode=mode, lookahead=3) as engine:
        out = engine.generate(PROMPT, max_new_tokens=200)
        again = engine.generate(PROMPT, max_new_tokens=200, mode="non-si")
    assert out.tokens == again.tokens
    if mode != "non-si":
        assert 0.55 < out.statistics.acceptance < 0.85
        judged = out.statistics.accepted + out.statistics.rejected
        assert judged > 100


def test_overlapping_pays() -> None:
    target = dsi.SimulatedModel(0.01)
    drafter = dsi.SimulatedModel(0.001, acceptance=0.9)
    with dsi.Engine(target, drafter, sp=4) as engine:

        def least(mode: str) -> float:
            # Other work on the machine only ever adds.
            outs = [engine.generate(PROMPT, max_new_tokens=40, mode=mode) for _ in range(3)]
            return min(out.statistics.total_s for out in outs)

        assert least("non-si") >= 0.4 > 0.28 > least("dsi")


def test_a_function_as_a_target() -> None:
    model = NumpyLm()

    def make() -> Any:
        past: list[int] = []

        def forward(tokens: np.ndarray, start: int) -> np.ndarray:
            del past[start:]
            past.extend(tokens.tolist())
            return model.logits(past, start + 1)

        return forward

    for target in (dsi.CallableModel(factory=make), dsi.CallableModel([make(), make()])):
        with dsi.Engine(target, NumpyLm(noise=0.2)) as engine:
            assert engine.generate(PROMPT, max_new_tokens=40).tokens == TEXT
            outs = engine.generate([PROMPT, [7], PROMPT[:2]], max_new_tokens=10)
            assert [out.tokens for out in outs] == [
                greedy(model, prompt, 10) for prompt in (PROMPT, [7], PROMPT[:2])
            ]
    with dsi.Engine(make(), None, sp=1) as engine:
        assert engine.generate(PROMPT, max_new_tokens=40).tokens == TEXT


def test_text_and_chats_go_through_the_tokenizer() -> None:
    from byte_level import TOKENIZER

    model = NumpyLm(vocab_size=340)
    with dsi.Engine(model, "lookup", tokenizer=TOKENIZER) as engine:
        assert engine.tokenizer is TOKENIZER and engine.vocab_size == 340
        ids = TOKENIZER.encode("the story")
        out = engine.generate("the story", max_new_tokens=20)
        assert out.tokens == greedy(model, ids, 20)
        assert out.statistics.prompt_tokens == len(ids)
        outs = engine.generate(["the story", "stop"], max_new_tokens=20)
        assert outs[0].text == out.text
        chat = [{"role": "user", "content": "stop"}]
        with pytest.raises(InvalidArgument, match="need a chat template"):
            engine.generate(chat)
        TOKENIZER.chat_template = (
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}the {% endif %}"
        )
        try:
            ids = TOKENIZER.encode("user: stop\nthe ")
            assert engine.generate(chat, max_new_tokens=5).tokens == greedy(model, ids, 5)
            outs = engine.generate([chat, chat], max_new_tokens=5)
            assert [out.tokens for out in outs] == [greedy(model, ids, 5)] * 2
        finally:
            TOKENIZER.chat_template = None


def test_rows_wider_than_the_targets_vocabulary_are_cut() -> None:
    """A drafter with padded rows: ids that the target does not have are never drafted."""

    class Padded(NumpyLm):
        def logits(self, tokens: Any, first: int | None = None) -> np.ndarray:
            rows = super().logits(tokens, first)
            return np.concatenate([rows, np.full((len(rows), 8), 99, np.float32)], axis=1)

    drafter = Padded()
    drafter.vocab_size = None
    with dsi.Engine(slow(), drafter, mode="si") as engine:
        out = engine.generate(PROMPT, max_new_tokens=40)
    assert out.tokens == TEXT
    assert out.statistics.drafter_error == "" and out.statistics.acceptance == 1.0


def test_prompt_lookup_says_what_is_wrong() -> None:
    for options, match in (
        ({"max_drafts": 0}, "max_drafts: at least 1"),
        ({"min_ngram": 0}, "min_ngram"),
        ({"min_ngram": 4, "max_ngram": 2}, "min_ngram"),
    ):
        with pytest.raises(InvalidArgument, match=match):
            dsi.PromptLookup(**options)
    with pytest.raises(InvalidArgument, match="tpot_s > 0"):
        dsi.SimulatedModel(0)


def test_names() -> None:
    engine = dsi.Engine(NumpyLm(), "lookup", sp=3, lookahead=2, mode="si")
    assert repr(engine) == (
        "Engine(target='tables, noise 0', drafter='lookup', sp=3, lookahead=2, mode='si')"
    )
    engine.close()
    assert set(dsi.__all__) <= set(dir(dsi))
    for name in dsi.__all__:
        assert getattr(dsi, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = dsi.nonsense


@pytest.mark.parametrize(
    ("drafter", "sp", "compete"), [("int4", 1, True), ("lookup", 2, True), ("lookup", 1, False)]
)
def test_statistics_say_whether_forwards_compete(drafter: str, sp: int, compete: bool) -> None:
    from tiny import tiny_target

    model = dsi.TransformersModel(tiny_target())
    with dsi.Engine(model, drafter, sp=sp, threads=1) as engine:
        for mode in ("dsi", "non-si"):
            out = engine.generate([1, 2, 3], max_new_tokens=4, mode=mode)
            assert out.statistics.forwards_compete == (compete and mode == "dsi")
