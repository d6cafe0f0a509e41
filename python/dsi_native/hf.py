"""Drop-in for transformers: `model.generate(..., custom_generate=dsi_native.hf.generate)`."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessorList

from dsi_native.engine import Engine
from dsi_native.errors import InvalidArgument
from dsi_native.models.transformers import TransformersModel

# What the native side does itself, in transformers' own order, behind every other processor.
_CUTS = {
    "TemperatureLogitsWarper": ("temperature", "temperature"),
    "TopKLogitsWarper": ("top_k", "top_k"),
    "TopPLogitsWarper": ("top_p", "top_p"),
    "MinPLogitsWarper": ("min_p", "min_p"),
}
_MODES = ("greedy_search", "sample")
# transformers' own ways to draft -> what to say instead.
_DRAFTING = {
    "assistant_model": "drafter=<that model>",
    "prompt_lookup_num_tokens": "drafter='lookup', and lookahead=<that number>",
    "assistant_early_exit": "drafter='int4' or another drafter",
}
_REFUSED_OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


def generate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any = None,
    stopping_criteria: Any = None,
    generation_config: Any = None,
    synced_gpus: bool = False,
    streamer: Any = None,
    drafter: Any = "lookup",
    sp: int = 2,
    lookahead: int | str = "auto",
    mode: str = "dsi",
    verification: str = "coupled",
    threads: int | None = None,
    **model_kwargs: Any,
) -> Any:
    """Called by transformers' generate(); returns what its own decoding would, ids [B, n].

    drafter, sp, lookahead, mode, threads: as in dsi_native.Engine; pass them to model.generate().
    The engine is made at the first call, kept with the model, and made anew when one of them
    changes. Greedy text equals generate()'s. Sampled text has its law; the seed comes from torch's
    generator, so torch.manual_seed() makes it repeatable. Every logits processor, stopping
    criterion and streamer is honoured; processors must depend on their arguments only.
    Raises InvalidArgument for what cannot be honoured: beams, several sequences per prompt, scores,
    and transformers' own ways to draft.
    """
    _refuse_drafting(generation_config)
    _refuse(model, generation_config, synced_gpus, model_kwargs)
    engine = _engine_of(
        model, drafter=drafter, sp=sp, lookahead=lookahead, mode=mode, threads=threads
    )
    sampling, processors = _sampling(logits_processor or [], generation_config)
    sampling["verification"] = verification
    criteria = [c for c in stopping_criteria or [] if not _is_native(c, generation_config)]
    streamer = _streamer_fed(streamer, input_ids)
    room = generation_config.max_length - input_ids.shape[1]
    if room < 1:
        return input_ids
    requests = [
        engine.submit(
            row[padding:],
            max_new_tokens=room,
            seed=_seed() if generation_config.do_sample else 0,
            logits_processor=_hook([_for_row(p, index) for p in processors], row[:padding]),
            **sampling,
        )
        for index, (row, padding) in enumerate(_rows(input_ids, model_kwargs.get("attention_mask")))
    ]
    try:
        new = _read_all(requests, input_ids, criteria, streamer)
        if not any(hasattr(c, "eos_token_id") for c in stopping_criteria or []):
            # Without an end token to pad behind, transformers lets rows go on until all are done.
            width = max(len(tokens) for tokens, _ in new)
            for tokens, more in new:
                tokens.extend(itertools.islice(more, width - len(tokens)))
    finally:
        for request in requests:
            request.cancel()
    if streamer is not None:
        streamer.end()
    sequences = _padded(input_ids, [tokens for tokens, _ in new], generation_config)
    if generation_config.return_dict_in_generate:
        from transformers.generation import GenerateDecoderOnlyOutput

        return GenerateDecoderOnlyOutput(sequences=sequences)
    return sequences


def _refuse_drafting(config: Any) -> None:
    """generate() takes them and does not pass them on: they would do nothing."""
    theirs = _of_caller("assistant_model", sys._getframe(2))
    given = {name: getattr(config, name, None) for name in _DRAFTING} | {"assistant_model": theirs}
    for name, instead in _DRAFTING.items():
        if given[name] is not None:
            raise InvalidArgument(f"{name}: is not used with dsi_native; pass {instead}")


def _of_caller(name: str, caller: Any) -> Any:
    """What generate(), the caller, was given as `name`: it passes not all on to custom_generate."""
    return caller.f_locals.get(name) if caller.f_code.co_name == "generate" else None


def _refuse(model: Any, config: Any, synced_gpus: bool, model_kwargs: dict[str, Any]) -> None:
    if (config.num_return_sequences or 1) > 1:
        raise InvalidArgument(
            f"num_return_sequences: {config.num_return_sequences} is not supported, 1 is"
        )
    if (config.num_beams or 1) > 1:
        raise InvalidArgument(f"num_beams: {config.num_beams} is not supported, 1 is")
    mode = str(getattr(config.get_generation_mode(), "value", config.get_generation_mode()))
    if mode not in _MODES:
        raise InvalidArgument(
            f"generation_config: {mode} is not supported, {_MODES[0]} and sample are"
        )
    if getattr(config, "guidance_scale", None) not in (None, 1):
        raise InvalidArgument("guidance_scale: is not supported, its processor keeps a cache")
    for name in _REFUSED_OUTPUTS:
        if getattr(config, name, None):
            raise InvalidArgument(f"{name}: is not supported")
    if synced_gpus:
        raise InvalidArgument("synced_gpus: is not supported")
    if model.config.is_encoder_decoder or model_kwargs.get("inputs_embeds") is not None:
        raise InvalidArgument("model: decoders that start from input_ids are supported, alone")


class _Kept:
    """An engine in its model's __dict__; a copy of the model, or a pickle, has none."""

    engine: Engine | None = None
    options: dict[str, Any] | None = None

    def __reduce__(self) -> Any:
        return _Kept, ()


