"""Random numbers: Random123's vectors, the same words in NumPy and C++, and their ends."""

from __future__ import annotations

import numpy as np
import pytest

from dsi_native import _core, reference
from dsi_native.kernels import Tag

ALL = 2**32 - 1
PI = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([ALL] * 4, [ALL] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (PI, [0xA4093822, 0x299F31D0], [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ],
)
def test_vectors_of_random123(counter: list[int], key: list[int], words: list[int]) -> None:
    assert reference.philox4x32_10(counter, key).tolist() == words


@pytest.mark.parametrize("tag", list(Tag))
def test_ten_thousand_words_equal_those_of_the_core(tag: Tag) -> None:
    for seed, position in ((0, 0), (2**64 - 1, 2**63 - 1), (0xDEADBEEF01234567, 2**32 + 5)):
        words, ids = np.empty(10_000, np.uint32), np.arange(10_000, dtype=np.int32)
        _core.philox_words(seed, position, int(tag), ids, words)
        ours = reference.token_bits(seed, position, tag, ids)
        np.testing.assert_array_equal(ours, words)


def test_noise_equals_that_of_the_core() -> None:
    ours = reference.exponential(reference.token_bits(5, 7, Tag.COUPLED, np.arange(100_000)))
    core = np.asarray(_core.coupled_noise(5, 7, 100_000))
    np.testing.assert_allclose(core, -np.log(ours.astype(float)), rtol=0, atol=1e-6)


def test_a_token_has_the_same_word_in_every_vocabulary() -> None:
    few = reference.token_bits(7, 9, Tag.COUPLED, np.arange(100))
    many = reference.token_bits(7, 9, Tag.COUPLED, np.arange(9000))
    np.testing.assert_array_equal(few, many[:100])
    counter, key = [1024 + 5, Tag.COUPLED, 9, 0], [7, 0]
    words = reference.philox4x32_10(counter, key).tolist()
    assert words == [many[4096 + 1024 * word + 5] for word in range(4)]
    assert len(np.unique(many)) > 8990


def test_exponential_is_in_its_range_and_keeps_small_values_apart() -> None:
    ends = reference.exponential(np.array([0, 1, 2, ALL], np.uint32))
    assert ends[0] == np.float32(2.0**-33)
    assert ends[1] > 2 * ends[0]
    assert ends[2] > ends[1]
    assert ends[3] == pytest.approx(24 * np.log(2))
    # no step where the series hands over to the logarithm
    around = reference.exponential(np.arange(2**25 - 64, 2**25 + 64, dtype=np.uint32))
    assert np.all(np.diff(around) >= 0)
    assert np.max(np.diff(around)) < 2e-9


def test_exponential_is_minus_log_of_one_minus_w() -> None:
    bits = np.linspace(0, ALL, 100_001).astype(np.uint32)
    w = (bits + 0.5) / 2.0**32
    exact = -np.log1p(-np.minimum(w, 1 - 2.0**-24))
    relative = np.abs(reference.exponential(bits).astype(float) / exact - 1)
    assert np.max(relative[bits < 2**31]) < 1e-5
    # Where 1 - w is small it has few bits; the law does not mind.
    assert np.max(np.abs(reference.exponential(bits) - exact)[bits < ALL - 2**16]) < 5e-3


def test_odd_grid_is_never_zero_or_one_and_has_no_bias() -> None:
    grid = reference.odd_grid(np.arange(0, 2**32, 512, dtype=np.uint64).astype(np.uint32))
    assert grid[0] == 2.0**-24
    assert grid[-1] == 1 - 2.0**-24
    assert np.all(np.diff(grid.astype(float)) == 2.0**-23)
    assert grid.astype(float).mean() == 0.5
