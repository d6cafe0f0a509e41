"""A drafter with another vocabulary than its target's (arXiv 2502.05202)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dsi_native import _core
from dsi_native.errors import InvalidArgument
from dsi_native.vocab.choice import ENOUGH, SAMPLE
from dsi_native.vocab.map import VocabularyMap, vocabulary_map
from dsi_native.vocab.vocabulary import Vocabulary

METHODS = ("auto", "tli", "slem")
_NATIVE = {"tli": _core.DraftMethod.TLI, "slem": _core.DraftMethod.SLEM}
# Fewer tokens of a prompt say too little.
_FEWEST = 16
# The longest word of most WordPiece tokenizers has 100 characters.
_LEAD_BYTES = 128
# Text and bytes that are none: the first call of an encoder may build what all later ones use.
_FIRST = b"text \xff"


class Translation:
    """Everything a pair of vocabularies needs to decode. Immutable, shared by requests.

    target_width, drafter_width: of the models' rows. opening: ids that the drafter's own texts
        begin with. method: "tli", "slem", or "auto", which chooses for each prompt.
    Raises InvalidArgument where a vocabulary cannot encode and the method needs it.
    """

    def __init__(
        self,
        target: Vocabulary,
        drafter: Vocabulary,
        *,
        target_width: int,
        drafter_width: int,
        opening: tuple[int, ...] = (),
        method: str = "auto",
    ) -> None:
        check_method(method)
        if not drafter.can_encode:
            raise InvalidArgument(
                f"drafter: {drafter.name} cannot encode text, so it cannot read what the target "
                f"wrote: {drafter.why_mute}"
            )
        self.target = target.at_width(target_width)
        self.drafter = drafter.at_width(drafter_width)
        self.map: VocabularyMap = vocabulary_map(target, drafter, target_width, drafter_width)
        self.method = method
        self.opening = opening
        self._check_possible(method)

    def method_for(self, prompt: np.ndarray, wanted: str | None = None) -> str:
        """ "tli" or "slem" for a prompt int32 [n]. wanted: the request's own choice.

        "auto": TLI where at least nine of ten of the prompt's tokens (of a sample text's where it
        has few) are tokens of both, else SLEM, which can draft the others too.
        """
        method = wanted or self.method
        self._check_possible(method)
        if method != "auto":
            return method
        if not self.target.can_encode:
            return "tli"
        return "tli" if self.coverage(prompt) >= ENOUGH else "slem"

    def native_method(self, method: str) -> _core.DraftMethod:
        return _NATIVE[method]

    def coverage(self, ids: np.ndarray) -> float:
        """Share of the text tokens among the target's `ids` that are tokens of both."""
        text = ids[self._spells[ids]]
        if len(text) < _FEWEST:
            text = np.concatenate([text, self._sample])
        return float((self.map.t2d[text] >= 0).mean()) if len(text) else 1.0

    def server(self, server: Any, context: int | None) -> _core.TranslatedDrafter:
        """The drafter's server, with its translator. context: the drafter's, in its own ids."""
        encode = self.target.encode if self.target.can_encode else self.drafter.encode
        for spell in (encode, self.drafter.encode):
            spell(_FIRST)
        return _core.TranslatedDrafter(
            server,
            self._native,
            encode,
            self.drafter.encode,
            -1 if context is None else int(context),
            lead_bytes=self.lead_bytes,
        )

    @property
    def lead_bytes(self) -> int:
        """Bytes of text before a draft that decide how it is spelled, 0 for most vocabularies."""
        return _LEAD_BYTES if self.target.spells_by_context else 0

    def _check_possible(self, method: str) -> None:
        if method == "slem" and not self.target.can_encode:
            raise InvalidArgument(
                f"method: slem encodes text with the target's tokenizer, and {self.target.name} "
                f"cannot: {self.target.why_mute}"
            )

    @functools.cached_property
    def _spells(self) -> np.ndarray:
        return np.fromiter(map(bool, self.target.tokens), bool, len(self.target))

    @functools.cached_property
    def _sample(self) -> np.ndarray:
        return self.target.encode(SAMPLE)[0]

    @functools.cached_property
    def _native(self) -> _core.VocabularyPair:
        control = self.target.control
        # In a prompt a control token stands for what it is called; in the output for nothing.
        named = [control[at].encode() if at in control else b"" for at in range(len(self.target))]
        tokens = [name or token for name, token in zip(named, self.target.tokens, strict=True)]
        return _core.VocabularyPair(
            target=tokens,
            drafter=list(self.drafter.tokens),
            t2d=self.map.t2d,
            d2t=self.map.d2t,
            target_control=list(control),
            target_opens=list(self.target.roles.get("bos", ())),
            opening=list(self.opening),
        )


def check_method(method: Any) -> None:
    """Raises InvalidArgument naming `method`."""
    if method not in METHODS:
        raise InvalidArgument(f"method: must be one of {', '.join(METHODS)}, got {method!r}")


def opening_of(tokenizer: Any) -> tuple[int, ...]:
    """The ids that a transformers tokenizer puts before a text, a start token in most cases."""
    try:
        ids = tokenizer("")["input_ids"]
    except (TypeError, ValueError, KeyError):
        return ()
    ends = {getattr(tokenizer, "eos_token_id", None), getattr(tokenizer, "sep_token_id", None)}
    start = getattr(tokenizer, "bos_token_id", None)
    return tuple(int(at) for at in ids if at == start or at not in ends)
