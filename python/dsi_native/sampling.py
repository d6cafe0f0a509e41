"""How tokens are chosen: the parameters of one request, checked at the call."""

from __future__ import annotations

import math
import operator
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dsi_native import _core
from dsi_native.errors import InvalidArgument
from dsi_native.translation import check_method

LogitsProcessor = Callable[[np.ndarray, np.ndarray], "np.ndarray | None"]

# Asked for by users of other runtimes; what one request cannot honour is refused by name.
_REFUSED = {
    "num_return_sequences": 1,
    "n": 1,
    "best_of": 1,
    "num_beams": 1,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "prompt_logprobs": None,
}
_OTHER_NAMES = {
    "max_tokens": "max_new_tokens",
    "max_length": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "stop_strings": "stop",
    "stop_token_ids": "stop_ids",
    "logits_processors": "logits_processor",
    "do_sample": "temperature",
}


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Parameters of one request. Raises InvalidArgument naming the parameter.

    max_new_tokens, min_new_tokens: stop ids and the model's end-of-sequence are impossible before
        min_new_tokens.
    temperature: 0 is greedy, as is anything below 1e-5.
    top_k (0: off), top_p (1: off), min_p (0: off): applied in this order after the temperature;
        tokens that tie with the last one kept are kept too.
    seed: unsigned 64 bits; None draws one, which the output reports.
    verification: "coupled" (text depends on target, prompt, parameters and seed only) or
        "rejection".
    stop: strings before which the text ends, matched on bytes across tokens.
    stop_ids: ids that end the request, besides the model's own unless ignore_eos.
    repetition_penalty: over prompt and output, as transformers.
    presence_penalty, frequency_penalty: over the output, as OpenAI and vLLM.
    logit_bias: id -> number added to its logit.
    logprobs: None for none, n for the emitted token's and the n most likely ones', under the law
        the token was drawn from (at temperature 1 and without cuts where greedy).
    logits_processor: called as f(prefix int32 [n], logits float32 [V]); changes logits in place or
        returns new ones. It runs after bias, penalties and min_new_tokens, before temperature and
        cuts, on server threads, for target and drafter, and may be called for a position more than
        once, so it must depend on its arguments only.
    timeout: seconds from submission; RequestFailed then.
    mode, lookahead, method: override the engine's for this request.
    record: Output.recording then says what each server did when.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    verification: str = "coupled"
    stop: str | Sequence[str] | None = None
    stop_ids: Sequence[int] = ()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    logprobs: int | None = None
    logits_processor: LogitsProcessor | None = None
    timeout: float | None = None
    mode: str | None = None
    lookahead: int | str | None = None
    method: str | None = None
    record: bool = False

    def __post_init__(self) -> None:
        _whole("max_new_tokens", self.max_new_tokens, 1)
        _whole("min_new_tokens", self.min_new_tokens, 0)
        if self.min_new_tokens > self.max_new_tokens:
            raise InvalidArgument(
                f"min_new_tokens: {self.min_new_tokens} is above "
                f"max_new_tokens {self.max_new_tokens}"
            )
        _number("temperature", self.temperature, 0.0, math.inf)
        _whole("top_k", self.top_k, 0)
        _number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0:
            raise InvalidArgument("top_p: must be above 0; for greedy decoding use temperature=0")
        _number("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            _whole("seed", self.seed, 0, 2**64 - 1)
        _choice("verification", self.verification, ("coupled", "rejection"))
        for text in self.stop_strings:
            if not isinstance(text, str) or not text:
                raise InvalidArgument(f"stop: must be non-empty strings, got {text!r}")
        for token in _iterable("stop_ids", self.stop_ids):
            _whole("stop_ids", token, 0)
        _number("repetition_penalty", self.repetition_penalty, 0.0, math.inf)
        if self.repetition_penalty == 0:
            raise InvalidArgument("repetition_penalty: must be above 0, 1 is off")
        _number("presence_penalty", self.presence_penalty, -math.inf, math.inf)
        _number("frequency_penalty", self.frequency_penalty, -math.inf, math.inf)
        if self.logit_bias is not None and not isinstance(self.logit_bias, Mapping):
            raise InvalidArgument(f"logit_bias: must map ids to numbers, got {self.logit_bias!r}")
        for token, bias in (self.logit_bias or {}).items():
            _whole("logit_bias", token, 0)
            if bias != -math.inf:
                _number("logit_bias", bias, -math.inf, math.inf)
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0)
        if self.logits_processor is not None and not callable(self.logits_processor):
            raise InvalidArgument("logits_processor: must be callable as f(prefix, logits)")
        if self.timeout is not None:
            _number("timeout", self.timeout, 0.0, math.inf)
            if self.timeout == 0:
                raise InvalidArgument("timeout: must be above 0 seconds, None for no limit")
        if self.mode is not None:
            _choice("mode", self.mode, ("non-si", "si", "dsi"))
        if self.lookahead is not None:
            check_lookahead(self.lookahead)
        if self.method is not None:
            check_method(self.method)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> SamplingParams:
        """From keyword arguments; unknown ones are refused, with the name that was meant."""
        known = {field.name for field in fields(cls)}
        accepted = {}
        for name, value in arguments.items():
            if name in known:
                accepted[name] = value
            elif name in _REFUSED:
                if value is not None and value != _REFUSED[name]:
                    raise InvalidArgument(
                        f"{name}: {value!r} is not supported, one sequence per prompt is"
                    )
            else:
                meant = _OTHER_NAMES.get(name)
                hint = f"; did you mean {meant}?" if meant else ""
                raise InvalidArgument(f"{name}: no such sampling parameter{hint}")
        return cls(**accepted)

    @property
    def stop_strings(self) -> list[str]:
        """`stop` as a list."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(_iterable("stop", self.stop))

    def check_ids(self, vocab_size: int) -> None:
        """Raises InvalidArgument where an id lies outside the vocabulary."""
        for name, ids in (("stop_ids", self.stop_ids), ("logit_bias", self.logit_bias or ())):
            for token in ids:
                if token >= vocab_size:
                    raise InvalidArgument(
                        f"{name}: id {token} is outside the vocabulary of {vocab_size}"
                    )

    def native(self, seed: int, eos_ids: Sequence[int]) -> _core.Sampling:
        """The same for the native core. eos_ids: the model's own, left out if ignore_eos."""
        native = _core.Sampling()
        native.temperature = min(float(self.temperature), 3.0e38)
        native.top_k = min(int(self.top_k), 2**31 - 1)
        native.top_p = float(self.top_p)
        native.min_p = float(self.min_p)
        native.seed = seed
        native.repetition_penalty = float(self.repetition_penalty)
        native.presence_penalty = float(self.presence_penalty)
        native.frequency_penalty = float(self.frequency_penalty)
        native.logit_bias = [(int(k), float(v)) for k, v in (self.logit_bias or {}).items()]
        native.min_new_tokens = min(int(self.min_new_tokens), 2**31 - 1)
        eos = () if self.ignore_eos else eos_ids
        native.stop_ids = sorted({int(token) for token in (*self.stop_ids, *eos)})
        native.logprobs = -1 if self.logprobs is None else min(int(self.logprobs), 2**31 - 1)
        native.verification = (
            _core.Verification.COUPLED
            if self.verification == "coupled"
            else _core.Verification.REJECTION
        )
        return native


