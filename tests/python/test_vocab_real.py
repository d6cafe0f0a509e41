"""Real tokenizers of all kinds: what each pair has in common, and what they do to real text."""

from __future__ import annotations

import functools
import itertools
import random
import time
from pathlib import Path

import numpy as np
import pytest

from dsi_native.vocab import Vocabulary, open_vocabulary, vocabulary_map
from vocab_files import FILES, FOLDER, needs_files, real

pytestmark = [needs_files, pytest.mark.real_model]

KINDS = {
    "smollm2": "byte-level BPE",
    "deepseek": "byte-level BPE",
    "qwen": "tiktoken",
    "llama3": "tiktoken",
    "mistral-v3": "SentencePiece BPE",
    "tekken": "tekken",
    "rwkv": "byte trie",
    "gemma-4": "SentencePiece BPE",
    "bert": "WordPiece",
    "xlm-r": "SentencePiece Unigram",
}
LOSSLESS = sorted(set(FILES) - {"bert", "xlm-r"})
TEXTS = {
    "prose": "It was the best of times, it was the worst of times; it was the age of wisdom.",
    "code": "def f(x):\n\tif x != 0:\n\t\treturn {'a': [1, 22, 333]}\n\n\n# done\r\n",
    "languages": "Größe, façade, Привет, мир! Γειά, 日本語の文章、한국어, مرحبا, हिन्दी, ไทย, 中文",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇧🇷",
    "combining": "e\u0301 n\u0303 a\u0328\u0301 \u1100\u1161\u11a8 \u0915\u094d\u0937",
    "blanks": "a  b   c    d \t \t\t e\n\n\n\n  f \u00a0 \u3000 g   ",
    "repeats": "ha ha ha ha ha ha 0000000000000000 1234567890 =====",
    "replacement": "a real \ufffd, two \ufffd\ufffd and \ufffe\uffff",
    "control": "<s></s><|im_end|><|endoftext|>[SEP][UNK]<unk><0x41><eos> </s>",
    "leading": "  two blanks first, \u2581 a sign of blanks",
    "": "",
}


def joined(vocabulary: Vocabulary, ids: np.ndarray) -> bytes:
    return b"".join(vocabulary.tokens[at] for at in ids.tolist())


@functools.cache
def standing(name: str) -> dict[bytes, int]:
    """Byte string -> the id that the tokenizer itself uses for it, of several; else the lowest."""
    groups: dict[bytes, list[int]] = {}
    for at, token in enumerate(real(name).tokens):
        if token:
            groups.setdefault(token, []).append(at)
    found = {token: ids[0] for token, ids in groups.items()}
    for token, ids in groups.items():
        if len(ids) > 1:
            own = real(name).encode(token)[0].tolist()
            found[token] = own[0] if len(own) == 1 and own[0] in ids else ids[0]
    return found


def spelled(vocabulary: Vocabulary, data: bytes) -> np.ndarray:
    """Its ids, after all that must hold of any vocabulary and any bytes."""
    ids, ends = vocabulary.encode(data)
    assert ids.dtype == np.int32 and ends.dtype == np.int64 and len(ids) == len(ends)
    assert (np.diff(ends) >= 0).all() and (not len(ends) or 0 < ends[-1] <= len(data))
    assert not set(ids.tolist()) & set(vocabulary.control), "a control token out of plain text"
    assert all(vocabulary.tokens[at] for at in ids.tolist())
    return ids


@pytest.mark.parametrize("name", FILES)
def test_kinds_and_roles(name: str) -> None:
    vocabulary = real(name)
    assert vocabulary.kind == KINDS[name]
    assert vocabulary.lossless == (name in LOSSLESS)
    assert name == "bert" or vocabulary.roles["eos"], "each but BERT ends its texts"
    assert all(not vocabulary.tokens[at] for at in vocabulary.control)
    assert all(at in vocabulary.control for ids in vocabulary.roles.values() for at in ids)


@pytest.mark.parametrize(
    ("target", "drafter", "common"),
    [
        ("llama3", "qwen", 109_566),
        ("gemma-4", "qwen", 95_968),
        ("qwen", "smollm2", 39_234),
        ("mistral-v3", "smollm2", 21_754),
    ],
)
def test_known_counts(target: str, drafter: str, common: int) -> None:
    """Counted are byte strings that both have as text tokens: single bytes and what a user defined
    are among them, control and unknown tokens are not, and duplicates count once."""
    assert vocabulary_map(real(target), real(drafter)).common == common


