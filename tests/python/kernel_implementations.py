"""The implementations under test as one interface on NumPy arrays, and the judge of their laws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsi_native import kernels, reference

Array = NDArray[Any]
_LOGITS = ("target_logits", "draft_logits", "logits")


@dataclass(frozen=True)
class Implementation:
    """verify(), sample() and cut() of float32 logits that are handed on in `dtype`."""

    name: str
    draws: int
    """How many requests a statistical test may ask for."""

    def verify(self, dtype: str = "float32", **arguments: Any) -> kernels.Verified:
        return self._call("verify", dtype, arguments)

    def sample(self, dtype: str = "float32", **arguments: Any) -> kernels.Sampled:
        return self._call("sample", dtype, arguments)

    def cut(self, dtype: str = "float32", **arguments: Any) -> Array:
        return self._call("cut", dtype, arguments)

    def _call(self, function: str, dtype: str, arguments: dict[str, Any]) -> Any:
        if self.name == "reference":
            return getattr(reference, function)(**arguments)
        given = {
            name: in_dtype(value, dtype) if name in _LOGITS and value is not None else value
            for name, value in arguments.items()
        }
        result = getattr(kernels, function)(**given)
        if isinstance(result, tuple):
            return type(result)(*map(_numpy, result))
        return _numpy(result)


REFERENCE = Implementation("reference", 400)
NATIVE = Implementation("native", 20_000)
IMPLEMENTATIONS = (REFERENCE, NATIVE)


def in_dtype(logits: Array, dtype: str) -> Any:
    """float32 or float16 array, or a bfloat16 tensor: NumPy has no such type."""
    if dtype != "bfloat16":
        return logits.astype(dtype)
    import torch

    return torch.from_numpy(np.ascontiguousarray(logits)).to(torch.bfloat16)


def _numpy(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else value


def tiled(logits: Any, requests: int) -> Array:
    """float32 [requests, ...]: the same rows for each."""
    rows = np.asarray(logits, np.float32)
    return np.ascontiguousarray(np.broadcast_to(rows, (requests, *rows.shape)))


def softmax(logits: Any) -> Array:
    x = np.asarray(logits, float)
    e = np.exp(x - x.max())
    return e / e.sum()


def surprise(counts: Any, law: Any) -> float:
    """How many standard deviations the chi-square of counts lies above what `law` lets expect.

    Cells that expect fewer than five are one cell. Wilson and Hilferty's cube root makes the
    statistic normal enough.
    """
    counts, law = np.ravel(counts).astype(float), np.ravel(law).astype(float)
    assert law.min() >= 0
    assert abs(law.sum() - 1) < 1e-6
    assert counts[law == 0].sum() == 0
    expected = law * counts.sum()
    rare = expected < 5
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    if len(counts) == 1:
        return 0.0
    freedom = len(counts) - 1
    chi = float(np.sum((counts - expected) ** 2 / expected))
    spread = 2 / (9 * freedom)
    return ((chi / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5


def follows(tokens: Array, law: Any) -> bool:
    """Tokens drawn from `law`; seeds are fixed, so it always says the same of the same code."""
    return surprise(np.bincount(tokens, minlength=len(law)), law) < 4
