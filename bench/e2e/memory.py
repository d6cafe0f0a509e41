"""Resident memory at SP = 1 and SP = 4: one copy of the weights, one set of caches per server.

Each measurement is a fresh process with as many requests at once as the most servers, so that all
servers work. The claim: without its keys and values, an engine with four
target servers takes at most 10 % more memory than one with a single server.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from rig import report
from rig.inputs import prompts

MOST = 1.10
_MIB = 2**20


def measure(
    sp: int, drafter: str, requests: int, tokens: int, prompt_tokens: int
) -> dict[str, Any]:
    """Bytes in this process while an engine of `sp` servers decodes with all of them."""
    import numpy as np
    import torch
    from rig import transformers_side

    import dsi_native

    transformers_side.quiet()
    torch.set_num_threads(1)
    process = psutil.Process()
    before = process.memory_info().rss
    model = dsi_native.load_model("smollm2", dtype="float32")
    weights = sum(p.nbytes for p in model.model.parameters())
    servers = _remember_servers(model)
    text = " ".join(prompt.text for prompt in prompts(12))
    ids = np.asarray(model.tokenizer.encode(text) * 8, np.int32)
    parts = [ids[i * 50 :][:prompt_tokens] for i in range(requests)]
    most = {"rss_bytes": 0, "cache_bytes": 0, "servers_used": 0}
    with dsi_native.Engine(model, drafter, sp=sp, lookahead=1, threads=1) as engine:
        ctypes.CDLL(None).malloc_trim(0)  # what quantising left behind is not the engine's
        loaded = process.memory_info().rss
        going = [engine.submit(part, max_new_tokens=tokens, ignore_eos=True) for part in parts]
        while engine.unfinished:
            held = [_cache_bytes(server) for server in servers]
            most["cache_bytes"] = max(most["cache_bytes"], sum(held))
            most["servers_used"] = max(most["servers_used"], sum(size > 0 for size in held))
            most["rss_bytes"] = max(most["rss_bytes"], process.memory_info().rss)
            time.sleep(0.02)
        for request in going:
            request.result()
    return most | {
        "sp": sp,
        "weights_bytes": weights,
        "imports_bytes": before,
        "loaded_bytes": loaded,
        "prompt_tokens": prompt_tokens,
    }


def _remember_servers(model: Any) -> list[Any]:
    """A list that will hold the target servers the engine asks `model` for."""
    kept: list[Any] = []
    made = model.servers

    def servers(n: int, threads: int | None = None) -> list[Any]:
        kept[:] = made(n, threads)
        return list(kept)

    model.servers = servers
    return kept


def _cache_bytes(server: Any) -> int:
    """Read from another thread than the server's, so its caches may change meanwhile."""
    while True:
        try:
            return server.cache_bytes
        except RuntimeError:  # a dictionary changed its size
            continue


def show(found: list[dict[str, Any]]) -> bool:
    shown = report.table(
        "Resident memory, MiB",
        *(
            "SP",
            "weights",
            "after loading",
            "most while decoding",
            "of it caches",
            "without caches",
        ),
        "servers used",
    )
    for one in found:
        without = one["rss_bytes"] - one["cache_bytes"]
        shown.add_row(
            str(one["sp"]),
            *(
                f"{size / _MIB:.0f}"
                for size in (
                    *(one["weights_bytes"], one["loaded_bytes"], one["rss_bytes"]),
                    *(one["cache_bytes"], without),
                )
            ),
            str(one["servers_used"]),
        )
    report.console.print(shown)
    first, *others = found
    ok = True
    for one in others:
        ratio = (one["rss_bytes"] - one["cache_bytes"]) / (
            first["rss_bytes"] - first["cache_bytes"]
        )
        ok &= report.verdict(
            ratio <= MOST,
            f"SP = {one['sp']} takes at most {MOST:.2f}x the memory of SP = {first['sp']}, caches "
            f"apart ({ratio:.3f}x)",
        )
        used = one["servers_used"] == one["sp"]
        ok &= report.verdict(used, f"all {one['sp']} servers decoded ({one['servers_used']} did)")
    return ok


def main() -> int:
    parser = report.options(__doc__)
    parser.add_argument("--sp", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--drafter", default="int4", choices=("int4", "int8", "lookup"))
    parser.add_argument("--tokens", type=int, help="new tokens (default 16, --full 64)")
    parser.add_argument("--prompt-tokens", type=int, help="default 256, --full 1024")
    parser.add_argument("--measure", type=int, metavar="SP", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    tokens = arguments.tokens or (64 if arguments.full else 16)
    prompt_tokens = arguments.prompt_tokens or (1024 if arguments.full else 256)
    if arguments.measure is not None:
        requests = max(arguments.sp)
        found = measure(arguments.measure, arguments.drafter, requests, tokens, prompt_tokens)
        print(json.dumps(found))
        return 0
    facts = report.begin("memory: one copy of the weights")
    found = []
    for sp in arguments.sp:
        command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(sp)]
        command += ["--drafter", arguments.drafter, "--tokens", str(tokens)]
        command += ["--sp", *map(str, arguments.sp)]
        command += ["--prompt-tokens", str(prompt_tokens)]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found.append(json.loads(answer.splitlines()[-1]))
    ok = show(found)
    report.end(facts, arguments, measured=found)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
