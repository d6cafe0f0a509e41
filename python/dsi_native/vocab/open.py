"""The front door: whatever knows a vocabulary, to a Vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsi_native.errors import InvalidArgument
from dsi_native.vocab.vocabulary import Vocabulary


def open_vocabulary(
    source: Any, name: str | None = None, width: int | None = None, eos: Sequence[int] = ()
) -> Vocabulary:
    """The vocabulary of `source`, which stays unaltered.

    source: a Vocabulary, a transformers tokenizer, a tokenizers.Tokenizer, or the path of a folder
        with a tokenizer.json or of that file.
    name: what messages call it; by default what the source calls itself.
    width: how wide the model's rows are; ids behind the last token are unused.
    eos: end tokens that the model's configuration names besides the tokenizer's own.
    Raises InvalidArgument naming what it is where nothing here can read it.
    """
    if isinstance(source, Vocabulary):
        found = source
    elif isinstance(source, (str, Path)):
        found = _of_path(Path(source).expanduser(), name)
    else:
        found = _of_object(source, name)
    return found.at_width(width).with_eos(eos)


def _of_object(source: Any, name: str | None) -> Vocabulary:
    from dsi_native.vocab import tokenizers_source

    title = name or str(getattr(source, "name_or_path", "") or type(source).__name__)
    if hasattr(source, "backend_tokenizer"):
        return tokenizers_source.from_transformers(source, title)
    if hasattr(source, "get_vocab") and hasattr(source, "to_str"):
        return tokenizers_source.from_tokenizers(source, title)
    raise InvalidArgument(f"{title}: a {type(source).__name__} is no tokenizer known here")


def _of_path(path: Path, name: str | None) -> Vocabulary:
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise InvalidArgument(f"{path}: no such vocabulary")
    from tokenizers import Tokenizer

    from dsi_native.vocab import tokenizers_source

    tokenizer = Tokenizer.from_file(str(file))
    return tokenizers_source.from_tokenizers(tokenizer, name or file.parent.name)
