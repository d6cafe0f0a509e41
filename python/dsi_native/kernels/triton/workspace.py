"""Device memory that the kernels use between their launches, and for their results."""

from __future__ import annotations

import torch

from dsi_native.kernels.contract import CHUNK, Sampled, Verified
from dsi_native.kernels.triton.cut import NEAR_ROOM

__all__ = ["Workspace"]


class Workspace:
    """Device memory to reuse: up to `batch` requests of `rows` rows (K + 1) over `vocab` ids.

    vocab: the wider of the two vocabularies. Each row of sample() is a request, cut() may have
    batch * rows of them. What a call returns lies in here, and the next call of the same function
    overwrites it. Calls that share a workspace must be ordered on one stream; every stream needs
    its own.
    Cost: 36 bytes per row and chunk of 4096 ids, 32 KiB per row.
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

        self.near = room(batch * rows * NEAR_ROOM.value, torch.float32)
        self.cuts = room(batch * rows, torch.float32)
        self.uncut = torch.full((batch,), -torch.inf, device=device)

        self.memory = torch.empty(Results.words(batch, rows), dtype=torch.int32, device=device)
        self.results = self.received(self.memory)

    @property
    def device(self) -> torch.device:
        return self.memory.device

    def holds(self, batch: int, rows: int, vocab: int) -> bool:
        return batch <= self.batch and rows <= self.rows and vocab <= self.vocab

    def oddities(self, rows: int, vocab: int) -> torch.Tensor:
        """int32 [rows] of the last verify() of one request: what each of the target's rows holds.

        The number of chunks with NaN, and 65536 times that of those with +inf. One launch.
        """
        chunks = -(-vocab // CHUNK)
        partials = self.odds[: rows * self.chunks].view(rows, self.chunks)[:, :chunks]
        return torch.sum(partials, 1, dtype=torch.int32, out=self.results.odd[:rows])

    def received(self, memory: torch.Tensor) -> Results:
        """The results in a copy of `memory`, on the host for one."""
        return Results(memory, self.batch, self.rows)


class Results:
    """Results of calls, in one piece of memory so that one copy fetches them."""

    def __init__(self, memory: torch.Tensor, batch: int, rows: int) -> None:
        sizes = self._sizes(batch, rows)
        tokens, logprob, lse, odd, num_accepted, status, cut = torch.split(memory, sizes)
        self.tokens, self.odd, self.num_accepted, self.status = tokens, odd, num_accepted, status
        self.logprob, self.lse, self.cut = (x.view(torch.float32) for x in (logprob, lse, cut))

    @staticmethod
    def words(batch: int, rows: int) -> int:
        return sum(Results._sizes(batch, rows))

    @staticmethod
    def _sizes(batch: int, rows: int) -> list[int]:
        table, column = (-(-n // 4) * 4 for n in (batch * rows, batch))  # 16 bytes each
        return [table] * 4 + [column] * 3

    def verified(self, batch: int, rows: int, with_logprobs: bool) -> Verified:
        """Of verify(): views, valid until the next call."""

        def table(memory: torch.Tensor) -> torch.Tensor:
            return memory[: batch * rows].view(batch, rows)

        return Verified(
            table(self.tokens),
            self.num_accepted[:batch],
            table(self.logprob) if with_logprobs else None,
            table(self.lse) if with_logprobs else None,
            self.status[:batch],
        )

    def sampled(self, rows: int) -> Sampled:
        """Of sample(): views, valid until the next call."""
        return Sampled(self.tokens[:rows], self.lse[:rows], self.cut[:rows], self.status[:rows])
