"""Conversion of users' rows (dicts, or a DataFrame) to columns.

Here: inferring a schema from rows, and stacking rows into batches of one log.
Elsewhere: writing the batches (logloom.io.formats.table.write.write).
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from logloom.blocks import Array, Block, Lists, Ragged, Values, empty
from logloom.errors import UsageError
from logloom.inference import common_shape, kind_of
from logloom.io.formats.table.chunks import row_bytes
from logloom.io.formats.table.description import KEYS
from logloom.schema import BYTES, NO_AGE, STRING, ColumnType, Schema, check_column_name
from logloom.values import dataclass

BATCH_BYTES = 32 << 20
BATCH_ROWS = 4096
_STACKED = 4096  # bytes; larger values stay where they are instead of being copied side by side

_NULLS = frozenset(map(type, (None, pd.NA, pd.NaT)))

Row = Mapping[str, Any]
Rows = pd.DataFrame | Iterable[Row] | Iterable[Block]


@dataclass(frozen=True)
class RowBatch:
    """Rows of one log as columns; `columns` has the schema's columns, and timestamp if the rows have it."""

    log_id: str
    columns: Mapping[str, Values]
    rows: int


def infer_types(rows: pd.DataFrame | Sequence[Row]) -> Schema:
    """The schema that rows would be written with: fixed shapes where all of them agree, ragged ones
    elsewhere.

    Args:
        rows: a DataFrame, or dicts by column name; one at least.

    Raises:
        UsageError: there are no rows, or a column mixes types.

    Examples:
        >>> schema = infer_types([{"speed": 1.0, "points": np.zeros((n, 4), "f4")} for n in (2, 3)])
        >>> [str(ctype) for ctype in schema.columns.values()]
        ['float64', 'float32[?, 4]']
    """
    if isinstance(rows, pd.DataFrame):
        return _infer_frame(rows)
    if not rows:
        raise UsageError("no rows, so no column types: pass types=")
    names = dict.fromkeys(name for row in rows for name in row)
    return _infer({name: [row.get(name) for row in rows] for name in names}, {})


def open_rows(
    rows: Rows, types: Schema | Mapping[str, ColumnType] | None
) -> tuple[Schema, tuple[str, ...], Iterator[RowBatch]]:
    """Return schema, keys and batches of any rows.

    Args:
        rows: a DataFrame (a column a column; object columns may hold arrays, bytes, str), dicts, or blocks.
        types: of the columns; others are left out. Without them a DataFrame's types are inferred from all its
            rows, those of dicts from the first rows (as many as fill a batch), and later rows have no more.

    Raises:
        UsageError: there are no rows to infer types from, or a value doesn't fit.
    """
    if isinstance(rows, Mapping):
        raise UsageError(
            "rows are a DataFrame, or dicts, one a row; of a dict of columns pd.DataFrame(...) is one"
        )
    if isinstance(rows, pd.DataFrame):
        keys = tuple(key for key in KEYS if key in rows.columns)
        schema = _as_schema(types) if types is not None else _infer_frame(rows)
        return schema, keys, _batches(_frame_rows(rows), schema)
    iterator: Iterator[Any] = iter(rows)
    first = next(iterator, None)
    if isinstance(first, Block):
        if not isinstance(types, Schema):
            raise UsageError("blocks need types=Schema(...), the schema they were made with")
        blocks: Iterator[Block] = itertools.chain([first], iterator)
        return types, KEYS, (RowBatch(block.log_id, block.columns, len(block)) for block in blocks)
    if not isinstance(first, Mapping | None):
        raise UsageError(f"rows are a DataFrame, or dicts, one a row; not {type(first).__name__}")
    head = [] if first is None else [first, *_some(iterator)]
    schema = _as_schema(types) if types is not None else infer_types(head)
    keys = tuple(key for key in KEYS if key in head[0]) if head else KEYS
    all_rows = itertools.chain(head, iterator)
    return (
        schema,
        keys,
        _batches(all_rows if types is not None else _without_others(all_rows, schema), schema),
    )


def _without_others(rows: Iterable[Row], schema: Schema) -> Iterator[Row]:
    """Yield the rows, refusing a column whose type is unknown."""
    known = {*schema.columns, *KEYS}
    for number, row in enumerate(rows):
        if not row.keys() <= known:
            name = next(name for name in row if name not in known)
            raise UsageError(f"row {number}: a column {name!r} that the first rows don't have; pass types=")
        yield row


def _frame_rows(frame: pd.DataFrame) -> Iterator[Row]:
    names = [str(name) for name in frame.columns]
    for start in range(0, len(frame), BATCH_ROWS):
        piece = frame.iloc[start : start + BATCH_ROWS]
        values = [_values_of(piece.iloc[:, i]) for i in range(len(names))]
        yield from (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))


