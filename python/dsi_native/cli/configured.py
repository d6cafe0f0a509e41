"""The options of one configuration, the same for every command that simulates one."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from dsi_native import checks
from dsi_native.cli.outputs import naming
from dsi_native.errors import InvalidArgument
from dsi_native.experiments.configuration import Configuration, Latency
from dsi_native.experiments.multi import DrafterSpec

# Groups of options in --help.
MODELS, LOOP, LATENCY = "Models", "Decode loop", "Latencies in detail"
MEASURED, PUBLISHED = "From a measurement", "Names of the published simulator"

_PUBLISHED_ARGUMENTS = {"acceptance": "a", "sp": "num_target_servers", "tokens": "S",
                        "lookahead": "k"}  # fmt: skip
_DEFAULT_TOKENS, _DEFAULT_SP = 100, 7
_PUBLISHED_NAMES = ("c", "c_sub", "failure_cost", "failure_cost_sub", "a", "k", "S",
                    "num_target_servers")  # fmt: skip
_ARGUMENTS = ("acceptance", "drafter", "lookahead", "seed", "sp", "tokens")
_SAID_BY_FROM = ("target_ms", "drafter_ms", "acceptance", "target_ttft_ms", "drafter_ttft_ms")


class Unstoppable(str, Enum):
    NONE = "none"
    TARGET = "target"
    DRAFTER = "drafter"
    BOTH = "both"


@dataclass(frozen=True)
class Asked:
    """What the options say. drafters: one or more; configuration: with the first of them.

    measured: the name of the measurement's target, None where there is no measurement.
    """

    configuration: Configuration
    drafters: tuple[DrafterSpec, ...]
    measured: str | None = None


def _options(
    target_ms: Annotated[
        float | None,
        typer.Option(help="One target forward, in milliseconds (TPOT).", rich_help_panel=MODELS),
    ] = None,
    drafter_ms: Annotated[
        list[float] | None,
        typer.Option(
            help="One drafter forward (TPOT). Given several times: several drafters, the fastest "
            "first.",
            rich_help_panel=MODELS,
        ),
    ] = None,
    acceptance: Annotated[
        list[float] | None,
        typer.Option(
            help="Probability that a draft is right, 0 to 1; one for each drafter.",
            rich_help_panel=MODELS,
        ),
    ] = None,
    sp: Annotated[
        int | None,
        typer.Option("--sp", help="Target servers of DSI. Default: 7.", rich_help_panel=LOOP),
    ] = None,
    lookahead: Annotated[
        int | None,
        typer.Option(
            help="Drafts per verification. Default: the best for SI, the least that Equation 1 "
            "allows for DSI.",
            rich_help_panel=LOOP,
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="New tokens of a run. Default: 100.", rich_help_panel=LOOP),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(help="Equal seeds meet the same drafts, in every mode.", rich_help_panel=LOOP),
    ] = 0,
    target_ttft_ms: Annotated[
        float | None,
        typer.Option(
            help="The first forward on each target server, prompt included. Default: --target-ms.",
            rich_help_panel=LATENCY,
        ),
    ] = None,
    drafter_ttft_ms: Annotated[
        list[float] | None,
        typer.Option(
            help="The same of the drafter, or of each. Default: --drafter-ms.",
            rich_help_panel=LATENCY,
        ),
    ] = None,
    growth: Annotated[
        float | None,
        typer.Option(
            help="Each judged draft makes a target forward longer by this share.",
            rich_help_panel=LATENCY,
        ),
    ] = None,
    target_jitter: Annotated[
        float,
        typer.Option(
            metavar="J",
            help="Each forward is scaled by a factor from 1-J to 1+J.",
            rich_help_panel=LATENCY,
        ),
    ] = 0.0,
    drafter_jitter: Annotated[
        float, typer.Option(metavar="J", help="The same of drafters.", rich_help_panel=LATENCY)
    ] = 0.0,
    unstoppable: Annotated[
        Unstoppable | None,
        typer.Option(
            metavar="WHO",
            help="target, drafter, both or none: whose forwards run to their end, needed or not. "
            "Default: none.",
            rich_help_panel=LATENCY,
        ),
    ] = None,
    measurement: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="The JSON of `dsi measure`, in place of latencies and acceptance; here every "
            "server has hardware of its own.",
            rich_help_panel=MEASURED,
        ),
    ] = None,
    drafter: Annotated[
        int | None,
        typer.Option(
            help="Which drafter of the measurement, from 0. Default: 0.", rich_help_panel=MEASURED
        ),
    ] = None,
    c: Annotated[
        float | None,
        typer.Option("--c", help="The drafter's first forward.", rich_help_panel=PUBLISHED),
    ] = None,
    c_sub: Annotated[
        float | None,
        typer.Option(
            "--c_sub", help="Its later ones. Default: the same.", rich_help_panel=PUBLISHED
        ),
    ] = None,
    failure_cost: Annotated[
        float | None,
        typer.Option(
            "--failure_cost", help="The target's first forward.", rich_help_panel=PUBLISHED
        ),
    ] = None,
    failure_cost_sub: Annotated[
        float | None,
        typer.Option(
            "--failure_cost_sub",
            help="Its later ones. Default: the same.",
            rich_help_panel=PUBLISHED,
        ),
    ] = None,
    a: Annotated[
        float | None, typer.Option("--a", help="--acceptance.", rich_help_panel=PUBLISHED)
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", help="--lookahead.", rich_help_panel=PUBLISHED)
    ] = None,
    S: Annotated[
        int | None, typer.Option("--S", help="--tokens.", rich_help_panel=PUBLISHED)
    ] = None,
    num_target_servers: Annotated[
        int | None,
        typer.Option("--num_target_servers", help="--sp.", rich_help_panel=PUBLISHED),
    ] = None,
) -> None: ...


def configured(command: Callable[..., None], unless: str | None = None) -> Callable[..., None]:
    """Gives `command(asked, ...)` the options of a configuration in place of `asked`.

    unless: one of the command's own options; where it is given `asked` is None, and options of a
    configuration are refused.
    """
    options = inspect.signature(_options, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        given = {name: values.pop(name) for name in options}
        if unless is None or not values[unless]:
            with _by_option():
                asked = _read(given)
            command(asked=asked, **values)
            return
        changed = [name for name, x in options.items() if given[name] != x.default]
        _refuse(given, tuple(changed), f"{_option(unless)} says that already")
        command(asked=None, **values)

    both = [*(x for name, x in own.items() if name != "asked"), *options.values()]
    by_name = [x.replace(kind=inspect.Parameter.KEYWORD_ONLY) for x in both]
    with_options.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    with_options.__annotations__ = {x.name: x.annotation for x in by_name}
    return with_options


@contextlib.contextmanager
def _by_option() -> Iterator[None]:
    """Errors of the API begin with an argument's name; here its option has the same."""
    try:
        yield
    except InvalidArgument as error:
        name, _, rest = str(error).partition(" ")
        if type(error) is not InvalidArgument or name not in _ARGUMENTS:
            raise
        raise InvalidArgument(f"{_option(name)} {rest}") from None


