"""Microseconds of the kernels at a few batch sizes, beside a copy of the bytes that they read."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from checks import batch

from dsi_native.kernels.triton import Workspace, launch

COLD_BYTES = 256 << 20  # more than a cache holds: each call of a round has inputs of its own
ROUNDS = 20

Call = Callable[[], Any]


def median_us(calls: list[Call], device: str) -> float:
    """Median of rounds over all the calls, per call; one graph on CUDA, so no launch overhead."""
    for call in calls:
        call()
    if device == "cpu":
        begun = time.perf_counter()
        calls[0]()
        return 1e6 * (time.perf_counter() - begun)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(ROUNDS + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end) / len(calls))
    return statistics.median(times[3:])


def eager_us(call: Call, device: str) -> float:
    """Median of single calls from Python, for what cannot be captured; launch overhead included."""
    times = []
    for _ in range(3 if device == "cpu" else ROUNDS):
        begun = time.perf_counter()
        call()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - begun))
    return statistics.median(times[1:])


def measure(device: str, dry: bool) -> list[dict[str, Any]]:
    """One entry per width and number of requests; bf16, K = 5."""
    widths, sizes, most = ((900,), (1,), 1) if dry else ((151_936, 32_000), (1, 8, 64), 5)
    return [
        entry(device, requests, most, width, 1 if dry else None)
        for width in widths
        for requests in sizes
    ]


def entry(
    device: str, requests: int, most: int, width: int, copies: int | None = None
) -> dict[str, Any]:
    per_call = 2 * requests * (2 * most + 1) * width
    copies = copies or max(1, min(40, -(-COLD_BYTES // per_call)))
    batches = [batch(device, requests, most, width, seed=seed) for seed in range(copies)]
    space = Workspace(requests, most + 1, width, device)
    sampling = Workspace(requests * (most + 1), 1, width, device)
    top_p = torch.full((requests,), 0.9, device=device)
    row_bytes = 2 * requests * width

    def rejection(call: dict[str, Any], lse: bool) -> Call:
        changed = call if lse else call | {"draft_lse": None}
        return lambda: launch.verify(**changed, workspace=space)

    def coupled(call: dict[str, Any]) -> Call:
        changed = call | {"mode": "coupled", "draft_logits": None, "draft_lse": None}
        return lambda: launch.verify(**changed, workspace=space)

    def sample(call: dict[str, Any], cut: bool) -> Call:
        rows = call["draft_logits"][:, 0]
        settings = {"top_p": top_p} if cut else {}
        return lambda: launch.sample(
            rows, seed=call["seed"], position=call["position"], workspace=sampling, **settings
        )

    def copy(count: int) -> list[Call]:
        made = []
        for _ in range(max(1, min(40, -(-COLD_BYTES // count)))):
            source = torch.zeros(count // 2, dtype=torch.bfloat16, device=device)
            target = torch.empty_like(source)
            made.append(lambda source=source, target=target: target.copy_(source))
        return made

    def both(read: int, calls: list[Call]) -> dict[str, float]:
        """Beside a copy of the bytes that the calls have to read (and that a copy also writes)."""
        took, copied = median_us(calls, device), median_us(copy(read), device)
        return {"us": round(took, 2), "MB": round(read / 1e6, 2), "copy us": round(copied, 2)}

    rows = most + 1
    result: dict[str, Any] = {"ids": width, "requests": requests, "drafts": most, "dtype": "bf16"}
    result |= {
        "rejection, lse given": both((rows + 1) * row_bytes, [rejection(c, True) for c in batches]),
        "rejection": both((2 * most + 1) * row_bytes, [rejection(c, False) for c in batches]),
        "coupled": both(rows * row_bytes, [coupled(c) for c in batches]),
        "sample": both(row_bytes, [sample(c, False) for c in batches]),
        "sample, top-p 0.9": both(row_bytes, [sample(c, True) for c in batches]),
        "rejection from Python us": round(eager_us(rejection(batches[0], True), device), 1),
    }
    for name, rival in {"torch": eager, "flashinfer": flashinfer, "vllm": vllm}.items():
        try:
            result[f"{name} us"] = round(eager_us(rival(batches[0]), device), 1)
        except Exception as error:  # not installed, or another version's interface
            result[f"{name} us"] = f"{type(error).__name__}: {error}"[:200]
    return result


def eager(call: dict[str, Any]) -> Call:
    """The rule in plain torch, from logits, without a host synchronisation."""
    target, draft, ids = call["target_logits"], call["draft_logits"], call["draft_ids"].long()
    most = ids.shape[1]

    def run() -> Any:
        p, q = target.float().softmax(-1), draft.float().softmax(-1)
        at = ids[..., None]
        odds = (p[:, :most].gather(-1, at) / q.gather(-1, at)).squeeze(-1)
        stands = (torch.rand_like(odds) < odds).cumprod(-1)
        count = stands.sum(-1)
        q = torch.nn.functional.pad(q, (0, 0, 0, 1))
        here = count[:, None, None].expand(-1, 1, p.shape[-1])
        left = (p.gather(1, here) - q.gather(1, here)).squeeze(1).clamp(min=0)
        return count, (left / torch.empty_like(left).exponential_()).argmax(-1)

    return run


def flashinfer(call: dict[str, Any]) -> Call:
    from flashinfer.sampling import chain_speculative_sampling

    target, draft, ids = call["target_logits"], call["draft_logits"], call["draft_ids"]
    return lambda: chain_speculative_sampling(
        draft.float().softmax(-1), ids, target.float().softmax(-1)
    )


def vllm(call: dict[str, Any]) -> Call:
    """Its kernels on softmaxes that it also needs, without the bonus token's draw."""
    from vllm.v1.sample.rejection_sampler import rejection_sample

    target, draft, ids = call["target_logits"], call["draft_logits"], call["draft_ids"]
    requests, most = ids.shape
    settings = SimpleNamespace(
        all_greedy=False,
        all_random=True,
        temperature=torch.ones(requests, device=ids.device),
        generators={},
    )
    ends = torch.arange(1, requests + 1, device=ids.device, dtype=torch.int32) * most
    bonus = torch.zeros((requests, 1), device=ids.device, dtype=torch.int32)
    width = target.shape[-1]
    return lambda: rejection_sample(
        ids.flatten(),
        [most] * requests,
        most,
        ends,
        draft.float().softmax(-1).view(-1, width),
        target[:, :most].float().softmax(-1).reshape(-1, width),
        bonus,
        settings,
    )
