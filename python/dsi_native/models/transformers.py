"""Any causal language model of transformers, in eager mode, as one or several servers."""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from dsi_native.errors import InvalidArgument
from dsi_native.models.kv_cache import CacheGroup, RequestCache

DEFAULT_CACHE_BUDGET_BYTES = 4 << 30


class TransformersModel:
    """A causal LM of transformers (4.56 to 5.24 tested) whose cache can be rolled back.

    model: a module such as LlamaForCausalLM, on one device, any float dtype. It is shared, not
        copied, is put in evaluation mode, and may be called from several threads at once.
    tokenizer: the matching transformers tokenizer, None if only ids are used.
    cache_budget_bytes: keys and values of all servers of one `servers()` call together; each server
        has an equal share and forgets its least recently used requests beyond it (they are computed
        again when they come back). The request in work is kept even if it alone exceeds the share.
    judge_on_device: whether rows are judged where they are, by the Triton kernels, so that only
        tokens cross to the host (see DeviceJudge for what still goes over). None: on CUDA, with a
        warning where the kernels cannot run; True also takes the CPU, for Triton's interpreter.
    graphs: on CUDA, capture forwards and draws as graphs that native code replays without the GIL:
        True or GraphOptions. Needs the Triton kernels; what no graph can do runs plainly, and so
        does everything, with a warning, where capturing fails. Off by default: no GPU has run
        this yet.
    Costs two forwards of four tokens, which prove that a rolled-back cache gives the same logits.
    Raises InvalidArgument, naming the classes, where it does not.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        name: str | None = None,
        cache_budget_bytes: int = DEFAULT_CACHE_BUDGET_BYTES,
        judge_on_device: bool | None = None,
        graphs: Any = False,
    ) -> None:
        if cache_budget_bytes <= 0:
            raise InvalidArgument(f"cache_budget_bytes must be positive, not {cache_budget_bytes}")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.cache_budget_bytes = cache_budget_bytes
        self.name = name or getattr(model.config, "_name_or_path", "") or type(model).__name__
        text_config = model.config.get_text_config(decoder=True)
        self.context = _context(text_config)
        self.eos_ids = _eos_ids(model, tokenizer)
        self.device = model.get_input_embeddings().weight.device
        self.judge_on_device = judge_on_device
        self.graphs = graphs
        if graphs and self.device.type != "cuda":
            raise InvalidArgument(f"graphs: need a model on CUDA, this one is on {self.device}")
        parameters = inspect.signature(model.forward).parameters
        self._cache_keyword = "cache" if "cache" in parameters else "past_key_values"
        self._keeps_rows = "logits_to_keep" in parameters
        self._takes_positions = "cache_position" in parameters
        self.vocab_size = text_config.vocab_size
        self.vocab_size = self._proven_width()

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        """n servers over one copy of the weights; each takes from the others what they computed.

        threads: torch's intra-op threads of each server, set inside its worker; None: torch's own.
        """
        if n < 1:
            raise InvalidArgument(f"a model needs at least one server, not {n}")
        group = CacheGroup()
        budget = max(1, self.cache_budget_bytes // n)
        plain = [
            TransformersServer(self, group, budget, threads, judge) for judge in self._judges(n)
        ]
        return self._graphed(plain) if self.graphs else plain

    def on_device(self, device: torch.device, copy: bool = False) -> TransformersModel:
        """This model where it is on `device`, else, or if `copy`, a copy of it there."""
        here = self.device.type == device.type and (self.device.index or 0) == (device.index or 0)
        if here and not copy:
            return self
        return TransformersModel(
            deepcopy(self.model).to(device),
            self.tokenizer,
            self.name,
            self.cache_budget_bytes,
            self.judge_on_device,
            self.graphs,
        )

    def forward(self, ids: np.ndarray, cache: RequestCache, rows: int) -> torch.Tensor:
        """Logits [rows, V] of the last `rows` of the int32 `ids`, which follow what `cache` holds.

        The cache's layers then hold `ids` too. Call it in inference mode.
        """
        inputs = torch.from_numpy(ids.astype(np.int64)).unsqueeze(0).to(self.device)
        options: dict[str, Any] = {self._cache_keyword: cache, "use_cache": True}
        if self._keeps_rows:
            options["logits_to_keep"] = rows
        return self.model(input_ids=inputs, **options).logits[0, -rows:]

    def step_options(self, cache: Any, positions: torch.Tensor) -> dict[str, Any]:
        """What the module is called with beside ids, mask and position ids [1, n]."""
        options: dict[str, Any] = {self._cache_keyword: cache, "use_cache": True}
        if self._takes_positions:
            options["cache_position"] = positions
        return options

    def plain_rows(self, ids: np.ndarray) -> torch.Tensor:
        """Logits float32 [n, V] behind each of the int32 `ids`, over a cache of their own."""
        with torch.inference_mode():
            return self.forward(ids, RequestCache(), len(ids)).float()

    def _graphed(self, plain: list[TransformersServer]) -> list[Any]:
        """Graph servers with these behind them, or these where graphs cannot be captured."""
        try:
            from dsi_native.models.cuda_graph import GraphOptions, TorchRecorder, graph_server
            from dsi_native.models.graph_draw import TritonDraw

            options = GraphOptions() if self.graphs is True else self.graphs
            return [
                graph_server(
                    self,
                    server,
                    options,
                    TorchRecorder(self.device),
                    TritonDraw(options.window, self.vocab_size, self.device),
                )
                for server in plain
            ]
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            message = f"{self.name}: decodes without CUDA graphs ({reason})"
            warnings.warn(message, RuntimeWarning, stacklevel=5)
            return list(plain)

    def _judges(self, n: int) -> list[Any]:
        """One for each server, None where the native Judge judges its rows on the CPU."""
        asked = self.judge_on_device
        if not (self.device.type == "cuda" if asked is None else asked):
            return [None] * n
        try:
            from dsi_native.models.device_judge import DeviceJudge

            judges = [DeviceJudge(self.device, self.vocab_size) for _ in range(n)]
            judges[0].warm_up(self.model.get_input_embeddings().weight.dtype)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if asked:
                raise InvalidArgument(f"judge_on_device: {reason}") from error
            message = f"{self.name}: tokens are judged on the CPU, since Triton fails ({reason})"
            warnings.warn(message, RuntimeWarning, stacklevel=5)
            return [None] * n
        return judges

    def _proven_width(self) -> int:
        """Width of the model's rows, after proof that its cache can be rolled back."""
        ids = (np.arange(4) % self.vocab_size).astype(np.int32)
        cache = RequestCache()
        try:
            with torch.inference_mode():
                whole = self.forward(ids, cache, 2).float()
                held = {layer.length for layer in cache.layers if layer.buffers is not None}
                cache.truncate(2)
                again = self.forward(ids[2:], cache, 2).float()
        except Exception as error:
            raise InvalidArgument(self._refusal(f"{type(error).__name__}: {error}")) from error
        if held != {4}:
            raise InvalidArgument(self._refusal("it does not fill the cache it is given"))
        # Rounding, also bf16's, moves logits by less; state that was not rolled back by more.
        if not (whole - again).abs().max() <= 0.25 * whole.std():
            raise InvalidArgument(self._refusal("logits after a rollback differ from fresh ones"))
        return whole.shape[-1]

    def _refusal(self, reason: str) -> str:
        kind, cache = type(self.model).__name__, _cache_kind(self.model, self.device)
        return f"{kind} keeps its past in {cache}, which cannot be cropped ({reason})"


