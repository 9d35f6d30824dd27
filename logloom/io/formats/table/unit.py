"""A unit of the output `table`: the rows of one partition, before assembly.

Here: `UnitWriter`, and `unit_reader`, which returns a `BlockReader`.
Elsewhere: a part's files (logloom.io.formats.table.write.part_writer), their names
(logloom.io.formats.table.description), the format (logloom.io.formats.table.format).

A unit consists of rows.parquet (the index of its rows) and `<part>!<group>.blob` for each column group; in
the table the latter are `parts/<part>/<group>.blob`, so that a part's name depends on its log and span alone.
If units of several versions share blobs, each blob is in a folder next to the unit's, with places.parquet,
the places of its chunks, which later units read.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, Field

from logloom.blocks import Array, Block
from logloom.errors import DatasetError
from logloom.io.catalog.entries import folder_beside, repair_hint
from logloom.io.formats.interface import UnitContext
from logloom.io.formats.table import description as d
from logloom.io.formats.table.index.files import decode_texts, read_part
from logloom.io.formats.table.index.index import ROW
from logloom.io.formats.table.read.frames import GroupPlaces, OpenFrame, Slot
from logloom.io.formats.table.read.loader import RowLoader
from logloom.io.formats.table.read.range_reader import RangeReader
from logloom.io.formats.table.references import References
from logloom.io.formats.table.write.part_writer import (
    ROWS_FILE,
    PartWriter,
    TablePlan,
    read_places,
    write_places,
)
from logloom.io.formats.unit_summary import check_unit
from logloom.io.rows.batches import Batch
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import BLOCK_BYTES, RowSource, row_ranges, values_of
from logloom.io.storage.known_files import is_checked
from logloom.io.storage.metadata import Count, Name
from logloom.schema import Schema

PLACES_FILE = "places.parquet"


class _PortionJson(BaseModel):
    identity: Name
    longest: Count


class _ClosedTable(BaseModel):
    rows: Count
    part: Name
    bytes: Mapping[str, Count]
    longest: Mapping[str, Count]
    portions: Mapping[str, _PortionJson] = Field(default_factory=dict)


def check_closed(unit: Mapping[str, Any], plan: TablePlan, folder: str) -> None:
    """Check that an entry has the fields of its unit that reading and assembling need.

    Args:
        folder: URI of the unit's folder.

    Raises:
        DatasetError: it doesn't; names the field, or the missing group.
    """
    check_unit(_ClosedTable, unit, folder)
    for field in ("bytes", "longest", "portions"):
        if (field in unit or field != "portions") and (unknown := plan.groups.keys() - unit.get(field, {})):
            raise DatasetError(f"{folder}: the unit's entry: unit.{field} has no group {min(unknown)!r}")


class UnitWriter:
    """Writes one unit into a local folder."""

    def __init__(
        self, folder: pathlib.Path, plan: TablePlan, context: UnitContext, references: References | None
    ):
        self._part = d.part_name(context.log_id, context.partition)
        self._portions = context.portions
        for portion in self._portions.values():
            if portion.finished is not None:
                check_unit(_PortionJson, portion.finished.unit, portion.uri)
        folders = {g: p.scratch for g, p in self._portions.items() if p.scratch is not None}
        self._kept = {
            group: read_places(f"{p.uri}/{PLACES_FILE}", p.finished.unit["longest"], context.storage_options)
            for group, p in self._portions.items()
            if p.finished is not None
        }
        paths = {
            g: folders.get(g, folder) / f"{self._part}{d.SEPARATOR}{g}.blob"
            for g in plan.groups
            if g not in self._kept
        }
        span = (context.start, context.stop)
        self._writer = PartWriter(folder, plan, references, paths=paths, kept=self._kept, span=span)

    def append(self, block: Block) -> None:
        """Append the next rows; blocks come in row order."""
        self._writer.append(block.log_id, block.columns, len(block))
        self._writer.settle()

    def close(self) -> dict[str, Any]:
        """Finish the files (not yet fsynced) and return the unit's summary (JSON)."""
        unit = self._writer.close() | {"part": self._part}
        if not self._portions:
            return unit
        for group, portion in self._portions.items():
            if portion.scratch is not None:
                write_places(portion.scratch / PLACES_FILE, self._writer.places[group])
        described = {
            group: {"identity": portion.identity, "longest": unit["longest"][group]}
            for group, portion in self._portions.items()
        }
        return unit | {"portions": described}


