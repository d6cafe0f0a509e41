"""Servers on several devices; the CPU stands for each of them here."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import dsi_native as dsi  # noqa: E402
from dsi_native.models.placement import device_list, place, shares  # noqa: E402
from dsi_native.models.transformers import TransformersModel  # noqa: E402
from tiny import tiny_drafter, tiny_target  # noqa: E402

PROMPT = [3, 1, 4, 1, 5]


class Model:
    """Remembers where it is."""

    tokenizer = None

    def __init__(self, device: Any, name: str = "m", made: list[Any] | None = None) -> None:
        self.device, self.name = torch.device(device), name
        self.cache_budget_bytes = 1000
        self.made = [] if made is None else made

    def on_device(self, device: Any, copy: bool = False) -> Model:
        if device == self.device and not copy:
            return self
        self.made.append(device)
        return Model(device, self.name, self.made)

    def servers(self, n: int, threads: int | None = None) -> list[str]:
        return [f"{self.device}/{i}" for i in range(n)]


def devices(count: int) -> list[Any]:
    return [torch.device("cuda", i) for i in range(count)]


@pytest.mark.parametrize(
    ("count", "sp", "servers", "drafter", "alone"),
    [
        (1, 2, ["cuda:0/0", "cuda:0/1"], "cuda:0", False),
        (2, 1, ["cuda:0/0"], "cuda:1", True),
        (2, 2, ["cuda:0/0", "cuda:1/0"], "cuda:1", False),
        (2, 3, ["cuda:0/0", "cuda:1/0", "cuda:0/1"], "cuda:1", False),
        (4, 3, ["cuda:0/0", "cuda:1/0", "cuda:2/0"], "cuda:3", True),
    ],
)
def test_who_is_where(count: int, sp: int, servers: list[str], drafter: str, alone: bool) -> None:
    target, other = Model("cuda:0"), Model("cuda:0")
    placed, there = place(target, other, devices(count), sp)
    assert placed.servers(sp) == servers
    assert str(there.device) == drafter
    assert placed.own_hardware is alone
    assert len(target.made) == min(count, sp) - 1  # the one that is there already is used
    assert placed.replicas[0] is target
    placed.cache_budget_bytes = 600
    assert placed.cache_budget_bytes == 600 // len(placed.replicas) * len(placed.replicas)
    assert placed.name == "m"


def test_without_a_drafter_each_server_is_alone() -> None:
    placed, drafter = place(Model("cuda:0"), None, devices(2), 2)
    assert placed.own_hardware and drafter is None
    assert place(Model("cuda:0"), None, devices(2), 3)[0].own_hardware is False


def test_shares_are_equal() -> None:
    assert shares(7, 3) == [3, 2, 2]
    assert shares(2, 2) == [1, 1]


@pytest.mark.parametrize("mode", ["non-si", "dsi"])
def test_text_does_not_depend_on_the_place(mode: str) -> None:
    target = tiny_target()
    drafter = tiny_drafter(target, 0.05)
    texts = []
    for where in (None, ["cpu"], ["cpu", "cpu"]):
        models = TransformersModel(target), TransformersModel(drafter)
        rules = {"sp": 2, "lookahead": 2, "threads": 1, "mode": mode}
        with dsi.Engine(*models, devices=where, **rules) as engine:
            texts.append(engine.generate(PROMPT, max_new_tokens=16, temperature=0.8, seed=1).tokens)
            placed = engine._pair.target
        if where is not None:
            replicas = placed.replicas
            assert len({id(x.model) for x in replicas}) == len(replicas) == len(where)
            assert replicas[0].model is target
    assert texts[0] == texts[1] == texts[2]


def test_rejection_over_two_replicas() -> None:
    target = tiny_target()
    with dsi.Engine(target, target, devices=["cpu", "cpu"], sp=2, threads=1) as engine:
        out = engine.generate(
            PROMPT, max_new_tokens=12, temperature=0.8, verification="rejection", seed=1
        )
    assert len(out.tokens) == 12 and out.statistics.rejected == 0


@pytest.mark.parametrize("wrong", ["cuda", [], 3, ["nowhere"], ["cuda:99"]], ids=str)
def test_places_that_are_none(wrong: Any) -> None:
    with pytest.raises(dsi.InvalidArgument, match="devices: "):
        dsi.Engine(tiny_target(), None, devices=wrong)


def test_a_target_that_stays_where_it_is() -> None:
    with pytest.raises(dsi.InvalidArgument, match="stays where it is"):
        dsi.Engine(dsi.SimulatedModel(0.01), None, devices=["cpu"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_auto_without_cuda_leaves_models_where_they_are() -> None:
    assert device_list("auto") is None
    with dsi.Engine(tiny_target(), None, devices="auto", sp=1, threads=1) as engine:
        assert len(engine.generate(PROMPT, max_new_tokens=4).tokens) == 4
        assert isinstance(engine._pair.target, TransformersModel)
