"""Sampling parameters under speculation: each one is honoured, in every mode to the same text."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dsi_native as dsi
from numpy_lm import NumpyLm, greedy

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
MODES = ("non-si", "si", "dsi")
MODEL = NumpyLm()
TEXT = greedy(MODEL, PROMPT, 24)


def shift(prefix: np.ndarray, logits: np.ndarray) -> None:
    """A processor whose effect depends on the whole prefix."""
    logits[int(prefix.sum()) % 7 :: 7] -= 3


@pytest.fixture(scope="module")
def engine() -> Iterator[dsi.Engine]:
    slow = NumpyLm(before=lambda tokens, first, job: time.sleep(0.001))
    with dsi.Engine(slow, NumpyLm(noise=0.25), lookahead=3) as made:
        yield made


def reference(path: list[int], params: dict[str, Any]) -> np.ndarray:
    """log p of every id for position len(path), float64, -inf where cut."""
    z = MODEL.logits(path)[0].astype(np.float64)
    new = path[len(PROMPT) :]
    for token, bias in params.get("logit_bias", {}).items():
        z[token] += bias
    seen = sorted(set(path))
    penalty = params.get("repetition_penalty", 1.0)
    z[seen] = np.where(z[seen] > 0, z[seen] / penalty, z[seen] * penalty)
    for token in new:
        z[token] -= params.get("frequency_penalty", 0.0)
    z[sorted(set(new))] -= params.get("presence_penalty", 0.0)
    if len(new) < params.get("min_new_tokens", 0):
        z[params["stop_ids"]] = -np.inf
    if params.get("logits_processor"):
        params["logits_processor"](np.array(path, np.int32), z)
    if params["temperature"] >= 1e-5:
        z /= params["temperature"]
        if k := params.get("top_k", 0):
            z[z < np.sort(z)[-k]] = -np.inf
        if (top_p := params.get("top_p", 1.0)) < 1:
            ranked = np.sort(np.exp(z - z.max()))[::-1]
            enough = np.searchsorted(ranked.cumsum(), top_p * ranked.sum() * (1 - 1e-9))
            z[np.exp(z - z.max()) < ranked[enough]] = -np.inf
        z[z < z.max() + math.log(params.get("min_p", 0.0) or 1e-300)] = -np.inf
    return z - z.max() - np.log(np.exp(z - z.max()).sum())


PARAMETERS: dict[str, dict[str, Any]] = {
    "none": {},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.6},
    "min_p": {"min_p": 0.15},
    "all cuts": {"top_k": 9, "top_p": 0.9, "min_p": 0.02},
    "repetition": {"repetition_penalty": 1.4},
    "presence": {"presence_penalty": 2.5},
    "frequency": {"frequency_penalty": 1.5},
    "negative": {"presence_penalty": -1.0, "frequency_penalty": -0.5, "repetition_penalty": 0.9},
    "bias": {"logit_bias": {TEXT[0]: -math.inf, TEXT[1]: -50, 11: 6.5, 12: 6}},
    "min_new": {"min_new_tokens": 20, "stop_ids": TEXT[2:6]},
    "hook": {"logits_processor": shift},
    "all": {
        "top_k": 12,
        "top_p": 0.95,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.2,
        "logit_bias": {TEXT[0]: -4.0},
        "min_new_tokens": 12,
        "stop_ids": TEXT[2:5],
        "logits_processor": shift,
    },
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", PARAMETERS)
def test_honoured_in_every_mode(engine: dsi.Engine, name: str, temperature: float) -> None:
    params = {"temperature": temperature, **PARAMETERS[name]}
    outs = [
        engine.generate(PROMPT, mode=mode, max_new_tokens=24, seed=11, logprobs=64, **params)
        for mode in MODES
    ]
    assert outs[0].tokens == outs[1].tokens == outs[2].tokens
    assert outs[0].finish_reason == outs[1].finish_reason == outs[2].finish_reason
    if name != "none" and temperature == 0 and not name.endswith(("top_k", "_p", "cuts")):
        assert outs[0].tokens != TEXT, "the parameter must matter here"
    for out in outs:
        path = list(PROMPT)
        for row in out.logprobs:
            law = reference(path, params)
            kept = int(np.isfinite(law).sum())
            assert len(row.top) == kept
            ids = [token for token, _ in row.top]
            assert sorted(ids) == sorted(np.flatnonzero(np.isfinite(law)))
            assert [p for _, p in row.top] == pytest.approx(np.sort(law)[::-1][:kept], abs=2e-4)
            assert row.logprob == pytest.approx(law[row.token], abs=2e-4)
            path.append(row.token)
        assert path[len(PROMPT) :] == out.tokens
        stopped = out.finish_reason == "stop_token"
        assert stopped == (out.tokens[-1] in params.get("stop_ids", ()))
        assert len(out.tokens) >= params.get("min_new_tokens", 0) + stopped
    assert outs[2].statistics.accepted + outs[2].statistics.rejected > 0


def test_cuts_leave_greedy_alone(engine: dsi.Engine) -> None:
    out = engine.generate(PROMPT, max_new_tokens=24, top_k=1, top_p=0.1, min_p=0.9)
    assert out.tokens == TEXT


@pytest.mark.parametrize("cut", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}])
def test_the_tightest_cut_is_greedy(engine: dsi.Engine, cut: dict[str, Any]) -> None:
    assert engine.generate(PROMPT, max_new_tokens=24, temperature=1, **cut).tokens == TEXT


@pytest.mark.parametrize("verification", ["coupled", "rejection"])
@pytest.mark.parametrize("temperature", [0, 1e-6, 9e-6])
def test_tiny_temperatures_are_greedy(
    engine: dsi.Engine, temperature: float, verification: str
) -> None:
    for mode in MODES:
        out = engine.generate(
            PROMPT, max_new_tokens=24, temperature=temperature, verification=verification, mode=mode
        )
        assert out.tokens == TEXT


def test_a_huge_temperature_is_nearly_uniform(engine: dsi.Engine) -> None:
    out = engine.generate(PROMPT, max_new_tokens=24, temperature=1e38, seed=1, logprobs=0)
    assert [row.logprob for row in out.logprobs] == pytest.approx([-math.log(64)] * 24, abs=1e-4)
    assert len(set(out.tokens)) > 12


def test_logprobs_that_were_asked_for(engine: dsi.Engine) -> None:
    assert engine.generate(PROMPT, max_new_tokens=3).logprobs is None
    rows = engine.generate(PROMPT, max_new_tokens=3, logprobs=0).logprobs
    assert [(row.token, row.top) for row in rows] == [(token, ()) for token in TEXT[:3]]
    rows = engine.generate(PROMPT, max_new_tokens=3, logprobs=2).logprobs
    assert [len(row.top) for row in rows] == [2, 2, 2]
    assert all(row.top[0] == (row.token, row.logprob) for row in rows)


@pytest.mark.parametrize("verification", ["coupled", "rejection"])
def test_rejection_and_coupled_rows_come_from_the_same_law(
    engine: dsi.Engine, verification: str
) -> None:
    out = engine.generate(
        PROMPT, max_new_tokens=24, temperature=0.8, top_k=4, verification=verification, logprobs=4
    )
    path = list(PROMPT)
    for row in out.logprobs:
        law = reference(path, {"temperature": 0.8, "top_k": 4})
        assert row.logprob == pytest.approx(law[row.token], abs=2e-4)
        path.append(row.token)


def test_seeds(engine: dsi.Engine) -> None:
    def text(seed: int | None, **more: Any) -> dsi.Output:
        return engine.generate(PROMPT, max_new_tokens=24, temperature=0.9, seed=seed, **more)

    assert text(5).tokens == text(5, lookahead=1).tokens == text(5, mode="non-si").tokens
    assert text(5).tokens != text(6).tokens
    one, other = text(None), text(None)
    assert one.seed != other.seed and one.tokens != other.tokens
    assert text(one.seed).tokens == one.tokens
    assert text(2**64 - 1).seed == 2**64 - 1
    assert text(5).seed == 5


def test_a_list_of_prompts_with_one_seed(engine: dsi.Engine) -> None:
    options: dict[str, Any] = {"max_new_tokens": 24, "temperature": 0.9}
    outs = engine.generate([PROMPT] * 4, seed=5, **options)
    assert outs[0].seed == 5
    assert outs[0].tokens == engine.generate(PROMPT, seed=5, **options).tokens
    assert len({tuple(out.tokens) for out in outs}) == 4, "one stream per prompt"
    for out in outs:
        assert engine.generate(PROMPT, seed=out.seed, **options).tokens == out.tokens
    again = engine.generate([PROMPT] * 4, seed=5, mode="non-si", **options)
    assert [out.tokens for out in again] == [out.tokens for out in outs]


def test_prompts_in_every_form(engine: dsi.Engine) -> None:
    import torch

    for prompt in (PROMPT, tuple(PROMPT), np.array(PROMPT), torch.tensor(PROMPT)):
        assert engine.generate(prompt, max_new_tokens=4).tokens == TEXT[:4]
    for prompts in ([PROMPT, PROMPT], np.array([PROMPT] * 2), torch.tensor([PROMPT] * 2)):
        outs = engine.generate(prompts, max_new_tokens=4)
        assert [out.tokens for out in outs] == [TEXT[:4]] * 2
    assert engine.generate([PROMPT], max_new_tokens=4)[0].tokens == TEXT[:4]


def test_an_array_changed_after_submit_changes_nothing(engine: dsi.Engine) -> None:
    prompt = np.array(PROMPT, np.int32)
    request = engine.submit(prompt, max_new_tokens=24)
    prompt[:] = 0
    assert request.result().tokens == TEXT
