"""Calls of the Triton kernels on NumPy arrays, in a process whose Triton interprets.

TRITON_INTERPRET counts only before the first import of triton, so the interpreter gets a process of
its own: executor() starts it, executor().submit(verify, ...) calls it.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

LOGITS = {"target_logits", "draft_logits", "logits"}


def executor() -> ProcessPoolExecutor:
    """One process that interprets, started at the first call."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_interpret)


def _interpret() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    import torch
    from triton.runtime import interpreter

    torch.set_num_threads(1)
    np.seterr(all="ignore")  # what kernels compute for lanes that they mask
    patch, patched = interpreter._patch_lang, set()

    def call(self: Any, *arguments: Any, **settings: Any) -> Any:
        """One kernel function calls another. To patch the language anew would take longer."""
        if id(self.fn.__globals__) not in patched:
            patched.add(id(self.fn.__globals__))
            patch(self.fn)
        return self.rewrite()(*arguments, **settings)

    interpreter.InterpretedFunction.__call__ = call


def call(
    function: str, dtype: str, space: tuple[int, int, int] | None, arguments: dict[str, Any]
) -> Any:
    """launch.verify(), sample() or cut() on NumPy arrays, its results as arrays of their own.

    dtype: of the logits, which are given as float32. space: of a Workspace that is kept for later
    calls, or None.
    """
    import torch

    from dsi_native.kernels.arguments import _TAGS
    from dsi_native.kernels.triton import launch

    given = {name: _tensor(value) for name, value in arguments.items() if name != "threads"}
    for name in LOGITS & {name for name, value in given.items() if value is not None}:
        given[name] = given[name].to(getattr(torch, dtype))
    if "tag" in given:
        given["tag"] = _TAGS[given["tag"]]
    if space is not None:
        given["workspace"] = _workspace(space)
    result = getattr(launch, function)(**given)
    if isinstance(result, tuple):
        return type(result)(*(None if x is None else x.numpy().copy() for x in result))
    return result.numpy().copy()


def resting(space: tuple[int, int, int]) -> bool:
    """Whether the kept workspace is as every kernel expects it."""
    workspace = _workspaces[space]
    return not (workspace.best.numpy().any() or workspace.arrivals.numpy().any())


def words(counters: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """uint32 [n, 4] of Philox on counters uint32 [n, 4] and keys uint32 [n, 2]."""
    import torch

    from triton_probes import philox_probe

    columns = [torch.from_numpy(np.ascontiguousarray(x)) for x in (*counters.T, *keys.T)]
    out = torch.zeros(4 * len(counters), dtype=torch.int32).view(torch.uint32)
    philox_probe[(1,)](*columns, out, len(counters), N=1 << max(len(counters) - 1, 1).bit_length())
    return out.numpy().reshape(4, -1).T.copy()


def draws(seed: int, position: int, tag: int, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    """(bits, exponentials, odd-grid numbers) of token ids int32 [n]."""
    import torch

    from triton_probes import draws_probe

    n = len(ids)
    bits = torch.zeros(n, dtype=torch.int32).view(torch.uint32)
    clocks, grid = torch.zeros(n), torch.zeros(n)
    where = torch.tensor([position])
    key = torch.from_numpy(np.array([seed], np.uint64))
    draws_probe[(1,)](
        key, where, torch.from_numpy(ids), bits, clocks, grid, n, TAG=tag,
        N=1 << max(n - 1, 1).bit_length(),
    )  # fmt: skip
    return bits.numpy(), clocks.numpy(), grid.numpy()


_workspaces: dict[tuple[int, int, int], Any] = {}


def _workspace(space: tuple[int, int, int]) -> Any:
    from dsi_native.kernels.triton import Workspace

    if space not in _workspaces:
        _workspaces[space] = Workspace(*space, device="cpu")
    return _workspaces[space]


def _tensor(value: Any) -> Any:
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, tuple):
        return type(value)(*(_tensor(x) for x in value))
    return value
