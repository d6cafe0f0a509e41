"""A measured request replayed: the real Session against measured times, drafts and slowdowns.

Unlike the virtual clock of the core, which has servers with hardware of their own, this one lets
forwards that overlap slow each other (each advances at the rate that its company leaves it), makes
a target server catch up on what it has not cached, and knows where the drafter had no draft.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from dsi_native import _core
from dsi_native.errors import InvalidArgument
from dsi_native.experiments.configuration import MODES
from dsi_native.experiments.measurement import Contention, MeasuredLatency, Measurement

_RIGHT, _WRONG = 1, 2  # ids: what is said does not matter, only whether it is what the target says
_DRAFTER = -1
_SOON_MS = 1e-9
_WIDEST_WINDOW = 64


@dataclass(frozen=True)
class Setting:
    """One way to decode. lookahead means nothing in non-SI, sp nothing but in DSI."""

    mode: str
    lookahead: int = 1
    sp: int = 1

    def policy(self, own_hardware: bool) -> _core.Policy:
        """What an Engine makes of it."""
        policy = _core.Policy()
        policy.mode, policy.lookahead = MODES[self.mode], self.lookahead
        policy.run_ahead = max(8, (self.sp + 2) * self.lookahead)
        policy.max_window = max(self.lookahead, _WIDEST_WINDOW)
        policy.prefill = own_hardware
        return policy


@dataclass
class _Server:
    """One server and its forward. left_ms: of the forward, were it alone."""

    index: int
    cached: list[int] | None = None  # None: it has not met the request
    freed_at: float = -1.0
    kind: str = "v"
    busy: bool = False
    left_ms: float = math.inf
    job: int = 0
    path: list[int] = field(default_factory=list)
    first: int = 0
    reads_prompt: bool = False
    waits: bool = False  # for another server that reads the prompt

    @property
    def works(self) -> bool:
        return self.busy and not self.waits

    def free(self, now: float) -> None:
        self.busy, self.waits, self.freed_at = False, False, now


class Replay:
    """One request. hits: a letter of `measurement.HITS` for each new token, without "?"."""

    def __init__(
        self,
        of: Measurement,
        drafter: int,
        setting: Setting,
        prompt: int,
        hits: str,
        tokens: int,
    ) -> None:
        if setting.mode not in MODES:
            raise InvalidArgument(f"mode must be one of {', '.join(MODES)}, not {setting.mode!r}")
        overlaps = of.contention if setting.mode == "dsi" else None
        self._target: MeasuredLatency = overlaps.target if overlaps else of.target
        self._draft: MeasuredLatency = (
            overlaps.drafters[drafter] if overlaps else of.drafter(drafter)
        )
        self._slowdown = _Slowdowns(overlaps, drafter)
        self._own_hardware = not of.shared_hardware
        self._stoppable = of.stoppable
        lengths = of.prompts.tokens
        self._prompt_tokens = lengths[prompt] if prompt < len(lengths) else 1
        self._number = prompt
        self._hits = hits
        policy = setting.policy(self._own_hardware)
        self._prefills = policy.prefill and setting.mode == "dsi"
        self._session = _core.Session([_RIGHT] * self._prompt_tokens, tokens, policy)
        self._servers = [_Server(i) for i in range(setting.sp if setting.mode == "dsi" else 1)]
        self._drafter = _Server(_DRAFTER)
        self._now = 0.0
        self.first_token_ms = 0.0

    def run(self) -> float:
        """ms until the last token."""
        session = self._session
        while True:
            self._give_work()
            if session.finished:
                return self._now
            self._advance()
            # A draft that exists when a forward ends is judged by it.
            for server in (self._drafter, *self._servers):
                if server.works and server.left_ms <= _SOON_MS:
                    self._complete(server)
                    self._follow()

    # -- who does what ---------------------------------------------------------------------------

    def _give_work(self) -> None:
        session = self._session
        while session.verify_urgency() != 0:
            idle = [server for server in self._servers if not server.busy]
            if not idle:
                break
            server = max(idle, key=lambda s: (self._held(s), s.freed_at, -s.index))
            job, first, window = session.take_verify()
            self._start(server, "v", job, session.path()[: first + window], first)
        if not self._drafter.busy and session.wants_draft():
            job, at, _ = session.take_draft()
            self._start(self._drafter, "d", job, session.path()[:at], at)
        if self._now == 0 and self._prefills:
            for server in self._servers:
                if not server.busy and server.cached is None:
                    prompt = [_RIGHT] * self._prompt_tokens
                    self._start(server, "p", 0, prompt, self._prompt_tokens)

    def _held(self, server: _Server) -> int:
        return -1 if server.cached is None else min(len(server.cached), self._session.committed)

    def _start(self, server: _Server, kind: str, job: int, path: list[int], first: int) -> None:
        server.kind, server.job, server.path, server.first = kind, job, path, first
        shares = not self._own_hardware and server.index != _DRAFTER
        server.waits = shares and server.cached is None and self._prompt_is_read()
        server.left_ms = math.inf if server.waits else self._forward_ms(server)
        server.busy = True

    def _prompt_is_read(self) -> bool:
        """Whether a server of the device is at it just now."""
        return any(server.works and server.reads_prompt for server in self._servers)

    def _forward_ms(self, server: _Server) -> float:
        window = len(server.path) - server.first
        if server.index == _DRAFTER:
            if server.cached is None:
                return self._draft.first_ms(self._number)
            unseen = len(server.path) - _common(server.cached, server.path)
            return self._draft.forward_ms(max(0, unseen - 1))
        target = self._target
        if self._own_hardware:
            if server.cached is not None:
                return target.forward_ms(window)
            grown = target.forward_ms(window) - target.forward_ms(0)
            prefill = target.tpot_ms if server.kind == "p" else 0.0
            return max(0.0, target.first_ms(self._number) + grown - prefill)
        # Servers of one device take from each other what they have computed.
        caches = [other.cached for other in self._servers if other.cached is not None]
        held = max((_common(cache, server.path) for cache in caches), default=0)
        server.reads_prompt = held == 0
        if held == 0:
            return target.first_ms(self._number) + target.forward_ms(window) - target.forward_ms(0)
        held = min(held, server.first - 1)
        return target.forward_ms(len(server.path) - held - 1)

    # -- time --------------------------------------------------------------------------------------

    def _advance(self) -> None:
        targets = sum(server.works for server in self._servers)
        drafts = self._drafter.works
        working = [s for s in (*self._servers, self._drafter) if s.works]
        paces = [self._slowdown.of(s is self._drafter, targets, drafts) for s in working]
        step = min(s.left_ms * pace for s, pace in zip(working, paces, strict=True))
        for server, pace in zip(working, paces, strict=True):
            server.left_ms -= step / pace
        self._now += step

    def _complete(self, server: _Server) -> None:
        session = self._session
        server.cached = server.path
        server.free(self._now)
        if server.kind == "d":
            session.drafted(server.job, self._drafts_behind(server.path))
        elif server.kind == "v":
            session.judged(server.job, [_RIGHT] * (len(server.path) - server.first + 1))
        self._wake()

    def _wake(self) -> None:
        """Who waited for the prompt has it now, or computes it."""
        for server in self._servers:
            if server.waits and not self._prompt_is_read():
                server.waits = False
                server.left_ms = self._forward_ms(server)

    def _drafts_behind(self, path: Sequence[int]) -> list[int]:
        if _WRONG in path:
            return [_WRONG]
        at = len(path) - self._prompt_tokens
        letter = self._hits[at] if at < len(self._hits) else "0"
        return {"1": [_RIGHT], "0": [_WRONG], "-": []}[letter]

    def _follow(self) -> None:
        session = self._session
        if session.take_emitted() and self.first_token_ms == 0.0:
            self.first_token_ms = self._now
        for job in session.take_stale():
            for server in (*self._servers, self._drafter):
                if server.busy and server.kind != "p" and server.job == job and self._stoppable:
                    session.stopped(job)
                    server.free(self._now)
        self._wake()


class _Slowdowns:
    """Factors for any number of forwards at once, from those that were measured."""

    def __init__(self, of: Contention | None, drafter: int) -> None:
        self._measured = {
            (s.targets, s.drafter is not None): s
            for s in (of.slowdown if of is not None else ())
            if s.drafter in (None, drafter)
        }

    def of(self, drafter: bool, targets: int, drafts: bool) -> float:
        """By how much a draft (or a target forward) is slower in this company."""
        if targets == 0 or (targets == 1 and not drafts):
            return 1.0
        counts = [n for n, with_drafter in self._measured if with_drafter == drafts]
        if not counts:  # a drafter that costs nothing was not measured
            return self.of(drafter, targets, False) if drafts else 1.0
        nearest = min(counts, key=lambda n: (abs(n - targets), n))
        found = self._measured[nearest, drafts]
        factor = found.drafter_factor if drafter else found.target_factor
        # More forwards than were measured have the same cores.
        return factor * max(1.0, targets / nearest)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


__all__ = ["Replay", "Setting"]
