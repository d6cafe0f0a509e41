"""Every kind of file and object that open_vocabulary takes, made small here."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from dsi_native.errors import InvalidArgument
from dsi_native.vocab import open_vocabulary

SIGN = "\u2581"


def ranks_file() -> bytes:
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b" ab"]
    return b"".join(base64.b64encode(t) + b" %d\n" % at for at, t in enumerate(tokens))


def gguf(path: Path, fields: dict[str, Any]) -> Path:
    """A GGUF file without tensors."""

    def text(value: str) -> bytes:
        data = value.encode()
        return struct.pack("<Q", len(data)) + data

    def value(of: Any) -> bytes:
        if isinstance(of, str):
            return struct.pack("<I", 8) + text(of)
        if isinstance(of, bool):
            return struct.pack("<I?", 7, of)
        if isinstance(of, int):
            return struct.pack("<II", 4, of)
        if isinstance(of[0], str):
            return struct.pack("<IIQ", 9, 8, len(of)) + b"".join(map(text, of))
        kind, letter = (6, "f") if isinstance(of[0], float) else (5, "i")
        return struct.pack(f"<IIQ{len(of)}{letter}", 9, kind, len(of), *of)

    body = b"".join(text(key) + value(of) for key, of in fields.items())
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields)) + body)
    return path


def model_proto(pieces: list[tuple[str, float, int]], trainer: bytes, normalizer: bytes) -> bytes:
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    def piece(text: str, score: float, kind: int) -> bytes:
        return (
            field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])
        )

    body = b"".join(field(1, piece(*of)) for of in pieces)
    return body + field(2, trainer) + field(3, normalizer)


def joined(vocabulary: Any, text: str) -> bytes:
    return b"".join(vocabulary.tokens[at] for at in vocabulary.encode(text.encode())[0].tolist())


def test_files_of_ranks(tmp_path: Path) -> None:
    file = tmp_path / "small.tiktoken"
    file.write_bytes(ranks_file())
    vocabulary = open_vocabulary(file)
    assert (vocabulary.name, vocabulary.kind, len(vocabulary)) == ("small", "tiktoken", 258)
    assert vocabulary.tokens[257] == b" ab" and not vocabulary.can_encode
    with pytest.raises(InvalidArgument, match=r"how it splits text; give the tiktoken\.Encoding"):
        vocabulary.encode(b"ab")


def test_a_tiktoken_encoding_with_a_hole_and_control_tokens() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {base64.b64decode(a): int(b) for a, b in map(bytes.split, ranks_file().splitlines())}
    encoding = tiktoken.Encoding(
        "small", pat_str=r" ?\w+|.|\n", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 260}
    )
    vocabulary = open_vocabulary(encoding)
    assert vocabulary.name == "small" and len(vocabulary) == 261
    assert vocabulary.tokens[258:] == (b"", b"", b"") and vocabulary.roles == {"eos": (260,)}
    ids, ends = vocabulary.encode(b"ab ab<|endoftext|>\xff")
    assert ids[:2].tolist() == [256, 257] and ends[:2].tolist() == [2, 5]
    assert 260 not in ids and ids[-1] == 255 and ends[-1] == 19


def test_tekken(tmp_path: Path) -> None:
    pytest.importorskip("tiktoken")
    vocab = [
        {"rank": at, "token_bytes": line.split()[0].decode(), "token_str": None}
        for at, line in enumerate(ranks_file().splitlines())
    ]
    config = {"pattern": r" ?\w+|.|\n", "default_vocab_size": 267, "default_num_special_tokens": 10}
    (tmp_path / "tekken.json").write_text(json.dumps({"config": config, "vocab": vocab}))
    vocabulary = open_vocabulary(tmp_path, "small")
    assert vocabulary.kind == "tekken" and len(vocabulary) == 267
    assert vocabulary.tokens[266] == b"ab" and vocabulary.control[2] == "</s>"
    assert vocabulary.encode(b"ab ab")[0].tolist() == [266, 42, 266], "' ab' is cut off"


def test_byte_trie(tmp_path: Path) -> None:
    file = tmp_path / "rwkv_vocab_small.txt"
    file.write_text("1 'a' 1\n2 b'\\xe4\\xb8' 2\n3 ' a\\n' 3\n5 '\u4e16' 3\n", encoding="utf-8")
    vocabulary = open_vocabulary(tmp_path)
    assert vocabulary.tokens == (b"", b"a", b"\xe4\xb8", b" a\n", b"", "\u4e16".encode())
    assert vocabulary.encode("a a\n\u4e16".encode())[0].tolist() == [1, 3, 5]
    assert vocabulary.roles == {"eos": (0,)}


PIECES = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), (SIGN, -3.0, 1), ("a", -4.0, 1),
          ("b", -5.0, 1), ("ab", -1.0, 1), (f"{SIGN}a", -2.0, 1), ("<x>", 0.0, 4), ("c", 0.0, 5),
          ("<0x63>", 0.0, 6)]  # fmt: skip


@pytest.mark.parametrize(("kind", "expected"), [(2, [3, 6, 8]), (1, [3, 6, 8])])
def test_sentencepiece_models(tmp_path: Path, kind: int, expected: list[int]) -> None:
    file = tmp_path / "spiece.model"
    file.write_bytes(model_proto(PIECES, bytes([24, kind]), b"\x20\x00"))
    vocabulary = open_vocabulary(file)
    assert vocabulary.kind == ("SentencePiece BPE" if kind == 2 else "SentencePiece Unigram")
    assert vocabulary.tokens[7:] == (b" a", b"<x>", b"", b"c") and vocabulary.lossless
    assert vocabulary.encode(b" ab<x>")[0].tolist() == expected, "the higher score first"
    assert vocabulary.encode(b"c")[0].tolist() == [10], "an unused piece is never spelled"
    assert vocabulary.roles == {"unk": (0,), "bos": (1,), "eos": (2,)}
    assert joined(vocabulary, "</s>") == b"" and joined(vocabulary, "a</s>b") == b"ab"


def test_sentencepiece_models_that_normalise_are_lossy(tmp_path: Path) -> None:
    file = tmp_path / "spiece.model"
    file.write_bytes(model_proto(PIECES, bytes([24, 2]), b""))
    assert not open_vocabulary(file).lossless
    assert joined(open_vocabulary(file), "a   b") == b"a b"


def test_gguf_pieces_and_signs(tmp_path: Path) -> None:
    texts, scores, types = map(list, zip(*PIECES, strict=True))
    shared = {"general.architecture": "llama", "tokenizer.ggml.eos_token_id": 2}
    spm = gguf(
        tmp_path / "spm.gguf",
        {**shared, "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": texts,
         "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": types},
    )  # fmt: skip
    vocabulary = open_vocabulary(spm)
    assert vocabulary.name == "spm" and vocabulary.roles == {"eos": (2,)}
    assert vocabulary.encode(b" ab<x>c")[0].tolist() == [3, 6, 8, 10]
    tokens = ["\u0120", "a", "<|end|>", "\u0120a", "\u00e9", "<t\u00e9>"]
    fields = {**shared, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens,
              "tokenizer.ggml.token_type": [1, 1, 1, 1, 1, 4],
              "tokenizer.ggml.merges": ["\u0120 a"]}  # fmt: skip
    for pre, encodes in (("gpt-2", True), ("someone's", False)):
        file = gguf(tmp_path / "bpe.gguf", {**fields, "tokenizer.ggml.pre": pre})
        vocabulary = open_vocabulary(file)
        assert vocabulary.tokens == (b" ", b"a", b"", b" a", b"\xe9", "<t\u00e9>".encode())
        assert vocabulary.can_encode == encodes
        if encodes:
            assert vocabulary.encode("a a<t\u00e9>".encode())[0].tolist() == [1, 3, 5]
        else:
            assert "someone's" in vocabulary.why_mute


def test_a_tokenizer_json_with_the_files_beside_it(tmp_path: Path) -> None:
    vocab = {"<unk>": 0, "<a>": 1, "<b>": 2, "<c>": 3, SIGN: 4, "x": 5}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "<a>", "<b>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert open_vocabulary(tmp_path).roles == {"unk": (0,)}
    config = {"eos_token": {"content": "<b>"}, "bos_token": "<a>", "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 3, 99]}')
    vocabulary = open_vocabulary(tmp_path / "tokenizer.json")
    assert vocabulary.roles == {"unk": (0,), "eos": (2, 3), "bos": (1,)}
    assert vocabulary.control == {0: "<unk>", 1: "<a>", 2: "<b>", 3: "<c>"}
    assert vocabulary.name == tmp_path.name and np.all(vocabulary.encode(b"x")[0] == [5])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGUF\x03\x00\x00\x00", "cannot be read"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "has no vocabulary"),
        (b"{", "no valid JSON"),
        (b"{}", "neither a tokenizer.json nor a tekken.json"),
        (b"QQ== 0\nQg== x\n", "no file of tiktoken's ranks"),
        (b"1 'a' 1\n2 nothing\n", "no byte trie"),
        (b"plain text\n", "no vocabulary of a kind known here"),
        (b"", "no vocabulary of a kind known here"),
        (model_proto(PIECES, b"", b"")[:-9], "no vocabulary of a kind known here"),
        (model_proto(PIECES, bytes([24, 3]), b""), "neither BPE nor Unigram"),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "file.bin"
    file.write_bytes(content)
    with pytest.raises(InvalidArgument, match=message):
        open_vocabulary(file)


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no such vocabulary"):
        open_vocabulary(tmp_path / "missing")
    with pytest.raises(InvalidArgument, match=r"holds no vocabulary; .* tokenizer\.json"):
        open_vocabulary(tmp_path)
    with pytest.raises(InvalidArgument, match="dict is no tokenizer"):
        open_vocabulary({})
    with pytest.raises(InvalidArgument, match="WordLevel tokenizer with no decoder has no known"):
        open_vocabulary(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")), "words")
    file = gguf(
        tmp_path / "x.gguf", {"tokenizer.ggml.model": "new", "tokenizer.ggml.tokens": ["a"]}
    )
    with pytest.raises(InvalidArgument, match="of the kind 'new'"):
        open_vocabulary(file)
