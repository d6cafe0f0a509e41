"""What non-SI, SI and DSI will cost on the machine of a measurement."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from dsi_native import _core, checks
from dsi_native.experiments.configuration import MOST_SERVERS, MOST_TOKENS
from dsi_native.experiments.measurement import Measurement
from dsi_native.experiments.replay import Replay, Setting

LOOKAHEADS = (*range(1, 13), 16, 20, 26, 32)
# Requests of a measurement that has only an acceptance, no drafts of its own.
_INVENTED = 16


@dataclass(frozen=True)
class Prediction:
    """A mode's cost, the mean over the prompts of a measurement.

    drafter: name, None in non-SI. lookahead: 0 where there is none. ms_per_token: of whole
    requests, first token included.
    """

    mode: str
    drafter: str | None
    lookahead: int
    sp: int
    tokens: int
    ms_per_token: float
    first_token_ms: float

    @property
    def setting(self) -> Setting:
        return Setting(self.mode, max(1, self.lookahead), self.sp)

    @property
    def total_ms(self) -> float:
        return self.tokens * self.ms_per_token


def predict(
    measurement: Measurement,
    drafter: int = 0,
    *,
    sp: int | None = None,
    lookahead: int | None = None,
    tokens: int | None = None,
) -> list[Prediction]:
    """non-SI, SI and DSI, from a replay of the measured prompts.

    sp: target servers of DSI; None: as many as overlapped in the measurement, and with hardware of
    their own as many as can help, ceil(T/d). lookahead: of SI and DSI; None: each takes its best.
    tokens: of a request, None: as measured. Raises InvalidArgument naming the argument.
    """
    checks.instance("measurement", measurement, Measurement).drafter(drafter)
    sp = checks.whole("sp", default_sp(measurement, drafter) if sp is None else sp,
                      high=MOST_SERVERS)  # fmt: skip
    if lookahead is not None:
        lookahead = checks.whole("lookahead", lookahead, high=MOST_TOKENS)
    if tokens is not None:
        tokens = checks.whole("tokens", tokens, high=MOST_TOKENS)
    lookaheads = LOOKAHEADS if lookahead is None else (lookahead,)
    found = [predict_one(measurement, drafter, Setting("non-si"), tokens)]
    for mode, servers in (("si", 1), ("dsi", sp)):
        settings = [Setting(mode, k, servers) for k in lookaheads]
        rows = [predict_one(measurement, drafter, setting, tokens) for setting in settings]
        found.append(min(rows, key=lambda row: row.ms_per_token))
    return found


def predict_one(
    measurement: Measurement, drafter: int, setting: Setting, tokens: int | None = None
) -> Prediction:
    """One way to decode, replayed."""
    new = measurement.tokens if tokens is None else tokens
    total = first = 0.0
    drafts = _drafts(measurement, drafter, new)
    for prompt, hits in enumerate(drafts):
        replay = Replay(measurement, drafter, setting, prompt, hits, new)
        total += replay.run()
        first += replay.first_token_ms
    plain = setting.mode == "non-si"
    return Prediction(
        mode=setting.mode,
        drafter=None if plain else measurement.drafter(drafter).name,
        lookahead=0 if plain else setting.lookahead,
        sp=setting.sp,
        tokens=new,
        ms_per_token=total / len(drafts) / new,
        first_token_ms=first / len(drafts),
    )


def default_sp(measurement: Measurement, drafter: int = 0) -> int:
    """Target servers where nobody says how many."""
    if measurement.contention is not None:
        return max((s.targets for s in measurement.contention.slowdown), default=1)
    target, draft = measurement.target.tpot_ms, measurement.drafter(drafter).tpot_ms
    return min(_core.most_useful_sp(target, draft), math.ceil(target), measurement.tokens)


def _drafts(measurement: Measurement, drafter: int, tokens: int) -> list[str]:
    """Letters of what the drafter does, by prompt; what was not seen is drawn, always alike."""
    of = measurement.drafter(drafter).acceptance
    made = of.of_positions / of.direct if of.direct else 1.0
    known = of.hits or ("",) * _INVENTED
    found = []
    for seed, hits in enumerate(known):
        draw = random.Random(seed)
        drawn = (
            ("1" if draw.random() < of.direct else "0") if draw.random() < made else "-"
            for _ in range(tokens)
        )
        pairs = zip(hits[:tokens].ljust(tokens, "?"), drawn, strict=True)
        found.append("".join(other if letter == "?" else letter for letter, other in pairs))
    return found


__all__ = ["LOOKAHEADS", "Prediction", "default_sp", "predict", "predict_one"]
