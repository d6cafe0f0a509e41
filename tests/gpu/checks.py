"""What must hold on a GPU: the reference's answers, and the same ones again under load."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dsi_native.kernels import Edits, Sampled, Tag, Verified
from dsi_native.kernels.triton import Workspace, launch
from kernel_cases import Agreement, Case, random_cases, sample_cases
from kernel_degenerate import degenerate_cases

TOLERANCE = 1e-5
LOGITS = ("target_logits", "draft_logits", "logits")
TAGS = {"coupled": Tag.COUPLED, "draft": Tag.DRAFT, "bonus": Tag.BONUS}


def on(device: str, arguments: dict[str, Any], dtype: str = "float32") -> dict[str, Any]:
    """Arguments of launch.verify() or sample() from those of the reference."""

    def tensor(name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return Edits(*(tensor(name, x) for x in value))
        if not isinstance(value, np.ndarray):
            return TAGS[value] if name == "tag" else value
        if value.dtype == np.uint64:
            value = value.view(np.int64)
        made = torch.from_numpy(np.ascontiguousarray(value)).to(device)
        return made.to(getattr(torch, dtype)) if name in LOGITS else made

    return {name: tensor(name, value) for name, value in arguments.items()}


def arrays(result: Any) -> Any:
    return type(result)(*(None if x is None else x.cpu().numpy().copy() for x in result))


def neutral(case: Case) -> dict[str, Any]:
    """The case with every optional array there, where that changes nothing: fewer compilations."""
    call = dict(case.arguments)
    requests, most = call["draft_ids"].shape

    def none(rows: int) -> Edits:
        empty = (np.zeros(0, t) for t in (np.int32, np.int32, np.float32))
        return Edits(np.zeros(rows + 1, np.int64), *empty)

    def fill(name: str, value: Any) -> None:
        if call.get(name) is None:
            call[name] = value

    fill("num_draft", np.full(requests, most, np.int32))
    fill("temperature", np.ones(requests, np.float32))
    fill("draft_temperature", call["temperature"])
    fill("cut", np.full((requests, most + 1), -np.inf, np.float32))
    fill("edits", none(requests * (most + 1)))
    if call.get("draft_logits") is not None:
        fill("draft_cut", np.full((requests, most), -np.inf, np.float32))
        fill("draft_edits", none(requests * most))
    return call | {"with_logprobs": True}


def cases(device: str, end: float, dry: bool) -> dict[str, Any]:
    """Degenerate and random cases, as many as fit until `end`: most of the time is compiling."""
    agreement, failures, done = Agreement(), [], 0
    todo: list[tuple[str, Case]] = [("verify", case) for case in degenerate_cases()]
    todo += [("verify", case) for case in sorted(random_cases(), key=lambda c: c.dtype)]
    todo[100:100] = [("sample", case) for case in sample_cases()]
    for function, case in todo[:3] if dry else todo:
        if time.monotonic() > end:
            break
        done += 1
        try:
            if function == "verify":
                given = arrays(launch.verify(**on(device, neutral(case), case.dtype)))
                agreement.verified(case, given, TOLERANCE)
            else:
                given = arrays(launch.sample(**on(device, case.arguments, case.dtype)))
                agreement.sampled(case, given, TOLERANCE)
        except AssertionError as error:
            failures.append(f"{case}: {' '.join(str(error).split())[:300]}")
    return {
        "cases": done,
        "of": len(todo),
        "tokens compared": int(agreement.compared),
        "too close to call": int(agreement.undecided),
        "failures": failures,
    }


def batch(
    device: str, requests: int, most: int, width: int, dtype: str = "bfloat16", seed: int = 0
) -> dict[str, Any]:
    """Logits like a model's, a drafter close to it, and its drafts with their log-sum-exp."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    target = (3 * normal(requests, most + 1, width)).to(getattr(torch, dtype))
    draft = (target[:, :most] + 0.3 * normal(requests, most, width)).to(target.dtype)
    seeds = torch.arange(requests, device=device) + 1000 * seed
    position = torch.arange(requests, device=device) * 7
    drafted = launch.sample(
        draft.view(-1, width),
        seed=seeds.repeat_interleave(most),
        position=(position[:, None] + torch.arange(most, device=device)).flatten(),
        tag=Tag.DRAFT,
    )
    return {
        "target_logits": target,
        "draft_logits": draft,
        "draft_ids": drafted.token.view(requests, most).clone(),
        "draft_lse": drafted.lse.view(requests, most).clone(),
        "seed": seeds,
        "position": position,
        "mode": "rejection",
    }


def numpy_arguments(call: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (value.float() if name in LOGITS else value).cpu().numpy()
        if isinstance(value, torch.Tensor)
        else value
        for name, value in call.items()
    }


def native(arguments: dict[str, Any]) -> Any:
    """dsi_native.kernels.verify() in C++; None where the extension is not built."""
    try:
        from dsi_native import kernels

        return kernels.verify(**arguments, threads=4)
    except ImportError:
        return None


