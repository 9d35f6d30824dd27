"""Rows as one array or list per column, and back.

Here: pure functions on batches, for sources of every format.
Elsewhere: reading them (logloom.io.rows.sources), datasets (logloom.datasets.dataset).

A batch of n rows is a dict. Columns of fixed shape are arrays (n, *shape); ragged ones (values, lengths) with
values (total, *tail) and lengths (n,), or (n, r) for r ragged axes; lists of lists (values, counts, lengths)
with counts (n,) of the lists of each row and lengths of all of them; bytes, strings and other Python objects
are lists of n. `log_id` is a list, `timestamp` (n,) int64. `get_many` of all readers returns this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Lists, Ragged, fill_missing
from logloom.errors import UsageError
from logloom.schema import ColumnType

Batch = dict[str, Any]
Ints = NDArray[np.int64]


def rows_of(batch: Batch, num_rows: int) -> list[dict[str, Any]]:
    """Split a batch into rows, whose arrays are views of it."""
    columns = {name: row_values(column) for name, column in batch.items()}
    return [{name: values[row] for name, values in columns.items()} for row in range(num_rows)]


def row_values(column: Any) -> Any:
    """Return a column as an object that has the value of a row by its number."""
    return ragged_of(column) if isinstance(column, tuple) else column


def ragged_of(column: tuple[Array, ...]) -> Ragged:
    """A ragged column of a batch as blocks have it; of three arrays, lists of lists."""
    return Lists(*column) if len(column) > 2 else Ragged(*column)


def tuple_of(values: Ragged) -> tuple[Array, ...]:
    """Return the inverse of `ragged_of`."""
    if isinstance(values, Lists):
        return values.values, values.inner.shapes[:, 0], values.inner.values
    return values.values, values.shapes if values.shapes.shape[1] > 1 else values.shapes[:, 0]


def stacked_rows(
    rows: Sequence[Mapping[str, Any]], types: Mapping[str, ColumnType], place: str, positions: Ints
) -> Batch:
    """Combine rows into a batch.

    Args:
        types: of the columns; other types are inferred from the first row.
        place, positions: where the rows come from, for messages.

    Raises:
        UsageError: values that should have one shape differ, or a row lacks a value that another one has.
    """
    batch: Batch = {}
    _check_names(rows, place, positions)
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        ctype = types.get(name)
        if ctype is not None and ctype.is_ragged and ctype.kind in ("array", "lists"):
            rows_of_lists = values if ctype.kind == "lists" else [np.asarray(value) for value in values]
            batch[name] = tuple_of(Ragged.from_rows(rows_of_lists, ctype))
        elif isinstance(values[0], np.ndarray | np.generic):
            shape = values[0].shape
            odd = next((row for row, value in enumerate(values) if value.shape != shape), None)
            if odd is not None:
                raise UsageError(
                    f"{place}: {name} is {list(values[odd].shape)} in row {positions[odd]} and {list(shape)} "
                    f"in row {positions[0]}: pad it in a function given to map, or leave it out"
                )
            batch[name] = np.stack(values)
        else:
            batch[name] = values
    return batch


def _check_names(rows: Sequence[Mapping[str, Any]], place: str, positions: Ints) -> None:
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            (name, *_) = row.keys() ^ rows[0].keys()
            with_it, without = (0, number) if name in rows[0] else (number, 0)
            raise UsageError(
                f"{place}: {name} is in row {positions[with_it]} and not in row {positions[without]}: return "
                "the same names for all rows from a function given to map, with None where there is no value"
            )


def take(batch: Batch, rows: Ints) -> Batch:
    """The given rows of a batch; they may repeat."""
    return {name: _take(column, rows) for name, column in batch.items()}


def _take(column: Any, rows: Ints) -> Any:
    if isinstance(column, tuple):
        return tuple_of(ragged_of(column).take(rows))
    return column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows.tolist()]


def _take_windows(column: tuple[Array, ...], windows: Ints) -> tuple[Array, ...]:
    """The given windows of a folded ragged column."""
    values, lengths, *inner = column
    count, steps = lengths.shape[:2]
    rows = (windows[:, None] * steps + np.arange(steps)).reshape(-1)
    taken, own, *inner = _take((values, lengths.reshape(count * steps, *lengths.shape[2:]), *inner), rows)
    return taken, own.reshape(len(windows), steps, *own.shape[1:]), *inner


def scattered(
    parts: Sequence[tuple[Ints, Batch]],
    num_rows: int,
    out: Mapping[str, Array] | None = None,
    windows: Sequence[str] = (),
) -> Batch:
    """Combine batches into one.

    Args:
        parts: (which rows, batch); every row is in one of them.
        out: arrays to fill, for columns that are arrays.
        windows: columns that are folded.
    """
    order = np.argsort(np.concatenate([where for where, _ in parts]), kind="stable")
    batch: Batch = {}
    for name, first in parts[0][1].items():
        columns = [part[name] for _, part in parts]
        if isinstance(first, np.ndarray):
            whole = (out or {}).get(name)
            if whole is None:
                whole = np.empty((num_rows, *first.shape[1:]), first.dtype)
            for (where, _), column in zip(parts, columns, strict=True):
                whole[where] = column
            batch[name] = whole
        elif isinstance(first, tuple):
            joined = tuple(map(np.concatenate, zip(*columns, strict=True)))
            batch[name] = _take_windows(joined, order) if name in windows else _take(joined, order)
        else:
            batch[name] = _take([value for column in columns for value in column], order)
    return batch


def filled_up(
    batch: Batch, exists: NDArray[np.bool_], types: Mapping[str, ColumnType], out: Mapping[str, Array]
) -> Batch:
    """Extend a batch by rows of "not usable" (NaN, 0, false or empty) for missing ones.

    Args:
        batch: of the rows that exist, in order.
        exists: (n,) which of the n rows they are.
        out: arrays (n, *shape) to fill, by column.
    """
    whole: Batch = {}
    for name, column in batch.items():
        if isinstance(column, np.ndarray):
            array = out.get(name)
            if array is None:
                array = np.empty((len(exists), *column.shape[1:]), column.dtype)
            fill_missing(array)
            array[exists] = column
            whole[name] = array
        elif isinstance(column, tuple):
            lengths = np.zeros((len(exists), *column[1].shape[1:]), np.int64)
            lengths[exists] = column[1]
            whole[name] = (column[0], lengths, *column[2:])
        else:
            values: list[Any] = [_empty_value(types.get(name))] * len(exists)
            for row, value in zip(np.flatnonzero(exists).tolist(), column, strict=True):
                values[row] = value
            whole[name] = values
    return whole


def _empty_value(ctype: ColumnType | None) -> Any:
    kind = ctype.kind if ctype is not None else "array"
    return {"bytes": b"", "string": ""}.get(kind)


def folded(batch: Batch, num_windows: int, steps: int) -> Batch:
    """A batch of n·k rows as one of n windows of k: arrays (n, k, *shape), lengths (n, k), lists of lists."""
    return {name: _folded(column, num_windows, steps) for name, column in batch.items()}


def _folded(column: Any, num_windows: int, steps: int) -> Any:
    if isinstance(column, tuple):
        return column[0], column[1].reshape(num_windows, steps, *column[1].shape[1:]), *column[2:]
    if isinstance(column, np.ndarray):
        return column.reshape(num_windows, steps, *column.shape[1:])
    return [column[start * steps : (start + 1) * steps] for start in range(num_windows)]


def windows_of(batch: Batch, num_windows: int, single: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The windows of a folded batch: arrays (k, *shape), and lists of k for all that isn't of one shape.

    Args:
        single: columns that have one value in a window.
    """
    columns = {
        name: row_values(column) if name in single else window_values(column)
        for name, column in batch.items()
    }
    return [{name: values[n] for name, values in columns.items()} for n in range(num_windows)]


