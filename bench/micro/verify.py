"""The C++ verification kernels against torch eager and transformers' `_speculative_sampling`.

One thread, float32, medians of interleaved runs; every rule accepts every draft, whatever its
coins, so that nobody saves a row. Beside it: one plain sum over the same bytes, and the cut kernel
against torch.sort.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from rig import report
from rig.inputs import prompts

FASTER_THAN_TRANSFORMERS = 3.0
CUT_FASTER_THAN_SORT = 10.0
HEADLINE = (151_936, 5, 1)
REAL_WIDTH = 49_152


def real_rows(count: int) -> np.ndarray:
    """float32 [count, 49152]: the last rows of SmolLM2 over a prompt."""
    import torch

    import dsi_native

    model = dsi_native.load_model("smollm2", dtype="float32")
    ids = torch.from_numpy(prompts(1)[0].ids(model.tokenizer).astype(np.int64))[None]
    with torch.inference_mode():
        logits = model.model(ids).logits[0, -count:]
    return logits.float().numpy().copy()


def widened(rows: np.ndarray, width: int) -> np.ndarray:
    """Real rows at another width: shuffled copies side by side, each 1.5 below the one before."""
    at = np.arange(width)
    turn = at // REAL_WIDTH
    source = (at * 7919 + turn) % REAL_WIDTH
    return (rows[:, source] - 1.5 * turn).astype(np.float32)


class Inputs:
    """Target rows [B, K+1, V], draft rows near them, and drafts that all rules accept."""

    def __init__(self, kind: str, width: int, drafts: int, batch: int, real: np.ndarray) -> None:
        import torch

        random = np.random.default_rng(width + drafts)
        shape = (batch, drafts + 1, width)
        if kind == "real":
            one = widened(real[: drafts + 1], width)
            self.target = np.ascontiguousarray(np.broadcast_to(one, shape))
        else:
            self.target = random.normal(size=shape).astype(np.float32)
        noise = random.normal(0.0, 0.05, size=(batch, drafts, width)).astype(np.float32)
        self.draft = np.ascontiguousarray(self.target[:, :-1] + noise)
        self.seed = np.arange(batch, dtype=np.uint64) + 7
        self.position = np.full(batch, 11, np.int64)
        likeliest = self.target[:, :-1].argmax(-1).astype(np.int32)
        # By more than the noise of all others, so that q < p at the draft and no coin rejects it.
        at = likeliest[..., None]
        own = np.take_along_axis(self.draft, at, -1) - np.float32(1)
        np.put_along_axis(self.draft, at, own, -1)
        self.ids = {"rejection": likeliest, "coupled": likeliest.copy()}
        self._agree()
        self.torch_target = torch.from_numpy(self.target)
        self.torch_draft = torch.from_numpy(self.draft)
        ids = self.ids["rejection"].astype(np.int64)
        self.torch_ids = torch.from_numpy(ids)
        prompt = np.zeros((batch, 3), np.int64)
        self.candidates = torch.from_numpy(np.concatenate([prompt, ids], axis=1))
        self.lse = torch.from_numpy(self.draft).logsumexp(-1).numpy()

    def verify(self, mode: str, **more: Any) -> Any:
        from dsi_native import kernels

        rows = {"draft_logits": self.draft} if mode == "rejection" else {}
        return kernels.verify(
            self.target, self.ids[mode], seed=self.seed, position=self.position, mode=mode,
            **rows, **more,
        )  # fmt: skip

    def _agree(self) -> None:
        """Coupled drafts become the target's own tokens, one more in every round."""
        ids = self.ids["coupled"]
        for _ in range(ids.shape[1]):
            out = self.verify("coupled")
            for b in np.flatnonzero(out.num_accepted < ids.shape[1]):
                k = out.num_accepted[b]
                ids[b, k] = out.tokens[b, k]


