"""Verification and sampling of logits: in C++ on the CPU, in Triton on CUDA devices."""

from dsi_native.kernels.contract import Edits, Operation, Sampled, Status, Tag, Verified

__all__ = ["Edits", "Operation", "Sampled", "Status", "Tag", "Verified"]
