"""The kernels' readable reference: NumPy, float64, one row at a time. For tests and for readers.

verify(), sample() and cut() take and return what those of dsi_native.kernels do; the same random
bits, sums in float64. The forms ``*_with_margins`` also say how close each decision was, so that
tests compare implementations wherever rounding cannot have decided.

laws: the rules' laws over all draws. slrs: string-level rejection sampling between vocabularies,
for tiny and byte-level drafters; slrs_cost: what it would cost for two vocabularies.
"""

from dsi_native.reference.philox import (
    accept_uniform,
    exponential,
    odd_grid,
    philox4x32_10,
    token_bits,
)
from dsi_native.reference.rows import process
from dsi_native.reference.verify import (
    cut,
    cut_with_margins,
    sample,
    sample_with_margins,
    verify,
    verify_with_margins,
)

__all__ = [
    "accept_uniform",
    "cut",
    "cut_with_margins",
    "exponential",
    "odd_grid",
    "philox4x32_10",
    "process",
    "sample",
    "sample_with_margins",
    "token_bits",
    "verify",
    "verify_with_margins",
]