def torch_rejection(x: Inputs) -> int:
    """The textbook rule in torch eager, over the batch; the number of accepted drafts."""
    import torch

    p, q = x.torch_target.softmax(-1), x.torch_draft.softmax(-1)
    p_draft = p[:, :-1].gather(-1, x.torch_ids[..., None])[..., 0]
    q_draft = q.gather(-1, x.torch_ids[..., None])[..., 0]
    accepted = (torch.rand_like(q_draft) * q_draft < p_draft).int().cumprod(-1).sum(-1)
    for b, n in enumerate(accepted.tolist()):
        left = p[b, n] if n == q.shape[1] else (p[b, n] - q[b, n]).clamp_(min=0)
        torch.multinomial(left, 1)
    return int(accepted.sum())


def torch_coupled(x: Inputs) -> None:
    """Gumbel-max in torch eager, over all rows."""
    import torch

    noise = torch.empty_like(x.torch_target).exponential_().log_()
    (x.torch_target - noise).argmax(-1)


def transformers_rejection(x: Inputs) -> int:
    """One request at a time, it takes no more; the number of accepted drafts."""
    from transformers.generation.utils import _speculative_sampling

    # Its fifth parameter is another one in other versions: only by name, and only where it exists.
    parameters = inspect.signature(_speculative_sampling).parameters
    more = {"is_done_candidate": False} if "is_done_candidate" in parameters else {}
    accepted = 0
    for b in range(len(x.candidates)):
        one = slice(b, b + 1)
        _, matches = _speculative_sampling(
            x.candidates[one],
            x.torch_draft[one],
            x.torch_draft.shape[1],
            x.torch_target[one],
            **more,
        )
        accepted += int(matches)
    return accepted


def check_rules(x: Inputs) -> None:
    """Raises SystemExit unless all accept the drafts of x, and reject what the target excludes."""
    import torch

    ways = {
        "rejection": lambda: int(x.verify("rejection").num_accepted.sum()),
        "coupled": lambda: int(x.verify("coupled").num_accepted.sum()),
        "torch rejection": lambda: torch_rejection(x),
        "transformers": lambda: transformers_rejection(x),
    }
    for name, way in ways.items():
        if way() != x.torch_ids.numel():
            raise SystemExit(f"{name} rejects drafts that it has to accept")
    at = torch.from_numpy(np.stack(list(x.ids.values()), -1).astype(np.int64))
    before = x.torch_target[:, :-1].gather(-1, at)
    x.torch_target[:, :-1].scatter_(-1, at, -1e4)  # the memory is that of x.target
    for name, way in ways.items():
        if way() != 0:
            raise SystemExit(f"{name} accepts drafts that the target excludes")
    x.torch_target[:, :-1].scatter_(-1, at, before)


