"""The map between two vocabularies, on small ones made for each case."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsi_native.errors import InvalidArgument
from dsi_native.vocab import Vocabulary, vocabulary_map


def made(
    tokens: Sequence[bytes],
    control: Mapping[int, str] | None = None,
    **roles: tuple[int, ...],
) -> Vocabulary:
    return Vocabulary("made", "test", tuple(tokens), control or {}, roles)


TOKENS = st.lists(
    st.sampled_from([b"", b"a", b"b", b"ab", b" a", b"\xc3", b"\xc3\xa9"]), min_size=1
)


@given(TOKENS, TOKENS, st.integers(0, 3), st.integers(0, 3))
def test_law_of_every_map(
    ours: list[bytes], theirs: list[bytes], wider: int, drafter_wider: int
) -> None:
    target, drafter = made(ours), made(theirs)
    found = vocabulary_map(target, drafter, len(ours) + wider, len(theirs) + drafter_wider)
    assert found.d2t.shape == (len(theirs) + drafter_wider,)
    assert found.t2d.shape == (len(ours) + wider,)
    assert found.d2t.dtype == found.t2d.dtype == np.int32
    assert found.d2t.flags.c_contiguous and not found.d2t.flags.writeable
    for at, other in enumerate(found.d2t.tolist()):
        if other >= 0:
            assert found.t2d[other] == at and theirs[at] == ours[other] != b""
    assert (found.d2t >= 0).sum() == (found.t2d >= 0).sum()
    assert found.common == len((set(ours) & set(theirs)) - {b""})
    if not found.shares_ids:
        expected = [
            ours.index(token) if token in ours and token and theirs.index(token) == at else -1
            for at, token in enumerate(theirs)
        ]
        assert found.d2t[: len(theirs)].tolist() == expected


def test_duplicates_go_to_the_lowest_id_on_both_sides() -> None:
    found = vocabulary_map(made([b"x", b"a", b"a"]), made([b"a", b"y", b"a", b"a"]))
    assert found.d2t.tolist() == [1, -1, -1, -1] and found.t2d.tolist() == [-1, 0, -1]
    assert (found.duplicates_target, found.duplicates_drafter) == (1, 2)


def test_the_same_ids_are_mapped_one_by_one_duplicates_too() -> None:
    tokens, control = [b"a", b"a", b"", b"", b"b"], {2: "</s>"}
    found = vocabulary_map(made(tokens, control), made(tokens, control))
    assert (found.relation, found.shares_ids) == ("same", True)
    assert found.d2t.tolist() == [0, 1, 2, -1, 4], "id 3 is unused"


def test_padded_rows_are_outside() -> None:
    found = vocabulary_map(made([b"a", b"b"]), made([b"a", b"b", b"", b""]))
    assert found.relation == "padded" and found.d2t.tolist() == [0, 1, -1, -1]
    wide = vocabulary_map(made([b"a", b"b"]), made([b"a", b"b"]), 5, 3)
    assert wide.relation == "padded" and wide.t2d.tolist() == [0, 1, -1, -1, -1]
    narrow = vocabulary_map(made([b"a", b"b"]), made([b"b", b"a"]), 1, 2)
    assert narrow.d2t.tolist() == [-1, 0] and narrow.t2d.tolist() == [1]


def test_equal_sizes_are_not_equal_vocabularies() -> None:
    found = vocabulary_map(made([b"a", b"b"]), made([b"b", b"a"]))
    assert found.relation == "overlapping" and found.d2t.tolist() == [1, 0]


def test_control_tokens_are_no_text_and_match_by_role_only() -> None:
    target = made([b"a", b"", b"", b"</s>"], {1: "</s>", 2: "<s>"}, eos=(1,), bos=(2,))
    drafter = made(
        [b"", b"</s>", b"", b""], {0: "<end>", 2: "<start>", 3: "<s>"}, eos=(0,), bos=(2,)
    )
    found = vocabulary_map(target, drafter)
    assert found.d2t.tolist() == [1, 3, 2, -1]
    assert found.common == 1, "the text </s>, which is no end"


def test_several_ends_by_name_then_in_their_order() -> None:
    target = made([b""] * 3, {0: "<eot>", 1: "<end>", 2: "<eom>"}, eos=(0, 1, 2))
    drafter = made([b""] * 3 + [b"z"], {0: "<turn>", 1: "<end>"}, eos=(0, 1), bos=(1,))
    assert vocabulary_map(target, drafter).d2t.tolist() == [0, 1, -1, -1]
    one = made([b""] * 1, {0: "<x>"}, eos=(0,), bos=(0,))
    assert vocabulary_map(one, drafter).d2t.tolist() == [0, -1, -1, -1]
    assert vocabulary_map(drafter, one).d2t.tolist() == [0]


def test_nothing_in_common() -> None:
    found = vocabulary_map(made([b"a"]), made([b"b", b""]))
    assert found.relation == "foreign" and found.common == 0
    assert found.d2t.tolist() == [-1, -1] and found.t2d.tolist() == [-1]


def test_order_of_ids_does_not_matter() -> None:
    tokens = [bytes([at]) for at in range(60)] + [b"\x01", b"\x02"]
    target = made(tokens[20:])
    pairs = set()
    for seed in range(5):
        shuffled = random.Random(seed).sample(tokens, len(tokens))
        found = vocabulary_map(target, made(shuffled))
        used = np.flatnonzero(found.d2t >= 0)
        pairs.add(frozenset((shuffled[at], int(found.d2t[at])) for at in used))
    assert len(pairs) == 1


def test_maps_are_kept_by_content() -> None:
    first = vocabulary_map(made([b"a", b"b"]), made([b"b"]))
    assert vocabulary_map(made([b"a", b"b"]), made([b"b"])) is first
    assert vocabulary_map(made([b"a", b"b"]), made([b"b"]), 3) is not first
    changed = [
        made([b"ab", b""]),
        made([b"a", b"b"], {0: "a"}),
        made([b"a", b"b"], eos=(0,)),
        made([b"a", b"b"], bos=(0,)),
    ]
    assert len({v.content_hash for v in [made([b"a", b"b"]), *changed]}) == 5


def test_a_vocabulary_without_ids_has_no_map() -> None:
    with pytest.raises(InvalidArgument, match="without ids"):
        vocabulary_map(made([]), made([b"a"]))


def test_ends_that_the_model_names() -> None:
    vocabulary = made([b"a", b"b", b""], {2: "</s>"}, eos=(2,))
    more = vocabulary.with_eos([1, 99])
    assert more.roles["eos"] == (1, 2) and more.tokens == (b"a", b"", b"")
    assert more.control == {1: "b", 2: "</s>"}
    assert vocabulary.tokens[1] == b"b" and vocabulary.with_eos([2]) is vocabulary
    narrow = more.at_width(2)
    assert (narrow.tokens, narrow.control, narrow.roles["eos"]) == ((b"a", b""), {1: "b"}, (1,))


def test_a_byte_fallback_token_stands_for_its_byte_only_where_nothing_else_does() -> None:
    """SentencePiece lists all bytes first, and letters again behind: texts have the latter."""
    tokens = (b"", *(bytes([value]) for value in range(256)), b"ab", b".", b"a", b"a")
    vocabulary = Vocabulary("pieces", "SentencePiece BPE", tokens)
    assert vocabulary.id_of[b"."] == 258
    assert vocabulary.id_of[b"a"] == 259
    assert vocabulary.id_of[b"b"] == 1 + ord("b")
    assert vocabulary.id_of[b"ab"] == 257
    other = Vocabulary("letters", "letters", (b"a", b".", b"b"))
    assert vocabulary_map(vocabulary, other).d2t.tolist() == [259, 258, 1 + ord("b")]
