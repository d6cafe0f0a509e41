"""The boundary of the kernels: everything a caller can get wrong is refused here, and named."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np

from dsi_native.errors import InvalidArgument
from dsi_native.kernels.arrays import LOGITS, Inputs, Place
from dsi_native.kernels.contract import TAGS, Edits, Tag
from dsi_native.kernels.maps import check_maps

__all__ = ["CutArguments", "SampleArguments", "VerifyArguments"]
__all__ += ["check_cut", "check_sample", "check_verify"]

_TEMPERATURES = (0, float(np.finfo(np.float32).max))
_MOST = 2**31 - 1


class VerifyArguments(NamedTuple):
    """verify()'s arguments, checked; arrays as Inputs returns them, None for defaults.

    In coupled mode draft_logits, draft_lse, draft_cut, draft_edits and t2d are None.
    """

    target_logits: Any
    draft_ids: Any
    seed: Any
    position: Any
    mode: str
    temperature: Any
    num_draft: Any
    draft_logits: Any
    draft_lse: Any
    draft_temperature: Any
    cut: Any
    draft_cut: Any
    edits: Edits | None
    draft_edits: Edits | None
    d2t: Any
    t2d: Any
    with_logprobs: bool


class CutArguments(NamedTuple):
    logits: Any
    temperature: Any
    top_k: Any
    top_p: Any
    min_p: Any
    edits: Edits | None
    d2t: Any


class SampleArguments(NamedTuple):
    logits: Any
    seed: Any
    position: Any
    tag: Tag
    temperature: Any
    top_k: Any
    top_p: Any
    min_p: Any
    edits: Edits | None
    d2t: Any


def check_verify(
    target_logits: Any,
    draft_ids: Any,
    *,
    seed: Any,
    position: Any,
    mode: Any,
    temperature: Any,
    num_draft: Any,
    draft_logits: Any,
    draft_lse: Any,
    draft_temperature: Any,
    cut: Any,
    draft_cut: Any,
    edits: Any,
    draft_edits: Any,
    d2t: Any,
    t2d: Any,
    with_logprobs: Any,
) -> tuple[Place, VerifyArguments]:
    """Raises InvalidArgument naming the argument. Coupled mode keeps nothing of the drafter."""
    inputs = Inputs("target_logits", target_logits)
    if not isinstance(mode, str) or mode not in ("coupled", "rejection"):
        raise InvalidArgument(f'mode: expected "coupled" or "rejection", given {mode!r}')
    requests, most = _shape(draft_ids, 2, "draft_ids", "[B, K]")
    draft_ids = inputs.array("draft_ids", draft_ids, "int32", [requests, most])
    target_logits = inputs.array("target_logits", target_logits, LOGITS, [requests, most + 1, "V"])
    width = target_logits.shape[2]

    drafter_width: int | str = "Vd"
    if draft_logits is None:
        _refuse_without("draft_logits", draft_lse=draft_lse, draft_cut=draft_cut)
        _refuse_without("draft_logits", draft_edits=draft_edits)
    else:
        draft_logits = inputs.array("draft_logits", draft_logits, LOGITS, [requests, most, "Vd"])
        drafter_width = draft_logits.shape[2]
    draft_lse = inputs.optional("draft_lse", draft_lse, "float32", [requests, most])
    given_maps = (d2t, t2d)
    d2t = inputs.optional("d2t", d2t, "int32", [drafter_width])
    t2d = inputs.optional("t2d", t2d, "int32", [width])
    if d2t is None:
        _refuse_without("d2t", t2d=t2d)
    else:
        if t2d is None and draft_logits is not None and mode == "rejection":
            raise InvalidArgument(
                f"t2d: expected int32 [{width}], the inverse of d2t, where draft_logits are given"
            )
        check_maps(*given_maps, width)

    if draft_temperature is not None:
        draft_temperature = inputs.each(
            "draft_temperature", draft_temperature, "float32", requests, *_TEMPERATURES
        )
    arguments = VerifyArguments(
        target_logits,
        draft_ids,
        inputs.seeds(seed, requests),
        inputs.each("position", position, "int64", requests, 0, 2**63 - 1 - most),
        mode,
        inputs.setting("temperature", temperature, "float32", requests, _TEMPERATURES, 1),
        inputs.setting("num_draft", num_draft, "int32", requests, (0, most), most),
        draft_logits,
        draft_lse,
        draft_temperature,
        _checked_cut(inputs, "cut", cut, [requests, most + 1]),
        _checked_cut(inputs, "draft_cut", draft_cut, [requests, most]),
        inputs.edits("edits", edits, requests * (most + 1)),
        inputs.edits("draft_edits", draft_edits, requests * most),
        d2t,
        t2d,
        bool(with_logprobs),
    )
    if mode == "coupled":
        arguments = arguments._replace(
            draft_logits=None, draft_lse=None, draft_cut=None, draft_edits=None, t2d=None
        )
    return inputs.place, arguments


def check_sample(
    logits: Any, *, seed: Any, position: Any, tag: Any, **settings: Any
) -> tuple[Place, SampleArguments]:
    """Raises InvalidArgument naming the argument."""
    place, cut = check_cut(logits, **settings)
    if not isinstance(tag, str) or tag not in TAGS:
        raise InvalidArgument(f"tag: expected one of {', '.join(TAGS)}, given {tag!r}")
    inputs = Inputs("logits", logits)
    rows = len(cut.logits)
    return place, SampleArguments(
        cut.logits,
        inputs.seeds(seed, rows),
        inputs.each("position", position, "int64", rows, 0, 2**63 - 1),
        TAGS[tag],
        *cut[1:],
    )


def check_cut(
    logits: Any,
    *,
    temperature: Any,
    top_k: Any,
    top_p: Any,
    min_p: Any,
    edits: Any,
    d2t: Any,
) -> tuple[Place, CutArguments]:
    """Raises InvalidArgument naming the argument."""
    inputs = Inputs("logits", logits)
    rows, width = _shape(logits, 2, "logits", "[R, V]")
    logits = inputs.array("logits", logits, LOGITS, [rows, "V"])
    checked_d2t = inputs.optional("d2t", d2t, "int32", [width])
    if d2t is not None:
        check_maps(d2t, None, None)
    return inputs.place, CutArguments(
        logits,
        inputs.setting("temperature", temperature, "float32", rows, _TEMPERATURES, 1),
        inputs.setting("top_k", top_k, "int32", rows, (0, _MOST), 0),
        inputs.setting("top_p", top_p, "float32", rows, (0, 1), 1),
        inputs.setting("min_p", min_p, "float32", rows, (0, 1), 0),
        inputs.edits("edits", edits, rows),
        checked_d2t,
    )


def check_threads(threads: Any) -> int:
    """The most threads that the rows of one call may be spread over."""
    if not isinstance(threads, numbers.Integral) or isinstance(threads, bool) or threads < 1:
        raise InvalidArgument(f"threads: expected a whole number from 1, given {threads!r}")
    return int(min(threads, _MOST))


def check_workspace(workspace: Any, place: Place) -> None:
    """A workspace is memory of the device that the arrays are on; the CPU's kernels need none."""
    if workspace is None:
        return
    device = getattr(workspace, "device", None)
    if place.device == "cpu":
        raise InvalidArgument("workspace: expected None, since the arrays are on the CPU")
    if not hasattr(workspace, "holds") or str(device) != place.device:
        given = type(workspace).__name__ if device is None else f"one on {device}"
        raise InvalidArgument(f"workspace: expected a Workspace on {place.device}, given {given}")


def _shape(value: Any, rank: int, name: str, wanted: str) -> tuple[int, ...]:
    shape = getattr(value, "shape", None)
    if shape is None or len(shape) != rank:
        given = type(value).__name__ if shape is None else f"the shape {list(shape)}"
        raise InvalidArgument(f"{name}: expected an array {wanted}, given {given}")
    return tuple(shape)


def _checked_cut(inputs: Inputs, name: str, value: Any, shape: list[int]) -> Any:
    cut = inputs.optional(name, value, "float32", shape)
    if cut is not None and inputs.on_cpu and np.isnan(cut).any():
        raise InvalidArgument(f"{name}: expected numbers, -inf for none, given NaN")
    return cut


def _refuse_without(missing: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(f"{name}: expected None where {missing} is None")
