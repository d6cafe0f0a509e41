"""Where a text ends: stop strings on bytes across token borders, stop ids, caps and contexts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsi_native as dsi
from byte_level import END, SCRIPT, STORY, TOKENIZER
from dsi_native.errors import InvalidArgument
from dsi_native.vocab.bytes import token_bytes
from numpy_lm import NumpyLm, ScriptedLm, greedy

MODES = ("non-si", "si", "dsi")


TOKENIZER_BYTES = token_bytes(TOKENIZER, 340)


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, dsi.Engine]]:
    target = ScriptedLm([*SCRIPT, END], 340)
    target.tokenizer = TOKENIZER
    target.eos_ids = (END,)
    made = {
        mode: dsi.Engine(target, target.drafter(wrong_every=5), mode=mode, lookahead=4)
        for mode in MODES
    }
    yield made
    for engine in made.values():
        engine.close()


def expected(stops: list[str], most: int) -> tuple[int, str, str]:
    """(tokens, text, finish reason) by the definition: token by token, on the bytes so far."""
    so_far = b""
    for count, token in enumerate(SCRIPT[:most], 1):
        so_far += TOKENIZER_BYTES[token]
        starts = [at for stop in stops if (at := so_far.find(stop.encode())) >= 0]
        if starts:
            return count, so_far[: min(starts)].decode(errors="replace"), "stop_string"
    if most > len(SCRIPT):
        return len(SCRIPT) + 1, STORY, "stop_token"
    return most, so_far.decode(errors="replace"), "length"


def test_the_script_splits_characters_and_words() -> None:
    assert b"".join(TOKENIZER_BYTES[token] for token in SCRIPT).decode() == STORY
    whole = 0
    for token in SCRIPT:
        try:
            TOKENIZER_BYTES[token].decode()
            whole += 1
        except UnicodeDecodeError:
            pass
    assert 10 < whole < len(SCRIPT) - 5, "some tokens are parts of a character"


@settings(max_examples=60)
@given(st.data())
def test_stop_strings(engines: dict[str, dsi.Engine], data: Any) -> None:
    spans = st.tuples(st.integers(0, len(STORY) - 1), st.integers(1, 9))
    cuts = st.builds(lambda span: STORY[span[0] : span[0] + span[1]], spans)
    stops = data.draw(st.lists(cuts | st.sampled_from(["stop", "zzz", "S", "e"]), min_size=1))
    most = data.draw(st.integers(1, len(SCRIPT) + 3), "max_new_tokens")
    tokens, text, reason = expected(stops, most)
    for mode, engine in engines.items():
        stream = engine.stream([5], stop=stops, max_new_tokens=most)
        pieces = list(stream)
        out = stream.result
        assert (len(out.tokens), out.text, out.finish_reason) == (tokens, text, reason), mode
        assert "".join(pieces) == text
        assert all(pieces)


@pytest.mark.parametrize("mode", MODES)
def test_a_stop_inside_a_window_wins_over_the_cap(
    engines: dict[str, dsi.Engine], mode: str
) -> None:
    end, text, _ = expected(["stops"], 99)
    for most, reason in ((end - 1, "length"), (end, "stop_string"), (end + 1, "stop_string")):
        out = engines[mode].generate([5], stop="stops", max_new_tokens=most)
        assert (out.finish_reason, len(out.tokens)) == (reason, min(most, end))
    assert out.text == text


@pytest.mark.parametrize("mode", MODES)
def test_stop_ids_and_end_tokens(engines: dict[str, dsi.Engine], mode: str) -> None:
    engine = engines[mode]
    out = engine.generate([5], max_new_tokens=99)
    assert (out.finish_reason, out.tokens, out.text) == ("stop_token", [*SCRIPT, END], STORY)
    out = engine.generate([5], max_new_tokens=len(SCRIPT) + 1)
    assert out.finish_reason == "stop_token", "a stop at the cap is a stop"
    out = engine.generate([5], max_new_tokens=len(SCRIPT))
    assert (out.finish_reason, out.text) == ("length", STORY)
    out = engine.generate([5], max_new_tokens=len(SCRIPT) + 3, ignore_eos=True)
    assert (out.finish_reason, len(out.tokens)) == ("length", len(SCRIPT) + 3)
    first = SCRIPT.index(SCRIPT[7])
    out = engine.generate([5], max_new_tokens=99, stop_ids=[SCRIPT[7]])
    assert (out.finish_reason, out.tokens) == ("stop_token", SCRIPT[: first + 1])
    out = engine.generate([5], max_new_tokens=99, stop_ids=[SCRIPT[7]], ignore_eos=True)
    assert out.tokens == SCRIPT[: first + 1], "only the model's own end token is ignored"
    out = engine.generate([5], max_new_tokens=20, min_new_tokens=20, stop_ids=[SCRIPT[7]])
    assert (out.finish_reason, len(out.tokens)) == ("length", 20)
    assert SCRIPT[7] not in out.tokens


@pytest.mark.parametrize("mode", MODES)
def test_a_character_that_never_ends(engines: dict[str, dsi.Engine], mode: str) -> None:
    at = next(i for i, t in enumerate(SCRIPT) if TOKENIZER_BYTES[t][-1:] >= b"\xe0")
    out = engines[mode].generate([5], max_new_tokens=at + 1)
    assert out.text.endswith("\ufffd")
    assert out.text[:-1] == STORY[: len(out.text) - 1]


def test_pieces_hold_whole_characters(engines: dict[str, dsi.Engine]) -> None:
    for engine in engines.values():
        pieces = list(engine.stream([5], max_new_tokens=99))
        assert "".join(pieces) == STORY
        assert not any("\ufffd" in piece for piece in pieces)
        assert len(pieces) > 15, "text comes while it is made, not at the end"


def test_a_stop_string_in_the_prompt_does_not_count(engines: dict[str, dsi.Engine]) -> None:
    (token,) = [i for i, piece in enumerate(TOKENIZER_BYTES) if piece == b"S"]
    for engine in engines.values():
        out = engine.generate([token], max_new_tokens=99, stop="SSo")
        assert out.text == STORY


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("context", [9, 10, 20])
def test_the_end_of_the_context_is_a_length(mode: str, context: int) -> None:
    prompt = [3, 1, 4, 1, 5]
    with dsi.Engine(NumpyLm(context=context), NumpyLm(noise=0.2), mode=mode, sp=3) as engine:
        out = engine.generate(prompt, max_new_tokens=50)
        assert out.finish_reason == "length"
        assert out.tokens == greedy(NumpyLm(), prompt, context - len(prompt))
        out = engine.generate(prompt, max_new_tokens=context - len(prompt) - 1)
        assert len(out.tokens) == context - len(prompt) - 1


@pytest.mark.parametrize("mode", ["si", "dsi"])
@pytest.mark.parametrize("context", [1, 5, 6, 11])
def test_a_drafter_with_a_short_context_pauses(mode: str, context: int) -> None:
    prompt = [3, 1, 4, 1, 5]
    longest = []

    def note(tokens: Any, first: int, job: Any) -> None:
        longest.append(len(tokens))

    drafter = NumpyLm(context=context, before=note)
    slow = NumpyLm(before=lambda *_: time.sleep(0.002))
    with dsi.Engine(slow, drafter, mode=mode) as engine:
        out = engine.generate(prompt, max_new_tokens=20)
    assert out.tokens == greedy(NumpyLm(), prompt, 20)
    assert max(longest, default=0) <= context
    assert bool(longest) == (context > len(prompt))
    assert out.statistics.drafter_error == ""


def test_stop_strings_and_an_unknown_tokenizer() -> None:
    with (
        dsi.Engine(NumpyLm(), None, sp=1, tokenizer=object()) as engine,
        pytest.raises(InvalidArgument, match="not backed by the tokenizers library"),
    ):
        engine.generate([1], stop="a")
