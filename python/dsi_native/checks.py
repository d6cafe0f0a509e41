"""Checks of what callers pass. Each returns the value as a plain Python type, so that it can be
hashed, kept and written as JSON, and raises InvalidArgument naming the argument."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import numpy as np

from dsi_native.errors import InvalidArgument

Kind = TypeVar("Kind")


def whole(name: str, value: Any, low: int = 1, high: int | None = None) -> int:
    """A whole number of any type, in low..high; True is none."""
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None:
        raise InvalidArgument(f"{name} must be a whole number, not {value!r}")
    if found < low:
        raise InvalidArgument(f"{name} must be at least {low}, not {found}")
    if high is not None and found > high:
        raise InvalidArgument(f"{name} must be at most {high}, not {found}")
    return found


def seed_of(value: Any, name: str = "seed") -> int:
    """In 0..2**64-1."""
    try:
        return whole(name, value, 0, 2**64 - 1)
    except InvalidArgument:
        raise InvalidArgument(f"{name} must be in 0..2**64-1, not {value!r}") from None


def number(name: str, value: Any) -> float:
    """A number of any type, NaN and infinity among them; True is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidArgument(f"{name} must be a number, not {value!r}")
    return float(value)


def probability(name: str, value: Any) -> float:
    found = number(name, value)
    if not 0 <= found <= 1:
        raise InvalidArgument(f"{name} must be between 0 and 1, not {found}")
    return found


def flag(name: str, value: Any) -> bool:
    """True or False, also NumPy's."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidArgument(f"{name} must be True or False, not {value!r}")
    return bool(value)


def listed(name: str, value: Any) -> list[Any]:
    """The elements of a sequence; a text is none."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{name} must be a sequence, not {value!r}")
    return list(value)


def choice(name: str, value: Any, among: Collection[str]) -> str:
    if not isinstance(value, str) or value not in among:
        raise InvalidArgument(f"{name} must be one of {', '.join(among)}, not {value!r}")
    return value


def instance(name: str, value: Any, kind: type[Kind]) -> Kind:
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise InvalidArgument(f"{name} must be {article} {kind.__name__}, not {value!r}")
    return value


__all__ = ["choice", "flag", "instance", "listed", "number", "probability", "seed_of", "whole"]
