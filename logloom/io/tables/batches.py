"""Batches: many rows as one array per column.

Here: where the bytes of a batch are read to, and stacking what was read.
Elsewhere: which bytes (logloom.io.tables.loader), reading them (logloom.io.tables.ranges).

Chunks of fixed size are read side by side; where a chunk is just one column it is read straight to its row
of the result. Other chunks are decoded one by one, then laid end to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, empty
from logloom.errors import UsageError
from logloom.io.tables.chunks import row_bytes
from logloom.io.tables.frames import Ints
from logloom.io.tables.plans import Step
from logloom.io.tables.ranges import Bytes
from logloom.schema import NO_AGE, ColumnType

Column = Array | tuple[Array, Ints] | list[bytes] | list[str]


class StepBatch:
    """One group's share of a batch: where its chunks go, then its columns."""

    def __init__(self, step: Step, lengths: Ints, exists: NDArray[np.bool_], out: Mapping[str, Any]):
        """Allocates what the chunks are read to.

        Args:
            lengths: (n,) bytes of each row's chunk.
            exists: (n,) which rows there are; others get the value of "not usable".
            out: preallocated arrays by column, used where they fit the column.
        """
        self._step, self._exists, self._out = step, exists, out
        self._rows = np.flatnonzero(exists)
        self._stacked = step.unpack is None and step.layout.size is not None
        self.targets: list[Bytes]
        if self._stacked and bool((lengths[self._rows] == step.layout.size).all()):
            self._scratch = self._side_by_side()
            self.targets = [self._scratch[row] for row in self._rows.tolist()]
        else:
            self._stacked = False
            ends = np.cumsum(-(-lengths[self._rows] // 8) * 8)
            scratch = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
            starts = np.concatenate([[0], ends]).tolist()
            self.targets = [
                scratch[start : start + length]
                for start, length in zip(starts, lengths[self._rows].tolist(), strict=False)
            ]

    def _side_by_side(self) -> NDArray[np.uint8]:
        """(n, size) bytes to read fixed chunks to: the result itself where a chunk is one column."""
        step, count = self._step, len(self._exists)
        size = step.layout.size or 0
        if len(step.layout.columns) == 1:
            ((shown, ctype),) = step.types.items()
            if row_bytes(ctype) == size and size:
                self._direct = self._array(shown, ctype)
                return self._direct.reshape(count, -1).view(np.uint8)
        return np.empty((count, size), np.uint8)

    _direct: Array | None = None

    def _array(self, shown: str, ctype: ColumnType) -> Array:
        shape = (len(self._exists), *ctype.tail)
        given = self._out.get(shown)
        if given is None:
            return np.empty(shape, ctype.dtype)
        array = np.asarray(given)
        if array.shape != shape or array.dtype != ctype.dtype or not array.flags.c_contiguous:
            raise UsageError(
                f"out[{shown!r}] is {array.dtype}{list(array.shape)}, this batch needs contiguous "
                f"{ctype.dtype}{list(shape)}"
            )
        return array

    def finish(self, failed: Any) -> dict[str, Column]:
        """The columns, once the targets are read.

        Args:
            failed: called with (row, error) when a chunk can't be decoded; raises.
        """
        columns = self._views() if self._stacked else self._decoded(failed)
        if not self._exists.all():
            for shown, ctype in self._step.types.items():
                column = columns[shown]
                if isinstance(column, np.ndarray):
                    column[~self._exists] = missing_value(shown, ctype)
        return columns

    def _views(self) -> dict[str, Column]:
        step, columns = self._step, dict[str, Column]()
        for name, shown in step.columns.items():
            ctype = step.types[shown]
            if self._direct is not None:
                columns[shown] = self._direct
                continue
            array = self._array(shown, ctype)
            size = step.layout.size or 0
            view: Array = np.ndarray(
                array.shape, ctype.dtype, self._scratch.reshape(-1), step.layout.starts[name],
                (size, *_strides(ctype)),
            )  # fmt: skip
            array[...] = view
            columns[shown] = array
        return columns

    def _decoded(self, failed: Any) -> dict[str, Column]:
        rows: list[dict[str, Any]] = [
            {shown: missing_value(shown, ctype) for shown, ctype in self._step.types.items()}
            for _ in self._exists
        ]
        for number, chunk in zip(self._rows.tolist(), self.targets, strict=True):
            try:
                self._step.decode(chunk, rows[number])
            except Exception as error:
                failed(number, error)
        return {
            shown: self._stack(shown, ctype, [row[shown] for row in rows])
            for shown, ctype in self._step.types.items()
        }

    def _stack(self, shown: str, ctype: ColumnType, values: Sequence[Any]) -> Column:
        if ctype.kind != "array":
            return list(values)
        if not ctype.is_ragged:
            array = self._array(shown, ctype)
            for row, value in enumerate(values):
                array[row] = value
            return array
        lengths = np.array([value.shape[: ctype.num_ragged] for value in values], np.int64)
        lengths = lengths.reshape(len(values), ctype.num_ragged)
        total = int(lengths.prod(axis=1).sum())
        flat = [value.reshape(-1, *ctype.tail) for value in values]
        target = self._ragged_target(shown, ctype, total)
        if flat:
            np.concatenate(flat, out=target)
        return target, lengths[:, 0] if ctype.num_ragged == 1 else lengths

    def _ragged_target(self, shown: str, ctype: ColumnType, total: int) -> Array:
        given = self._out.get(shown)
        if given is None:
            return np.empty((total, *ctype.tail), ctype.dtype)
        array = np.asarray(given)
        if array.shape[1:] != ctype.tail or array.dtype != ctype.dtype or len(array) < total:
            raise UsageError(
                f"out[{shown!r}] is {array.dtype}{list(array.shape)}, this batch needs {ctype.dtype} of at "
                "least "
                f"{[total, *ctype.tail]}"
            )
        return array[:total]


def _strides(ctype: ColumnType) -> tuple[int, ...]:
    return np.empty(ctype.tail, ctype.dtype).strides if ctype.shape else ()


def missing_value(shown: str, ctype: ColumnType) -> Any:
    """What stands for a value of a row that doesn't exist: NaN, 0, false or empty; no age for ages."""
    if ctype.kind != "array":
        return b"" if ctype.kind == "bytes" else ""
    if shown.endswith(".age"):
        return ctype.dtype.type(NO_AGE)
    return empty(ctype, 1)[0]
