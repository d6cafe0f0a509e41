"""`dsi vocab` and the report behind it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dsi_native.cli import run
from dsi_native.vocab import Vocabulary
from dsi_native.vocab.choice import choose
from dsi_native.vocab.report import common_mass, report

LETTERS = tuple(bytes([byte]) for byte in range(256))


def made(name: str, *words: bytes, first: tuple[bytes, ...] = LETTERS, **more: Any) -> Vocabulary:
    return Vocabulary(name, "byte trie", (*first, *words), speller="longest", **more)


def test_shares_are_counted_in_target_tokens() -> None:
    target = made("t", b"the ", b"fox", b"foxes")
    drafter = made("d", b"the ", b"es")
    found = report(target, drafter, b"the foxes the fox!")
    assert found.by_target.tokens == 6 and found.share == 4 / 6
    assert found.outside == [(b"foxes", 1), (b"fox", 1)]
    assert found.by_drafter.tokens == 11 and found.by_drafter.restored
    assert (found.map.common, found.map.relation) == (257, "overlapping")
    assert found.choice.method == "slem" and "66.7 %" in found.choice.why
    assert not found.is_sample and report(target, drafter).is_sample


def test_what_the_drafter_cannot_spell() -> None:
    ascii_only = made("d", first=tuple(LETTERS[:128]))
    found = report(made("t"), ascii_only, "caf\u00e9 \u00e9 \u4e16".encode())
    assert found.unspelled == ["\u00e9", "\u4e16"] and found.altered == []
    assert not found.by_drafter.restored and found.by_target.restored

    def spell_lower(text: str) -> tuple[list[int], Any]:
        return list(text.lower().encode()), lambda: list(range(1, len(text) + 1))

    lower = Vocabulary("l", "test", LETTERS, lossless=False, speller=spell_lower)
    assert report(made("t"), lower, b"Ab").altered == ["A"]


@pytest.mark.parametrize(
    ("relation", "share", "target", "drafter", "method"),
    [
        ("same", 1.0, False, False, "same"),
        ("padded", 1.0, True, True, "same"),
        ("overlapping", 0.95, True, True, "tli"),
        ("overlapping", 0.95, False, True, "tli"),
        ("overlapping", 0.5, True, True, "slem"),
        ("overlapping", 0.5, False, True, "tli"),
        ("overlapping", 0.95, True, False, "none"),
        ("foreign", 0.0, True, True, "slem"),
        ("foreign", 0.0, False, True, "none"),
    ],
)
def test_the_method_and_why(
    relation: str, share: float, target: bool, drafter: bool, method: str
) -> None:
    choice = choose(relation, share, target, drafter)
    assert choice.method == method and choice.why.endswith(".")


def test_mass_is_the_targets_own() -> None:
    law = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.1, 0.2, 0.3, 0.4]])

    def forward(input_ids: torch.Tensor) -> SimpleNamespace:
        assert input_ids.tolist() == [[3, 1]]
        return SimpleNamespace(logits=law.log().unsqueeze(0))

    model = SimpleNamespace(model=forward, device="cpu")
    ids = np.array([3, 1, 2], np.int32)
    common = np.array([True, False, True])
    assert common_mass(model, ids, common, most=2) == pytest.approx((0.75 + 0.4) / 2)


def ranks(path: Path, *words: bytes) -> str:
    lines = (base64.b64encode(t) + b" %d\n" % at for at, t in enumerate([*LETTERS, *words]))
    path.write_bytes(b"".join(lines))
    return str(path)


def test_the_command_prints_what_one_wants_to_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    trie = tmp_path / "rwkv_vocab_x.txt"
    trie.write_text(
        "".join(f"{at + 1} {token!r} {len(token)}\n" for at, token in enumerate(LETTERS))
    )
    target = ranks(tmp_path / "target.tiktoken", b"the ", b"fox")
    text = tmp_path / "text.txt"
    text.write_bytes(b"the fox the fox")
    assert run(["vocab", target, str(trie), "--text", str(text), "--slrs"]) == 0
    out, err = capsys.readouterr()
    flat = " ".join(out.split())
    assert err == "" and max(map(len, out.splitlines())) <= 80
    assert "Common tokens: 256, 99.2 % of the target's and 100.0 % of the drafter's." in flat
    assert "On text.txt (15 bytes): 20.0 % of the target's tokens are common." in flat
    assert 'Target tokens that the drafter lacks: "the " (2), "fox" (2).' in flat
    assert "a file of ranks does not say how it splits text" in flat
    assert "Recommended method: TLI." in flat and "100.0 % of the target's tokens stay" in flat


def test_the_command_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = ranks(tmp_path / "one.tiktoken", b"the")
    assert run(["vocab", one, one, "--json", "--slrs"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["relation"], answer["method"], answer["share_of_text"]) == ("same", "same", 1.0)
    assert answer["target"]["ids"] == answer["common"] == 257
    assert answer["slrs"]["by_length"]["3"]["max_terms"] == 2
    assert answer["target_mass"] is None and answer["unspelled"] == []


def test_mistakes_name_the_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = ranks(tmp_path / "one.tiktoken")
    assert run(["vocab", one, str(tmp_path / "none")]) == 2
    assert "error: drafter: " in capsys.readouterr().err
    assert run(["vocab", str(tmp_path / "none"), one]) == 2
    assert "error: target: " in capsys.readouterr().err


@pytest.mark.real_model
def test_mass_with_a_real_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ranks(tmp_path / "few.tiktoken", b" the", b" of", b"the")
    assert run(["vocab", "smollm2", few, "--target-model", "smollm2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert 0.001 < answer["target_mass"] < 0.6 and answer["share_of_text"] < 0.6
