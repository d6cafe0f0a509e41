"""SentencePiece model files, read without SentencePiece or protobuf."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from dsi_native.errors import InvalidArgument
from dsi_native.vocab.piece_model import NORMAL, UNKNOWN, PieceModel, from_piece_model
from dsi_native.vocab.vocabulary import Vocabulary

# Numbers of the fields in sentencepiece_model.proto.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _UNIGRAM, _BPE = 3, 1, 2
_SPACES_BEHIND = 24
_ROLE_FIELDS = {"unk": (40, 0), "bos": (41, 1), "eos": (42, 2), "pad": (43, -1)}
_CHARSMAP, _COLLAPSES_SPACES = 2, 4


def from_model_proto(data: bytes, name: str) -> Vocabulary:
    """Of the content of a SentencePiece `.model` file.

    Raises InvalidArgument where it is none, or of a kind that is neither BPE nor Unigram.
    """
    try:
        fields = list(_fields(data))
        pieces = [dict(_fields(value)) for number, value in fields if number == _PIECE]
        trainer = dict(_fields(_last(fields, _TRAINER)))
        normalizer = dict(_fields(_last(fields, _NORMALIZER)))
        texts = [piece[_TEXT].decode() for piece in pieces]
    except (ValueError, IndexError, KeyError, struct.error, TypeError, AttributeError) as error:
        raise InvalidArgument(f"{name}: no vocabulary of a kind known here") from error
    if not pieces:
        raise InvalidArgument(f"{name}: no vocabulary of a kind known here")
    kind = trainer.get(_MODEL_TYPE, _UNIGRAM)
    if kind not in (_UNIGRAM, _BPE) or trainer.get(_SPACES_BEHIND):
        raise InvalidArgument(f"{name}: a SentencePiece model, but neither BPE nor Unigram")
    types = [piece.get(_TYPE, NORMAL) for piece in pieces]
    model = PieceModel(
        pieces=texts,
        scores=[piece.get(_SCORE, 0.0) for piece in pieces],
        types=types,
        unigram=kind == _UNIGRAM,
        charsmap=normalizer.get(_CHARSMAP, b""),
        collapses_spaces=bool(normalizer.get(_COLLAPSES_SPACES, 1)),
        roles=_roles(trainer, types),
    )
    return from_piece_model(model, name)


def _roles(trainer: dict[int, Any], types: list[int]) -> dict[str, tuple[int, ...]]:
    roles = {}
    for role, (number, default) in _ROLE_FIELDS.items():
        at = trainer.get(number, default)
        # Negative numbers are 64 bits wide, and say that there is none.
        if at < len(types) and (types[at] != NORMAL if at >= 0 else False):
            roles[role] = (at,)
    if UNKNOWN in types:
        roles["unk"] = (types.index(UNKNOWN),)
    return roles


def _last(fields: list[tuple[int, Any]], number: int) -> bytes:
    return next((value for found, value in reversed(fields) if found == number), b"")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of one protobuf message: int, float or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("cut short")
            yield number, data[at : at + size]
            at += size
        elif wire == 5:
            yield number, struct.unpack_from("<f", data, at)[0]
            at += 4
        elif wire == 1:
            yield number, struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            raise ValueError(f"wire type {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:  # ends with the data, which IndexError says
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
