"""How often drafts are right, from what was counted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from dsi_native.experiments.measurement import Acceptance

_WILSON_Z = 1.959964  # 95 %


def acceptance_of(hits: Sequence[str]) -> Acceptance:
    """From letters of `measurement.HITS`, a string per prompt.

    direct: of the drafts judged behind a prefix that is the target's, those that were right, with
    Wilson's interval for independent drafts. geometric: 1 - 1/(1+n), n the mean number of drafts
    accepted before one is not (the end of a prompt counts as that), as arXiv 2405.14105 fits it.
    """
    accepted = sum(letters.count("1") for letters in hits)
    judged = accepted + sum(letters.count("0") for letters in hits)
    streaks = []
    for letters in hits:
        ended = letters.replace("?", "").replace("-", "").split("0")
        streaks += [len(streak) for streak in ended[:-1]] + [len(ended[-1])] * bool(ended[-1])
    mean = statistics.mean(streaks) if streaks else 0.0
    direct = accepted / judged if judged else 0.0
    low, high = wilson(accepted, judged)
    return Acceptance(
        direct=direct,
        low=min(low, direct),
        high=max(high, direct),
        judged=judged,
        geometric=1 - 1 / (1 + mean),
        hits=tuple(hits),
    )


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a probability, (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    share, z = successes / trials, _WILSON_Z
    centre = share + z * z / (2 * trials)
    width = z * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    scale = 1 + z * z / trials
    low = 0.0 if successes == 0 else (centre - width) / scale
    high = 1.0 if successes == trials else (centre + width) / scale
    return low, high


__all__ = ["acceptance_of", "wilson"]
