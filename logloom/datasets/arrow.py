"""Conversion of batches to Arrow record batches, for pandas, polars or DuckDB.

Here: one batch as a record batch; all rows of a dataset as record batches, a stream, a table or a DataFrame.
Elsewhere: conversion of values to Arrow arrays, and their types (logloom.io.arrow.arrays), batches
(logloom.io.rows.batches), the choice of rows (logloom.datasets.dataset).

Timestamps and ages stay int64 ns, so that every reader computes exact differences. A value that isn't
available is NaN, 0 or empty, as in rows, never null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logloom.blocks import Block, Lists, Ragged, concatenate
from logloom.datasets.views.scan import pieces_of
from logloom.errors import UsageError
from logloom.io.arrow.arrays import fixed_array, lists_array, ragged_array, stored_array, type_of
from logloom.io.rows.batches import Batch, row_values, window_values
from logloom.schema import STRING, TIMESTAMP, ColumnType

if TYPE_CHECKING:
    import pandas as pd

    from logloom.datasets.dataset import Dataset

_JOINED_BYTES = 1 << 20  # of blocks, below which a batch of each would cost more than a copy
_KEYS = {"log_id": STRING, "timestamp": TIMESTAMP}


def record_batch(batch: Batch, schema: Any | None, place: str) -> Any:
    """A batch of rows, or of windows, as Arrow.

    Args:
        schema: of the columns that have types; of others their values tell.
        place: where they come from, for messages.

    Raises:
        UsageError: Arrow can't store a column's values; names it.
    """
    arrays: dict[str, Any] = {}
    for name, column in batch.items():
        wanted = schema.field(name).type if schema is not None and name in schema.names else None
        try:
            arrays[name] = _array(column, wanted)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _unfit(place, name, error) from error
    return pa.RecordBatch.from_pydict(arrays)


def _unfit(place: str, name: str, error: Exception) -> UsageError:
    return UsageError(
        f"{place}: Arrow can't store the values of {name} ({str(error)[:200]}); leave it out by "
        "columns=[…], or turn it into plain values in a function given to map"
    )


def _array(column: Any, wanted: Any) -> Any:
    if isinstance(column, tuple):
        values, lengths, *inner = column
        if wanted is not None and pa.types.is_fixed_size_list(wanted):  # windows: lengths are (n, k, …)
            flat = lengths.reshape(-1, *lengths.shape[2:])
            return pa.FixedSizeListArray.from_arrays(_array((values, flat, *inner), None), type=wanted)
        return lists_array(Lists(values, lengths, *inner)) if inner else ragged_array(values, lengths)
    if isinstance(column, np.ndarray):
        return fixed_array(column)
    if wanted is not None and pa.types.is_fixed_size_list(wanted):
        return pa.array([None if row is None else list(row) for row in column], wanted)
    return pa.array([_plain(value) for value in column], wanted)


def _plain(value: Any) -> Any:
    """A value whose type Arrow can infer: lists instead of arrays of several axes."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value] if value.ndim > 1 else value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) and value.dtype.kind not in "mM" else value


def batches_of(dataset: Dataset[Any], rows: int | None) -> Iterator[Any]:
    """Record batches of one schema; of about 64 MiB where `rows` doesn't say how many rows each has.

    Without rows there is one batch, so that types are known; none of what functions would have made.

    Raises:
        UsageError: Arrow can't store a column's values, or they differ in type from batch to batch.
    """
    if rows is None and _is_stored(dataset):
        yield from _stored_batches(dataset)
        return
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
    if schema is None and not dataset.is_mapped:
        batch = dataset.get_many([])
        yield record_batch(batch, _schema_of(dataset, list(batch)), dataset.place)


def _is_stored(dataset: Dataset[Any]) -> bool:
    """Whether samples are neighbouring rows as they are stored, of columns with types."""
    rows, source = dataset.stored_rows, dataset.source
    types = [source.schema.all[name] for name in dataset.columns]
    is_range = isinstance(rows, range) and rows.step == 1 and len(rows) > 0
    is_plain = not (dataset.is_mapped or dataset.window_steps or source.key_name)
    return is_range and is_plain and all(ctype.dtype.kind != "O" for ctype in types)


