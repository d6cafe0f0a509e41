"""What a vocabulary's own notation of a token stands for."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PieceBytes = Callable[[str], bytes]

SPACE_SIGN = "\u2581"
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@functools.cache
def byte_signs() -> Mapping[str, int]:
    """GPT-2's printable sign of each byte: itself where it is visible, else one from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    signs = {chr(byte): byte for byte in visible}
    return signs | {chr(256 + at): byte for at, byte in enumerate(hidden)}


def from_signs(piece: str) -> bytes:
    """Of a byte-level vocabulary. Pieces with other characters are added tokens, plain text."""
    signs = byte_signs()
    try:
        return bytes([signs[sign] for sign in piece])
    except KeyError:
        return piece.encode()


def from_pieces(piece: str, space: str = SPACE_SIGN, falls_back: bool = True) -> bytes:
    """Of a SentencePiece vocabulary: U+2581 is a space, <0xHH> a byte."""
    byte = _BYTE_PIECE.fullmatch(piece) if falls_back else None
    return bytes([int(byte[1], 16)]) if byte else piece.replace(space, " ").encode()


def from_word_pieces(piece: str, prefix: str = "##") -> bytes:
    """Of a WordPiece vocabulary: `##` continues a word, all else begins one behind a space."""
    if piece.startswith(prefix) and len(piece) > len(prefix):
        return piece[len(prefix) :].encode()
    return b" " + piece.encode()


def from_suffixed_signs(piece: str, suffix: str) -> bytes:
    """Of a byte-level vocabulary that marks the end of a word, where a space follows."""
    return from_signs(piece[: -len(suffix)]) + b" " if piece.endswith(suffix) else from_signs(piece)


def notation_of(state: Mapping[str, Any]) -> tuple[str, PieceBytes] | None:
    """The kind of a vocabulary and how to read its pieces; None for kinds not known here.

    state: a tokenizers.Tokenizer in its serialised form, decoded from JSON.
    """
    model = state["model"]
    # Files of older releases leave the type out.
    kind = model.get("type") or ("Unigram" if isinstance(model.get("vocab"), list) else "BPE")
    if kind == "WordPiece":
        prefix = model.get("continuing_subword_prefix", "##")
        return "WordPiece", functools.partial(from_word_pieces, prefix=prefix)
    if kind not in ("BPE", "Unigram"):
        return None
    steps = component_steps(state, "decoder")
    names = {step["type"] for step in steps}
    suffix = model.get("end_of_word_suffix")
    splits = {step["type"] for step in component_steps(state, "pre_tokenizer")}
    if "ByteLevel" in names | splits:
        read = functools.partial(from_suffixed_signs, suffix=suffix) if suffix else from_signs
        return "byte-level BPE" if kind == "BPE" else "byte-level Unigram", read
    space = _space_sign(steps)
    if space is None:
        return None
    falls_back = "ByteFallback" in names
    return f"SentencePiece {kind}", functools.partial(
        from_pieces, space=space, falls_back=falls_back
    )


def described(state: Mapping[str, Any]) -> str:
    """For messages: the kind of a serialised tokenizer and of its decoder."""
    steps = {step["type"] for step in component_steps(state, "decoder")}
    decoder = f"the decoder {', '.join(sorted(steps))}" if steps else "no decoder"
    return f"a {state['model'].get('type', 'BPE')} tokenizer with {decoder}"


def component_steps(state: Mapping[str, Any], component: str) -> Sequence[Mapping[str, Any]]:
    """The steps of a normalizer, pre_tokenizer or decoder, nested sequences laid flat."""
    return list(_flat(state.get(component)))


def _flat(step: Any) -> Any:
    if not step:
        return
    inner = [step[key] for key in ("normalizers", "pretokenizers", "decoders") if key in step]
    if not inner:
        yield step
    for part in inner:
        for one in part:
            yield from _flat(one)


def _space_sign(steps: Sequence[Mapping[str, Any]]) -> str | None:
    for step in steps:
        if step["type"] == "Metaspace":
            return str(step.get("replacement", SPACE_SIGN))
        if step["type"] == "Replace" and step.get("content") == " ":
            return str(step["pattern"].get("String", SPACE_SIGN))
    return None
