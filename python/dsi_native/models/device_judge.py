"""Verdicts and drafts on the device that computed the rows; only they cross to the host.

The rules are those of the native Judge (csrc/runtime/judge.cpp), which judges on the CPU: a row
that cannot be drawn from ends a window, rows behind the first mismatch do not count, and the newest
draft behind the window is asked for once all of the window's stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from dsi_native import _core
from dsi_native.kernels.contract import GREEDY_TEMPERATURE, Edits, Operation, Status, Tag
from dsi_native.kernels.triton import Workspace, launch
from dsi_native.models.parcel import Parcel

__all__ = ["DeviceJudge", "DeviceRow"]

_INFINITIES = 1 << 16  # Workspace.oddities() counts them in multiples of this


class DeviceRow(NamedTuple):
    """A drafter's row on its device: what a draft's law is made of."""

    logits: torch.Tensor
    """[V], before edits"""
    edits: tuple[np.ndarray, np.ndarray, np.ndarray]
    """ids, operations and values, on the host"""

    def to_host(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(logits float32 [V], *edits), for a target that judges on the CPU. Waits."""
        return (self.logits.float().cpu().numpy(), *self.edits)


class Law(NamedTuple):
    """The law of a draft as Job gives it. The row is in one place or the other."""

    row: DeviceRow | None
    logits: np.ndarray | None
    """float32 [V], after edits"""
    temperature: float
    cut: float
    lse: float

    @property
    def width(self) -> int:
        return len(self.logits if self.row is None else self.row.logits)


class Verdict(NamedTuple):
    """The rows of a window up to the one that ended it."""

    tokens: np.ndarray
    """int32 [n]"""
    logprobs: np.ndarray | None
    """float32 [n], of the tokens"""
    status: np.ndarray
    """int32 [n], bits of Status; from the first row that has any on, none can be drawn from"""
    judged_frontier: bool = False
    """The row behind the window has judged the newest draft."""


