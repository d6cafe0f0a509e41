"""A byte-level tokenizer with few merges, and a text that it cuts inside characters."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = ["the stop of the story: naïve façade and smile", "stop. STOP! the end\n\n"] * 4
STORY = "So the story 漢字 stops 🙂 naïvely.\n\nThe end. über-stop! STOP"


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


TOKENIZER = byte_level_tokenizer()
END = TOKENIZER.eos_token_id
SCRIPT = TOKENIZER.encode(STORY)