def _infer_frame(frame: pd.DataFrame) -> Schema:
    columns: dict[str, Sequence[Any]] = {}
    dtypes = {}
    for place, name in enumerate(frame.columns):
        series = frame.iloc[:, place]
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufc":
            dtypes[str(name)] = series.dtype
        columns[str(name)] = () if str(name) in dtypes else _values_of(series)
    return _infer(columns, dtypes)


def _values_of(series: pd.Series[Any]) -> list[Any]:
    """Return the values of a column; None for those that pandas marks as missing among texts and objects."""
    values: list[Any] = series.tolist()
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufc":
        return values
    # NaN among numbers is a number.
    if all(isinstance(value, float | int) or _is_null(value) for value in values):
        return values
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def _some(rows: Iterator[Any]) -> list[Any]:
    """Read enough rows to infer their types."""
    taken, size = [], 0
    for row in rows:
        taken.append(row)
        size += _row_size(row)
        if len(taken) >= BATCH_ROWS or size > BATCH_BYTES:
            break
    return taken


def _row_size(row: Row) -> int:
    size = 0
    for value in row.values():
        kind = type(value)
        if kind is bytes or kind is str:
            size += len(value)
        else:
            size += getattr(value, "nbytes", 16)
    return size


def _as_schema(types: Schema | Mapping[str, ColumnType]) -> Schema:
    schema = types if isinstance(types, Schema) else Schema(dict(types))
    for name in schema.columns:
        check_column_name(name)
    return schema


def _infer(columns: Mapping[str, Sequence[Any]], dtypes: Mapping[str, np.dtype[Any]]) -> Schema:
    found: dict[str, ColumnType] = {}
    nullable = []
    for name, values in columns.items():
        if name in KEYS:
            continue
        check_column_name(name)
        if name in dtypes:
            found[name] = ColumnType(dtypes[name])
            continue
        present = [value for value in values if not _is_null(value)] if _has_nulls(values) else values
        if not present:
            raise UsageError(f"column {name}: no row has a value, so its type is unknown: pass types=")
        if len(present) < len(values):
            nullable.append(name)
        found[name] = _infer_type(name, present)
    return Schema(found, tuple(nullable))


def _infer_type(name: str, values: Sequence[Any]) -> ColumnType:
    kinds = {kind_of(kind) for kind in set(map(type, values))}
    if len(kinds) > 1:
        raise UsageError(f"column {name}: {' and '.join(sorted(kinds))} in one column; pass types=")
    if kinds == {"string"}:
        return STRING
    if kinds == {"bytes"}:
        return BYTES
    arrays = [_array_of(name, row, value) for row, value in enumerate(values)]
    found = dict.fromkeys((array.dtype, array.shape) for array in arrays)
    dtypes = {dtype for dtype, shape in found if math.prod(shape)} or {arrays[0].dtype}
    common = next(iter(dtypes)) if len(dtypes) == 1 else np.result_type(*dtypes)
    if common.kind == "f" and all(dtype.kind in "iu" for dtype in dtypes):
        raise UsageError(
            f"column {name}: no integer type can store all of {', '.join(sorted(map(str, dtypes)))}; "
            "pass types="
        )
    if common.kind not in "biufcV" or common.hasobject:
        raise UsageError(f"column {name}: values of type {common} can't be stored; use numbers, bytes or str")
    shape = common_shape(shape for _, shape in found)
    if shape is None:
        ranks = sorted({len(shape) for _, shape in found})
        raise UsageError(f"column {name}: {ranks} axes in one column; pass types=")
    return ColumnType(common, shape)


