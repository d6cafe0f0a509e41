"""Key/value caches that can be rolled back to any length, shared by the servers of one model."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from dsi_native.errors import Stopped

# Below this many positions computing again is as cheap as copying or waiting for another server.
_BORROW_MIN_TOKENS = 2
_WAIT_MIN_TOKENS = 32
_WAIT_SLICE_S = 0.01
_GROW_MIN_TOKENS = 64


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the longest common prefix of two id arrays."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    at = int(differs.argmax()) if n else 0
    return at if n and differs[at] else n


class BufferedLayer(DynamicLayer):
    """Keys and values of one layer in buffers that grow by half: a rollback is one assignment.

    Full length for every kind of attention. A sliding layer relies on the mask, which transformers
    sizes by ``get_mask_sizes``: a cache that forgets what left the window cannot be rolled back.
    """

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        self.buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def reserve(self, like: tuple[torch.Tensor, torch.Tensor], capacity: int) -> None:
        """Makes room for `capacity` positions; cached ones and old buffers stay."""
        if self.buffers is not None and self.buffers[0].shape[2] >= capacity:
            return
        room = max(capacity + capacity // 2, _GROW_MIN_TOKENS)
        grown = tuple(x.new_empty((*x.shape[:2], room, x.shape[3])) for x in like)
        if self.buffers is not None:
            for new, old in zip(grown, self.buffers, strict=True):
                new[:, :, : self.length] = old[:, :, : self.length]
        self.buffers = grown
        self.is_initialized = True

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Caches keys and values [1, heads, q, width] and returns all of them, as views."""
        start, end = self.length, self.length + keys.shape[2]
        self.reserve((keys, values), end)
        all_keys, all_values = self.buffers
        all_keys[:, :, start:end] = keys
        all_values[:, :, start:end] = values
        self.length = end
        return all_keys[:, :, :end], all_values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query: Any) -> tuple[int, int]:
        # An int since transformers 5, a tensor of positions before.
        return self.length + (query if isinstance(query, int) else query.shape[0]), 0


class RequestCache(DynamicCache):
    """What one server has computed for one request: ids and, per layer, keys and values.

    `ids` has the valid positions, which other servers may read under the lock of the group. Layers
    are longer while a forward runs; `truncate` mends that after one that ended early.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ids = np.empty(0, np.int32)
        self.pending: np.ndarray | None = None
        self.job: Any = None

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each attention layer, hence also the place where a forward is stopped.

        Too cheap to measure; pre-hooks on 30 decoder layers cost 0.4 ms and mark the user's model.
        """
        if self.job is not None and self.job.stopped:
            raise Stopped
        return self.layer(layer_idx).append(keys, values)

    def layer(self, index: int) -> BufferedLayer:
        while len(self.layers) <= index:
            self.layers.append(BufferedLayer())
        return self.layers[index]

    def truncate(self, length: int) -> None:
        """Forgets all positions from `length` on."""
        self.ids = self.ids[:length]
        for layer in self.layers:
            layer.length = min(layer.length, length)

    def copy_from(self, other: RequestCache, start: int, end: int) -> None:
        """Takes positions start..end-1 of another server's cache; this one holds those before."""
        for index, source in enumerate(other.layers):
            if source.buffers is None:
                continue
            mine = self.layer(index)
            mine.reserve(source.buffers, end)
            for to, of in zip(mine.buffers, source.buffers, strict=True):
                to[:, :, start:end] = of[:, :, start:end]
            mine.length = end
        self.ids = other.ids[:end].copy()

    @property
    def size_bytes(self) -> int:
        return sum(x.nbytes for layer in self.layers for x in layer.buffers or ())


class CacheGroup:
    """The caches of all servers of one model on one device, so that a prompt is computed once.

    Each server writes its own caches only. `_changed` guards the lists and, in each cache, `ids`,
    `pending` and the reading of the positions that `ids` has.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._caches: dict[int, list[RequestCache]] = {}

    def add(self, request: int) -> RequestCache:
        cache = RequestCache()
        with self._changed:
            self._caches.setdefault(request, []).append(cache)
        return cache

    def remove(self, request: int, cache: RequestCache) -> None:
        with self._changed:
            others = [c for c in self._caches.get(request, ()) if c is not cache]
            if others:
                self._caches[request] = others
            else:
                self._caches.pop(request, None)

    def begin(self, request: int, cache: RequestCache, tokens: np.ndarray, limit: int) -> int:
        """Rolls `cache` back to the prefix it shares with `tokens`, then takes what others hold.

        Positions from `limit` on are never kept. Waits for a server that is computing at least 32
        of the missing positions, until it ends or fails; raises Stopped once the cache's job is.
        Returns the number of positions held; the caller computes the rest and must call `finish`.
        """
        keep = min(common_prefix(cache.ids, tokens), limit)
        wanted = tokens[:limit]
        with self._changed:
            cache.truncate(keep)
            while True:
                others = [c for c in self._caches.get(request, ()) if c is not cache]
                shared = [common_prefix(c.ids, wanted) for c in others]
                best = max(shared, default=0)
                if best - keep >= _BORROW_MIN_TOKENS:
                    cache.copy_from(others[shared.index(best)], keep, best)
                    keep = best
                if not any(
                    c.pending is not None
                    and common_prefix(c.pending, wanted) - keep >= _WAIT_MIN_TOKENS
                    for c in others
                ):
                    break
                if cache.job is not None and cache.job.stopped:
                    raise Stopped
                self._changed.wait(_WAIT_SLICE_S)
            if len(tokens) - keep >= _WAIT_MIN_TOKENS:
                cache.pending = tokens.copy()
        return keep

    def finish(self, cache: RequestCache, keep: int, tokens: np.ndarray | None) -> None:
        """Ends what `begin` began: `tokens` are cached now, or None: the forward ended early."""
        with self._changed:
            if tokens is None:
                cache.truncate(keep)
            else:
                cache.ids = tokens.copy()
            waited_for, cache.pending = cache.pending is not None, None
            if waited_for:
                self._changed.notify_all()
