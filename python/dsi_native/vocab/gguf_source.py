"""Vocabularies of GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsi_native.errors import InvalidArgument
from dsi_native.vocab.gguf_file import read_metadata
from dsi_native.vocab.piece_model import (
    CONTROL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    PieceModel,
    from_piece_model,
)
from dsi_native.vocab.pieces import SPACE_SIGN, from_signs
from dsi_native.vocab.splits import SPLITS, WHOLE_WORDS_FIRST
from dsi_native.vocab.tokenizers_source import when_asked
from dsi_native.vocab.vocabulary import Vocabulary

_PREFIX = "tokenizer.ggml."
_ROLE_KEYS = {
    "eos": ("eot_token_id", "eos_token_id", "eom_token_id"),
    "bos": ("bos_token_id",),
    "pad": ("padding_token_id",),
    "unk": ("unknown_token_id",),
}


def from_gguf(path: Path, name: str | None = None) -> Vocabulary:
    """Of a GGUF file's metadata. Raises InvalidArgument for kinds that are not known here."""
    read = read_metadata(path, (_PREFIX,))
    fields = {key.removeprefix(_PREFIX): value for key, value in read.items()}
    title = name or path.stem
    model = fields.get("model")
    if "tokens" not in fields:
        raise InvalidArgument(f"{path}: has no vocabulary")
    if model == "gpt2":
        return _byte_level(fields, title)
    if model in ("llama", "t5", "gemma4"):
        return from_piece_model(_piece_model(fields), title)
    if model == "bert":
        return _word_pieces(fields, title)
    raise InvalidArgument(f"{path}: a GGUF vocabulary of the kind {model!r}, not known here")


def _types(fields: Mapping[str, Any]) -> list[int]:
    types = fields.get("token_type")
    return [1] * len(fields["tokens"]) if types is None else [int(kind) for kind in types]


def _roles(fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    roles = {}
    for role, keys in _ROLE_KEYS.items():
        ids = dict.fromkeys(int(fields[key]) for key in keys if key in fields)
        if ids:
            roles[role] = tuple(at for at in ids if at < len(fields["tokens"]))
    return roles


def _control(fields: Mapping[str, Any], types: list[int]) -> dict[int, str]:
    tokens = fields["tokens"]
    found = {at: tokens[at] for at, kind in enumerate(types) if kind in (UNKNOWN, CONTROL)}
    # Some files call their end and start tokens normal.
    for role in ("eos", "bos"):
        found |= {at: tokens[at] for at in _roles(fields).get(role, ())}
    return found


def _merges(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs = []
    for merge in fields.get("merges", ()):
        # The first character may itself be a space.
        cut = merge.index(" ", 1)
        pairs.append((merge[:cut], merge[cut + 1 :]))
    return pairs


def _piece_model(fields: Mapping[str, Any]) -> PieceModel:
    charsmap = fields.get("precompiled_charsmap")
    types = _types(fields)
    for at in _control(fields, types):
        types[at] = types[at] if types[at] == UNKNOWN else CONTROL
    return PieceModel(
        pieces=fields["tokens"],
        scores=list(map(float, fields.get("scores", [0.0] * len(types)))),
        types=types,
        unigram=fields["model"] == "t5",
        merges=_merges(fields) if fields["model"] == "gemma4" else None,
        charsmap=b"" if charsmap is None else charsmap.tobytes(),
        collapses_spaces=bool(fields.get("remove_extra_whitespaces", False)),
        roles=_roles(fields),
    )


def _byte_level(fields: Mapping[str, Any], name: str) -> Vocabulary:
    types = _types(fields)
    control = _control(fields, types)
    tokens = [
        b"" if at in control or kind == UNUSED
        # These are written as they are, not in byte signs.
        else token.encode() if kind == USER_DEFINED
        else from_signs(token)
        for at, (token, kind) in enumerate(zip(fields["tokens"], types, strict=True))
    ]  # fmt: skip
    pre = fields.get("pre", "gpt-2")
    known = pre in SPLITS and "merges" in fields
    return Vocabulary(
        name=name,
        kind="byte-level BPE",
        tokens=tuple(tokens),
        control=control,
        roles=_roles(fields),
        speller=when_asked(_byte_level_tokenizer, fields, types) if known else None,
        why_mute=f"how the GGUF pre-tokenizer {pre!r} splits text is not known here",
    )


def _byte_level_tokenizer(fields: Mapping[str, Any], types: list[int]) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

    pre = fields.get("pre", "gpt-2")
    vocab = {token: at for at, token in reversed(list(enumerate(fields["tokens"])))}
    tokenizer = Tokenizer(
        models.BPE(vocab, _merges(fields), ignore_merges=pre in WHOLE_WORDS_FIRST)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[pre]),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_tokens(
        [
            AddedToken(token, normalized=False)
            for token, kind in zip(fields["tokens"], types, strict=True)
            if kind == USER_DEFINED
        ]
    )
    return tokenizer


def _word_pieces(fields: Mapping[str, Any], name: str) -> Vocabulary:
    """GGUF marks the first piece of a word where WordPiece marks the others."""
    types = _types(fields)
    control = _control(fields, types)
    tokens = tuple(
        b"" if at in control or kind == UNUSED else token.replace(SPACE_SIGN, " ").encode()
        for at, (token, kind) in enumerate(zip(fields["tokens"], types, strict=True))
    )
    return Vocabulary(
        name=name,
        kind="WordPiece",
        tokens=tokens,
        control=control,
        roles=_roles(fields),
        lossless=False,
        speller=when_asked(_word_piece_tokenizer, fields, control),
    )


def _word_piece_tokenizer(fields: Mapping[str, Any], control: Mapping[int, str]) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    vocab = {}
    for at, token in reversed(list(enumerate(fields["tokens"]))):
        first = token.startswith(SPACE_SIGN)
        vocab[token if at in control else token[1:] if first else f"##{token}"] = at
    unknown = fields["tokens"][_roles(fields)["unk"][0]] if "unk" in _roles(fields) else "[UNK]"
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
