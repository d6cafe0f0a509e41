"""`dsi doctor`: what is installed, what is missing, and why CUDA cannot be used."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

import dsi_native
from dsi_native import _core
from dsi_native.errors import InvalidArgument

DRIVER = "libcuda.so.1"
# distribution -> what installs it; None: part of the base install
EXTRA_OF = {
    "numpy": None,
    "torch": "torch",
    "transformers": "hf",
    "tokenizers": "hf",
    "safetensors": "hf",
    "gguf": "hf",
    "typer": "cli",
    "rich": "cli",
    "triton": "triton",
}
ISA_FLAGS = ("sse4_2", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what is installed, what is missing and how to get it, and why CUDA is unavailable."""
    report = examine()
    if as_json:
        typer.echo(json.dumps(report))
        return
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("dsi_native", report["dsi_native"])
    table.add_row("Python", report["python"])
    for name, version in report["packages"].items():
        table.add_row(name, version or "[yellow]not installed[/yellow]")
    table.add_row("embedded model", report["embedded_model"] or "[yellow]not installed[/yellow]")
    table.add_row("CPU", report["cpu"]["summary"])
    table.add_row("CUDA", report["cuda"]["summary"])
    table.add_row("CUDA in torch", report["cuda"]["torch"])
    console = Console(highlight=False)
    console.print(table)
    for command in report["install"]:
        console.print(f"To install what is missing: {command}", markup=False, soft_wrap=True)
    if not report["install"]:
        console.print("Everything `dsi generate` needs is here.")


def examine() -> dict[str, Any]:
    """All that `dsi doctor` reports, as plain JSON types. Imports none of the packages."""
    packages = {name: _version(name) for name in EXTRA_OF}
    cuda = examine_cuda()
    wanted = {
        extra
        for name, extra in EXTRA_OF.items()
        # Triton compiles for a GPU; without one it would be of no use.
        if extra and packages[name] is None and (extra != "triton" or cuda["available"])
    }
    model, model_command = _embedded_model()
    install = [f'pip install "dsi-native[{",".join(sorted(wanted))}]"'] if wanted else []
    return {
        "dsi_native": dsi_native.__version__,
        "python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        "packages": packages,
        "embedded_model": model,
        "cpu": examine_cpu(),
        "cuda": cuda,
        "install": install + ([model_command] if model is None else []),
    }


def _version(distribution: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


def _embedded_model() -> tuple[str | None, str]:
    """The embedded model's file where it is installed, and the command that installs it."""
    from dsi_native.models.embedded import INSTALL_COMMAND, find_gguf

    try:
        return str(find_gguf()), INSTALL_COMMAND
    except InvalidArgument:
        return None, INSTALL_COMMAND


def examine_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """The CPUs this process may use, their name and the vector extensions that matter here."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name, flags, cores = platform.processor() or platform.machine(), set(), set()
    core = ["", ""]
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text().splitlines():
            key, _, value = (part.strip() for part in line.partition(":"))
            if key == "model name":
                name = value
            elif key == "flags":
                flags = set(value.split())
            elif key == "physical id":
                core[0] = value
            elif key == "core id":
                core[1] = value
                cores.add(tuple(core))
    isa = [flag for flag in ISA_FLAGS if flag in flags]
    threads = os.cpu_count() or 1
    return {
        "name": name,
        "cores": len(cores) or threads,
        "threads": threads,
        "usable_threads": usable,
        "isa": isa,
        "summary": f"{name}: {len(cores) or threads} cores, {threads} threads, {usable} usable; "
        + (" ".join(isa) or "no vector extension known here"),
    }


def examine_cuda(library: str = DRIVER) -> dict[str, Any]:
    """Asks the CUDA driver itself, through the native loader. `summary` says why it is unavailable.

    library: the driver's shared library, opened at run time; nothing here links it.
    """
    found = _core.cuda_driver(library)
    if found["available"]:
        number = f"{found['version'] // 1000}.{found['version'] % 1000 // 10}"
        summary = f"driver for CUDA {number}: {', '.join(found['devices'])}"
    else:
        summary = f"unavailable: {found['reason']}"
    return {
        "available": found["available"],
        "devices": found["devices"],
        "code": found["code"],
        "summary": summary,
        "torch": examine_torch(),
    }


def examine_torch() -> str:
    """What torch was built for, read from its files: importing it takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return "not installed"
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return "unknown"
    built = re.search(r"^cuda\b[^=]*= *'([^']+)'", text, re.MULTILINE)
    return f"built for CUDA {built[1]}" if built else "built without CUDA"
