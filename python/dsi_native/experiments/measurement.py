"""What `dsi measure` found out about real models: a JSON that the other experiments start from.

Times in milliseconds. One object:

    format, version     "dsi-measurement", 1
    target              name, tpot_ms, ttft_ms, growth; tpots_ms, ttfts_ms: of each prompt, of
                        which those are the medians; windows: [[drafts judged, ms of such a
                        forward], ...], from which growth is fitted: each judged draft adds growth *
                        tpot_ms. All as the decode loop pays them, judging included
    drafters            of each: name, the same of one draft (growth: by a further token that the
                        drafter has not seen), and acceptance:
                        direct, with its 95 % interval low..high from `judged` drafts; geometric
                        (1 - 1/(1+n), n the mean number of drafts accepted in a row, arXiv
                        2405.14105); hits: a string per prompt, a letter per new token: 1 the draft
                        for it was right, 0 wrong, - none was made, ? it was not looked at
    shared_hardware     whether all servers run on this machine's cores or on one device
    stoppable           whether a target forward whose result is not needed ends early
    prompts             source; tokens: length of each
    tokens              new tokens of each prompt
    threads             of each forward where models take turns (non-SI, SI); 0: not said
    overhead_ms         of a non-SI token: what is not forward (judging, scheduling)
    contention          null, or what forwards cost that overlap on shared hardware (DSI): threads
                        of each; target and drafters: as above with so many threads, alone;
                        slowdown: [{targets, drafter, target_factor, drafter_factor}, ...]: by how
                        much each is slower while so many target forwards and this drafter (its
                        index; null: none) run at once
    machine             whatever identifies it
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from dsi_native import checks, files
from dsi_native.errors import InvalidArgument
from dsi_native.experiments.configuration import Configuration, Latency

FORMAT = "dsi-measurement"
VERSION = 1
HITS = "10-?"


@dataclass(frozen=True)
class MeasuredLatency:
    """Forwards of one model. windows: (drafts judged, ms), in order of the drafts, or none."""

    tpot_ms: float
    ttft_ms: float
    growth: float = 0.0
    tpots_ms: tuple[float, ...] = ()
    ttfts_ms: tuple[float, ...] = ()
    windows: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("tpot_ms", "ttft_ms"):
            _require(getattr(self, name) > 0, name, "must be positive", getattr(self, name))
        _require(self.growth >= 0, "growth", "must be at least 0", self.growth)
        drafts = [window for window, _ in self.windows]
        in_order = all(a < b for a, b in itertools.pairwise(drafts))
        positive = all(window >= 0 and ms > 0 for window, ms in self.windows)
        _require(in_order and positive, "windows", "must be rising drafts with times", self.windows)

    def first_ms(self, prompt: int) -> float:
        """The forward with prompt number `prompt`."""
        return self.ttfts_ms[prompt] if prompt < len(self.ttfts_ms) else self.ttft_ms

    def forward_ms(self, window: int) -> float:
        """A forward that judges `window` drafts: between measured windows a straight line."""
        points = self.windows
        if len(points) < 2:
            return self.tpot_ms * (1 + self.growth * window)
        if window >= points[-1][0]:
            return points[-1][1] + self.growth * self.tpot_ms * (window - points[-1][0])
        at = max(1, next(i for i, (drafts, _) in enumerate(points) if drafts > window))
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        return y0 + (y1 - y0) * (window - x0) / (x1 - x0)


@dataclass(frozen=True)
class Acceptance:
    """How often drafts are right. See the fields of this module's JSON."""

    direct: float
    low: float
    high: float
    judged: int
    geometric: float
    hits: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("direct", "low", "high", "geometric"):
            value = getattr(self, name)
            _require(0 <= value <= 1, name, "must be between 0 and 1", value)
        _require(self.low <= self.direct <= self.high, "direct", "must lie in low..high",
                 self.direct)  # fmt: skip
        _require(self.judged >= 0, "judged", "must be at least 0", self.judged)
        _require(set("".join(self.hits)) <= set(HITS), "hits", f"has only {HITS}", self.hits)

    @property
    def of_positions(self) -> float:
        """Share of tokens whose draft is right, where none is made counting as wrong.

        Less than `direct` for drafters that do not always have a draft, such as prompt lookup.
        """
        letters = "".join(self.hits)
        made = letters.count("1") + letters.count("0")
        none = letters.count("-")
        return self.direct * made / (made + none) if made else self.direct


@dataclass(frozen=True)
class MeasuredTarget(MeasuredLatency):
    name: str = field(kw_only=True)


@dataclass(frozen=True)
class MeasuredDrafter(MeasuredLatency):
    name: str = field(kw_only=True)
    acceptance: Acceptance = field(kw_only=True)


@dataclass(frozen=True)
class Slowdown:
    """Factors on forwards while `targets` of them and a drafter's (None: no drafter's) overlap."""

    targets: int
    drafter: int | None
    target_factor: float
    drafter_factor: float = 1.0

    def __post_init__(self) -> None:
        _require(self.targets >= 1, "targets", "must be at least 1", self.targets)
        for name in ("target_factor", "drafter_factor"):
            _require(getattr(self, name) > 0, name, "must be positive", getattr(self, name))


@dataclass(frozen=True)
class Contention:
    """Forwards that overlap on shared hardware: latencies alone, and by how much they slow."""

    threads: int
    target: MeasuredLatency
    drafters: tuple[MeasuredLatency, ...]
    slowdown: tuple[Slowdown, ...] = ()


