"""SLEM into vocabularies whose spelling of a text depends on what stands before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import dsi_native as dsi
from dsi_native.models.callable import CallableModel
from dsi_native.vocab.open import open_vocabulary
from pair_tokenizers import DRAFTER, Oracle

BEGIN = ["the", "sto", "un", "x", *"abelnoprsty"]
INSIDE = ["ing", "able", "think", *"abelnoprsty"]


def word_pieces() -> PreTrainedTokenizerFast:
    names = ["[UNK]", "[SEP]", *BEGIN, *(f"##{piece}" for piece in INSIDE)]
    model = models.WordPiece({name: at for at, name in enumerate(names)}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", eos_token="[SEP]", sep_token="[SEP]"
    )


def unigram() -> PreTrainedTokenizerFast:
    """Two zeros cost what three do, rounded: which are taken depends on where a run begins."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -3.0), ("▁x", -3.0), ("▁the", -3.0)]
    pieces += [("0", -19.0), ("00", -7.91), ("000", -11.865), ("a", -3.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


def scripted(tokenizer: Any, ids: list[int], end: int) -> CallableModel:
    """Says `ids`, then the end, whatever its context is."""
    width = len(open_vocabulary(tokenizer))

    def rows(tokens: np.ndarray, start: int) -> np.ndarray:
        out = np.zeros((len(tokens), width), np.float32)
        for row, at in zip(out, range(start + 1, start + 1 + len(tokens)), strict=True):
            row[ids[at] if at < len(ids) else end] = 9
        return out

    return CallableModel(
        factory=lambda: rows, vocab_size=width, tokenizer=tokenizer, eos_ids=(end,)
    )


@pytest.mark.parametrize("prompt_tokens", [1, 2, 3])
@pytest.mark.parametrize("lookahead", [1, 4])
@pytest.mark.parametrize(
    ("tokenizer", "text"),
    [
        (word_pieces(), b" the stopping unthinkable story x stopping story"),
        (unigram(), b" the 0000000000000 x00000a 000000000 the"),
    ],
    ids=["WordPiece", "Unigram"],
)
def test_what_the_target_says_next_is_drafted_in_its_tokens(
    tokenizer: Any, text: bytes, lookahead: int, prompt_tokens: int
) -> None:
    vocabulary = open_vocabulary(tokenizer)
    ids = vocabulary.encode(text)[0].tolist()
    assert b"".join(vocabulary.tokens[at] for at in ids) == text
    target = scripted(tokenizer, ids, tokenizer.eos_token_id)
    drafter = Oracle(DRAFTER, text).model(DRAFTER)
    with dsi.Engine(
        target, drafter, mode="si", lookahead=lookahead, method="slem", break_even=False
    ) as engine:
        out = engine.generate(ids[:prompt_tokens], max_new_tokens=100)
    assert out.tokens == [*ids[prompt_tokens:], tokenizer.eos_token_id]
    assert out.statistics.acceptance == 1.0
    rounds = -(-len(out.tokens) // (lookahead + 1))
    assert out.statistics.accepted >= len(out.tokens) - rounds - 1
