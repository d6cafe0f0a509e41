"""Bytes of tokens and text of bytes, piece by piece."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dsi_native.errors import InvalidArgument
from dsi_native.prompts import is_batch, prompt_ids, without_mapping
from dsi_native.text import IncrementalText
from dsi_native.vocab.bytes import token_bytes

TEXTS = [
    "The quick brown fox, 1234 times.\n\n\tdef f(x): return x**2  # ok",
    "Zażółć gęślą jaźń; Größe; ça coûte 3 €; ñandú",
    "Съешь ещё этих мягких французских булок",
    "日本語のテキスト、漢字とかな。한국어 텍스트. 中文字符",
    "مرحبا بالعالم שלום עולם नमस्ते दुनिया",
    "👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 \u200b\ufffd ~\u00ad\x00\x1f",
]
BYTES = [bytes([b]) for b in range(256)]


def byte_level() -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: at for at, token in enumerate(["<s>", *letters, "Ġt", "Ġth"])}
    tokenizer = Tokenizer(models.BPE(vocab, [("Ġ", "t"), ("Ġt", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    tokenizer.add_tokens([AddedToken("two words", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def pieces(decoder: decoders.Decoder) -> PreTrainedTokenizerFast:
    """SentencePiece's ways: U+2581 for spaces, bytes of what is unknown, a space put in front."""
    names = ["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(256)), "\u2581", *"abcdefgh", "▁a"]
    vocab = {token: at for at, token in enumerate(names)}
    tokenizer = Tokenizer(
        models.BPE(vocab, [("\u2581", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


LLAMA_DECODER = decoders.Sequence(
    [
        decoders.Replace("\u2581", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
)


def joined(table: list[bytes], ids: list[int]) -> bytes:
    return b"".join(table[i] for i in ids)


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_tokens_join_to_the_text(text: str) -> None:
    tokenizer = byte_level()
    table = token_bytes(tokenizer, 300)
    ids = tokenizer(text)["input_ids"]
    assert joined(table, ids) == text.encode()
    assert joined(table, [0, *ids, 0, 299]) == text.encode(), "special and padded ids add nothing"
    assert token_bytes(tokenizer, 300, skip_special=False)[0] == b"<s>"
    assert joined(table, tokenizer("two words")["input_ids"]) == b"two words"
    assert len(token_bytes(tokenizer, 10)) == 10


@pytest.mark.parametrize("text", TEXTS)
def test_sentencepiece_tokens_join_to_the_text_after_a_space(text: str) -> None:
    tokenizer = pieces(LLAMA_DECODER)
    table = token_bytes(tokenizer, 512)
    ids = tokenizer(text)["input_ids"]
    assert joined(table, ids) == b" " + text.encode()
    assert tokenizer.decode(ids) == text
    assert table[1] == b"" and table[2] == b"\x00" and table[511] == b""


def test_metaspace_without_byte_fallback_keeps_byte_names_as_text() -> None:
    table = token_bytes(pieces(decoders.Metaspace()), 300)
    assert b" a" in table and table[2] == b"<0x00>"


@pytest.mark.real_model
@pytest.mark.parametrize("text", TEXTS)
def test_tokens_of_the_embedded_model_join_to_the_text(text: str) -> None:
    tokenizer, table = _embedded_table()
    ids = tokenizer(text)["input_ids"]
    assert joined(table, ids) == text.encode()
    assert [table[i] for i in range(17)] == [b""] * 17
    assert len(table) == 49152 and all(table[17:])


_EMBEDDED: list[tuple] = []


def _embedded_table() -> tuple:
    from dsi_native.models.embedded import load_embedded

    if not _EMBEDDED:
        _, tokenizer = load_embedded()
        _EMBEDDED.append((tokenizer, token_bytes(tokenizer, 49152)))
    return _EMBEDDED[0]


def test_unknown_kinds_are_named() -> None:
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    words.decoder = decoders.WordPiece()
    with pytest.raises(InvalidArgument, match="WordLevel"):
        token_bytes(PreTrainedTokenizerFast(tokenizer_object=words), 3)
    with pytest.raises(InvalidArgument, match="object is not backed"):
        token_bytes(object(), 3)


def stream(data: bytes, cuts: list[int], stop: list[bytes]) -> list[str]:
    """The pieces of `data` cut into tokens, up to the first stop string that a token ends."""
    bounds = sorted({min(c, len(data)) for c in cuts} | {0, len(data)})
    table = [data[a:b] for a, b in itertools.pairwise(bounds)]
    text = IncrementalText(table, stop)
    out = []
    for token, end in enumerate(bounds[1:]):
        out.append(text.push(token))
        starts = [at for s in stop if s and (at := data[:end].find(s)) >= 0]
        if starts:
            out.append(text.finish(min(starts)))
            return out
    out.append(text.finish())
    return out


def expected(data: bytes, cuts: list[int], stop: list[bytes]) -> str:
    ends = sorted({min(c, len(data)) for c in cuts} | {len(data)})
    for end in ends:
        starts = [at for s in stop if s and (at := data[:end].find(s)) >= 0]
        if starts:
            return data[: min(starts)].decode(errors="replace")
    return data.decode(errors="replace")


raw = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.text(alphabet="ab\u00e9\U0001f600", max_size=30).map(str.encode),
)
strings = st.lists(
    st.one_of(
        st.text(alphabet="ab\u00e9\U0001f600", max_size=4).map(str.encode),
        st.binary(max_size=3),
    ),
    max_size=3,
)


@given(raw, st.lists(st.integers(0, 60), max_size=12), strings)
def test_pieces_join_to_the_decoded_bytes_up_to_the_stop(
    data: bytes, cuts: list[int], stop: list[bytes]
) -> None:
    assert "".join(stream(data, cuts, stop)) == expected(data, cuts, stop)


@given(st.text(max_size=20), st.lists(st.integers(0, 80), max_size=12))
def test_valid_text_never_shows_a_replacement_and_is_never_late(text: str, cuts: list[int]) -> None:
    data = text.encode()
    bounds = sorted({min(c, len(data)) for c in cuts} | {0, len(data)})
    decoder = IncrementalText([data[a:b] for a, b in itertools.pairwise(bounds)])
    seen = ""
    for token, end in enumerate(bounds[1:]):
        seen += decoder.push(token)
        assert seen == data[:end].decode(errors="ignore")


def test_what_may_begin_a_stop_string_is_held_until_decided() -> None:
    text = IncrementalText(BYTES, [b"END", b"\n\n"])
    assert [text.push(b) for b in b"aEN"] == ["a", "", ""]
    assert text.push(ord("x")) == "ENx"
    assert [text.push(b) for b in b"\nE"] == ["", "\n"]
    assert [text.push(b) for b in b"ND"] == ["", ""]
    assert text.finish(len(b"aENx\n")) == ""


def test_a_match_that_did_not_end_the_output_is_released_with_the_next_token() -> None:
    text = IncrementalText([b"xEND", b"y"], [b"END"])
    assert [text.push(0), text.push(1), text.finish()] == ["x", "ENDy", ""]


def test_ids_outside_the_table_add_nothing_and_broken_bytes_show_once_hopeless() -> None:
    text = IncrementalText(BYTES)
    assert text.push(-1) == "" and text.push(256) == ""
    assert [text.push(b) for b in b"\xe2\x82"] == ["", ""]
    assert text.push(0x41) == "\ufffdA"
    assert text.push(0xF0) == "" and text.finish() == "\ufffd"


@pytest.mark.parametrize("prompt", ["caf\udce9", [{"role": "user", "content": "abc\ud800"}]])
def test_a_prompt_that_is_not_unicode_is_refused(prompt: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^prompt: is not valid Unicode at character 3"):
        prompt_ids(prompt, byte_level(), 300)


def test_a_tokenizers_output_is_a_prompt_or_several() -> None:
    import torch
    from transformers import BatchEncoding

    def kept(prompt: object) -> object:
        found = without_mapping(prompt)
        return [list(map(int, row)) for row in found] if is_batch(found) else list(found)

    assert kept(BatchEncoding({"input_ids": [4, 5]})) == [4, 5]
    assert kept({"input_ids": [0, 4, 5], "attention_mask": [0, 1, 1]}) == [4, 5]
    two = BatchEncoding(
        {"input_ids": torch.tensor([[4, 5, 6], [7, 8, 0]]),
         "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    )  # fmt: skip
    assert kept(two) == [[4, 5, 6], [7, 8]]
    assert kept({"input_ids": [[4, 5]]}) == [[4, 5]]
    assert prompt_ids({"input_ids": [4, 5]}, None, 300).tolist() == [4, 5]
    with pytest.raises(
        InvalidArgument, match=r"^prompt: a mapping needs input_ids.* role, content"
    ):
        prompt_ids({"role": "user", "content": "hi"}, None, 300)