@dataclass(frozen=True)
class Prompts:
    """source: a file, or "built in". tokens: length of each prompt."""

    source: str = ""
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """What `measure()` gives. Load and save it as JSON; `configuration()` starts an experiment."""

    target: MeasuredTarget
    drafters: tuple[MeasuredDrafter, ...]
    shared_hardware: bool
    prompts: Prompts
    tokens: int
    machine: Mapping[str, Any]
    threads: int = 0
    stoppable: bool = True
    overhead_ms: float = 0.0
    contention: Contention | None = None

    def __post_init__(self) -> None:
        _require(len(self.drafters) > 0, "drafters", "must not be empty", [])
        _require(self.tokens >= 1, "tokens", "must be at least 1", self.tokens)
        if self.contention is not None:
            _require(len(self.contention.drafters) == len(self.drafters), "contention.drafters",
                     "must be as many as drafters", len(self.contention.drafters))  # fmt: skip

    def configuration(self, drafter: int = 0, **changes: Any) -> Configuration:
        """Target and drafter number `drafter` for simulations on hardware of their own.

        changes: other fields of Configuration. Raises InvalidArgument naming the argument.
        """
        chosen = self.drafter(drafter)
        values: dict[str, Any] = {
            "target": self.latency(self.target),
            "drafter": self.latency(chosen),
            "acceptance": chosen.acceptance.of_positions,
            "tokens": self.tokens,
        }
        values.update(changes)
        try:
            return Configuration(**values)
        except TypeError as error:
            raise InvalidArgument(f"configuration: {error}") from None

    def drafter(self, number: int) -> MeasuredDrafter:
        """Drafter `number`, from 0. Raises InvalidArgument where there is none."""
        number = checks.whole("drafter", number, low=-(2**63))
        if not 0 <= number < len(self.drafters):
            names = ", ".join(f"{i} ({d.name})" for i, d in enumerate(self.drafters))
            raise InvalidArgument(f"drafter must be one of {names}, not {number}")
        return self.drafters[number]

    def latency(self, of: MeasuredLatency) -> Latency:
        """The same for a simulation."""
        return Latency(of.tpot_ms, of.ttft_ms, of.growth, stoppable=self.stoppable)

    def to_dict(self) -> dict[str, Any]:
        """The JSON's object."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, content: Any) -> Measurement:
        """Raises InvalidArgument naming the field."""
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InvalidArgument(f'format must be "{FORMAT}": this is no measurement')
        if content.get("version") != VERSION:
            raise InvalidArgument(
                f"version must be {VERSION}, not {content.get('version')!r}; measure anew"
            )
        rest = {k: v for k, v in content.items() if k not in ("format", "version")}
        return _read(cls, rest, "")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the JSON. Raises InvalidArgument where it cannot."""
        files.write(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Measurement:
        """Raises InvalidArgument naming the file, and the field where one is wrong."""
        content = files.read_json(path)
        try:
            return cls.from_dict(content)
        except InvalidArgument as error:
            raise InvalidArgument(f"{os.fspath(path)}: {error}") from None


def short_name(drafter: str, target: str) -> str:
    """A copy of the target by what sets it apart."""
    return drafter.removeprefix(f"{target}-") or drafter


def _require(holds: bool, name: str, rule: str, value: Any) -> None:
    if not holds:
        raise InvalidArgument(f"{name} {rule}, not {value}")


def _read(kind: Any, value: Any, where: str) -> Any:
    """`value` as `kind`: a dataclass of this module, or one of the few types its fields have."""
    if is_dataclass(kind):
        return _read_object(kind, value, where)
    choices = get_args(kind)
    if type(None) in choices:
        other = next(choice for choice in choices if choice is not type(None))
        return None if value is None else _read(other, value, where)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise InvalidArgument(f"{where} must be a list, not {value!r}")
        if choices[-1] is Ellipsis:
            choices = (choices[0],) * len(value)
        if len(choices) != len(value):
            raise InvalidArgument(f"{where} must have {len(choices)} values, not {len(value)}")
        pairs = enumerate(zip(choices, value, strict=True))
        return tuple(_read(choice, item, f"{where}[{i}]") for i, (choice, item) in pairs)
    if get_origin(kind) is Mapping:
        if not isinstance(value, dict):
            raise InvalidArgument(f"{where} must be an object, not {value!r}")
        return value
    return _read_plain(kind, value, where)


def _read_object(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise InvalidArgument(f"{where or 'measurement'} must be an object, not {value!r}")
    prefix = f"{where}." if where else ""
    types = get_type_hints(kind)
    for name in value:
        if name not in types:
            raise InvalidArgument(f"{prefix}{name} is no field of a measurement")
    # An object's defaults are for measurements made by hand.
    made = {n: _read(t, value[n], prefix + n) for n, t in types.items() if n in value}
    required = [f.name for f in fields(kind) if f.default is f.default_factory]
    for name in required:
        if name not in made:
            raise InvalidArgument(f"{prefix}{name} is missing")
    try:
        return kind(**made)
    except InvalidArgument as error:
        raise InvalidArgument(f"{prefix}{error}") from None


def _read_plain(kind: Any, value: Any, where: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and number and math.isfinite(value):
        return float(value)
    if kind is not float and isinstance(value, kind) and (kind is bool or value is not True):
        return value
    name = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}[kind]
    raise InvalidArgument(f"{where} must be {name}, not {value!r}")


__all__ = [
    "Acceptance",
    "Contention",
    "MeasuredDrafter",
    "MeasuredLatency",
    "MeasuredTarget",
    "Measurement",
    "Prompts",
    "Slowdown",
    "short_name",
]
