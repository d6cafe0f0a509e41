"""Engines whose drafter has another vocabulary: the target's text, by every method."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest
from tokenizers import normalizers

import dsi_native as dsi
from byte_level import STORY
from dsi_native.errors import InvalidArgument
from dsi_native.models.callable import CallableModel
from pair_tokenizers import DRAFTER, TARGET, Oracle, other_tokenizer, table_model

PROMPT = TARGET.encode("the story of a smile")
TEXTS = ["ha ha ha ha ha ha ha", "one\n\n\n\n\ntwo   three    four", "0000000000 100200300", STORY]


def plain(prompt: Any = PROMPT, **sampling: Any) -> list[int]:
    with dsi.Engine(table_model(TARGET, 0), None) as engine:
        return engine.generate(prompt, **sampling).tokens


@pytest.mark.parametrize("method", ["tli", "slem", "auto"])
@pytest.mark.parametrize("mode", ["si", "dsi"])
def test_the_text_is_the_targets_own(mode: str, method: str) -> None:
    settings = [
        {"temperature": 0.0},
        {"temperature": 0.8, "seed": 3},
        {"temperature": 0.8, "seed": 4, "top_k": 20, "repetition_penalty": 1.2, "top_p": 0.9},
        {"temperature": 0.0, "logit_bias": {40: 3.0}, "presence_penalty": 0.5},
        {"temperature": 0.0, "verification": "rejection"},
    ]
    expected = [plain(max_new_tokens=40, **setting) for setting in settings]
    for sp, lookahead in ((1, 1), (2, 3), (2, "auto")):
        drafter = table_model(DRAFTER, 1)
        with dsi.Engine(
            table_model(TARGET, 0), drafter, mode=mode, sp=sp, lookahead=lookahead, method=method
        ) as engine:
            for setting, tokens in zip(settings, expected, strict=True):
                out = engine.generate(PROMPT, max_new_tokens=40, **setting)
                assert out.tokens == tokens
                assert out.statistics.method in ("tli", "slem")
                assert out.statistics.drafter_error == ""


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("lookahead", [1, 4])
def test_an_oracle_drafts_text_that_the_target_accepts(text: str, lookahead: int) -> None:
    spoken = ("the " + text).encode()
    target, drafter = Oracle(TARGET, spoken), Oracle(DRAFTER, spoken)
    with dsi.Engine(
        target.model(TARGET),
        drafter.model(DRAFTER),
        mode="si",
        sp=1,
        lookahead=lookahead,
        method="slem",
        break_even=False,
    ) as engine:
        out = engine.generate(TARGET.encode("the"), max_new_tokens=200)
    assert out.text == " " + text
    assert out.finish_reason == "stop_token"
    assert out.statistics.acceptance == 1.0
    assert out.statistics.accepted >= out.statistics.new_tokens // 2 - 1
    # The drafter only ever read what had been said, or was about to be.
    assert all(spoken.startswith(seen) for seen in drafter.seen)


def test_a_text_may_end_at_each_place_of_a_block() -> None:
    for words in range(1, 8):
        spoken = ("the" + " stop" * words).encode()
        target, drafter = Oracle(TARGET, spoken), Oracle(DRAFTER, spoken)
        for method in ("tli", "slem"):
            with dsi.Engine(
                target.model(TARGET), drafter.model(DRAFTER), mode="si", lookahead=5, method=method
            ) as engine:
                out = engine.generate(TARGET.encode("the"), max_new_tokens=50)
            assert (out.text, out.finish_reason) == (" stop" * words, "stop_token")


@pytest.mark.parametrize("method", ["tli", "slem"])
def test_prompts_of_any_kind(method: str) -> None:
    prompts: list[Any] = [[5], [TARGET.eos_token_id], [TARGET.eos_token_id] * 3, TARGET.encode("é")]
    prompts += [[*TARGET.encode("<end> typed"), TARGET.eos_token_id, *TARGET.encode("after")]]
    prompts += [TARGET.encode("🙂")[:-1], TARGET.encode("a\ufffdb")]
    with dsi.Engine(
        table_model(TARGET, 0), table_model(DRAFTER, 1), mode="si", lookahead=3, method=method
    ) as engine:
        for prompt in prompts:
            assert engine.generate(prompt, max_new_tokens=12).tokens == plain(
                prompt, max_new_tokens=12
            )


@pytest.mark.parametrize("method", ["tli", "slem"])
def test_both_context_limits(method: str) -> None:
    with dsi.Engine(
        table_model(TARGET, 0, context=40),
        table_model(DRAFTER, 1, context=20),
        mode="si",
        lookahead=3,
        method=method,
    ) as engine:
        out = engine.generate(PROMPT, max_new_tokens=100)
    assert out.tokens == plain(max_new_tokens=40 - len(PROMPT))
    assert out.finish_reason == "length"
    assert out.statistics.drafter_error == ""
    assert out.statistics.drafted > 0


def test_auto_takes_tokens_where_they_cover_the_prompt_and_text_elsewhere() -> None:
    with dsi.Engine(table_model(TARGET, 0), table_model(DRAFTER, 1), mode="si") as engine:
        covered = [TARGET.encode(letter)[0] for letter in "abcdefghijklmnopqrst"]
        (own,) = TARGET.encode(" façade")[:1]
        assert engine.generate(covered, max_new_tokens=2).statistics.method == "tli"
        foreign = [
            at
            for at in range(len(TARGET))
            if engine._pair.translation.map.t2d[at] < 0 and at != TARGET.eos_token_id
        ]
        assert own in foreign
        assert engine.generate(foreign, max_new_tokens=2).statistics.method == "slem"
        out = engine.generate(foreign, max_new_tokens=2, method="tli")
        assert out.statistics.method == "tli"
        assert engine.generate(PROMPT, max_new_tokens=2, mode="non-si").statistics.method is None


def test_misuse_names_the_argument() -> None:
    with pytest.raises(InvalidArgument, match=r"method: must be one of auto, tli, slem, got 'x'"):
        dsi.Engine(table_model(TARGET, 0), table_model(DRAFTER, 1), method="x")
    nameless = CallableModel(lambda tokens, start: np.zeros((len(tokens), 9)), 9)
    with pytest.raises(InvalidArgument, match=r"drafter: .* both need a tokenizer"):
        dsi.Engine(table_model(TARGET, 0), nameless)
    with dsi.Engine(table_model(TARGET, 0), table_model(TARGET, 1)) as engine:
        assert engine._pair.translation is None
        with pytest.raises(InvalidArgument, match=r"method: 'slem' is for drafters with another"):
            engine.generate(PROMPT, method="slem")
        with pytest.raises(InvalidArgument, match="method"):
            engine.generate(PROMPT, method="text")


def test_a_named_method_is_used_between_equal_vocabularies_too() -> None:
    for method in ("tli", "slem"):
        with dsi.Engine(
            table_model(TARGET, 0), table_model(TARGET, 0), mode="si", method=method
        ) as engine:
            out = engine.generate(PROMPT, max_new_tokens=20)
        assert (out.tokens, out.statistics.method) == (plain(max_new_tokens=20), method)


def test_no_hook_sees_the_drafters_rows() -> None:
    widths = set()

    def note(prefix: np.ndarray, logits: np.ndarray) -> None:
        widths.add(len(logits))
        logits[7] += 2

    with dsi.Engine(table_model(TARGET, 0), table_model(DRAFTER, 1), mode="si") as engine:
        for method in ("tli", "slem"):
            out = engine.generate(
                PROMPT,
                max_new_tokens=20,
                logits_processor=note,
                method=method,
                temperature=0.7,
                seed=1,
            )
            expected = plain(max_new_tokens=20, logits_processor=note, temperature=0.7, seed=1)
            assert out.tokens == expected
    assert widths == {len(TARGET)}


def test_a_drafter_that_cannot_read_costs_speed_only() -> None:
    with dsi.Engine(
        table_model(TARGET, 0), table_model(DRAFTER, 1), mode="si", method="slem"
    ) as engine:
        native = engine._pair.translation

        def broken(data: bytes) -> Any:
            if data.startswith(b"text"):  # what is encoded beforehand, to be warm
                return np.empty(0, np.int32), np.empty(0, np.int64)
            raise RuntimeError("no such text")

        object.__setattr__(native.drafter, "encode", broken)
        targets, drafter = engine._pair.servers(1, 1)
        made = dsi.Engine.__new__(dsi.Engine)
        made.__dict__.update(engine.__dict__)
        made._core = dsi._core.Engine(targets, drafter, 4, len(TARGET), False)
        with made:
            out = made.generate(PROMPT, max_new_tokens=20)
        assert out.tokens == plain(max_new_tokens=20)
        assert "no such text" in out.statistics.drafter_error


def test_pairs_in_threads_share_nothing() -> None:
    """Two targets and two drafters, each with each, at once; the tokenizers stay as they were."""
    third = other_tokenizer(320)
    states = [t.backend_tokenizer.to_str() for t in (TARGET, DRAFTER, third)]
    own = [DRAFTER.encode(STORY), third.encode(STORY)]
    expected = dict.fromkeys((0, 1))
    for seed in expected:
        with dsi.Engine(table_model(TARGET, seed), None) as engine:
            expected[seed] = engine.generate(PROMPT, max_new_tokens=40).tokens
    failures: list[Any] = []

    def decode(seed: int, tokenizer: Any, method: str) -> None:
        drafter = table_model(tokenizer, 7)
        with dsi.Engine(table_model(TARGET, seed), drafter, lookahead=2, method=method) as engine:
            for out in engine.generate([PROMPT] * 3, max_new_tokens=40):
                if out.tokens != expected[seed] or out.statistics.drafter_error:
                    failures.append((seed, method, out))

    threads = [
        threading.Thread(target=decode, args=choice)
        for choice in itertools.product((0, 1), (DRAFTER, third), ("tli", "slem"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert states == [t.backend_tokenizer.to_str() for t in (TARGET, DRAFTER, third)]
    assert own == [DRAFTER.encode(STORY), third.encode(STORY)]


def test_a_drafter_that_costs_too_much_is_left_alone_for_a_while() -> None:
    def slow(tokens: np.ndarray, start: int) -> np.ndarray:
        time.sleep(0.004)
        return np.zeros((len(tokens), len(DRAFTER)), np.float32)

    drafter = CallableModel(slow, len(DRAFTER), tokenizer=DRAFTER)
    for method in ("tli", "slem"):
        for on in (True, False):
            with dsi.Engine(
                table_model(TARGET, 0), drafter, mode="si", method=method, break_even=on
            ) as engine:
                out = engine.generate(PROMPT, max_new_tokens=100)
            assert out.tokens == plain(max_new_tokens=100)
            assert (out.statistics.draft_pauses > 0) == on
            assert (out.statistics.undrafted >= 40) == on


@pytest.mark.parametrize("method", ["tli", "slem"])
def test_a_drafter_that_alters_text_keeps_the_law(method: str) -> None:
    """Lower case and NFKC: its text drifts from the target's, the offsets do not."""
    lossy = other_tokenizer()
    lossy.backend_tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase()]
    )
    spoken = "the STOP of ﬁve NAÏVE stories e\u0301 the smile stops here, the end. " * 2
    target = Oracle(TARGET, spoken.encode())
    with dsi.Engine(
        target.model(TARGET),
        table_model(lossy, 3),
        mode="si",
        lookahead=3,
        method=method,
        break_even=False,
    ) as engine:
        assert not engine._pair.translation.drafter.lossless
        out = engine.generate(TARGET.encode("the"), max_new_tokens=200)
    assert "the" + out.text == spoken
    assert (out.finish_reason, out.statistics.drafter_error) == ("stop_token", "")
    assert out.statistics.drafted > 0
    with dsi.Engine(
        table_model(TARGET, 0), table_model(lossy, 1), mode="dsi", method=method
    ) as engine:
        assert engine.generate(PROMPT, max_new_tokens=40).tokens == plain(max_new_tokens=40)