def _engine_of(model: Any, **options: Any) -> Engine:
    kept = model.__dict__.setdefault("_dsi_engine", _Kept())
    options_here = {**options, "device": model.device, "dtype": model.dtype}
    if kept.engine is None or kept.options != options_here:
        if kept.engine is not None:
            kept.engine.close()
            kept.engine = None
        kept.engine = Engine(TransformersModel(model), **options)
        kept.options = options_here
    return kept.engine


def _seed() -> int:
    return int(torch.randint(0, 2**62, (1,)))


def _sampling(processors: Any, config: Any) -> tuple[dict[str, Any], list[Any]]:
    """Native parameters, and the processors that they do not cover."""
    sampling: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}
    sampling["stop_ids"] = sorted(_eos_ids(config))
    rest = list(processors)
    if config.do_sample:
        sampling["temperature"] = 1.0
        cuts = []
        while rest and type(rest[-1]).__name__ in _CUTS:
            cuts.insert(0, rest.pop())
        # Cuts keep ids that tie at the threshold, where transformers may drop some of them.
        for cut in cuts:
            ours, theirs = _CUTS[type(cut).__name__]
            value = getattr(cut, theirs)
            sampling[ours] = int(value) if ours == "top_k" else float(value)
    return sampling, rest


def _eos_ids(config: Any) -> set[int]:
    eos = config.eos_token_id
    if eos is None:
        return set()
    return {int(i) for i in (eos if isinstance(eos, (list, tuple)) else [eos])}


def _hook(processors: list[Any], padding: np.ndarray) -> Any:
    """All of them as one; they see the padding of their row, as they do in transformers."""
    if not processors:
        return None
    hook = LogitsProcessorList(processors)

    def apply(prefix: np.ndarray, logits: np.ndarray) -> np.ndarray:
        ids = torch.from_numpy(np.concatenate([padding, prefix]).astype(np.int64)).unsqueeze(0)
        return hook(ids, torch.from_numpy(logits).unsqueeze(0))[0].float().cpu().numpy()

    return apply


def _for_row(processor: Any, index: int) -> Any:
    """The processor for a batch of this row alone: two of transformers' know rows by number."""
    lengths = getattr(processor, "prompt_ignore_length", None)
    allowed = getattr(processor, "_prefix_allowed_tokens_fn", None)
    if isinstance(lengths, torch.Tensor):
        processor = copy.copy(processor)
        processor.prompt_ignore_length = lengths[index : index + 1]
    elif allowed is not None:
        processor = copy.copy(processor)
        processor._prefix_allowed_tokens_fn = lambda _, ids: allowed(index, ids)
    return processor


def _is_native(criterion: Any, config: Any) -> bool:
    """Whether generate() made it of a setting that the request has anyway."""
    kind = type(criterion).__name__
    if kind == "MaxLengthCriteria":
        return bool(criterion.max_length >= config.max_length)
    if kind == "EosTokenCriteria":
        ids = torch.as_tensor(criterion.eos_token_id).flatten().tolist()
        return set(ids) <= _eos_ids(config)
    return False


def _streamer_fed(streamer: Any, input_ids: torch.Tensor) -> Any:
    """The streamer to write to, with the prompt in it.

    transformers gives the prompt to the streamer of generate(), and then does not pass it on to a
    callable custom_generate (4.56 to 5.24): without a look at the caller it would stay silent.
    """
    theirs = _of_caller("streamer", sys._getframe(2))
    chosen = streamer if streamer is not None else theirs
    if chosen is not None and len(input_ids) > 1:
        raise InvalidArgument("streamer: works with one prompt, got a batch")
    if chosen is not None and chosen is not theirs:
        chosen.put(input_ids.cpu())
    return chosen


def _rows(input_ids: torch.Tensor, attention_mask: Any) -> list[tuple[np.ndarray, int]]:
    """Each prompt, and how much padding stands on its left."""
    rows = []
    for index, row in enumerate(input_ids):
        padding = 0
        if attention_mask is not None:
            mask = attention_mask[index].bool()
            padding = int(mask.int().argmax())
            if not bool(mask[padding:].all()):
                raise InvalidArgument("attention_mask: may mask padding on the left only")
        rows.append((row.cpu().numpy(), padding))
    return rows


def _read_all(
    requests: list[Any], input_ids: torch.Tensor, criteria: list[Any], streamer: Any
) -> list[tuple[list[int], Iterator[int]]]:
    """Each row's new ids until its request ends or a stopping criterion says so, and the rest."""
    rows = []
    for request, prompt in zip(requests, input_ids, strict=True):
        new: list[int] = []
        tokens = request.tokens()
        for token in tokens:
            new.append(token)
            if streamer is not None:
                streamer.put(torch.tensor([token]))
            if criteria:
                so_far = torch.cat([prompt.cpu(), torch.tensor(new)]).unsqueeze(0)
                if any(bool(torch.as_tensor(c(so_far, None)).all()) for c in criteria):
                    break
        rows.append((new, tokens))
    return rows


def _padded(input_ids: torch.Tensor, new: list[list[int]], config: Any) -> torch.Tensor:
    width = max(map(len, new))
    pad = config.pad_token_id
    if pad is None:
        eos = config.eos_token_id
        pad = (eos[0] if isinstance(eos, (list, tuple)) else eos) if eos is not None else 0
    rows = [tokens + [int(pad)] * (width - len(tokens)) for tokens in new]
    return torch.cat([input_ids, torch.tensor(rows, device=input_ids.device)], dim=1)


__all__ = ["generate"]
