"""The prompts that the package ships and the rows of bench/data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsi_native.errors import InvalidArgument
from dsi_native.experiments import prompts as prompts_of_package

_BENCH = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Prompt(prompts_of_package.Prompt):
    """One of the package's prompts; of kind "edit": much of the answer repeats it."""

    def ids(self, tokenizer: Any) -> np.ndarray:
        """int32 [n], as a chat through the tokenizer's template."""
        messages = [{"role": "user", "content": self.text}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
        return np.asarray(ids["input_ids"] if hasattr(ids, "keys") else ids, dtype=np.int32)


def prompts(count: int) -> list[Prompt]:
    """The first `count` of twelve, the kinds taking turns."""
    try:
        found = prompts_of_package.built_in_prompts(count)
    except InvalidArgument as error:
        raise SystemExit(f"--{error}") from None
    return [Prompt(**vars(prompt)) for prompt in found]


@dataclass(frozen=True)
class PaperRow:
    """One configuration of the paper. Latencies in seconds, TPOT; ratios are TTFT over TPOT."""

    name: str
    target_s: float
    drafter_s: float
    acceptance: float
    target_ttft_ratio: float
    drafter_ttft_ratio: float


def paper_rows() -> list[PaperRow]:
    """The ten rows of arXiv 2405.14105v5, Tables 2 and 3."""
    content = json.loads((_BENCH / "data" / "paper_rows.json").read_text())
    return [
        PaperRow(
            f"{row['target']}, {row['dataset']}",
            row["target_ms"] * 1e-3,
            row["drafter_ms"] * 1e-3,
            row["acceptance"],
            row["target_ttft_ratio"],
            row["drafter_ttft_ratio"],
        )
        for row in content["rows"]
    ]
