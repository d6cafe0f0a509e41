"""A target and a drafter that fit together."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsi_native import _core
from dsi_native.drafters import CallableDrafter, PromptLookup
from dsi_native.errors import InvalidArgument
from dsi_native.translation import Translation, check_method, opening_of


@dataclass(frozen=True)
class Pair:
    """What an engine decodes with.

    drafter: None for non-SI only. translation: None where the drafter speaks the target's ids.
    """

    target: Any
    drafter: Any
    tokenizer: Any
    translation: Translation | None = None

    @property
    def vocab_size(self) -> int:
        """Width of the target's rows."""
        return int(self.target.vocab_size)

    def servers(self, sp: int, threads: int) -> tuple[list[Any], Any]:
        """sp target servers and the drafter's, None without one."""
        with _naming("target"):
            targets = list(self.target.servers(sp, threads))
        if self.drafter is None:
            return targets, None
        with _naming("drafter"):
            server = self.drafter.servers(1, threads)[0]
        if self.translation is not None:
            # Drafts in other ids are made of whole rows, which graphs do not hand out.
            server = getattr(server, "plain", None) or server
            server = self.translation.server(server, getattr(self.drafter, "context", None))
        return targets, server

    @property
    def shares_cores(self) -> bool:
        """Whether target and drafter are torch models on the CPU of this process."""
        return _on_cpu(self.target) and _on_cpu(self.drafter)

    def forwards_compete(self, mode: str, sp: int) -> bool:
        """Whether forwards that overlap in `mode` have only this process' cores to run on."""
        return mode == "dsi" and _on_cpu(self.target) and (sp > 1 or _on_cpu(self.drafter))

    def drafting_can_cost(self, mode: str, sp: int) -> bool:
        """Whether plain decoding may be the faster way; never where each has its own hardware."""
        if getattr(self.target, "own_hardware", False):
            return False
        return mode == "si" or self.forwards_compete(mode, sp)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The target's end-of-sequence ids."""
        return tuple(getattr(self.target, "eos_ids", ()) or ())

    def byte_table(self) -> list[bytes] | None:
        """id -> bytes; None without a tokenizer."""
        return None if self.tokenizer is None else _byte_table(self.tokenizer, self.vocab_size)

    def token_bytes(self) -> _core.TokenBytes:
        """The same in native memory. Raises InvalidArgument without a tokenizer."""
        if self.tokenizer is None:
            raise InvalidArgument("stop: stop strings need a tokenizer, and this target has none")
        return _native_bytes(self.tokenizer, self.vocab_size)


def name_of(model: Any) -> str:
    """What messages call it."""
    return str(getattr(model, "name", None) or type(model).__name__)


def _on_cpu(model: Any) -> bool:
    """Whether it is a torch model on the CPU of this process."""
    return getattr(getattr(model, "device", None), "type", "") == "cpu"


@contextlib.contextmanager
def _naming(argument: str) -> Iterator[None]:
    """Models know what is wrong with them, not which argument they are."""
    try:
        yield
    except InvalidArgument as error:
        if str(error).startswith(f"{argument}: "):
            raise
        raise InvalidArgument(f"{argument}: {error}") from error


# By object: tokenizers are not hashable by content, and a pipeline has few of them.
@functools.lru_cache(maxsize=8)
def _byte_table(tokenizer: Any, vocab_size: int) -> list[bytes]:
    from dsi_native.vocab.bytes import token_bytes

    return token_bytes(tokenizer, vocab_size)


@functools.lru_cache(maxsize=8)
def _native_bytes(tokenizer: Any, vocab_size: int) -> _core.TokenBytes:
    return _core.TokenBytes(_byte_table(tokenizer, vocab_size))


