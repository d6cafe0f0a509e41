"""Triton kernels for CUDA tensors: the contract of dsi_native.kernels in at most two launches.

Importing this package imports triton and torch; dsi_native.kernels does so when a CUDA tensor is
first seen.
"""

from dsi_native.kernels.triton.launch import Workspace, cut, sample, verify

__all__ = ["Workspace", "cut", "sample", "verify"]
