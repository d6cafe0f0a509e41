"""model.generate(custom_generate=dsi_native.hf.generate) against model.generate itself."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LogitsProcessor, StoppingCriteria
from transformers.generation import EosTokenCriteria, MaxLengthCriteria

import dsi_native as dsi
from dsi_native.errors import InvalidArgument
from tiny import VOCAB_SIZE, tiny_drafter, tiny_target

N = 40
PAD = 0


@pytest.fixture(scope="module")
def model() -> Any:
    made = tiny_target()
    made.generation_config.pad_token_id = PAD
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield made
    torch.set_num_threads(threads)
    made._dsi_engine.engine.close()


@pytest.fixture(scope="module")
def drafter(model: Any) -> Any:
    return tiny_drafter(model, 0.02)


def prompt(seed: int = 0, length: int = 9) -> torch.Tensor:
    draw = np.random.default_rng(seed)
    return torch.from_numpy(draw.integers(1, VOCAB_SIZE, (1, length)))


def padded_batch() -> dict[str, torch.Tensor]:
    ids = torch.full((3, 12), PAD)
    mask = torch.zeros((3, 12), dtype=torch.long)
    for row, length in enumerate((12, 5, 8)):
        ids[row, 12 - length :] = prompt(row, length)
        mask[row, 12 - length :] = 1
    return {"input_ids": ids, "attention_mask": mask}


def both(model: Any, drafter: Any, inputs: Any, **options: Any) -> tuple[Any, Any]:
    inputs = inputs if isinstance(inputs, dict) else {"input_ids": inputs}
    options = {"max_new_tokens": N, "do_sample": False, **options}
    return model.generate(**inputs, **options), model.generate(
        **inputs, **options, custom_generate=dsi.hf.generate, drafter=drafter
    )


class EndsWith(StoppingCriteria):
    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return input_ids[:, -1] == self.token


class AddsLength(LogitsProcessor):
    """Depends on the whole row, padding included."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        favoured = (input_ids.sum(-1) + input_ids.shape[1]) % VOCAB_SIZE
        return scores.scatter_add(1, favoured[:, None], torch.full((len(scores), 1), 9.0))


def text(model: Any) -> list[int]:
    return model.generate(prompt(), do_sample=False, max_new_tokens=N)[0, 9:].tolist()


def allowed(row: int, ids: torch.Tensor) -> list[int]:
    """Every third id: which third depends on the row and on the ids before."""
    return list(range((row + int(ids[-1])) % 3, VOCAB_SIZE, 3))


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "repetition": {"repetition_penalty": 1.5},
    "no_repeat_ngram": {"no_repeat_ngram_size": 1},
    "bad_words": {"bad_words_ids": [[n] for n in range(1, 100)]},
    "min_new": {"min_new_tokens": 12, "eos_token_id": list(range(100))},
    "min_length": {"min_length": 18, "eos_token_id": list(range(100))},
    "processor": {"logits_processor": [AddsLength()]},
    "max_length": {"max_length": 17, "max_new_tokens": None},
    "bias": {"sequence_bias": {(3,): 4.0, (5, 6): 9.0}},
    "suppress": {"suppress_tokens": list(range(50))},
    "forced_eos": {"forced_eos_token_id": 3},
    "prefix_fn": {"prefix_allowed_tokens_fn": allowed},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("batch", [False, True])
def test_greedy(model: Any, drafter: Any, name: str, batch: bool) -> None:
    wanted, got = both(
        model, drafter, padded_batch() if batch else prompt(), **copy.deepcopy(OPTIONS[name])
    )
    assert torch.equal(wanted, got)
    if not batch and name != "plain":
        assert got[0, 9:].tolist() != text(model), "the option must matter here"


@pytest.mark.parametrize("mode", ["non-si", "si", "dsi"])
def test_end_tokens(model: Any, drafter: Any, mode: str) -> None:
    end = text(model)[6]
    for eos in (end, [end, 1]):
        wanted, got = both(model, drafter, prompt(), eos_token_id=eos)
        assert torch.equal(wanted, got)
        assert got.shape[1] <= 9 + 7
    batch = padded_batch()
    ends = [int(row[15]) for row in model.generate(**batch, do_sample=False, max_new_tokens=N)]
    wanted, got = both(model, drafter, batch, eos_token_id=ends[:2])
    assert torch.equal(wanted, got)
    assert (got[0, -1] == PAD) or (got[1, -1] == PAD), "rows that end early are padded"


def test_stopping_criteria(model: Any, drafter: Any) -> None:
    end = text(model)[6]
    for criteria in (
        [EndsWith(end)],
        [EosTokenCriteria(torch.tensor([end]))],
    ):
        wanted, got = both(model, drafter, prompt(), stopping_criteria=criteria)
        assert torch.equal(wanted, got)
        assert got.shape[1] < 9 + N
    shorter = [MaxLengthCriteria(13)]  # transformers warns that it overrides its own
    got = model.generate(
        prompt(), do_sample=False, max_new_tokens=N, stopping_criteria=shorter,
        custom_generate=dsi.hf.generate,
    )  # fmt: skip
    assert got[0, 9:].tolist() == text(model)[:4]
    batch = padded_batch()
    ends = int(model.generate(**batch, do_sample=False, max_new_tokens=N)[1, 15])
    for options in ({}, {"eos_token_id": 1}, {"eos_token_id": ends}):
        wanted, got = both(model, drafter, batch, stopping_criteria=[EndsWith(ends)], **options)
        assert torch.equal(wanted, got)


