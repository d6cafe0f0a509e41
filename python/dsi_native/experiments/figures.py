"""What all pictures have in common. Needs matplotlib, the extra [plots]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsi_native.errors import Error

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """An empty figure that belongs to the caller: no window, no state that other plots share.

    Raises Error where matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Error("pictures need matplotlib: pip install 'dsi-native[plots]'") from error
    return Figure(figsize=(width_inches, height_inches), dpi=120, layout="constrained")
