"""The output `table`: options, and writing, reading and assembly of units.

A unit contains the blobs of a partition; the logs' index files and table.json are assembled from all units of
a split, without touching payload. A version's view shows the blobs with the index, in the layout of
`write_table`.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field, PrivateAttr

from logloom.digests import digest_of
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.interface import AssembledFormat, AssemblyPlan, StagedUnit, UnitContext
from logloom.io.formats.table import description as d
from logloom.io.formats.table.index.assemble import PartRows, catalogued_columns, describe, log_index
from logloom.io.formats.table.index.index import read_log
from logloom.io.formats.table.references import References, note_use, notes, user_of, users_of
from logloom.io.formats.table.unit import BlockReader, UnitWriter, check_closed, unit_reader
from logloom.io.formats.table.versions import open_table, pinned
from logloom.io.formats.table.write.part_writer import ROWS_FILE, TablePlan, make_plan
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.metadata import ChosenColumns
from logloom.io.storage.store import Store
from logloom.schema import Schema
from logloom.values import dataclass


class TableOptions(ChosenColumns):
    """`outputs.table` of a recipe.

    Attributes:
        index: names or globs of the small columns to hold in memory.
        groups: names and patterns of columns to store together.
        reference: tables whose chunks are pointed to instead of being stored again.
        compress: lz4 or zstd for all groups, or group to codec.
    """

    index: list[str] = Field(default_factory=list)
    groups: dict[str, str | list[str]] = Field(default_factory=dict)
    reference: str | list[str] = Field(default_factory=list)
    compress: str | dict[str, str] = Field(default_factory=dict)
    _pinned: tuple[str, ...] = PrivateAttr(())
    _max_gap: int | None = PrivateAttr(None)  # of a table that no recipe has a clock for

    def plan(self, schema: Schema) -> TablePlan:
        """Plan the table before its first row.

        Raises:
            UsageError: a pattern matches nothing, or a column can't be in the index.
        """
        return make_plan(self.stored(schema), self.index, self.groups, self.compress)

    @property
    def references(self) -> list[str]:
        """URIs of the tables; of versions, once these are pinned (see `TableFormat.pinned`)."""
        given = [self.reference] if isinstance(self.reference, str) else self.reference
        return list(self._pinned) or given


@dataclass(frozen=True)
class LogIndexTask:
    """Make the index of one log, from units at `folders` (in the root) that become `parts`.

    Attributes:
        catalogued: index columns of one value each, see `catalogued_columns`.
    """

    log_id: str
    folders: tuple[str, ...]
    parts: tuple[str, ...]
    catalogued: tuple[tuple[str, str, Any], ...] = ()


class TableFormat(AssembledFormat):
    """See `Format` and `AssembledFormat` in logloom.io.formats.interface."""

    name = "table"
    semantics = 2  # 1: no availabilities in the index
    takes = "index"
    Options = TableOptions
    preference = 10
    has_stamps_at_hand = True
    compares_files = True
    shows_units = True
    reads_assembled = True

    def check(self, options: TableOptions, schema: Schema) -> list[str]:
        """List what can't be stored, one line each."""
        try:
            options.plan(schema)
        except UsageError as error:
            return [str(error)]
        return []

    def pinned(self, options: TableOptions, storage_options: Mapping[str, Any]) -> TableOptions:
        """Replace a root or a tag by its current version, which doesn't change while others are committed."""
        made = options.model_copy()
        made._pinned = tuple(pinned(uri, storage_options) for uri in options.references)
        return made

    def references_digest(self, options: TableOptions, storage_options: Mapping[str, Any]) -> str:
        """Digest of the descriptions of the tables that chunks are looked up in."""
        tables = [open_table(uri, storage_options)[1] for uri in options.references]
        return digest_of([d.to_bytes(table).decode() for table in tables]) if tables else ""

    def portions(self, options: TableOptions, schema: Schema) -> Mapping[str, tuple[Sequence[str], Any]]:
        """The column groups: their blobs are reused after changes to other groups or to the index."""
        plan = options.plan(schema)
        return {
            group: (columns, [list(columns), plan.codecs.get(group, "")])
            for group, columns in plan.groups.items()
        }

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: TableOptions, context: UnitContext
    ) -> UnitWriter:
        """Writes one unit; chunks that a referenced table holds are left out."""
        stored = context.storage_options
        references = References(options.references, stored) if options.references else None
        return UnitWriter(directory, options.plan(schema), context, references)

    def reader(
        self,
        directory: str,
        schema: Schema,
        options: TableOptions,
        entry: Mapping[str, Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> BlockReader:
        """Opens one finished unit."""
        plan = options.plan(schema)
        check_closed(entry, plan, directory)
        rows = d.LogRows("", d.log_file(""), entry["rows"], "")
        table = describe(plan, [entry], [rows], None, options.references)
        partition = str(entry["part"]).rpartition("~")[2]
        return unit_reader(directory, table, partition, entry, storage_options)

    def recognises(self, store: Store) -> bool:
        """Whether a folder is a table."""
        return d.FILE in store.names()

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> RowSource:
        """Those of the index."""
        from logloom.io.formats.table.source import TableSource

        return TableSource(store, known)

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """Put blobs into a folder for each part; the unit's index rows are in the assembled index."""
        return {file: shown for file in files if (shown := d.shown_file(file)) is not None}

    def plan_assembly(
        self,
        store: Store,
        units: Sequence[StagedUnit],
        schema: Schema,
        options: TableOptions,
        period: int | None,
    ) -> AssemblyPlan:
        """A task for each log's index, and table.json."""
        plan = options.plan(schema)
        of_log: dict[str, list[StagedUnit]] = {}
        for unit in units:
            check_closed(unit.unit, plan, store.uri_of(unit.folder))
            of_log.setdefault(unit.log_id, []).append(unit)
        catalogued = catalogued_columns({log_id: own[0].catalogued for log_id, own in of_log.items()}, plan)
        tasks = []
        for log_id, own in sorted(of_log.items()):
            places = tuple(u.folder for u in own), tuple(u.unit["part"] for u in own)
            tasks.append(LogIndexTask(log_id, *places, catalogued[log_id]))
        logs = [
            d.LogRows(log_id, d.log_file(log_id), sum(u.rows for u in own), "")
            for log_id, own in sorted(of_log.items())
        ]
        holders = References(options.references, store.options).holders if options.references else ()
        closed = [unit.unit for own in of_log.values() for unit in own]
        max_gap = options._max_gap if period is None else period * 3 // 2
        table = describe(plan, closed, logs, max_gap, holders)
        added = {name: dtype for columns in catalogued.values() for name, dtype, _ in columns}
        table = dataclasses.replace(table, index={**table.index, **added})
        note_use(store.uri, holders, store.options)
        return AssemblyPlan(tasks, {d.FILE: d.to_bytes(table)}, {"logs": len(logs)})

    def make_chunk(self, store: Store, task: LogIndexTask) -> tuple[str, bytes]:
        """Make the name and the bytes of one log's index."""
        parts = [
            PartRows(store.uri_of(f"{folder}/{ROWS_FILE}"), part, store.options)
            for folder, part in zip(task.folders, task.parts, strict=True)
        ]
        return d.log_file(task.log_id), log_index(task.log_id, parts, task.catalogued)[1]

    def assembled_differences(
        self, folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any]
    ) -> Iterator[str]:
        """List index files that are missing, damaged, or of another length than recorded."""
        try:
            table = d.read_description(folder, storage_options)
        except DatasetError as error:
            yield str(error)
            return
        for log in table.logs:
            try:
                rows = read_log(
                    f"{folder}/{log.file}", table, list(table.index), storage_options=storage_options
                )
                if rows.rows != log.rows:
                    yield f"{folder}/{log.file}: {rows.rows} rows, {d.FILE} has {log.rows}"
            except DatasetError as error:
                yield str(error)

    users = staticmethod(users_of)
    notes = staticmethod(notes)
    user_of = staticmethod(user_of)


FORMAT = TableFormat()
"""The format of the output `table`, for functions that take a format as an object."""
