"""Blocks into a dataset of any format: `WriteTo`.

Elsewhere: formats (logloom.io.formats.interface), the transforms named after them (`beam.py` in each format's
package), builds from recipes, whose units outlive a job (logloom.transforms.beam.build).

`WriteTo` shuffles no rows: each block is written at once as a temporary unit, in `<path>.stage` or in
`<path>/tmp/pieces`, and only the units' entries are shuffled. Then workers join the units of each
partition, or write the files of one dataset from all units (assembled formats). Rows are written twice.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logloom.blocks import Block
from logloom.caching import cached_property
from logloom.digests import RowsDigest, digest_of
from logloom.errors import DatasetError, UsageError
from logloom.extras import beam_needed
from logloom.io.catalog.entries import Entry, files_of, publish_unit
from logloom.io.formats.capabilities import ReferringFormat
from logloom.io.formats.interface import (
    AssembledFormat,
    AssemblyPlan,
    Format,
    StagedUnit,
    UnitContext,
    closed,
)
from logloom.io.rows.sources import RowSource
from logloom.io.storage.disk import paths_below
from logloom.io.storage.filesystems import explained
from logloom.io.storage.store import Store
from logloom.schema import Schema
from logloom.values import dataclass

with beam_needed():
    import apache_beam as beam


_SPLIT = "all"
_PIECES = "tmp/pieces"


class WriteTo(beam.PTransform):
    """Writes blocks, which may come in any order, as datasets of a format.

    A format whose units are assembled makes one dataset, ordered by (log_id, timestamp), whose URI is given
    once it is whole. Others make a unit `<path>/<log_id>/<partition>` of each partition, for which {"uri",
    "log_id", "partition", "rows", "bytes"} is given. Bytes don't depend on how rows were cut into blocks.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        form: Format,
        schema: Schema,
        options: Any = None,
        *,
        period: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        file: str = "",
    ):
        """Checks what can be checked before there are rows.

        Args:
            path: path or URI of a folder.
            form: the format.
            schema: of the blocks.
            options: of the format, those of its `Options` by default.
            period: of the rows' clock, in ns, where it has one.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
            file: what to give the URI of, within what is written; the folder by default.

        Raises:
            UsageError: the columns don't fit.
        """
        super().__init__()
        options = form.Options() if options is None else options
        if problems := form.check(options, schema):
            raise UsageError("; ".join(problems))
        store = Store.at(os.fspath(path), storage_options)
        if isinstance(form, ReferringFormat):
            options = form.pinned(options, store.options)
        self._dataset = _WrittenDataset(store, form, schema, options, period, file)

    def expand(self, blocks: Any) -> Any:
        dataset = self._dataset
        staged = blocks | "HasRows" >> beam.Filter(len) | "StageBlock" >> beam.Map(dataset.stage_block)
        if isinstance(dataset.form, AssembledFormat):
            entries = staged | "Entries" >> beam.Values() | "ListEntries" >> beam.combiners.ToList()
            files = (
                entries
                | "PlanFiles" >> beam.FlatMap(dataset.tasks)
                | "SpreadFiles" >> beam.Reshuffle()
                | "WriteFile" >> beam.Map(dataset.write_file)
            )
            written = entries | "WriteMetadata" >> beam.Map(dataset.finish, beam.pvalue.AsList(files))
        else:
            written = staged | "UnitsOfPartition" >> beam.GroupByKey() | "Join" >> beam.Map(dataset.join)
        all_written = beam.pvalue.AsSingleton(written | "CountWritten" >> beam.combiners.Count.Globally())
        removed = (
            staged
            | "NamePieces" >> beam.Map(_folder_of)
            | "SpreadPieces" >> beam.Distinct()
            | "RemovePiece" >> beam.Map(dataset.remove_piece, all_written)
            | "CountRemoved" >> beam.combiners.Count.Globally()
        )
        _ = removed | "RemoveStage" >> beam.Map(dataset.remove_stage)
        return written


_Staged = tuple[int, Entry]  # the block's first row


