"""What string-level rejection sampling would cost, from the bytes of two vocabularies."""

from __future__ import annotations

import numpy as np
import pytest

from dsi_native.reference.slrs_cost import Budget, LengthCost, slrs_cost
from slrs_toy import split
from vocab_files import needs_files, real


def test_spellings_of_each_length() -> None:
    found = slrs_cost(split("a ab abab bb c -"), split("a b ab -"))
    assert found.by_length == {
        1: LengthCost(2, 1, 1.0, 1, 1.0, 1),  # c cannot be spelled
        2: LengthCost(2, 2, 1.5, 2, 2.0, 2),
        4: LengthCost(1, 1, 4.0, 4, 6.0, 6),
    }
    assert found.within_budget == 1


def test_ids_with_the_same_bytes_are_different_terms() -> None:
    assert slrs_cost([b"aa"], [b"a", b"a"]).by_length[2] == LengthCost(1, 1, 4.0, 4, 3.0, 3)


def test_m_bytes_have_up_to_two_to_the_m_minus_one_spellings() -> None:
    token = bytes(range(64, 104))
    every_piece = {token[i:j] for i in range(40) for j in range(i + 1, 41)}
    cost = slrs_cost([token], sorted(every_piece)).by_length[40]
    assert cost.max_terms == cost.max_forwards == 2**39


def test_a_drafter_of_bytes_spells_everything_in_one_way() -> None:
    rng = np.random.default_rng(3)
    target = [rng.bytes(n) for n in range(1, 30)]
    found = slrs_cost(target, [bytes([x]) for x in range(256)])
    for length, of in found.by_length.items():
        assert of == LengthCost(1, 1, 1.0, 1, length, length)
    assert slrs_cost(target, [bytes([x]) for x in range(256)], Budget(9, 10)).within_budget == (
        pytest.approx(10 / 29)
    )


def test_vocabularies_with_nothing_to_spell() -> None:
    assert slrs_cost([], [b"a"]).by_length == {}
    found = slrs_cost([b"ab"], [])
    assert found.by_length[2] == LengthCost(1, 0, 0.0, 0, 0.0, 0)
    assert found.within_budget == 1


@needs_files
@pytest.mark.real_model
def test_real_vocabularies_cost_what_was_measured() -> None:
    """Qwen from SmolLM2: near the bound, but for drafters that spell with bytes."""
    target = real("qwen").tokens[:151_643]
    found = slrs_cost(target, real("smollm2").tokens)
    assert found.by_length[8].median_terms == 72
    assert found.by_length[16].median_terms == 4704
    assert found.by_length[16].max_terms == 2**15
    assert 0.98 < found.within_budget < 1
