"""Batches as Arrow record batches: the way to pandas, polars, DuckDB and whatever else speaks Arrow.

Here: pure functions from the columns of a batch to Arrow arrays.
Elsewhere: batches (logloom.batches), which rows they hold (logloom.datasets.dataset).

An axis of fixed length is a fixed-size list, a ragged one a list; bytes are binary, structured values
structs, complex numbers structs of `real` and `imag`. Stamps and ages stay int64 ns, so that differences are
exact whatever reads them. What isn't usable is NaN, 0 or empty, as in rows, never null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logloom.batches import Batch, row_values, window_values
from logloom.blocks import Array
from logloom.datasets.scanning import pieces_of
from logloom.errors import UsageError
from logloom.schema import STRING, TIMESTAMP, ColumnType

if TYPE_CHECKING:
    import pandas as pd

    from logloom.datasets.dataset import Dataset

_KEYS = {"log_id": STRING, "timestamp": TIMESTAMP}
_TIMES = ("s", "ms", "us", "ns")


def type_of(ctype: ColumnType) -> Any:
    """The Arrow type of a column's values."""
    if ctype.kind != "array":
        return pa.string() if ctype.kind == "string" else pa.binary()
    found = _leaf_type(ctype.dtype)
    for length in reversed(ctype.shape):  # polars has no fixed-size lists of nothing
        found = pa.list_(found, length) if length else pa.list_(found)
    return found


def _leaf_type(dtype: np.dtype[Any]) -> Any:
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


def record_batch(batch: Batch, schema: Any | None, place: str) -> Any:
    """A batch of rows, or of windows, as Arrow.

    Args:
        schema: of the columns that have types; of others their values tell.
        place: where they come from, for messages.

    Raises:
        UsageError: Arrow can't hold a column's values; names it.
    """
    arrays: dict[str, Any] = {}
    for name, column in batch.items():
        wanted = schema.field(name).type if schema is not None and name in schema.names else None
        try:
            arrays[name] = _array(column, wanted)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise UsageError(
                f"{place}: Arrow can't hold the values of {name} ({str(error)[:200]}); leave it out by "
                "columns=[…], or turn it into plain values in a function given to map"
            ) from error
    return pa.RecordBatch.from_pydict(arrays)


def _array(column: Any, wanted: Any) -> Any:
    if isinstance(column, tuple):
        values, lengths = column
        if wanted is not None and pa.types.is_fixed_size_list(wanted):  # windows: lengths are (n, k, …)
            flat = lengths.reshape(-1, *lengths.shape[2:])
            return pa.FixedSizeListArray.from_arrays(_ragged(values, flat), type=wanted)
        return _ragged(values, lengths)
    if isinstance(column, np.ndarray):
        return _fixed(column)
    if wanted is not None and pa.types.is_fixed_size_list(wanted):
        return pa.array([None if row is None else list(row) for row in column], wanted)
    return pa.array([_plain(value) for value in column], wanted)


def _plain(value: Any) -> Any:
    """What Arrow tells the type of: lists instead of arrays of several axes."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value] if value.ndim > 1 else value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) and value.dtype.kind not in "mM" else value


def _fixed(values: Array) -> Any:
    """(n, *shape) values, an entry for each of the n."""
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
        fields = [_fixed(np.ascontiguousarray(values[name])) for name in dtype.names]
        return pa.StructArray.from_arrays(fields, list(dtype.names))
    if dtype.kind == "c":
        return pa.StructArray.from_arrays([pa.array(values.real), pa.array(values.imag)], ["real", "imag"])
    wanted: Any = _leaf_type(dtype) if dtype.kind != "O" else None
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
def _ragged(values: Array, lengths: Array) -> Any:
    """n rows of `values`, by their (n,) lengths, or (n, r) of r ragged axes."""
    shapes = lengths.reshape(len(lengths), -1).astype(np.int64)
    found = _fixed(values)
    for axis in range(shapes.shape[1] - 1, -1, -1):
        repeats = shapes[:, :axis].prod(axis=1, dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(np.repeat(shapes[:, axis], repeats))])
        found = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), found)
    return found


def batches_of(dataset: Dataset[Any], rows: int | None) -> Iterator[Any]:
    """Record batches of one schema; of about 64 MiB where `rows` doesn't say how many rows each has.

    Raises:
        UsageError: Arrow can't hold a column's values, or they differ in type from batch to batch.
    """
    schema = None
    for start, batch in pieces_of(dataset, rows):
        found = record_batch(batch, _schema_of(dataset, list(batch)), dataset.place)
        try:
            yield found if schema is None else found.cast(schema)
        except (pa.ArrowException, ValueError) as error:
            raise UsageError(
                f"{dataset.place}: from row {start} on there are other types than in the first batch "
                f"({str(error)[:200]}); give columns one type in the function given to map"
            ) from error
        schema = found.schema if schema is None else schema


def _schema_of(dataset: Dataset[Any], names: Sequence[str]) -> Any:
    window = dataset.window_steps
    types = {} if dataset.is_mapped else {**_KEYS, **dataset.schema.all}
    fields = []
    for name in names:
        ctype = types.get(name)
        if ctype is not None and (ctype.kind != "array" or ctype.dtype.kind != "O"):
            of_window = window > 0 and name != "log_id"
            fields.append(pa.field(name, pa.list_(type_of(ctype), window) if of_window else type_of(ctype)))
    return pa.schema(fields)


def table_of(dataset: Dataset[Any]) -> Any:
    """All rows as a pyarrow Table."""
    found = list(batches_of(dataset, None))
    if found:
        return pa.Table.from_batches(found)
    return _schema_of(dataset, dataset.keys).empty_table()


def frame_of(dataset: Dataset[Any]) -> pd.DataFrame:
    """All rows as a pandas DataFrame."""
    import pandas as pd

    pieces: dict[str, list[Any]] = {}
    for _, batch in pieces_of(dataset, None):
        for name, column in batch.items():
            pieces.setdefault(name, []).append(pandas_column(column, dataset.window_steps > 0))
    if not pieces:
        return pd.DataFrame({name: [] for name in dataset.keys})
    return pd.DataFrame(
        {
            name: list(chain.from_iterable(parts)) if isinstance(parts[0], list) else np.concatenate(parts)
            for name, parts in pieces.items()
        }
    )


def pandas_column(column: Any, is_windows: bool) -> Any:
    """A batch's column for pandas: numbers and text as they are, else each row's own value."""
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.names is None:
        return column
    if isinstance(column, list) and isinstance(column[0], str):
        return column
    rows = window_values(column) if is_windows else row_values(column)
    values = np.empty(len(rows), object)
    for number, value in enumerate(rows):
        values[number] = value
    return values
