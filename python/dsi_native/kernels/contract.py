"""What all implementations of the kernels share: tags, bits, and the types of inputs and results.

Arrays are NumPy arrays or torch tensors, whichever the caller gave.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

__all__ = [
    "CHUNK",
    "GREEDY_TEMPERATURE",
    "TAGS",
    "Edits",
    "Operation",
    "Sampled",
    "Status",
    "Tag",
    "Verified",
]

CHUNK = 4096
"""Ids whose partial sum is one chunk, and whose noise comes from the same 1024 Philox calls."""

GREEDY_TEMPERATURE = 1e-5
"""Temperatures below mean argmax."""


class Tag(enum.IntEnum):
    """What a random number is for: the low byte of the second word of its Philox counter.

    The upper 24 bits of that word number the draws where one position needs several for the same
    purpose; they are 0 for all but the string-level ones.
    """

    COUPLED = 0
    DRAFT = 1
    ACCEPT = 2
    BONUS = 3
    """Also the residual's draw: one row never needs both."""
    STRING_DRAFT = 4
    """String-level rejection sampling (dsi_native.reference.slrs): draft j of a position."""
    STRING_ACCEPT = 5
    STRING_RESIDUAL = 6
    """Trial j of the residual draws this token of the target's law,"""
    STRING_COIN = 7
    """and takes it iff this coin says so."""


TAGS = {"coupled": Tag.COUPLED, "draft": Tag.DRAFT, "bonus": Tag.BONUS}
"""What sample() may draw, by name."""


class Status(enum.IntFlag):
    """What was odd about the rows that were judged; 0 where nothing was."""

    NAN = 1
    """A NaN in a row to draw from; it counts as -inf."""
    EMPTY = 2
    """Nothing left to draw from: the token is -1."""
    ZERO_RESIDUAL = 4
    """max(p - q, 0) was zero everywhere: the token is a draw from p."""
    Q_ZERO = 8
    """The drafter cannot have drawn this draft: the token is a draw from p."""
    INF = 16
    """A +inf in a row to draw from; it counts as the largest float32."""


class Operation(enum.IntEnum):
    """How an edit changes one logit x."""

    ADD = 0
    """x + value (bias, presence and frequency penalty)."""
    REPEAT = 1
    """x / value where x > 0, else x * value (repetition penalty)."""
    SET = 2
    """value (-inf forbids the id)."""


class Edits(NamedTuple):
    """Changes to single logits before the temperature, in compressed rows, applied in their order.

    Row r has the edits offsets[r] .. offsets[r + 1] - 1. Ids are those of the edited row.
    """

    offsets: Any
    """int64 [rows + 1], ascending from 0 to the number of edits."""
    ids: Any
    """int32 [edits]"""
    operations: Any
    """int32 [edits]; see Operation."""
    values: Any
    """float32 [edits]"""


class Verified(NamedTuple):
    """What verify() returns for B requests with up to K drafts each."""

    tokens: Any
    """int32 [B, K + 1], ids of the target: the accepted drafts and one more, then -1."""
    num_accepted: Any
    """int32 [B]"""
    logprob: Any
    """float32 [B, K + 1] of the tokens, processed law; NaN elsewhere. None if not asked."""
    lse: Any
    """float32 [B, K + 1] log-sum-exp of the rows of the tokens, like logprob."""
    status: Any
    """int32 [B], bits of Status over the rows up to the one that ended the request's turn."""


class Sampled(NamedTuple):
    """What sample() returns for R rows."""

    token: Any
    """int32 [R], ids of the row; -1 where the row is empty."""
    lse: Any
    """float32 [R] over what the cut kept; -inf where the row is empty."""
    cut: Any
    """float32 [R], see cut()."""
    status: Any
    """int32 [R], bits of Status."""