def open_pair(
    target: Any,
    drafter: Any,
    *,
    dtype: Any,
    device: Any,
    tokenizer: Any,
    cache_budget_bytes: int | None,
    method: str,
    devices: Any = None,
    sp: int = 1,
) -> Pair:
    """Loads what is named, and finds out how the two vocabularies relate.

    devices: where `sp` target servers and the drafter are to be, see models.placement.
    Raises InvalidArgument naming `target`, `drafter`, `method` or `devices`.
    """
    from dsi_native.models.load import load_model

    check_method(method)

    with _naming("target"):
        model = load_model(target, dtype=dtype, device=device)
        if getattr(model, "vocab_size", None) is None:
            raise InvalidArgument(f"{name_of(model)} has no vocab_size, the width of its rows")
    own = tokenizer if tokenizer is not None else getattr(model, "tokenizer", None)
    with _naming("drafter"):
        other = _open_drafter(drafter, model, dtype, device)
    if devices is not None:
        from dsi_native.models.placement import device_list, place

        places = device_list(devices)
        if places is not None:
            model, other = place(model, other, places, sp)
    if cache_budget_bytes is not None and hasattr(model, "cache_budget_bytes"):
        model.cache_budget_bytes = cache_budget_bytes
    with _naming("drafter"):
        return Pair(model, other, own, _translation(model, own, other, method))


def _open_drafter(drafter: Any, target: Any, dtype: Any, device: Any) -> Any:
    if drafter is None or drafter == "none":
        return None
    if drafter == "lookup":
        return PromptLookup()
    if isinstance(drafter, str) and drafter in ("int4", "int8"):
        from dsi_native.models.quantised import quantised_copy

        if not hasattr(target, "model"):
            raise InvalidArgument(
                f"{drafter!r} is a copy of a transformers target, and {name_of(target)} is none"
            )
        return quantised_copy(target, bits=int(drafter[3:]))
    if callable(drafter) and not hasattr(drafter, "servers") and not hasattr(drafter, "config"):
        return CallableDrafter(drafter)
    from dsi_native.models.load import load_model

    try:
        model = load_model(drafter, dtype=dtype, device=device)
    except InvalidArgument as error:
        if isinstance(drafter, str) and not Path(drafter).expanduser().exists():
            raise InvalidArgument(
                f"{error}; drafters by name are int4, int8, lookup, none"
            ) from None
        raise
    return model


def _translation(target: Any, tokenizer: Any, drafter: Any, method: str) -> Translation | None:
    """What stands between two vocabularies; None where ids mean the same.

    Padded rows may differ in width. A method that was asked for by name is used in any case.
    """
    if getattr(drafter, "vocab_size", None) is None:
        return None
    sources = _vocabulary_of(target, tokenizer), _vocabulary_of(drafter, None)
    if None in sources:
        if target.vocab_size == drafter.vocab_size and method == "auto":
            return None
        raise InvalidArgument(
            f"{name_of(drafter)} and the target {name_of(target)} have {drafter.vocab_size} and "
            f"{target.vocab_size} ids; to translate between them both need a tokenizer"
        )
    if method == "auto" and _same_tokens(*sources):
        return None
    from dsi_native.vocab.open import open_vocabulary

    ours, theirs = (
        open_vocabulary(
            source, name_of(model), model.vocab_size, tuple(getattr(model, "eos_ids", ()) or ())
        )
        for source, model in zip(sources, (target, drafter), strict=True)
    )
    made = Translation(
        ours,
        theirs,
        target_width=target.vocab_size,
        drafter_width=drafter.vocab_size,
        opening=opening_of(sources[1]),
        method=method,
    )
    return None if made.map.shares_ids and method == "auto" else made


def _vocabulary_of(model: Any, tokenizer: Any) -> Any:
    """Something to open a vocabulary from; None where there is nothing."""
    named = getattr(model, "vocabulary", None)
    if named is not None:
        return named
    return tokenizer if tokenizer is not None else getattr(model, "tokenizer", None)


def _same_tokens(ours: Any, theirs: Any) -> bool:
    """Whether two tokenizers of transformers name the same ids."""
    if ours is theirs:
        return True
    named = hasattr(ours, "get_vocab") and hasattr(theirs, "get_vocab")
    return named and ours.get_vocab() == theirs.get_vocab()
