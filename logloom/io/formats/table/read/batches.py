"""Batches: many rows as one array per column.

Here: the buffers that the bytes of a batch are read into (a user's arrays, or fresh ones), and their
conversion to columns.
Elsewhere: which bytes (logloom.io.formats.table.read.loader), reading them
(logloom.io.formats.table.read.range_reader).

Where possible, bytes are read straight into the result: chunks that are one column of fixed shape, and ragged
ones whose size implies their length. All others are read side by side and cut into columns, all rows of a
column at once, unless large (logloom.io.formats.table.read.large_chunks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, empty
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.table.blobs import Unpack
from logloom.io.formats.table.chunks import Layout, row_bytes
from logloom.io.formats.table.read.frames import Ints
from logloom.schema import NO_AGE, ColumnType

if TYPE_CHECKING:
    from logloom.io.formats.table.read.plans import Step

_ABSURD = 1 << 48  # elements

Column = Array | tuple[Array, Ints] | list[Any]
Failed = Callable[[int, Exception], NoReturn]


class StepBatch(Protocol):
    """One group's columns of a batch."""

    @property
    def targets(self) -> Sequence[tuple[memoryview, ...]]:
        """The buffers that each row's chunk is read into, one after the other, without missing rows."""

    def finish(self, failed: Failed) -> Mapping[str, Column]:
        """Return the columns, once the targets are read.

        Args:
            failed: called with (row, error) when a chunk can't be decoded; raises.
        """


def prepare(step: Step, own: Ints, rows: Ints, count: int, out: Mapping[str, Any]) -> StepBatch:
    """Allocate the buffers that a group's chunks are read into.

    Args:
        own: (n,) bytes of each chunk, checked against the files.
        rows: (n,) of the batch that they belong to, ascending; other rows get the missing value.
        count: rows of the batch.
        out: arrays by column to fill instead of fresh ones.

    Raises:
        UsageError: an array of `out` doesn't fit.
    """
    layout = step.layout
    if step.unpack is None and layout.size is not None and bool((own == layout.size).all()):
        return _FixedChunks(step, rows, count, out)
    if step.unpack is None and len(layout.columns) == 1:
        ((shown, ctype),) = step.types.items()
        width = row_bytes(ctype)
        head = 8 * ctype.num_ragged
        if ctype.kind == "array" and width and width % 8 == 0 and bool(((own - head) % width == 0).all()):
            return _RaggedChunks(shown, ctype, own, rows, count, out)
    return _Walked(step, own, rows, count, out)


class _FixedChunks:
    """Chunks of one size."""

    def __init__(self, step: Step, rows: Ints, count: int, out: Mapping[str, Any]):
        self._step, self._count = step, count
        self._missing = np.setdiff1d(np.arange(count), rows) if len(rows) < count else None
        self._arrays = {shown: fixed_array(shown, t, count, out) for shown, t in step.types.items()}
        size = step.layout.size or 0
        array, *others = self._arrays.values()
        self._direct = not others and array.nbytes == count * size > 0
        if self._direct:
            self._scratch = array.reshape(count, -1).view(np.uint8)
        else:
            self._scratch = np.empty((count, size), np.uint8)
        chunks = self._scratch.reshape(-1).data
        self.targets = [(chunks[row * size : row * size + size],) for row in rows.tolist()]

    def finish(self, failed: Failed) -> Mapping[str, Column]:
        if not self._direct:
            size, flat = self._step.layout.size or 0, self._scratch.reshape(-1)
            for name, shown in self._step.columns.items():
                array, start = self._arrays[shown], self._step.layout.starts[name]
                strides = (size, *array.strides[1:])
                array[...] = np.ndarray(array.shape, array.dtype, flat, start, strides)
        if self._missing is not None:
            for shown, ctype in self._step.types.items():
                self._arrays[shown][self._missing] = missing_value(shown, ctype)
        return self._arrays


class _RaggedChunks:
    """Chunks of one ragged column whose values fill them to the end: these are read straight into place."""

    def __init__(
        self, shown: str, ctype: ColumnType, lengths: Ints, rows: Ints, count: int, out: Mapping[str, Any]
    ):
        self._shown, self._ctype, self._rows, self._count = shown, ctype, rows, count
        width, axes = row_bytes(ctype), ctype.num_ragged
        self._sizes = (lengths - 8 * axes) // width
        ends = np.cumsum(self._sizes)
        self._values = ragged_array(shown, ctype, int(ends[-1]) if len(ends) else 0, out)
        self._heads = np.empty((len(rows), axes), "<u8")
        heads = self._heads.reshape(-1).view(np.uint8).data
        flat = bytes_of(self._values)
        stops = (ends * width).tolist()
        starts, size = [0, *stops], 8 * axes
        self.targets = [
            (heads[row * size : row * size + size], flat[start:stop])
            for row, (start, stop) in enumerate(zip(starts, stops, strict=False))
        ]

    def finish(self, failed: Failed) -> Mapping[str, Column]:
        heads = self._heads.astype(np.int64)
        wrong = (heads < 0).any(axis=1) | (heads.prod(axis=1) != self._sizes)
        if wrong.any():
            row = int(wrong.argmax())
            failed(
                int(self._rows[row]),
                DatasetError(f"the chunk has lengths {heads[row].tolist()}, it contains {self._sizes[row]}"),
            )
        lengths = np.zeros((self._count, heads.shape[1]), np.int64)
        lengths[self._rows] = heads
        return {self._shown: (self._values, lengths[:, 0] if lengths.shape[1] == 1 else lengths)}