@pytest.mark.parametrize(("target", "drafter"), list(itertools.permutations(FILES, 2)))
def test_all_pairs(target: str, drafter: str) -> None:
    ours, theirs = real(target), real(drafter)
    found = vocabulary_map(ours, theirs)
    both = standing(target).keys() & standing(drafter).keys()
    assert found.relation == "overlapping" and found.common == len(both)
    mapped = np.flatnonzero(found.d2t >= 0)
    assert (found.t2d[found.d2t[mapped]] == mapped).all() and (found.t2d >= 0).sum() == len(mapped)
    text = [at for at in mapped.tolist() if theirs.tokens[at]]
    assert len(text) == len(both) and len(mapped) - len(text) <= 2
    for at in text[:: len(text) // 2000]:
        token = theirs.tokens[at]
        assert (found.d2t[at], at) == (standing(target)[token], standing(drafter)[token])
    if ours.roles.get("eos") and theirs.roles.get("eos"):
        assert found.d2t[theirs.roles["eos"][0]] == ours.roles["eos"][0]


def test_pairs_go_both_ways() -> None:
    forth = vocabulary_map(real("gemma-4"), real("mistral-v3"))
    back = vocabulary_map(real("mistral-v3"), real("gemma-4"))
    assert (forth.d2t == back.t2d).all() and (forth.t2d == back.d2t).all()
    assert (forth.duplicates_target, forth.duplicates_drafter) == (110, 125)


def test_a_map_of_152_thousand_and_262_thousand_tokens_takes_half_a_second() -> None:
    """Processor time of the fastest of five, hashes and look-up tables included."""
    big, small = real("gemma-4"), real("qwen")
    took = []
    for width in range(5):
        pair = [
            Vocabulary(v.name, v.kind, (*v.tokens, bytes([7]) * (30 + width)), v.control, v.roles)
            for v in (big, small)
        ]
        begin = time.process_time()
        assert vocabulary_map(*pair, 262_208, 151_936).common == 95_969
        took.append(time.process_time() - begin)
        if took[-1] < 0.5:
            break
    assert min(took) < 0.5, took
    begin = time.process_time()
    vocabulary_map(*pair, 262_208, 151_936)
    assert time.process_time() - begin < 0.02, "the map is kept"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", FILES)
def test_text_comes_back(name: str, text: str) -> None:
    vocabulary, data = real(name), TEXTS[text].encode()
    ids = spelled(vocabulary, data)
    missing = set(vocabulary.unspelled_bytes) & set(data)
    if vocabulary.lossless and not missing:
        assert joined(vocabulary, ids) == data
        assert (
            vocabulary.encode(data)[1].tolist()
            == np.cumsum([len(vocabulary.tokens[at]) for at in ids.tolist()], dtype=int).tolist()
        )
    if text != "replacement":
        assert "\ufffd".encode() not in joined(vocabulary, ids)


@pytest.mark.parametrize("name", FILES)
def test_every_cut_of_every_character(name: str) -> None:
    """Pieces that begin and end inside characters of two, three and four bytes."""
    vocabulary, data = real(name), "xé世👍y".encode()
    for begin, end in itertools.combinations(range(len(data) + 1), 2):
        piece = data[begin:end]
        ids = spelled(vocabulary, piece)
        if vocabulary.lossless:
            assert joined(vocabulary, ids) == piece, piece


@pytest.mark.parametrize("name", LOSSLESS)
def test_random_bytes(name: str) -> None:
    vocabulary, random_bytes = real(name), random.Random(7).randbytes
    for size in (1, 2, 3, 50, 400):
        data = bytes(b for b in random_bytes(size) if b not in vocabulary.unspelled_bytes)
        assert joined(vocabulary, spelled(vocabulary, data)) == data


def sections(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")


@pytest.mark.parametrize(
    "name", ["bert-bge", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "qwen35",
             "starcoder"]
)  # fmt: skip
def test_ids_are_those_of_the_file(name: str) -> None:
    """Texts and ids that come with each vocabulary; their first word may have a space before it."""
    file = FOLDER / f"ggml-vocab-{name}.gguf"
    vocabulary = real(name) if name in FILES else open_vocabulary(file)
    texts = sections(file.with_suffix(".gguf.inp"))
    answers = file.with_suffix(".gguf.out").read_text().split("\n")
    unknown = vocabulary.roles.get("unk", ()) if name == "bert-bge" else ()
    assert len(texts) > 40
    for text, answer in zip(texts, answers, strict=False):
        piece = " " + text if name == "llama-spm" and text else text
        expected = [int(at) for at in answer.split() if int(at) not in unknown]
        found = vocabulary.encode(piece.encode())[0].tolist()
        if name == "bert-bge" and len(found) > len(expected):
            # Of a word with an unknown character it drops all, the speller what is unknown.
            assert set(expected) <= set(found)
            continue
        assert found == expected, text


def test_sentencepiece_itself_cuts_the_same() -> None:
    from sentencepiece import SentencePieceProcessor

    theirs = SentencePieceProcessor(model_file=str(FILES["mistral-v3"]))
    assert open_vocabulary(theirs, "mistral-v3").content_hash == real("mistral-v3").content_hash
    # It takes its own sign of a space for a space, which the speller does not.
    everything, draw = " ".join(TEXTS.values()).replace("\u2581", ""), random.Random(3)
    for _ in range(300):
        begin = draw.randrange(len(everything))
        text = everything[begin : begin + draw.randrange(1, 50)]
        ids, _ = real("mistral-v3").encode(f" {text}".encode())
        assert ids.tolist() == theirs.encode(text), text
