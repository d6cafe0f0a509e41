"""What a request gives back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dsi_native.recording import Recording

FINISH_REASONS = ("", "length", "stop_token", "stop_string", "cancelled", "error")


@dataclass(frozen=True)
class TokenLogprob:
    """An emitted token's log-probability; `top`: the most likely ids with theirs, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Statistics:
    """What one request did and cost. Times in seconds, from submission; None: not measured.

    method: how a drafter with another vocabulary drafted, "tli" or "slem"; None for others.
    acceptance: drafts accepted of drafts judged; acceptance_at[i]: the same for drafts i places
        behind the last token that the target chose itself.
    target_forwards: verifications handed to target servers, of them wasted_forwards ran to their
        end for nothing, stopped_forwards were ended early and failed_forwards raised.
    target_busy: share of the time that the pool's target servers worked for this request; in a
        loaded engine the rest went to others.
    plain_run_s: what non-SI would have cost at this run's time per forward. Where the forwards
        compete for the same cores (forwards_compete) each is slower than alone, and this too much.
    draft_pauses: times that drafting was stopped because plain decoding was faster; undrafted:
        tokens decoded without it for that reason, the trial that decided included.
    drafter_error: why drafting ended early, "" if it did not.
    """

    mode: str
    method: str | None
    sp: int
    lookahead: int
    prompt_tokens: int
    new_tokens: int
    acceptance: float | None
    acceptance_at: list[float | None]
    accepted: int
    rejected: int
    bonus: int
    drafted: int
    target_forwards: int
    wasted_forwards: int
    stopped_forwards: int
    failed_forwards: int
    tokens_per_target_forward: float
    queued_s: float
    time_to_first_token_s: float | None
    time_per_token_s: float | None
    total_s: float
    target_busy: float
    drafter_busy: float
    target_forward_s: float | None
    drafter_forward_s: float | None
    plain_run_s: float | None
    forwards_compete: bool
    draft_pauses: int
    undrafted: int
    drafter_error: str

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python types."""
        return asdict(self)


@dataclass(frozen=True)
class Output:
    """One finished request.

    tokens: the new ids, the one that ended the request included. text: their text, special tokens
    left out, up to a stop string. finish_reason: "length" (max_new_tokens, or the target's context
    is full), "stop_token" (a stop id or the model's end of sequence), "stop_string".
    seed: the one used, also where none was given. recording: where `record` asked for it.
    """

    tokens: list[int]
    text: str
    finish_reason: str
    seed: int
    statistics: Statistics
    logprobs: list[TokenLogprob] | None = field(default=None, repr=False)
    recording: Recording | None = field(default=None, repr=False)


def statistics_of(
    ending: dict[str, Any],
    *,
    mode: str,
    method: str | None,
    sp: int,
    prompt_tokens: int,
    forwards_compete: bool,
) -> Statistics:
    """From the native ending of a request."""
    tokens = ending["emitted"]
    judged = ending["accepted"] + ending["rejected"]
    forwards = ending["verifies"]
    first = ending["first_token_s"] or None
    forward = ending["target_forward_s"] or None
    per_token = (ending["total_s"] - first) / (tokens - 1) if first and tokens > 1 else None
    running = ending["total_s"] - ending["queued_s"]
    return Statistics(
        mode=mode,
        method=method,
        sp=sp,
        lookahead=ending["lookahead"],
        prompt_tokens=prompt_tokens,
        new_tokens=tokens,
        acceptance=ending["accepted"] / judged if judged else None,
        acceptance_at=[
            good / all_ if all_ else None
            for good, all_ in zip(ending["accepted_at"], ending["judged_at"], strict=True)
        ],
        accepted=ending["accepted"],
        rejected=ending["rejected"],
        bonus=ending["bonus"],
        drafted=ending["drafted"],
        target_forwards=forwards,
        wasted_forwards=ending["wasted_verifies"],
        stopped_forwards=ending["stopped_verifies"],
        failed_forwards=ending["failed_verifies"],
        tokens_per_target_forward=tokens / forwards if forwards else 0.0,
        queued_s=ending["queued_s"],
        time_to_first_token_s=first,
        time_per_token_s=per_token,
        total_s=ending["total_s"],
        target_busy=ending["target_busy_s"] / ending["servers_s"] if ending["servers_s"] else 0.0,
        drafter_busy=ending["drafter_busy_s"] / running if running > 0 else 0.0,
        target_forward_s=forward,
        drafter_forward_s=ending["drafter_forward_s"] or None,
        plain_run_s=first + (tokens - 1) * forward if first and forward else None,
        forwards_compete=forwards_compete,
        draft_pauses=ending["draft_pauses"],
        undrafted=ending["undrafted"],
        drafter_error=ending["drafter_error"],
    )
