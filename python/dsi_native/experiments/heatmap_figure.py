"""The picture of a heatmap: four panels of speedups, pink where the other way is faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dsi_native.experiments.figures import new_figure
from dsi_native.experiments.heatmap import PANELS, ROUNDING, Heatmap, slower_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SLOWER = "#ff7fbf"
_WIDE = 4.0  # speedups beyond this are shown on a logarithmic scale


def draw(heatmap: Heatmap) -> Figure:
    """Figure with the drafter's latency to the right and the acceptance upwards."""
    figure = new_figure(10.0, 8.6)
    grid = heatmap.grid
    figure.suptitle(
        f"Speedup over drafter latency and acceptance: {grid.tokens} tokens, SP = {grid.sp}, "
        f"best lookahead up to {grid.max_lookahead}, mean of {grid.repeats}",
        fontsize=11,
    )
    for axes, name in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        speedups = heatmap.panel(name)
        slower = slower_share(speedups)
        note = f"slower in {100 * slower:.1f} % of cells (pink)" if slower else "never slower"
        axes.set_title(f"({name}) {PANELS[name]}\nup to {speedups.max():.2f}x, {note}", fontsize=10)
        axes.set_xlabel("drafter forward / target forward")
        axes.set_ylabel("acceptance rate")
        _panel(figure, axes, heatmap, speedups)
    return figure


def _panel(figure: Figure, axes: Axes, heatmap: Heatmap, speedups: np.ndarray) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    is_slower = speedups < 1 - ROUNDING
    speedups = np.where(is_slower, speedups, np.maximum(speedups, 1))
    colours = colormaps["viridis"].with_extremes(under=_SLOWER)
    most = max(float(speedups.max()), 1.05)
    wide = most > _WIDE
    norm = LogNorm(1, most) if wide else Normalize(1, most)
    mesh = axes.pcolormesh(
        _edges(heatmap.grid.drafter_latencies),
        _edges(heatmap.grid.acceptances),
        speedups.T,
        cmap=colours,
        norm=norm,
        rasterized=True,  # an SVG with a path for each of 10,100 cells opens slowly
    )
    bar = figure.colorbar(mesh, ax=axes, extend="min" if is_slower.any() else "neither")
    if wide:
        ticks = [x for x in (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200) if x <= most]
        bar.ax.yaxis.set_major_locator(FixedLocator(ticks))
        bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}x"))


def _edges(centres: tuple[float, ...]) -> np.ndarray:
    """Borders of cells around `centres`, which rise; a single one gets a width of 0.01."""
    middle = np.asarray(centres)
    if len(middle) == 1:
        return np.array([middle[0] - 0.005, middle[0] + 0.005])
    between = (middle[1:] + middle[:-1]) / 2
    first, last = 2 * middle[0] - between[0], 2 * middle[-1] - between[-1]
    return np.concatenate([[first], between, [last]])
