"""Everything a caller of the kernels can get wrong is refused by name, and nothing else is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dsi_native import InvalidArgument, kernels
from dsi_native.kernels import Edits, arguments
from dsi_native.kernels.arrays import Place

B, K, V, VD = 2, 3, 10, 7


def verify_arguments(**changes: Any) -> dict[str, Any]:
    """Valid ones, with everything there is, but for `changes`."""
    d2t, t2d = np.array([3, -1, 0, 9, -1, 5, 1], np.int32), np.full(V, -1, np.int32)
    t2d[d2t[d2t >= 0]] = np.flatnonzero(d2t >= 0)
    return {
        "target_logits": np.zeros((B, K + 1, V), np.float32),
        "draft_ids": np.zeros((B, K), np.int32),
        "seed": np.arange(B, dtype=np.uint64),
        "position": np.arange(B),
        "mode": "rejection",
        "temperature": np.ones(B, np.float32),
        "num_draft": np.full(B, K, np.int32),
        "draft_logits": np.zeros((B, K, VD), np.float32),
        "draft_lse": np.zeros((B, K), np.float32),
        "draft_temperature": np.ones(B, np.float32),
        "cut": np.full((B, K + 1), -np.inf, np.float32),
        "draft_cut": np.full((B, K), -np.inf, np.float32),
        "edits": no_edits(B * (K + 1)),
        "draft_edits": no_edits(B * K),
        "d2t": d2t,
        "t2d": t2d,
        "with_logprobs": True,
        "threads": 1,
    } | changes


def sample_arguments(**changes: Any) -> dict[str, Any]:
    return {
        "logits": np.zeros((B, V), np.float32),
        "seed": np.arange(B, dtype=np.uint64),
        "position": np.arange(B),
        "tag": "draft",
        "temperature": np.ones(B, np.float32),
        "top_k": np.zeros(B, np.int32),
        "top_p": np.ones(B, np.float32),
        "min_p": np.zeros(B, np.float32),
        "edits": no_edits(B),
        "d2t": np.arange(V, dtype=np.int32),
        "threads": 1,
    } | changes


def no_edits(rows: int) -> Edits:
    return Edits(
        np.zeros(rows + 1, np.int64),
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        np.zeros(0, np.float32),
    )


def one_edit(rows: int, **changes: Any) -> Edits:
    edits = Edits(
        np.array([0] + [1] * rows),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
        np.zeros(1, np.float32),
    )
    return edits._replace(**changes)


def refused(function: Callable[..., Any], given: dict[str, Any], name: str) -> str:
    with pytest.raises(InvalidArgument) as error:
        function(**given)
    assert str(error.value).startswith(f"{name}: expected "), str(error.value)
    return str(error.value)


def test_what_the_other_tests_change_is_valid() -> None:
    assert kernels.verify(**verify_arguments()).tokens.shape == (B, K + 1)
    assert kernels.sample(**sample_arguments()).token.shape == (B,)


ARRAYS = {
    "target_logits": "[2, 4, V]",
    "draft_ids": "[2, 3]",
    "seed": "[2]",
    "position": "[2]",
    "temperature": "[2]",
    "num_draft": "[2]",
    "draft_logits": "[2, 3, Vd]",
    "draft_lse": "[2, 3]",
    "draft_temperature": "[2]",
    "cut": "[2, 4]",
    "draft_cut": "[2, 3]",
    "d2t": "[7]",
    "t2d": "[10]",
}


@pytest.mark.parametrize("name", ARRAYS)
def test_verify_says_which_array_is_wrong_and_how(name: str) -> None:
    good = verify_arguments()[name]

    def message(value: Any) -> str:
        return refused(kernels.verify, verify_arguments(**{name: value}), name)

    if name != "draft_ids":  # B and K are read from it, so that another array is the wrong one
        assert ARRAYS[name] in message(np.concatenate([good, good]))
    assert str(good.dtype) in message(good.astype(np.complex64))
    assert f"given complex64 {list(good.shape)}" in message(good.astype(np.complex64))
    message(good.astype(good.dtype.newbyteorder(">")))
    assert "strides" in message(strided(good))
    assert "unaligned" in message(unaligned(good))
    assert "list" in message(good.tolist())
    message("text")
    message(good[None])


def test_a_batch_that_fits_no_target_is_named() -> None:
    """B and K come from draft_ids: another number of them shows in the next array."""
    refused(
        kernels.verify, verify_arguments(draft_ids=np.zeros((B, K + 1), np.int32)), "target_logits"
    )
    refused(
        kernels.verify,
        verify_arguments(target_logits=np.zeros((B, K, V), np.float32)),
        "target_logits",
    )
    refused(
        kernels.verify,
        verify_arguments(target_logits=np.zeros((B, K + 1, 0), np.float32)),
        "target_logits",
    )


def strided(array: np.ndarray) -> np.ndarray:
    """The same values, every second element of memory."""
    view = np.repeat(array, 2, axis=-1)[..., ::2]
    assert not view.flags.c_contiguous
    return view


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def test_siblings_of_a_tree_are_refused() -> None:
    """A fault in the wild: siblings need the residual of the one before. A chain has none."""
    drafts = np.zeros((B, K, 2), np.int32)
    assert "[2, 3, 2]" in refused(kernels.verify, verify_arguments(draft_ids=drafts), "draft_ids")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("temperature", np.array([1, np.nan], np.float32), "nan at [1]"),
        ("temperature", np.array([-1, 1], np.float32), "-1.0 at [0]"),
        ("temperature", np.array([1, np.inf], np.float32), "inf at [1]"),
        ("temperature", -0.5, "-0.5"),
        ("temperature", float("nan"), "nan"),
        ("temperature", True, "given True"),
        ("draft_temperature", np.array([1, -2], np.float32), "-2.0 at [1]"),
        ("num_draft", np.array([0, K + 1], np.int32), "from 0 to 3, given 4 at [1]"),
        ("num_draft", np.array([-1, 0], np.int32), "-1 at [0]"),
        ("num_draft", K + 1, "given 4"),
        ("num_draft", 1.0, "given 1.0"),
        ("position", np.array([0, -1]), "-1 at [1]"),
        ("position", np.array([0, 2**63 - 1]), "at [1]"),
        ("seed", -1, "given -1"),
        ("seed", 2**64, "given 18446744073709551616"),
        ("seed", 1.5, "given 1.5"),
        ("cut", np.full((B, K + 1), np.nan, np.float32), "NaN"),
        ("draft_cut", np.full((B, K), np.nan, np.float32), "NaN"),
        ("mode", "greedy", "given 'greedy'"),
        ("mode", None, "given None"),
        ("threads", 0, "given 0"),
        ("threads", 1.0, "given 1.0"),
        ("threads", True, "given True"),
    ],
)
def test_verify_refuses_values(name: str, value: Any, said: str) -> None:
    assert said in refused(kernels.verify, verify_arguments(**{name: value}), name)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("tag", "target", "coupled, draft, bonus"),
        ("tag", 0, "given 0"),
        ("top_k", np.array([1, -1], np.int32), "-1 at [1]"),
        ("top_k", 2**31, "given 2147483648"),
        ("top_p", np.array([0.5, 1.5], np.float32), "1.5 at [1]"),
        ("min_p", -0.1, "given -0.1"),
        ("min_p", np.float32(np.nan), "nan"),
        ("temperature", "warm", "str"),
        ("top_p", True, "given True"),
        ("logits", np.zeros(V, np.float32), "the shape [10]"),
        ("logits", np.zeros((B, V), np.uint16), "uint16"),
        ("logits", [[0.0]], "list"),
        ("d2t", np.arange(V + 1, dtype=np.int32), "[10]"),
        ("d2t", np.full(V, 3, np.int32), "distinct"),
        ("d2t", np.full(V, -2, np.int32), "-2 at [0]"),
    ],
)
def test_sample_and_cut_refuse_values(name: str, value: Any, said: str) -> None:
    given = sample_arguments(**{name: value})
    assert said in refused(kernels.sample, given, name)
    if name != "tag":
        for other in ("seed", "position", "tag"):
            del given[other]
        assert said in refused(kernels.cut, given, name)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("offsets", np.zeros(B, np.int64)),
        ("offsets", np.zeros(B + 1, np.int32)),
        ("offsets", np.array([0, 0, 0])),  # one edit is never reached
        ("offsets", np.array([0, 2, 1])),
        ("offsets", np.array([-1, 0, 1])),
        ("offsets", np.array([0, 2**62, 1])),
        ("ids", np.zeros(1, np.int64)),
        ("ids", np.zeros((1, 1), np.int32)),
        ("operations", np.array([3], np.int32)),
        ("operations", np.array([-1], np.int8)),
        ("operations", np.zeros(2, np.int32)),
        ("values", np.zeros(1)),
        ("values", np.zeros(0, np.float32)),
        ("values", None),
    ],
)
def test_edits_are_checked(part: str, value: Any) -> None:
    edits = one_edit(B, **{part: value})
    refused(kernels.sample, sample_arguments(edits=edits), f"edits.{part}")


def test_edits_are_edits() -> None:
    for name in ("edits", "draft_edits"):
        refused(kernels.verify, verify_arguments(**{name: [1, 2, 3]}), name)
        wrong = no_edits(B * K + 1)
        refused(kernels.verify, verify_arguments(**{name: wrong}), f"{name}.offsets")
    small = one_edit(B, operations=np.zeros(1, np.int8))
    assert kernels.sample(**sample_arguments(edits=small)).status.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("d2t", "t2d", "name", "said"),
    [
        ([3, 10, 0], None, "d2t", "10 at [1]"),
        ([3, -2, 0], None, "d2t", "-2 at [1]"),
        ([3, 0, 3], None, "d2t", "3 for ids [0, 2]"),
        ([3, 0, -1], [-1] * 10, "t2d", "d2t[0] = 3"),
        ([3, 0, 3], [1, -1, -1, 0] + [-1] * 6, "t2d", "d2t[2] = 3"),
        ([3, 0, -1], [1, -1, -1, 0, 2] + [-1] * 5, "t2d", "t2d[4] = 2"),
        ([3, 0, -1], [1, -1, -1, 3] + [-1] * 6, "t2d", "3 at [3]"),
        ([3, 0, -1], [1, -1, -1, -7] + [-1] * 6, "t2d", "-7 at [3]"),
    ],
)
def test_maps_are_injective_inverse_and_in_range(
    d2t: list[int], t2d: list[int] | None, name: str, said: str
) -> None:
    given = verify_arguments(
        d2t=np.array(d2t, np.int32),
        t2d=None if t2d is None else np.array(t2d, np.int32),
        draft_logits=None,
        draft_lse=None,
        draft_cut=None,
        draft_edits=None,
    )
    assert said in refused(kernels.verify, given, name)


def test_a_map_is_looked_at_again_after_it_changed() -> None:
    given = verify_arguments()
    kernels.verify(**given)
    given["d2t"][1] = 3
    refused(kernels.verify, given, "t2d")
    torch = pytest.importorskip("torch")
    tensors = verify_arguments()
    tensors |= {name: torch.from_numpy(tensors[name]) for name in ("d2t", "t2d")}
    kernels.verify(**tensors)
    kernels.verify(**tensors)
    tensors["d2t"][1] = 3
    refused(kernels.verify, tensors, "t2d")


def test_what_needs_another_argument_is_refused_without_it() -> None:
    for name in ("draft_lse", "draft_cut", "draft_edits"):
        alone = dict.fromkeys(("draft_logits", "draft_lse", "draft_cut", "draft_edits"))
        alone[name] = verify_arguments()[name]
        refused(kernels.verify, verify_arguments(**alone), name)
    refused(kernels.verify, verify_arguments(d2t=None), "t2d")
    refused(kernels.verify, verify_arguments(t2d=None), "t2d")
    kernels.verify(**verify_arguments(t2d=None, mode="coupled"))


def test_read_only_arrays_and_numbers_for_all_are_taken() -> None:
    given = verify_arguments(edits=one_edit(B * (K + 1)), seed=7, position=3, temperature=0.5)
    given |= {"draft_temperature": np.float32(0.5), "num_draft": np.int32(2)}
    for value in [*given.values(), *given["edits"], *given["draft_edits"]]:
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    one = kernels.verify(**given)
    two = kernels.verify(**given)  # the maps are known by now
    np.testing.assert_array_equal(one.tokens, two.tokens)
    spelled = given | {"seed": np.full(B, 7, np.uint64), "num_draft": np.full(B, 2, np.int32)}
    np.testing.assert_array_equal(kernels.verify(**spelled).tokens, one.tokens)


def test_what_is_left_to_its_default_costs_no_array() -> None:
    off = {"temperature": None, "top_k": 0, "top_p": 1.0, "min_p": None, "edits": None}
    given = sample_arguments(**off)
    settings = {x: given[x] for x in off} | {"d2t": None}
    _, checked = arguments.check_cut(given["logits"], **settings)
    assert checked[1:] == (None,) * 6
    one = kernels.sample(**given)
    two = kernels.sample(**sample_arguments())
    np.testing.assert_array_equal(one.token, two.token)
    # A number for the drafter is not "as the target", even where that number is a default.
    kwargs = {k: v for k, v in verify_arguments(draft_temperature=1.0).items() if k != "threads"}
    _, checked = arguments.check_verify(**kwargs)
    assert checked.draft_temperature.tolist() == [1, 1]


def test_a_workspace_is_for_cuda() -> None:
    with pytest.raises(InvalidArgument, match=r"^workspace: expected None"):
        kernels.verify(**verify_arguments(workspace=object()))
    for given in (SimpleNamespace(device="cuda:1", holds=None), 3):
        with pytest.raises(InvalidArgument, match=r"^workspace: expected a Workspace on cuda:0"):
            arguments.check_workspace(given, Place("cuda:0", True))


def test_seeds_may_be_int64_bits() -> None:
    seed = np.array([2**64 - 1, 5], np.uint64)
    one = kernels.sample(**sample_arguments(seed=seed))
    two = kernels.sample(**sample_arguments(seed=seed.view(np.int64)))
    np.testing.assert_array_equal(one.token, two.token)


def test_tensors_of_other_kinds_are_refused() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.zeros(B, V)
    kernels.sample(**sample_arguments(logits=logits.requires_grad_()))
    for wrong, said in (
        (torch.zeros(B, V, device="meta"), "on meta"),
        (torch.zeros(B, V).to_sparse(), "sparse"),
        (torch.zeros(V, B).t(), "strides [1, 2]"),
        (torch.zeros(1, V).expand(B, V), "strides [0, 1]"),
        (torch.zeros(B, V, dtype=torch.float64), "float64"),
    ):
        assert said in refused(kernels.sample, sample_arguments(logits=wrong), "logits")
    other = torch.zeros(B, dtype=torch.int64, device="meta")
    assert "on meta" in refused(kernels.sample, sample_arguments(position=other), "position")


def test_arguments_name_what_the_kernels_take() -> None:
    """The Triton launches are called with these names."""
    place, checked = arguments.check_verify(
        **{k: v for k, v in verify_arguments().items() if k != "threads"}
    )
    assert place == ("cpu", False)
    assert set(checked._fields) == set(verify_arguments()) - {"threads"}


@pytest.mark.parametrize("module", ["dsi_native", "dsi_native.kernels", "dsi_native.reference"])
def test_importing_loads_nothing_heavy(
    run_python: Callable[..., subprocess.CompletedProcess[str]], module: str
) -> None:
    heavy = "{'torch', 'triton', 'dsi_native.kernels.native', 'dsi_native.kernels.triton'}"
    done = run_python("-c", f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


def test_numpy_callers_never_load_torch(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    code = (
        "import sys, numpy as np\n"
        "from dsi_native import kernels\n"
        "s = kernels.sample(np.zeros((2, 9), np.float16), seed=1, position=2)\n"
        "assert s.token.dtype == np.int32, s\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
