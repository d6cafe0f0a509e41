"""Samples as the report has them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np


def quantiles(samples: Sequence[float]) -> dict[str, float]:
    """p50, p99 and how many there were; with fewer than 100 p99 is near the largest."""
    return {
        "p50": float(np.quantile(samples, 0.5)),
        "p99": float(np.quantile(samples, 0.99)),
        "samples": len(samples),
    }


def spread(samples: Sequence[float]) -> dict[str, float]:
    return {
        "median": statistics.median(samples),
        "lowest": min(samples),
        "highest": max(samples),
    }


__all__ = ["quantiles", "spread"]
