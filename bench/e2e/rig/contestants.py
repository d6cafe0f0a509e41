"""The ways to decode that real_model.py compares, each in a process of its own.

A process of its own since libgomp counts the threads of all teams in a process: once there are more
than cores, idle ones no longer spin, and who shares a process with others is measured slower. All
are forked from one parent that has loaded the models and run nothing in parallel, so weights exist
once and no thread is lost.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Contestant:
    """One way to decode. side: "transformers" or "dsi"; method, drafter, lookahead say which.

    method: plain, assisted (transformers), non-si, si, dsi. lookahead: drafts per verification,
    None where there is none. threads: per forward.
    """

    side: str
    method: str
    drafter: str | None
    threads: int
    lookahead: int | str | None = None
    sp: int = 1

    @property
    def name(self) -> str:
        words = {"non-si": "non-SI", "si": "SI", "dsi": f"DSI SP={self.sp}"}
        drafter = f" {self.drafter}" if self.drafter is not None else ""
        return f"{self.side} {words.get(self.method, self.method)}{drafter}"

    @property
    def key(self) -> str:
        """The name with lookahead and threads: unique."""
        lookahead = f" lookahead {self.lookahead}" if self.lookahead is not None else ""
        return f"{self.name}{lookahead} [{self.threads}]"


# transformers' own default number of drafts is 20; with a drafter that costs 0.4 of the target
# fewer may be better, so it gets its chance with 5 as well.
def contestants() -> list[Contestant]:
    """All of them, baselines first."""
    found = []
    for threads in (2, 1):
        found += [
            Contestant("transformers", "plain", None, threads),
            Contestant("dsi", "non-si", None, threads),
            Contestant("dsi", "si", "lookup", threads, "auto"),
            Contestant("dsi", "si", "int4", threads, "auto"),
        ]
    found += [Contestant("transformers", "assisted", "lookup", 2, 8)]
    found += [Contestant("transformers", "assisted", "int4", 2, k) for k in (20, 5)]
    for drafter in ("lookup", "int4"):
        found += [Contestant("dsi", "si", drafter, 2, k) for k in (2, 4, 8)]
    for drafter in ("lookup", "int4"):
        found += [Contestant("dsi", "dsi", drafter, 1, "auto", sp) for sp in (1, 2)]
    return found


@dataclass
class Run:
    """One prompt decoded once. forwards: of the target; the rest only where it was measured."""

    tokens: list[int]
    seconds: float
    forwards: int
    wasted: int = 0
    statistics: dict[str, Any] = field(default_factory=dict)


class Process:
    """A contestant in its process; run() blocks until the text is there. Close it.

    make: from (contestant, model, drafter) to what run() calls there; None: this file's own.
    """

    def __init__(self, contestant: Any, model: Any, drafter: Any, make: Any = None) -> None:
        self.contestant = contestant
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(
            target=_serve, args=(theirs, contestant, model, drafter, make), daemon=True
        )
        self._process.start()
        theirs.close()
        self._connection = ours

    def run(self, *asked: Any) -> Run:
        """asked: ids [n] and the number of tokens, for this file's own contestants."""
        self._connection.send(asked)
        answer = self._connection.recv()
        if isinstance(answer, str):
            raise SystemExit(f"{self.contestant.key}: {answer}")
        return answer

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it may have ended by itself
            self._connection.send(None)
        self._process.join(10)


def _serve(
    connection: Connection, contestant: Any, model: Any, drafter: Any, make: Any = None
) -> None:
    import torch

    torch.set_num_threads(contestant.threads)
    try:
        own = _transformers if contestant.side == "transformers" else _dsi
        run = (make or own)(contestant, model, drafter)
        while (asked := connection.recv()) is not None:
            connection.send(run(*asked))
    except EOFError:
        pass
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
    os._exit(0)


def _transformers(contestant: Contestant, model: Any, drafter: Any) -> Any:
    from rig import transformers_side

    options: dict[str, Any] = {}
    if contestant.drafter == "lookup":
        # As our own lookup: at most 8 drafts, suffixes of at most 3 tokens.
        options = {"prompt_lookup_num_tokens": contestant.lookahead, "max_matching_ngram_size": 3}
    elif contestant.drafter == "int4":
        assistant = transformers_side.as_assistant(drafter)
        assistant.generation_config.num_assistant_tokens = contestant.lookahead
        options = {"assistant_model": assistant}
    forwards = 0

    def count(*_: Any) -> None:
        nonlocal forwards
        forwards += 1

    model.model.register_forward_pre_hook(count)

    def run(ids: np.ndarray, tokens: int) -> Run:
        nonlocal forwards
        forwards = 0
        start = time.perf_counter()
        new = transformers_side.generate(model.model, ids, tokens, **options)
        return Run(new, time.perf_counter() - start, forwards)

    return run


def _dsi(contestant: Contestant, model: Any, drafter: Any) -> Any:
    import dsi_native

    engine = dsi_native.Engine(
        model,
        drafter if contestant.drafter == "int4" else contestant.drafter,
        sp=contestant.sp,
        lookahead=contestant.lookahead or "auto",
        mode=contestant.method,
        threads=contestant.threads,
    )

    def run(ids: np.ndarray, tokens: int) -> Run:
        start = time.perf_counter()
        out = engine.generate(ids, max_new_tokens=tokens, ignore_eos=True)
        seconds = time.perf_counter() - start
        stats = out.statistics
        return Run(out.tokens, seconds, stats.target_forwards, stats.wasted_forwards, asdict(stats))

    return run