class TransformersServer:
    """One target or drafter server: the caches of its requests. Made by TransformersModel.servers.

    Used by one thread at a time, the same from `started` to the last `release`.
    """

    def __init__(
        self,
        model: TransformersModel,
        group: CacheGroup,
        budget_bytes: int,
        threads: int | None,
        judge: Any = None,
    ) -> None:
        self.vocab_size = model.vocab_size
        self.context = model.context
        self._model = model
        self._group = group
        self._budget_bytes = budget_bytes
        self._threads = threads
        self._judge = judge
        self._caches: OrderedDict[int, RequestCache] = OrderedDict()

    def started(self) -> None:
        """Sets this thread's device and torch's threads; grad mode is set in each forward."""
        if self._model.device.type == "cuda":
            torch.cuda.set_device(self._model.device)
        if self._threads is not None:
            torch.set_num_threads(self._threads)

    def forward(self, request: int, tokens: np.ndarray, first: int, job: Any = None) -> np.ndarray:
        """Raw logits float32 [n - first + 1, V] for positions first..n of the int32 `tokens` [n].

        A view of torch's result where the model is fp32 on the CPU. Computes the inputs that are
        not cached, in one forward. Raises Stopped between layers once job.stopped is True, and
        InvalidArgument for a path past the context; the cache stays right after any error.
        """
        return _on_host(self._rows(request, tokens, first, job))

    @property
    def judges_on_device(self) -> bool:
        """Whether verify() and sample() are to be called, not forward()."""
        return self._judge is not None

    def verify(self, request: int, tokens: np.ndarray, first: int, job: Any) -> Any:
        """A Verdict on the rows that forward() would return, or, where the request has what only
        the CPU can do (see DeviceJudge), those rows. Blocks until the device is done."""
        rows = self._rows(request, tokens, first, job)
        verdict = self._judge.verify(rows, tokens, first, job)
        return _on_host(rows) if verdict is None else verdict

    def sample(self, request: int, tokens: np.ndarray, vocab_limit: int, job: Any) -> Any:
        """The draft behind `tokens`, an id below vocab_limit, as DeviceJudge.sample() returns it;
        or the row [1, V], where the request has what only the CPU can do."""
        rows = self._rows(request, tokens, len(tokens), job)
        draft = self._judge.sample(rows[0, :vocab_limit], len(tokens), job)
        return _on_host(rows) if draft is None else draft

    def prefill(self, request: int, tokens: np.ndarray, job: Any = None) -> None:
        """Caches all but the last token: the first forward needs that one's logits anyway."""
        if len(tokens) > 1:
            self._extend(request, tokens[:-1], len(tokens) - 1, 1, job)

    def release(self, request: int) -> None:
        """Frees the request's cache; unknown requests are ignored."""
        cache = self._caches.pop(request, None)
        if cache is not None:
            self._group.remove(request, cache)

    @property
    def cache_bytes(self) -> int:
        """Size of the keys and values held now."""
        return sum(cache.size_bytes for cache in self._caches.values())

    def _rows(self, request: int, tokens: np.ndarray, first: int, job: Any) -> torch.Tensor:
        if not 1 <= first <= len(tokens):
            raise InvalidArgument(f"first must be in 1..{len(tokens)}, not {first}")
        return self._extend(request, tokens, first - 1, len(tokens) - first + 1, job)

    def _extend(
        self, request: int, tokens: np.ndarray, limit: int, rows: int, job: Any
    ) -> torch.Tensor:
        if self.context is not None and len(tokens) > self.context:
            raise InvalidArgument(
                f"{len(tokens)} tokens exceed the context of {self.context} of {self._model.name}"
            )
        cache = self._caches.pop(request, None)
        if cache is None:
            cache = self._group.add(request)
        self._caches[request] = cache
        cache.job = job
        keep, done = 0, None
        try:
            with torch.inference_mode():
                keep = self._group.begin(request, cache, tokens, limit)
                if keep == len(tokens):
                    return torch.empty(0)
                logits = self._model.forward(tokens[keep:], cache, rows)
            done = tokens
        finally:
            cache.job = None
            self._group.finish(cache, keep, done)
        self._evict()
        return logits

    def _evict(self) -> None:
        while len(self._caches) > 1 and self.cache_bytes > self._budget_bytes:
            self.release(next(iter(self._caches)))


def _on_host(rows: torch.Tensor) -> np.ndarray:
    return rows.float().cpu().numpy()


def _context(config: Any) -> int | None:
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if rope.get("rope_type", rope.get("type")) == "longrope":
        # Past this length the model swaps a buffer that all threads share; caches turn stale.
        original = rope.get("original_max_position_embeddings")
        return original or getattr(config, "original_max_position_embeddings", None)
    return getattr(config, "max_position_embeddings", None)


def _eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, list | tuple) else (int(ids),)
    return ()


def _cache_kind(model: Any, device: torch.device) -> str:
    """Name of the model's own cache, with its kinds of layers, for a message."""
    try:
        with torch.inference_mode():
            ids = torch.zeros((1, 2), dtype=torch.long, device=device)
            out = model(input_ids=ids, use_cache=True)
    except Exception:
        return "an unknown cache"
    for key in ("cache", "past_key_values", "cache_params", "state", "mems"):
        cache = getattr(out, key, None)
        if cache is not None:
            kinds = sorted({type(layer).__name__ for layer in getattr(cache, "layers", ())})
            return type(cache).__name__ + (f" of {', '.join(kinds)}" if kinds else "")
    return "no cache that it returns"
