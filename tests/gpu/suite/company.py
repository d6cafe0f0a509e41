"""What else goes on while an engine decodes, so that its servers finish in another order."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

NAMES = ("alone", "uneven forwards", "busy Python", "busy device")
_LONGEST_PAUSE_S = 0.003
_PAUSE_S = 0.001
# A window of work that a device is given at once: others find room between two.
_MATMUL, _AT_ONCE = 2048, 8


def of(name: str, device: str, target: Any) -> Any:
    """A context manager in which the machine is busy that way. target: what is decoded with."""
    if name == "alone":
        return nullcontext()
    if name == "uneven forwards":
        return uneven(target.model)
    return busy(name, _now_and_then if name == "busy Python" else _multiplying(device))


@contextmanager
def uneven(module: torch.nn.Module, seed: int = 0) -> Iterator[None]:
    """Each forward starts up to 3 ms late. Captured graphs do not: they call no module."""
    draw = random.Random(seed)

    def wait(*_: Any) -> None:
        time.sleep(draw.uniform(0, _LONGEST_PAUSE_S))

    hook = module.register_forward_pre_hook(wait)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def busy(name: str, work: Callable[[], None]) -> Iterator[None]:
    """A thread that does `work` again and again. Raises what it raised."""
    over = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            while not over.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if errors:
        raise errors[0]


def hold_gil() -> None:
    """Holds the GIL for a fraction of a millisecond.

    Again and again without a pause it costs every operation of torch, which releases the GIL, 5 ms
    until it has it back: seconds for a forward in eager mode.
    """
    sum(i & 1 for i in range(4000))


def _now_and_then() -> None:
    hold_gil()
    time.sleep(_PAUSE_S)


def _multiplying(device: str) -> Callable[[], None]:
    """Matrix products on a stream of their own."""
    if device != "cuda":
        square = torch.ones(256, 256)
        return lambda: torch.mm(square, square).sum().item() and None
    stream, square = torch.cuda.Stream(), torch.ones(_MATMUL, _MATMUL, device=device)
    torch.cuda.synchronize()

    def work() -> None:
        with torch.inference_mode(), torch.cuda.stream(stream):
            for _ in range(_AT_ONCE):
                torch.mm(square, square)
        stream.synchronize()

    return work


__all__ = ["NAMES", "busy", "hold_gil", "of", "uneven"]
