"""Values of rows in memory: ragged rows, lists of arrays, and blocks.

Here: `Ragged` (rows of differing lengths), `Lists` (rows of lists of arrays) and `Block` (some rows of one
partition of one log).
Elsewhere: types (logloom.schema), making values (logloom.transforms), storing them (logloom.io).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logloom.schema import ColumnType, Schema
from logloom.values import dataclass

Array = NDArray[Any]

_SLICE_ITEMS = 96  # from about here one slice per row is faster than an index for every item


class Ragged:
    """N rows whose leading axes differ in length: concatenated values, or one array per row.

    Large rows (images, scans) stay views of the buffers they were read into; small ones share an array. Both
    forms are available from either: `values` joins rows once, `rows` splits them.

    Attributes:
        shapes: (N, r) int64, the r leading lengths of each row.
        tail: the axes that every row shares.
    """

    __slots__ = ("_offsets", "_rows", "_values", "dtype", "shapes", "tail")

    def __init__(self, values: Array, shapes: ArrayLike):
        """Rows laid end to end.

        Args:
            values: (total, *tail), total being the sum over rows of the product of their leading lengths.
            shapes: (N,) or (N, r) leading lengths.
        """
        shapes = np.asarray(shapes, np.int64)
        self.shapes: NDArray[np.int64] = shapes[:, None] if shapes.ndim == 1 else shapes
        self._values: Array | None = values
        self._rows: Sequence[Array] | None = None
        self._offsets: NDArray[np.int64] | None = None
        self.dtype: np.dtype[Any] = values.dtype
        self.tail: tuple[int, ...] = values.shape[1:]
        if len(values) != self.offsets[-1]:
            raise ValueError(f"{len(values)} values for rows of {self.offsets[-1]} in all")

    @classmethod
    def from_rows(cls, rows: Sequence[Array], ctype: ColumnType) -> Ragged:
        """Make a ragged column of one array per row.

        Args:
            rows: an array for each row, of shape (*leading, *ctype.tail).
            ctype: of the column; of lists of lists, a row is a list of such arrays.

        Returns:
            A ragged column over these arrays; nothing is copied but lists of lists.
        """
        if ctype.kind == "lists":
            return Lists.from_rows(rows, ctype)
        self = cls.__new__(cls)
        r = ctype.num_ragged
        self.shapes = np.array([row.shape[:r] for row in rows], np.int64).reshape(len(rows), r)
        self._values = None
        self._rows = rows
        self._offsets = None
        self.dtype = ctype.dtype
        self.tail = ctype.tail
        return self

    @classmethod
    def from_bytes(cls, rows: Sequence[bytes | bytearray | memoryview]) -> Ragged:
        """Make a column of bytes or text.

        Args:
            rows: the bytes of each row; of text, its UTF-8.

        Returns:
            A ragged column of uint8.
        """
        ctype = ColumnType(np.dtype("u1"), (None,))
        return cls.from_rows([np.frombuffer(row, np.uint8) for row in rows], ctype)

    @property
    def is_joined(self) -> bool:
        """Whether the rows are contiguous already, so that `values` costs nothing."""
        return self._values is not None

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) elements of each row, counted along the flattened leading axes."""
        lengths: NDArray[np.int64] = self.shapes.prod(axis=1, dtype=np.int64)
        return lengths

    @property
    def offsets(self) -> NDArray[np.int64]:
        """(N + 1,) where each row starts in `values`."""
        if self._offsets is None:
            self._offsets = np.zeros(len(self.shapes) + 1, np.int64)
            np.cumsum(self.lengths, out=self._offsets[1:])
        return self._offsets

    @property
    def values(self) -> Array:
        """(total, *tail) all rows end to end."""
        if self._values is None:
            rows = [row.reshape(-1, *self.tail) for row in self._rows or ()]
            self._values = np.concatenate(rows) if rows else np.empty((0, *self.tail), self.dtype)
            self._values = self._values.astype(self.dtype, copy=False)
        return self._values

    @property
    def nbytes(self) -> int:
        """Of all values, without their shapes."""
        return int(self.lengths.sum()) * math.prod(self.tail) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, row: int) -> Array:
        if self._rows is not None:
            return self._rows[row]
        row = range(len(self))[row]
        start, stop = self.offsets[row : row + 2]
        return self.values[start:stop].reshape(*self.shapes[row], *self.tail)

    def __iter__(self) -> Iterator[Array]:
        return (self[row] for row in range(len(self)))

    def take(self, rows: NDArray[np.integer[Any] | np.bool] | slice) -> Ragged:
        """Select the given rows in the given order; rows may repeat.

        Args:
            rows: (n,) numbers of rows, a slice of them, or (N,) whether each is wanted.
        """
        if isinstance(rows, np.ndarray) and rows.dtype == bool:
            rows = np.arange(len(self))[rows]
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1 and self._rows is None:
                first, last = self.offsets[[start, max(start, stop)]].tolist()
                return Ragged(self.values[first:last], self.shapes[start:stop])
            far = len(self) + 1  # as good as any larger step, which numpy might not know
            rows = np.arange(start, stop, min(max(step, -far), far))
        if self._rows is not None:
            taken = Ragged.__new__(Ragged)
            taken.shapes = self.shapes[rows]
            taken._values, taken._offsets = None, None
            taken._rows = [self._rows[row] for row in rows.tolist()]
            taken.dtype, taken.tail = self.dtype, self.tail
            return taken
        return Ragged(self._gathered(rows), self.shapes[rows])

    def _gathered(self, rows: NDArray[Any]) -> Array:
        """(total, *tail) copies of some rows, concatenated."""
        lengths, starts = self.lengths[rows], self.offsets[:-1][rows]
        total = int(lengths.sum())
        if total < _SLICE_ITEMS * len(rows):
            gathered: Array = self.values[run_indices(starts, lengths)]
            return gathered
        found: Array = np.empty((total, *self.tail), self.dtype)
        places = zip(starts.tolist(), lengths.tolist(), np.cumsum(lengths).tolist(), strict=True)
        for start, length, end in places:
            found[end - length : end] = self.values[start : start + length]
        return found

    @staticmethod
    def concatenate(parts: Sequence[Ragged]) -> Ragged:
        """Concatenate the rows of all parts; views stay views if every part has one array per row.

        Args:
            parts: ragged columns of one type, one at least.
        """
        if len(parts) == 1:
            return parts[0]
        lists = [part for part in parts if isinstance(part, Lists)]
        if lists and len(lists) < len(parts):
            raise TypeError("lists of lists and other rows make no column")
        if lists:
            inner = Ragged.concatenate([part.inner for part in lists])
            return Lists(np.concatenate([part.values for part in lists]), inner.shapes[:, 0], inner.values)
        if all(part._rows is not None for part in parts):
            joined = Ragged.__new__(Ragged)
            joined.shapes = np.concatenate([part.shapes for part in parts])
            joined._values, joined._offsets = None, None
            joined._rows = [row for part in parts for row in part._rows or ()]
            joined.dtype, joined.tail = parts[0].dtype, parts[0].tail
            return joined
        return Ragged(
            np.concatenate([part.values for part in parts]), np.concatenate([part.shapes for part in parts])
        )

    def with_values(self, values: Array) -> Ragged:
        """Give rows of the same lengths other values.

        Args:
            values: (total, *tail) all rows end to end.

        Returns:
            A column of these values; they aren't copied.
        """
        return Ragged(values, self.shapes)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Ragged, (self.values, self.shapes))


