"""Batches: many rows as one array per column.

Here: where the bytes of a batch are read to, and the columns they become.
Elsewhere: which bytes (logloom.io.tables.loader), reading them (logloom.io.tables.ranges).

What can be is read straight to its place in the result: chunks that are one column of fixed shape, and ragged
ones whose size tells their length. Chunks of several fixed columns are read side by side and cut into columns
at once; all others are decoded one by one, then laid end to end, unless large (logloom.io.tables.large).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, empty
from logloom.errors import DatasetError, UsageError
from logloom.io.tables.chunks import row_bytes
from logloom.io.tables.frames import Ints
from logloom.io.tables.ranges import Bytes
from logloom.schema import NO_AGE, ColumnType

if TYPE_CHECKING:
    from logloom.io.tables.plans import Step

Column = Array | tuple[Array, Ints] | list[Any]
Failed = Callable[[int, Exception], NoReturn]


class StepBatch(Protocol):
    """One group's share of a batch."""

    @property
    def targets(self) -> Sequence[tuple[Bytes, ...]]:
        """Of each row that exists the buffers that its chunk is read to, one after the other."""
        ...

    def finish(self, failed: Failed) -> Mapping[str, Column]:
        """The columns, once the targets are read.

        Args:
            failed: called with (row, error) when a chunk can't be decoded; raises.
        """
        ...


def prepare(step: Step, lengths: Ints, exists: NDArray[np.bool_], out: Mapping[str, Any]) -> StepBatch:
    """Allocates what a group's chunks are read to.

    Args:
        lengths: (n,) bytes of each row's chunk, checked against the files.
        exists: (n,) which rows there are; others get the value of "not usable".
        out: arrays by column to fill instead of fresh ones.

    Raises:
        UsageError: an array of `out` doesn't fit.
    """
    rows = np.flatnonzero(exists)
    own = lengths[rows]
    layout = step.layout
    if step.unpack is None and layout.size is not None and bool((own == layout.size).all()):
        return _Fixed(step, rows, len(exists), out)
    if step.unpack is None and len(layout.columns) == 1:
        ((shown, ctype),) = step.types.items()
        width = row_bytes(ctype)
        head = 8 * ctype.num_ragged
        if ctype.kind == "array" and width and width % 8 == 0 and bool(((own - head) % width == 0).all()):
            return _Ragged(shown, ctype, own, rows, len(exists), out)
        if ctype.kind != "array":
            return _Texts(shown, ctype, own, rows, len(exists))
    return _Decoded(step, own, rows, len(exists), out)


class _Fixed:
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
        chunks = list(self._scratch)
        self.targets = [(chunks[row],) for row in rows.tolist()]

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


class _Ragged:
    """Chunks of one ragged column whose values fill them to the end: these go straight to their places."""

    def __init__(
        self, shown: str, ctype: ColumnType, lengths: Ints, rows: Ints, count: int, out: Mapping[str, Any]
    ):
        self._shown, self._ctype, self._rows, self._count = shown, ctype, rows, count
        width, axes = row_bytes(ctype), ctype.num_ragged
        self._sizes = (lengths - 8 * axes) // width
        ends = np.cumsum(self._sizes)
        self._values = ragged_array(shown, ctype, int(ends[-1]) if len(ends) else 0, out)
        self._heads = np.empty((len(rows), axes), "<u8")
        heads = self._heads.view(np.uint8)
        flat = self._values.reshape(-1).view(np.uint8) if self._values.size else np.empty(0, np.uint8)
        stops = (ends * width).tolist()
        starts = [0, *stops]
        self.targets = [
            (head, flat[start:stop]) for head, start, stop in zip(heads, starts, stops, strict=False)
        ]

    def finish(self, failed: Failed) -> Mapping[str, Column]:
        heads = self._heads.astype(np.int64)
        wrong = (heads < 0).any(axis=1) | (heads.prod(axis=1) != self._sizes)
        if wrong.any():
            row = int(wrong.argmax())
            failed(
                int(self._rows[row]),
                DatasetError(f"the chunk says lengths {heads[row].tolist()}, it holds {self._sizes[row]}"),
            )
        lengths = np.zeros((self._count, heads.shape[1]), np.int64)
        lengths[self._rows] = heads
        return {self._shown: (self._values, lengths[:, 0] if lengths.shape[1] == 1 else lengths)}


