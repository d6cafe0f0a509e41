"""Kernels that write down what philox.py computes."""

from __future__ import annotations

import triton
import triton.language as tl

from dsi_native.kernels.triton.philox import bits_of, exponential, odd_grid, philox4x32_10


@triton.jit
def philox_probe(c0, c1, c2, c3, k0, k1, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    there = i < n
    x0, x1, x2, x3 = philox4x32_10(
        tl.load(c0 + i, mask=there, other=0),
        tl.load(c1 + i, mask=there, other=0),
        tl.load(c2 + i, mask=there, other=0),
        tl.load(c3 + i, mask=there, other=0),
        tl.load(k0 + i, mask=there, other=0),
        tl.load(k1 + i, mask=there, other=0),
    )
    tl.store(out + i, x0, mask=there)
    tl.store(out + n + i, x1, mask=there)
    tl.store(out + 2 * n + i, x2, mask=there)
    tl.store(out + 3 * n + i, x3, mask=there)


@triton.jit
def draws_probe(seed, position, ids, bits, clocks, grid, n, TAG: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    there = i < n
    drawn = bits_of(tl.load(seed), tl.load(position), TAG, tl.load(ids + i, mask=there, other=0))
    tl.store(bits + i, drawn, mask=there)
    tl.store(clocks + i, exponential(drawn), mask=there)
    tl.store(grid + i, odd_grid(drawn), mask=there)
