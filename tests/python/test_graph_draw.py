"""The draws inside a graph, by Triton (interpreted here): what the C++ kernels draw."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from triton_worker import needs_triton, there

pytestmark = [
    needs_triton,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs: pip install transformers"),
]
NAN, INF = 1, 16


def _drawn(*given: Any) -> Any:
    import graph_drawing  # imports models: nothing for this process

    return graph_drawing.drawn(*given)


def drawn(
    rows: int = 3,
    seed: int = 1,
    settings: dict[str, float] | None = None,
    edits: Any = (),
    broken: Any = (),
) -> Any:
    return there(_drawn, rows, seed, settings or {}, edits, broken)


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (1, {}),
        (4, {}),
        (3, {"temperature": 0.0}),
        (3, {"top_k": 5}),
        (3, {"top_k": 20, "top_p": 0.7, "min_p": 0.02}),
    ],
    ids=str,
)
def test_draws_agree(rows: int, settings: dict[str, float]) -> None:
    for seed in (1, 2):
        ours, wanted = drawn(rows, seed, settings)
        assert ours[0].tolist() == wanted[0].tolist()
        assert not ours[1].any()
        np.testing.assert_allclose(ours[2], wanted[2], rtol=2e-5, atol=2e-5)


def test_edits_are_their_rows_own() -> None:
    # id, operation (0: added, 1: repetition, 2: set), value
    edits = ((0, 7, 0, 50.0), (2, 8, 0, 50.0), (2, 9, 2, -np.inf), (2, 10, 1, 1.5))
    ours, wanted = drawn(3, edits=edits)
    assert ours[0].tolist() == wanted[0].tolist()
    assert (ours[0][0], ours[0][2]) == (7, 8) and ours[0][1] not in (7, 8)
    np.testing.assert_allclose(ours[2], wanted[2], rtol=2e-5, atol=2e-5)


def test_a_broken_row_says_so_and_no_other_one_does() -> None:
    ours, _ = drawn(4, broken=((1, 3, np.nan), (2, 5, np.inf)))
    assert ours[1].tolist() == [0, NAN, INF, 0]
    hidden, _ = drawn(2, edits=((0, 3, 2, -np.inf),), broken=((0, 3, np.nan),))
    assert hidden[1].tolist() == [NAN, 0]
    nothing = tuple((0, token, -np.inf) for token in range(100))
    empty, _ = drawn(2, broken=nothing)
    assert empty[0][0] == -1 and empty[1].tolist() == [0, 0]
