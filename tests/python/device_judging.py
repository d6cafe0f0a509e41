"""What the tests of the device judge run where Triton interprets, so that the device is the CPU."""

from __future__ import annotations

import gc
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import dsi_native as dsi
from dsi_native import _core, kernels
from dsi_native.errors import RequestFailed
from dsi_native.kernels import Edits
from dsi_native.models.device_judge import DeviceJudge, DeviceRow
from dsi_native.models.transformers import TransformersModel
from tiny import tiny_drafter, tiny_target

PROMPT = [3, 1, 4, 1, 5]


@cache
def _models() -> tuple[Any, Any]:
    target = tiny_target()
    return target, tiny_drafter(target, 0.05)


def told(
    target_there: bool, drafter_there: bool, mode: str = "si", twin: bool = False, **sampling: Any
) -> tuple[list[int], list[float], Any]:
    """(tokens, logprobs, statistics) of six tokens; who judges on the device, who on the CPU.

    twin: the drafter is the target.
    """
    target, drafter = _models()
    return _generate(
        TransformersModel(target, judge_on_device=target_there),
        TransformersModel(target if twin else drafter, judge_on_device=drafter_there),
        mode,
        **sampling,
    )


def _generate(target: Any, drafter: Any, mode: str, **sampling: Any) -> Any:
    """In SI windows depend on nothing but the tokens, so rejection gives one text for a seed."""
    sp = 2 if mode == "dsi" else 1
    with dsi.Engine(target, drafter, mode=mode, sp=sp, lookahead=2, threads=1) as engine:
        out = engine.generate(PROMPT, seed=3, **{"max_new_tokens": 6} | sampling)
    return out.tokens, [x.logprob for x in out.logprobs or ()], out.statistics


def rows_left(where: tuple[bool, bool]) -> int:
    """Rows of drafts that live on after their engine."""
    told(*where, temperature=0.8, verification="rejection")
    gc.collect()
    return sum(isinstance(x, DeviceRow) for x in gc.get_objects())


class Judging:
    """The servers of a model, with rows that are judged where they are."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        return [JudgingServer(server) for server in self._model.servers(n, threads)]


class JudgingServer:
    judges_on_device = True

    def __init__(self, server: Any) -> None:
        self._server = server
        self._judge = DeviceJudge(torch.device("cpu"), server.vocab_size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def verify(self, request: int, tokens: np.ndarray, first: int, job: Any) -> Any:
        rows = torch.from_numpy(self._server.forward(request, tokens, first, job))
        return self._judge.verify(rows, tokens, first, job)


def translated(there: bool) -> tuple[list[list[int]], int, int]:
    """(texts, drafts accepted, rejected) where the drafter has another vocabulary."""
    from test_translation_law import DRAFTER, TARGET, model_of

    target = Judging(model_of(TARGET)) if there else model_of(TARGET)
    settings = {"max_new_tokens": 6, "temperature": 0.8, "verification": "rejection"}
    with dsi.Engine(
        target, model_of(DRAFTER), mode="si", lookahead=2, method="tli", break_even=False
    ) as engine:
        outs = [engine.generate([0, 1], seed=seed, **settings) for seed in range(5)]
    accepted, rejected = (
        sum(getattr(out.statistics, what) for out in outs) for what in ("accepted", "rejected")
    )
    return [out.tokens for out in outs], accepted, rejected


def hooked(there: bool) -> list[int]:
    """Tokens under a logits processor."""

    def odd(prefix: np.ndarray, logits: np.ndarray) -> None:
        logits[::2] = -np.inf

    return told(there, there, logits_processor=odd, temperature=0.8)[0]


def of_broken(
    there: bool, value: float, whose: str, id: int | None = None, **sampling: Any
) -> tuple[Any, str]:
    """(tokens, error) where a model says `value` of one id, or all, behind the greedy text's 22."""
    target, drafter = _models()

    def broken(module: Any, arguments: Any, keywords: Any, out: Any) -> None:
        last = keywords["input_ids"][0, -out.logits.shape[1] :]
        out.logits[0, last == 22, slice(None) if id is None else id] = value

    model = target if whose == "target" else drafter
    hook = model.register_forward_hook(broken, with_kwargs=True)
    try:
        tokens, _, statistics = told(there, there, **sampling)
    except RequestFailed as error:
        return None, str(error)
    finally:
        hook.remove()
    return tokens, statistics.drafter_error


