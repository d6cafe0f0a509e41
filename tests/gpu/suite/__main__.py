"""Checks and times engines on the GPU at hand; writes one JSON report. Started by run.sh.

--device cpu --tiny does the same on the CPU, in seconds, as far as a CPU goes; what needs CUDA is
then reported as skipped. Exit status: 0, 1 if a check failed, 2 where it cannot run at all.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from suite import aborts, host_time, isolation, overlap, report, speed, tables, texts
from suite.section import Where

# Section -> its function and its share of the time.
SECTIONS: dict[str, tuple[isolation.Run, float]] = {
    "equality": (texts.equality, 45),
    "independence": (texts.independence, 50),
    "overlap": (overlap.overlap, 20),
    "aborts": (aborts.aborts, 30),
    "host-time": (host_time.host_time, 30),
    "idle-pair": (speed.idle_pair, 120),
    "busy-pair": (speed.busy_pair, 120),
}
_SECONDS = 440.0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("gpu.json"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="the smallest models, few runs")
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="in all, about")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION",
                        help=", ".join(SECTIONS))  # fmt: skip
    return parser.parse_args(arguments)


def no_cuda() -> bool:
    import torch

    return not torch.cuda.is_available()


def main(arguments: list[str] | None = None) -> int:
    given = parse(arguments)
    where = Where(given.device, given.tiny, given.eager)
    # The device is for the children: a process that has touched it cannot be forked.
    if where.cuda and isolation.in_child(no_cuda, 60):
        print("no CUDA device", file=sys.stderr)
        return 2
    begun = time.monotonic()
    out = report.console()
    settings = {"device": given.device, "tiny": given.tiny, "eager": given.eager,
                "seconds": given.seconds}  # fmt: skip
    made = report.Report(isolation.in_child(lambda: report.facts(where), 60), settings)
    chosen = {name: part for name, part in SECTIONS.items() if name in (given.only or SECTIONS)}
    whole = sum(share for _, share in chosen.values())
    for name, (run, share) in chosen.items():
        left = begun + given.seconds - time.monotonic()
        # What one section saved is there for those that follow.
        budget = max(0.0, left) * share / whole
        limit = max(0.0, min(budget + isolation.GRACE_S, left))
        whole -= share
        entry = isolation.run_section(name, run, where, budget, limit)
        made.add(name, entry, time.monotonic() - begun)
        made.write(given.report)
        report.show_section(out, name, entry)
    tables.show(out, made.content)
    said = ", ".join(made.failed) or "nothing"
    out.print(f"report: {given.report}; failed: {said}", markup=False, soft_wrap=True)
    return 1 if made.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