def _array_of(name: str, row: int, value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value
    try:
        return np.asarray(value)
    except ValueError as error:  # of lists that differ in length
        raise UsageError(f"column {name}: value {row}, {value!r:.80}, is no array: {error}") from error


def _is_null(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT


def _has_nulls(values: Sequence[Any]) -> bool:
    return not _NULLS.isdisjoint(map(type, values))


def _batches(rows: Iterable[Row], schema: Schema) -> Iterator[RowBatch]:
    """Yield consecutive rows of equal log_id as batches."""
    waiting: list[Row] = []
    log_id, size, first = "", 0, 0
    has_logs: bool | None = None
    for row in rows:
        own = row.get("log_id")
        if has_logs is None:
            has_logs = "log_id" in row
        if isinstance(own, str) != has_logs:
            raise UsageError(
                f"row {first + len(waiting)}: log_id = {own!r}; it is a text in all rows, or in none"
            )
        own = own or ""
        if waiting and (own != log_id or size > BATCH_BYTES or len(waiting) >= BATCH_ROWS):
            yield _stack(waiting, log_id, schema, first)
            first += len(waiting)
            waiting, size = [], 0
        log_id = own
        waiting.append(row)
        size += _row_size(row)
    if waiting:
        yield _stack(waiting, log_id, schema, first)


def _stack(rows: Sequence[Row], log_id: str, schema: Schema, first: int) -> RowBatch:
    columns: dict[str, Values] = {}
    if "timestamp" in rows[0]:
        columns["timestamp"] = _stamps([row.get("timestamp") for row in rows], first)
    for name, ctype in schema.columns.items():
        values = [row.get(name) for row in rows]
        has_nulls = _has_nulls(values)
        if has_nulls and name not in schema.sampled:
            row = first + [_is_null(value) for value in values].index(True)
            raise UsageError(
                f"row {row}: no value for {name}; for a column with nulls pass types=Schema(..., "
                f"sampled=[{name!r}])"
            )
        if name in schema.sampled:
            given = [row.get(f"{name}.age") for row in rows]
            ages = [0 if age is None else age for age in given]
            nulls = np.array([_is_null(value) for value in values])
            columns[f"{name}.age"] = np.where(nulls, NO_AGE, np.array(ages, np.int64))
            columns[f"{name}.available"] = ~nulls
        columns[name] = _column(name, values, ctype, first)
    return RowBatch(log_id, columns, len(rows))


def _stamps(values: Sequence[Any], first: int) -> NDArray[np.int64]:
    """Convert integers or times to (N,) ns since the epoch; times without a zone are UTC."""
    kinds = set(map(type, values))
    if kinds <= {int, np.int64}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    return np.array([_stamp(value, first + row) for row, value in enumerate(values)], np.int64)


def _stamp(value: Any, row: int) -> int:
    if isinstance(value, datetime.datetime | np.datetime64) and not pd.isna(value):
        return int(pd.Timestamp(value).as_unit("ns").value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return int(value)
    raise UsageError(
        f"row {row}: timestamp = {value!r}; it is int64 nanoseconds since 1970, or a time, in all rows"
    )


def _column(name: str, values: Sequence[Any], ctype: ColumnType, first: int) -> Values:
    if not ctype.shape and ctype.dtype.kind in "biufc" and not _has_nulls(values):
        together = np.array(values)
        if together.dtype.kind in "biufc" and together.ndim == 1 and _fits(together, ctype.dtype):
            return together.astype(ctype.dtype)
    if ctype.kind == "lists":
        lists = [_lists(name, value, ctype, first + row) for row, value in enumerate(values)]
        return Lists.from_rows(lists, ctype)
    arrays = _as_they_are(values, ctype)
    if arrays is None:
        arrays = _arrays(name, values, ctype, first)
    if ctype.is_ragged or row_bytes(ctype) >= _STACKED:
        return Ragged.from_rows(arrays, ctype)
    return np.array(arrays, ctype.dtype).reshape(len(arrays), *ctype.tail)


def _lists(name: str, value: Any, ctype: ColumnType, row: int) -> Sequence[Array]:
    return _arrays(f"{name}: a list", [] if _is_null(value) else value, ctype.flat, row)


def _as_they_are(values: Sequence[Any], ctype: ColumnType) -> Sequence[Array] | None:
    """Return the arrays of a column if all values have the expected type, else None."""
    kinds = set(map(type, values))
    if kinds == {bytes} and ctype.kind == "bytes":
        return [np.frombuffer(value, np.uint8) for value in values]
    if kinds == {np.ndarray} and ctype.kind == "array":
        rank, ragged = len(ctype.shape), ctype.num_ragged
        found = {(value.dtype, value.ndim, value.shape[ragged:]) for value in values}
        if found == {(ctype.dtype, rank, ctype.tail)}:
            return values
    return None


def _arrays(name: str, values: Sequence[Any], ctype: ColumnType, first: int) -> Sequence[Array]:
    nothing = empty(ctype, 1)[0]
    arrays = []
    rank, ragged, tail = len(ctype.shape), ctype.num_ragged, ctype.tail
    for row, value in enumerate(values):
        try:
            array = nothing if _is_null(value) else _array(value, ctype)
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"row {first + row}: {name} = {value!r:.80} is no {ctype}: {error}") from error
        if array.ndim != rank or array.shape[ragged:] != tail:
            raise UsageError(
                f"row {first + row}: {name} has shape {array.shape}, its type is {ctype}; pass types="
            )
        arrays.append(array)
    return arrays


def _array(value: Any, ctype: ColumnType) -> Any:
    if ctype.kind == "string":
        return np.frombuffer(value.encode() if isinstance(value, str) else bytes(value), np.uint8)
    if ctype.kind == "bytes":
        return np.frombuffer(value, np.uint8)
    array = np.asarray(value)
    if array.dtype == ctype.dtype:
        return array
    if not _fits(array, ctype.dtype):
        raise ValueError(f"{array.dtype} would lose something as {ctype.dtype}")
    return array.astype(ctype.dtype)


def _fits(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether a cast keeps values, floats rounded to fewer digits aside."""
    if dtype.kind in "fc" and array.dtype.kind in "biufc":
        return np.can_cast(array.dtype, dtype, "same_kind")
    if dtype.kind in "biu" and array.dtype.kind in "biu":
        return bool((array.astype(dtype) == array).all())
    if dtype.kind == "U" == array.dtype.kind:
        return array.dtype.itemsize <= dtype.itemsize
    return array.size == 0 or np.can_cast(array.dtype, dtype, "equiv")
