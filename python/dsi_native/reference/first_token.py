"""When the first token of a text can no longer change: where string-level drafts may stop.

Texts are bytes that begin where the drafts begin. Ids are the target's; NO_TOKEN means that no
token can begin the text. A FirstToken may err: whatever it answers, as long as it answers the same
each time, string-level rejection sampling keeps the target's law. It costs acceptance only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

__all__ = ["NO_TOKEN", "FirstToken", "LongestMatch", "PairMerges", "TokensBehind"]

NO_TOKEN = -1


class FirstToken(Protocol):
    """A target's tokenizer, as far as string-level drafting asks for it."""

    tokens: Sequence[bytes]
    """The bytes of each id."""

    def first_token_final(self, data: bytes) -> int | None:
        """The first token of data + more, whatever `more` is; None where that depends on `more`."""

    def first_token(self, data: bytes) -> int:
        """The first token of the text that ends with `data`; that of b"" ends the text."""

    def may_begin(self, data: bytes, t: int) -> bool:
        """False only where t is the first token of no text that begins with `data`.

        It saves psi(t) the drafts behind `data`. One wrong False biases the law.
        """


class LongestMatch:
    """Each token is the longest that fits, the lowest id among equals. Exact.

    end: the id that ends a text.
    """

    def __init__(self, tokens: Sequence[bytes], end: int = NO_TOKEN) -> None:
        self.tokens = tokens
        self.end = end
        self._ids = lowest_ids(tokens)
        # A text settles its first token unless a token is longer and begins with all of it.
        self._open = {token[:cut] for token in self._ids for cut in range(len(token))}
        self._longest = max(map(len, self._ids), default=0)

    def first_token_final(self, data: bytes) -> int | None:
        return None if data in self._open else self.first_token(data)

    def first_token(self, data: bytes) -> int:
        if not data:
            return self.end
        lengths = range(min(len(data), self._longest), 0, -1)
        return next((self._ids[data[:n]] for n in lengths if data[:n] in self._ids), NO_TOKEN)

    def may_begin(self, data: bytes, t: int) -> bool:
        token = self.tokens[t]
        longer = len(token) > len(data) and token.startswith(data)
        return longer or self.first_token(data) == t

    def encode(self, data: bytes) -> list[int]:
        """The ids of a text; stops before bytes that no token spells."""
        ids = []
        while data and (t := self.first_token(data)) != NO_TOKEN:
            ids.append(t)
            data = data[len(self.tokens[t]) :]
        return ids


class PairMerges:
    """Byte pair encoding without pre-tokenization: of all pairs the earliest in `merges` first.

    tokens: every single byte that occurs, and left + right of each merge. Exact: a sequence of
    tokens is an encoding iff each two neighbours are one, so a text's encoding goes on from that of
    one of its prefixes, and the first token is settled once all prefixes that a later token may
    follow have the same. O(len(data) * len(tokens)) per new text.
    """

    def __init__(
        self, merges: Sequence[tuple[bytes, bytes]], tokens: Sequence[bytes], end: int = NO_TOKEN
    ) -> None:
        self.tokens = tokens
        self.end = end
        self._ids = lowest_ids(tokens)
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._encoded: dict[bytes, tuple[bytes, ...]] = {b"": ()}
        self._found: dict[bytes, frozenset[int]] = {}
        self._reachable = [token for token in self._ids if self._split(token) == (token,)]

    def first_token_final(self, data: bytes) -> int | None:
        firsts = self._firsts(data)
        return next(iter(firsts), NO_TOKEN) if len(firsts) < 2 else None

    def first_token(self, data: bytes) -> int:
        return self._ids.get(self._split(data)[0], NO_TOKEN) if data else self.end

    def may_begin(self, data: bytes, t: int) -> bool:
        return t in self._firsts(data)

    def encode(self, data: bytes) -> list[int]:
        return [self._ids[piece] for piece in self._split(data)]

    def _firsts(self, data: bytes) -> frozenset[int]:
        """The first tokens of all texts that begin with `data`."""
        if data not in self._found:
            firsts = {self.first_token(data)} if data else set()
            for cut in range(len(data) + 1):
                before, rest = self._split(data[:cut]), data[cut:]
                for token in self._reachable:
                    if len(token) <= len(rest) or not token.startswith(rest):
                        continue
                    if not before:
                        firsts.add(self._ids[token])
                    elif self._split(before[-1] + token) == (before[-1], token):
                        firsts.add(self._ids[before[0]])
            self._found[data] = frozenset(firsts)
        return self._found[data]

    def _split(self, data: bytes) -> tuple[bytes, ...]:
        if data not in self._encoded:
            pieces = [data[i : i + 1] for i in range(len(data))]
            while len(pieces) > 1:
                ranks = [self._ranks.get(pair, len(self._ranks)) for pair in pairwise(pieces)]
                at = ranks.index(min(ranks))
                if ranks[at] == len(self._ranks):
                    break
                pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
            self._encoded[data] = tuple(pieces)
        return self._encoded[data]


class TokensBehind:
    """For tokenizers that only encode: settled once `behind` more tokens follow the first.

    encode: ids of a text of bytes, as Vocabulary.encode(data)[0] gives them. Not exact, and no
    tokenizer with a pattern in front of its merges can be asked for more.
    """

    def __init__(
        self,
        encode: Callable[[bytes], Sequence[int]],
        tokens: Sequence[bytes],
        behind: int = 1,
        end: int = NO_TOKEN,
    ) -> None:
        self.tokens = tokens
        self.end = end
        self._encode = encode
        self._behind = behind

    def first_token_final(self, data: bytes) -> int | None:
        ids = self._encode(data) if data else ()
        return int(ids[0]) if len(ids) > self._behind else None

    def first_token(self, data: bytes) -> int:
        ids = self._encode(data) if data else ()
        return int(ids[0]) if len(ids) else NO_TOKEN if data else self.end

    def may_begin(self, data: bytes, t: int) -> bool:
        return data.startswith(self.tokens[t]) or self.tokens[t].startswith(data)


def lowest_ids(tokens: Sequence[bytes]) -> dict[bytes, int]:
    """The lowest id of each byte string that is not empty."""
    ids: dict[bytes, int] = {}
    for id_, token in enumerate(tokens):
        if token:
            ids.setdefault(token, id_)
    return ids
