"""The native functions below dsi_native.kernels: nothing is read or written outside an array."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from dsi_native import InvalidArgument, _core

B, K, V = 2, 3, 70


def arguments() -> dict[str, Any]:
    """Of a call that gives everything."""
    rng = np.random.default_rng(1)
    edits = (
        np.zeros(B * (K + 1) + 1, np.int64),
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        np.zeros(0, np.float32),
    )
    ids = np.arange(V, dtype=np.int32)
    return {
        "target_logits": rng.normal(size=(B, K + 1, V)).astype(np.float32),
        "draft_ids": np.zeros((B, K), np.int32),
        "seed": np.zeros(B, np.uint64),
        "position": np.zeros(B, np.int64),
        "rejection": True,
        "temperature": np.ones(B, np.float32),
        "num_draft": np.full(B, K, np.int32),
        "draft_logits": rng.normal(size=(B, K, V)).astype(np.float32),
        "draft_lse": np.full((B, K), 5, np.float32),
        "draft_temperature": np.ones(B, np.float32),
        "cut": np.full((B, K + 1), -np.inf, np.float32),
        "draft_cut": np.full((B, K), -np.inf, np.float32),
        "edits": edits,
        "draft_edits": (edits[0][: B * K + 1], *edits[1:]),
        "d2t": ids,
        "t2d": ids,
        "threads": 1,
        "tokens": np.empty((B, K + 1), np.int32),
        "num_accepted": np.empty(B, np.int32),
        "logprob": np.empty((B, K + 1), np.float32),
        "lse": np.empty((B, K + 1), np.float32),
        "status": np.empty(B, np.int32),
    }


ARRAYS = [name for name, value in arguments().items() if isinstance(value, np.ndarray)]


def test_the_whole_call_is_fine() -> None:
    given = arguments()
    _core.verify(**given)
    assert ((given["tokens"][:, 0] >= 0) & (given["tokens"][:, 0] < V)).all()


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_is_too_small_is_refused(name: str) -> None:
    given = arguments()
    given[name] = np.ascontiguousarray(given[name][..., :-1])
    with pytest.raises(InvalidArgument):
        _core.verify(**given)


@pytest.mark.parametrize("name", ARRAYS)
def test_another_dtype_is_refused_and_never_converted(name: str) -> None:
    given = arguments()
    given[name] = given[name].astype(np.complex64)
    with pytest.raises((InvalidArgument, TypeError)):
        _core.verify(**given)


@pytest.mark.parametrize("part", range(4))
def test_edits_whose_arrays_disagree_are_refused(part: int) -> None:
    given = arguments()
    edits = list(given["edits"])
    edits[part] = np.zeros(len(edits[part]) + 1, edits[part].dtype)
    given["edits"] = tuple(edits)
    with pytest.raises(InvalidArgument):
        _core.verify(**given)


def test_offsets_that_point_outside_change_nothing() -> None:
    given = arguments()
    _core.verify(**given)
    expected = given["tokens"].copy()
    offsets = given["edits"][0]
    offsets[:] = np.resize([-(2**62), 2**62, 1], len(offsets))
    _core.verify(**given)
    assert (given["tokens"] == expected).all()


def test_a_map_without_its_inverse_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="t2d"):
        _core.verify(**{**arguments(), "t2d": None})


def test_read_only_results_are_refused() -> None:
    given = arguments()
    given["tokens"].flags.writeable = False
    with pytest.raises(TypeError):
        _core.verify(**given)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="avx1024"):
        _core.kernel_variant("avx1024")


def test_other_threads_run_meanwhile() -> None:
    logits = np.random.default_rng(2).normal(size=(200, 32_000)).astype(np.float32)
    done = threading.Event()

    def sample() -> None:
        results = [np.empty(200, dtype) for dtype in (np.int32, np.float32, np.float32, np.int32)]
        zeros = np.zeros(200, np.int64)
        seed = zeros.view(np.uint64)
        _core.sample(logits, seed, zeros, 0, None, None, None, None, None, None, 1, *results)
        done.set()

    thread = threading.Thread(target=sample)
    thread.start()
    turns = 0
    while not done.wait(1e-4):  # with the GIL held, at most the first wait returns before the end
        turns += 1
    thread.join()
    assert turns >= 3