def _stored_batches(dataset: Dataset[Any]) -> Iterator[Any]:
    """Record batches that share the memory of the source's large blocks; small blocks are joined, as copies.

    Raises:
        UsageError: Arrow can't store a column's values; names it.
    """
    rows, source = dataset.stored_rows, dataset.source
    assert isinstance(rows, range)
    schema = _schema_of(dataset, dataset.keys)
    for blocks in _joinable(source.scan(dataset.columns, start=rows.start, stop=rows.stop)):
        arrays = {}
        for name in schema.names:
            try:
                arrays[name] = _stored_column(blocks, name, source.schema.all.get(name))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise _unfit(dataset.place, name, error) from error
        yield pa.RecordBatch.from_pydict(arrays, schema=schema)


def _joinable(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Large blocks alone, and neighbouring small ones together."""
    found: list[Block] = []
    size = 0
    for block in blocks:
        own = block.nbytes + len(block.log_id) * len(block)
        if found and size + own > _JOINED_BYTES:
            yield found
            found, size = [], 0
        found.append(block)
        size += own
    if found:
        yield found


def _stored_column(blocks: Sequence[Block], name: str, ctype: ColumnType | None) -> Any:
    if name == "log_id":
        numbers = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
        return pa.array([block.log_id for block in blocks], pa.string()).take(pa.array(numbers))
    parts = [block.columns[name] for block in blocks]
    values = parts[0] if len(parts) == 1 else concatenate(parts)
    if ctype is not None and isinstance(values, Ragged) and ctype.kind == "array":
        return ragged_array(values.values, values.shapes)
    return stored_array(values, ctype or TIMESTAMP)


def stream_of(dataset: Dataset[Any]) -> Any:
    """All rows as a pyarrow RecordBatchReader, which reads while it is read."""
    batches = batches_of(dataset, None)
    first = next(batches, None)
    schema = _schema_of(dataset, dataset.keys) if first is None else first.schema
    found = batches if first is None else chain([first], batches)
    return pa.RecordBatchReader.from_batches(schema, found)


def _schema_of(dataset: Dataset[Any], names: Sequence[str]) -> Any:
    key = {dataset.source.key_name: STRING} if dataset.source.key_name else {}
    types = {} if dataset.is_mapped else {**_KEYS, **key, **dataset.schema.all}
    fields = []
    for name in names:
        ctype = types.get(name)
        if ctype is not None and (ctype.kind != "array" or ctype.dtype.kind != "O"):
            steps = dataset.steps_of(name)
            fields.append(pa.field(name, pa.list_(type_of(ctype), steps) if steps else type_of(ctype)))
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
            pieces.setdefault(name, []).append(pandas_column(column, dataset.steps_of(name) > 0))
    if not pieces:
        known = table_of(dataset).to_pandas()
        nothing = pd.Series([], dtype=object)
        batch = {} if dataset.is_mapped else dataset.get_many([])
        plain = {
            name: column for name, column in batch.items() if _is_plain(column)
        }  # of complex numbers, too
        return pd.DataFrame({name: plain.get(name, known.get(name, nothing)) for name in dataset.keys})
    return pd.DataFrame(
        {
            name: list(chain.from_iterable(parts)) if isinstance(parts[0], list) else np.concatenate(parts)
            for name, parts in pieces.items()
        }
    )


def pandas_column(column: Any, is_windows: bool) -> Any:
    """A batch's column for pandas: numbers and text as they are, else each row's own value."""
    if _is_plain(column):
        return column
    if isinstance(column, list) and isinstance(column[0], str):
        return column
    rows = window_values(column) if is_windows else row_values(column)
    values = np.empty(len(rows), object)
    for number, value in enumerate(rows):
        values[number] = value
    return values


def _is_plain(column: Any) -> bool:
    """Whether pandas has a dtype for the values of a batch's column: one number or text a row."""
    return isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.names is None
