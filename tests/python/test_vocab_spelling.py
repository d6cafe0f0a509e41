"""Spelling pieces from the middle of a text, with tokenizers made for each trap."""

from __future__ import annotations

import concurrent.futures

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from dsi_native.errors import InvalidArgument
from dsi_native.vocab import Vocabulary, open_vocabulary
from dsi_native.vocab.pieces import byte_signs

SIGN = "\u2581"


def byte_level() -> Tokenizer:
    signs = {sign: at + 2 for at, sign in enumerate(sorted(byte_signs()))}
    vocab = {"<s>": 0, "</s>": 1, **signs, "th": 258, "the": 259, "\u0120the": 260}
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the")]
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", AddedToken("</s>", lstrip=True, rstrip=True)])
    tokenizer.add_tokens([AddedToken("<tool>", lstrip=True)])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8)
    return tokenizer


def piece_like(kind: str) -> Tokenizer:
    """SentencePiece as transformers writes it, with each way to put a space before the text."""
    pieces = [
        "<unk>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        SIGN,
        "a",
        "b",
        f"{SIGN}a",
    ]
    vocab = {piece: at for at, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocab, [(SIGN, "a")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    if kind == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    else:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SIGN), normalizers.Replace(" ", SIGN)]
        )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SIGN, " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    return tokenizer


def joined(vocabulary: Vocabulary, data: bytes) -> bytes:
    ids, ends = vocabulary.encode(data)
    assert len(ids) == len(ends) and (np.diff(ends) >= 0).all()
    return b"".join(vocabulary.tokens[at] for at in ids.tolist())


MAKERS = {
    "byte-level": byte_level,
    "prepend": lambda: piece_like("prepend"),
    "metaspace": lambda: piece_like("metaspace"),
}
VOCABULARIES = {name: open_vocabulary(make()) for name, make in MAKERS.items()}


@given(data=st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
@pytest.mark.parametrize("name", MAKERS)
def test_any_bytes_come_back(name: str, data: bytes) -> None:
    vocabulary = VOCABULARIES[name]
    assert vocabulary.lossless and joined(vocabulary, data) == data
    ids, ends = vocabulary.encode(data)
    assert ends.tolist() == np.cumsum([len(vocabulary.tokens[at]) for at in ids]).tolist()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "text",
    ["the a", " the", "a", " ", "</s>", "x </s> y <s>", "a  <tool>", "<0x41>", SIGN, "", "\ufffd"],
)
def test_nothing_is_added_and_names_are_text(name: str, text: str) -> None:
    vocabulary = VOCABULARIES[name]
    assert joined(vocabulary, text.encode()) == text.encode()
    assert not set(vocabulary.encode(text.encode())[0].tolist()) & set(vocabulary.control)


def test_the_first_word_has_no_space_before_it() -> None:
    first, behind = VOCABULARIES["byte-level"].encode(b"the the")[0].tolist()
    assert VOCABULARIES["byte-level"].tokens[first] == b"the"
    assert VOCABULARIES["byte-level"].tokens[behind] == b" the"


def test_the_users_tokenizer_stays_unaltered() -> None:
    for make in MAKERS.values():
        tokenizer = make()
        before, ids = tokenizer.to_str(), tokenizer.encode("the a </s>").ids
        vocabulary = open_vocabulary(tokenizer)
        vocabulary.encode(b"the a </s>")
        assert tokenizer.to_str() == before and tokenizer.encode("the a </s>").ids == ids
        assert not tokenizer.encode_special_tokens


def test_characters_cut_anywhere() -> None:
    data = "né\u4e16\U0001f600\ufffd".encode()
    for name, vocabulary in VOCABULARIES.items():
        for begin in range(len(data)):
            for end in range(begin, len(data) + 1):
                assert joined(vocabulary, data[begin:end]) == data[begin:end], name


def test_word_pieces_lower_case_and_drop() -> None:
    words = ["[UNK]", "[SEP]", "the", "fox", "##es", ",", "caf", "##e"]
    tokenizer = Tokenizer(
        models.WordPiece({word: at for at, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[UNK]", "[SEP]"])
    vocabulary = open_vocabulary(tokenizer)
    assert (vocabulary.kind, vocabulary.lossless) == ("WordPiece", False)
    assert vocabulary.tokens == (b"", b"", b" the", b" fox", b"es", b" ,", b" caf", b"e")
    text = "The  foxes, Café \u2603 the"
    ids, ends = vocabulary.encode(text.encode())
    assert ids.tolist() == [2, 3, 4, 5, 6, 7, 2]
    assert [text.encode()[:end].decode() for end in ends] == [
        "The", "The  fox", "The  foxes", "The  foxes,", "The  foxes, Caf", "The  foxes, Café", text,
    ]  # fmt: skip
    assert vocabulary.encode(b"[SEP]")[0].tolist() == []


def test_normalised_text_keeps_offsets_of_the_source() -> None:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.NFKC()
    vocabulary = open_vocabulary(tokenizer)
    assert not vocabulary.lossless
    ids, ends = vocabulary.encode("x\ufb01y".encode())
    assert b"".join(vocabulary.tokens[at] for at in ids) == b"xfiy"
    assert ends[0] == 1 and ends[-1] == 5 and ends[-2] == 4


def test_unigram_never_cuts_a_control_token_out_of_text() -> None:
    pieces = [("<unk>", 0.0), ("</s>", 5.0), (SIGN, -2.0), ("<", -3.0), ("/", -3.0), ("s", -3.0),
              (">", -3.0)]  # fmt: skip
    tokenizer = Tokenizer(models.Unigram(pieces, 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>"])
    vocabulary = open_vocabulary(tokenizer)
    assert joined(vocabulary, b"s </s>") == b"s </s>"
    assert vocabulary.roles == {"eos": (1,), "unk": (0,)}
    assert joined(vocabulary, "s\u2603s".encode()) == b"ss", "no bytes to fall back to"


def test_ids_beyond_the_rows_are_spelled_otherwise() -> None:
    vocabulary = VOCABULARIES["byte-level"].at_width(259)
    assert joined(vocabulary, b"x the") == b"x the"
    assert max(vocabulary.encode(b"x the")[0]) < 259


def test_roles_of_a_transformers_tokenizer() -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level(), eos_token="</s>", bos_token="<s>"
    )
    vocabulary = open_vocabulary(tokenizer, "named", width=300)
    assert (vocabulary.name, len(vocabulary)) == ("named", 300)
    assert (vocabulary.roles["eos"], vocabulary.roles["bos"]) == ((1,), (0,))
    assert (vocabulary.control[0], vocabulary.control[1]) == ("<s>", "</s>")


def test_threads_share_one_vocabulary() -> None:
    vocabulary = open_vocabulary(byte_level())
    data = [f"the {at} the".encode() for at in range(200)]
    alone = [vocabulary.encode(piece)[0].tolist() for piece in data]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        fresh = open_vocabulary(byte_level())
        assert [ids.tolist() for ids, _ in pool.map(fresh.encode, data)] == alone


def test_without_a_speller() -> None:
    mute = Vocabulary("ranks", "tiktoken", (b"a", b"ab", b"b"), why_mute="no patterns")
    with pytest.raises(InvalidArgument, match="ranks cannot encode text: no patterns"):
        mute.encode(b"a")
    ids, ends = mute.spell_longest(b"aabxb")
    assert (ids.tolist(), ends.tolist()) == ([0, 1, 2], [1, 3, 5])
    assert mute.spell_longest(b"")[0].dtype == np.int32
    assert len(mute.unspelled_bytes) == 254
