"""Verification and sampling of rows of logits: in C++ on the CPU, in Triton on CUDA devices.

Arrays are C-contiguous NumPy arrays or torch tensors, all of one call on the same device, and the
results are where the logits are. Logits are float32, float16 or bfloat16 (tensors only). Values
per request or row may also be one Python number for all. Read-only inputs are fine, nothing is
written to them. Importing this imports neither torch nor the native module.

Everything random is a function of (seed, position, purpose, token id) alone; dsi_native.reference
says which, and computes the same. No call is random otherwise, and none depends on the batch.

Errors: InvalidArgument, naming the argument. The values inside CUDA tensors are not checked (but
maps, once), since that would wait for the device: what is out of range there is clamped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsi_native.kernels.contract import Edits, Operation, Sampled, Status, Tag, Verified

if TYPE_CHECKING:
    from dsi_native.kernels.arrays import Place
    from dsi_native.kernels.triton import Workspace

__all__ = ["Edits", "Operation", "Sampled", "Status", "Tag", "Verified", "Workspace"]
__all__ += ["cut", "sample", "verify"]


def verify(
    target_logits: Any,
    draft_ids: Any,
    *,
    seed: Any,
    position: Any,
    mode: str = "coupled",
    temperature: Any = None,
    num_draft: Any = None,
    draft_logits: Any = None,
    draft_lse: Any = None,
    draft_temperature: Any = None,
    cut: Any = None,
    draft_cut: Any = None,
    edits: Edits | None = None,
    draft_edits: Edits | None = None,
    d2t: Any = None,
    t2d: Any = None,
    with_logprobs: bool = False,
    threads: int = 1,
    workspace: Workspace | None = None,
) -> Verified:
    """Which drafts stand, and the target's token after them, for B requests with up to K drafts.

    target_logits [B, K + 1, Vt]: row k is the target's for the position of draft k, given the
    drafts before it; row num_draft is the bonus. draft_ids int32 [B, K], ids of the drafter; -1, or
    any id outside (in rejection mode also of draft_logits), is rejected. seed uint64 (or int64)
    [B]. position int64 [B], that of row 0 in the text with its prompt. num_draft int32 [B], K by
    default; the rest of a request is not read.

    mode "coupled": the token of a row is argmax z + Gumbel, with noise that a drafter shares (see
    sample); a draft stands iff it is that token. "rejection": a draft stands iff u*q < p, else the
    token is from max(p - q, 0), renormalised. Both give exactly the target's law (rejection where
    drafts were drawn from q). Rejection reads the drafter's law q from draft_logits [B, K, Vd],
    with draft_lse float32 [B, K] (what its sampler returned) spared a pass; without draft_logits,
    or where draft_temperature is greedy, q is 1 at the draft. Coupled does not read them.

    temperature float32 [B], 1 by default, below 1e-5: argmax; draft_temperature the same, that of
    the target by default. cut float32 [B, K + 1] and draft_cut [B, K]: what cut() returned. edits
    and draft_edits: for B*(K + 1) and B*K rows, request by request; ids outside a row are ignored.
    d2t int32 [Vd] and t2d int32 [Vt]: the target's id of each drafter id and back, -1 for none.

    Returns Verified, with log-probabilities where asked. threads: the most that the rows are spread
    over, on the CPU only. workspace: on CUDA only, memory to reuse, see Workspace; without one each
    call takes its own from torch's caching allocator. Blocks on the CPU, without the GIL; on CUDA
    it only launches, on the current stream, and synchronises with nothing.
    """
    from dsi_native.kernels import arguments as check

    threads = check.check_threads(threads)
    place, arguments = check.check_verify(
        target_logits,
        draft_ids,
        seed=seed,
        position=position,
        mode=mode,
        temperature=temperature,
        num_draft=num_draft,
        draft_logits=draft_logits,
        draft_lse=draft_lse,
        draft_temperature=draft_temperature,
        cut=cut,
        draft_cut=draft_cut,
        edits=edits,
        draft_edits=draft_edits,
        d2t=d2t,
        t2d=t2d,
        with_logprobs=with_logprobs,
    )
    return _run("verify", place, arguments, threads, workspace)


def sample(
    logits: Any,
    *,
    seed: Any,
    position: Any,
    tag: str = "coupled",
    temperature: Any = 1.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    min_p: Any = 0.0,
    edits: Edits | None = None,
    d2t: Any = None,
    threads: int = 1,
    workspace: Workspace | None = None,
) -> Sampled:
    """One token of each row of logits [R, V], and what verify() wants to know about the draw.

    The law is that of the logits after edits, temperature and cut (see cut()); with d2t int32 [V]
    only ids with a target id take part. tag: what the noise is for. "coupled": that of the same
    position's target in coupled mode (keyed by the target's id with d2t), so that drafter and
    target mostly agree; "draft": independent of everything verify() uses, for rejection; "bonus":
    a draw of the target's own. seed uint64 [R], position int64 [R] of the token drawn.

    Returns Sampled; lse and cut go into verify() as draft_lse and draft_cut. threads and workspace
    as there.
    """
    from dsi_native.kernels import arguments as check

    threads = check.check_threads(threads)
    place, arguments = check.check_sample(
        logits,
        seed=seed,
        position=position,
        tag=tag,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        edits=edits,
        d2t=d2t,
    )
    return _run("sample", place, arguments, threads, workspace)


def cut(
    logits: Any,
    *,
    temperature: Any = 1.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    min_p: Any = 0.0,
    edits: Edits | None = None,
    d2t: Any = None,
    threads: int = 1,
    workspace: Workspace | None = None,
) -> Any:
    """float32 [R], one threshold per row of logits [R, V] for all three settings, -inf for none.

    In units of z, the logits after edits and temperature: ids with z below it are out. top_k int32
    [R] (0: off), then top_p float32 [R] of what is left (1: off), then min_p float32 [R] (0: off),
    relative to the most likely id. Ids that tie with the threshold stay. Greedy rows have none. Ids
    that d2t int32 [V] maps to -1 take no part. threads and workspace as in verify().
    """
    from dsi_native.kernels import arguments as check

    threads = check.check_threads(threads)
    place, arguments = check.check_cut(
        logits,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        edits=edits,
        d2t=d2t,
    )
    return _run("cut", place, arguments, threads, workspace)


def __getattr__(name: str) -> Any:
    if name == "Workspace":  # imports torch and triton
        from dsi_native.kernels.triton import Workspace

        return Workspace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _run(name: str, place: Place, arguments: Any, threads: int, workspace: Any) -> Any:
    """The function of that name where the arrays are."""
    from dsi_native.kernels.arguments import check_workspace

    check_workspace(workspace, place)
    if place.device == "cpu":
        from dsi_native.kernels import native

        return getattr(native, name)(arguments, threads, place.tensors)
    from dsi_native.kernels.triton import launch

    return getattr(launch, name)(**arguments._asdict(), workspace=workspace)