class DeviceJudge:
    """The judge of one server, whose rows are on `device`; for one thread, on its current stream.

    A call sends its small inputs over in one copy, launches, fetches the results in one copy and
    waits once; verify() does so twice where it also judges the draft behind the window. Memory is
    kept from call to call, except for a copy of the drafters' rows of a window, from torch's
    caching allocator.
    What needs the rows on the host is not for it: a logits processor, the n most likely tokens of
    each row (logprobs above 0), and windows whose drafts have laws of several kinds. verify() and
    sample() return None then, and the native Judge is to judge the rows.
    """

    def __init__(self, device: torch.device, vocab_size: int) -> None:
        self._device = device
        self._parcel = Parcel(device)
        self._space = Workspace(1, 8, vocab_size, device)

    def warm_up(self, dtype: torch.dtype) -> None:
        """Compiles what every request needs. Raises whatever keeps it from running here."""
        nothing = (np.zeros(2, np.int64), *_NO_EDITS)
        job = SimpleNamespace(
            sampling=_core.Sampling(), hooked=False, laws=[], edits=lambda first: nothing
        )
        rows = torch.zeros((1, self._space.vocab), dtype=dtype, device=self._device)
        self.verify(rows, np.zeros(1, np.int32), 1, job)
        self.sample(rows[0], 1, job)

    def verify(self, rows: torch.Tensor, tokens: np.ndarray, first: int, job: Any) -> Any:
        """The Verdict on the logits [n - first + 1, V] for positions first..n of int32 tokens [n].

        job: the native Job, for parameters, edits and laws.
        """
        sampling = job.sampling
        drafts = np.ascontiguousarray(tokens[first:])
        laws = [None if law is None else Law(*law) for law in job.laws]
        if job.hooked or sampling.logprobs > 0 or len({x and x.width for x in laws}) > 1:
            return None
        edits = job.edits(first)
        if _greedy(sampling) or not _rejects(sampling):
            verdict = self._judge(rows, drafts, first, sampling, edits, "coupled", [])
        else:
            laws = laws if laws and laws[0] is not None else []
            verdict = self._judge(rows, drafts, first, sampling, edits, "rejection", laws)
        stands = len(verdict.tokens) == len(rows) and not verdict.status.any()
        frontier = job.frontier() if stands and _rejects(sampling) else None
        if frontier is None:
            return verdict
        if _greedy(sampling):
            return verdict._replace(judged_frontier=True)
        return self._with_frontier(verdict, rows, len(tokens), sampling, edits, *frontier)

    def sample(self, row: torch.Tensor, position: int, job: Any) -> Any:
        """(id, status, temperature, cut, lse, DeviceRow) drawn from logits [V] for `position`.

        In place of the DeviceRow None, where whoever judges the draft will not ask for its law.
        """
        sampling = job.sampling
        if job.hooked:
            return None
        lawful = _rejects(sampling) and not _greedy(sampling)
        edits = job.edits(position)
        forbidden = _forbidden(edits, len(row))
        seed, where, temperature, top_k, top_p, min_p, *listed, hidden = self._parcel.send(
            *_keys(sampling.seed, position), *_settings(sampling, 1), *edits, forbidden
        )
        cuts = {"top_k": top_k, "top_p": top_p, "min_p": min_p} if _cuts(sampling) else {}
        space = self._fitting(1, len(row))
        out = launch.sample(
            row[None],
            seed=seed,
            position=where,
            tag=Tag.DRAFT if lawful else Tag.COUPLED,
            temperature=temperature,
            edits=Edits(*listed),
            workspace=space,
            **cuts,
        )
        if len(forbidden):
            out.status.bitwise_or_(torch.isnan(row[hidden]).any() * int(Status.NAN))
        out = space.received(self._parcel.receive(space.memory)).sampled(1)
        lse, cut = float(out.lse), float(out.cut) if cuts else -np.inf
        law = DeviceRow(row, edits[1:]) if lawful else None
        return int(out.token), int(out.status), sampling.temperature, cut, lse, law

    def _with_frontier(
        self,
        verdict: Verdict,
        rows: torch.Tensor,
        position: int,
        sampling: Any,
        edits: tuple[np.ndarray, ...],
        draft: int,
        law: tuple[Any, ...] | None,
    ) -> Verdict:
        """The last row judges a draft that came while the window was being judged.

        The kernel wants a row for the bonus too: it reads the same one again, to no effect.
        """
        begin, end = edits[0][-2:]
        own = (np.array([0, end - begin, end - begin]), *(x[begin:end] for x in edits[1:]))
        last = self._judge(
            rows[-1:].expand(2, -1),
            np.array([draft], np.int32),
            position,
            sampling,
            own,
            "rejection",
            [] if law is None else [Law(*law)],
        )
        verdict.tokens[-1] = last.tokens[0]
        if verdict.logprobs is not None:
            verdict.logprobs[-1] = last.logprobs[0]
        return verdict._replace(judged_frontier=True)

    def _judge(
        self,
        rows: torch.Tensor,
        drafts: np.ndarray,
        position: int,
        sampling: Any,
        edits: tuple[np.ndarray, ...],
        mode: str,
        laws: Sequence[Law],
    ) -> Verdict:
        """laws: one for each draft, or none at all."""
        count, width = rows.shape
        forbidden = _forbidden(edits, width)
        (
            seed, where, ids, temperature, top_k, top_p, min_p, cut, *listed, hidden,
            draft_temperature, draft_cut, draft_lse, offsets, named, operations, values,
        ) = self._parcel.send(
            *_keys(sampling.seed, position), drafts, *_settings(sampling, count),
            np.full(count, -np.inf, np.float32), *edits, forbidden, *_law_arrays(laws),
        )  # fmt: skip
        space = self._fitting(count, max([width, *(law.width for law in laws)]))
        target_edits = Edits(*listed)
        if _cuts(sampling):
            cut = launch.cut(
                rows, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                edits=target_edits, workspace=space,
            )  # fmt: skip
        drafter = {}
        if laws:
            drafter = {
                "draft_logits": _batch_of_one(self._law_rows(laws)),
                "draft_lse": draft_lse,
                "draft_temperature": draft_temperature,
                "draft_cut": draft_cut,
                "draft_edits": Edits(offsets, named, operations, values),
            }
        with_logprobs = sampling.logprobs >= 0
        launch.verify(
            _batch_of_one(rows), ids[None], seed=seed, position=where, mode=mode,
            temperature=temperature, cut=cut, edits=target_edits, with_logprobs=with_logprobs,
            workspace=space, **drafter,
        )  # fmt: skip
        odd = space.oddities(count, width)
        if len(forbidden):
            odd.add_(torch.isnan(rows[:, hidden]).any(1))
        return _verdict(space.received(self._parcel.receive(space.memory)), count, with_logprobs)

    def _law_rows(self, laws: Sequence[Law]) -> torch.Tensor:
        """[K, V] on this device."""
        # A host law is read-only memory, which from_numpy warns of.
        rows = [torch.tensor(law.logits) if law.row is None else law.row.logits for law in laws]
        if len({row.dtype for row in rows}) > 1:
            rows = [row.float() for row in rows]
        rows = [row.to(self._device) for row in rows]
        return rows[0][None] if len(rows) == 1 else torch.stack(rows)

    def _fitting(self, rows: int, vocab: int) -> Workspace:
        space = self._space
        if not space.holds(1, rows, vocab):
            most, widest = max(2 * rows, space.rows), max(vocab, space.vocab)
            self._space = space = Workspace(1, most, widest, self._device)
        return space