def medians(ways: dict[str, Callable[[], Any]], runs: int) -> dict[str, float]:
    """Microseconds by name: each warmed up once, then they take turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn, (name, way) in itertools.product(range(runs + 1), ways.items()):
        start = time.perf_counter()
        way()
        if turn > 0:
            times[name].append(1e6 * (time.perf_counter() - start))
    return {name: report.median(taken) for name, taken in times.items()}


def measure(x: Inputs, runs: int) -> dict[str, float]:
    check_rules(x)
    return medians(
        {
            "rejection": lambda: x.verify("rejection"),
            "rejection, lse given": lambda: x.verify("rejection", draft_lse=x.lse),
            "coupled": lambda: x.verify("coupled"),
            "torch rejection": lambda: torch_rejection(x),
            "torch coupled": lambda: torch_coupled(x),
            "transformers": lambda: transformers_rejection(x),
            "sum": lambda: (x.torch_target.sum(), x.torch_draft.sum()),
        },
        runs,
    )


def cuts(row: np.ndarray, runs: int) -> dict[str, float]:
    import torch

    from dsi_native import kernels

    logits = torch.from_numpy(row)
    return medians(
        {
            "cut": lambda: kernels.cut(row, top_p=0.9),
            "sort": lambda: torch.sort(logits, descending=True),
        },
        runs,
    )


def measure_rules(
    sizes: list[tuple[int, int, int]], real: np.ndarray, runs: int
) -> list[dict[str, Any]]:
    """One row for each kind of logits and size, shown as a table too."""
    shown = report.table(
        f"Microseconds, median of {runs} interleaved runs (and how many times ours)",
        *("logits", "V", "K", "B", "rejection", "lse given", "coupled", "torch rejection"),
        *("torch coupled", "transformers", "plain sum"),
    )
    rows = []
    for kind, (width, drafts, batch) in itertools.product(("gaussian", "real"), sizes):
        got = measure(Inputs(kind, width, drafts, batch, real), runs)
        rows.append({"logits": kind, "V": width, "K": drafts, "B": batch, **got})
        ours = got["rejection"]
        shown.add_row(
            *(kind, f"{width:,}", str(drafts), str(batch), f"{ours:.0f}"),
            *(f"{got['rejection, lse given']:.0f}", f"{got['coupled']:.0f}"),
            f"{got['torch rejection']:.0f} ({got['torch rejection'] / ours:.1f}x)",
            f"{got['torch coupled']:.0f} ({got['torch coupled'] / got['coupled']:.1f}x)",
            f"{got['transformers']:.0f} ({got['transformers'] / ours:.1f}x)",
            f"{got['sum']:.0f} ({got['sum'] / ours:.2f}x)",
        )
    report.console.print(shown)
    return rows


def judge_rules(row: dict[str, Any]) -> bool:
    """Whether the claims hold for one row of the headline's size."""
    kind, ratio = row["logits"], row["transformers"] / row["rejection"]
    ok = report.verdict(
        ratio >= FASTER_THAN_TRANSFORMERS,
        f"{kind}: rejection is at least {FASTER_THAN_TRANSFORMERS:g}x faster than "
        f"transformers' ({ratio:.1f}x; {row['rejection'] / row['sum']:.1f} times "
        "one sum of the same bytes)",
    )
    ratio, beside = (row["coupled"] / row[k] for k in ("rejection", "rejection, lse given"))
    return ok & report.verdict(
        ratio <= 1.0,
        f"{kind}: coupled is no slower than rejection ({ratio:.2f} of it; "
        f"{beside:.2f} of it where the drafter gives its lse)",
    )


def judge_cuts(kind: str, row: np.ndarray, runs: int) -> tuple[bool, dict[str, Any]]:
    """Whether the cut is as fast as claimed on one row [1, V], and its times."""
    got = cuts(row, runs)
    ratio = got["sort"] / got["cut"]
    ok = report.verdict(
        ratio >= CUT_FASTER_THAN_SORT,
        f"{kind}: the cut at top-p 0.9 is at least {CUT_FASTER_THAN_SORT:g}x faster than "
        f"torch.sort ({ratio:.0f}x: {got['cut']:.0f} us)",
    )
    return ok, {"logits": kind, "V": row.shape[1], **got}


def main() -> int:
    parser = report.options(__doc__)
    parser.add_argument("--quick", action="store_true", help="only the row that is judged")
    parser.add_argument("--runs", type=int, default=9, help="repetitions (default 9)")
    arguments = parser.parse_args()
    facts = report.begin("verification kernels, one thread")

    import torch

    torch.set_num_threads(1)
    real = real_rows(9)
    grid = list(itertools.product((32_000, 151_936), (1, 5, 8), (1, 8)))
    rows = measure_rules([HEADLINE] if arguments.quick else grid, real, arguments.runs)
    headline = [row for row in rows if (row["V"], row["K"], row["B"]) == HEADLINE]
    held = [judge_rules(row) for row in headline]
    width = HEADLINE[0]
    gaussian = np.random.default_rng(3).normal(size=(1, width)).astype(np.float32)
    for kind, row in (("gaussian", gaussian), ("real", widened(real[:1], width))):
        ok, got = judge_cuts(kind, row, 3 * arguments.runs)
        held.append(ok)
        rows.append(got)
    report.end(facts, arguments, rows=rows)
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
