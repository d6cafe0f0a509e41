"""Twelve prompts that come with the package: code, prose, and edits, whose answers repeat much."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dsi_native.errors import InvalidArgument

# One of each kind before the second of any, so that a few prompts are a fair sample.
_KINDS = ("code", "prose", "edit")


@dataclass(frozen=True)
class Prompt:
    """kind: code, prose or edit."""

    name: str
    kind: str
    text: str


def built_in_prompts(count: int | None = None) -> list[Prompt]:
    """The first `count` (None: all) of twelve, the kinds taking turns.

    Raises InvalidArgument where there are not so many.
    """
    by_kind: dict[str, list[Prompt]] = {kind: [] for kind in _KINDS}
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith(".txt")]
    for file in sorted(files, key=lambda file: file.name):
        name = file.name.removesuffix(".txt")
        kind = name.split("_", 1)[0]
        by_kind[kind].append(Prompt(name, kind, file.read_text(encoding="utf-8").strip()))
    found = [prompt for turn in zip(*by_kind.values(), strict=True) for prompt in turn]
    if count is not None and not 1 <= count <= len(found):
        raise InvalidArgument(f"prompts: there are 1 to {len(found)}, not {count}")
    return found[:count]


def read_prompts(path: str | os.PathLike[str]) -> list[str]:
    """The prompts of a file: a JSON list of texts (name.json), or one in each line.

    Empty lines are left out. Raises InvalidArgument naming the file.
    """
    name = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
        found = json.loads(text) if name.endswith(".json") else text.splitlines()
    except OSError as error:
        raise InvalidArgument(f"prompts: {name}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidArgument(f"prompts: {name}: {error}") from None
    if not isinstance(found, list) or not all(isinstance(prompt, str) for prompt in found):
        raise InvalidArgument(f"prompts: {name}: must be a list of texts")
    prompts = [prompt for prompt in found if prompt.strip()]
    if not prompts:
        raise InvalidArgument(f"prompts: {name}: has none")
    return prompts


__all__ = ["Prompt", "built_in_prompts", "read_prompts"]
