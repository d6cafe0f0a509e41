"""`dsi plan`: what to expect from non-SI, SI and DSI for given latencies."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

import dsi_native
from dsi_native.cli.outputs import console, naming
from dsi_native.errors import InvalidArgument

NAMES = {"non-si": "non-SI", "si": "SI", "dsi": "DSI"}


def plan(
    target_ms: Annotated[
        float | None,
        typer.Option("--target-ms", help="One target forward, in milliseconds (TPOT)."),
    ] = None,
    drafter_ms: Annotated[
        float | None,
        typer.Option("--drafter-ms", help="One drafter forward, in milliseconds (TPOT)."),
    ] = None,
    acceptance: Annotated[
        float | None,
        typer.Option("--acceptance", help="Share of drafts the target accepts, 0 to 1."),
    ] = None,
    sp: Annotated[
        int | None,
        typer.Option("--sp", help="Target servers. Default: as many as can help, ceil(T/d)."),
    ] = None,
    target_ttft_ms: Annotated[
        float | None,
        typer.Option("--target-ttft-ms", help="The target's first token (default: --target-ms)."),
    ] = None,
    drafter_ttft_ms: Annotated[
        float | None,
        typer.Option("--drafter-ttft-ms", help="The drafter's first token (--drafter-ms)."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            help="New tokens to predict the whole time of. Default: 128, or as measured.",
        ),
    ] = None,
    measurement: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="The JSON of `dsi measure`, in place of latencies and acceptance: its prompts are "
            "replayed with all that it says about this machine.",
            rich_help_panel="From a measurement",
        ),
    ] = None,
    drafter: Annotated[
        int | None,
        typer.Option(
            "--drafter",
            help="Which drafter of the measurement, from 0. Default: each of them.",
            rich_help_panel="From a measurement",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Predict non-SI, SI at its best lookahead and DSI from latencies and acceptance.

    Constant latencies, every server on hardware of its own (Equation 1 and Proposition 1 of the DSI
    paper, arXiv 2405.14105). With --from the measured prompts are replayed instead, on hardware as
    it was measured.

    Examples:

      dsi plan --target-ms 37.7 --drafter-ms 2.5 --acceptance 0.8 --sp 7

      dsi plan --from measurement.json
    """
    inputs = {"--target-ms": target_ms, "--drafter-ms": drafter_ms, "--acceptance": acceptance}
    if measurement is not None:
        inputs |= {"--target-ttft-ms": target_ttft_ms, "--drafter-ttft-ms": drafter_ttft_ms}
        for name, value in inputs.items():
            if value is not None:
                raise InvalidArgument(f"{name}: --from says that already")
        _plan_measured(measurement, drafter, sp, tokens, as_json)
        return
    for name, value in inputs.items():
        if value is None:
            raise InvalidArgument(f"{name} is missing; or give a measurement, with --from")
    if drafter is not None:
        raise InvalidArgument("--drafter needs a measurement, given with --from")
    tokens = 128 if tokens is None else tokens
    if tokens < 1:
        raise InvalidArgument(f"--tokens must be at least 1, not {tokens}")
    for name, value in (("target", target_ttft_ms), ("drafter", drafter_ttft_ms)):
        if value is not None and not 0 < value < math.inf:
            raise InvalidArgument(f"--{name}-ttft-ms must be positive and finite, not {value}")
    if sp is None:
        sp = _most_useful_sp(target_ms, drafter_ms)
    first_target_ms = target_ttft_ms or target_ms
    first_drafter_ms = drafter_ttft_ms or drafter_ms

    rows: list[dict[str, Any]] = []
    for row in dsi_native.plan(target_ms, drafter_ms, acceptance, sp=sp):
        first_ms = first_target_ms
        if row.mode == "si":
            first_ms += first_drafter_ms + (row.lookahead - 1) * drafter_ms
        rows.append(
            {
                "mode": row.mode,
                "lookahead": row.lookahead or None,
                "sp": row.sp,
                "ms_per_token": row.ms_per_token,
                "first_token_ms": first_ms,
                "total_ms": first_ms + (tokens - 1) * row.ms_per_token,
            }
        )
    for row in rows:
        row["speedup"] = rows[0]["total_ms"] / row["total_ms"]

    lookahead = rows[-1]["lookahead"] or 1
    holds_at_start = math.ceil(first_target_ms / (lookahead * first_drafter_ms)) <= sp
    if as_json:
        inputs = {
            "target_ms": target_ms,
            "drafter_ms": drafter_ms,
            "acceptance": acceptance,
            "sp": sp,
            "target_ttft_ms": first_target_ms,
            "drafter_ttft_ms": first_drafter_ms,
            "tokens": tokens,
        }
        answer = {"inputs": inputs, "rows": rows, "equation_1_at_first_token": holds_at_start}
        typer.echo(json.dumps(answer))
        return
    _print(rows, tokens)
    if not holds_at_start:
        typer.echo("Equation 1 fails on the first token: let every server prefill at the start.")


def _plan_measured(
    path: Path, drafter: int | None, sp: int | None, tokens: int | None, as_json: bool
) -> None:
    """non-SI, and SI and DSI with each drafter, as `dsi measure` found models and machine."""
    from dsi_native.experiments.measurement import Measurement, short_name
    from dsi_native.experiments.predict import predict

    with naming("--from"):
        found = Measurement.load(path)
    chosen = range(len(found.drafters)) if drafter is None else [drafter]
    rows: list[dict[str, Any]] = []
    for number in chosen:
        for of in predict(found, number, sp=sp, tokens=tokens)[1 if rows else 0 :]:
            rows.append(
                {
                    "mode": of.mode,
                    "drafter": of.drafter and short_name(of.drafter, found.target.name),
                    "lookahead": of.lookahead or None,
                    "sp": of.sp,
                    "ms_per_token": of.ms_per_token,
                    "first_token_ms": of.first_token_ms,
                    "total_ms": of.total_ms,
                }
            )
    for row in rows:
        row["speedup"] = rows[0]["total_ms"] / row["total_ms"]
    new = found.tokens if tokens is None else tokens
    if as_json:
        inputs = {"measurement": str(path), "tokens": new}
        typer.echo(json.dumps({"inputs": inputs, "rows": rows}))
        return
    place = "all on" if found.shared_hardware else "each server with hardware of its own, run from"
    typer.echo(f"{found.target.name}, {place} {found.machine.get('cpu', 'an unnamed machine')}")
    typer.echo("ms/token: of whole requests, first token included")
    _print(rows, new)


def _most_useful_sp(target_ms: float, drafter_ms: float) -> int:
    for name, value in (("--target-ms", target_ms), ("--drafter-ms", drafter_ms)):
        if not 0 < value < math.inf:
            raise InvalidArgument(f"{name} must be positive and finite, not {value}")
    return math.ceil(target_ms / drafter_ms)


def _print(rows: list[dict[str, Any]], tokens: int) -> None:
    names_drafters = any(row.get("drafter") for row in rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    if names_drafters:
        table.add_column("drafter", overflow="fold")
    for title in ("lookahead", "SP", "ms/token", "first token", f"{tokens} tokens", "speedup"):
        table.add_column(title, justify="right", min_width=len(title.split()[0]))
    for row in rows:
        table.add_row(
            NAMES[row["mode"]],
            *([row["drafter"] or "-"] if names_drafters else []),
            str(row["lookahead"] or "-"),
            str(row["sp"]),
            f"{row['ms_per_token']:.2f}",
            f"{row['first_token_ms']:.1f} ms",
            f"{row['total_ms'] / 1000:.2f} s",
            f"{row['speedup']:.2f}x",
        )
    console().print(table)
