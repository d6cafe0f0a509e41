"""Vocabularies with raw bytes: tiktoken's, its rank files, Mistral's tekken.json, byte tries."""

from __future__ import annotations

import ast
import base64
import binascii
import importlib.util
from collections.abc import Mapping
from typing import Any

from dsi_native.errors import InvalidArgument
from dsi_native.vocab.names import roles_by_name
from dsi_native.vocab.spelling import LONGEST, TextSpeller
from dsi_native.vocab.vocabulary import Vocabulary

_MUTE_RANKS = "a file of ranks does not say how it splits text; give the tiktoken.Encoding itself"
_MUTE_TEKKEN = "pip install tiktoken"
# tekken.json files of the first version name none: these are the first of its 1,000 control ids.
_TEKKEN_CONTROL = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")


def from_encoding(encoding: Any, name: str) -> Vocabulary:
    """Of a tiktoken.Encoding."""
    control = {encoding.encode_single_token(text): text for text in encoding.special_tokens_set}
    tokens = [b""] * encoding.n_vocab
    for at in range(encoding.n_vocab):
        if at not in control:
            try:
                tokens[at] = encoding.decode_single_token_bytes(at)
            except KeyError:
                continue  # a hole between the text tokens and the control tokens
    return Vocabulary(
        name=name,
        kind="tiktoken",
        tokens=tuple(tokens),
        control=dict(sorted(control.items())),
        roles=roles_by_name(control),
        speller=_speller(encoding),
    )


def from_ranks(data: bytes, name: str) -> Vocabulary:
    """Of the content of a `.tiktoken` file: per line a token in base64 and its rank."""
    try:
        ranks = {
            int(rank): base64.b64decode(token, validate=True)
            for token, rank in (line.split() for line in data.splitlines() if line.strip())
        }
    except (ValueError, binascii.Error) as error:
        raise InvalidArgument(f"{name}: no file of tiktoken's ranks") from error
    if not ranks:
        raise InvalidArgument(f"{name}: no file of tiktoken's ranks")
    tokens = tuple(ranks.get(at, b"") for at in range(1 + max(ranks)))
    return Vocabulary(name=name, kind="tiktoken", tokens=tokens, why_mute=_MUTE_RANKS)


def from_tekken(state: Mapping[str, Any], name: str) -> Vocabulary:
    """Of a tekken.json: control tokens first, then the ranks, cut to the vocabulary's size."""
    config = state["config"]
    first = config["default_num_special_tokens"]
    text_ids = config["default_vocab_size"] - first
    ranks = {
        base64.b64decode(token["token_bytes"]): token["rank"]
        for token in state["vocab"]
        if token["rank"] < text_ids
    }
    tokens = [b""] * config["default_vocab_size"]
    for token, rank in ranks.items():
        tokens[first + rank] = token
    named = {token["rank"]: token["token_str"] for token in state.get("special_tokens") or ()}
    named = named or dict(enumerate(_TEKKEN_CONTROL))
    control = {at: named.get(at, f"<SPECIAL_{at}>") for at in range(first)}
    speller = None
    if importlib.util.find_spec("tiktoken") is not None:
        from tiktoken import Encoding

        speller = _speller(
            Encoding(name, pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={}),
            first,
        )
    return Vocabulary(
        name=name,
        kind="tekken",
        tokens=tuple(tokens),
        control=control,
        roles=roles_by_name(control),
        speller=speller,
        why_mute=_MUTE_TEKKEN,
    )


def from_byte_trie(text: str, name: str) -> Vocabulary:
    """Of RWKV's vocabulary: per line an id, a Python literal and its length in bytes."""
    found: dict[int, bytes] = {}
    try:
        for line in text.splitlines():
            at, rest = line.split(" ", 1)
            token = ast.literal_eval(rest[: rest.rindex(" ")])
            found[int(at)] = token.encode() if isinstance(token, str) else bytes(token)
    except (ValueError, SyntaxError) as error:
        raise InvalidArgument(f"{name}: no byte trie vocabulary") from error
    return Vocabulary(
        name=name,
        kind="byte trie",
        tokens=tuple(found.get(at, b"") for at in range(1 + max(found))),
        # The file leaves 0 out; the models end their texts with it.
        control={0: "<|endoftext|>"},
        roles={"eos": (0,)},
        speller=LONGEST,
    )


def _speller(encoding: Any, first: int = 0) -> TextSpeller:
    """first: the id of rank 0."""

    def spell(text: str) -> tuple[list[int], Any]:
        ids = encoding.encode_ordinary(text)
        ids = [at + first for at in ids] if first else ids
        # Its tokens are the text, always.
        return ids, list

    return spell