@dataclass(frozen=True)
class _WrittenDataset:
    """What is written where; its methods are what workers do. Small and picklable."""

    store: Store
    form: Format
    schema: Schema
    options: Any
    period: int | None
    file: str

    @property
    def last(self) -> tuple[str, ...]:
        """Files of which any one shows that a dataset is whole; () where unknown."""
        return self.form.last or tuple(filter(None, [self.file]))

    @property
    def stage(self) -> Store:
        """Where blocks are as units until they are part of something whole.

        A folder of units may be written by several at a time, a dataset by one.
        """
        beside = isinstance(self.form, AssembledFormat)
        place = f"{self.store.uri}.stage" if beside else self.store.uri_of(_PIECES)
        return Store(place, self.store.options)

    @cached_property
    def _writing(self) -> list[Any]:
        """What a unit's files depend on beside its rows."""
        form, options = self.form, self.options
        stored = self.store.options
        referred = form.references_digest(options, stored) if isinstance(form, ReferringFormat) else ""
        chosen = options.model_dump(mode="json")
        return [
            form.name,
            form.semantics,
            chosen,
            referred,
            self.schema.to_json(),
            self.period,
        ]

    def stage_block(self, block: Block) -> tuple[tuple[str, str], _Staged]:
        """Writes a block as a unit, named by what its files depend on: a second attempt finds it."""
        log_id, partition = block.log_id, f"{block.partition}~{block.first_row:012d}"
        if problems := self.form.check_log(self.options, log_id, log_id):
            raise UsageError("; ".join(problems))
        digests = RowsDigest(self.schema)
        digests.update(block)
        with self.stage.scratch() as folder, explained(self.stage.uri):
            writer = self.form.writer(folder, self.schema, self.options, self._context(log_id, partition))
            writer.append(block)
            unit, columns = closed(writer, digests)
            if isinstance(self.form, AssembledFormat):
                self._show(folder)
            entry = Entry(
                output=self.form.name,
                identity=digest_of([*self._writing, log_id, partition, columns])[:32],
                log_id=log_id,
                content_id="",
                partition=partition,
                start=int(block.timestamp[0]),
                stop=int(block.timestamp[-1]) + 1,
                rows=len(block),
                files=files_of(folder),
                columns=columns,
                unit=unit,
                tally={},
                software={},
                statistics="",
            )
            publish_unit(self.stage, folder, entry)
        return (log_id, block.partition), (block.first_row, entry)

    def _context(self, log_id: str, partition: str) -> UnitContext:
        stored = self.store.options
        return UnitContext(log_id, log_id, partition, _SPLIT, self.period, storage_options=stored)

    def _show(self, folder: pathlib.Path) -> None:
        """Moves to the dataset what it shows of a unit; a file that is there must hold the same."""
        paths = {path.relative_to(folder).as_posix(): path for path in paths_below(folder) if path.is_file()}
        for name, shown in sorted(self.form.view(0, sorted(paths)).items()):
            data = paths[name].read_bytes()
            if not self.store.create(shown, data) and self.store.read(shown) != data:
                raise UsageError(
                    f"{self.store.uri_of(shown)}: another dataset's file; remove it or choose another folder"
                )
            paths[name].unlink()

    # --- a unit for each partition ---

    def join(self, unit: tuple[tuple[str, str], Iterable[_Staged]]) -> dict[str, Any]:
        """Writes the unit of a partition unless it is there.

        Raises:
            DatasetError: rows are missing, or there twice.
        """
        (log_id, partition), staged = unit
        entries = _in_row_order(log_id, partition, staged)
        name = f"{log_id}/{partition}"
        # One that is there is left alone, pieces and all: another pipeline may have removed those they share.
        if not any(self.store.exists(f"{name}/{last}") for last in self.last):
            self._publish(name, log_id, partition, entries)
        return {
            "uri": self.store.uri_of(f"{name}/{self.file}" if self.file else name),
            "log_id": log_id,
            "partition": partition,
            "rows": sum(entry.rows for entry in entries),
            "bytes": sum(self.store.sizes(name).values()),
        }

    def _publish(self, name: str, log_id: str, partition: str, entries: Sequence[Entry]) -> None:
        with self.store.scratch() as folder, explained(self.store.uri_of(name)):
            self._join(folder, log_id, partition, entries)
            files = [path.relative_to(folder).as_posix() for path in paths_below(folder) if path.is_file()]
            last = next((file for file in self.last if file in files), max(files))
            if not self.store.exists(f"{name}/{last}"):
                self.store.publish(folder, name, last)

    def _join(self, folder: pathlib.Path, log_id: str, partition: str, entries: Sequence[Entry]) -> None:
        readers = [self._reader(entry) for entry in entries]
        schema, options = self.schema, self.options
        if not self.form.keeps_columns:
            schema = readers[0].schema
            options = self.form.Options.model_validate(self.form.again(options.model_dump(mode="json")))
        writer = self.form.writer(folder, schema, options, self._context(log_id, partition))
        rows = 0
        for reader in readers:
            for block in reader.blocks():
                writer.append(replace(block, partition=partition, first_row=rows))
                rows += len(block)
        writer.close()

    def _reader(self, entry: Entry) -> RowSource:
        folder, stored = self.stage.uri_of(entry.folder), self.stage.options
        return self.form.reader(folder, self.schema, self.options, entry.unit, storage_options=stored)

    # --- one dataset of all units ---

    def plan(self, staged: Sequence[_Staged]) -> AssemblyPlan:
        """How all units, which come in any order, become one dataset; reads no payload."""
        assert isinstance(self.form, AssembledFormat)
        entries = sorted((entry for _, entry in staged), key=lambda entry: (entry.log_id, entry.start))
        units = [
            StagedUnit(e.log_id, e.log_id, _SPLIT, e.partition, e.folder, e.rows, e.unit, e.columns)
            for e in entries
            if e.rows
        ]
        return self.form.plan_assembly(self.stage, units, self.schema, self.options, self.period)

    def _marks(self, plan: AssemblyPlan) -> tuple[str, ...]:
        return (
            self.last
            or tuple(plan.marks)
            or tuple(name for name in plan.files if "/" not in name)
            or tuple(plan.files)
        )

    def tasks(self, staged: Sequence[_Staged]) -> Sequence[Any]:
        """The files to be made.

        Raises:
            UsageError: there is a dataset already.
        """
        plan = self.plan(staged)
        marks = self._marks(plan)
        there = [self.store.uri_of(name) for name in marks if self.store.exists(name)]
        if there or (not marks and self.form.recognises(self.store)):
            place = (there or [self.store.uri])[0]
            raise UsageError(f"{place}: there is a dataset already; remove it or choose another path")
        return plan.tasks

    def write_file(self, task: Any) -> str:
        """Makes one file; gives its name."""
        assert isinstance(self.form, AssembledFormat)
        name, data = self.form.make_chunk(self.stage, task)
        self.store.replace(name, data)
        return name

    def finish(self, staged: Sequence[_Staged], written: Sequence[str]) -> str:
        """Writes the metadata, the mark of a whole dataset last; waits for what was written."""
        plan = self.plan(staged)
        marks = self._marks(plan)
        for name in sorted(plan.files, key=lambda name: (name in marks, name)):
            self.store.replace(name, plan.files[name])
        return self.store.uri_of(self.file)

    # --- once all is written ---

    def remove_piece(self, folder: str, written: int) -> None:
        """Removes rows that the whole dataset contains by now."""
        self.stage.remove_all(folder)

    def remove_stage(self, removed: int) -> None:
        """Removes what attempts that died left beside a dataset; another's pieces may be beside units."""
        if isinstance(self.form, AssembledFormat):
            self.stage.remove_all("")


def _folder_of(staged: tuple[tuple[str, str], _Staged]) -> str:
    return staged[1][1].folder


def _in_row_order(log_id: str, partition: str, staged: Iterable[_Staged]) -> list[Entry]:
    """The entries of a partition; a block that was staged again counts once."""
    distinct = {(first_row, entry.identity): entry for first_row, entry in staged}
    rows, stop, ordered = 0, None, []
    for (first_row, _), entry in sorted(distinct.items()):
        if first_row != rows or (stop is not None and entry.start < stop):
            raise DatasetError(f"{log_id} {partition}: a block at row {first_row}, row {rows} comes next")
        rows, stop = rows + entry.rows, entry.stop
        ordered.append(entry)
    return ordered