def _read(values: dict[str, Any]) -> Asked:
    published = {name: values.pop(name) for name in _PUBLISHED_NAMES}
    if any(value is not None for value in published.values()):
        _refuse(values, (*_SAID_BY_FROM, "sp", "lookahead", "tokens", "measurement", "drafter"),
                "not together with names of the published simulator")  # fmt: skip
        return _read_published(published, values)
    if values["measurement"] is not None:
        _refuse(values, (*_SAID_BY_FROM, "growth"), "--from says that already")
        return _read_measured(values)
    if values["drafter"] is not None:
        raise InvalidArgument("--drafter needs a measurement, given with --from")
    for name in ("target_ms", "drafter_ms", "acceptance"):
        if values[name] in (None, []):
            raise InvalidArgument(f"{_option(name)} is missing; or give a measurement, with --from")
    times, rates, firsts = (values[x] for x in ("drafter_ms", "acceptance", "drafter_ttft_ms"))
    firsts = firsts or [None] * len(times)
    for name, found in (("acceptance", rates), ("drafter_ttft_ms", firsts)):
        if len(found) != len(times):
            raise InvalidArgument(
                f"{_option(name)}: one for each of {len(times)} drafters, not {len(found)}"
            )
    target = _detailed(values, "target", values["target_ms"], values["target_ttft_ms"])
    latencies = [_detailed(values, "drafter", *x) for x in zip(times, firsts, strict=True)]
    drafters = [DrafterSpec(*x) for x in zip(latencies, rates, strict=True)]
    return _asked(values, target, drafters)