def _verdict(results: Any, rows: int, with_logprobs: bool) -> Verdict:
    out = results.verified(1, rows, with_logprobs)
    n = int(out.num_accepted) + 1
    tokens = out.tokens[0, :n].numpy().copy()
    odd = results.odd[:n].numpy()
    status = np.where(odd % _INFINITIES != 0, Status.NAN, 0)
    status |= np.where(odd >= _INFINITIES, Status.INF, 0)
    status |= np.where(tokens < 0, Status.EMPTY, 0)
    logprobs = out.logprob[0, :n].numpy().copy() if with_logprobs else None
    return Verdict(tokens, logprobs, status.astype(np.int32))


def _greedy(sampling: Any) -> bool:
    return not np.float32(sampling.temperature) >= np.float32(GREEDY_TEMPERATURE)


def _rejects(sampling: Any) -> bool:
    return sampling.verification == type(sampling.verification).REJECTION


def _cuts(sampling: Any) -> bool:
    off = sampling.top_k <= 0 and sampling.top_p >= 1 and sampling.min_p <= 0
    return not (off or _greedy(sampling))


def _settings(sampling: Any, rows: int) -> tuple[np.ndarray, ...]:
    """temperature, top_k, top_p and min_p of each row."""
    return (
        np.full(rows, sampling.temperature, np.float32),
        np.full(rows, sampling.top_k, np.int32),
        np.full(rows, sampling.top_p, np.float32),
        np.full(rows, sampling.min_p, np.float32),
    )


def _keys(seed: int, position: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([seed], np.uint64).view(np.int64), np.array([position], np.int64)


def _forbidden(edits: tuple[np.ndarray, ...], width: int) -> np.ndarray:
    """Ids that edits overwrite. A model that says NaN is broken, also where an edit hides it."""
    ids = np.unique(edits[1][edits[2] == Operation.SET])
    return ids[(ids >= 0) & (ids < width)]


def _law_arrays(laws: Sequence[Law]) -> tuple[np.ndarray, ...]:
    """temperature [1], cut [K], lse [K] and the arrays of Edits."""
    edits = [law.row.edits if law.row is not None else _NO_EDITS for law in laws] or [_NO_EDITS]
    return (
        np.array([law.temperature for law in laws[:1]], np.float32),
        np.array([law.cut for law in laws], np.float32),
        np.array([law.lse for law in laws], np.float32),
        np.cumsum([0, *(len(x[0]) for x in edits)]),
        *(np.concatenate(column) for column in zip(*edits, strict=True)),
    )


_NO_EDITS = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))


def _batch_of_one(rows: torch.Tensor) -> torch.Tensor:
    """[1, n, V]; stride 0, since kernels are compiled anew where divisibility by 16 changes."""
    return rows.as_strided((1, *rows.shape), (0, *rows.stride()))
