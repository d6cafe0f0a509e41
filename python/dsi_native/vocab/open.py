"""The front door: whatever knows a vocabulary, to a Vocabulary."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsi_native.errors import InvalidArgument
from dsi_native.vocab.vocabulary import Vocabulary

# In a folder, the first of these that is there.
_FILES = ("tokenizer.json", "tekken.json", "tokenizer.model", "spiece.model", "*.gguf",
          "*.tiktoken", "*.model", "rwkv_vocab*.txt")  # fmt: skip
_TRIE_LINE = re.compile(rb"\d+ b?['\"].*['\"] \d+")
_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+")
_CONFIG_ROLES = {"eos": "eos_token", "bos": "bos_token", "pad": "pad_token", "unk": "unk_token"}


def open_vocabulary(
    source: Any, name: str | None = None, width: int | None = None, eos: Sequence[int] = ()
) -> Vocabulary:
    """The vocabulary of `source`, which stays unaltered.

    source: a Vocabulary, a transformers tokenizer, a tokenizers.Tokenizer, a tiktoken.Encoding, a
        sentencepiece.SentencePieceProcessor; or the path of a tokenizer.json, tekken.json,
        SentencePiece model, GGUF file, file of tiktoken's ranks or RWKV's, or of a folder that
        holds one.
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
    if getattr(source, "backend_tokenizer", None) is not None:
        return tokenizers_source.from_transformers(source, title)
    pieces = getattr(source, "sp_model", source)
    if hasattr(pieces, "serialized_model_proto"):
        from dsi_native.vocab.sentencepiece_source import from_model_proto

        return from_model_proto(pieces.serialized_model_proto(), title)
    if hasattr(source, "get_vocab") and hasattr(source, "to_str"):
        return tokenizers_source.from_tokenizers(source, title)
    if hasattr(source, "encode_ordinary") and hasattr(source, "decode_single_token_bytes"):
        from dsi_native.vocab.tiktoken_source import from_encoding

        return from_encoding(source, name or source.name)
    raise InvalidArgument(f"{title}: a {type(source).__name__} is no tokenizer known here")


def _of_path(path: Path, name: str | None) -> Vocabulary:
    file = _in_folder(path) if path.is_dir() else path
    if not file.is_file():
        raise InvalidArgument(f"{path}: no such vocabulary; give a file or a folder")
    generic = file.stem in ("tokenizer", "tekken", "spiece")
    title = name or (file.parent.name if generic or path.is_dir() else file.stem)
    with file.open("rb") as opened:
        head = opened.read(512)
    if head.startswith(b"GGUF"):
        return _of_gguf(file, name)
    if head.lstrip()[:1] == b"{":
        return _of_json(file, title)
    first_line = head.split(b"\n", 1)[0].strip()
    if _RANK_LINE.fullmatch(first_line):
        from dsi_native.vocab.tiktoken_source import from_ranks

        return from_ranks(file.read_bytes(), title)
    if _TRIE_LINE.fullmatch(first_line):
        from dsi_native.vocab.tiktoken_source import from_byte_trie

        return from_byte_trie(file.read_text(encoding="utf-8"), title)
    from dsi_native.vocab.sentencepiece_source import from_model_proto

    return from_model_proto(file.read_bytes(), title)


def _in_folder(folder: Path) -> Path:
    for pattern in _FILES:
        for file in sorted(folder.glob(pattern)):
            return file
    raise InvalidArgument(f"{folder}: holds no vocabulary; known files are {', '.join(_FILES)}")


def _of_gguf(file: Path, name: str | None) -> Vocabulary:
    from dsi_native.vocab.gguf_source import from_gguf

    return from_gguf(file, name)


def _of_json(file: Path, name: str) -> Vocabulary:
    text = file.read_text(encoding="utf-8")
    try:
        state = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"{file}: no valid JSON ({error})") from error
    if "vocab" in state and "config" in state:
        from dsi_native.vocab.tiktoken_source import from_tekken

        return from_tekken(state, name)
    if "model" not in state:
        raise InvalidArgument(f"{file}: neither a tokenizer.json nor a tekken.json")
    from dsi_native.vocab.tokenizers_source import from_state, pieces_of

    ids = pieces_of(state)
    roles = _configured_roles(file.parent, ids)
    edges = {*roles.get("eos", ()), *roles.get("bos", ())}
    return from_state(state, name, {at: text for text, at in ids.items() if at in edges}, roles)


def _configured_roles(folder: Path, ids: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """What the files beside a tokenizer.json say of its control tokens."""
    used = set(ids.values())
    config = _json(folder / "special_tokens_map.json") | _json(folder / "tokenizer_config.json")
    roles = {}
    for role, key in _CONFIG_ROLES.items():
        token = config.get(key)
        text = token.get("content") if isinstance(token, dict) else token
        at = ids.get(text) if isinstance(text, str) else None
        if at is not None:
            roles[role] = (at,)
    for file in ("generation_config.json", "config.json"):
        ends = _json(folder / file).get("eos_token_id")
        named = ends if isinstance(ends, list) else [ends]
        known = [at for at in named if at in used]
        if known:
            roles["eos"] = tuple(dict.fromkeys([*roles.get("eos", ()), *known]))
    return roles


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