def wide(device: str, dry: bool) -> dict[str, Any]:
    """Vocabularies of models, on both sides of the map, against the reference and C++."""
    agreement, failures, with_native = Agreement(), [], 0
    requests, most = (1, 2) if dry else (3, 5)
    widths = (4200,) if dry else (151_936, 32_000, 50_257)
    for i, width in enumerate(widths):
        call = batch(device, requests, most, width, ("bfloat16", "float32", "float16")[i], i)
        shuffled = np.random.default_rng(i).permutation(width).astype(np.int32)
        shuffled_back = np.argsort(shuffled).astype(np.int32)
        maps = on(device, {"d2t": shuffled, "t2d": shuffled_back})
        plain = {"mode": "coupled", "draft_logits": None, "draft_lse": None}
        for change in ({}, {"draft_lse": None}, plain, maps):
            changed = call | change | {"with_logprobs": True}
            given = arrays(launch.verify(**changed))
            arguments = numpy_arguments(changed)
            case = Case(f"{width} ids, {sorted(change)}", arguments)
            mine = native(arguments)
            with_native += mine is not None
            for name, result in (("triton", given), ("C++", mine)):
                try:
                    if result is not None:
                        agreement.verified(case, result, TOLERANCE)
                except AssertionError as error:
                    failures.append(f"{name}, {case}: {' '.join(str(error).split())[:300]}")
    return {
        "tokens compared": int(agreement.compared),
        "too close to call": int(agreement.undecided),
        "calls compared with C++ too": with_native,
        "failures": failures,
    }


def calls_of(call: dict[str, Any], space: Workspace) -> dict[str, Callable[[], Verified | Sampled]]:
    """What is repeated: both modes and the drafter's sampler with a cut, in one workspace."""
    coupled = {k: v for k, v in call.items() if k not in ("draft_logits", "draft_lse")}
    rows = call["target_logits"][:, 0]
    top_p = torch.full((len(rows),), 0.9, device=rows.device)
    return {
        "rejection": lambda: launch.verify(**call, workspace=space),
        "coupled": lambda: launch.verify(**coupled | {"mode": "coupled"}, workspace=space),
        "sample": lambda: launch.sample(
            rows, seed=call["seed"], position=call["position"], top_p=top_p, workspace=space
        ),
    }


def kept(result: Verified | Sampled) -> list[torch.Tensor]:
    return [x.clone() for x in result if x is not None]


def differing(result: Verified | Sampled, wanted: list[torch.Tensor]) -> torch.Tensor:
    """How many results differ from `wanted`, as a tensor: nothing waits for the device."""
    given = [x for x in result if x is not None]
    return sum((x != y).sum() for x, y in zip(given, wanted, strict=True))


def load(device: str, dry: bool) -> dict[str, Any]:
    """Thousands of launches on one workspace: each result the first one's, and at rest after it."""
    failures, launches = [], 0
    shapes = [(2, 1, 4200, 1)] if dry else [(64, 5, 32_000, 500), (512, 3, 151_936, 20)]
    for requests, most, width, repeats in shapes:
        call = batch(device, requests, most, width)
        space = Workspace(requests, most + 1, width, device)
        for name, repeat in calls_of(call, space).items():
            wanted = kept(repeat())
            wrong = torch.zeros((), dtype=torch.int64, device=device)
            for _ in range(repeats):
                wrong += differing(repeat(), wanted)
            launches += repeats
            if int(wrong) != 0:
                failures.append(f"{name}, {requests} requests: {int(wrong)} results differ")
            if bool(space.arrivals.any()) or bool(space.best.view(torch.int64).any()):
                failures.append(f"{name}, {requests} requests: the workspace is not at rest")
    return {"calls": launches, "failures": failures}


def streams(device: str, repeats: int = 200) -> dict[str, Any]:
    """Two streams at once, each with its workspace, on inputs of their own."""
    failures = []
    lanes = []
    for i in range(2):
        call = batch(device, 16, 5, 151_936, seed=i)
        space = Workspace(16, 6, 151_936, device)
        calls = calls_of(call, space)
        lanes.append(
            (torch.cuda.Stream(), calls, {name: kept(run()) for name, run in calls.items()})
        )
    wrong = torch.zeros(2, dtype=torch.int64, device=device)
    torch.cuda.synchronize()
    for _ in range(repeats):
        for i, (stream, calls, wanted) in enumerate(lanes):
            with torch.cuda.stream(stream):
                for name, run in calls.items():
                    wrong[i] += differing(run(), wanted[name])
    torch.cuda.synchronize()
    if bool(wrong.any()):
        failures.append(f"results that differ, by stream: {wrong.tolist()}")
    return {"calls": 6 * repeats, "failures": failures}


def graphs(device: str) -> dict[str, Any]:
    """A captured call computes, on new inputs in the same place, what a plain call does."""
    failures = []
    call = batch(device, 8, 5, 151_936)
    space = Workspace(8, 6, 151_936, device)
    for name, run in calls_of(call, space).items():
        run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = run()
        for seed in range(1, 4):
            for key, value in batch(device, 8, 5, 151_936, seed=seed).items():
                if isinstance(value, torch.Tensor):
                    call[key].copy_(value)
            graph.replay()
            replayed = kept(captured)
            if int(differing(run(), replayed)) != 0:
                failures.append(f"{name}: replay {seed} differs from a plain call")
    return {"failures": failures}
