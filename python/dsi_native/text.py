"""Text from token ids, piece by piece."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class IncrementalText:
    """Turns the token ids of one output into text as soon as that text is certain.

    table: id -> the bytes the token adds (vocab/bytes.py); ids outside add nothing.
    stop: non-empty byte strings that may end the output. Text that may be the beginning of one is
        held back until a later token decides; who matches them tells `finish` where to cut.
    Pieces hold whole characters. All pieces together are the output's bytes, up to the cut, decoded
    as UTF-8 with errors="replace": U+FFFD appears once bytes can no longer become a character.
    Not thread-safe. A push costs as much as searching the held bytes and the token for each string.
    """

    def __init__(self, table: Sequence[bytes], stop: Sequence[bytes] = ()) -> None:
        self._table = table
        self._stop = [text for text in stop if text]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = b""
        self._released_bytes = 0

    def push(self, token: int) -> str:
        """Adds one token; returns the text that became certain, which may be ""."""
        added = self._table[token] if 0 <= token < len(self._table) else b""
        known = len(self._held)
        self._held += added
        certain = self._certain(known)
        out, self._held = self._held[:certain], self._held[certain:]
        self._released_bytes += certain
        return self._decoder.decode(out)

    def finish(self, stop_bytes: int | None = None) -> str:
        """The rest of the text at the output's end.

        stop_bytes: bytes of the output, from its start, that come before a stop string; None where
        none was met and all that is held belongs to the text.
        """
        if stop_bytes is not None:
            self._held = self._held[: max(0, stop_bytes - self._released_bytes)]
        rest, self._held = self._held, b""
        return self._decoder.decode(rest, True)

    def _certain(self, known: int) -> int:
        """How many held bytes can no longer begin a stop string; `known` of them are not new."""
        certain = len(self._held)
        for text in self._stop:
            # A whole match among the older bytes was not a stop, or no token would have followed.
            at = self._held.find(text, max(0, known - len(text) + 1))
            if at >= 0:
                certain = min(certain, at)
            for size in range(min(len(text) - 1, len(self._held)), 0, -1):
                if self._held.endswith(text[:size]):
                    certain = min(certain, len(self._held) - size)
                    break
        return certain
