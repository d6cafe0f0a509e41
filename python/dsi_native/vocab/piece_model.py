"""Vocabularies of SentencePiece's kind: pieces with a score and a type each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dsi_native.vocab.pieces import SPACE_SIGN, from_pieces
from dsi_native.vocab.tokenizers_source import when_asked
from dsi_native.vocab.vocabulary import Vocabulary

# SentencePiece's types of pieces, which GGUF files share.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class PieceModel:
    """What a SentencePiece model or a GGUF file says about a vocabulary.

    unigram: whether text is cut so that the sum of scores is highest; else pairs are merged.
    merges: pairs in their order, where the file has them; else the scores say the order.
    charsmap: SentencePiece's table of what it normalises to what; empty for none.
    """

    pieces: Sequence[str]
    scores: Sequence[float]
    types: Sequence[int]
    unigram: bool = False
    merges: Sequence[tuple[str, str]] | None = None
    charsmap: bytes = b""
    collapses_spaces: bool = False
    roles: dict[str, tuple[int, ...]] = field(default_factory=dict)


def from_piece_model(model: PieceModel, name: str) -> Vocabulary:
    """The vocabulary, with a speller made of the `tokenizers` library's parts."""
    control = {
        at: piece
        for at, (piece, kind) in enumerate(zip(model.pieces, model.types, strict=True))
        if kind in (UNKNOWN, CONTROL)
    }
    return Vocabulary(
        name=name,
        kind="SentencePiece Unigram" if model.unigram else "SentencePiece BPE",
        tokens=tuple(map(_piece_bytes, model.pieces, model.types)),
        control=control,
        roles=model.roles,
        lossless=not model.charsmap and not model.collapses_spaces,
        speller=when_asked(_tokenizer, model),
    )


def _piece_bytes(piece: str, kind: int) -> bytes:
    if kind in (UNKNOWN, CONTROL, UNUSED):
        return b""
    return from_pieces(piece, falls_back=kind == BYTE)


def _tokenizer(model: PieceModel) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

    falls_back = BYTE in model.types
    unknown = next((at for at, kind in enumerate(model.types) if kind == UNKNOWN), None)
    if model.unigram:
        scored = _spellable(model)
        tokenizer = Tokenizer(models.Unigram(scored, unknown, falls_back))
    else:
        vocab = {piece: at for at, piece in reversed(list(enumerate(model.pieces)))}
        tokenizer = Tokenizer(
            models.BPE(
                vocab,
                list(_merges_by_score(model) if model.merges is None else model.merges),
                unk_token=None if unknown is None else model.pieces[unknown],
                fuse_unk=True,
                byte_fallback=falls_back,
            )
        )
    steps: list[Any] = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    if model.collapses_spaces:
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE_SIGN)])
    if model.merges is not None:
        # These merges were made for lines.
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    tokenizer.add_tokens(
        [
            AddedToken(piece, normalized=False)
            for piece, kind in zip(model.pieces, model.types, strict=True)
            if kind == USER_DEFINED and SPACE_SIGN not in piece
        ]
    )
    return tokenizer


def _spellable(model: PieceModel) -> list[tuple[str, float]]:
    """Pieces and scores, with those that no text may be cut into out of its reach."""
    return [
        (piece if kind in (NORMAL, USER_DEFINED, UNKNOWN, BYTE) else f"\0{at}", float(score))
        for at, (piece, score, kind) in enumerate(
            zip(model.pieces, model.scores, model.types, strict=True)
        )
    ]


def _merges_by_score(model: PieceModel) -> list[tuple[str, str]]:
    """Each way to make a piece of two others, the highest score first.

    SentencePiece merges whichever neighbours make the piece with the highest score, so all ways to
    make one piece stand together.
    """
    order = {
        piece: (-score, at)
        for at, (piece, score, kind) in reversed(
            list(enumerate(zip(model.pieces, model.scores, model.types, strict=True)))
        )
        if kind in (NORMAL, USER_DEFINED)
    }
    return [
        (piece[:cut], piece[cut:])
        for piece in sorted(order, key=order.__getitem__)
        for cut in range(1, len(piece))
        if piece[:cut] in order and piece[cut:] in order
    ]
