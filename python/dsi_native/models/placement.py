"""Servers of one model on several devices: a replica of the weights on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsi_native.errors import InvalidArgument

__all__ = ["PlacedModel", "device_list", "place", "shares"]


class PlacedModel:
    """A model whose servers are spread over replicas; all else is the first replica's.

    counts: how many servers each replica has. own_hardware: no two servers, the drafter's included,
    share a device, so each computes the prompt itself and drafting cannot cost time.
    """

    def __init__(self, replicas: Sequence[Any], counts: Sequence[int], own_hardware: bool) -> None:
        self.replicas, self.counts = list(replicas), list(counts)
        self.own_hardware = own_hardware

    def __getattr__(self, name: str) -> Any:
        if name in ("replicas", "counts"):  # while it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.replicas[0], name)

    @property
    def cache_budget_bytes(self) -> int:
        """Keys and values of all servers together."""
        return sum(model.cache_budget_bytes for model in self.replicas)

    @cache_budget_bytes.setter
    def cache_budget_bytes(self, value: int) -> None:
        for model in self.replicas:
            model.cache_budget_bytes = max(1, value // len(self.replicas))

    def servers(self, n: int, threads: int | None = None) -> list[Any]:
        """n servers, one from each replica in turn; those of one replica share their prompts."""
        counts = shares(n, len(self.replicas)) if n != sum(self.counts) else self.counts
        made = [
            model.servers(count, threads) if count else []
            for model, count in zip(self.replicas, counts, strict=True)
        ]
        longest = max(len(servers) for servers in made)
        return [servers[i] for i in range(longest) for servers in made if i < len(servers)]


def device_list(devices: Any) -> list[Any] | None:
    """torch's devices for "auto" (every CUDA device) or a list of names; None: as the models are.

    Raises InvalidArgument naming `devices`.
    """
    if devices is None:
        return None
    import torch

    if devices == "auto":
        return [torch.device("cuda", i) for i in range(torch.cuda.device_count())] or None
    if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
        raise InvalidArgument(f'devices: must be "auto" or a list of devices, got {devices!r}')
    found = []
    for device in devices:
        try:
            torch.empty(0, device=device)
            found.append(torch.device(device))
        except (RuntimeError, AssertionError, TypeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InvalidArgument(f"devices: {str(device)!r} cannot be used: {reason}") from error
    return found


def shares(servers: int, places: int) -> list[int]:
    """How many of the servers each place gets, as equal as can be, the first ones more."""
    return [servers // places + (i < servers % places) for i in range(places)]


def place(target: Any, drafter: Any, devices: Sequence[Any], sp: int) -> tuple[Any, Any]:
    """The target on as many devices as its servers need, and the drafter where it is free.

    With more devices than servers each target server has one to itself, and so has the drafter;
    else the drafter is on the last of those with the fewest. Models that are somewhere else are
    copied; one that is there already is used as it is.
    Raises InvalidArgument for a target that cannot be copied.
    """
    if not hasattr(target, "on_device"):
        name = getattr(target, "name", None) or type(target).__name__
        raise InvalidArgument(f"devices: {name} is no transformers model, it stays where it is")
    used = min(sp, len(devices))
    counts = shares(sp, used)
    free = used if len(devices) > used else max(range(used), key=lambda i: (-counts[i], i))
    alone = max(counts) == 1 and (free == used or drafter is None)
    replicas: list[Any] = []
    for device in devices[:used]:
        here = target.on_device(device, copy=bool(replicas) and _is_on(target, device))
        replicas.append(here)
    if hasattr(drafter, "on_device"):
        drafter = drafter.on_device(devices[free])
    return PlacedModel(replicas, counts, alone), drafter


def _is_on(model: Any, device: Any) -> bool:
    return model.device.type == device.type and (model.device.index or 0) == (device.index or 0)
