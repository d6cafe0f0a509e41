"""Transformers models with different tokenizers: caches that follow a translated context."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dsi_native as dsi
from dsi_native.models.transformers import TransformersModel, TransformersServer
from pair_tokenizers import DRAFTER, OTHER_CORPUS, TARGET
from tiny import tiny_target

PROMPTS = [
    f"{text} {n}"
    for n in range(2)
    for text in (*OTHER_CORPUS[:2], "naïve ha\n\n", "0000 🙂", "\n  x")
]


@pytest.fixture(scope="module")
def target() -> TransformersModel:
    return TransformersModel(tiny_target(vocab_size=len(TARGET)), TARGET)


@pytest.fixture(scope="module")
def drafter() -> TransformersModel:
    return TransformersModel(tiny_target(seed=3, vocab_size=len(DRAFTER)), DRAFTER)


@pytest.mark.parametrize(
    ("mode", "method"), [("si", "tli"), ("dsi", "tli"), ("si", "slem"), ("dsi", "slem")]
)
def test_ten_prompts_say_the_same(target: Any, drafter: Any, mode: str, method: str) -> None:
    settings: list[dict[str, Any]] = [{}, {"temperature": 0.8, "seed": 7}]
    with dsi.Engine(
        target, drafter, mode=mode, sp=2, lookahead=3, threads=1, method=method
    ) as engine:
        for setting in settings:
            expected = engine.generate(PROMPTS, max_new_tokens=32, mode="non-si", **setting)
            for out, plain in zip(
                engine.generate(PROMPTS, max_new_tokens=32, **setting), expected, strict=True
            ):
                assert out.tokens == plain.tokens
                assert out.statistics.drafter_error == ""


@pytest.mark.parametrize("method", ["tli", "slem"])
def test_the_drafters_rows_are_those_of_a_fresh_prefill(
    target: Any, drafter: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every rollback; and its own output is what it was before."""
    real = TransformersServer.forward
    seen: list[float] = []
    with torch.inference_mode():
        before = drafter.model(torch.tensor([DRAFTER.encode("the story")])).logits

    def checked(self: Any, request: int, tokens: np.ndarray, first: int, job: Any = None) -> Any:
        rows = real(self, request, tokens, first, job)
        if self._model is drafter:
            with torch.inference_mode():
                fresh = drafter.model(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]
            seen.append(float(np.abs(rows - fresh[first - 1 :].numpy()).max()))
        return rows

    monkeypatch.setattr(TransformersServer, "forward", checked)
    with dsi.Engine(
        target, drafter, mode="si", lookahead=3, threads=1, method=method, break_even=False
    ) as engine:
        engine.generate(PROMPTS[:2], max_new_tokens=16, temperature=0.8, seed=1)
    assert len(seen) > 30 and max(seen) < 1e-3
    with torch.inference_mode():
        after = drafter.model(torch.tensor([DRAFTER.encode("the story")])).logits
    assert torch.equal(before, after)
