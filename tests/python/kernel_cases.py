"""Inputs on which all implementations of the kernels must agree, and the comparison.

Logits are float32 arrays that hold values of the case's dtype exactly, so that an implementation
may be given them in that dtype. All from fixed seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsi_native import reference
from dsi_native.kernels import Edits, Sampled, Verified

RANDOM_CASES = 200
WIDTHS = (1, 2, 3, 7, 16, 64, 100, 1000, 4095, 4096, 4097, 5000, 8192, 9000)
DTYPES = ("float32", "float16", "bfloat16")

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    name: str
    arguments: dict[str, Any]
    """Of verify() or sample(), by name."""
    dtype: str = "float32"
    tokens: list[list[int]] | None = None
    """What verify() must return, where that is known without a reference."""
    status: list[int] | None = None

    def __str__(self) -> str:
        return self.name


def rounded(logits: Array, dtype: str) -> Array:
    """float32 values that `dtype` holds exactly; NaN and infinities stay."""
    x = np.asarray(logits, np.float32)
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = x.view(np.uint32).astype(np.uint64)
        even = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
        return np.where(np.isfinite(x), even.astype(np.uint32).view(np.float32), x)
    return x


def random_case(i: int) -> Case:
    """Case i of RANDOM_CASES: everything verify() takes, in all combinations sooner or later."""
    rng = np.random.default_rng([2026, i])
    mode = ("coupled", "rejection")[i % 2]
    dtype = DTYPES[i % 3]
    width = int(WIDTHS[i % len(WIDTHS)])
    requests, most = int(rng.integers(1, 4)), int(rng.integers(0, 5))
    mapped = rng.random() < 0.4
    d2t = t2d = None
    drafter_width = width if rng.random() < 0.8 else int(rng.integers(1, width + 100))
    if mapped:
        drafter_width = int(rng.integers(1, width + 50))
        d2t, t2d = random_maps(rng, drafter_width, width)
    seed = rng.integers(0, 2**64, requests, np.uint64)
    position = rng.integers(0, 2 ** int(rng.integers(3, 40)), requests)
    temperature, draft_temperature = random_temperatures(rng, requests)
    spread = float(rng.choice([0.5, 2.0, 5.0]))
    draft_logits = rounded(rng.normal(0, spread, (requests, most, drafter_width)), dtype)
    target_logits = near(rng, draft_logits, d2t, (requests, most + 1, width), spread, dtype)
    arguments: dict[str, Any] = {
        "target_logits": target_logits,
        "seed": seed,
        "position": position,
        "mode": mode,
        "temperature": temperature,
        "draft_temperature": draft_temperature,
        "with_logprobs": bool(rng.random() < 0.7),
        "d2t": d2t,
        "t2d": t2d,
    }
    if rng.random() < 0.4:
        arguments["edits"] = random_edits(rng, requests * (most + 1), width)
    draft_edits = None
    if rng.random() < 0.4:
        draft_edits = random_edits(rng, requests * most, drafter_width)
    if rng.random() < 0.5:
        rows = target_logits.reshape(-1, width)
        arguments["cut"] = reference.cut(
            rows, temperature=np.repeat(temperature, most + 1), **random_cuts(rng, len(rows))
        ).reshape(requests, most + 1)
    if rng.random() < 0.5:
        arguments["num_draft"] = rng.integers(0, most + 1, requests).astype(np.int32)
    drafted = reference.sample(
        draft_logits.reshape(-1, drafter_width),
        seed=np.repeat(seed, most),
        position=(position[:, None] + np.arange(most)).ravel(),
        tag={"coupled": "coupled", "rejection": "draft"}[mode],
        temperature=np.repeat(draft_temperature, most),
        **(random_cuts(rng, requests * most) if rng.random() < 0.5 else {}),
        edits=draft_edits,
        d2t=d2t,
    )
    draft_ids = drafted.token.reshape(requests, most)
    strange = rng.random(draft_ids.shape) < 0.05
    draft_ids[strange] = rng.choice([-1, 0, drafter_width, drafter_width - 1, 2**31 - 1])
    arguments["draft_ids"] = draft_ids
    if rng.random() < 0.7:
        arguments |= {
            "draft_logits": draft_logits,
            "draft_cut": drafted.cut.reshape(requests, most),
            "draft_edits": draft_edits,
        }
        if rng.random() < 0.5:
            arguments["draft_lse"] = drafted.lse.reshape(requests, most)
    return Case(f"random {i}", arguments, dtype)


def random_maps(rng: np.random.Generator, drafter: int, target: int) -> tuple[Array, Array]:
    """Injective d2t and its inverse; about two thirds of the smaller vocabulary are shared."""
    shared = int(rng.integers(0, min(drafter, target) + 1) * 0.67 + 0.5)
    d2t, t2d = np.full(drafter, -1, np.int32), np.full(target, -1, np.int32)
    d, t = rng.permutation(drafter)[:shared], rng.permutation(target)[:shared]
    d2t[d], t2d[t] = t, d
    return d2t, t2d


def random_temperatures(rng: np.random.Generator, requests: int) -> tuple[Array, Array]:
    choices = np.array([0.0, 1e-6, 0.3, 0.7, 1.0, 1.0, 2.0, 50.0], np.float32)
    same = rng.choice(choices, requests)
    return same, same.copy() if rng.random() < 0.5 else rng.choice(choices, requests)


def near(
    rng: np.random.Generator,
    draft_logits: Array,
    d2t: Array | None,
    shape: tuple[int, int, int],
    spread: float,
    dtype: str,
) -> Array:
    """Target logits that resemble the drafter's, so that about half of the drafts stand."""
    target = rng.normal(0, spread, shape)
    d = np.arange(draft_logits.shape[2])
    t = d if d2t is None else d2t
    both = (t >= 0) & (t < shape[2])
    target[:, :-1, t[both]] = draft_logits[..., d[both]]
    target += rng.normal(0, 0.1 * spread, shape)
    return rounded(target, dtype)


