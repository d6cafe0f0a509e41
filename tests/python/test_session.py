"""The Session under every order of events that hypothesis can think of."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dsi_native import _core

VOCAB, STOP = 9, 8
LENGTH, STOP_TOKEN, CANCELLED, ERROR = 1, 2, 4, 5
NONE, URGENT = 0, 2


def target_says(prefix: tuple[int, ...]) -> int:
    """Depends on every token before, so that a row of a wrong path is a wrong row."""
    state = 7
    for token in prefix:
        state = (state * 31 + token * 17 + 5) % 1009
    return state % VOCAB


def plain_text(prompt: tuple[int, ...], limit: int) -> list[int]:
    path = prompt
    while len(path) < len(prompt) + limit:
        path += (target_says(path),)
        if path[-1] == STOP:
            break
    return list(path[len(prompt) :])


class SessionMachine(RuleBasedStateMachine):
    @initialize(
        prompt=st.lists(st.integers(0, STOP - 1), min_size=1, max_size=3),
        limit=st.integers(1, 14),
        mode=st.sampled_from([_core.Mode.NON_SI, _core.Mode.SI, _core.Mode.DSI, _core.Mode.DSI]),
        lookahead=st.integers(1, 4),
        run_ahead=st.integers(1, 12),
        max_window=st.integers(1, 6),
    )
    def begin(
        self,
        prompt: list[int],
        limit: int,
        mode: _core.Mode,
        lookahead: int,
        run_ahead: int,
        max_window: int,
    ) -> None:
        policy = _core.Policy()
        policy.mode, policy.lookahead = mode, lookahead
        policy.run_ahead, policy.max_window = run_ahead, max_window
        self.mode = mode
        self.run_ahead = max(run_ahead, lookahead)
        self.prompt = tuple(prompt)
        self.last = len(prompt) + limit - 1
        self.text = plain_text(self.prompt, limit)
        self.session = _core.Session(prompt, limit, policy, [STOP])
        self.verifies: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.drafts: dict[int, tuple[tuple[int, ...], int]] = {}
        self.stale: set[int] = set()
        self.emitted: list[int] = []
        self.failures = 0
        self.epoch = 0

    # -- a driver's steps -----------------------------------------------------------------------

    @precondition(lambda self: self.session.verify_urgency() != NONE and len(self.verifies) < 6)
    @rule()
    def take_verify(self) -> None:
        urgent = self.session.verify_urgency() == URGENT
        job, first, window = self.session.take_verify()
        path = tuple(self.session.path())
        assert job not in self.verifies
        assert first == self.session.committed or not urgent
        assert self.session.committed <= first <= first + window <= len(path)
        assert window > 0 or urgent
        for other, (_, judged) in self.verifies.items():
            if other not in self.stale and not urgent:
                assert first >= len(judged), "windows do not overlap"
        self.verifies[job] = (first, path[: first + window])

    @precondition(lambda self: self.session.wants_draft())
    @rule()
    def take_draft(self) -> None:
        job, start, most = self.session.take_draft()
        path = tuple(self.session.path())
        assert start == len(path)
        assert not set(self.drafts) - self.stale, "one draft task at a time"
        assert 1 <= most <= self.run_ahead - (start - self.session.committed)
        assert start + most <= self.last, "the last place is the target's own"
        self.drafts[job] = (path, most)

    @precondition(lambda self: self.verifies)
    @rule(data=st.data())
    def judge(self, data: Any) -> None:
        job = data.draw(st.sampled_from(sorted(self.verifies)), "job")
        self.answer_verify(job, fewer=data.draw(st.integers(0, 2), "rows left out"))

    @precondition(lambda self: self.verifies)
    @rule(data=st.data())
    def fail_verify(self, data: Any) -> None:
        job = data.draw(st.sampled_from(sorted(self.verifies)), "job")
        self.failures += job not in self.stale
        del self.verifies[job]
        self.session.verify_failed(job, f"failure {job}")
        self.stale.discard(job)

    @precondition(lambda self: self.drafts)
    @rule(data=st.data())
    def draft(self, data: Any) -> None:
        job = data.draw(st.sampled_from(sorted(self.drafts)), "job")
        self.answer_draft(job, data.draw(st.lists(st.booleans(), max_size=6), "right"))

    @precondition(lambda self: self.drafts)
    @rule(data=st.data())
    def fail_draft(self, data: Any) -> None:
        job = data.draw(st.sampled_from(sorted(self.drafts)), "job")
        del self.drafts[job]
        self.session.draft_failed(job, "no drafter any more")
        self.stale.discard(job)
        assert not self.session.wants_draft()
        assert self.session.metrics["drafter_error"]

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def stop(self, data: Any) -> None:
        job = data.draw(st.sampled_from(sorted(self.stale)), "job")
        self.verifies.pop(job, None)
        self.drafts.pop(job, None)
        self.stale.discard(job)
        self.session.stopped(job)

    @precondition(lambda self: self.verifies)
    @rule(data=st.data())
    def stop_unasked(self, data: Any) -> None:
        job = data.draw(st.sampled_from(sorted(self.verifies)), "job")
        del self.verifies[job]
        self.stale.discard(job)
        self.session.stopped(job)

    @precondition(lambda self: len(self.emitted) > 5 and not self.session.finished)
    @rule()
    def cancel(self) -> None:
        self.session.cancel()
        assert self.session.reason == CANCELLED

    @precondition(lambda self: self.session.finished)
    @rule()
    def cancel_too_late(self) -> None:
        reason = self.session.reason
        self.session.cancel()
        assert self.session.reason == reason

    # -- what must hold -------------------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        self.text_is_the_targets()
        self.stale_tasks_are_named_once()
        self.the_next_token_is_being_asked_for()
        self.counters_add_up()
        self.the_end_has_its_reason()

    def text_is_the_targets(self) -> None:
        new = self.session.take_emitted()
        assert not (self.session.reason == CANCELLED and new)
        self.emitted += new
        assert self.emitted == self.text[: len(self.emitted)]
        path = self.session.path()
        assert path[: self.session.committed] == [*self.prompt, *self.emitted]
        assert self.session.take_emitted() == []

    def stale_tasks_are_named_once(self) -> None:
        named = self.session.take_stale()
        assert len(named) == len(set(named))
        assert not set(named) & self.stale
        assert set(named) <= set(self.verifies) | set(self.drafts)
        self.stale |= set(named)

    def the_next_token_is_being_asked_for(self) -> None:
        if self.session.finished:
            assert self.session.verify_urgency() == NONE
            assert not self.session.wants_draft()
            assert set(self.verifies) | set(self.drafts) == self.stale
            return
        at = self.session.committed
        running = any(
            job not in self.stale and first <= at <= len(path)
            for job, (first, path) in self.verifies.items()
        )
        drafting = self.session.wants_draft() or set(self.drafts) - self.stale
        waits = self.mode == _core.Mode.SI and drafting
        assert running or waits or self.session.verify_urgency() == URGENT
        if self.mode == _core.Mode.NON_SI:
            assert not drafting

    def counters_add_up(self) -> None:
        metrics = self.session.metrics
        assert metrics["emitted"] == len(self.emitted)
        assert metrics["accepted"] + metrics["rejected"] + metrics["bonus"] == len(self.emitted)
        assert sum(metrics["judged_at"]) == metrics["accepted"] + metrics["rejected"]
        assert sum(metrics["accepted_at"]) == metrics["accepted"]
        assert metrics["rejected"] == self.session.epoch >= self.epoch
        self.epoch = self.session.epoch

    def the_end_has_its_reason(self) -> None:
        done = len(self.emitted) == len(self.text)
        if self.session.reason in (LENGTH, STOP_TOKEN):
            assert done
            assert (self.session.reason == STOP_TOKEN) == (self.text[-1] == STOP)
        elif self.session.reason == ERROR:
            assert self.failures >= 2, "one failure is tried again"
        elif not self.session.finished:
            assert not done

    # -- answers --------------------------------------------------------------------------------

    def answer_verify(self, job: int, fewer: int = 0) -> None:
        first, path = self.verifies.pop(job)
        rows = []
        for position in range(first, len(path) + 1):
            rows.append(target_says(path[:position]))
            if position < len(path) and rows[-1] != path[position]:
                break  # rows behind a mismatch may be left out
        self.session.judged(job, rows[: max(1, len(rows) - fewer)])
        self.stale.discard(job)

    def answer_draft(self, job: int, right: list[bool]) -> None:
        path, most = self.drafts.pop(job)
        start = len(path)
        for good in right[:most]:
            path += ((target_says(path) + (not good)) % VOCAB,)
        self.session.drafted(job, list(path[start:]))
        self.stale.discard(job)

    def teardown(self) -> None:
        """From any state an honest driver comes to the end, in finitely many steps."""
        if not hasattr(self, "session"):
            return
        for _ in range(200):
            if self.session.finished:
                break
            if self.session.verify_urgency() != NONE and len(self.verifies) < 6:
                self.take_verify()
            elif self.session.wants_draft():
                self.take_draft()
            elif self.drafts:
                self.answer_draft(min(self.drafts), [True, False, True])
            else:
                self.answer_verify(min(self.verifies))
            self.everything_holds()
        assert self.session.finished
        for job in sorted(self.verifies):
            self.answer_verify(job)
        for job in sorted(self.drafts):
            self.answer_draft(job, [True])
        assert self.session.take_emitted() == [] == self.session.take_stale()


TestSession = SessionMachine.TestCase
TestSession.settings = settings(max_examples=120, stateful_step_count=40)
