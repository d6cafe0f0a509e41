"""The kernels as functions on CUDA tensors; their arguments have been checked by the caller.

No call waits for the device. With a Workspace none allocates either, so a call can be captured in a
CUDA graph; call once before, as for every kernel that is compiled when first used.
"""

from __future__ import annotations

import contextlib
import threading
from contextlib import AbstractContextManager

import torch
import triton

from dsi_native.errors import InvalidArgument
from dsi_native.kernels.contract import CHUNK, Edits, Sampled, Tag, Verified
from dsi_native.kernels.triton.cut import NEAR_ROOM, cut_kernel
from dsi_native.kernels.triton.sample import race_kernel
from dsi_native.kernels.triton.stats import stats_kernel
from dsi_native.kernels.triton.verify import verify_kernel
from dsi_native.kernels.triton.workspace import Workspace

__all__ = ["OPTIONS", "Workspace", "cut", "sample", "verify"]

OPTIONS = {
    kernel: {"num_warps": warps, "enable_fp_fusion": False}
    for kernel, warps in ((stats_kernel, 8), (verify_kernel, 4), (race_kernel, 4), (cut_kernel, 16))
}
"""How the kernels are compiled. Fused multiply-adds would change the last bits of the noise."""

# Two threads that need the same kernel first must not compile it at once.
_launching = threading.Lock()

Optional = torch.Tensor | None


def verify(
    target_logits: torch.Tensor,
    draft_ids: torch.Tensor,
    *,
    seed: torch.Tensor,
    position: torch.Tensor,
    mode: str = "coupled",
    temperature: Optional = None,
    num_draft: Optional = None,
    draft_logits: Optional = None,
    draft_lse: Optional = None,
    draft_temperature: Optional = None,
    cut: Optional = None,
    draft_cut: Optional = None,
    edits: Edits | None = None,
    draft_edits: Edits | None = None,
    d2t: Optional = None,
    t2d: Optional = None,
    with_logprobs: bool = False,
    workspace: Workspace | None = None,
) -> Verified:
    """dsi_native.kernels.verify() on tensors of one device; two launches, one where coupled.

    Logits: last dimension dense, the others strided as they like; everything else contiguous, of
    the contract's types. seed: uint64 or int64, the same 64 bits. With a workspace the results are
    views of its memory. Raises InvalidArgument if the workspace is too small.
    """
    batch, width = draft_ids.shape
    size = target_logits.shape[2]
    law = draft_logits if mode == "rejection" else None
    draft_size = 0 if law is None else law.shape[2]
    listed = draft_size or (size if d2t is None else len(d2t))
    space = _fitting(workspace, batch, width + 1, max(size, draft_size), target_logits.device)
    out = space.results.verified(batch, width + 1, with_logprobs)
    if batch == 0:
        return out
    own_chunks = triton.cdiv(size, CHUNK)
    chunks = triton.cdiv(max(size, draft_size), CHUNK)
    strides = (target_logits.stride(0), target_logits.stride(1))
    with _launching, _on(target_logits.device):
        if mode == "coupled":
            race_kernel[(batch * (width + 1), own_chunks)](
                target_logits, draft_ids, d2t, None, num_draft, temperature, cut,
                *_flat(edits), seed, position,
                space.peaks, space.masses, space.odds, space.chosen, space.best, space.arrivals,
                out.tokens, out.num_accepted, out.logprob, out.lse, out.status,
                width, size, listed, space.chunks, *strides,
                TAG=int(Tag.COUPLED), CHUNKS=triton.next_power_of_2(own_chunks),
                **OPTIONS[race_kernel],
            )  # fmt: skip
            return out
        strides += (0, 0) if law is None else (law.stride(0), law.stride(1))
        draft_temperature = temperature if draft_temperature is None else draft_temperature
        inputs = (
            num_draft, temperature, draft_temperature, cut, draft_cut,
            *_flat(edits), *_flat(draft_edits),
        )  # fmt: skip
        partials = (space.peaks, space.masses, space.firsts, space.odds, space.at)
        sizes = (batch, width, size, draft_size, listed, space.chunks, *strides)
        rows = batch * (width + 1) + (0 if law is None else batch * width)
        stats_kernel[(rows, chunks)](
            target_logits,
            law,
            draft_lse,
            draft_ids,
            d2t,
            *inputs,
            *partials,
            *sizes,
            **OPTIONS[stats_kernel],
        )
        verify_kernel[(batch, own_chunks)](
            target_logits, law, draft_lse, draft_ids, d2t, t2d, *inputs, seed, position,
            *partials, space.best, space.arrivals,
            out.tokens, out.num_accepted, out.logprob, out.lse, out.status, *sizes,
            CHUNKS=triton.next_power_of_2(chunks), **OPTIONS[verify_kernel],
        )  # fmt: skip
    return out