# rows      [[a, b], [], [c]]   []   [[d]]
# values      a  b        c             d       shapes  3  0  1    elements of each row
# inner       2      0    1             1       counts  3  0  1    lists of each row
class Lists(Ragged):
    """N rows of lists of arrays: `Ragged` over the elements of all lists of a row, and the lists' lengths.

    A row is a list of arrays (length, *tail).

    Attributes:
        inner: N rows of int64, the length of each list.

    Examples:
        >>> lists = Lists(np.arange(4), counts=[2, 0, 1], lengths=[3, 0, 1])
        >>> lists[0], lists.shapes[:, 0].tolist()
        ([array([0, 1, 2]), array([], dtype=int64)], [3, 0, 1])
    """

    __slots__ = ("inner",)

    def __init__(self, values: Array, counts: ArrayLike, lengths: ArrayLike):
        """Lists laid end to end.

        Args:
            values: (total, *tail) elements of all lists.
            counts: (N,) lists of each row.
            lengths: (sum of counts,) elements of each list.
        """
        self.inner = Ragged(np.asarray(lengths, np.int64), np.asarray(counts, np.int64))
        if (self.inner.values < 0).any() or (self.inner.shapes < 0).any():
            raise ValueError("a list of negative length")
        ends = np.concatenate([[0], np.cumsum(self.inner.values)])
        super().__init__(values, np.diff(ends[self.inner.offsets]))

    @classmethod
    def from_rows(cls, rows: Sequence[Any], ctype: ColumnType) -> Lists:
        """Make a column of one list of arrays per row; see `Ragged.from_rows`."""
        lists = [np.asarray(one) for row in rows for one in row]
        values = [one.reshape(-1, *ctype.tail) for one in lists]
        flat = np.concatenate(values) if values else np.empty((0, *ctype.tail), ctype.dtype)
        return cls(flat.astype(ctype.dtype, copy=False), [len(row) for row in rows], [len(v) for v in values])

    @property
    def flat(self) -> Ragged:
        """The elements of all lists of a row as one list."""
        return Ragged(self.values, self.shapes)

    @property
    def nbytes(self) -> int:
        """Of all values, and of the lengths of the lists, which may be many and empty."""
        return super().nbytes + self.inner.nbytes

    def __getitem__(self, row: int) -> Any:
        row = range(len(self))[row]
        start, lengths = int(self.offsets[row]), self.inner[row]
        ends = (start + np.cumsum(lengths)).tolist()
        return [self.values[end - n : end] for end, n in zip(ends, lengths.tolist(), strict=True)]

    def take(self, rows: NDArray[np.integer[Any] | np.bool] | slice) -> Lists:
        """See `Ragged.take`."""
        inner = self.inner.take(rows)
        return Lists(self.flat.take(rows).values, inner.shapes[:, 0], inner.values)

    def with_values(self, values: Array) -> Lists:
        """See `Ragged.with_values`."""
        return Lists(values, self.inner.shapes[:, 0], self.inner.values)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Lists, (self.values, self.inner.shapes[:, 0], self.inner.values))


