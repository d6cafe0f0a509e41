"""Which bytes each token of a transformers tokenizer adds to the output."""

from __future__ import annotations

import json
from typing import Any

from dsi_native.errors import InvalidArgument
from dsi_native.vocab.pieces import described, notation_of


def token_bytes(tokenizer: Any, vocab_size: int, skip_special: bool = True) -> list[bytes]:
    """The table id -> bytes, `vocab_size` long; ids without a token (padding of the rows) give b"".

    tokenizer: a transformers tokenizer over the `tokenizers` library: byte-level (GPT-2 byte
        signs), SentencePiece-like (U+2581 for a space, <0xHH> for a byte) or WordPiece.
    skip_special: special tokens (end of text, chat roles) give b"", else their own text.
    The bytes of a text's tokens, joined, are the text's UTF-8. One exception: SentencePiece-like
    tokenizers put a space before the first word and drop it when they decode a whole text, and
    WordPiece has one before every word; here the space stays, as it must in the middle of a text.
    Raises InvalidArgument, naming the decoder, for other kinds. Takes 0.1 s for 49,152 tokens.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InvalidArgument(
            f"{type(tokenizer).__name__} is not backed by the tokenizers library, so the bytes of "
            "its tokens are unknown"
        )
    state = _outline(backend)
    notation = notation_of(state)
    if notation is None:
        raise InvalidArgument(f"tokens of {described(state)} have no known bytes")
    _, read = notation
    special = {index for index, added in tokenizer.added_tokens_decoder.items() if added.special}
    table = [b""] * vocab_size
    for token, index in tokenizer.get_vocab().items():
        if index < vocab_size:
            if index not in special:
                table[index] = read(token)
            elif not skip_special:
                table[index] = token.encode()
    return table


def _outline(backend: Any) -> dict[str, Any]:
    """What notation_of() reads of a serialised tokenizer; all of one takes seconds to serialise."""

    def step(component: str) -> Any:
        part = getattr(backend, component, None)
        return None if part is None else json.loads(part.__getstate__())

    model = getattr(backend, "model", None)
    outline: dict[str, Any] = {"type": type(model).__name__ if model is not None else "BPE"}
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if getattr(model, name, None) is not None:
            outline[name] = getattr(model, name)
    return {
        "model": outline,
        "decoder": step("decoder"),
        "pre_tokenizer": step("pre_tokenizer"),
    }
