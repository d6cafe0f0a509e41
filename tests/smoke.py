"""What a fresh install of the wheel can do with numpy alone. Run outside the checkout.

Asserts the base install's promises: no framework, a working decode loop, `dsi` naming its extra.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np

import dsi_native as dsi

VOCAB_SIZE = 50


def forward(tokens: np.ndarray, start: int) -> np.ndarray:
    """The law of each next token depends on the token before it only."""
    return np.stack([np.random.default_rng(int(t)).normal(size=VOCAB_SIZE) for t in tokens])


def follow(tokens: np.ndarray, max_drafts: int) -> list[int]:
    """Drafts that are right: the argmax, again and again."""
    drafts = [int(tokens[-1])]
    for _ in range(max_drafts):
        drafts.append(int(forward(np.array(drafts[-1:]), 0)[0].argmax()))
    return drafts[1:]


def main() -> None:
    """Raises AssertionError where a promise is broken."""
    for name in ("torch", "transformers", "typer"):
        assert importlib.util.find_spec(name) is None, f"{name} came with the base install"
    assert Path(dsi.__file__).is_relative_to(sys.prefix), dsi.__file__

    expected = follow(np.array([7]), 24)
    for mode in ("non-si", "si", "dsi"):
        target = dsi.CallableModel(factory=lambda: forward, vocab_size=VOCAB_SIZE)
        with dsi.Engine(target, follow, sp=2, lookahead=2, mode=mode) as engine:
            out = engine.generate([7], max_new_tokens=24)
            sampled = engine.generate([7], max_new_tokens=24, temperature=0.8, seed=1)
        assert out.tokens == expected, (mode, out.tokens, expected)
        if mode == "non-si":
            reference = sampled.tokens
        assert sampled.tokens == reference, (mode, sampled.tokens, reference)

    script = Path(sys.executable).with_name("dsi")
    done = subprocess.run([script], capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1 and 'pip install "dsi-native[cli]"' in done.stderr
    print(f"dsi_native {dsi.__version__} works with numpy {np.__version__} alone")


if __name__ == "__main__":
    main()
