"""Small arrays between host and device, all of a step in one copy."""

from __future__ import annotations

import numpy as np
import torch

__all__ = ["Parcel"]

_ALIGNED_BYTES = 16  # what compiled kernels assume of their pointers
_DTYPES = {
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.float32): torch.float32,
}


class Parcel:
    """Memory on both sides, page-locked on the host, for one thread and the current stream of it.

    What send() returns is overwritten by the next send(), what receive() returns by the next
    receive(). Memory grows as needed and is kept.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._there = torch.empty(0, dtype=torch.uint8)
        self._here = torch.empty(0, dtype=torch.uint8)
        self._back = torch.empty(0, dtype=torch.int32)
        self._on_its_way = False

    def send(self, *arrays: np.ndarray) -> list[torch.Tensor]:
        """One-dimensional int32, int64 or float32 arrays on the device. Does not wait."""
        begins = np.cumsum([0, *(-(-a.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES for a in arrays)])
        size = int(begins[-1])
        if self._on_its_way:  # an error kept receive() from being called
            self._wait()
        if size > len(self._here):
            self._here = self._room(2 * size, torch.uint8)
            self._there = torch.empty(2 * size, dtype=torch.uint8, device=self._device)
        host = self._here.numpy()
        for array, begin in zip(arrays, begins[:-1], strict=True):
            host[begin : begin + array.nbytes] = array.view(np.uint8)
        self._there[:size].copy_(self._here[:size], non_blocking=True)
        self._on_its_way = True
        return [
            self._there[begin : begin + array.nbytes].view(_DTYPES[array.dtype])
            for array, begin in zip(arrays, begins[:-1], strict=True)
        ]

    def receive(self, words: torch.Tensor) -> torch.Tensor:
        """The int32 `words` on the host, once all work before on the stream is done."""
        if len(words) > len(self._back):
            self._back = self._room(2 * len(words), torch.int32)
        received = self._back[: len(words)]
        received.copy_(words, non_blocking=True)
        self._wait()
        return received

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        self._on_its_way = False

    def _room(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, pin_memory=self._device.type == "cuda")
