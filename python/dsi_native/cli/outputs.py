"""What commands have in common: where they print, and files looked at before the work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from dsi_native.errors import InvalidArgument


def console(stderr: bool = False) -> Console:
    """Prints text as it is: names and paths of users may look like markup, or like an emoji's."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


@contextlib.contextmanager
def naming(option: str) -> Iterator[None]:
    """Puts the option in front of what an InvalidArgument says about its file."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(f"{option}: {error}") from None


def check_output(option: str, path: Path, endings: tuple[str, ...] = ()) -> None:
    """Raises InvalidArgument naming the option where `path` has another ending, or no place.

    Raises Error where it is to be a picture and matplotlib is missing.
    """
    if endings and path.suffix.lower() not in endings:
        raise InvalidArgument(f"{option} must end in {', '.join(endings)}, not {str(path)!r}")
    try:
        place = path if path.exists() else path.parent
        fits = not path.is_dir() and path.parent.is_dir() and os.access(place, os.W_OK)
    except (OSError, ValueError):  # a name that is too long; a NUL
        fits = False
    if not fits:
        raise InvalidArgument(f"{option}: {path} cannot be written")
    if path.suffix.lower() in (".png", ".svg"):
        from dsi_native.experiments.figures import new_figure

        new_figure(1, 1)


def check_outputs(paths: list[Path], endings: tuple[str, ...]) -> None:
    """Of --output, which may be given several times, but with another file each time."""
    for number, path in enumerate(paths):
        check_output("--output", path, endings)
        if path in paths[:number]:
            raise InvalidArgument(f"--output: {path} is given twice")


__all__ = ["check_output", "check_outputs", "console", "naming"]