class BlockReader(RowSource):
    """The rows of a loader."""

    def __init__(self, loader: RowLoader, partition: str = ""):
        """Wrap a loader.

        Args:
            loader: whose frame has log_id and timestamp.
            partition: of its blocks.
        """
        self._loader, self._partition = loader, partition

    @property
    def loader(self) -> RowLoader:
        """The row loader."""
        return self._loader

    @property
    def schema(self) -> Schema:
        return self.loader.schema

    def __len__(self) -> int:
        return len(self.loader)

    def group_bounds(self, names: Sequence[str]) -> Ints:
        """See `RowSource.group_bounds`: ranges, by the bytes of a row as stored."""
        return row_ranges(len(self), self.loader.explain(names).bytes if len(self) else 0)

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        get_row = self.loader.get_row  # a local chunk takes about as long as finding the loader
        return [get_row(position, names) for position in positions.tolist()]

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        return self.loader.get_many(positions, names, out)

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        if not len(self.loader):
            return
        step = max(1, int(max_bytes // max(1, self.loader.explain(names).bytes)))
        for first, last in self.loader.log_spans():
            begin, end = max(first, start), last if stop is None else min(last, stop)
            for at in range(begin, end, step):
                batch = self.loader.get_many(np.arange(at, min(at + step, end)), names)
                found = {name: values_of(batch[name], name) for name in ("timestamp", *names)}
                yield Block(batch["log_id"][0], self._partition, at - begin, found)


def unit_reader(
    folder: str, table: d.Description, partition: str, unit: Mapping[str, Any], storage_options: Any
) -> BlockReader:
    """Opens a unit.

    Args:
        folder: its URI.
        table: describes the unit as if it were a table.
        unit: the result of its writer's `close`.
    """
    uri = f"{folder}/{ROWS_FILE}"
    try:
        return _reader_of(folder, table, partition, unit, read_part(uri, storage_options), storage_options)
    except (KeyError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise DatasetError(
            f"{uri}: this share of the index is damaged ({error}); {repair_hint(uri)}"
        ) from error


def _reader_of(
    folder: str,
    table: d.Description,
    partition: str,
    unit: Mapping[str, Any],
    rows: pa.Table,
    storage_options: Any,
) -> BlockReader:
    reader = RangeReader(storage_options)
    groups = {}
    for group in table.groups:
        blobs, codes = decode_texts(rows[d.service(0, group, "blob")])
        portion = unit["portions"][group]["identity"] if "portions" in unit else folder.rpartition("/")[2]
        own = f"{folder_beside(folder, portion)}/{unit['part']}{d.SEPARATOR}{group}.blob"
        files = [reader.number_of(own if blob == f"{group}.blob" else blob) for blob in blobs]
        offsets, lengths = (rows[d.service(0, group, field)].to_numpy() for field in ("offset", "length"))
        groups[group] = GroupPlaces(codes, files, offsets, lengths)
    log_ids, codes = decode_texts(rows["log_id"])
    zeros = np.zeros(len(rows), np.int8)
    uri = f"{folder}/{ROWS_FILE}"
    slot = Slot([folder], [table], np.zeros(1, np.int64), [uri], zeros, rows[ROW].to_numpy(), groups)
    frame = OpenFrame(len(rows), [slot], [], (codes, log_ids), rows["timestamp"].to_numpy())
    check = is_checked(storage_options)
    loader = RowLoader(frame, reader, check=check, storage_options=storage_options)
    return BlockReader(loader, partition)
