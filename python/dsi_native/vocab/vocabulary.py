"""One vocabulary: the bytes of its tokens, what its control tokens are for, how it spells text."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dsi_native.errors import InvalidArgument
from dsi_native.vocab import spelling

ROLES = ("eos", "bos", "pad", "unk")


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The tokens of one tokenizer as bytes. Read-only; may be shared between threads.

    name: what messages call it. kind: "byte-level BPE", "SentencePiece BPE", "WordPiece", ...
    tokens: id -> the bytes the token adds to the output; b"" for control tokens and unused ids.
        As long as the model's rows are wide where the width was given.
    control: ids of control tokens -> what the vocabulary calls them ("<|im_end|>").
    roles: "eos", "bos", "pad", "unk" -> ids; "eos" may have several, the one that ends a text
        by itself first.
    lossless: text is never altered on its way to ids. False where the tokenizer lower-cases,
        normalises Unicode, or drops or invents spaces. Bytes without any token cannot be spelled
        either way, see `unspelled_bytes`.
    speller: how text becomes ids (spelling.py); None where only the tokens are known.
    why_mute: what would have to be there for a speller, where there is none.
    """

    name: str
    kind: str
    tokens: Sequence[bytes]
    control: Mapping[int, str] = field(default_factory=dict)
    roles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    lossless: bool = True
    speller: spelling.Speller | None = field(default=None, repr=False)
    why_mute: str = field(default="", repr=False)

    def __repr__(self) -> str:
        return f"Vocabulary({self.name!r}, {self.kind!r}, {len(self.tokens)} ids)"

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def can_encode(self) -> bool:
        return self.speller is not None

    @property
    def spells_by_context(self) -> bool:
        """Whether text behind a token's end may be spelled otherwise than by itself.

        WordPiece has tokens of their own for the inside of words; of Unigram's equally likely
        spellings of a run of zeros one is taken by where the run begins.
        """
        return self.kind == "WordPiece" or self.kind.endswith("Unigram")

    def encode(self, data: bytes) -> tuple[np.ndarray, np.ndarray]:
        """ids int32 [n] of a piece from the middle of a text, and int64 [n] where each one ends.

        ends[i]: bytes of `data` up to which ids[:i + 1] stand; non-decreasing, at most len(data).
            From the tokens' own bytes where these are exactly `data`, else from the offsets that
            the tokenizer's library reports. Bytes that no token can spell are skipped: they end
            with the next id, or with none.
        No start token, no space before the first word, no template; names of control tokens in
        `data` are plain text. Bytes that are not UTF-8 get the longest tokens that match them.
        Thread-safe. Raises InvalidArgument where there is no speller.
        """
        if self.speller is None:
            raise InvalidArgument(f"{self.name} cannot encode text: {self.why_mute}")
        return spelling.spell(self.speller, self.tokens, lambda: self._matcher, data)

    @functools.cached_property
    def id_of(self) -> dict[bytes, int]:
        """The id that stands for each byte string. Not to be altered.

        Of several the lowest; but a byte-fallback token only where there is no other, since it
        is what a SentencePiece tokenizer resorts to and no text of an ASCII letter ever has it.
        """
        highest_first = zip(reversed(self.tokens), range(len(self.tokens) - 1, -1, -1), strict=True)
        found = dict(highest_first)
        found.pop(b"", None)
        fallback = self._fallback
        for at in range(len(self.tokens) - 1, -1, -1) if fallback else ():
            token = self.tokens[at]
            if len(token) == 1 and at not in fallback:
                found[token] = at
        return found

    @functools.cached_property
    def _fallback(self) -> range:
        """The ids of the byte-fallback tokens: 256 in a row, byte by byte. Empty without them."""
        bytes_in_order = tuple(bytes([value]) for value in range(256))
        for at, token in enumerate(self.tokens[:-255]):
            if token == b"\0" and tuple(self.tokens[at : at + 256]) == bytes_in_order:
                return range(at, at + 256)
        return range(0)

    @functools.cached_property
    def unspelled_bytes(self) -> bytes:
        """Byte values that are no token on their own."""
        return bytes(value for value in range(256) if bytes([value]) not in self.id_of)

    @functools.cached_property
    def content_hash(self) -> str:
        """sha256 over tokens, control tokens and roles: equal hashes mean exchangeable maps."""
        digest = hashlib.sha256(struct.pack("<q", len(self.tokens)))
        digest.update(np.fromiter(map(len, self.tokens), dtype="<i4").tobytes())
        digest.update(b"".join(self.tokens))
        digest.update(repr(sorted(self.control.items())).encode(errors="surrogatepass"))
        digest.update(repr(sorted((role, tuple(ids)) for role, ids in self.roles.items())).encode())
        return digest.hexdigest()

    def at_width(self, width: int | None) -> Vocabulary:
        """The same for rows of `width` ids: padded with unused ids, or cut."""
        if width is None or width == len(self.tokens):
            return self
        tokens = (*self.tokens[:width], *[b""] * (width - len(self.tokens)))
        control = {at: text for at, text in self.control.items() if at < width}
        roles = {role: tuple(at for at in ids if at < width) for role, ids in self.roles.items()}
        return dataclasses.replace(self, tokens=tokens, control=control, roles=roles)

    def with_eos(self, ids: Sequence[int]) -> Vocabulary:
        """The same, ending texts at `ids` first; they add nothing to the output from then on.

        For what a model's generation config says and its tokenizer does not.
        """
        more = [at for at in ids if 0 <= at < len(self.tokens)]
        eos = tuple(dict.fromkeys([*more, *self.roles.get("eos", ())]))
        if eos == tuple(self.roles.get("eos", ())):
            return self
        tokens, control = list(self.tokens), dict(self.control)
        for at in more:
            if at not in control:
                control[at] = tokens[at].decode(errors="backslashreplace")
                tokens[at] = b""
        roles = {**self.roles, "eos": eos}
        return dataclasses.replace(self, tokens=tuple(tokens), control=control, roles=roles)

    def spell_longest(self, data: bytes) -> tuple[np.ndarray, np.ndarray]:
        """As encode, but always the longest token that matches: needs no speller."""
        return spelling.spell(spelling.LONGEST, self.tokens, lambda: self._matcher, data)

    @functools.cached_property
    def _matcher(self) -> Callable[[bytes], tuple[list[int], list[int]]]:
        return spelling.longest_match(self.id_of)
