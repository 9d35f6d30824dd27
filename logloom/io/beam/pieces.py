"""Pieces: blocks in a stage, from which units are written.

Here: `StagedBlock`, and `StagedBlocks`, which writes and reads them; `end_to_end`, which of them can be read
one after the other.
Elsewhere: which pieces make a unit (logloom.io.beam.write).

A piece is a file: the values of each column as they are in memory, little-endian, `timestamp` first and the
others in the order of the schema; before those of a ragged column the (rows, r) int64 lengths of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from logloom import metrics
from logloom.blocks import Array, Block, Lists, Ragged, Values, bytes_of
from logloom.digests import digest_of, digests_of_rows
from logloom.errors import DatasetError
from logloom.io.rows.flat_lists import LENGTHS
from logloom.io.storage.faults import MISSING
from logloom.io.storage.store import Store
from logloom.schema import TIMESTAMP, ColumnType, Schema
from logloom.values import dataclass


class StagedBlock(NamedTuple):
    """A block in a stage.

    Attributes:
        name: of its file, by its content.
        start, stop: its time in ns, half-open.
    """

    name: str
    log_id: str
    partition: str
    start: int
    stop: int
    rows: int


@dataclass(frozen=True)
class StagedBlocks:
    """The pieces of a run.

    Attributes:
        store: its stage.
        schema: of the blocks.
    """

    store: Store
    schema: Schema

    def write(self, block: Block) -> StagedBlock:
        """Write a block of this schema that has rows; a second attempt finds it."""
        name = self._name_of(block)
        data = b"".join(part for column in self._types for part in _buffers(block.columns[column]))
        if self.store.size(name) == len(data):  # of an earlier attempt, and not cut short
            metrics.count(pieces_retried=1)
        else:
            self.store.replace(name, data, durable=False)
        start, stop = int(block.timestamp[0]), int(block.timestamp[-1]) + 1
        return StagedBlock(name, block.log_id, block.partition, start, stop, len(block))

    def _name_of(self, block: Block) -> str:
        digests = digests_of_rows([block], self.schema)
        return f"pieces/{digest_of([block.log_id, block.partition, digests])[:32]}"

    @property
    def _types(self) -> dict[str, ColumnType]:
        return {"timestamp": TIMESTAMP, **self.schema.all}

    def read(self, pieces: Iterable[StagedBlock]) -> Iterator[Block]:
        """The blocks of pieces, one after the other.

        Raises:
            DatasetError: one is missing or damaged.
        """
        for piece in pieces:
            place = self.store.uri_of(piece.name)
            try:
                data = self.store.read(piece.name)
            except MISSING:
                raise DatasetError(f"{place}: removed while this pipeline ran; run it again") from None
            try:
                cursor = _StoredColumns(data)
                columns = {name: cursor.column(ctype, piece.rows) for name, ctype in self._types.items()}
                cursor.end()
            except ValueError as error:
                raise DatasetError(f"{place}: damaged ({error}); run the pipeline again") from error
            block = Block(piece.log_id, piece.partition, 0, columns)
            if self._name_of(block) != piece.name:
                raise DatasetError(f"{place}: damaged, its rows changed; run the pipeline again")
            yield block


def _buffers(values: Values) -> list[bytes | memoryview]:
    if not isinstance(values, Ragged):
        return [bytes_of(values)]
    if isinstance(values, Lists):
        return [*_buffers(values.inner), bytes_of(values.values)]
    return [bytes_of(values.shapes), bytes_of(values.values)]


class _StoredColumns:
    """The values in a piece's bytes."""

    def __init__(self, data: bytes):
        self._data, self._at = memoryview(data), 0

    def column(self, ctype: ColumnType, rows: int) -> Values:
        if not ctype.is_ragged:
            return self._array(ctype, rows)
        if ctype.kind == "lists":
            inner = self.column(LENGTHS, rows)
            assert isinstance(inner, Ragged)
            return Lists(self._array(ctype, int(inner.values.sum())), inner.shapes[:, 0], inner.values)
        shapes = self._array(ColumnType(np.dtype("<i8"), (ctype.num_ragged,)), rows)
        if (shapes < 0).any():
            raise ValueError("a negative length")
        return Ragged(self._array(ctype, int(shapes.prod(axis=1).sum())), shapes)

    def _array(self, ctype: ColumnType, count: int) -> Array:
        size = count * math.prod(ctype.tail) * ctype.dtype.itemsize
        data = self._data[self._at : self._at + size]
        self._at += size
        if len(data) < size:
            raise ValueError(f"{len(self._data)} bytes, {self._at} at least are needed")
        return np.frombuffer(data, ctype.dtype).reshape(count, *ctype.tail)

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data)} bytes, should be {self._at}")


def end_to_end(pieces: Iterable[StagedBlock]) -> list[list[StagedBlock]]:
    """Sort pieces into as few lists as possible, so that those of each list follow each other in time.

    >>> first, second, third = (StagedBlock("", "a", "", start, start + 5, 1) for start in (0, 3, 5))
    >>> [[piece.start for piece in run] for run in end_to_end([third, first, second])]
    [[0, 5], [3]]
    """
    runs: list[list[StagedBlock]] = []
    for piece in sorted(pieces, key=lambda piece: (piece.start, piece.stop, piece.name)):
        run = next((run for run in runs if run[-1].stop <= piece.start), None)
        if run is None:
            runs.append([piece])
        else:
            run.append(piece)
    return runs
