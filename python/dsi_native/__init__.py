"""Distributed speculative inference: lossless decoding that overlaps drafting and verification.

    import dsi_native as dsi
    with dsi.Engine(target, drafter, sp=2) as engine:
        print(engine.generate("Why is the sky blue?", max_new_tokens=64).text)

Importing this package imports neither torch nor transformers; names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dsi_native._core import __version__
from dsi_native.errors import (
    Cancelled,
    Closed,
    CudaError,
    EngineFailed,
    Error,
    InvalidArgument,
    RequestFailed,
)

if TYPE_CHECKING:
    from dsi_native import hf as hf
    from dsi_native.drafters import CallableDrafter as CallableDrafter
    from dsi_native.drafters import PromptLookup as PromptLookup
    from dsi_native.engine import Engine as Engine
    from dsi_native.models.callable import CallableModel as CallableModel
    from dsi_native.models.load import load_model as load_model
    from dsi_native.models.quantised import quantised_copy as quantised_copy
    from dsi_native.models.transformers import TransformersModel as TransformersModel
    from dsi_native.planning import PlanRow as PlanRow
    from dsi_native.planning import plan as plan
    from dsi_native.request import Request as Request
    from dsi_native.results import Output as Output
    from dsi_native.results import Statistics as Statistics
    from dsi_native.simulated import SimulatedModel as SimulatedModel

_LAZY = {
    "CallableDrafter": "dsi_native.drafters",
    "CallableModel": "dsi_native.models.callable",
    "Engine": "dsi_native.engine",
    "Output": "dsi_native.results",
    "PlanRow": "dsi_native.planning",
    "PromptLookup": "dsi_native.drafters",
    "Request": "dsi_native.request",
    "SimulatedModel": "dsi_native.simulated",
    "Statistics": "dsi_native.results",
    "TransformersModel": "dsi_native.models.transformers",
    "load_model": "dsi_native.models.load",
    "plan": "dsi_native.planning",
    "quantised_copy": "dsi_native.models.quantised",
}

__all__ = [
    "Cancelled",
    "Closed",
    "CudaError",
    "EngineFailed",
    "Error",
    "InvalidArgument",
    "RequestFailed",
    "__version__",
    "hf",
    *sorted(_LAZY),
]


def __getattr__(name: str) -> Any:
    if name == "hf":
        return importlib.import_module("dsi_native.hf")
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'dsi_native' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
