"""Two target servers on one device: that their forwards run at the same time."""

from __future__ import annotations

from typing import Any

import torch

from dsi_native import Engine
from dsi_native.experiments.recorded import RecordedDrafts, Text
from dsi_native.recording import Recording
from suite import device_time, models
from suite.anchor import Anchor
from suite.section import Section, Where

# Of the time of the server that was busy for the shorter time. Servers that take turns on the host
# or on one stream have none at all.
_LEAST_ON_HOST = 0.2
_LEAST_ON_DEVICE = 0.01
SERVERS = 2


def shared_work(recording: Recording) -> dict[str, float]:
    """s that target servers 0 and 1 verified, and both at once; as the scheduler saw it."""
    spans = [
        device_time.union(
            (span.start_s, span.end_s)
            for span in recording.spans
            if span.server == server and span.kind == "verify"
        )
        for server in range(SERVERS)
    ]
    return _shares(spans)


def _shares(lanes: list[list[device_time.Interval]]) -> dict[str, float]:
    lengths = [device_time.length(lane) for lane in lanes]
    both = device_time.common(lanes[0], lanes[1])
    shorter = min(lengths)
    return {"busy": sum(lengths), "both": both, "share": both / shorter if shorter else 0.0}


def overlap(section: Section, where: Where, sp: int = SERVERS) -> None:
    """DSI with drafts that are known and cost the device nothing: only target servers use it.

    sp: for a test that wants a failure.
    """
    size = models.TINY if where.tiny else models.SMALL
    module = models.llama(size, where.device, torch.bfloat16, seed=3)
    prompt = models.prompt(size.vocab, 16, seed=3)
    tokens = 48 if where.tiny else 96
    drafts = RecordedDrafts(size.vocab)
    drafts.text = Text.of(prompt, models.generate(module, prompt, tokens))
    Anchor(module).say(drafts.text.ids)
    with Engine(
        models.served(module, where),
        drafts.drafter(),
        mode="dsi",
        sp=sp,
        lookahead=1,
        threads=where.threads,
        break_even=False,
    ) as engine:

        def run() -> Any:
            return engine.generate(prompt, max_new_tokens=tokens, ignore_eos=True, record=True)

        run()
        host = shared_work(run().recording)
        section.figures["host"] = host | {"unit": "s"}
        section.check(
            "servers verify at once, as the scheduler sees it",
            host["share"] >= _LEAST_ON_HOST,
            f"{host['share']:.1%} of the less busy server's time, at least {_LEAST_ON_HOST:.0%}",
        )
        if not where.cuda:
            section.skip("overlap on the device", "needs CUDA: kernels' times by stream")
            return
        _, work = device_time.traced(run)
    lanes = sorted(work.values(), key=device_time.length)[-SERVERS:]
    device = _shares(lanes) if len(lanes) == SERVERS else {"busy": 0.0, "both": 0.0, "share": 0.0}
    section.figures["device"] = device | {"unit": "us", "streams": len(work)}
    section.check(
        "kernels of two streams run at once, as the device says",
        device["share"] >= _LEAST_ON_DEVICE,
        f"{len(work)} streams; {device['share']:.1%} of the less busy one's time, at least "
        f"{_LEAST_ON_DEVICE:.0%}",
    )


__all__ = ["overlap", "shared_work"]
