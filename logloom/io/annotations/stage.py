"""One partition's share of an annotation file, staged for assembly: its writer and its reader.

A staged unit holds the files that its data infos name, `<column>/<log_id>/<timestamp>.<ext>`, as they stand
in the view; and `infos`, a line for each row: timestamp, the names of its files as JSON, the data info as
JSON, with tabs between them.
Elsewhere: how rows become data infos (infos), how units become an annotation file (assemble).
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from logloom.blocks import Block, Ragged, Values
from logloom.digests import RowsDigest
from logloom.errors import DatasetError
from logloom.io.annotations.infos import MappedRow, as_json, check_log_id, map_rows
from logloom.io.annotations.mapping import INFO, mapping_of
from logloom.io.annotations.options import Options
from logloom.io.entries import repair_hint
from logloom.io.metadata import FileName, Int64, checked, parsed
from logloom.io.storage import MISSING, Store
from logloom.io.units import Closed, UnitContext
from logloom.schema import Schema

INFOS = "infos"


class AnnotationStageWriter:
    """Writes the staged files of one partition into a local folder."""

    def __init__(self, directory: pathlib.Path, schema: Schema, options: Options, context: UnitContext):
        """Prepares a unit; files appear with their first rows.

        Raises:
            UsageError: the columns don't fit, or the log_id can't name a folder.
        """
        self._mapping = mapping_of(options, schema)
        check_log_id(context.log_id)
        self._schema = schema
        self._directory = directory
        self._context = context
        self._digest = RowsDigest(self._mapping.schema)
        self._rows = 0
        self._span: list[int] = []
        self._infos: BinaryIO | None = None

    def append(self, block: Block) -> None:
        """Takes the next rows.

        Raises:
            LogReadError: a class that the recipe doesn't know.
        """
        if not len(block):
            return
        if self._infos is None:
            self._infos = (self._directory / INFOS).open("xb")
        rows = map_rows(self._mapping, block, self._schema)
        for row in rows:
            for name, data in row.files.values():
                path = self._directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    file.write(data)
            names = as_json({column: name for column, (name, _) in row.files.items()})
            self._infos.write(f"{row.timestamp}\t{names}\t{row.info}\n".encode("ascii"))
        block = mapped_block(block.log_id, block.partition, self._rows, rows, self._mapping.schema.columns)
        self._digest.update(block)
        self._span = [self._span[0] if self._span else rows[0].timestamp, rows[-1].timestamp]
        self._rows += len(rows)

    def close(self) -> dict[str, Any]:
        """Closes the files.

        Returns:
            columns: digests of the mapped rows; log_id, partition; rows; files: the columns that have some;
            span: first and last timestamp.
        """
        if self._infos is not None:
            self._infos.close()
        return {
            "columns": self._digest.hexdigests(),
            "log_id": self._context.log_id,
            "partition": self._context.partition,
            "rows": self._rows,
            "files": list(self._mapping.files),
            "span": self._span,
        }


def mapped_block(
    log_id: str, partition: str, first_row: int, rows: Sequence[MappedRow], names: Iterable[str]
) -> Block:
    """The named columns of mapped rows as a block; a row without a file has b""."""
    columns: dict[str, Values] = {"timestamp": np.array([row.timestamp for row in rows], np.int64)}
    for name in names:
        if name == INFO:
            columns[name] = Ragged.from_bytes([row.info.encode() for row in rows])
        else:
            columns[name] = Ragged.from_bytes([row.files.get(name, ("", b""))[1] for row in rows])
    return Block(log_id, partition, first_row, columns)


@dataclass(frozen=True)
class StagedInfo:
    """A line of `infos`."""

    timestamp: int
    files: Mapping[str, str]
    info: str


def read_infos(store: Store, folder: str, rows: int) -> list[StagedInfo]:
    """The lines of a staged unit.

    Raises:
        DatasetError: the file is missing or damaged; names it and the line.
    """
    name = f"{folder}/{INFOS}" if folder else INFOS
    place = store.uri_of(name)
    way_out = repair_hint(place)
    try:
        lines = store.read(name).decode("ascii").splitlines()
    except MISSING:
        raise DatasetError(f"{place}: missing; {way_out}") from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{place}, byte {error.start}: damaged; {way_out}") from error
    if len(lines) != rows:
        raise DatasetError(f"{place}: {len(lines)} data infos, should be {rows}; {way_out}")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            timestamp, files, info = line.split("\t")
            named = checked(dict[str, FileName], parsed(files, "files"), "files")
            found.append(StagedInfo(int(timestamp), named, info))
        except (ValueError, DatasetError) as error:
            raise DatasetError(f"{place}, line {number}: damaged ({error}); {way_out}") from error
    return found


class ClosedAnnotations(Closed):
    """What `AnnotationStageWriter.close` gives."""

    span: tuple[Int64, ...]


class AnnotationStageReader:
    """The mapped rows of a staged unit: `data_info` as JSON text, and the bytes of its files.

    Opens files when needed, pickles, serves many threads.
    """

    def __init__(
        self,
        folder: str,
        schema: Schema,
        unit: Mapping[str, Any],
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Names a unit.

        Args:
            folder: URI of the unit's folder.
            schema: of the mapped rows.
            unit: what `AnnotationStageWriter.close` gave.
        """
        self.schema = schema
        self._store = Store.at(folder, storage_options)
        self._unit = unit
        self._lines: list[StagedInfo] | None = None

    def __len__(self) -> int:
        return int(self._unit["rows"]) if self._unit else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.row(index)

    def row(self, index: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        index = range(len(self))[index]
        names = self.schema.select(columns)
        block = self._block(index, [self._row(self._infos()[index], names)], names)
        return block.row(0, self.schema, names)

    def blocks(self, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20) -> Iterator[Block]:
        names = self.schema.select(columns)
        rows: list[MappedRow] = []
        size = first = 0
        for line in self._infos():
            row = self._row(line, names)
            more = len(row.info) + sum(len(data) for _, data in row.files.values())
            if rows and size + more > max_bytes:
                yield self._block(first, rows, names)
                first, rows, size = first + len(rows), [], 0
            rows.append(row)
            size += more
        if rows:
            yield self._block(first, rows, names)

    def _block(self, first: int, rows: Sequence[MappedRow], names: Sequence[str]) -> Block:
        return mapped_block(self._unit["log_id"], self._unit["partition"], first, rows, names)

    def _infos(self) -> list[StagedInfo]:
        if self._lines is None:
            self._lines = read_infos(self._store, "", len(self)) if len(self) else []
        return self._lines

    def _row(self, line: StagedInfo, names: Sequence[str]) -> MappedRow:
        files = {}
        for column, name in line.files.items():
            if column in names:
                try:
                    files[column] = (name, self._store.read(name))
                except MISSING:
                    place = self._store.uri_of(name)
                    raise DatasetError(f"{place}: missing; {repair_hint(place)}") from None
        return MappedRow(line.timestamp, line.info, files)