def random_cuts(rng: np.random.Generator, rows: int) -> dict[str, Array]:
    return {
        "top_k": rng.choice([0, 0, 1, 2, 5, 50, 3000], rows).astype(np.int32),
        "top_p": rng.choice([1.0, 1.0, 0.9, 0.5, 0.05], rows).astype(np.float32),
        "min_p": rng.choice([0.0, 0.0, 0.02, 0.2, 1.0], rows).astype(np.float32),
    }


def random_edits(rng: np.random.Generator, rows: int, width: int) -> Edits:
    """Up to six per row; the same id may come several times, and an id may lie outside."""
    counts = rng.integers(0, 7, rows)
    total = int(counts.sum())
    operations = rng.integers(0, 3, total).astype(np.int32)
    values = np.where(operations == 1, 1.3, rng.normal(0, 3, total)).astype(np.float32)
    values[(operations == 2) & (rng.random(total) < 0.5)] = -np.inf
    return Edits(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        rng.integers(0, min(width, 8) + 1, total).astype(np.int32),
        operations,
        values,
    )


def sample_case(i: int) -> Case:
    """Arguments of sample() (and, but for seed, position and tag, of cut())."""
    rng = np.random.default_rng([2027, i])
    width, rows = int(WIDTHS[i % len(WIDTHS)]), int(rng.integers(1, 5))
    dtype = DTYPES[i % 3]
    logits = rounded(rng.normal(0, rng.choice([0.3, 2.0, 6.0]), (rows, width)), dtype)
    if rng.random() < 0.3:
        logits = np.round(logits)  # many ties
    if rng.random() < 0.2:
        logits[:, width // 2 :] = -np.inf
    arguments = {
        "logits": logits,
        "seed": rng.integers(0, 2**64, rows, np.uint64),
        "position": rng.integers(0, 2**33, rows),
        "tag": ("coupled", "draft", "bonus")[i % 3],
        "temperature": random_temperatures(rng, rows)[0],
        **random_cuts(rng, rows),
        "edits": random_edits(rng, rows, width) if rng.random() < 0.4 else None,
        "d2t": random_maps(rng, width, width + 30)[0] if rng.random() < 0.4 else None,
    }
    return Case(f"sample {i}", arguments, dtype)


@cache
def random_cases() -> tuple[Case, ...]:
    return tuple(random_case(i) for i in range(RANDOM_CASES))


@cache
def sample_cases() -> tuple[Case, ...]:
    return tuple(sample_case(i) for i in range(84))


@dataclass
class Agreement:
    """How many tokens were compared, and how many were too close to call."""

    compared: int = 0
    undecided: int = 0

    def verified(self, case: Case, given: Verified, tolerance: float) -> None:
        """Asserts that `given` is what the reference says, except where its margin is smaller.

        tolerance: how far probabilities may be off, relatively, as a multiple of 1 + |z|.
        """
        wanted, margins = reference.verify_with_margins(**case.arguments)
        for b in range(len(wanted.tokens)):
            decided = wanted.num_accepted[b] + 1
            close = np.flatnonzero(margins[b, :decided] < tolerance)
            upto = int(close[0]) if len(close) else decided
            self.compared += upto
            np.testing.assert_array_equal(
                given.tokens[b, :upto], wanted.tokens[b, :upto], f"{case}, request {b}"
            )
            whole = not len(close)
            if wanted.logprob is not None:
                for name in ("logprob", "lse"):
                    np.testing.assert_allclose(
                        getattr(given, name)[b, : None if whole else upto],
                        getattr(wanted, name)[b, : None if whole else upto],
                        rtol=1e-5,
                        atol=3e-5,
                        err_msg=f"{case}, request {b}, {name}",
                    )
            if not whole:
                self.undecided += 1
                continue
            np.testing.assert_array_equal(given.tokens[b], wanted.tokens[b], f"{case}, {b}")
            assert given.num_accepted[b] == wanted.num_accepted[b], f"{case}, request {b}"
            assert given.status[b] == wanted.status[b], f"{case}, request {b}"

    def sampled(self, case: Case, given: Sampled, tolerance: float) -> None:
        wanted, margins = reference.sample_with_margins(**case.arguments)
        np.testing.assert_array_equal(given.status, wanted.status, str(case))
        for r in range(len(wanted.token)):
            if margins[r] < tolerance:
                self.undecided += 1
                continue
            self.compared += 1
            assert given.token[r] == wanted.token[r], f"{case}, row {r}"
            for name in ("cut", "lse"):
                np.testing.assert_allclose(
                    getattr(given, name)[r],
                    getattr(wanted, name)[r],
                    rtol=1e-5,
                    atol=3e-5,
                    err_msg=f"{case}, row {r}, {name}",
                )