def _read_published(published: dict[str, Any], values: dict[str, Any]) -> Asked:
    for name in ("c", "a"):
        if published[name] is None:
            raise InvalidArgument(f"--{name} is missing")
    given = {name: value for name, value in published.items() if value is not None}
    seed = checks.seed_of(values["seed"])
    try:
        found = Configuration.published(**given, seed=seed)
    except InvalidArgument as error:
        name, _, rest = str(error).partition(" ")
        if type(error) is not InvalidArgument:
            raise
        raise InvalidArgument(f"--{_PUBLISHED_ARGUMENTS.get(name, name)} {rest}") from None
    target = _detailed(values, "target", found.target.tpot_ms, found.target.ttft_ms)
    drafter = _detailed(values, "drafter", found.drafter.tpot_ms, found.drafter.ttft_ms)
    values |= {"sp": found.sp, "lookahead": found.lookahead, "tokens": found.tokens}
    return _asked(values, target, [DrafterSpec(drafter, found.acceptance)])


def _read_measured(values: dict[str, Any]) -> Asked:
    from dsi_native.experiments.measurement import Measurement

    with naming("--from"):
        measured = Measurement.load(values["measurement"])
    found = measured.configuration(values["drafter"] or 0)
    values["growth"] = found.target.growth
    if values["unstoppable"] is None and not measured.stoppable:
        values["unstoppable"] = Unstoppable.BOTH
    values["tokens"] = found.tokens if values["tokens"] is None else values["tokens"]
    target = _detailed(values, "target", found.target.tpot_ms, found.target.ttft_ms)
    drafter = _detailed(values, "drafter", found.drafter.tpot_ms, found.drafter.ttft_ms)
    asked = _asked(values, target, [DrafterSpec(drafter, found.acceptance)])
    return replace(asked, measured=measured.target.name)


def _detailed(values: dict[str, Any], which: str, tpot_ms: float, ttft_ms: float | None) -> Latency:
    growth = values["growth"] or 0.0 if which == "target" else 0.0  # a draft judges nothing
    stoppable = values["unstoppable"] not in (Unstoppable(which), Unstoppable.BOTH)
    try:
        return Latency(tpot_ms, ttft_ms, growth, values[f"{which}_jitter"], stoppable)
    except InvalidArgument as error:
        name, _, rest = str(error).partition(" ")
        options = {"tpot_ms": f"{which}-ms", "ttft_ms": f"{which}-ttft-ms", "growth": "growth"}
        raise InvalidArgument(f"--{options.get(name, f'{which}-{name}')} {rest}") from None


def _asked(values: dict[str, Any], target: Latency, drafters: list[DrafterSpec]) -> Asked:
    if len(drafters) > 1:
        _refuse(values, ("sp", "lookahead"), "several drafters have lookahead 1 and as many servers"
                " as can help")  # fmt: skip
    configuration = Configuration(
        target,
        drafters[0].latency,
        drafters[0].acceptance,
        sp=_DEFAULT_SP if values["sp"] is None else values["sp"],
        lookahead=values["lookahead"],
        tokens=_DEFAULT_TOKENS if values["tokens"] is None else values["tokens"],
        seed=values["seed"],
    )
    return Asked(configuration, tuple(drafters))


def _refuse(values: dict[str, Any], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if values[name] not in (None, []):
            raise InvalidArgument(f"{_option(name)}: {why}")


def _option(name: str) -> str:
    return "--from" if name == "measurement" else f"--{name.replace('_', '-')}"
