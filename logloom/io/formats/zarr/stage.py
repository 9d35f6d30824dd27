"""Writer and reader of a staged unit of a zarr dataset.

A staged unit contains the arrays of its rows uncompressed. The small ones share the file `small-columns`, in
slabs of 1024 rows, array by array within a slab; each other array is a file `<array>.bin`. Instead of offsets
it stores where each row ends, counted within the unit.
Elsewhere: which arrays there are (columns), assembly of units to a dataset (assemble).
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Block, Ragged, Values
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.catalog.entries import repair_hint
from logloom.io.formats.interface import UnitContext
from logloom.io.formats.stages import StageReader, StageWriter, read_entries
from logloom.io.formats.unit_summary import Closed
from logloom.io.formats.zarr.columns import LogArray, array_values, arrays_of, read_blocks
from logloom.io.rows.flat_lists import flat_columns, flat_types
from logloom.io.storage.files import File
from logloom.io.storage.metadata import Count, Int64
from logloom.schema import TIMESTAMP, Schema
from logloom.values import dataclass

SMALL = "small-columns"
SLAB_ROWS = 1024
_SMALL_ROW_BYTES = 512


@dataclass(frozen=True)
class StagedArray:
    """The place of an array in a staged unit.

    Attributes:
        before: bytes per row of the arrays before it in a slab; -1 for one with a file of its own.
        slab_row_bytes: bytes per row of all arrays in slabs.
    """

    array: LogArray
    before: int
    slab_row_bytes: int

    @property
    def file(self) -> str:
        return SMALL if self.before >= 0 else f"{self.array.name}.bin"


def staged_arrays(schema: Schema) -> dict[str, StagedArray]:
    """The place of every array of a unit, by name."""
    arrays = arrays_of(schema)
    before: dict[str, int] = {}
    total = 0
    for name, array in arrays.items():
        if array.axis != "values" and array.row_bytes <= _SMALL_ROW_BYTES:
            before[name] = total
            total += array.row_bytes
    return {name: StagedArray(array, before.get(name, -1), total) for name, array in arrays.items()}


class ZarrStageWriter(StageWriter):
    """Writes the staged files of one partition into a local folder."""

    def __init__(self, directory: pathlib.Path, schema: Schema, context: UnitContext):
        super().__init__(directory, context)
        self._columns = schema.all
        self._types = flat_types({"timestamp": TIMESTAMP, **schema.all})
        self._staged = staged_arrays(schema)
        self._slab: dict[str, Array] = {}
        self._filled = 0
        self._values = {name: 0 for name, ctype in self._types.items() if ctype.is_ragged}

    def stage(self, block: Block) -> None:
        small: dict[str, Array] = {}
        columns = flat_columns(block.columns, self._columns)
        for name, staged in self._staged.items():
            array = staged.array
            values = columns[array.column]
            pieces = array_values(array, self._types[array.column], values)
            if staged.before < 0:
                for piece in pieces:
                    self.put(staged.file, piece)
            else:
                (small[name],) = pieces
                if array.part == "offsets":
                    small[name] = small[name] + self._values[array.column]
        self._fill(small, len(block))
        for name in self._values:
            values = columns[name]
            assert isinstance(values, Ragged)
            self._values[name] += int(values.lengths.sum())

    def _fill(self, small: Mapping[str, Array], rows: int) -> None:
        done = 0
        while done < rows:
            if not self._slab:
                self._slab = {n: np.empty((SLAB_ROWS, *v.shape[1:]), v.dtype) for n, v in small.items()}
            count = min(rows - done, SLAB_ROWS - self._filled)
            for name, values in small.items():
                self._slab[name][self._filled : self._filled + count] = values[done : done + count]
            self._filled += count
            done += count
            if self._filled == SLAB_ROWS:
                self._flush()

    def _flush(self) -> None:
        for values in self._slab.values():
            self.put(SMALL, values[: self._filled])
        self._filled = 0

    def metadata(self) -> dict[str, Any]:
        """Add to the common fields: values, the total of each ragged column."""
        if self._filled:
            self._flush()
        return {**super().metadata(), "values": self._values}


def read_staged(file: File, staged: StagedArray, rows: int, start: int, stop: int) -> Array:
    """Read entries [start, stop) of a staged array; of offsets, the ends of rows.

    Args:
        file: of the array.
        rows: of the unit.

    Raises:
        DatasetError: the file is missing or too short.
        StorageError: it can't be read.
    """
    array = staged.array
    width = array.row_bytes
    if staged.before < 0 or start >= stop or not width:
        return read_entries(file, start, stop, array.dtype, array.tail)
    parts = []
    for first in range(start // SLAB_ROWS * SLAB_ROWS, stop, SLAB_ROWS):
        height = min(SLAB_ROWS, rows - first)
        low, high = max(start - first, 0), min(stop - first, height)
        at = first * staged.slab_row_bytes + height * staged.before
        parts.append(read_entries(file, at + low * width, at + high * width))
    data = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return data.view(array.dtype).reshape(stop - start, *array.tail)


class ClosedZarr(Closed):
    """The result of `ZarrStageWriter.close`."""

    values: Mapping[str, Count]
    span: tuple[Int64, ...]


class ZarrStageReader(StageReader):
    """The rows of a staged unit."""

    closed = ClosedZarr

    @cached_property
    def _staged(self) -> dict[str, StagedArray]:
        return staged_arrays(self.schema)

    def read(self, names: Sequence[str], start: int, stop: int, max_bytes: int) -> Iterator[Block]:
        every = self.schema.all
        types = {name: every[name] for name in names}
        return read_blocks(self._read_array, types, start, stop, self.store.uri, max_bytes, self._block)

    def _block(self, first_row: int, columns: dict[str, Values]) -> Block:
        return Block(self.unit["log_id"], self.unit["partition"], first_row, columns)

    def _read_array(self, name: str, start: int, stop: int) -> Array:
        staged, rows = self._staged[name], len(self)
        array, file = staged.array, self.file(staged.file)
        length = {"rows": rows, "bounds": rows + 1, "values": self.unit["values"].get(array.column, 0)}
        if not 0 <= start <= stop <= length[array.axis]:
            raise DatasetError(
                f"{file.name}: {length[array.axis]} {array.axis}, {stop} were expected: damaged; "
                f"{repair_hint(file.name)}"
            )
        if array.axis != "bounds":
            return read_staged(file, staged, rows, start, stop)
        ends = read_staged(file, staged, rows, max(start - 1, 0), stop - 1)
        return ends if start else np.concatenate([np.zeros(1, ends.dtype), ends])