def window_values(column: Any) -> Any:
    """Return a column of a folded batch as an object that has the value of a window by its number."""
    if not isinstance(column, tuple):
        return column
    values, lengths, *inner = column
    num_windows, steps = lengths.shape[:2]
    rows = list(ragged_of((values, lengths.reshape(num_windows * steps, *lengths.shape[2:]), *inner)))
    return [rows[start * steps : (start + 1) * steps] for start in range(num_windows)]


def stacked_window(rows: Sequence[Mapping[str, Any] | None], like: Mapping[str, Any]) -> dict[str, Any]:
    """Stack a window of rows made by functions: arrays (k, *shape) if shapes are equal, else lists of k.

    Args:
        rows: None for those that don't exist, which become NaN, 0, false, or None in a list.
        like: a row with the keys and types of the others.
    """
    window: dict[str, Any] = {}
    for name, example in like.items():
        values = [None if row is None else row[name] for row in rows]
        arrays = [_as_array(value) for value in values if value is not None]
        first = arrays[0] if arrays else _as_array(example)
        if name == "log_id":
            window[name] = example
        elif first.dtype.kind in "OUSV" or any(array.shape != first.shape for array in arrays):
            window[name] = values
        else:
            missing = np.zeros_like(first)
            fill_missing(missing)
            window[name] = np.stack([missing if value is None else np.asarray(value) for value in values])
    return window


def _as_array(value: Any) -> Array:
    """A value as an array; an object where it is a list of arrays, or lists of several lengths."""
    if isinstance(value, list) and any(isinstance(one, np.ndarray) for one in value):
        return np.empty((), object)
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty((), object)


def to_tensors(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with a torch tensor for each number and array that torch has a type for; the rest as it is.

    Raises:
        UsageError: torch is not installed.
    """
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise UsageError("this needs torch: pip install 'logloom[torch]'") from error

    def tensor(value: Any) -> Any:
        if isinstance(value, list):
            return [tensor(item) for item in value]
        if type(value) is tuple:  # values and lengths
            return tuple(tensor(item) for item in value)
        if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "biufc":
            return value
        array = np.require(value, requirements=["C", "W"])
        try:
            return torch.from_numpy(array)
        except TypeError:  # longdouble and the like
            return value

    return {name: tensor(value) for name, value in row.items()}
