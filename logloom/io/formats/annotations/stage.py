"""Writer and reader of a staged unit of an annotation file.

A staged unit contains the files that its data infos refer to, `<column>/<log_id>/<timestamp>.<ext>`, as the
view shows them; and `infos`, a line for each row: timestamp, the names of its files as JSON, the data info as
JSON, separated by tabs.
Elsewhere: conversion of rows to data infos (infos), assembly of units to an annotation file (assemble).
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Block, Ragged, Values
from logloom.caching import cached_property
from logloom.digests import RowsDigest
from logloom.errors import DatasetError
from logloom.io.catalog.entries import repair_hint
from logloom.io.formats.annotations.infos import MappedRow, as_json, check_log_id, map_rows
from logloom.io.formats.annotations.mapping import INFO, mapping_of
from logloom.io.formats.annotations.options import Options
from logloom.io.formats.interface import UnitContext
from logloom.io.formats.stages import StageReader, StageWriter
from logloom.io.formats.unit_summary import Closed
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import FileName, Int64, checked, parsed
from logloom.io.storage.store import Store
from logloom.schema import Schema
from logloom.values import dataclass

INFOS = "infos"


class AnnotationStageWriter(StageWriter):
    """Writes the staged files of one partition into a local folder."""

    def __init__(self, directory: pathlib.Path, schema: Schema, options: Options, context: UnitContext):
        """Prepares a unit.

        Raises:
            UsageError: the columns don't fit, or the log_id can't name a folder.
        """
        super().__init__(directory, context)
        self._mapping = mapping_of(options, schema)
        check_log_id(context.log_id)
        self._schema = schema
        self._digest = RowsDigest(self._mapping.schema)

    def stage(self, block: Block) -> None:
        rows = map_rows(self._mapping, block, self._schema)
        for row in rows:
            for name, data in row.files.values():
                path = self.directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    file.write(data)
            names = as_json({column: name for column, (name, _) in row.files.items()})
            self.write(INFOS, f"{row.timestamp}\t{names}\t{row.info}\n".encode("ascii"))
        names_of = self._mapping.schema.columns
        self._digest.update(mapped_block(block.log_id, block.partition, self.num_rows, rows, names_of))

    def metadata(self) -> dict[str, Any]:
        """Add to the common fields: columns, digests of the mapped rows; files, the columns with files."""
        files = list(self._mapping.files)
        return {**super().metadata(), "columns": self._digest.hexdigests(), "files": files}


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
    """The result of `AnnotationStageWriter.close`."""

    span: tuple[Int64, ...]


class AnnotationStageReader(StageReader):
    """The mapped rows of a staged unit: `data_info` as JSON text, and the bytes of its files."""

    closed = ClosedAnnotations

    @cached_property
    def _infos(self) -> list[StagedInfo]:
        return read_infos(self.store, "", len(self)) if len(self) else []

    def read(self, names: Sequence[str], start: int, stop: int, max_bytes: int) -> Iterator[Block]:
        rows: list[MappedRow] = []
        size = first = 0
        for line in self._infos[start:stop]:
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
        return mapped_block(self.unit["log_id"], self.unit["partition"], first, rows, names)

    def _row(self, line: StagedInfo, names: Sequence[str]) -> MappedRow:
        files = {}
        for column, name in line.files.items():
            if column in names:
                if (data := self.store.read_if_there(name)) is None:
                    place = self.store.uri_of(name)
                    raise DatasetError(f"{place}: missing; {repair_hint(place)}")
                files[column] = (name, data)
        return MappedRow(line.timestamp, line.info, files)