def seed_for(seed: int | None, index: int) -> int:
    """The seed of prompt `index` of a list: the seed itself for the first, mixed for the others."""
    if seed is None:
        return secrets.randbits(64)
    seed = int(seed)
    if index == 0:
        return seed
    mixed = (seed + index * 0x9E3779B97F4A7C15) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return mixed ^ (mixed >> 31)


def check_lookahead(lookahead: Any) -> None:
    """Raises InvalidArgument unless it is "auto" or a whole number from 1."""
    if lookahead != "auto":
        _whole("lookahead", lookahead, 1, 4096)


def _iterable(name: str, value: Any) -> Any:
    if not hasattr(value, "__iter__"):
        raise InvalidArgument(f"{name}: must be a sequence, got {value!r}")
    return value


def _whole(name: str, value: Any, low: int, high: int | None = None) -> None:
    try:
        ok = not isinstance(value, bool) and operator.index(value) >= low
    except TypeError:
        ok = False
    if not ok or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InvalidArgument(f"{name}: must be a whole number, {limit}, got {value!r}")


def _number(name: str, value: Any, low: float, high: float) -> None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, str) or not low <= number <= high:
        limit = f"in [{low:g}, {high:g}]" if math.isfinite(high) else f"finite and at least {low:g}"
        raise InvalidArgument(f"{name}: must be {limit}, got {value!r}")


def _choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidArgument(f"{name}: must be one of {', '.join(choices)}, got {value!r}")
