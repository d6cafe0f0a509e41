"""Text of an engine whose models are on the device: what the same models say on the CPU.

In fp32, where rounding turns hardly any token; only tokens come from the device, see DeviceJudge.
"""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "coupled": {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.2, "logprobs": 0},
    "min tokens": {"temperature": 1.0, "stop_ids": list(range(40)), "min_new_tokens": 8},
    "rejection": {"temperature": 0.8, "top_k": 100, "verification": "rejection"},
}
PROMPT = [3, 1, 4, 1, 5]


def check(device: str, dry: bool) -> dict[str, Any]:
    """Without the native module or transformers there is no engine, and nothing is checked."""
    missing = [name for name in ("dsi_native._core", "transformers") if not _there(name)]
    if missing:
        return {"skipped": f"needs {', '.join(missing)}", "failures": []}
    from tiny import tiny_drafter, tiny_target

    target = tiny_target()
    drafter = tiny_drafter(target, 0.05)
    there = copy.deepcopy(target).to(device), copy.deepcopy(drafter).to(device)
    failures, tokens = [], 0
    for name, sampling in list(SETTINGS.items())[:1] if dry else SETTINGS.items():
        # In SI windows depend on nothing but the tokens: rejection too gives one text for a seed.
        for mode in ("si",) if dry or name == "rejection" else ("si", "dsi"):
            for seed in range(1 if dry else 4):
                settings = sampling | {"seed": seed, "max_new_tokens": 4 if dry else 48}
                wanted = _tokens(target, drafter, mode, False, settings)
                given = _tokens(*there, mode, True, settings)
                tokens += len(wanted)
                if given != wanted:
                    at = sum(a == b for a, b in zip(given, wanted, strict=False))
                    failures.append(f"{name}, {mode}, seed {seed}: {at} of {len(wanted)} agree")
    return {"tokens": tokens, "failures": failures}


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _tokens(target: Any, drafter: Any, mode: str, on_device: bool, sampling: Any) -> list[int]:
    import dsi_native as dsi
    from dsi_native.models.transformers import TransformersModel

    models = [TransformersModel(model, judge_on_device=on_device) for model in (target, drafter)]
    with dsi.Engine(*models, mode=mode, sp=2, lookahead=3, threads=1) as engine:
        return engine.generate(PROMPT, **sampling).tokens