Values = Array | Ragged


def has_form(values: Values, ctype: ColumnType) -> bool:
    """Return whether a column has the axes of a type, whatever its dtype."""
    if isinstance(values, Lists):
        return ctype.kind == "lists" and values.tail == ctype.tail
    if isinstance(values, Ragged):
        axes = values.shapes.shape[1], values.tail
        return ctype.kind != "lists" and axes == (ctype.num_ragged, ctype.tail) and ctype.is_ragged
    return values.shape[1:] == ctype.shape


# starts    2      7            where runs are:     . . a b . . . c d e
# lengths   2      3            where they come to: a b c d e
# begins    0      2            = cumsum(lengths) - lengths
# indices   2 3    7 8 9        = arange(5) + repeat(starts - begins, lengths) = 0 1 2 3 4 + 2 2 5 5 5
def run_indices(starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """(total,) the indices of (n,) runs, end to end.

    >>> run_indices(np.array([2, 7]), np.array([2, 3])).tolist()
    [2, 3, 7, 8, 9]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    indices: NDArray[np.int64] = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return indices


def take(values: Values, rows: NDArray[np.integer[Any] | np.bool] | slice) -> Values:
    """Select rows of a fixed or ragged column; all of them in order are not copied.

    Args:
        values: a column, of fixed shape or ragged.
        rows: (n,) numbers of rows, a slice of them, or whether each is wanted.
    """
    if isinstance(rows, np.ndarray) and len(rows) == len(values) and _counts_up(rows):
        return values
    return values.take(rows) if isinstance(values, Ragged) else values[rows]


def _counts_up(rows: NDArray[np.integer[Any] | np.bool]) -> bool:
    return rows.dtype.kind in "iu" and bool((rows == np.arange(len(rows))).all())


def concatenate(parts: Sequence[Values]) -> Values:
    """Concatenate the rows of all parts.

    Args:
        parts: columns of one type, one at least.
    """
    if isinstance(parts[0], Ragged):
        return Ragged.concatenate([part for part in parts if isinstance(part, Ragged)])
    return np.concatenate([part for part in parts if not isinstance(part, Ragged)])


def empty(ctype: ColumnType, num_rows: int = 0) -> Values:
    """Return empty rows of a column: NaN for floats, 0 for other numbers, false, or empty.

    Args:
        ctype: of the column.
        num_rows: how many rows.
    """
    if ctype.kind == "lists":
        return Lists.from_rows([[]] * num_rows, ctype)
    if ctype.is_ragged:
        shapes = np.zeros((num_rows, ctype.num_ragged), np.int64)
        return Ragged(np.empty((0, *ctype.tail), ctype.dtype), shapes)
    rows = np.zeros((num_rows, *ctype.tail), ctype.dtype)
    fill_missing(rows)
    return rows


def column_of_rows(rows: Sequence[Array], ctype: ColumnType) -> Values:
    """A column of some rows, which are arrays of its type."""
    if ctype.is_ragged:
        return Ragged.from_rows(rows, ctype)
    column = np.empty((len(rows), *ctype.tail), ctype.dtype)
    for number, row in enumerate(rows):
        column[number] = row
    return column


def bytes_of(values: Array) -> memoryview:
    """Return the bytes of an array in C order, without a copy if it is contiguous."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def cut_by_bytes(limits: NDArray[np.number[Any]], max_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut rows into consecutive ranges [start, stop) of at most `max_bytes`, or of one row.

    Args:
        limits: (n + 1,) bytes before each row, then those of all.
    """
    start, count = 0, len(limits) - 1
    while start < count:
        stop = max(start + 1, int(np.searchsorted(limits, limits[start] + max_bytes, "right")) - 1)
        yield start, stop
        start = stop


def text_lengths(texts: Ragged) -> NDArray[np.int64]:
    """(n,) characters of each UTF-8 text."""
    if not (texts.values & 0x80).any():
        return texts.lengths
    starts = np.concatenate([[0], np.cumsum((texts.values & 0xC0) != 0x80)])  # all but continuation bytes
    return np.diff(starts[texts.offsets])


def fixed_text(texts: Ragged, width: int) -> Array:
    """(n,) `<U{width}` of texts in UTF-8, none of which has more characters."""
    if (texts.values & 0x80).any():
        return np.array([data.tobytes().decode("utf-8") for data in texts], f"<U{width}")
    characters = np.zeros((len(texts), width), "<u4")
    column = np.arange(len(texts.values)) - np.repeat(texts.offsets[:-1], texts.lengths)
    characters[np.repeat(np.arange(len(texts)), texts.lengths), column] = texts.values
    return characters.view(f"<U{width}")[:, 0]


def fill_missing(rows: Array) -> None:
    """Fill with the value of "not usable": NaN for floats, NaT for times, else zero."""
    if rows.dtype.names is not None:
        for name in rows.dtype.names:
            fill_missing(rows[name])
    else:
        missing = {"f": np.nan, "m": np.timedelta64("NaT"), "M": np.datetime64("NaT")}
        rows[...] = missing.get(rows.dtype.kind, np.zeros((), rows.dtype))


def any_of_row(values: Values, test: Callable[[Array], NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """(n,) whether any number of each row passes a test, those in fields of structs included.

    >>> any_of_row(np.array([[1.0, np.nan], [2.0, np.inf]]), np.isnan).tolist()
    [True, False]
    """
    flat = values.values if isinstance(values, Ragged) else values
    found = np.zeros(len(flat), np.bool_)
    for numbers in numbers_in(flat):
        found |= test(numbers).reshape(len(flat), math.prod(numbers.shape[1:])).any(axis=1)
    if isinstance(values, Ragged):
        total = np.append(0, np.cumsum(found))
        return np.asarray(total[values.offsets[1:]] > total[values.offsets[:-1]])
    return found


def numbers_in(values: Array) -> Iterator[Array]:
    """An array of numbers, or those of its fields."""
    if values.dtype.names is not None:
        for name in values.dtype.names:
            yield from numbers_in(values[name])
    elif values.dtype.kind in "iufb":
        yield values


@dataclass
class Block:
    """Some consecutive rows of one partition of one log.

    Attributes:
        log_id: of every row.
        partition: the span's name within its log, as the plan gave it.
        first_row: how many rows of the partition come before this block.
        columns: `timestamp` (n,) int64 and every column of the schema, ages and availabilities too.
    """

    log_id: str
    partition: str
    first_row: int
    columns: Mapping[str, Values]

    def __len__(self) -> int:
        return len(self.columns["timestamp"])

    @property
    def timestamp(self) -> NDArray[np.int64]:
        """(n,) ticks, int64 ns since the Unix epoch, ascending."""
        stamps = self.columns["timestamp"]
        assert isinstance(stamps, np.ndarray)
        return stamps

    @property
    def nbytes(self) -> int:
        """Of the values of all columns."""
        return sum(values.nbytes for values in self.columns.values())

    def take(self, rows: NDArray[np.integer[Any] | np.bool] | slice) -> dict[str, Values]:
        """Return the columns of the given rows.

        Args:
            rows: (n,) numbers of rows, a slice of them, or (N,) whether each is wanted.
        """
        return {name: take(values, rows) for name, values in self.columns.items()}

    def row(self, index: int, schema: Schema, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """One row as users see it: numpy values, bytes for bytes, str for strings.

        Args:
            index: within the block.
            schema: types of the columns.
            columns: what the row holds beside log_id and timestamp; None is every column of the schema,
                without ages and availabilities.

        Returns:
            log_id and timestamp, then the columns by name.
        """
        types = schema.all
        row: dict[str, Any] = {"log_id": self.log_id, "timestamp": self.timestamp[index]}
        for name in schema.columns if columns is None else columns:
            row[name] = python_value(self.columns[name][index], types[name])
        return row


def python_value(value: Any, ctype: ColumnType) -> Any:
    """One row's value as users see it: bytes, str, or what numpy has as it is, in a list for lists."""
    if ctype.kind == "bytes":
        return value.tobytes()
    if ctype.kind == "string":
        return value.tobytes().decode("utf-8")
    return value
