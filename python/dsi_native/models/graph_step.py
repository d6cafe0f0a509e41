"""One step of a decoder over memory that never moves: what a CUDA graph is captured from.

A step reads one block of memory, runs the model over a cache of fixed size, draws a token behind
every id, and writes another block. Nothing in it depends on the host, so it can be replayed with
other ids in the block. csrc/cuda/graph_layout.h says what lies where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache

from dsi_native import _core
from dsi_native.errors import InvalidArgument

__all__ = ["Blocks", "FixedCache", "GraphStep", "prove", "refusal"]

_DTYPES = {
    **dict.fromkeys(("start", "position", "seed", "offsets"), torch.int64),
    **dict.fromkeys(("count", "top_k", "ids", "edit_ids", "edit_operations"), torch.int32),
    **dict.fromkeys(("tokens", "status"), torch.int32),
    **dict.fromkeys(("temperature", "top_p", "min_p", "edit_values", "logprobs"), torch.float32),
}


class Blocks:
    """Views of the two blocks by name: scalars [1], ids [window], edits as in kernels.Edits.

    memory: bytes -> a tensor of that many, zeroed, which stays where it is.
    """

    def __init__(self, memory: Callable[[int], torch.Tensor], window: int, edits: int) -> None:
        layout = _core.graph_layout(window, edits)
        self.window, self.edits = window, edits
        self.inputs = memory(layout["input_bytes"])
        self.outputs = memory(layout["output_bytes"])
        counts = {"ids": window, "offsets": window + 1}
        counts |= dict.fromkeys(("tokens", "status", "logprobs"), window)
        counts |= dict.fromkeys(("edit_ids", "edit_operations", "edit_values"), edits)
        for name, dtype in _DTYPES.items():
            block = self.outputs if name in ("tokens", "status", "logprobs") else self.inputs
            size = counts.get(name, 1) * dtype.itemsize
            view = block[layout[name] : layout[name] + size].view(dtype)
            setattr(self, name, view)

    ids: torch.Tensor
    start: torch.Tensor
    position: torch.Tensor
    seed: torch.Tensor
    count: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    offsets: torch.Tensor
    edit_ids: torch.Tensor
    edit_operations: torch.Tensor
    edit_values: torch.Tensor
    tokens: torch.Tensor
    status: torch.Tensor
    logprobs: torch.Tensor


class FixedCache(DynamicCache):
    """Keys and values of `capacity` positions per layer, written in place at `positions`.

    What is behind the ids of a step is masked, not forgotten: a rollback is a smaller start.
    between: called in front of every layer but the first, where a step may be cut in two.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.buffers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.positions = torch.empty(0, dtype=torch.int64)
        self.between: Callable[[int], None] | None = None

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes keys and values [1, heads, n, width]; returns those of all positions."""
        if self.between is not None and layer_idx > 0:
            self.between(layer_idx)
        if layer_idx == len(self.buffers):
            # Zeros: a masked value counts with weight 0, and 0 times what lay there may be NaN.
            self.buffers.append(
                tuple(
                    x.new_zeros((*x.shape[:2], self.capacity, x.shape[3])) for x in (keys, values)
                )
            )
        own_keys, own_values = self.buffers[layer_idx]
        own_keys.index_copy_(2, self.positions, keys)
        own_values.index_copy_(2, self.positions, values)
        return own_keys, own_values

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        return 0  # positions and mask are given; nothing may be derived on the host

    @property
    def size_bytes(self) -> int:
        return sum(x.nbytes for layer in self.buffers for x in layer)


class GraphStep:
    """The step of one server.

    model: the TransformersModel. draw(rows [n, V], blocks, n) writes tokens, status and logprobs.
    Cost: attention over all of a cache's capacity, whatever is in it.
    """

    def __init__(
        self, model: Any, blocks: Blocks, capacity: int, draw: Callable[..., None]
    ) -> None:
        self._model, self._blocks, self._draw = model, blocks, draw
        device = model.device
        self._steps = torch.arange(blocks.window, device=device)
        self._columns = torch.arange(capacity, device=device)
        self._dtype = model.model.get_input_embeddings().weight.dtype

    def __call__(self, length: int, cache: FixedCache) -> torch.Tensor:
        """Rows [length, V] of logits; the output block holds what was drawn from them.

        Call it in inference mode, on the stream that the step is for.
        """
        blocks = self._blocks
        positions = self._steps[:length] + blocks.start
        behind = self._columns[None] > positions[:, None]
        mask = torch.zeros(behind.shape, dtype=self._dtype, device=behind.device)
        mask.masked_fill_(behind, torch.finfo(self._dtype).min)
        cache.positions = positions
        out = self._model.model(
            input_ids=blocks.ids[None, :length].long(),
            attention_mask=mask[None, None],
            position_ids=positions[None],
            **self._model.step_options(cache, positions),
        )
        rows = out.logits[0]
        self._draw(rows, blocks, length)
        return rows


def refusal(model: Any) -> str | None:
    """Why no step can be made of a TransformersModel; None where it can."""
    config = model.model.config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention"} or (not kinds and getattr(config, "sliding_window", None)):
        return "some of its layers do not attend to all positions"
    attention = getattr(config, "_attn_implementation", None)
    if attention not in ("sdpa", "eager"):
        return f"its attention is {attention!r}; a mask of all positions needs 'sdpa' or 'eager'"
    return None


def prove(model: Any, step: GraphStep, blocks: Blocks, cache: FixedCache, capacity: int) -> None:
    """Raises InvalidArgument unless steps give a plain forward's logits, also after a rollback.

    Overwrites the input block and the cache.
    """
    half = max(1, min(2, blocks.window, capacity // 2))
    ids = torch.arange(2 * half, dtype=torch.int32) % model.vocab_size

    def rows(start: int, given: torch.Tensor) -> torch.Tensor:
        blocks.inputs.zero_()
        blocks.start.fill_(start)
        blocks.position.fill_(start + 1)
        blocks.count.fill_(half)
        blocks.ids[:half].copy_(given)
        with torch.inference_mode():
            return step(half, cache).float()

    rows(half, ids[:half].flip(0) + 2)  # what lies behind a step must not be seen
    given = torch.cat([rows(0, ids[:half]), rows(half, ids[half:])])
    plain = model.plain_rows(ids.numpy())
    # Rounding moves logits by less, a wrong mask or position by more.
    if not (given - plain).abs().max() <= 0.25 * plain.std():
        raise InvalidArgument("a step over a fixed cache gives other logits than a forward")
