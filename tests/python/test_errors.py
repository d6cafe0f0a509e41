"""Bad input and bad models: a clear error that names the argument, and nothing is lost by it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dsi_native as dsi
from dsi_native.errors import EngineFailed, InvalidArgument, RequestFailed
from numpy_lm import NumpyLm, greedy

PROMPT = [3, 1, 4, 1, 5]
TEXT = greedy(NumpyLm(), PROMPT, 8)
# Leaves the drafter time to be met.
SLOW = NumpyLm(before=lambda tokens, first, job: time.sleep(0.005))


@pytest.fixture(scope="module")
def engine() -> Iterator[dsi.Engine]:
    with dsi.Engine(NumpyLm(), NumpyLm(noise=0.2)) as made:
        yield made
        assert made.unfinished == 0


def refused(match: str) -> Any:
    return pytest.raises(InvalidArgument, match=match)


@pytest.mark.parametrize(
    ("prompt", "match"),
    [
        ([], "^prompt: is empty"),
        ("", "^prompt: is empty"),
        (np.empty(0, np.int32), "^prompt: is empty"),
        ([[1, 2], []], "^prompt: is empty"),
        ([1, -1], "^prompt: id -1 is outside the vocabulary of 64"),
        ([1, 64], "^prompt: id 64 is outside the vocabulary of 64"),
        ([2**63], "^prompt: id 9223372036854775808 is outside"),
        ([1.5], "^prompt: must be .* got float64 of shape"),
        ([True], "^prompt: must be .* got bool"),
        ([[[1]]], "^prompt: must be .* of shape"),
        (None, "^prompt: must be"),
        (7, "^prompt: must be"),
        ([[1], "text"], "^prompt: text needs a tokenizer"),
        ([{"role": "user", "content": "hi"}], "^prompt: chat messages needs? a tokenizer"),
        ([{"content": "hi"}], "^prompt: "),
    ],
)
def test_prompts(engine: dsi.Engine, prompt: Any, match: str) -> None:
    with refused(match):
        engine.generate(prompt)
    assert engine.generate(PROMPT, max_new_tokens=8).tokens == TEXT


WRONG = {
    "max_new_tokens": [0, -1, 1.5, "8", None, True],
    "min_new_tokens": [-1, 9, 0.5, None],
    "temperature": [-0.1, math.nan, math.inf, "hot", None],
    "top_k": [-1, 2.5, None],
    "top_p": [0, -0.1, 1.1, math.nan, None],
    "min_p": [-0.1, 1.1, math.nan, None],
    "seed": [-1, 2**64, 1.5, "1"],
    "verification": ["exact", None, 1],
    "stop": ["", [""], ["a", 3], b"a", 5, [b"a"]],
    "stop_ids": [[-1], [64], [1.5], 3, "3"],
    "repetition_penalty": [0, -1, math.nan, math.inf, None],
    "presence_penalty": [math.nan, math.inf, "1", None],
    "frequency_penalty": [math.nan, -math.inf, None],
    "logit_bias": [{64: 1.0}, {-1: 1.0}, {1: math.nan}, {1: math.inf}, {1: "2"}, [1, 2], {"1": 1}],
    "logprobs": [-1, 1.5, True],
    "logits_processor": [5, "f", [print]],
    "timeout": [0, -1, math.nan, "1", math.inf],
    "mode": ["fast", 1, ""],
    "lookahead": [0, -1, 1.5, "many", 5000, True],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_parameters(engine: dsi.Engine, name: str, value: Any) -> None:
    with refused(f"^{name}: "):
        engine.generate(PROMPT, **{"max_new_tokens": 8, name: value})
    assert engine.unfinished == 0


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("num_return_sequences", 2, "^num_return_sequences: 2 is not supported"),
        ("num_beams", 2, "^num_beams: 2 is not supported"),
        ("n", 3, "^n: 3 is not supported"),
        ("best_of", 2, "^best_of: 2 is not supported"),
        ("max_tokens", 8, "^max_tokens: .* did you mean max_new_tokens"),
        ("stop_token_ids", [1], "^stop_token_ids: .* did you mean stop_ids"),
        ("do_sample", True, "^do_sample: .* did you mean temperature"),
        ("length_penalty", 1.0, "^length_penalty: no such sampling parameter"),
    ],
)
def test_what_cannot_be_honoured(engine: dsi.Engine, name: str, value: Any, match: str) -> None:
    with refused(match):
        engine.generate(PROMPT, **{name: value})
    if name in ("num_return_sequences", "num_beams", "n", "best_of"):
        assert engine.generate(PROMPT, max_new_tokens=8, **{name: 1}).tokens == TEXT


def test_numpy_numbers_are_numbers(engine: dsi.Engine) -> None:
    out = engine.generate(
        np.array(PROMPT, np.uint8),
        max_new_tokens=np.int64(8),
        min_new_tokens=np.int32(1),
        temperature=np.float32(0),
        top_k=np.int64(5),
        top_p=np.float64(0.9),
        seed=np.uint64(7),
        stop_ids=np.array([], np.int64),
        logit_bias={np.int64(2): np.float32(0)},
        logprobs=np.int64(0),
        lookahead=np.int64(2),
        timeout=np.float32(50),
    )
    assert (out.tokens, out.seed) == (TEXT, 7)


def test_numbers_without_end(engine: dsi.Engine) -> None:
    """Callers write large numbers where they mean "no limit"."""
    huge = 10**30
    with dsi.Engine(
        NumpyLm(context=13), NumpyLm(), sp=1, max_running=huge, run_ahead=huge, max_window=huge
    ) as bounded:
        out = bounded.generate(
            PROMPT, max_new_tokens=huge, top_k=huge, logprobs=huge, temperature=1e300, timeout=1e300
        )
    assert (len(out.tokens), out.finish_reason) == (8, "length")
    with refused("^min_new_tokens: "):
        engine.generate(PROMPT, min_new_tokens=huge)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"sp": 0}, "^sp: .* at least 1"),
        ({"sp": 1.5}, "^sp: "),
        ({"sp": True}, "^sp: "),
        ({"sp": 10**6}, "^sp: at most 256"),
        ({"lookahead": 0}, "^lookahead: "),
        ({"lookahead": "all"}, "^lookahead: "),
        ({"mode": "turbo"}, "^mode: must be one of"),
        ({"threads": 0}, "^threads: "),
        ({"max_running": 0}, "^max_running: "),
        ({"run_ahead": 0}, "^run_ahead: "),
        ({"max_window": 0}, "^max_window: "),
        ({"cache_budget_bytes": 0}, "^cache_budget_bytes: "),
        ({"target": None}, "^target: "),
        ({"target": 5}, "^target: "),
        ({"target": "no/such/model"}, "^target: .*never downloaded"),
        ({"drafter": 5}, "^drafter: "),
        ({"drafter": "no/such/model"}, "^drafter: .*never downloaded"),
        ({"drafter": "int3"}, "^drafter: 'int3' is no .*int4, int8, lookup, none"),
        ({"drafter": "int4"}, "^drafter: 'int4' is a copy of a transformers target"),
        ({"drafter": NumpyLm(65)}, "^drafter: .*65 and 64 ids.*both need a tokenizer"),
        (
            {"target": lambda tokens, start: np.zeros((len(tokens), 64))},
            "^target: .*2 servers need",
        ),
        (
            {"target": object.__new__(type("Bare", (), {"servers": lambda self, n: []}))},
            "^target: ",
        ),
    ],
)
def test_engines(arguments: dict[str, Any], match: str) -> None:
    with refused(match):
        dsi.Engine(**{"target": NumpyLm(), "drafter": NumpyLm(), **arguments})


def test_stop_strings_need_a_tokenizer(engine: dsi.Engine) -> None:
    with refused("^stop: stop strings need a tokenizer"):
        engine.generate(PROMPT, stop="a")


def test_a_mode_that_needs_a_drafter() -> None:
    with dsi.Engine(NumpyLm(), None) as engine:
        with refused("^mode: 'si' needs a drafter"):
            engine.generate(PROMPT, mode="si")
        out = engine.generate(PROMPT, max_new_tokens=8)
    assert (out.tokens, out.statistics.mode, out.statistics.drafter_error) == (TEXT, "non-si", "")


def test_a_prompt_that_fills_the_context() -> None:
    with dsi.Engine(NumpyLm(context=5), NumpyLm()) as engine:
        with refused("^prompt: 5 tokens leave no room in the target's context of 5"):
            engine.generate(PROMPT)
        assert engine.generate(PROMPT[:4]).finish_reason == "length"


def poison(value: float, at: int) -> Any:
    def edit(rows: np.ndarray, first: int) -> None:
        if first <= at < first + len(rows):
            rows[at - first] = (
                value if math.isinf(value) else np.where(rows[at - first] > 2, value, 0)
            )

    return edit


@pytest.mark.parametrize(
    ("value", "says"), [(math.nan, "NaN"), (-math.inf, "-inf"), (math.inf, r"\+inf")]
)
@pytest.mark.parametrize("mode", ["non-si", "si", "dsi"])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_poisoned_logits_of_a_target(
    value: float, says: str, mode: str, temperature: float
) -> None:
    target = NumpyLm(edit=poison(value, at=len(PROMPT) + 5))
    with dsi.Engine(target, NumpyLm(noise=0.1), mode=mode) as engine:
        request = engine.submit(PROMPT, max_new_tokens=20, temperature=temperature, seed=1)
        with pytest.raises(RequestFailed, match=rf"target's logits for position 10 .*{says}"):
            request.result()
        tokens = list(request._tokens)
        assert len(tokens) == 5, "what was decided before is still there"
        assert engine.generate(PROMPT, max_new_tokens=5).tokens == TEXT[:5]


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
@pytest.mark.parametrize("mode", ["si", "dsi"])
def test_poisoned_logits_of_a_drafter_cost_speed_only(value: float, mode: str) -> None:
    drafter = NumpyLm(edit=poison(value, at=len(PROMPT) + 2))
    with dsi.Engine(SLOW, drafter, mode=mode) as engine:
        for _ in range(4):
            out = engine.generate(PROMPT, max_new_tokens=8)
            assert out.tokens == TEXT
            assert "drafter's logits for position 7" in out.statistics.drafter_error
        assert engine.generate([9, *PROMPT[1:]], max_new_tokens=2).statistics.drafter_error == ""


def test_a_target_that_cannot_start() -> None:
    class Broken(NumpyLm):
        def servers(self, n: int, threads: int | None = None) -> list[Any]:
            servers = super().servers(n)
            for server in servers:
                server.started = self.fail
            return servers

        def fail(self) -> None:
            raise OSError("no such device")

    with dsi.Engine(Broken(), NumpyLm()) as engine:
        with pytest.raises(
            EngineFailed, match="no target server is left: OSError: no such dev"
        ) as e:
            engine.generate(PROMPT)
        assert isinstance(e.value.__cause__, OSError)
        with pytest.raises(EngineFailed, match="no such device"):
            engine.submit(PROMPT)
    with dsi.Engine(NumpyLm(), Broken()) as engine:
        for _ in range(1000):  # a text may be there before the drafter's thread has begun
            out = engine.generate(PROMPT, max_new_tokens=8)
            assert out.tokens == TEXT
            if out.statistics.drafter_error:
                break
        assert "no such device" in out.statistics.drafter_error


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda rows: rows[:0], r"ndarray of shape \(0, 64\)"),
        (lambda rows: np.concatenate([rows, rows]), r"ndarray of shape \(2, 64\)"),
        (lambda rows: rows[:, :0], r"ndarray of shape \(1, 0\)"),
        (lambda rows: rows[0], r"ndarray of shape \(64,\)"),
        (lambda rows: rows.sum(), r"float32 of shape \(\)"),
        (lambda rows: None, "NoneType"),
        (lambda rows: "rows", "str"),
        (lambda rows: [["a"]], "list"),
    ],
)
def test_a_target_that_returns_nonsense(wrong: Any, what: str) -> None:
    model = NumpyLm()

    class Wrong(NumpyLm):
        def logits(self, tokens: Any, first: int | None = None) -> np.ndarray:
            rows = model.logits(tokens, first)
            return wrong(rows) if len(tokens) == 8 else rows

    with dsi.Engine(Wrong(), None, sp=1) as engine:
        with pytest.raises(RequestFailed, match=rf"^forward: returned {what}, expected logits of"):
            engine.generate(PROMPT, max_new_tokens=8)
        assert engine.generate(PROMPT, max_new_tokens=2).tokens == TEXT[:2]


def test_ids_outside_the_vocabulary_from_a_drafter() -> None:
    for wrong in ([64], [-1], [2**40], ["a"], 5, None):
        with dsi.Engine(SLOW, lambda tokens, most, wrong=wrong: wrong) as engine:
            out = engine.generate(PROMPT, max_new_tokens=8)
        assert out.tokens == TEXT
        assert out.statistics.drafter_error, wrong
