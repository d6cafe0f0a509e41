"""Latencies and acceptance of real models on this machine, and whether they explain its speed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsi_native import checks
from dsi_native._core import __version__
from dsi_native.engine import Engine
from dsi_native.errors import InvalidArgument
from dsi_native.experiments import probes
from dsi_native.experiments.acceptance import acceptance_of
from dsi_native.experiments.measurement import (
    Contention,
    MeasuredDrafter,
    MeasuredLatency,
    MeasuredTarget,
    Measurement,
    Prompts,
    Slowdown,
)
from dsi_native.experiments.predict import Prediction, predict
from dsi_native.experiments.prompts import built_in_prompts
from dsi_native.experiments.recorded import Text
from dsi_native.pair import name_of, open_pair
from dsi_native.prompts import is_batch, prompt_ids

Step = Callable[[str], None]

PROMPTS = 6
TOKENS = 48
# What is known by then, the texts and which drafts are right, need not be found again.
_OVERLAP_TOKENS = 16
_DRIFT_TOKENS = 8
# A drafter whose draft costs less than this share of a target forward slows nothing.
_FREE = 0.01


@dataclass(frozen=True)
class Models:
    """A target and its drafters, ready for an Engine; prompts as ids."""

    target: Any
    drafters: tuple[Any, ...]
    prompts: tuple[np.ndarray, ...]
    source: str


@dataclass(frozen=True)
class Checked:
    """A prediction beside what the engine took. error: predicted over measured, less 1.

    drift: the target's TPOT alone just before and after, over what it was when it was measured. It
    is 1 on a machine that keeps its speed; others' work makes it more. steady_error: the error of
    the prediction times the drift.
    """

    prediction: Prediction
    measured_ms: float
    drift: float = 1.0

    @property
    def error(self) -> float:
        return self.prediction.ms_per_token / self.measured_ms - 1

    @property
    def steady_error(self) -> float:
        return self.drift * self.prediction.ms_per_token / self.measured_ms - 1


def open_models(
    target: Any, drafters: Any, prompts: Sequence[Any] | None = None, source: str = ""
) -> Models:
    """Loads what is named as an Engine does, once for all that is done with it.

    target, drafters (one or a list), prompts: see `measure`. source: where the prompts are from.
    Raises InvalidArgument naming the argument.
    """
    many = list(drafters) if isinstance(drafters, list | tuple) else [drafters]
    if not many:
        raise InvalidArgument("drafters: at least one is needed")
    options: dict[str, Any] = dict.fromkeys(("dtype", "device", "tokenizer", "cache_budget_bytes"))
    opened = []
    for drafter in many:
        pair = open_pair(target, drafter, method="auto", **options)
        if pair.drafter is None:
            raise InvalidArgument("drafters: 'none' is no drafter")
        target = pair.target  # loaded once
        opened.append(pair.drafter)
    tokenizer = getattr(target, "tokenizer", None)
    if prompts is None:
        prompts = as_chats([prompt.text for prompt in built_in_prompts(PROMPTS)], tokenizer)
        source = "built in"
    elif not is_batch(prompts):
        raise InvalidArgument("prompts: must be a list of prompts")
    ids = tuple(prompt_ids(prompt, tokenizer, int(target.vocab_size)) for prompt in prompts)
    return Models(target, tuple(opened), ids, source or "given")


def as_chats(texts: Iterable[str], tokenizer: Any) -> list[Any]:
    """Prompts from texts: chats where the tokenizer has a template."""
    if getattr(tokenizer, "chat_template", None):
        return [[{"role": "user", "content": text}] for text in texts]
    return list(texts)


def measure(
    target: Any,
    drafters: Any,
    prompts: Sequence[Any] | None = None,
    *,
    max_new_tokens: int = TOKENS,
    threads: int | None = None,
    sp: int = 2,
    step: Step | None = None,
) -> Measurement:
    """What the decode loop pays for the forwards of a target and of each of its drafters.

    target, drafters: as Engine takes them, drafters one or a list. prompts: a list of prompts in
    any form that Engine.generate takes; None: six that come with the package, as chats where there
    is a template. max_new_tokens: of each prompt, greedy, at least 4; an end of sequence ends
    nothing. threads: of each forward on a CPU; None: as Engine chooses, all cores where models take
    turns and a share where they overlap. sp: target servers that overlap in DSI.
    step: called with what is measured next.

    The target is measured by non-SI; its forwards over windows by SI with drafts that are known to
    be right and cost nothing; a drafter by SI with a target that says the known text and costs
    nothing. So all times hold what judging and scheduling cost. Blocks, for about a minute with
    models of 30 ms. Raises InvalidArgument naming the argument.
    """
    return measure_models(
        open_models(target, drafters, prompts),
        max_new_tokens=max_new_tokens,
        threads=threads,
        sp=sp,
        step=step,
    )


def measure_models(
    models: Models,
    *,
    max_new_tokens: int = TOKENS,
    threads: int | None = None,
    sp: int = 2,
    step: Step | None = None,
) -> Measurement:
    """`measure` with models that are already open."""
    max_new_tokens = checks.whole("max_new_tokens", max_new_tokens, low=4)
    sp = checks.whole("sp", sp)
    threads = None if threads is None else checks.whole("threads", threads)
    say: Step = step if step is not None else lambda _: None
    target = models.target
    machine = machine_facts()
    alone, at_once = thread_counts(threads, sp)
    say(f"target alone, {_count(alone)}: {len(models.prompts)} prompts")
    plain = probes.plain_run(target, models.prompts, max_new_tokens, alone)
    latency, drafters, hits = _latencies(models, plain, plain.texts, max_new_tokens, alone, say)
    shared = not getattr(target, "own_hardware", False)
    say("target: whether a forward can be stopped")
    stoppable = probes.is_stoppable(target, plain.texts[0], at_once)
    contention = None
    if shared:
        contention = _contention(models, plain.texts, max_new_tokens, sp, at_once, say)
    return Measurement(
        target=MeasuredTarget(**vars(latency), name=name_of(target)),
        drafters=tuple(
            MeasuredDrafter(**vars(one), name=name_of(drafter), acceptance=acceptance_of(letters))
            for one, drafter, letters in zip(drafters, models.drafters, hits, strict=True)
        ),
        shared_hardware=shared,
        stoppable=stoppable,
        prompts=Prompts(models.source, tuple(len(prompt) for prompt in models.prompts)),
        tokens=max_new_tokens,
        threads=alone,
        overhead_ms=plain.overhead_ms,
        contention=contention,
        machine=machine,
    )


def thread_counts(threads: int | None, sp: int) -> tuple[int, int]:
    """Of a forward where models take turns, and where sp targets and a drafter overlap."""
    if threads is not None:
        return threads, threads
    cores = len(os.sched_getaffinity(0))
    return cores, max(1, cores // (sp + 1))


def _count(threads: int) -> str:
    return f"{threads} thread" + "s" * (threads > 1)


def _latencies(
    models: Models,
    plain: probes.PlainRun,
    texts: Sequence[Text],
    tokens: int,
    threads: int,
    say: Step,
) -> tuple[MeasuredLatency, tuple[MeasuredLatency, ...], tuple[tuple[str, ...], ...]]:
    say(f"target alone, {_count(threads)}: forwards over windows")
    windows = probes.window_forwards(models.target, texts, threads)
    drafters, hits = [], []
    for drafter in models.drafters:
        say(f"drafter {name_of(drafter)} alone, {_count(threads)}")
        one, letters = probes.drafter_run(models.target, drafter, texts, tokens, threads)
        drafters.append(one)
        hits.append(letters)
    return probes.target_latency(plain, windows), tuple(drafters), tuple(hits)


def _contention(
    models: Models, texts: Sequence[Text], tokens: int, sp: int, threads: int, say: Step
) -> Contention:
    tokens = min(tokens, _OVERLAP_TOKENS)
    say(f"target alone, {_count(threads)}: {len(models.prompts)} prompts")
    plain = probes.plain_run(models.target, models.prompts, tokens, threads)
    target, drafters, _ = _latencies(models, plain, texts, tokens, threads, say)
    text = min(texts, key=lambda text: text.prompt)
    companies: list[tuple[int, int | None]] = [(n, None) for n in range(2, sp + 1)]
    for index, latency in enumerate(drafters):
        if latency.tpot_ms > _FREE * target.tpot_ms:
            companies += [(n, index) for n in range(1, sp + 1)]
    slowdown = []
    for targets, index in companies:
        drafter = None if index is None else models.drafters[index]
        with_it = "" if drafter is None else f" and drafter {name_of(drafter)}"
        say(f"at once: {targets} x target{with_it}")
        tpot, draft = probes.overlapping(models.target, drafter, text, targets, threads)
        factor = 1.0 if draft is None or index is None else draft / drafters[index].tpot_ms
        slowdown.append(Slowdown(targets, index, tpot / target.tpot_ms, factor))
    return Contention(threads, target, drafters, tuple(slowdown))


def check(
    measurement: Measurement,
    models: Models,
    *,
    sp: int | None = None,
    threads: int | None = None,
    step: Step | None = None,
) -> list[Checked]:
    """Decodes the measured prompts with every mode and drafter, beside what `predict` says.

    threads: as it was given to `measure`. Blocks, for about as long as `measure`. Each row says by
    how much the machine has changed its speed since.
    """
    say: Step = step if step is not None else lambda _: None
    texts = [Text(prompt, len(prompt)) for prompt in models.prompts]
    rows: list[Checked] = []
    for number, drafter in enumerate(models.drafters):
        for prediction in predict(measurement, number, sp=sp):
            if prediction.drafter is None and rows:
                continue  # non-SI needs no drafter: once is enough
            mode = prediction.mode
            say(f"check: {mode}" + f" with {prediction.drafter}" * (mode != "non-si"))
            count = thread_counts(threads, prediction.sp)[mode == "dsi"]
            before = _tpot_ms(models.target, texts[0], count)
            with Engine(
                models.target,
                None if mode == "non-si" else drafter,
                mode=mode,
                sp=prediction.sp,
                lookahead=max(1, prediction.lookahead),
                threads=count,
                break_even=False,
            ) as engine:
                probes.generate(engine, texts[0], 2)
                outputs = [probes.generate(engine, text, measurement.tokens) for text in texts]
            after = _tpot_ms(models.target, texts[0], count)
            spent = sum(probes.run_ms(output.statistics) for output in outputs)
            rows.append(
                Checked(
                    prediction,
                    measured_ms=spent / len(texts) / measurement.tokens,
                    drift=(before + after) / 2 / _measured_tpot_ms(measurement, mode),
                )
            )
    return rows


def _tpot_ms(target: Any, text: Text, threads: int) -> float:
    (tpot,) = probes.plain_run(target, [text.start], _DRIFT_TOKENS, threads).tpots_ms
    return tpot


def _measured_tpot_ms(measurement: Measurement, mode: str) -> float:
    """Of the first prompt, with the threads of `mode`."""
    overlaps = measurement.contention if mode == "dsi" else None
    of = overlaps.target if overlaps is not None else measurement.target
    return of.tpots_ms[0] if of.tpots_ms else of.tpot_ms


def machine_facts() -> dict[str, Any]:
    """What a time depends on."""
    facts: dict[str, Any] = {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "dsi_native": __version__,
    }
    for name in ("torch", "transformers"):
        if name in sys.modules:
            facts[name] = str(getattr(sys.modules[name], "__version__", ""))
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


__all__ = ["Checked", "Models", "as_chats", "check", "measure", "measure_models", "open_models"]
