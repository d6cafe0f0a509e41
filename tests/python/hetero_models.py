"""Language models whose logits are a hash of the whole prefix, and vocabularies of few tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsi_native.vocab.map import vocabulary_map
from dsi_native.vocab.vocabulary import Vocabulary

Array = NDArray[Any]
States = NDArray[np.uint64]

_SHARED = 0
_START = 0x243F6A8885A308D3


@dataclass(frozen=True, eq=False)
class HashedModel:
    """Logits by (salt, prefix, token's bytes and number): no structure that a fault could hide in.

    tokens: the bytes of each id. The logit of a token depends on its bytes (and on how many ids
    before it have the same), not on its id. Ids from len(tokens) to `width` are padding: logits
    like all others. kinship: the part of the variance that models share. shift [width] is added.
    """

    tokens: tuple[bytes, ...]
    salt: int
    width: int = 0
    spread: float = 1.0
    kinship: float = 0.6
    shift: Array | None = None
    _keys: Array = field(init=False)

    def __post_init__(self) -> None:
        width = self.width or len(self.tokens)
        object.__setattr__(self, "width", width)
        seen: dict[bytes, int] = {}
        keys = np.zeros(width, np.uint64)
        padded = (*self.tokens, *(b"\0%d" % i for i in range(width - len(self.tokens))))
        for id_, token in enumerate(padded):
            seen[token] = seen.get(token, 0) + 1
            keys[id_] = int.from_bytes(b"%d" % seen[token] + token, "big") % 2**64
        object.__setattr__(self, "_keys", keys)

    def logits(self, states: States) -> NDArray[np.float32]:
        """float32 [n, width] behind the prefixes with these states."""
        shared, own = self._noise(states, _SHARED), self._noise(states, self.salt)
        logits = self.kinship**0.5 * shared + (1 - self.kinship) ** 0.5 * own
        logits *= self.spread
        return (logits if self.shift is None else logits + self.shift).astype(np.float32)

    def _noise(self, states: States, salt: int) -> Array:
        """float64 [n, width], logistic, of variance about 1."""
        keys = mixed(self._keys + np.uint64(salt))
        u = (mixed(states[:, None] ^ keys) >> np.uint64(11)).astype(float) * 2.0**-53
        u = np.clip(u, 1e-9, 1 - 1e-9)
        return np.log(u / (1 - u)) / 1.8


def start(n: int = 1) -> States:
    """The states of n empty prefixes."""
    return np.full(n, _START, np.uint64)


def extended(states: States, tokens: Any) -> States:
    """The states behind one more token each; ids are the target's."""
    return mixed(states * np.uint64(3) + np.asarray(tokens, np.uint64) + np.uint64(1))


@lru_cache(maxsize=100_000)
def state_of(prefix: tuple[int, ...] | bytes) -> States:
    """[1]; not to be altered."""
    return extended(state_of(prefix[:-1]), [prefix[-1]]) if prefix else start()


def mixed(x: States) -> States:
    """Steele et al., "Fast splittable pseudorandom number generators": the finaliser."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def maps_of(target: HashedModel, drafter: HashedModel) -> tuple[Array, Array]:
    """(d2t, t2d) as for any two models."""
    vocabularies = [Vocabulary("letters", "letters", x.tokens) for x in (target, drafter)]
    made = vocabulary_map(*vocabularies, target.width, drafter.width)
    return made.d2t, made.t2d


def total_variation(a: Any, b: Any) -> float:
    return float(np.abs(np.asarray(a, float) - np.asarray(b, float)).sum() / 2)
