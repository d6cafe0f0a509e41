"""Drop-in for transformers: `model.generate(..., custom_generate=dsi_native.hf.generate)`."""

from __future__ import annotations

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
# Made by generate() from settings that are passed on as numbers.
_KNOWN_CRITERIA = {"MaxLengthCriteria", "EosTokenCriteria"}
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
    Raises InvalidArgument for what cannot be honoured: beams, several sequences per prompt, scores.
    """
    _refuse(generation_config, synced_gpus)
    engine = _engine_of(
        model, drafter=drafter, sp=sp, lookahead=lookahead, mode=mode, threads=threads
    )
    sampling = _sampling(logits_processor or [], generation_config)
    sampling["verification"] = verification
    criteria = [c for c in stopping_criteria or [] if type(c).__name__ not in _KNOWN_CRITERIA]
    if streamer is not None:
        if len(input_ids) > 1:
            raise InvalidArgument("streamer: works with one prompt, got a batch")
        streamer.put(input_ids.cpu())
    room = generation_config.max_length - input_ids.shape[1]
    if room < 1:
        return input_ids
    requests = [
        engine.submit(row, max_new_tokens=room, **{**sampling, "seed": _seed()})
        for row in _rows(input_ids, model_kwargs.get("attention_mask"))
    ]
    try:
        new = [
            _read(request, row, criteria, streamer)
            for request, row in zip(requests, input_ids, strict=True)
        ]
    except BaseException:
        for request in requests:
            request.cancel()
        raise
    if streamer is not None:
        streamer.end()
    sequences = _padded(input_ids, new, generation_config)
    if generation_config.return_dict_in_generate:
        from transformers.generation import GenerateDecoderOnlyOutput

        return GenerateDecoderOnlyOutput(sequences=sequences)
    return sequences


def _refuse(config: Any, synced_gpus: bool) -> None:
    if (config.num_return_sequences or 1) > 1:
        raise InvalidArgument(
            f"num_return_sequences: {config.num_return_sequences} is not supported, 1 is"
        )
    if (config.num_beams or 1) > 1:
        raise InvalidArgument(f"num_beams: {config.num_beams} is not supported, 1 is")
    for name in _REFUSED_OUTPUTS:
        if getattr(config, name, None):
            raise InvalidArgument(f"{name}: is not supported")
    if synced_gpus:
        raise InvalidArgument("synced_gpus: is not supported")


def _engine_of(model: Any, **options: Any) -> Engine:
    kept = model.__dict__.get("_dsi_engine")
    if kept is not None and kept[0] == options:
        return kept[1]
    if kept is not None:
        kept[1].close()
    engine = Engine(TransformersModel(model), **options)
    model.__dict__["_dsi_engine"] = (options, engine)
    return engine


def _seed() -> int:
    return int(torch.randint(0, 2**62, (1,)))


def _sampling(processors: Any, config: Any) -> dict[str, Any]:
    """Native parameters, and one hook for whatever they do not cover."""
    eos = config.eos_token_id
    sampling: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, "stop_ids": ()}
    if eos is not None:
        sampling["stop_ids"] = [int(i) for i in (eos if isinstance(eos, (list, tuple)) else [eos])]
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
    if rest:
        hook = LogitsProcessorList(rest)

        def apply(prefix: np.ndarray, logits: np.ndarray) -> np.ndarray:
            ids = torch.from_numpy(prefix.astype(np.int64)).unsqueeze(0)
            return hook(ids, torch.from_numpy(logits).unsqueeze(0))[0].float().cpu().numpy()

        sampling["logits_processor"] = apply
    return sampling


def _rows(input_ids: torch.Tensor, attention_mask: Any) -> list[np.ndarray]:
    """The prompts without their left padding."""
    rows = []
    for index, row in enumerate(input_ids):
        keep = slice(None) if attention_mask is None else attention_mask[index].bool()
        rows.append(row[keep].cpu().numpy())
    return rows


def _read(request: Any, prompt: torch.Tensor, criteria: list[Any], streamer: Any) -> list[int]:
    """New ids until the request ends, or a stopping criterion says so."""
    new: list[int] = []
    for token in request.tokens():
        new.append(token)
        if streamer is not None:
            streamer.put(torch.tensor([token]))
        if criteria:
            so_far = torch.cat([prompt.cpu(), torch.tensor(new)]).unsqueeze(0)
            if any(bool(torch.as_tensor(c(so_far, None)).all()) for c in criteria):
                request.cancel()
                break
    return new


def _padded(input_ids: torch.Tensor, new: list[list[int]], config: Any) -> torch.Tensor:
    width = max(map(len, new))
    pad = config.pad_token_id
    if pad is None:
        eos = config.eos_token_id
        pad = (eos[0] if isinstance(eos, (list, tuple)) else eos) if eos is not None else 0
    rows = [tokens + [int(pad)] * (width - len(tokens)) for tokens in new]
    return torch.cat([input_ids, torch.tensor(rows, device=input_ids.device)], dim=1)


__all__ = ["generate"]
