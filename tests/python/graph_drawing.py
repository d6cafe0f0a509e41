"""TritonDraw beside the C++ kernels, for the process whose Triton interprets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dsi_native.models.graph_draw import TritonDraw
from dsi_native.models.graph_step import Blocks
from graph_models import draw_on_host

WINDOW, EDITS, WIDTH = 4, 6, 100


def drawn(rows: int, seed: int, settings: dict[str, float], edits: Any, broken: Any) -> Any:
    """((tokens, status, logprobs) of Triton, the same of C++) for random logits [rows, 100].

    edits: (row, id, operation, value) in the order of rows. broken: (row, id, value) to put there.
    """
    logits = torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (rows, WIDTH))).float()
    for row, token, value in broken:
        logits[row, token] = value
    results = []
    for draw in (TritonDraw(WINDOW, WIDTH, torch.device("cpu")), draw_on_host):
        blocks = Blocks(lambda size: torch.zeros(size, dtype=torch.uint8), WINDOW, EDITS)
        blocks.seed.fill_(seed)
        blocks.position.fill_(17)
        blocks.count.fill_(rows)
        for name, value in ({"temperature": 0.8, "top_p": 1.0} | settings).items():
            getattr(blocks, name).fill_(value)
        for i, (_, token, operation, value) in enumerate(edits):
            blocks.edit_ids[i], blocks.edit_operations[i] = token, operation
            blocks.edit_values[i] = value
        counts = [sum(edit[0] < row for edit in edits) for row in range(WINDOW + 1)]
        blocks.offsets.copy_(torch.tensor(counts))
        for _ in range(2):  # a replay finds what the one before has left
            draw(logits, blocks, rows)
        results.append(
            tuple(x[:rows].numpy().copy() for x in (blocks.tokens, blocks.status, blocks.logprobs))
        )
    return tuple(results)
