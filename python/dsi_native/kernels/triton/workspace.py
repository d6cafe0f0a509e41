"""Device memory that the kernels use between their launches, and for their results."""

from __future__ import annotations

import torch

from dsi_native.kernels.contract import CHUNK, Sampled, Verified
from dsi_native.kernels.triton.cut import NEAR_ROOM

__all__ = ["Workspace"]


class Workspace:
    """Memory of verify() and sample(): up to `batch` requests of `rows` rows (K + 1) over `vocab`.

    vocab: the wider of the two vocabularies. For sample() each of its rows is a request of one row.
    What a call returns lies in here, and the next call with the same workspace overwrites it. Calls
    that share a workspace must be ordered on one stream; every stream needs its own.
    Cost: 36 bytes per row and chunk of 4096 ids, 32 KiB per request.
    """

    def __init__(
        self, batch: int, rows: int, vocab: int, device: torch.device | str = "cuda"
    ) -> None:
        self.batch, self.rows, self.vocab = batch, rows, vocab
        self.chunks = -(-vocab // CHUNK)
        slots = batch * (2 * rows - 1)  # the target's rows, then the drafter's

        def room(count: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(max(count, 1), dtype=dtype, device=device)

        self.peaks = room(slots * self.chunks, torch.float32)
        self.masses = room(slots * self.chunks, torch.float32)
        self.firsts = room(slots * self.chunks, torch.int32)
        self.odds = room(slots * self.chunks, torch.int32)
        self.chosen = room(batch * rows * self.chunks, torch.float32)
        self.at = room(slots, torch.float32)
        # 0 between calls: each kernel's last arriver sees to that.
        self.best = torch.zeros(batch * rows, dtype=torch.int64, device=device).view(torch.uint64)
        self.arrivals = torch.zeros(batch, dtype=torch.int32, device=device)

        self.near = room(batch * NEAR_ROOM.value, torch.float32)

        self._tokens = room(batch * rows, torch.int32)
        self._logprob = room(batch * rows, torch.float32)
        self._lse = room(batch * rows, torch.float32)
        self._num_accepted = room(batch, torch.int32)
        self._status = room(batch, torch.int32)
        self._cut = room(batch, torch.float32)
        self._uncut = torch.full((batch,), -torch.inf, device=device)

    def holds(self, batch: int, rows: int, vocab: int) -> bool:
        return batch <= self.batch and rows <= self.rows and vocab <= self.vocab

    def verified(self, batch: int, rows: int, with_logprobs: bool) -> Verified:
        """Room for the results of verify(): views, valid until the next call."""

        def table(memory: torch.Tensor) -> torch.Tensor:
            return memory[: batch * rows].view(batch, rows)

        return Verified(
            table(self._tokens),
            self._num_accepted[:batch],
            table(self._logprob) if with_logprobs else None,
            table(self._lse) if with_logprobs else None,
            self._status[:batch],
        )

    def sampled(self, rows: int, cuts: bool) -> Sampled:
        """Room for the results of sample(); the thresholds are -inf already where not `cuts`."""
        cut = self._cut if cuts else self._uncut
        return Sampled(self._tokens[:rows], self._lse[:rows], cut[:rows], self._status[:rows])
