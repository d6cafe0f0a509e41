"""Any function as a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dsi_native.errors import InvalidArgument, Stopped

Forward = Callable[[np.ndarray, int], Any]


class CallableModel:
    """A model given by `forward(tokens: int32[n], start: int) -> float32[n, V]`.

    The function holds one sequence: it drops what it cached from position `start` on, takes
    `tokens` as positions start..start+n-1 and returns raw logits, row i for position start+i+1. It
    may return only the last rows, as many as are needed. Anything numpy can turn into an array of
    numbers will do; it is read before the next call. A slow but honest way in: the function runs on
    a server's thread and holds the GIL as long as it likes.

    forward: one function, or a list with one for each server. factory: makes one for each server,
    instead of `forward`. vocab_size: V; None asks the function, with one call on token 0.
    context: the most tokens it takes, None for any number. vocabulary: what open_vocabulary()
    takes, where there is no transformers tokenizer.
    """

    def __init__(
        self,
        forward: Forward | Sequence[Forward] | None = None,
        vocab_size: int | None = None,
        context: int | None = None,
        tokenizer: Any = None,
        eos_ids: Sequence[int] = (),
        *,
        factory: Callable[[], Forward] | None = None,
        name: str | None = None,
        vocabulary: Any = None,
    ) -> None:
        if (forward is None) == (factory is None):
            raise InvalidArgument("give either forward or factory")
        if forward is not None:
            self._forwards = [forward] if callable(forward) else list(forward)
        else:
            self._forwards = [factory()]
        if not self._forwards or not all(callable(f) for f in self._forwards):
            raise InvalidArgument("forward must be a function or a list of functions")
        self._factory = factory
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self.context = context
        self.eos_ids = tuple(eos_ids)
        self.name = name or getattr(self._forwards[0], "__name__", type(self._forwards[0]).__name__)
        if vocab_size is None:
            vocab_size = np.asarray(self._forwards[0](np.zeros(1, np.int32), 0)).shape[-1]
        if vocab_size < 1:
            raise InvalidArgument(f"vocab_size must be at least 1, not {vocab_size}")
        self.vocab_size = vocab_size

    def servers(self, n: int, threads: int | None = None) -> list[CallableServer]:
        """n servers, each with a function of its own. `threads` is the function's own affair."""
        if n < 1:
            raise InvalidArgument(f"a model needs at least one server, not {n}")
        while self._factory is not None and len(self._forwards) < n:
            self._forwards.append(self._factory())
        if n > len(self._forwards):
            raise InvalidArgument(
                f"{n} servers need {n} functions, since each holds a sequence of its own; "
                f"{self.name} has {len(self._forwards)}: give a list or a factory"
            )
        return [CallableServer(self, forward) for forward in self._forwards[:n]]


class CallableServer:
    """One function as a server; used by one thread at a time."""

    def __init__(self, model: CallableModel, forward: Forward) -> None:
        self.vocab_size = model.vocab_size
        self.context = model.context
        self._name = model.name
        self._forward = forward
        self._cached = np.empty(0, np.int32)

    def started(self) -> None:
        """Nothing to set: the function knows its own modes."""

    def forward(self, request: int, tokens: np.ndarray, first: int, job: Any = None) -> np.ndarray:
        """Raw logits float32 [n - first + 1, V], in one call for the tokens not cached yet.

        The sequence may be of any request: what counts is the common prefix. Raises Stopped before
        the call, ValueError for a wrong answer; after any error the next call starts at position 0.
        """
        if self.context is not None and len(tokens) > self.context:
            raise InvalidArgument(
                f"{len(tokens)} tokens exceed the context of {self.context} of {self._name}"
            )
        if job is not None and job.stopped:
            raise Stopped
        shared = min(len(self._cached), first - 1)
        differs = np.flatnonzero(self._cached[:shared] != tokens[:shared])
        start = int(differs[0]) if len(differs) else shared
        self._cached = np.empty(0, np.int32)
        mine = tokens.copy()
        rows = self._checked(self._forward(mine[start:], start), len(tokens) - first + 1)
        self._cached = mine
        return rows

    def release(self, request: int) -> None:
        """Nothing to free: the next sequence replaces this one."""

    def _checked(self, answer: Any, rows: int) -> np.ndarray:
        array = np.asarray(answer)
        if array.ndim == 1 and rows == 1:
            array = array[None]
        wanted = f"{self._name} must return at least {rows} rows of {self.vocab_size} numbers"
        if array.ndim != 2 or array.shape[1] != self.vocab_size or array.shape[0] < rows:
            raise ValueError(f"{wanted}, not an array of shape {array.shape}")
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{wanted}, not of type {array.dtype}")
        return np.ascontiguousarray(array[-rows:], np.float32)
