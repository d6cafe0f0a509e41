"""The experiments of arXiv 2405.14105 on the Session that decodes; pictures: docs/experiments.md.

simulate: one configuration (`Configuration`, `Latency`), non-SI, SI or DSI. heatmap: Figure 2.
table: Table 2. timeline: Figure 1. measure, predict: real models, and what to expect of them.
simulate_drafters: Algorithm 1 with several drafters. Nothing here needs torch until `measure` is
given a model; pictures need matplotlib, the extra [plots].
"""

from dsi_native.experiments.configuration import (
    Configuration,
    DrafterSlowerThanTargetError,
    Latency,
    NumOfTargetServersInsufficientError,
)
from dsi_native.experiments.heatmap import Grid, Heatmap, heatmap
from dsi_native.experiments.measure import measure
from dsi_native.experiments.measurement import Measurement
from dsi_native.experiments.multi import DrafterSpec, DraftersResult, simulate_drafters
from dsi_native.experiments.paper import PaperRow, paper_rows
from dsi_native.experiments.predict import Prediction, predict
from dsi_native.experiments.run import Run, simulate
from dsi_native.experiments.table import Table, table
from dsi_native.experiments.timeline import Timeline, timeline

__all__ = [
    "Configuration",
    "DrafterSlowerThanTargetError",
    "DrafterSpec",
    "DraftersResult",
    "Grid",
    "Heatmap",
    "Latency",
    "Measurement",
    "NumOfTargetServersInsufficientError",
    "PaperRow",
    "Prediction",
    "Run",
    "Table",
    "Timeline",
    "heatmap",
    "measure",
    "paper_rows",
    "predict",
    "simulate",
    "simulate_drafters",
    "table",
    "timeline",
]
