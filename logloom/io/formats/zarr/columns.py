"""Columns as zarr arrays: the arrays of a schema, and conversion both ways.

Here: `LogArray`, `arrays_of` a schema, `array_values`, and `read_columns` from anything that reads arrays.
Elsewhere: cutting arrays into files (layout), bytes (shards).

A column of fixed shape is one array, a structured one an array for each field (`c.x`, `c.pose.id`). A ragged
column is its concatenated values and `c.offsets` (N + 1), where each row starts; with more than one ragged
axis also `c.shapes` (N, axes). bytes and strings are ragged uint8. Lists of lists are two ragged columns: all
elements of a row, and `c.lengths`, the lengths of its lists.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from logloom.blocks import Array, Block, Lists, Ragged, Values, cut_by_bytes
from logloom.errors import DatasetError, UsageError
from logloom.io.rows.flat_lists import LENGTHS, flat_problems, flat_types, lengths_name, lists_of
from logloom.schema import TIMESTAMP, ColumnType, Schema
from logloom.values import dataclass

MAX_ROW_BYTES = 1 << 30
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS = frozenset("biufcU")
_WIDEST = {"f": 8, "c": 16}  # bytes; numpy has wider ones on some machines
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class LogArray:
    """An array of every log.

    Attributes:
        column: its column.
        path: of the field within a structured column, else ().
        axis: the first axis: "rows", "values" of a ragged column, or "bounds" between its rows.
        part: "data", or "shapes" and "offsets" of ragged columns.
        tail: the axes after the first.
    """

    name: str
    column: str
    path: tuple[str, ...]
    axis: Literal["rows", "values", "bounds"]
    part: Literal["data", "shapes", "offsets"]
    dtype: np.dtype[Any]
    tail: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one entry along the first axis."""
        return math.prod(self.tail) * self.dtype.itemsize

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the axes. Those with a colon can't be the names of columns."""
        first = "timestamp" if self.axis == "rows" else f"{self.column}:{self.axis}"
        return (first, *(f"{self.name}:{axis}" for axis in range(1, len(self.tail) + 1)))


def column_arrays(name: str, ctype: ColumnType) -> list[LogArray]:
    """The arrays of one column."""
    axis: Literal["rows", "values"] = "values" if ctype.is_ragged else "rows"
    arrays = [
        LogArray(".".join((name, *path)), name, path, axis, "data", dtype, (*ctype.tail, *inner))
        for path, dtype, inner in _fields(ctype.dtype, (), ())
    ]
    bound = np.dtype("<i8")
    if ctype.num_ragged > 1:
        tail = (ctype.num_ragged,)
        arrays.append(LogArray(f"{name}.shapes", name, (), "rows", "shapes", bound, tail))
    if ctype.is_ragged:
        arrays.append(LogArray(f"{name}.offsets", name, (), "bounds", "offsets", bound, ()))
    return arrays


def _fields(
    dtype: np.dtype[Any], path: tuple[str, ...], shape: tuple[int, ...]
) -> Iterator[tuple[tuple[str, ...], np.dtype[Any], tuple[int, ...]]]:
    """Every plain field: its path, type, and the axes that enclosing arrays give it."""
    base, inner = dtype.subdtype or (dtype, ())
    if base.names is None:
        yield path, base, shape + inner
    for name in base.names or ():
        yield from _fields(base[name], (*path, name), shape + inner)


def arrays_of(schema: Schema) -> dict[str, LogArray]:
    """All arrays of a log by name, `timestamp` first."""
    columns = flat_types({"timestamp": TIMESTAMP, **schema.all})
    return {array.name: array for name, ctype in columns.items() for array in column_arrays(name, ctype)}


def problems_of(schema: Schema) -> list[str]:
    """List why columns can't be arrays, one line each."""
    problems = flat_problems(schema.columns)
    owners: dict[str, str] = {}
    for name, ctype in flat_types(schema.all).items():
        for array in column_arrays(name, ctype):
            size = array.dtype.itemsize
            if array.dtype.kind not in _KINDS or not 0 < size <= _WIDEST.get(array.dtype.kind, size):
                problems.append(f"column {name}: zarr has no {array.dtype}")
            if not all(_FIELD.fullmatch(field) for field in array.path):
                problems.append(f"column {name}: field {array.path!r} can't name an array; leave it out")
            if array.row_bytes > MAX_ROW_BYTES:
                problems.append(f"column {name}: {array.row_bytes} bytes a row, 1 GiB is the most")
            other = owners.setdefault(array.name, name)
            if other != name:
                problems.append(
                    f"columns {other} and {name} would both have an array {array.name!r}; rename one"
                )
    return problems


def array_values(array: LogArray, ctype: ColumnType, values: Values) -> Iterator[Array]:
    """Convert rows of a column to entries of one of its arrays, in pieces; of offsets, the ends of the rows.

    Raises:
        UsageError: the values are not of the schema's type.
    """
    if values.dtype != ctype.dtype or isinstance(values, Ragged) != ctype.is_ragged:
        raise UsageError(f"column {array.column}: its values are {values.dtype}, the schema has {ctype}")
    if array.part == "offsets":
        assert isinstance(values, Ragged)
        yield values.offsets[1:]
    elif array.part == "shapes":
        assert isinstance(values, Ragged)
        yield values.shapes
    elif isinstance(values, Ragged):
        rows = [values.values] if values.is_joined else (row.reshape(-1, *values.tail) for row in values)
        for row in rows:
            yield _field(row, array.path)
    else:
        yield _field(values, array.path)


