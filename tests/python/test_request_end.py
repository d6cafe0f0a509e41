"""The end of a request, seen by a reader that is late or early."""

from __future__ import annotations

from typing import Any

from dsi_native.request import Request


class Ticket:
    """A ticket whose last tokens and end come right after the reader found nothing."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = [[], [(5, 0.0, []), (6, 0.0, [])], []]
        self.reads = 0

    def take(self, max_wait_s: float = -1.0) -> list[Any]:
        self.reads += 1
        return self.rows[min(self.reads, 3) - 1]

    @property
    def ended(self) -> bool:
        return self.reads >= 1

    @property
    def drained(self) -> bool:
        return self.reads >= 2

    def raise_trouble(self) -> None:
        pass

    def ending(self) -> dict[str, Any]:
        names = (
            "emitted accepted rejected bonus drafted verifies wasted_verifies stopped_verifies "
            "failed_verifies queued_s first_token_s total_s target_busy_s drafter_busy_s servers_s "
            "target_forward_s drafter_forward_s lookahead draft_pauses undrafted"
        )
        zero = dict.fromkeys(names.split(" "), 0)
        return {**zero, "reason": 1, "accepted_at": [], "judged_at": [], "drafter_error": ""}


def request() -> Request:
    return Request(
        None,
        Ticket(),  # type: ignore[arg-type]
        None,
        seed=0,
        prompt_tokens=1,
        mode="non-si",
        method=None,
        sp=1,
        forwards_compete=False,
        logprobs=False,
        deadline=None,
    )


def test_tokens_that_come_with_the_end_are_not_lost() -> None:
    assert request().result().tokens == [5, 6]
    assert list(request().tokens()) == [5, 6]
