"""Compiles the Triton kernels for GPUs that are not there; prints what they need, as JSON lines.

python triton_aot.py CAPABILITY [VARIANT...], e.g. 90 plain; without names, all variants. A line per
kernel, variant and dtype of logits: registers per thread, bytes of stack and shared memory, and the
kinds of global loads.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dsi_native.kernels.triton.cut import cut_kernel
from dsi_native.kernels.triton.launch import OPTIONS
from dsi_native.kernels.triton.sample import race_kernel
from dsi_native.kernels.triton.stats import stats_kernel
from dsi_native.kernels.triton.verify import verify_kernel

POINTERS = {
    "draft_lse": "*fp32", "draft_ids": "*i32", "d2t": "*i32", "t2d": "*i32", "mapping": "*i32",
    "num_draft": "*i32", "temperature": "*fp32", "draft_temperature": "*fp32", "cut": "*fp32",
    "draft_cut": "*fp32", "offsets": "*i64", "edit_ids": "*i32", "operations": "*i32",
    "values": "*fp32", "draft_offsets": "*i64", "draft_edit_ids": "*i32",
    "draft_operations": "*i32", "draft_values": "*fp32", "seed": "*u64", "position": "*i64",
    "top_k": "*i32", "top_p": "*fp32", "min_p": "*fp32", "near": "*fp32", "peaks": "*fp32",
    "masses": "*fp32",
    "firsts": "*i32", "odds": "*i32", "at": "*fp32", "chosen": "*fp32", "best": "*u64",
    "arrivals": "*i32", "tokens": "*i32", "num_accepted": "*i32", "logprob": "*fp32",
    "lse": "*fp32", "status": "*i32",
}  # fmt: skip
UNALIGNED = {"batch", "width", "chunks", "listed"}
EDITS = {"offsets", "edit_ids", "operations", "values"}
DRAFT_EDITS = {"draft_" + name for name in EDITS}
MAP = {"d2t", "t2d"}
LOGPROBS = {"logprob", "lse"}
CUTS = {"cut", "draft_cut"}
LAW = {"draft", "draft_lse"}
PLAIN = EDITS | DRAFT_EDITS | LOGPROBS | {"mapping", "draft_lse"}

# kernel, variant, arguments that are None
VARIANTS = [
    (stats_kernel, "plain", PLAIN | MAP | CUTS),
    (stats_kernel, "everything", {"draft_lse"}),
    (verify_kernel, "plain", PLAIN | MAP | CUTS),
    (verify_kernel, "everything", {"draft_lse"}),
    (verify_kernel, "mapped, lse given", PLAIN - {"draft_lse"}),
    (verify_kernel, "point mass", PLAIN | MAP | LAW | CUTS),
    (race_kernel, "plain", PLAIN | MAP | CUTS),
    (race_kernel, "everything", {"mapping"}),
    (race_kernel, "drafter", EDITS | MAP | {"draft_ids", "num_draft", "num_accepted", "logprob"}),
    (cut_kernel, "plain", EDITS | {"mapping"}),
    (cut_kernel, "everything", set()),
]
LOGITS = {"plain": ("fp32", "bf16", "fp16"), "everything": ("fp32", "bf16")}


def source(kernel: Any, absent: set[str], logits: str) -> ASTSource:
    signature, constants, attributes = {}, {}, {}
    for i, name in enumerate(kernel.arg_names):
        if name in absent:
            signature[name], constants[name] = "constexpr", None
        elif name in {"TAG", "CHUNKS"}:
            signature[name], constants[name] = "constexpr", {"TAG": 1, "CHUNKS": 64}[name]
        elif name in {"target", "draft", "logits"}:
            signature[name] = "*" + logits
        else:
            signature[name] = POINTERS.get(name, "i32")
        if name not in constants and name not in UNALIGNED:
            attributes[(i,)] = [["tt.divisibility", 16]]
    return ASTSource(kernel, signature, constants, attributes)


def measure(kernel: Any, absent: set[str], logits: str, capability: int) -> dict[str, Any]:
    compiled = triton.compile(
        source(kernel, absent, logits),
        target=GPUTarget("cuda", capability, 32),
        options=OPTIONS[kernel],
    )
    loads = re.findall(r"ld\.global[\w.:]*", compiled.asm["ptx"])
    return {"loads": sorted(set(loads)), **resources(compiled.asm["cubin"])}


def resources(cubin: bytes) -> dict[str, int]:
    """Registers, stack and shared bytes of the kernel in a cubin, by Triton's own cuobjdump."""
    tool = next(Path(triton.__file__).parent.rglob("cuobjdump"))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|SHARED):(\d+)", text)}
    return {"registers": found["REG"], "stack": found["STACK"], "shared": found["SHARED"]}


def main(capability: int, variants: set[str]) -> Iterator[dict[str, Any]]:
    for kernel, variant, absent in VARIANTS:
        if variants and variant not in variants:
            continue
        for logits in LOGITS.get(variant, ("bf16",)):
            found = measure(kernel, absent, logits, capability)
            yield {"kernel": kernel.fn.__name__, "variant": variant, "logits": logits, **found}


if __name__ == "__main__":
    for line in main(int(sys.argv[1]), set(sys.argv[2:])):
        print(json.dumps(line), flush=True)