class _Walked:
    """Chunks with columns after ragged ones, or compressed."""

    def __init__(self, step: Step, lengths: Ints, rows: Ints, count: int, out: Mapping[str, Any]):
        self._step, self._rows, self._count, self._out = step, rows, count, out
        self._lengths = lengths
        self._scratch, self._starts, self.targets = _side_by_side(lengths)

    def finish(self, failed: Failed) -> Mapping[str, Column]:
        def failed_here(row: int, message: str) -> NoReturn:
            failed(int(self._rows[row]), DatasetError(message))

        if self._step.unpack is not None:
            self._unpack(self._step.unpack, failed)
        cursor = _ChunkCursor(self._scratch, self._starts, self._lengths, failed_here)
        layout = self._step.layout
        if layout.size is not None:
            cursor.expect(layout.size)
        found: dict[str, Column] = {}
        for run in self._step.runs:
            if run.size is not None:
                found |= self._fixed(run, run.size, cursor)
                continue
            ((name, ctype),) = run.columns.items()
            lengths, sizes = cursor.enter(name, ctype)
            if (shown := self._step.columns.get(name)) is not None:
                found[shown] = self._ragged(shown, ctype, cursor, lengths, sizes)
            cursor.leave(sizes)
        return {shown: found[shown] for shown in self._step.types}

    def _unpack(self, unpack: Unpack, failed: Failed) -> None:
        chunks = []
        for row, (stored,) in enumerate(self.targets):
            try:
                chunks.append(unpack(np.frombuffer(stored, np.uint8)))
            except DatasetError as error:
                failed(int(self._rows[row]), error)
        self._lengths = np.array([len(chunk) for chunk in chunks], np.int64)
        self._scratch, self._starts, targets = _side_by_side(self._lengths)
        for (target,), chunk in zip(targets, chunks, strict=True):
            target[:] = chunk.data

    def _fixed(self, run: Layout, size: int, cursor: _ChunkCursor) -> dict[str, Array]:
        data = cursor.gathered(next(iter(run.columns)), size)
        rows, count, found = self._rows, self._count, {}
        for name, start in run.starts.items():
            shown = self._step.columns.get(name)
            if shown is None:
                continue
            ctype = run.columns[name]
            found[shown] = array = fixed_array(shown, ctype, count, self._out)
            own = np.ndarray((len(rows), *ctype.tail), ctype.dtype, data, start, (size, *array.strides[1:]))
            if len(rows) == count:
                array[...] = own
            else:
                array[...] = missing_value(shown, ctype)
                array[rows] = own
        return found

    def _ragged(
        self, shown: str, ctype: ColumnType, cursor: _ChunkCursor, lengths: Ints, sizes: Ints
    ) -> Column:
        if ctype.kind != "array":
            return self._texts(shown, ctype, cursor, sizes)
        total = int((lengths[:, 0] if ctype.num_ragged == 1 else lengths.prod(axis=1)).sum())
        values = ragged_array(shown, ctype, total, self._out)
        if values.nbytes:
            np.concatenate(cursor.pieces(sizes), out=values.reshape(-1).view(np.uint8))
        if len(self._rows) < self._count:
            own, lengths = lengths, np.zeros((self._count, lengths.shape[1]), np.int64)
            lengths[self._rows] = own
        return values, lengths[:, 0] if lengths.shape[1] == 1 else lengths

    def _texts(self, shown: str, ctype: ColumnType, cursor: _ChunkCursor, sizes: Ints) -> list[Any]:
        values: list[Any] = cursor.copies(sizes)
        if ctype.kind == "string":
            for row, value in enumerate(values):
                try:
                    values[row] = value.decode("utf-8")
                except UnicodeDecodeError as error:
                    cursor.failed(row, f"the chunk contains no text: {error}")
        if len(values) == self._count:
            return values
        column = [missing_value(shown, ctype)] * self._count
        for row, value in zip(self._rows.tolist(), values, strict=True):
            column[row] = value
        return column


