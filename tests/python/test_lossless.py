"""Same text: transformers' generate, non-SI, SI and DSI, whatever drafts, servers and lookahead."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch

import dsi_native as dsi
from dsi_native.audit import first_difference
from numpy_lm import NumpyLm
from tiny import VOCAB_SIZE, tiny_drafter, tiny_target

N = 64
GRID = list(itertools.product([1, 2, 4], [1, 2, 5, "auto"]))
NOISES = [0.0, 0.02, 0.05, 0.2]
SAMPLED: dict[str, Any] = {"temperature": 0.8, "seed": 1234}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def prompts() -> list[np.ndarray]:
    draw = np.random.default_rng(2024)
    return [draw.integers(0, VOCAB_SIZE, 4 + n).astype(np.int32) for n in range(20)]


@functools.cache
def target() -> dsi.TransformersModel:
    return dsi.TransformersModel(tiny_target())


@functools.cache
def drafter(noise: float) -> dsi.TransformersModel:
    return dsi.TransformersModel(tiny_drafter(target().model, noise) if noise else target().model)


@functools.cache
def by_transformers(index: int) -> list[int]:
    ids = torch.from_numpy(prompts()[index].astype(np.int64))[None]
    return (
        target().model.generate(ids, do_sample=False, max_new_tokens=N)[0, ids.shape[1] :].tolist()
    )


@functools.cache
def sampled_without_speculation(index: int) -> list[int]:
    with dsi.Engine(target(), None, sp=1, threads=1) as engine:
        return engine.generate(prompts()[index], max_new_tokens=N, **SAMPLED).tokens


def check(index: int, wanted: list[int], got: list[int], **sampling: Any) -> None:
    difference = first_difference(target(), prompts()[index], wanted, got, **sampling)
    if difference is not None:
        print(f"prompt {index}: {difference}")
        assert difference.excused, difference


def share(config: int) -> list[int]:
    """Two of the twenty prompts, others for the next configuration."""
    return [2 * config % 20, (2 * config + 1) % 20]


def submit_share(engine: dsi.Engine, config: int, **sampling: Any) -> list[dsi.Output]:
    requests = [
        engine.submit(prompts()[index], max_new_tokens=N, **sampling) for index in share(config)
    ]
    return [request.result() for request in requests]


@pytest.mark.parametrize("config", range(len(GRID)), ids=lambda n: "sp{}-k{}".format(*GRID[n]))
def test_dsi(config: int) -> None:
    sp, lookahead = GRID[config]
    noise = NOISES[(config + config // 4) % 4]
    with dsi.Engine(target(), drafter(noise), sp=sp, lookahead=lookahead, threads=1) as engine:
        for index, out in zip(share(config), submit_share(engine, config), strict=True):
            check(index, by_transformers(index), out.tokens)
        outs = submit_share(engine, config, **SAMPLED)
        for index, out in zip(share(config), outs, strict=True):
            check(index, sampled_without_speculation(index), out.tokens, **SAMPLED)


@pytest.mark.parametrize("config", range(4), ids=lambda n: f"k{GRID[n][1]}")
def test_si(config: int) -> None:
    lookahead = GRID[config][1]
    with dsi.Engine(
        target(), drafter(NOISES[config]), sp=1, mode="si", lookahead=lookahead, threads=1
    ) as engine:
        outs = submit_share(engine, config)
        for index, out in zip(share(config), outs, strict=True):
            check(index, by_transformers(index), out.tokens)
        judged = sum(out.statistics.accepted + out.statistics.rejected for out in outs)
        accepted = sum(out.statistics.accepted for out in outs) / judged
        assert accepted == 1.0 if NOISES[config] == 0 else 0 < accepted < 1
        for index, out in zip(share(config), submit_share(engine, config, **SAMPLED), strict=True):
            check(index, sampled_without_speculation(index), out.tokens, **SAMPLED)


def test_non_si() -> None:
    with dsi.Engine(target(), None, sp=1, threads=1) as engine:
        outs = engine.generate(prompts(), max_new_tokens=N)
    for index, out in enumerate(outs):
        check(index, by_transformers(index), out.tokens)
        assert out.statistics.target_forwards == N


@pytest.mark.parametrize("mode", ["si", "dsi"])
def test_a_drafter_that_is_the_target_is_always_right(mode: str) -> None:
    with dsi.Engine(target(), drafter(0.0), mode=mode, lookahead=4, threads=1) as engine:
        for sampling in ({}, SAMPLED, {"temperature": 0.8, "verification": "rejection"}):
            out = engine.generate(prompts()[0], max_new_tokens=N, **sampling)
            assert out.statistics.rejected == 0
            # A drafter that overlaps may come too late for every window of a short text.
            assert out.statistics.acceptance == 1.0 or mode == "dsi"


def echo(tokens: np.ndarray, most: int) -> list[int]:
    """Right now and then: what followed the last occurrence of the last token, and a guess."""
    before = np.flatnonzero(tokens[:-1] == tokens[-1])
    following = tokens[before[-1] + 1 :][: most - 1].tolist() if len(before) else []
    return [*following, int(tokens[-1] + 1) % VOCAB_SIZE]


@pytest.mark.parametrize("mode", ["si", "dsi"])
@pytest.mark.parametrize(
    "draft", ["lookup", echo, dsi.PromptLookup(max_drafts=3, max_ngram=1), "int4", "int8"]
)
def test_other_drafters(draft: Any, mode: str) -> None:
    repeating = np.tile(prompts()[3], 4)
    ids = torch.from_numpy(repeating.astype(np.int64))[None]
    wanted = target().model.generate(ids, do_sample=False, max_new_tokens=32)[0, len(repeating) :]
    with dsi.Engine(target(), draft, mode=mode, threads=1) as engine:
        out = engine.generate(repeating, max_new_tokens=32)
        assert first_difference(target(), repeating, wanted.tolist(), out.tokens) is None
        check(7, by_transformers(7), engine.generate(prompts()[7], max_new_tokens=N).tokens)
        sampled = engine.generate(prompts()[7], max_new_tokens=N, **SAMPLED).tokens
        check(7, sampled_without_speculation(7), sampled, **SAMPLED)
    assert out.statistics.drafted > 0
    assert out.statistics.drafter_error == ""


def test_logprobs_are_those_of_torch() -> None:
    with dsi.Engine(target(), drafter(0.05), threads=1) as engine:
        out = engine.generate(prompts()[5], max_new_tokens=32, logprobs=3)
    path = torch.tensor([*prompts()[5].tolist(), *out.tokens])
    with torch.inference_mode():
        law = target().model(path[None, :-1]).logits[0, -32:].log_softmax(-1)
    best = law.topk(3)
    for row, token, values, ids in zip(out.logprobs, law, best.values, best.indices, strict=True):
        assert row.logprob == pytest.approx(float(token[row.token]), abs=1e-3)
        assert [p for _, p in row.top] == pytest.approx(values.tolist(), abs=1e-3)
        assert [t for t, _ in row.top] == ids.tolist()


@pytest.mark.parametrize("mode", ["non-si", "si", "dsi"])
def test_repetition_penalty_as_transformers(mode: str) -> None:
    ids = torch.from_numpy(prompts()[2].astype(np.int64))[None]
    wanted = (
        target()
        .model.generate(ids, do_sample=False, max_new_tokens=N, repetition_penalty=1.3)[
            0, ids.shape[1] :
        ]
        .tolist()
    )
    assert wanted != by_transformers(2)
    with dsi.Engine(target(), drafter(0.02), mode=mode, threads=1) as engine:
        out = engine.generate(prompts()[2], max_new_tokens=N, repetition_penalty=1.3)
    assert out.tokens == wanted


# -- the audit itself ---------------------------------------------------------------------------


def near_tie(gap: float) -> NumpyLm:
    def edit(rows: np.ndarray, first: int) -> None:
        if first <= 5 < first + len(rows):
            rows[5 - first, :] = 0
            rows[5 - first, [7, 9]] = [2, 2 - gap]

    return NumpyLm(edit=edit)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.5, "seed": 3}])
def test_the_audit_excuses_near_ties_only(sampling: dict[str, Any]) -> None:
    prompt, model = [1, 2, 3], near_tie(5e-4)
    assert first_difference(model, prompt, [4, 5, 6], [4, 5, 6], **sampling) is None
    if not sampling:
        found = first_difference(model, prompt, [4, 5, 7], [4, 5, 9])
        assert found.excused and found.index == 2 and found.gap == pytest.approx(5e-4, rel=1e-3)
        assert str(found) == (
            "new token 2: 7 against 9; the target has 7 at 2.00000 and 9 at 1.99950, "
            "a gap of 0.0005: excused"
        )
        assert not first_difference(near_tie(2e-3), prompt, [4, 5, 7], [4, 5, 9]).excused
    assert not first_difference(model, prompt, [4, 5, 7], [4, 5, 8], **sampling).excused
    ended = first_difference(model, prompt, [4, 5], [4, 5, 7], **sampling)
    assert (ended.one, ended.other, ended.excused) == (None, 7, False)


def test_the_audit_knows_the_noise_of_sampled_texts() -> None:
    with dsi.Engine(NumpyLm(), None, sp=1) as engine:
        out = engine.generate([1, 2, 3], max_new_tokens=20, **SAMPLED)
    for index, token in enumerate(out.tokens):
        other = [*out.tokens[:index], (token + 1) % 64]
        found = first_difference(NumpyLm(), [1, 2, 3], out.tokens, other, **SAMPLED)
        assert (found.index, found.best[0][0]) == (index, token)


# -- the real model -----------------------------------------------------------------------------


@pytest.mark.real_model
@pytest.mark.timeout(240)
def test_the_real_model() -> None:
    with dsi.Engine("smollm2", "int4", sp=2, threads=1) as engine:
        model, tokenizer = engine._pair.target.model, engine.tokenizer
        for text in ("The sky is", "def fib(n):", "1, 2, 3, 4,"):
            ids = torch.tensor([tokenizer.encode(text)])
            wanted = model.generate(ids, do_sample=False, max_new_tokens=16)[0, ids.shape[1] :]
            out = engine.generate(text, max_new_tokens=16)
            found = first_difference(engine._pair.target, ids[0], wanted.tolist(), out.tokens)
            assert found is None or found.excused, found
            assert out.text == tokenizer.decode(out.tokens, skip_special_tokens=True)
            assert out.statistics.accepted > 0