def frontier_cases(host_law: bool) -> list[tuple[Any, Any]]:
    """(verdict of the device judge, of the C++ kernels) on windows that a newest draft follows."""
    rng = np.random.default_rng(5)
    cases = []
    for seed in range(4):
        sampling = _core.Sampling()
        sampling.temperature, sampling.top_p, sampling.seed = 0.9, 0.95, seed
        sampling.verification = _core.Verification.REJECTION
        sampling.logprobs = 0
        rows, q = rng.normal(size=(2, 40)), rng.normal(size=(2, 40))
        rows, q = (np.float32(3 * x) for x in (rows, rows + 0.5 * q))
        cases.append(_both(sampling, rows, q, host_law))
    return cases


def _both(sampling: Any, rows: np.ndarray, q: np.ndarray, host_law: bool) -> tuple[Any, Any]:
    """One draft in the window and one behind it, both drawn from q, ids 4 of all rows biased."""
    common = {"temperature": 0.9, "top_p": 0.95}
    edits = [np.int32([4]), np.int32([0]), np.float32([1.5])]
    seeds, positions = np.full(2, sampling.seed, np.uint64), np.arange(2) + 5

    def listed(count: int) -> Edits:
        return Edits(np.arange(count + 1), *(np.repeat(x, count) for x in edits))

    drawn = kernels.sample(
        q, seed=seeds, position=positions, tag="draft", edits=listed(2), **common
    )
    laws = []
    for i in range(2):
        row, logits = DeviceRow(torch.from_numpy(q[i]), tuple(edits)), None
        if host_law:
            row, logits = None, q[i] + np.float32(1.5) * (np.arange(40) == 4)
        laws.append((row, logits, 0.9, float(drawn.cut[i]), float(drawn.lse[i])))
    job = SimpleNamespace(
        sampling=sampling,
        hooked=False,
        laws=laws[:1],
        edits=lambda first: tuple(listed(2)),
        frontier=lambda: (int(drawn.token[1]), laws[1]),
    )
    path = np.int32([9, 9, 9, 9, 9, drawn.token[0]])
    judge = DeviceJudge(torch.device("cpu"), 40)
    given = judge.verify(torch.from_numpy(rows), path, 5, job)

    padded = np.concatenate([rows, rows[-1:]])  # the kernel wants a row for the bonus
    wanted = kernels.verify(
        padded[None],
        drawn.token[None],
        seed=seeds[:1],
        position=positions[:1],
        mode="rejection",
        temperature=0.9,
        draft_logits=q[None],
        draft_lse=drawn.lse[None],
        draft_cut=drawn.cut[None],
        cut=kernels.cut(padded, edits=listed(3), **common)[None],
        edits=listed(3),
        draft_edits=listed(2),
        with_logprobs=True,
    )
    n = min(int(wanted.num_accepted[0]) + 1, 2)
    judged = int(wanted.num_accepted[0]) >= 1
    return tuple(given), (wanted.tokens[0, :n], wanted.logprob[0, :n], judged)


def workspace_grows() -> list[int]:
    """Tokens for a window wider and longer than any before, from one judge."""
    sampling = _core.Sampling()
    job = SimpleNamespace(sampling=sampling, hooked=False, laws=[], edits=None)
    judge = DeviceJudge(torch.device("cpu"), 40)
    best = []
    for count, width in ((2, 40), (9, 4100), (1, 30)):
        rows = torch.zeros((count, width))
        rows[torch.arange(count), torch.arange(count) + 3] = 1
        none = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
        job.edits = lambda first, n=count, none=none: (np.zeros(n + 1, np.int64), *none)
        path = np.arange(2, count + 2, dtype=np.int32)  # the drafts are the best ids
        best.append(judge.verify(rows, path, 1, job).tokens.tolist())
    return best


def gpu_script() -> dict[str, Any]:
    """What tests/gpu/kernels.sh reports of an engine."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu"))
    import engine

    return engine.check("cpu", True)