class _Texts:
    """Chunks of one column of bytes or texts."""

    def __init__(self, shown: str, ctype: ColumnType, lengths: Ints, rows: Ints, count: int):
        self._shown, self._ctype, self._rows, self._count = shown, ctype, rows, count
        self._lengths = lengths
        self._scratch, self._starts, self.targets = _side_by_side(lengths)

    def finish(self, failed: Failed) -> Mapping[str, Column]:
        held = np.zeros(len(self._rows), np.uint64)
        fits = self._lengths >= 8
        held[fits] = self._scratch.view("<u8")[self._starts[fits] // 8]
        fits &= held <= np.maximum(self._lengths - 8, 0).astype(np.uint64)
        if not fits.all():
            row = int(fits.argmin())
            error = f"the chunk of {self._lengths[row]} bytes is too short for {self._shown} ({held[row]},)"
            failed(int(self._rows[row]), DatasetError(error))
        data, starts = self._scratch.data, (self._starts + 8).tolist()
        ends = (self._starts + 8 + held.astype(np.int64)).tolist()
        values: list[Any] = [data[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]
        if self._ctype.kind == "string":
            for number, value in enumerate(values):
                try:
                    values[number] = value.decode("utf-8")
                except UnicodeDecodeError as error:
                    failed(int(self._rows[number]), DatasetError(f"the chunk holds no text: {error}"))
        if len(values) == self._count:
            return {self._shown: values}
        column = [missing_value(self._shown, self._ctype)] * self._count
        for row, value in zip(self._rows.tolist(), values, strict=True):
            column[row] = value
        return {self._shown: column}


def _side_by_side(lengths: Ints) -> tuple[NDArray[np.uint8], Ints, list[tuple[Bytes, ...]]]:
    """Memory for chunks, each from a multiple of 8 on, where each starts, and their targets."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(-(-lengths // 8) * 8, out=starts[1:])
    scratch = np.empty(int(starts[-1]), np.uint8)
    places = zip(starts.tolist(), (starts[:-1] + lengths).tolist(), strict=False)
    return scratch, starts[:-1], [(scratch[start:end],) for start, end in places]


class _Decoded:
    """Chunks that are decoded one by one."""

    def __init__(self, step: Step, lengths: Ints, rows: Ints, count: int, out: Mapping[str, Any]):
        self._step, self._rows, self._count, self._out = step, rows.tolist(), count, out
        _, _, self.targets = _side_by_side(lengths)

    def finish(self, failed: Failed) -> Mapping[str, Column]:
        types = self._step.types
        if len(self._rows) < self._count:
            rows = [{n: missing_value(n, t) for n, t in types.items()} for _ in range(self._count)]
        else:
            rows = [{} for _ in range(self._count)]
        decode = self._step.decode
        for number, (chunk,) in zip(self._rows, self.targets, strict=True):
            try:
                decode(chunk, rows[number])
            except DatasetError as error:
                failed(number, error)
        return {
            shown: _stack(shown, t, [row[shown] for row in rows], self._out) for shown, t in types.items()
        }


def _stack(shown: str, ctype: ColumnType, values: list[Any], out: Mapping[str, Any]) -> Column:
    if ctype.kind != "array":
        return values
    if not ctype.is_ragged:
        array = fixed_array(shown, ctype, len(values), out)
        for row, value in enumerate(values):
            array[row] = value
        return array
    axes, tail = ctype.num_ragged, ctype.tail
    lengths = np.array([value.shape[:axes] for value in values], np.int64).reshape(len(values), axes)
    target = ragged_array(shown, ctype, int(lengths.prod(axis=1).sum()), out)
    np.concatenate(values if axes == 1 else [value.reshape(-1, *tail) for value in values], out=target)
    return target, lengths[:, 0] if axes == 1 else lengths


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
    return array[:total]


def missing_value(shown: str, ctype: ColumnType) -> Any:
    """What stands for a value of a row that doesn't exist: NaN, 0, false or empty; no age for ages."""
    if ctype.kind != "array":
        return b"" if ctype.kind == "bytes" else ""
    if shown.endswith(".age"):
        return ctype.dtype.type(NO_AGE)
    return empty(ctype, 1)[0]


def chunk_of(buffers: Sequence[Bytes]) -> tuple[memoryview, ...]:
    """A chunk in the pieces that it was read to, for hashing."""
    return tuple(buffer.data for buffer in buffers)