def _field(values: Array, path: Sequence[str]) -> Array:
    for name in path:
        values = values[name]
    return values


# --- the way back ---------------------------------------------------------------------------------------

# Gives entries [start, stop) of the array of a name.
ReadArray = Callable[[str, int, int], Array]


def read_columns(
    read: ReadArray, types: Mapping[str, ColumnType], start: int, stop: int, place: str
) -> dict[str, Values]:
    """Rows [start, stop) of some columns.

    Args:
        place: of the arrays, for errors.

    Raises:
        DatasetError: arrays are damaged or don't agree.
    """
    return {name: read_column(read, name, ctype, start, stop, place) for name, ctype in types.items()}


def read_column(read: ReadArray, name: str, ctype: ColumnType, start: int, stop: int, place: str) -> Values:
    """Rows [start, stop) of one column."""
    if ctype.kind == "lists":
        parts = {name: ctype.flat, lengths_name(name): LENGTHS}
        flat, lengths = read_columns(read, parts, start, stop, place).values()
        return checked_lists(flat, lengths, f"{place}/{name}")
    if not ctype.is_ragged:
        return _data(read, name, ctype, start, stop)
    bounds = read_bounds(read, name, start, stop, place)
    shapes = read(f"{name}.shapes", start, stop) if ctype.num_ragged > 1 else np.diff(bounds)[:, None]
    check_shapes(shapes, np.diff(bounds), f"{place}/{name}", np.arange(start, stop))
    return Ragged(_data(read, name, ctype, int(bounds[0]), int(bounds[-1])), shapes)


def checked_lists(flat: Values, lengths: Values, place: str) -> Lists:
    """Return lists of lists from the two columns that they are stored as.

    Raises:
        DatasetError: the two disagree.
    """
    try:
        return lists_of(flat, lengths)
    except ValueError as error:
        raise DatasetError(f"{place}: {error}: damaged") from error


def check_shapes(shapes: Array, lengths: Array, place: str, rows: Array) -> None:
    """Check lengths of ragged axes against the offsets.

    Args:
        shapes: (n, axes) of some rows.
        lengths: (n,) numbers of values by the offsets.
        rows: (n,) their numbers.

    Raises:
        DatasetError: the two disagree.
    """
    # In floats, an absurd length can't wrap around to a sensible product.
    products = shapes.astype(np.float64).prod(axis=1)
    wrong = (shapes < 0).any(axis=1) | (products != lengths)
    if wrong.any():
        at = int(wrong.argmax())
        raise DatasetError(
            f"{place}: row {rows[at]} is {shapes[at].tolist()} long, "
            f"by its offsets it contains {lengths[at]} values: damaged"
        )


def read_bounds(read: ReadArray, name: str, start: int, stop: int, place: str) -> Array:
    """Read (stop - start + 1,) the start of each row of a ragged column, and the end of the last.

    Raises:
        DatasetError: they don't ascend.
    """
    bounds = read(f"{name}.offsets", start, stop + 1)
    falls = np.diff(bounds) < 0
    if falls.any() or bounds[0] < 0:
        row = start + (int(falls.argmax()) if falls.any() else 0)
        raise DatasetError(f"{place}/{name}.offsets: row {row} ends before it starts: damaged")
    return bounds


def _data(read: ReadArray, name: str, ctype: ColumnType, start: int, stop: int) -> Array:
    return join_fields(name, ctype, stop - start, lambda array: read(array, start, stop))


def join_fields(name: str, ctype: ColumnType, length: int, read: Callable[[str], Array]) -> Array:
    """Join the arrays of each field to (length, *tail) values of a column; `read` reads one by its name."""
    if ctype.dtype.names is None:
        return read(name)
    values = np.zeros((length, *ctype.tail), ctype.dtype)
    for array in column_arrays(name, ctype):
        if array.part == "data":
            _field(values, array.path)[...] = read(array.name)
    return values


def read_blocks(
    read: ReadArray,
    types: Mapping[str, ColumnType],
    start: int,
    stop: int,
    place: str,
    max_bytes: int,
    make: Callable[[int, dict[str, Values]], Block],
) -> Iterator[Block]:
    """Yield rows [start, stop) as blocks of about `max_bytes`, at least one row each.

    Args:
        types: of the columns to read, besides `timestamp`.
        make: makes the block of some columns, given the number of rows before it.
    """
    for first in range(start, stop, _ROWS_AT_ONCE):
        last = min(stop, first + _ROWS_AT_ONCE)
        ends = np.cumsum(_row_sizes(read, types, first, last, place))
        for low, high in cut_by_bytes(np.concatenate([[0], ends]), max_bytes):
            wanted = {"timestamp": TIMESTAMP, **types}
            yield make(first - start + low, read_columns(read, wanted, first + low, first + high, place))


def _row_sizes(read: ReadArray, types: Mapping[str, ColumnType], start: int, stop: int, place: str) -> Array:
    sizes = np.full(stop - start, 8.0)
    for name, ctype in types.items():
        element = ctype.dtype.itemsize * math.prod(ctype.tail)
        lengths = np.diff(read_bounds(read, name, start, stop, place)) if ctype.is_ragged else 1
        sizes += lengths * element
    return sizes
