"""Beam transforms for blocks, shared by the formats.

Here: for formats whose units are whole datasets (tar shards, folders of bags) `ReadUnits`, `WriteUnits`, and
`Pieces`, what a format does to be written so; for those whose units are staged and then assembled into one
dataset `ReadDataset`, `WriteAssembled` and `Assembling`.
Elsewhere: the transforms that users name (`beam.py` in each format's package).

No payload is shuffled. Each block becomes a piece of its unit at once, in `tmp/pieces` of the root, and only
the pieces' names are grouped and put in row order; or a unit in `<path>.stage`.
"""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from logloom.blocks import Block
from logloom.digests import digest_of, digests_of_rows
from logloom.errors import DatasetError, UsageError
from logloom.extras import beam_needed
from logloom.io.storage import Store, explained
from logloom.io.units import AssembledFormat, AssemblyPlan, Reader, StagedUnit, UnitContext
from logloom.schema import Schema

with beam_needed():
    import apache_beam as beam

_PIECES = "tmp/pieces"
_Unit = tuple[str, str]  # log_id, partition
_Piece = tuple[int, int, int, int, str]  # first row, rows, first and last stamp, name


class ReadUnits(beam.PTransform):
    """The rows of units as blocks; each unit is read by one worker."""

    opener: ClassVar[Callable[..., Reader]]  # of uri, schema and storage_options; found by its name

    def __init__(
        self,
        uris: Sequence[str],
        schema: Schema,
        columns: Sequence[str] | None = None,
        max_bytes: int = 64 << 20,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            uris: of units that `schema` describes.
            columns: names or globs; all, ages and availabilities too, by default.
            max_bytes: about how much a block holds.
        """
        super().__init__()
        self._uris = [os.fspath(uri) for uri in uris]
        self._arguments = (schema, columns, max_bytes, storage_options)

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "ListUnits" >> beam.Create(self._uris)
            | "Spread" >> beam.Reshuffle()
            | "ReadBlocks" >> beam.FlatMap(_read_blocks, type(self).opener, *self._arguments)
        )


def _read_blocks(
    uri: str,
    opener: Callable[..., Reader],
    schema: Schema,
    columns: Sequence[str] | None,
    max_bytes: int,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[Block]:
    return opener(uri, schema, storage_options=storage_options).blocks(columns, max_bytes)


class Pieces(Protocol):
    """How blocks become pieces of a unit and pieces the unit. Small and picklable.

    Attributes:
        last_of_piece, last_of_unit: the file that is published last, so that what has it is whole.
    """

    last_of_piece: ClassVar[str]
    last_of_unit: ClassVar[str]

    def write(self, block: Block, folder: pathlib.Path) -> None:
        """Writes one block as a piece into an empty local folder."""
        ...

    def name_of(self, log_id: str, partition: str) -> str:
        """The unit's folder within the root."""
        ...

    def join(self, store: Store, pieces: Sequence[str], folder: pathlib.Path) -> None:
        """Writes the unit into an empty local folder, from pieces in row order."""
        ...

    def found(self, store: Store, name: str, rows: int) -> tuple[str, int, int]:
        """URI, rows and bytes of the finished unit; its pieces had `rows`."""
        ...


class WriteUnits(beam.PTransform):
    """Writes blocks to units in `root` and gives {"uri", "log_id", "partition", "rows", "bytes"} of each."""

    def __init__(self, root: str, pieces: Pieces, storage_options: Mapping[str, Any] | None):
        super().__init__()
        self._store = Store.at(root, storage_options)
        self._pieces = pieces

    def expand(self, blocks: Any) -> Any:
        return (
            blocks
            | "HasRows" >> beam.Filter(len)
            | "WritePieces" >> beam.Map(_write_piece, self._store, self._pieces)
            | "PiecesOfUnits" >> beam.GroupByKey()
            | "JoinPieces" >> beam.Map(_join_pieces, self._store, self._pieces)
        )


def _write_piece(block: Block, store: Store, form: Pieces) -> tuple[_Unit, _Piece]:
    """Writes one block; gives its unit and the piece."""
    unit = (block.log_id, block.partition)
    stamps = (int(block.timestamp[0]), int(block.timestamp[-1]))
    name = f"{_PIECES}/{digest_of(unit)[:32]}/{block.first_row:012d}-{len(block)}"
    with store.scratch() as folder:
        form.write(block, folder)
        store.publish(folder, name, last=form.last_of_piece)
    return unit, (block.first_row, len(block), *stamps, name)


def _join_pieces(unit: tuple[_Unit, Iterable[_Piece]], store: Store, form: Pieces) -> dict[str, Any]:
    """Makes the unit of its pieces unless it is there, and removes them.

    Raises:
        DatasetError: rows are missing, or there twice.
    """
    (log_id, partition), pieces = unit
    ordered = sorted(set(pieces))
    rows, last = 0, None
    for first_row, count, first_stamp, last_stamp, _ in ordered:
        if first_row != rows or (last is not None and first_stamp <= last):
            raise DatasetError(f"{log_id} {partition}: a block at row {first_row}, row {rows} comes next")
        rows, last = rows + count, last_stamp
    names = [piece for *_, piece in ordered]
    name = form.name_of(log_id, partition)
    if not store.exists(f"{name}/{form.last_of_unit}"):
        with store.scratch() as folder, explained(store.uri_of(name)):
            form.join(store, names, folder)
            store.publish(folder, name, last=form.last_of_unit)
    for piece in names:
        if store.exists(f"{piece}/{form.last_of_piece}"):
            store.fs.rm(store.fs_path(piece), recursive=True)
    uri, rows, size = form.found(store, name, rows)
    return {"uri": uri, "log_id": log_id, "partition": partition, "rows": rows, "bytes": size}


# --- assembled datasets ---------------------------------------------------------------------------------


class LogByLog(Protocol):
    """A reader of one dataset whose logs can be read apart."""

    @property
    def logs(self) -> Iterable[Any]:
        """Its logs, by whatever `log_blocks` knows them."""
        ...

    def log_blocks(self, log: Any, columns: Sequence[str] | None, max_bytes: int) -> Iterator[Block]:
        """The rows of one of them."""
        ...


class ReadDataset(beam.PTransform):
    """The rows of one dataset as blocks; each of its logs is read by one worker."""

    opener: ClassVar[Callable[..., LogByLog]]  # of path and storage_options; found by its name

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        max_bytes: int = 64 << 20,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            columns: names or globs; all, ages and availabilities too, by default.
            max_bytes: about how much a block holds.
        """
        super().__init__()
        self._path = os.fspath(path)
        self._arguments = (columns, max_bytes, storage_options)

    def expand(self, begin: Any) -> Any:
        *_, storage_options = self._arguments
        return (
            begin
            | "NameDataset" >> beam.Create([self._path])
            | "ListLogs" >> beam.FlatMap(_list_logs, type(self).opener, storage_options)
            | "SpreadLogs" >> beam.Reshuffle()
            | "ReadLog" >> beam.FlatMap(_read_log, self._path, type(self).opener, *self._arguments)
        )


def _list_logs(
    path: str, opener: Callable[..., LogByLog], storage_options: Mapping[str, Any] | None
) -> Iterable[Any]:
    return opener(path, storage_options=storage_options).logs


def _read_log(
    log: Any,
    path: str,
    opener: Callable[..., LogByLog],
    columns: Sequence[str] | None,
    max_bytes: int,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[Block]:
    return opener(path, storage_options=storage_options).log_blocks(log, columns, max_bytes)


@dataclass(frozen=True)
class Assembling:
    """What becomes one dataset at `target`: blocks of `schema`, staged in `<target>.stage` as they come.

    Attributes:
        last: files whose presence says that the dataset is whole.
    """

    format: AssembledFormat
    target: Store
    schema: Schema
    options: Any
    last: tuple[str, ...]
    period: int | None = None

    @property
    def staged(self) -> Store:
        return Store(f"{self.target.uri}.stage", self.target.options)

    def stage(self, block: Block) -> _StagedBlock:
        """Stages a block with rows as a unit named by its content: a second attempt finds it there.

        What views show of units goes to the target itself.
        """
        context = UnitContext(block.log_id, block.log_id, block.partition, "", self.period)
        with self.staged.scratch() as folder:
            writer = self.format.writer(folder, self.schema, self.options, context)
            writer.append(block)
            unit = writer.close()
            columns = unit.pop("columns", None) or digests_of_rows([block], self.schema)
            files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
            for file, shown in self.format.view(0, files).items():
                _create(self.target, shown, (folder / file).read_bytes())
                (folder / file).unlink()
                files.remove(file)
            name = digest_of([block.log_id, block.partition, block.first_row, columns])[:32]
            self.staged.publish(folder, name, last=files[-1])
        of_log = block.log_id, block.log_id, ""
        return int(block.timestamp[0]), StagedUnit(*of_log, block.partition, name, len(block), unit, columns)

    def plan(self, staged: Sequence[_StagedBlock]) -> AssemblyPlan:
        """Plans the dataset of all units, which come in any order; reads nothing."""
        units = [unit for _, unit in sorted(staged, key=lambda found: (found[1].log_id, found[0]))]
        return self.format.plan_assembly(self.staged, units, self.schema, self.options, self.period)

    def tasks(self, staged: Sequence[_StagedBlock]) -> Sequence[Any]:
        """What files there are to be made.

        Raises:
            UsageError: there is a dataset already.
        """
        for name in self.last:
            if self.target.exists(name):
                place = self.target.uri_of(name)
                raise UsageError(f"{place}: there is a dataset already; remove it or choose another path")
        return self.plan(staged).tasks

    def write(self, task: Any) -> str:
        """Makes a file; gives its name."""
        name, data = self.format.make_chunk(self.staged, task)
        self.target.replace(name, data)
        return name

    def finish(self, staged: Sequence[_StagedBlock], written: Sequence[str]) -> str:
        """Writes the other files, what says that the dataset is whole last.

        Args:
            written: files that are there, to be waited for.
        """
        files = self.plan(staged).files
        for name in sorted(files, key=lambda name: (name in self.last, name)):
            self.target.replace(name, files[name])
        stage = self.staged
        if stage.local is not None:
            shutil.rmtree(stage.local, ignore_errors=True)
        elif stage.fs.exists(stage.fs_path("")):
            stage.fs.rm(stage.fs_path(""), recursive=True)
        return self.target.uri


_StagedBlock = tuple[int, StagedUnit]  # its first timestamp


def _create(target: Store, name: str, data: bytes) -> None:
    """Creates a file; one that is there must hold the same, as after an attempt that was repeated."""
    if not target.create(name, data) and target.read(name) != data:
        raise UsageError(f"{target.uri_of(name)}: another dataset's file; remove it or choose another folder")


class WriteAssembled(beam.PTransform):
    """Writes blocks as one dataset and gives its path, once it is whole.

    Blocks may come in any order and are staged as they come, in `<path>.stage`, so that none crosses a
    shuffle; their rows are written twice. Rows are ordered by (log_id, timestamp).
    """

    def __init__(self, form: Assembling):
        super().__init__()
        self._form = form

    def expand(self, blocks: Any) -> Any:
        form = self._form
        units = (
            blocks
            | "HasRows" >> beam.Filter(len)
            | "StageBlock" >> beam.Map(form.stage)
            | "ListUnits" >> beam.combiners.ToList()
        )
        written = (
            units
            | "PlanFiles" >> beam.FlatMap(form.tasks)
            | "SpreadFiles" >> beam.Reshuffle()
            | "WriteFile" >> beam.Map(form.write)
        )
        return units | "WriteMetadata" >> beam.Map(form.finish, beam.pvalue.AsList(written))
