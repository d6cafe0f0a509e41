"""Files that a command writes: looked at before the work, not after it."""

from __future__ import annotations

import os
from pathlib import Path

from dsi_native.errors import InvalidArgument


def check_output(option: str, path: Path, endings: tuple[str, ...] = ()) -> None:
    """Raises InvalidArgument naming the option where `path` has another ending, or no place.

    Raises Error where it is to be a picture and matplotlib is missing.
    """
    if endings and path.suffix.lower() not in endings:
        raise InvalidArgument(f"{option} must end in {', '.join(endings)}, not {str(path)!r}")
    place = path if path.exists() else path.parent
    if path.is_dir() or not path.parent.is_dir() or not os.access(place, os.W_OK):
        raise InvalidArgument(f"{option}: {path} cannot be written")
    if path.suffix.lower() in (".png", ".svg"):
        from dsi_native.experiments.figures import new_figure

        new_figure(1, 1)


__all__ = ["check_output"]
