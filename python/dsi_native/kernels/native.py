"""The kernels on the CPU: results are allocated here and filled in C++, without the GIL."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dsi_native import _core
from dsi_native.kernels.arguments import CutArguments, SampleArguments, VerifyArguments
from dsi_native.kernels.contract import Sampled, Verified

__all__ = ["cut", "sample", "verify"]


def verify(arguments: VerifyArguments, threads: int, tensors: bool) -> Verified:
    """Of arguments that check_verify() made on the CPU. The results are tensors where asked."""
    a = arguments
    requests, rows = a.target_logits.shape[:2]
    tokens = np.empty((requests, rows), np.int32)
    num_accepted, status = np.empty(requests, np.int32), np.empty(requests, np.int32)
    logprob = lse = None
    if a.with_logprobs:
        logprob, lse = (np.empty((requests, rows), np.float32) for _ in range(2))
    _core.verify(
        a.target_logits,
        a.draft_ids,
        a.seed,
        a.position,
        a.mode == "rejection",
        a.temperature,
        a.num_draft,
        a.draft_logits,
        a.draft_lse,
        a.draft_temperature,
        a.cut,
        a.draft_cut,
        a.edits,
        a.draft_edits,
        a.d2t,
        a.t2d,
        threads,
        tokens,
        num_accepted,
        logprob,
        lse,
        status,
    )
    results = Verified(tokens, num_accepted, logprob, lse, status)
    return Verified(*map(_as_tensor, results)) if tensors else results


def sample(arguments: SampleArguments, threads: int, tensors: bool) -> Sampled:
    rows = len(arguments.logits)
    token, status = np.empty(rows, np.int32), np.empty(rows, np.int32)
    lse, cuts = np.empty(rows, np.float32), np.empty(rows, np.float32)
    _core.sample(*arguments, threads, token, lse, cuts, status)
    results = Sampled(token, lse, cuts, status)
    return Sampled(*map(_as_tensor, results)) if tensors else results


def cut(arguments: CutArguments, threads: int, tensors: bool) -> Any:
    cuts = np.empty(len(arguments.logits), np.float32)
    _core.cut(*arguments, threads, cuts)
    return _as_tensor(cuts) if tensors else cuts


def _as_tensor(array: Any) -> Any:
    return None if array is None else sys.modules["torch"].from_numpy(array)
