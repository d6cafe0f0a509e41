"""From bytes to ids, with the offset at which each id ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dsi_native.vocab.pieces import SPACE_SIGN

# text -> ids, and a function that tells per id the character at which it ends. The second is asked
# only where the tokens' own bytes are not the text.
TextSpeller = Callable[[str], tuple[Sequence[int], Callable[[], Sequence[int]]]]
Matcher = Callable[[bytes], tuple[list[int], list[int]]]
# "longest": the longest token that matches, again and again, is how this vocabulary spells.
Speller = TextSpeller | str
LONGEST = "longest"

_SIGNS = re.compile(f"({SPACE_SIGN}+)")
_NOT_UTF8 = re.compile("([\udc80-\udcff]+)")


def spell(
    speller: Speller, tokens: Sequence[bytes], matcher: Callable[[], Matcher], data: bytes
) -> tuple[np.ndarray, np.ndarray]:
    """ids int32 [n] and ends int64 [n] of `data`; see Vocabulary.encode.

    matcher: makes the longest-match speller of the same tokens; called only where needed.
    """
    if not isinstance(speller, str):
        ids, ends = _spell_runs(speller, tokens, matcher, data)
    else:
        ids, ends = matcher()(data)
    return np.asarray(ids, dtype=np.int32), np.asarray(ends, dtype=np.int64)


def longest_match(lowest: dict[bytes, int]) -> Matcher:
    """A speller that takes the longest token at each place and skips bytes without one.

    Cost: per place one look-up for each length that tokens with the same two first bytes have.
    """
    lengths: dict[bytes, set[int]] = {}
    for token in lowest:
        lengths.setdefault(token[:2], set()).add(len(token))
    longest_first = {head: sorted(sizes, reverse=True) for head, sizes in lengths.items()}

    def match(data: bytes) -> tuple[list[int], list[int]]:
        ids: list[int] = []
        ends: list[int] = []
        at = 0
        while at < len(data):
            for size in (*longest_first.get(data[at : at + 2], ()), 1):
                found = lowest.get(data[at : at + size])
                # A slice at the end of the data is shorter than it was asked for.
                if found is not None and at + size <= len(data):
                    ids.append(found)
                    ends.append(at + size)
                    at += size
                    break
            else:
                at += 1
        return ids, ends

    return match


def _spell_runs(
    speller: TextSpeller, tokens: Sequence[bytes], matcher: Callable[[], Matcher], data: bytes
) -> tuple[list[int], list[int]]:
    """UTF-8 through the tokenizer's library, what lies between by longest match."""
    # Lone surrogates are not UTF-8, so none can stand in `data` itself.
    runs = _NOT_UTF8.split(data.decode("utf-8", "surrogateescape"))
    sources = [run.encode("utf-8", "surrogateescape") for run in runs]
    return _joined(
        (source, matcher()(source))
        if index % 2
        else (source, _spell_text(speller, tokens, matcher, run, source))
        for index, (run, source) in enumerate(zip(runs, sources, strict=True))
        if run
    )


def _joined(
    pieces: Iterable[tuple[bytes, tuple[Sequence[int], Sequence[int]]]],
) -> tuple[list[int], list[int]]:
    """Of pieces one behind the other, each with its ids and their ends in it."""
    ids: list[int] = []
    ends: list[int] = []
    at = 0
    for source, (new_ids, new_ends) in pieces:
        ids.extend(new_ids)
        ends.extend(at + end for end in new_ends)
        at += len(source)
    return ids, ends


def _spell_text(
    speller: TextSpeller,
    tokens: Sequence[bytes],
    matcher: Callable[[], Matcher],
    text: str,
    source: bytes,
) -> tuple[Sequence[int], Sequence[int]]:
    ids, char_ends = speller(text)
    width = len(tokens)
    spelled = [tokens[at] if at < width else b"" for at in ids]
    if all(spelled) and b"".join(spelled) == source:
        return ids, np.cumsum([len(token) for token in spelled]).tolist()
    if SPACE_SIGN in text:
        return _spell_around_signs(speller, tokens, matcher, text)
    byte_ends = _byte_ends(text, char_ends())
    if all(spelled):
        return ids, byte_ends
    return _without_mute(ids, byte_ends, spelled, matcher(), source)


def _spell_around_signs(
    speller: TextSpeller, tokens: Sequence[bytes], matcher: Callable[[], Matcher], text: str
) -> tuple[list[int], list[int]]:
    """SentencePiece takes its sign of a space for a space; here the sign is a character too."""
    return _joined(
        (run.encode(), matcher()(run.encode()))
        if run.startswith(SPACE_SIGN)
        else (run.encode(), _spell_text(speller, tokens, matcher, run, run.encode()))
        for run in _SIGNS.split(text)
        if run
    )


def _byte_ends(text: str, char_ends: Sequence[int]) -> list[int]:
    """Offsets in characters to offsets in UTF-8, made non-decreasing."""
    if not len(char_ends):
        return []
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    sizes = 1 + (points > 0x7F) + (points > 0x7FF).astype(np.int64) + (points > 0xFFFF)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    ends: list[int] = np.maximum.accumulate(offsets[np.asarray(char_ends)]).tolist()
    return ends


def _without_mute(
    ids: Sequence[int],
    ends: Sequence[int],
    spelled: Sequence[bytes],
    match: Matcher,
    source: bytes,
) -> tuple[list[int], list[int]]:
    """Text that a library took for a control token or an unknown word, spelled by longest match."""
    out_ids: list[int] = []
    out_ends: list[int] = []
    begin = 0
    for at, end, token in zip(ids, ends, spelled, strict=True):
        if token:
            out_ids.append(at)
            out_ends.append(end)
        else:
            new_ids, new_ends = match(source[begin:end])
            out_ids.extend(new_ids)
            out_ends.extend(begin + new for new in new_ends)
        begin = end
    return out_ids, out_ends
