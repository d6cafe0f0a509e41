"""Calls of the Triton kernels on NumPy arrays, in a process whose Triton interprets.

TRITON_INTERPRET counts only before the first import of triton, so the interpreter gets a process of
its own, which all tests share.
"""

from __future__ import annotations

import importlib.util
import inspect
import multiprocessing
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None and not os.environ.get("CI"),
    reason="needs: pip install -c constraints.txt triton",
)

LOGITS = {"target_logits", "draft_logits", "logits"}


@cache
def _interpreter() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_interpret)


def there(function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    """What `function`, of a module, returns when the interpreting process calls it."""
    return _interpreter().submit(function, *arguments, **settings).result()


def interpreted(
    function: str, dtype: str = "float32", own_memory: bool = False, **arguments: Any
) -> Any:
    """verify(), sample() or cut() of launch.py on NumPy arrays; its results are new arrays.

    dtype: of the logits, which are given as float32. All calls share one workspace, except those
    with memory of their own.
    """
    return there(_call, function, dtype, own_memory, arguments)


def _interpret() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    import torch
    from triton.runtime import interpreter

    torch.set_num_threads(1)
    torch.set_warn_always(True)
    warnings.simplefilter("error", UserWarning)  # users would see them
    np.seterr(all="ignore")  # what kernels compute for lanes that they mask
    patch, patched = interpreter._patch_lang, set()

    def call(self: Any, *arguments: Any, **settings: Any) -> Any:
        """One kernel function calls another. To patch the language anew would take longer."""
        if id(self.fn.__globals__) not in patched:
            patched.add(id(self.fn.__globals__))
            patch(self.fn)
        return self.rewrite()(*arguments, **settings)

    interpreter.InterpretedFunction.__call__ = call


def _call(function: str, dtype: str, own_memory: bool, arguments: dict[str, Any]) -> Any:
    import torch

    from dsi_native.kernels.contract import TAGS
    from dsi_native.kernels.triton import launch

    given = {name: _tensor(value) for name, value in arguments.items() if name != "threads"}
    for name in LOGITS & {name for name, value in given.items() if value is not None}:
        given[name] = given[name].to(getattr(torch, dtype))
    if "tag" in given:
        given["tag"] = TAGS[given["tag"]]
    if function != "cut" and not own_memory:
        given["workspace"] = _workspace()
    result = getattr(launch, function)(**given)
    if isinstance(result, tuple):
        return type(result)(*(None if x is None else x.numpy().copy() for x in result))
    return result.numpy().copy()


def resting() -> bool:
    """Whether the shared workspace is as every kernel expects it."""
    workspace = _workspace()
    return not (workspace.best.numpy().any() or workspace.arrivals.numpy().any())


def strided(arguments: dict[str, Any]) -> Any:
    """Tokens of verify() on logits [rows, requests, V] with room between the rows."""
    import torch

    from dsi_native.kernels.triton import launch

    given = {name: _tensor(value) for name, value in arguments.items()}
    for name in ("target_logits", "draft_logits"):
        b, k, width = given[name].shape
        memory = torch.full((k, b, width + 9), torch.nan)
        memory[..., :width] = given[name].transpose(0, 1)
        given[name] = memory[..., :width].transpose(0, 1)
    return launch.verify(**given).tokens.numpy()


def far_apart(mode: str) -> Any:
    """Tokens of two requests whose logits lie 2^31 and 16 elements apart."""
    import torch

    from dsi_native.kernels.triton import launch

    apart = 2**31 + 16
    memory = torch.empty(apart + 8, dtype=torch.float16)  # no page of it is touched in between
    logits = memory.as_strided((2, 1, 8), (apart, 8, 1))
    logits.fill_(-torch.inf)
    logits[0, 0, 2] = logits[1, 0, 3] = 0
    return launch.verify(
        logits,
        torch.empty((2, 0), dtype=torch.int32),
        seed=torch.zeros(2, dtype=torch.int64),
        position=torch.zeros(2, dtype=torch.int64),
        mode=mode,
    ).tokens.tolist()


def parameters(function: str) -> list[str]:
    """Names of what a function of launch.py takes."""
    from dsi_native.kernels.triton import launch

    return list(inspect.signature(getattr(launch, function)).parameters)


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


@cache
def _workspace() -> Any:
    from dsi_native.kernels.triton import Workspace

    return Workspace(8, 16, 5 * 4096, device="cpu")


def _tensor(value: Any) -> Any:
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, tuple):
        return type(value)(*(_tensor(x) for x in value))
    return value
