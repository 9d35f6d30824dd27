"""Datasets in Arrow files that declare column types, read piece by piece.

Damaged pieces can be left out.

Here: `TypedFiles`.
Elsewhere: the rows of one file (reader), iterating the pieces (logloom.io.rows.inference.source),
foreign files (logloom.io.formats).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.arrow.layout import LOG_ID, TIME
from logloom.io.arrow.reader import TableReader
from logloom.io.rows.inference.files import Batch, DatasetPiece, RawRows
from logloom.io.rows.inference.types import RawColumn
from logloom.schema import STRING, TIMESTAMP


class TypedFiles(RawRows):
    """See `RawRows`; a piece is a row group of Parquet or a data file of Lance. Names are the columns'."""

    def __init__(self, place: str, kind: str, units: Sequence[TableReader]):
        """Opens nothing yet.

        Args:
            place: URI of the dataset.
            units: its files, in order.
        """
        self.place, self.kind, self._units = place, kind, units

    def names(self) -> Sequence[str]:
        """Of the first file that can be read."""
        for unit in self._units:
            with contextlib.suppress(DatasetError):
                return list(unit.schema.columns)
        return list(self._units[0].schema.columns)  # which says why

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """All of all files."""
        found = []
        for number, unit in enumerate(self._units):
            content, size = _content(unit)
            try:
                groups, rows = unit.groups(), max(1, len(unit))
            except DatasetError:  # whoever reads it will be told; others may go on without it
                found.append(DatasetPiece(unit.place, (number, 0, None), content, size))
                continue
            found += [
                DatasetPiece(place, (number, start, stop), content, size * (stop - start) // rows)
                for place, start, stop in groups
            ]
        return found

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        number, start, stop = piece.where
        unit = self._units[number]
        schema = unit.schema
        own = [name for name in schema.columns if names is None or name in names]
        for block in unit.blocks(list(schema.part(own).all), max_bytes, start, stop):
            found = {
                LOG_ID: RawColumn([block.log_id] * len(block), STRING),
                TIME: RawColumn(block.timestamp, TIMESTAMP),
            }
            for name in own:
                ages, available = (block.columns.get(f"{name}.{last}") for last in ("age", "available"))
                found[name] = RawColumn(
                    block.columns[name], schema.columns[name], available=available, ages=ages
                )
            yield found


def _content(unit: TableReader) -> tuple[str, int]:
    try:
        return unit.content()
    except DatasetError:  # it is gone
        return digest_of([unit.place]), 0
