"""The draws of a step on CUDA, by the Triton kernels: five launches and a few small torch ops."""

from __future__ import annotations

from typing import Any

import torch

from dsi_native.kernels.contract import Edits, Status
from dsi_native.kernels.triton import Workspace, launch

__all__ = ["TritonDraw"]

_INFINITIES = 1 << 16  # Workspace.oddities() counts them in multiples of this


class TritonDraw:
    """draw(rows, blocks, n) for one server: row i is the token at blocks.position + i.

    The noise, the cuts and the edits are those of DeviceJudge in coupled mode. Each row is a
    request of its own here, so that rows which nobody asked for cannot end those behind them.
    """

    def __init__(self, window: int, vocab: int, device: torch.device) -> None:
        def room(dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(window, dtype=dtype, device=device)

        self._space = Workspace(window, 1, vocab, device)
        self._steps = torch.arange(window, device=device)
        self._seed, self._position = room(torch.int64), room(torch.int64)
        self._temperature, self._top_p, self._min_p = (room(torch.float32) for _ in range(3))
        self._top_k = room(torch.int32)
        self._drafts = torch.zeros((window, 0), dtype=torch.int32, device=device)

    def __call__(self, rows: torch.Tensor, blocks: Any, n: int) -> None:
        """Writes tokens, status (bits NAN and INF; token -1 where nothing is left), logprobs."""
        for own, given in (
            (self._seed, blocks.seed),
            (self._temperature, blocks.temperature),
            (self._top_k, blocks.top_k),
            (self._top_p, blocks.top_p),
            (self._min_p, blocks.min_p),
        ):
            own[:n].copy_(given.expand(n))
        torch.add(self._steps[:n], blocks.position, out=self._position[:n])
        edits = Edits(
            blocks.offsets[: n + 1], blocks.edit_ids, blocks.edit_operations, blocks.edit_values
        )
        temperature = self._temperature[:n]
        cut = launch.cut(
            rows,
            temperature=temperature,
            top_k=self._top_k[:n],
            top_p=self._top_p[:n],
            min_p=self._min_p[:n],
            edits=edits,
            workspace=self._space,
        )
        out = launch.verify(
            rows.unsqueeze(1),
            self._drafts[:n],
            seed=self._seed[:n],
            position=self._position[:n],
            mode="coupled",
            temperature=temperature,
            cut=cut.unsqueeze(1),
            edits=edits,
            with_logprobs=True,
            workspace=self._space,
        )
        odd = self._space.oddities(n, rows.shape[1])
        # A model that says NaN is broken, also where an edit hides it.
        nan = torch.isnan(rows).any(1) | (odd % _INFINITIES != 0)
        status = nan * int(Status.NAN) + (odd >= _INFINITIES) * int(Status.INF)
        blocks.tokens[:n].copy_(out.tokens[:, 0])
        blocks.status[:n].copy_(status)
        blocks.logprobs[:n].copy_(out.logprob[:, 0])
