"""Checks and times the Triton kernels on the GPU at hand; writes one JSON report.

--dry-run does the same on tiny inputs in the interpreter, without what only a GPU has (streams and
graphs) and what takes long there (an engine). Exit status 1 if a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("kernels.json"))
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--seconds", type=float, default=180.0, help="in all, about")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    given = parse(arguments)
    if given.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    import checks
    import engine
    import timings
    import torch
    import triton

    if not given.dry_run and not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 2
    device = "cpu" if given.dry_run else "cuda"
    begun = time.monotonic()
    report: dict[str, Any] = {
        "device": "interpreter" if given.dry_run else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    parts = {
        "wide": lambda: checks.wide(device, given.dry_run),
        "load": lambda: checks.load(device, given.dry_run),
        "streams": lambda: checks.streams(device),
        "graphs": lambda: checks.graphs(device),
        "engine": lambda: engine.check(device, given.dry_run),
        "timings": lambda: timings.measure(device, given.dry_run),
        "cases": lambda: checks.cases(device, begun + given.seconds, given.dry_run),
    }
    if given.dry_run:
        del parts["streams"], parts["graphs"], parts["engine"]
    failed = []
    for name, part in parts.items():
        started = time.monotonic()
        try:
            report[name] = part()
        except Exception as error:  # the other parts are worth having
            report[name] = {"failures": [f"{type(error).__name__}: {error}"[:2000]]}
        if isinstance(report[name], dict) and report[name].get("failures"):
            failed.append(name)
        print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
        report["seconds"] = round(time.monotonic() - begun, 1)
        given.report.write_text(json.dumps(report, indent=1) + "\n")
    print(f"report: {given.report}; failed: {', '.join(failed) or 'nothing'}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