class Recorder:
    def __init__(self) -> None:
        self.put_ids: list[list[int]] = []
        self.ended = 0

    def put(self, value: torch.Tensor) -> None:
        self.put_ids.append(value.flatten().tolist())

    def end(self) -> None:
        self.ended += 1


def test_streamer(model: Any, drafter: Any) -> None:
    theirs, ours, partial = Recorder(), Recorder(), Recorder()
    options = {"do_sample": False, "max_new_tokens": N}
    model.generate(prompt(), streamer=theirs, **options)
    dsi_options = {"custom_generate": dsi.hf.generate, "drafter": drafter}
    model.generate(prompt(), streamer=ours, **options, **dsi_options)
    assert (ours.put_ids, ours.ended) == (theirs.put_ids, 1)

    def streams(*arguments: Any, **named: Any) -> Any:
        return dsi.hf.generate(*arguments, **named, streamer=partial, drafter=drafter)

    model.generate(prompt(), custom_generate=streams, **options)
    assert (partial.put_ids, partial.ended) == (theirs.put_ids, 1)
    with pytest.raises(ValueError, match="stream"):
        model.generate(**padded_batch(), streamer=Recorder(), **options, **dsi_options)


def test_sampling(model: Any, drafter: Any) -> None:
    def sample(seed: int, **options: Any) -> list[int]:
        torch.manual_seed(seed)
        out = model.generate(
            prompt(), do_sample=True, max_new_tokens=N, drafter=drafter,
            custom_generate=dsi.hf.generate, **options,
        )  # fmt: skip
        return out[0, 9:].tolist()

    assert sample(1) == sample(1) == sample(1, mode="non-si")
    assert sample(1) != sample(2)
    assert sample(1, top_k=1) == text(model)
    assert sample(1, temperature=0.01, top_k=0) == text(model)
    assert sample(1, top_k=0, top_p=1e-4) == text(model)
    assert sample(1, top_k=0, min_p=1.0) == text(model)
    assert sample(1, top_k=0, typical_p=0.5) == sample(1, top_k=0, typical_p=0.5, mode="non-si")
    batch = model.generate(
        **padded_batch(), do_sample=True, max_new_tokens=N, custom_generate=dsi.hf.generate
    )
    assert batch.shape == (3, 12 + N)


def test_greedy_leaves_torchs_generator_alone(model: Any, drafter: Any) -> None:
    both(model, drafter, prompt())
    state = torch.get_rng_state()
    both(model, drafter, prompt())
    assert torch.equal(torch.get_rng_state(), state)


def test_return_dict(model: Any, drafter: Any) -> None:
    wanted, got = both(model, drafter, prompt(), return_dict_in_generate=True)
    assert torch.equal(wanted.sequences, got.sequences)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_beams": 2}, "num_beams: 2"),
        ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences: 2"),
        ({"output_scores": True, "return_dict_in_generate": True}, "output_scores: "),
        ({"output_logits": True, "return_dict_in_generate": True}, "output_logits: "),
        ({"penalty_alpha": 0.6, "top_k": 4}, "contrastive_search is not supported"),
        ({"guidance_scale": 2.0}, "guidance_scale: "),
        ({"assistant_model": tiny_target()}, "assistant_model: .* drafter="),
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens: .* drafter='lookup'"),
        ({"mode": "fast"}, "mode: must be one of"),
        ({"sp": 0}, "sp: "),
        ({"drafter": "no/such"}, "drafter: "),
    ],
)
def test_what_cannot_be_honoured(model: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        model.generate(
            prompt(), max_new_tokens=4, custom_generate=dsi.hf.generate,
            **{"do_sample": False, **options},
        )  # fmt: skip
    assert torch.equal(*both(model, "lookup", prompt()))


def test_right_padding_is_refused(model: Any) -> None:
    with pytest.raises(InvalidArgument, match="attention_mask: may mask padding on the left only"):
        model.generate(
            prompt(), attention_mask=torch.tensor([[1] * 8 + [0]]), do_sample=False,
            max_new_tokens=4, custom_generate=dsi.hf.generate,
        )  # fmt: skip


def test_the_engine_is_kept_and_never_copied(drafter: Any) -> None:
    model = tiny_target()
    both(model, drafter, prompt())
    engine = model._dsi_engine.engine
    both(model, drafter, prompt())
    assert model._dsi_engine.engine is engine
    both(model, "lookup", prompt())
    assert model._dsi_engine.engine is not engine
    with pytest.raises(dsi.Closed):
        engine.generate([1])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other._dsi_engine.engine is None
        assert torch.equal(*both(other, drafter, prompt()))
        other._dsi_engine.engine.close()
    model._dsi_engine.engine.close()


# Releases of transformers to check by hand: DSI_TRANSFORMERS_PYTHONS is a list of interpreters.
OLDER = os.environ.get("DSI_TRANSFORMERS_PYTHONS", "").split()


@pytest.mark.skipif(not OLDER, reason="needs DSI_TRANSFORMERS_PYTHONS")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("python", OLDER)
def test_other_releases(python: str) -> None:
    done = subprocess.run(
        [python, "-m", "pytest", "-q", str(Path(__file__)), "-k", "not other_releases"],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout
