"""Conversion of values to Arrow arrays.

Here: `type_of` and `stored_type`, the Arrow types of columns, and `fixed_array`, `ragged_array`,
`lists_array` and `stored_array`.
Elsewhere: the inverse (columns), tables as outputs (layout), batches as record batches
(logloom.datasets.arrow).

An axis of fixed length is a fixed-size list, a ragged one a list, lists of lists are two; bytes are binary,
structured values structs, complex numbers structs of `real` and `imag`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from logloom.blocks import Array, Lists, Ragged, Values
from logloom.schema import ColumnType

_TIMES = ("s", "ms", "us", "ns")


def type_of(ctype: ColumnType) -> Any:
    """Return the Arrow type of a column's values."""
    if ctype.kind in ("bytes", "string"):
        return pa.string() if ctype.kind == "string" else pa.binary()
    found = leaf_type(ctype.dtype)
    for length in reversed(ctype.shape):  # polars has no fixed-size lists of nothing
        found = pa.list_(found, length) if length else pa.list_(found)
    return found


def stored_type(ctype: ColumnType) -> Any:
    """Return the Arrow type that preserves a column's values and shapes, for tables.

    Like `type_of`, but lists of lists lose the shape of a row without elements, such as (0, 3).
    So several ragged axes are a struct of `data`, all elements in one list, and `shape`: the storage of
    Arrow's variable-shape tensors.
    """
    if ctype.num_ragged < 2 or ctype.kind == "lists":
        return type_of(ctype)
    shape = pa.list_(pa.int32(), len(ctype.shape))
    return pa.struct([("data", pa.list_(leaf_type(ctype.dtype))), ("shape", shape)])


def leaf_type(dtype: np.dtype[Any]) -> Any:
    """The Arrow type of one element."""
    if dtype.names is not None:
        return pa.struct([(name, _field_type(dtype[name])) for name in dtype.names])
    if dtype.kind == "c":
        part = pa.float32() if dtype.itemsize == 8 else pa.float64()
        return pa.struct([("real", part), ("imag", part)])
    if dtype.kind in "US":
        return pa.string() if dtype.kind == "U" else pa.binary()
    if dtype.kind in "mM":
        unit = np.datetime_data(dtype)[0]
        unit = unit if unit in _TIMES else "s"
        return pa.timestamp(unit) if dtype.kind == "M" else pa.duration(unit)
    if dtype.kind == "V" or (dtype.kind == "f" and dtype.itemsize > 8):
        return pa.binary(dtype.itemsize)
    return pa.from_numpy_dtype(dtype)


def _field_type(dtype: np.dtype[Any]) -> Any:
    base, shape = dtype.subdtype or (dtype, ())
    return type_of(ColumnType(base, shape))


def fixed_array(values: Array) -> Any:
    """(n, *shape) values as an array of n entries."""
    found = _leaves(values.reshape(-1))
    for axis in range(values.ndim - 1, 0, -1):
        rows, length = int(np.prod(values.shape[:axis])), values.shape[axis]
        if length:
            found = pa.FixedSizeListArray.from_arrays(found, type=pa.list_(found.type, length))
        else:
            found = pa.array([[]] * rows, pa.list_(found.type))
    return found


def _leaves(values: Array) -> Any:
    """(n,) values."""
    dtype = values.dtype
    if dtype.names is not None:
        fields = [fixed_array(np.ascontiguousarray(values[name])) for name in dtype.names]
        return pa.StructArray.from_arrays(fields, list(dtype.names))
    if dtype.kind == "c":
        return pa.StructArray.from_arrays([pa.array(values.real), pa.array(values.imag)], ["real", "imag"])
    wanted: Any = leaf_type(dtype) if dtype.kind != "O" else None
    if dtype.kind in "mM":
        unit = wanted.unit
        return pa.array(values.astype(f"{dtype.kind}8[{unit}]"), wanted)
    if dtype.kind == "V" or (dtype.kind == "f" and dtype.itemsize > 8):
        return pa.array([value.tobytes() for value in values], wanted)
    if dtype.kind in "OUS":
        return pa.array(values.tolist(), wanted)
    return pa.array(np.ascontiguousarray(values, dtype.newbyteorder("=")), wanted)


# lengths (n, 2)      [2, 3]  [1, 2]             a row of 2 x 3 values, a row of 1 x 2
# outer offsets        0        2      3         which inner lists each row has
# inner offsets        0   3    6      8         which values each inner list has
def ragged_array(values: Array, lengths: Array) -> Any:
    """n rows of `values` as an array, by their (n,) lengths, or (n, r) of r ragged axes."""
    shapes = (lengths if lengths.ndim > 1 else lengths[:, np.newaxis]).astype(np.int64)
    found = fixed_array(values)
    for axis in range(shapes.shape[1] - 1, -1, -1):
        repeats = shapes[:, :axis].prod(axis=1, dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(np.repeat(shapes[:, axis], repeats))])
        found = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), found)
    return found


def lists_array(values: Lists) -> Any:
    """Lists of lists as an array of n entries."""
    inner = ragged_array(values.values, values.inner.values)
    return pa.ListArray.from_arrays(pa.array(values.inner.offsets, pa.int32()), inner)


def stored_array(values: Values, ctype: ColumnType) -> Any:
    """Convert the values of a column to arrays for tables.

    Raises:
        ValueError: a text isn't UTF-8, or rows have more than 2 GiB together.
    """
    if not isinstance(values, Ragged):
        return fixed_array(values)
    if isinstance(values, Lists):
        return lists_array(values)
    if ctype.kind != "array":
        offsets = pa.array(values.offsets, pa.int32())
        buffers = [None, offsets.buffers()[1], pa.py_buffer(np.ascontiguousarray(values.values))]
        found = pa.Array.from_buffers(type_of(ctype), len(values), buffers)
        if ctype.kind == "string":
            found.validate(full=True)
        return found
    if ctype.num_ragged < 2:
        return ragged_array(values.values, values.shapes)
    elements = values.lengths * int(np.prod(ctype.tail, dtype=np.int64))
    tail = np.broadcast_to(np.array(ctype.tail, np.int64), (len(values), len(ctype.tail)))
    shapes = fixed_array(np.concatenate([values.shapes, tail], axis=1).astype(np.int32))
    data = ragged_array(values.values.reshape(-1), elements)
    return pa.StructArray.from_arrays([data, shapes], ["data", "shape"])
