"""Models that wait instead of computing: what the scheduler itself costs, without a GPU."""

from __future__ import annotations

from typing import Any

from dsi_native import _core


class SimulatedModel:
    """A target or a drafter whose forward is a precise wait, in native code.

    tpot_s, ttft_s: seconds of a forward, and of the first one of a request (default: the same).
    acceptance: as a drafter, the probability that a draft is right; whether the draft at a position
        is right depends on (seed, position) only. Target and drafter need the same seed.
    growth: each judged draft makes a target forward longer by this share of tpot_s.
    jitter: each forward is scaled by a factor uniform in [1-jitter, 1+jitter].
    stoppable: whether a forward whose result is not needed ends early.
    """

    vocab_size = 50000
    context = None
    tokenizer = None
    eos_ids: tuple[int, ...] = ()
    own_hardware = True  # servers do not slow each other down, so each prefills the prompt itself

    def __init__(
        self,
        tpot_s: float,
        *,
        ttft_s: float = 0.0,
        acceptance: float = 0.0,
        seed: int = 0,
        growth: float = 0.0,
        jitter: float = 0.0,
        stoppable: bool = True,
    ) -> None:
        self.name = f"simulated ({tpot_s * 1e3:g} ms)"
        self._server = _core.SimulatedServer(
            tpot_s, ttft_s, acceptance, seed, growth, jitter, stoppable
        )

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        """n equal servers; `threads` means nothing here."""
        return [self._server] * n
