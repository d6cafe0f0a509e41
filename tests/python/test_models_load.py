"""What a user may name as a model, and functions as models."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dsi_native.errors import InvalidArgument, Stopped
from dsi_native.models.callable import CallableModel
from dsi_native.models.load import load_model
from dsi_native.models.transformers import TransformersModel
from tiny import VOCAB_SIZE, tiny_target


class Counting:
    """A function with one cached sequence whose logits say what it thinks the sequence is."""

    def __init__(self, only_last: bool = False) -> None:
        self.held: list[int] = []
        self.calls: list[tuple[int, int]] = []
        self.only_last = only_last

    def __call__(self, tokens: np.ndarray, start: int) -> np.ndarray:
        assert tokens.dtype == np.int32
        self.calls.append((start, len(tokens)))
        assert start <= len(self.held)
        del self.held[start:]
        rows = []
        for token in tokens:
            self.held.append(int(token))
            rows.append(np.eye(16, dtype=np.float32)[sum(self.held) % 16])
        return np.array(rows[-1:] if self.only_last else rows)


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_functions_see_only_what_is_new_and_drop_what_was_rejected() -> None:
    function = Counting()
    model = load_model(function)
    assert (model.vocab_size, model.name, model.context) == (16, "Counting", None)
    (server,) = model.servers(1)
    rows = server.forward(0, ids(1, 2, 3), 3, None)
    assert rows.shape == (1, 16) and rows.argmax() == 6
    rows = server.forward(0, ids(1, 2, 3, 4, 5), 4, None)
    assert list(rows.argmax(-1)) == [10, 15]
    rows = server.forward(0, ids(1, 2, 9), 2, None)
    assert list(rows.argmax(-1)) == [3, 12]
    rows = server.forward(1, ids(1, 2, 9), 3, None)
    assert list(rows.argmax(-1)) == [12], "another request with the same beginning"
    assert function.calls == [(0, 1), (0, 3), (3, 2), (1, 2), (2, 1)]


def test_the_last_rows_alone_and_single_vectors_are_taken() -> None:
    (server,) = CallableModel(Counting(only_last=True), 16).servers(1)
    assert server.forward(0, ids(1, 2, 3), 3, None).argmax() == 6
    (server,) = CallableModel(lambda tokens, start: [0.0, 1, 0], 3).servers(1)
    assert server.forward(0, ids(1), 1, None).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros((1, 3)), r"at least 2 rows of 4 numbers, not an array of shape \(1, 3\)"),
        (np.zeros((1, 4)), r"not an array of shape \(1, 4\)"),
        (np.zeros(4), r"not an array of shape \(4,\)"),
        (None, r"not an array of shape \(\)"),
        (np.zeros((2, 4), dtype="U1"), "not of type <U1"),
    ],
)
def test_wrong_answers_are_described_and_the_next_call_starts_anew(
    answer: object, message: str
) -> None:
    calls = []
    answers = iter([np.zeros((3, 4)), answer, np.zeros((4, 4))])

    def function(tokens: np.ndarray, start: int) -> object:
        calls.append(start)
        return next(answers)

    (server,) = CallableModel(function, 4).servers(1)
    server.forward(0, ids(1, 2, 3), 3, None)
    with pytest.raises(ValueError, match=message):
        server.forward(0, ids(1, 2, 3, 0), 3, None)
    server.forward(0, ids(1, 2, 3, 0), 4, None)
    assert calls == [0, 2, 0]


def test_each_server_needs_a_function_of_its_own() -> None:
    with pytest.raises(InvalidArgument, match="2 servers need 2 functions"):
        CallableModel(Counting(), 16).servers(2)
    for model in (CallableModel([Counting(), Counting()], 16), CallableModel(factory=Counting)):
        one, two = model.servers(2)
        assert one._forward is not two._forward
    with pytest.raises(InvalidArgument, match="either forward or factory"):
        CallableModel()
    with pytest.raises(InvalidArgument, match="list of functions"):
        CallableModel([3], 16)


def test_limits_and_stops_of_functions() -> None:
    (server,) = CallableModel(Counting(), 16, context=3).servers(1)
    with pytest.raises(InvalidArgument, match="4 tokens exceed the context of 3 of Counting"):
        server.forward(0, ids(1, 2, 3, 4), 4, None)
    with pytest.raises(Stopped):
        server.forward(0, ids(1), 1, SimpleNamespace(stopped=True))


def test_models_and_modules_are_taken_as_they_are() -> None:
    module = tiny_target()
    model = load_model(module)
    assert isinstance(model, TransformersModel) and model.model is module
    assert load_model(model) is model


def test_a_saved_folder_is_loaded_with_its_tokenizer(tmp_path: Path) -> None:
    from test_text import byte_level

    module = tiny_target(2)
    module.save_pretrained(tmp_path / "tiny")
    model = load_model(str(tmp_path / "tiny"))
    assert model.tokenizer is None and model.name == "tiny"
    byte_level().save_pretrained(tmp_path / "tiny")
    model = load_model(tmp_path / "tiny", dtype="float32", device="cpu")
    assert model.tokenizer("<s>")["input_ids"] == [0]
    row = model.servers(1)[0].forward(0, ids(1, 2), 2)
    with torch.inference_mode():
        want = module(torch.tensor([[1, 2]])).logits[0, 1:].numpy()
    np.testing.assert_allclose(row, want, atol=1e-4)
    assert row.shape == (1, VOCAB_SIZE)
    assert load_model(tmp_path / "tiny", dtype=torch.bfloat16).model.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["org/some-model", "/nowhere/model.gguf"])
def test_names_that_are_not_local_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"no local folder.*never downloaded"):
        load_model(name)


@pytest.mark.parametrize("device", ["zebra", "cuda:99", 1.5])
def test_a_device_that_is_not_there_is_refused(tmp_path: Path, device: object) -> None:
    with pytest.raises(InvalidArgument, match=rf"device '{device}' cannot be used here: "):
        load_model(tmp_path, device=device)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="int is no model"):
        load_model(3)
    with pytest.raises(InvalidArgument, match=str(tmp_path)):
        load_model(tmp_path)
    with pytest.raises(InvalidArgument, match="'float33' is none of torch's"):
        load_model(tmp_path, dtype="float33")


@pytest.mark.real_model
def test_the_embedded_model_has_a_name() -> None:
    model = load_model("smollm2")
    assert model.name == "SmolLM2-135M-Instruct" and model.model.dtype == torch.float32
