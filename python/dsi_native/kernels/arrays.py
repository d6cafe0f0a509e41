"""Checks of the arrays of one call: type, dtype, shape, device and layout, named where refused."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dsi_native.errors import InvalidArgument
from dsi_native.kernels.contract import Edits, Operation

__all__ = ["LOGITS", "Inputs", "Place", "described"]

LOGITS = ("float32", "float16", "bfloat16")
"""bfloat16 exists as torch tensors only; its bits go on as uint16."""


class Place(NamedTuple):
    """Where the arrays of one call live."""

    device: str
    """"cpu", "cuda:0", ..."""
    tensors: bool
    """The results are torch tensors there, not NumPy arrays."""


def is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")  # a tensor cannot come from anywhere else
    return torch is not None and isinstance(value, torch.Tensor)


def described(value: object) -> str:
    """The type of an array-like, as messages say it: dtype [shape], device and odd strides."""
    if isinstance(value, np.ndarray):
        text = f"{value.dtype} {list(value.shape)}"
        if not value.flags.c_contiguous:
            return f"{text} with strides {list(value.strides)} bytes"
        return text if value.flags.aligned else f"{text} at an unaligned address"
    if is_tensor(value):
        text = f"{_dtype(value)} {list(value.shape)} on {value.device}"
        if not _is_strided(value):
            return f"{text}, {value.layout}"
        return text if value.is_contiguous() else f"{text} with strides {list(value.stride())}"
    return repr(value) if isinstance(value, numbers.Number) else type(value).__name__


class Inputs:
    """The arrays of one call, which must be where the first one is.

    NumPy arrays and CPU tensors go together. On the CPU every method returns C-contiguous NumPy
    arrays that share the caller's memory, and values are checked too; read-only arrays are fine. On
    a CUDA device it returns the tensors: reading values there would wait for the device. Nothing is
    copied to make it contiguous, since that would cost more than the kernel: it is refused.
    """

    def __init__(self, name: str, first: Any) -> None:
        if not (isinstance(first, np.ndarray) or is_tensor(first)):
            raise InvalidArgument(
                f"{name}: expected a NumPy array or a torch tensor, given {described(first)}"
            )
        device = str(first.device) if is_tensor(first) else "cpu"
        if device.partition(":")[0] not in ("cpu", "cuda"):
            raise InvalidArgument(
                f"{name}: expected a tensor on a device cpu or cuda, given {described(first)}"
            )
        self.place = Place(device, is_tensor(first))

    @property
    def on_cpu(self) -> bool:
        return self.place.device == "cpu"

    def array(
        self, name: str, value: Any, dtypes: str | Sequence[str], shape: Sequence[int | str]
    ) -> Any:
        """`value` of one of `dtypes` and of `shape`, where a name stands for any size from 1."""
        dtypes = (dtypes,) if isinstance(dtypes, str) else dtypes
        if not self._fits(value, dtypes, shape):
            wanted = f"{' or '.join(dtypes)} [{', '.join(str(n) for n in shape)}]"
            where = f" on {self.place.device}" if self.place.tensors else ""
            raise InvalidArgument(
                f"{name}: expected {wanted}{where}, C-contiguous, given {described(value)}"
            )
        return _as_numpy(value) if self.on_cpu else value

    def optional(
        self, name: str, value: Any, dtypes: str | Sequence[str], shape: Sequence[int | str]
    ) -> Any:
        return None if value is None else self.array(name, value, dtypes, shape)

    def each(self, name: str, value: Any, dtype: str, count: int, least: float, most: float) -> Any:
        """One value in [least, most] for each of `count`; a Python number stands for all."""
        number = numbers.Real if dtype.startswith("float") else numbers.Integral
        if isinstance(value, number) and not isinstance(value, bool):
            if not least <= value <= most:
                raise InvalidArgument(f"{name}: expected {_range(least, most)}, given {value!r}")
            return self._full(value, dtype, count)
        array = self.array(name, value, dtype, [count])
        if self.on_cpu:
            right = (array >= least) & (array <= most)
            if not right.all():
                wrong = np.flatnonzero(~right)
                raise InvalidArgument(
                    f"{name}: expected {_range(least, most)}, "
                    f"given {array[wrong[0]]} at [{wrong[0]}]"
                )
        return array

    def setting(
        self, name: str, value: Any, dtype: str, count: int, limits: tuple[float, float], off: float
    ) -> Any:
        """each(), or None for None and for the number `off`: nothing to allocate or to read."""
        if value is None or (type(value) in (int, float) and value == off):
            return None
        return self.each(name, value, dtype, count, *limits)

    def seeds(self, value: Any, count: int) -> Any:
        """uint64 [count]; int64 arrays stand for the same bits, since torch has little uint64."""
        if not isinstance(value, numbers.Integral):
            array = self.array("seed", value, ("uint64", "int64"), [count])
            return array.view(np.uint64) if self.on_cpu else array
        return self.each("seed", value, "uint64", count, 0, 2**64 - 1)

    def edits(self, name: str, value: Any, rows: int) -> Edits | None:
        """Edits for `rows` rows. On the CPU, offsets and operations are checked."""
        if value is None:
            return None
        if not isinstance(value, tuple) or len(value) != len(Edits._fields):
            raise InvalidArgument(f"{name}: expected Edits, given {described(value)}")
        offsets, ids, operations, values = value
        offsets = self.array(f"{name}.offsets", offsets, "int64", [rows + 1])
        ids = self._list(f"{name}.ids", ids, "int32", None)
        count = len(ids)
        operations = self._list(f"{name}.operations", operations, ("int32", "int8"), count)
        values = self._list(f"{name}.values", values, "float32", count)
        if self.on_cpu:
            if offsets[0] != 0 or offsets[-1] != count or np.any(np.diff(offsets) < 0):
                raise InvalidArgument(
                    f"{name}.offsets: expected ascending from 0 to {count}, the number of ids, "
                    f"given {np.array2string(offsets, threshold=8)}"
                )
            known = [int(operation) for operation in Operation]
            if not np.isin(operations, known).all():
                raise InvalidArgument(
                    f"{name}.operations: expected values of {known}, "
                    f"given {np.unique(operations).tolist()}"
                )
            operations = operations.astype(np.int32, copy=False)
        return Edits(offsets, ids, operations, values)

    def _list(self, name: str, value: Any, dtypes: str | Sequence[str], count: int | None) -> Any:
        """A vector; unlike array(), of any size from 0 where `count` is None."""
        empty = count is None and getattr(value, "shape", None) == (0,)
        return self.array(name, value, dtypes, [0 if empty else "n" if count is None else count])

    def _full(self, value: Any, dtype: str, count: int) -> Any:
        if self.on_cpu:
            return np.full(count, value, dtype)
        torch = sys.modules["torch"]
        if dtype == "uint64":
            dtype, value = "int64", int(value) - (int(value) >> 63 << 64)
        return torch.full((count,), value, dtype=getattr(torch, dtype), device=self.place.device)

    def _fits(self, value: Any, dtypes: Sequence[str], shape: Sequence[int | str]) -> bool:
        if isinstance(value, np.ndarray):
            there = self.on_cpu and value.flags.c_contiguous and value.flags.aligned
        elif is_tensor(value):
            there = (
                str(value.device) == self.place.device
                and _is_strided(value)
                and value.is_contiguous()
            )
        else:
            return False
        return (
            there
            and _dtype(value) in dtypes
            and len(value.shape) == len(shape)
            and all(
                given >= 1 if isinstance(wanted, str) else given == wanted
                for given, wanted in zip(value.shape, shape, strict=True)
            )
        )


# What NumPy takes microseconds to say; the same types in another byte order are not among them.
_NAMES = {
    np.dtype(name): name
    for name in ("float32", "float16", "float64", "int8", "int32", "int64", "uint64")
}


def _dtype(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _NAMES.get(value.dtype) or str(value.dtype)
    return str(value.dtype).removeprefix("torch.")


def _is_strided(tensor: Any) -> bool:
    return str(tensor.layout) == "torch.strided"


def _as_numpy(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value
    value = value.detach()
    if _dtype(value) == "bfloat16":
        return value.view(sys.modules["torch"].int16).numpy().view(np.uint16)
    return value.numpy()


def _range(least: float, most: float) -> str:
    return f"values from {least:.7g} to {most:.7g}" if least or most else "zero"