class _ChunkCursor:
    """The start of the next column in each of many chunks at once.

    Lengths in chunks are checked against their sizes before they are used.
    """

    def __init__(
        self, data: NDArray[np.uint8], starts: Ints, lengths: Ints, failed: Callable[[int, str], NoReturn]
    ):
        """Begin at the start of chunks.

        Args:
            data: (multiple of 8,) with the chunks.
            starts: (n,) their offsets, multiples of 8.
            lengths: (n,) their bytes.
            failed: called with (row, message); raises.
        """
        self._data, self._words = data, data.view("<u8")
        self._at, self._ends, self._sizes = starts, starts + lengths, lengths
        self._starts, self.failed = starts, failed

    def expect(self, size: int) -> None:
        """Check that all chunks have one size."""
        if (self._sizes != size).any():
            row = int((self._sizes != size).argmax())
            self.failed(row, f"the chunk has {self._sizes[row]} bytes, its columns take {size}")

    def enter(self, name: str, ctype: ColumnType) -> tuple[Ints, Ints]:
        """Step over a column's leading lengths; return these, (n, r), and the (n,) bytes of its values."""
        axes, width = ctype.num_ragged, row_bytes(ctype)
        room = self._ends - self._at - 8 * axes
        if (room < 0).any():
            row = int(room.argmin())
            self.failed(row, f"the chunk of {self._sizes[row]} bytes ends before the lengths of {name}")
        stored = self._words[(self._at >> 3)[:, None] + np.arange(axes)]
        self._at = self._at + 8 * axes
        # A product in floats can't overflow; those that fit are exact.
        counts = stored[:, 0] if axes == 1 else np.minimum(stored.astype(np.float64).prod(axis=1), 2.0**62)
        if width and (counts > (room if width == 1 else room // width).view(np.uint64)).any():
            row = int((counts > room // width).argmax())
            self._too_short(row, name, tuple(stored[row].tolist()), int(counts[row]) * width)
        if (axes > 1 or not width) and (stored >= _ABSURD).any():  # beside a length of 0, or of no bytes
            row = int(stored.max(axis=1).argmax())
            self.failed(row, f"the chunk contains no {ctype} of lengths {tuple(stored[row].tolist())}")
        return stored.view(np.int64), counts.astype(np.int64) * width

    def leave(self, sizes: Ints) -> None:
        """Steps over values of (n,) bytes, to the next column."""
        self._at = self._at + ((sizes + 7) & -8)

    def gathered(self, name: str, size: int) -> NDArray[np.uint8]:
        """(n * size,) the bytes of columns from `name` on that take `size` in a chunk; steps over them."""
        short = self._ends - self._at < size
        if short.any():
            row = int(short.argmax())
            self._too_short(row, name, (), size)
        if not size:
            return np.empty(0, np.uint8)
        # Every byte is viewed as the start of a value, so that numpy copies each value at once:
        #
        # data        a b c d e f g h       size 2, at 1 and 5
        # anywhere    ab bc cd de ef fg gh
        # found          bc          fg
        anywhere: Array = np.ndarray(len(self._data) - size + 1, f"V{size}", self._data, 0, 1)
        found = anywhere[self._at].view(np.uint8)
        self._at = self._at + size
        return found

    def _too_short(self, row: int, name: str, lengths: tuple[int, ...], size: int) -> NoReturn:
        at = self._at[row] - self._starts[row]
        self.failed(
            row,
            f"the chunk of {self._sizes[row]} bytes is too short for {name} {lengths}: {size} at byte {at}",
        )

    def pieces(self, sizes: Ints) -> list[Array]:
        """Views of values of (n,) bytes."""
        data = self._data
        places = zip(self._at.tolist(), (self._at + sizes).tolist(), strict=True)
        return [data[start:end] for start, end in places]

    def copies(self, sizes: Ints) -> list[bytes]:
        """Values of (n,) bytes."""
        data = self._data.data
        places = zip(self._at.tolist(), (self._at + sizes).tolist(), strict=True)
        return [data[start:end].tobytes() for start, end in places]


# lengths     5         8         3            multiples of 8 keep a chunk's values aligned
# scratch   | AAAAA...| BBBBBBBB| CCC..... |
# starts      0         8         16
def _side_by_side(lengths: Ints) -> tuple[NDArray[np.uint8], Ints, list[tuple[memoryview, ...]]]:
    """Allocate memory for chunks, each at a multiple of 8; return it, the starts, and the targets."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum((lengths + 7) // 8 * 8, out=starts[1:])
    scratch = np.empty(int(starts[-1]), np.uint8)
    data = scratch.data
    places = zip(starts.tolist(), (starts[:-1] + lengths).tolist(), strict=False)
    return scratch, starts[:-1], [(data[start:end],) for start, end in places]


def _check_writable(shown: str, array: Array) -> None:
    if not array.flags.writeable:
        raise UsageError(f"out[{shown!r}] is read-only; give an array that can be written to")


def fixed_array(shown: str, ctype: ColumnType, count: int, out: Mapping[str, Any]) -> Array:
    """Return the (count, *tail) array of `out`, or a new one.

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
    """Return the first `total` elements of the array of `out`, or a new (total, *tail) one.

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
    """The value in a row that doesn't exist: NaN, 0, false or empty; no age for ages."""
    if ctype.kind != "array":
        return b"" if ctype.kind == "bytes" else ""
    if shown.endswith(".age"):
        return ctype.dtype.type(NO_AGE)
    return empty(ctype, 1)[0]


def bytes_of(array: Array) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(bytearray())
