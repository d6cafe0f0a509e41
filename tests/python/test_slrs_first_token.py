"""When a text's first token is settled: the answers against all continuations of the text."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dsi_native.reference.first_token import NO_TOKEN, LongestMatch, PairMerges, TokensBehind
from dsi_native.reference.slrs_psi import GOES_ON, Stops
from slrs_toy import split

DEPTH = 6
"""Letters of the longest continuation; no chain of tokens of these toys needs more."""


def texts(most: int) -> list[bytes]:
    of_length = (itertools.product(b"ab", repeat=n) for n in range(most + 1))
    return [bytes(x) for words in of_length for x in words]


def random_merges(seed: int) -> PairMerges:
    rng = np.random.default_rng(seed)
    tokens, merges = [b"a", b"b"], []
    while len(merges) < 5:
        left, right = (tokens[i] for i in rng.integers(0, len(tokens), 2))
        if left + right not in tokens and len(left + right) <= 4:
            tokens.append(left + right)
            merges.append((left, right))
    return PairMerges(merges, tokens)


def random_words(seed: int) -> LongestMatch:
    rng = np.random.default_rng(seed)
    words = {bytes(rng.choice([97, 98], rng.integers(2, 5)).tolist()) for _ in range(4)}
    return LongestMatch((b"a", b"b", *sorted(words), b"a"))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", [random_words, random_merges], ids=["longest match", "merges"])
def test_settled_exactly_where_no_continuation_changes_the_first_token(kind, seed: int) -> None:
    tokenizer = kind(seed)
    more = texts(DEPTH)
    for data in texts(4)[1:]:
        firsts = {tokenizer.encode(data + x)[0] for x in more}
        found = tokenizer.first_token_final(data)
        assert found == (next(iter(firsts)) if len(firsts) == 1 else None)
        possible = {t for t in range(len(tokenizer.tokens)) if tokenizer.may_begin(data, t)}
        # Of longest match, ids with the bytes of a lower one are never the first token.
        assert possible - set(lowest(tokenizer)) <= {len(tokenizer.tokens) - 1}
        assert possible & set(lowest(tokenizer)) == firsts


def lowest(tokenizer: LongestMatch | PairMerges) -> list[int]:
    return [tokenizer.tokens.index(token) for token in set(tokenizer.tokens)]


def test_merges_encode_as_their_ranks_say() -> None:
    of = PairMerges([(b"a", b"b"), (b"b", b"a"), (b"ab", b"a")], split("a b ab ba aba"))
    assert of.encode(b"abab") == [2, 2]
    assert of.encode(b"aba") == [4]
    assert of.encode(b"bab") == [1, 2]


def test_nothing_is_settled_of_an_empty_text_and_its_end_is_a_token() -> None:
    for tokenizer in (random_words(0), random_merges(0)):
        assert tokenizer.first_token_final(b"") is None
        assert tokenizer.first_token(b"") == NO_TOKEN
    assert LongestMatch(split("a -"), end=1).first_token(b"") == 1


def test_bytes_that_no_token_begins_with_settle_the_text() -> None:
    words = LongestMatch(split("a ab"))
    assert words.first_token_final(b"c") == NO_TOKEN
    assert words.first_token_final(b"a") is None
    assert words.encode(b"abac") == [1, 0]


def test_a_tokenizer_that_only_encodes_is_settled_by_what_follows() -> None:
    words = LongestMatch(split("a b ab"))
    behind = TokensBehind(lambda data: np.array(words.encode(data)), words.tokens, behind=2)
    assert all(behind.first_token_final(x) is None for x in (b"", b"ab", b"abb"))
    assert behind.first_token_final(b"abba") == 2
    assert behind.first_token(b"ab") == 2
    assert behind.may_begin(b"a", 2)
    assert not behind.may_begin(b"b", 2)


def test_a_candidate_that_the_text_does_not_begin_with_is_none() -> None:
    """As a tokenizer that lower-cases would give: psi of it could not be summed."""
    words = LongestMatch(split("a b"))
    lower = TokensBehind(lambda data: words.encode(data.lower()), words.tokens, behind=0)
    assert Stops(lower, split("a A b")).after(b"").tolist() == [0, NO_TOKEN, 1]


def test_drafts_are_cut_where_they_might_go_on_for_ever() -> None:
    never = TokensBehind(LongestMatch(split("a b")).encode, split("a b"), behind=99)
    stops = Stops(never, split("a bb"), most_bytes=3)
    assert stops.after(b"a").tolist() == [GOES_ON, 0]
    assert stops.after(b"aa").tolist() == [0, 0]
