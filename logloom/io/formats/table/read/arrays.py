"""The arrays that columns of a batch are read to: those that a user gives, or fresh ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from logloom.blocks import Array, empty
from logloom.errors import UsageError
from logloom.io.formats.table.read.frames import Ints
from logloom.schema import NO_AGE, ColumnType

Column = Array | tuple[Array, Ints] | list[Any]


def _check_writable(shown: str, array: Array) -> None:
    if not array.flags.writeable:
        raise UsageError(f"out[{shown!r}] is read-only; give an array that can be written to")


def fixed_array(shown: str, ctype: ColumnType, count: int, out: Mapping[str, Any]) -> Array:
    """The (count, *tail) array of `out`, or a fresh one.

    Raises:
        UsageError: the array of `out` doesn't fit.
    """
    shape = (count, *ctype.tail)
    if shown not in out:
        return np.empty(shape, ctype.dtype)
    array = np.asarray(out[shown])
    if array.shape != shape or array.dtype != ctype.dtype or not array.flags.c_contiguous:
        raise UsageError(
            f"out[{shown!r}] is {array.dtype}{list(array.shape)}, this batch needs contiguous "
            f"{ctype.dtype}{list(shape)}"
        )
    _check_writable(shown, array)
    return array


def ragged_array(shown: str, ctype: ColumnType, total: int, out: Mapping[str, Any]) -> Array:
    """The first `total` elements of the array of `out`, or a fresh (total, *tail) one.

    Raises:
        UsageError: the array of `out` doesn't fit.
    """
    if shown not in out:
        return np.empty((total, *ctype.tail), ctype.dtype)
    array = np.asarray(out[shown])
    fits = array.shape[1:] == ctype.tail and array.dtype == ctype.dtype and array.flags.c_contiguous
    if not fits or len(array) < total:
        raise UsageError(
            f"out[{shown!r}] is {array.dtype}{list(array.shape)}, this batch needs {ctype.dtype} of at least "
            f"{[total, *ctype.tail]}"
        )
    _check_writable(shown, array)
    return array[:total]


def missing_value(shown: str, ctype: ColumnType) -> Any:
    """What stands for a value of a row that doesn't exist: NaN, 0, false or empty; no age for ages."""
    if ctype.kind != "array":
        return b"" if ctype.kind == "bytes" else ""
    if shown.endswith(".age"):
        return ctype.dtype.type(NO_AGE)
    return empty(ctype, 1)[0]


def bytes_of(array: Array) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(bytearray())
