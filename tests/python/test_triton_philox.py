"""The random numbers of the Triton kernels, interpreted: the same bits as everywhere."""

from __future__ import annotations

import numpy as np

from dsi_native import reference
from triton_worker import draws, needs_triton, there, words

pytestmark = needs_triton

# Random123's known answers for philox4x32-10: counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def test_known_answers() -> None:
    counters, keys, results = (np.array(column, np.uint32) for column in zip(*KNOWN, strict=True))
    np.testing.assert_array_equal(there(words, counters, keys), results)


def test_ten_thousand_words_are_those_of_the_reference() -> None:
    rng = np.random.default_rng(4)
    counters = rng.integers(0, 2**32, (2500, 4), np.uint32)
    keys = rng.integers(0, 2**32, (2500, 2), np.uint32)
    np.testing.assert_array_equal(
        there(words, counters, keys), reference.philox4x32_10(counters, keys)
    )


def test_what_is_drawn_from_them() -> None:
    """Positions and seeds beyond 32 bits, ids of several chunks, every tag."""
    ids = np.concatenate([np.arange(6000), [2**31 - 1, 151_935]]).astype(np.int32)
    for tag, seed, position in ((0, 0, 0), (1, 2**64 - 1, 2**63 - 1), (3, 2**63 + 5, 2**40 + 7)):
        bits, clocks, grid = there(draws, seed, position, tag, ids)
        np.testing.assert_array_equal(bits, reference.token_bits(seed, position, tag, ids))
        np.testing.assert_array_equal(grid, reference.odd_grid(bits))
        np.testing.assert_allclose(clocks, reference.exponential(bits), rtol=2.4e-7, atol=0)


def test_tags_share_no_noise() -> None:
    ids = np.arange(1000, dtype=np.int32)
    bits = [there(draws, 7, 9, tag, ids)[0] for tag in range(4)]
    for tag in range(4):
        for other in range(tag):
            assert np.mean(bits[tag] == bits[other]) < 0.01
