"""The prompts of bench/prompts and the rows of bench/data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_BENCH = Path(__file__).resolve().parents[2]
# One of each kind before the second of any, so that a few prompts are a fair sample.
_KINDS = ("code", "prose", "edit")


@dataclass(frozen=True)
class Prompt:
    """One prompt of bench/prompts; kind is prose, code or edit (much of the answer repeats it)."""

    name: str
    kind: str
    text: str

    def ids(self, tokenizer: Any) -> np.ndarray:
        """int32 [n], as a chat through the tokenizer's template."""
        messages = [{"role": "user", "content": self.text}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
        return np.asarray(ids["input_ids"] if hasattr(ids, "keys") else ids, dtype=np.int32)


def prompts(count: int) -> list[Prompt]:
    """The first `count` of twelve, the kinds taking turns."""
    by_kind: dict[str, list[Prompt]] = {kind: [] for kind in _KINDS}
    for path in sorted((_BENCH / "prompts").glob("*.txt")):
        kind = path.stem.split("_", 1)[0]
        by_kind[kind].append(Prompt(path.stem, kind, path.read_text().strip()))
    rounds = zip(*by_kind.values(), strict=True)
    found = [prompt for turn in rounds for prompt in turn]
    if not 1 <= count <= len(found):
        raise SystemExit(f"--prompts: there are 1 to {len(found)}, not {count}")
    return found[:count]


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