def sample(
    logits: torch.Tensor,
    *,
    seed: torch.Tensor,
    position: torch.Tensor,
    tag: Tag = Tag.COUPLED,
    temperature: Optional = None,
    top_k: Optional = None,
    top_p: Optional = None,
    min_p: Optional = None,
    edits: Edits | None = None,
    d2t: Optional = None,
    workspace: Workspace | None = None,
) -> Sampled:
    """dsi_native.kernels.sample() on tensors of one device; one launch, two where there is a cut.

    Settings are tensors [R] (top_k int32, the others float32) or None: off. See verify().
    """
    rows, size = logits.shape
    space = _fitting(workspace, rows, 1, size, logits.device)
    cuts = not (top_k is None and top_p is None and min_p is None)
    out = space.results.sampled(rows)
    if not cuts:
        out = out._replace(cut=space.uncut[:rows])
    if rows == 0:
        return out
    with _launching, _on(logits.device):
        if cuts:
            cut_kernel[(rows,)](
                logits, d2t, temperature, top_k, top_p, min_p, *_flat(edits), space.near, out.cut,
                size, logits.stride(0), **OPTIONS[cut_kernel],
            )  # fmt: skip
        chunks = triton.cdiv(size, CHUNK)
        race_kernel[(rows, chunks)](
            logits, None, None, d2t, None, temperature, out.cut if cuts else None,
            *_flat(edits), seed, position,
            space.peaks, space.masses, space.odds, space.chosen, space.best, space.arrivals,
            out.token, None, None, out.lse, out.status,
            0, size, 0, space.chunks, logits.stride(0), 0,
            TAG=int(tag), CHUNKS=triton.next_power_of_2(chunks), **OPTIONS[race_kernel],
        )  # fmt: skip
    return out


def cut(
    logits: torch.Tensor,
    *,
    temperature: Optional = None,
    top_k: Optional = None,
    top_p: Optional = None,
    min_p: Optional = None,
    edits: Edits | None = None,
    d2t: Optional = None,
    workspace: Workspace | None = None,
) -> torch.Tensor:
    """dsi_native.kernels.cut() on tensors of one device; one launch. See verify()."""
    rows, size = logits.shape
    if workspace is None:
        out = torch.empty(rows, dtype=torch.float32, device=logits.device)
        near = torch.empty(rows * NEAR_ROOM.value, dtype=torch.float32, device=logits.device)
    else:
        if rows > len(workspace.cuts):
            raise InvalidArgument(
                f"workspace: room for {len(workspace.cuts)} rows in all, needed {rows}"
            )
        out, near = workspace.cuts[:rows], workspace.near
    if rows > 0:
        with _launching, _on(logits.device):
            cut_kernel[(rows,)](
                logits, d2t, temperature, top_k, top_p, min_p, *_flat(edits), near, out,
                size, logits.stride(0), **OPTIONS[cut_kernel],
            )  # fmt: skip
    return out


def _flat(edits: Edits | None) -> tuple[Optional, Optional, Optional, Optional]:
    return (None, None, None, None) if edits is None else tuple(edits)


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device. Tensors of the CPU: the interpreter's."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _fitting(
    workspace: Workspace | None, batch: int, rows: int, vocab: int, device: torch.device
) -> Workspace:
    if workspace is None:
        return Workspace(batch, rows, vocab, device)
    if not workspace.holds(batch, rows, vocab):
        raise InvalidArgument(
            f"workspace: room for {workspace.batch} requests of {workspace.rows} rows over "
            f"{workspace.vocab} ids, needed {batch} of {rows} over {vocab}"
        )
    return workspace
