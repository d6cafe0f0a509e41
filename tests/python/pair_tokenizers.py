"""Two byte-level tokenizers with different merges, and models of tables that use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from byte_level import byte_level_tokenizer
from dsi_native.models.callable import CallableModel

OTHER_CORPUS = ["the smile of the story stops here 漢字", "another naïve thing. STOP"] * 4


def other_tokenizer(vocab_size: int = 300) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<stop>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(OTHER_CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<stop>")


TARGET = byte_level_tokenizer()
DRAFTER = other_tokenizer()


def table_model(tokenizer: Any, seed: int, scale: float = 2.0, **options: Any) -> CallableModel:
    """Logits by the last token alone: random bytes, most of it no UTF-8."""
    draw = np.random.default_rng(seed)
    table = (draw.normal(size=(len(tokenizer), len(tokenizer))) * scale).astype(np.float32)
    return CallableModel(
        factory=lambda: lambda tokens, start: table[tokens],
        vocab_size=len(tokenizer),
        tokenizer=tokenizer,
        **options,
    )


class Oracle:
    """Says a text, in its own tokenizer's ids, from wherever its context stands; then the end."""

    def __init__(self, tokenizer: Any, text: bytes) -> None:
        from dsi_native.vocab.open import open_vocabulary

        self.vocabulary = open_vocabulary(tokenizer)
        self.text = text
        self.end = self.vocabulary.roles["eos"][0]
        self.seen: list[bytes] = []

    def forward(self) -> Callable[[np.ndarray, int], np.ndarray]:
        context: list[int] = []

        def rows(tokens: np.ndarray, start: int) -> np.ndarray:
            context[start:] = [int(token) for token in tokens]
            out = np.zeros((len(tokens), len(self.vocabulary)), np.float32)
            for row, length in zip(out, range(start + 1, len(context) + 1), strict=True):
                row[self.next(context[:length])] = 9
            self.seen.append(self.said(context))
            return out

        return rows

    def said(self, ids: list[int]) -> bytes:
        return b"".join(self.vocabulary.tokens[at] for at in ids)

    def next(self, ids: list[int]) -> int:
        said = self.said(ids)
        rest = self.text[len(said) :] if self.text.startswith(said) else b""
        return int(self.vocabulary.encode(rest)[0][0]) if rest else self.end

    def model(self, tokenizer: Any, **options: Any) -> CallableModel:
        return CallableModel(
            factory=self.forward,
            vocab_size=len(self.vocabulary),
            tokenizer=tokenizer,
            eos_ids=(self.end,),
            **options,
        )
