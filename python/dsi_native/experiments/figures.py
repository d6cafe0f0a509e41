"""What all pictures have in common. Needs matplotlib, the extra [plots]."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from dsi_native import files
from dsi_native.errors import Error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Told apart by readers of every kind of colour vision, and in grey (Okabe and Ito's palette).
BLUE, ORANGE, PURPLE, GREY = "#0072b2", "#e69f00", "#cc79a7", "#8c8c8c"
BLACK, PALE = "#1a1a1a", "#e6e6e6"


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """An empty figure that belongs to the caller: no window, no state that other plots share.

    Raises Error where matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Error("pictures need matplotlib: pip install 'dsi-native[plots]'") from error
    return Figure(figsize=(width_inches, height_inches), dpi=120, layout="constrained")


def write_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a .png or .svg, the same bytes each time. Raises InvalidArgument where it cannot."""
    from matplotlib import rc_context

    svg = os.fspath(path).lower().endswith(".svg")
    picture = io.BytesIO()
    # Text stays text, so that it can be searched and copied.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "dsi_native"}):
        figure.savefig(picture, format="svg" if svg else "png", facecolor="white",
                       metadata={"Date": None} if svg else None)  # fmt: skip
    files.write(path, picture.getvalue())


def png_bytes(figure: Figure) -> bytes:
    """For notebooks."""
    file = io.BytesIO()
    figure.savefig(file, format="png", facecolor="white")
    return file.getvalue()
