"""Write blocks as a dataset of any format: `WriteTo`.

Elsewhere: checks of blocks (checks), their files (pieces), rows in the order of their timestamps (merge),
stages, marks and what becomes of retries (place), formats (logloom.io.formats.interface), the transforms
named after them (`beam.py` in each format's package), builds (logloom.transforms.beam.build).

`WriteTo` shuffles no rows: each block is written at once as a piece in the run's stage, and only the pieces'
names are shuffled. Workers write the pieces of each partition as a unit; formats that are assembled make one
dataset of all units.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic import ValidationError

from logloom import metrics
from logloom.blocks import Block
from logloom.digests import RowsDigest, digest_of
from logloom.durations import Time, nanoseconds_of
from logloom.errors import DatasetError, LogloomError, StorageError, UsageError
from logloom.extras import beam_needed
from logloom.io.beam.checks import checked
from logloom.io.beam.merge import merged
from logloom.io.beam.pieces import StagedBlock, StagedBlocks, end_to_end
from logloom.io.beam.place import Place
from logloom.io.beam.places import format_of
from logloom.io.catalog.entries import Entry, files_of
from logloom.io.formats.capabilities import ReferringFormat
from logloom.io.formats.interface import (
    AssembledFormat,
    AssemblyPlan,
    Format,
    StagedUnit,
    UnitContext,
    closed,
)
from logloom.io.formats.registry import format_names, output_problems
from logloom.io.formats.stages import StageReader
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import check_named, explained
from logloom.io.storage.store import Store
from logloom.schema import MIN_TIME, Schema
from logloom.text import counted
from logloom.validation import describe_first
from logloom.values import dataclass

with beam_needed():
    import apache_beam as beam
    from apache_beam.transforms.display import DisplayDataItem
    from apache_beam.transforms.window import GlobalWindows

_SPLIT = "all"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MOVES = 200  # files of an object store that one worker moves at a time
_READ_BYTES = 16 << 20  # of a block that is read back


class Written(NamedTuple):
    """The result of `WriteTo`.

    Attributes:
        uri: of the dataset.
        format: its name.
        logs, rows: how many it has.
        units: how many it was written in.
        bytes: of its files.
    """

    uri: str
    format: str
    logs: int
    rows: int
    units: int
    bytes: int


@beam.typehints.with_input_types(Block)
@beam.typehints.with_output_types(Written)
class WriteTo(beam.PTransform):
    """Writes blocks, which may come in any order, as one dataset; gives one `Written` once it is there.

    Rows are ordered by (log_id, timestamp), however they were cut into blocks, and so are bytes. Rows of a
    log with equal timestamps and equal values count once. What is written is read back before it is shown.
    Nothing is in the place before; a dataset that is there already is refused. A run that is repeated, in
    part or whole, finds its own result and ends well.

    Examples:
        >>> import apache_beam as beam
        >>> from logloom.blocks import Block
        >>> from logloom.schema import ColumnType
        >>> schema = Schema({"speed": ColumnType("<f4")})
        >>> columns = {"timestamp": np.array([10, 20]), "speed": np.array([3, 4], "f4")}
        >>> with beam.Pipeline() as pipeline:
        ...     blocks = pipeline | beam.Create([Block("drive", "", 0, columns)])
        ...     _ = blocks | WriteTo("speeds.zarr", "zarr", schema)
        >>> [float(row["speed"]) for row in ll.open("speeds.zarr")]
        [3.0, 4.0]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str | Format,
        schema: Schema,
        options: Any = None,
        *,
        period: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        file: str = "",
        run_id: str | None = None,
        read_back: bool = True,
        stale_after: Time = "24h",
    ):
        """Checks what can be checked before there are rows.

        Args:
            path: path or URI of a new or empty folder.
            format: its name in a recipe, or the format itself.
            schema: of the blocks.
            options: of the format, as in a recipe, or a value of its `Options`; the defaults if None.
            period: of the rows' clock, in ns, where it has one.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
            file: the one file that is written, in a folder that may contain others.
            run_id: what a run recognises its own result by; by default a new one for each `WriteTo`.
                Templates, which are made once and run often, give one for each run.
            read_back: whether to compare what was written with the blocks before it is shown.
            stale_after: time without a write after which the stage of another run into this place is removed.

        Raises:
            UsageError: the columns don't fit, or there is a dataset already.
        """
        super().__init__()
        form: Any = format_of(format)
        if form is None or not isinstance(schema, Schema):
            raise UsageError(
                f"WriteTo: format {format!r}, schema of type {type(schema).__name__}; pass "
                "WriteTo(path, format, schema)"
            )
        if not hasattr(form, "writer"):
            raise UsageError(f"WriteTo: {format!r} can only be read; use {', '.join(format_names())}")
        options = _options_of(form, options)
        problems = [*output_problems(form, options, schema), *form.check_clock(options, period).values()]
        if problems:
            raise UsageError("; ".join(problems))
        check_named(os.fspath(path))
        store = Store.at(os.fspath(path), storage_options)
        if store.local is not None and store.local.is_symlink():
            store = Store.at(os.path.realpath(store.local), storage_options)
        store.check_writable()
        if isinstance(form, ReferringFormat):
            options = form.pinned(options, store.options)
        run_id = uuid.uuid4().hex if run_id is None else run_id  # noqa: TID251 - in no file of the dataset
        if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
            raise UsageError(f"WriteTo: run_id {run_id!r}: use letters, digits, '_', '-' and '.'")
        stale = nanoseconds_of(stale_after, "WriteTo: stale_after") / 1e9
        place = Place(store, run_id, file, form.mark_folder)
        place.check_name()
        self._dataset = _WrittenDataset(place, form, schema, options, period, read_back, stale)
        self._dataset.own_mark()

    def expand(self, blocks: Any) -> Any:
        if not getattr(blocks, "is_bounded", True):
            raise UsageError("WriteTo: a dataset is whole once its rows have ended; the input is unbounded")
        dataset = self._dataset
        units = (
            blocks
            | "IntoOneWindow" >> beam.WindowInto(GlobalWindows())
            | "StageBlock" >> beam.FlatMap(dataset.stage_block)
            | "PiecesOfLog" >> beam.GroupByKey()
            | "PlanUnits" >> beam.FlatMapTuple(dataset.plan_units)
            | "SpreadUnits" >> beam.Reshuffle()
            | "MakeUnit" >> beam.FlatMap(dataset.make_unit)
            | "ListUnits" >> beam.combiners.ToList()
        )
        files = (
            units
            | "PlanFiles" >> beam.FlatMap(dataset.tasks)
            | "SpreadFiles" >> beam.Reshuffle()
            | "WriteFile" >> beam.FlatMap(dataset.write_file)
        )
        mark = units | "Claim" >> beam.Map(dataset.claim, beam.pvalue.AsList(files))
        moved = (
            mark
            | "PlanMoves" >> beam.FlatMap(dataset.moves)
            | "SpreadMoves" >> beam.Reshuffle()
            | "Move" >> beam.Map(dataset.place.move)
        )
        return mark | "Finish" >> beam.Map(dataset.finish, beam.pvalue.AsList(moved))

    def display_data(self) -> dict[str, Any]:
        dataset = self._dataset
        return {
            "path": DisplayDataItem(dataset.place.store.uri, label="Place"),
            "format": DisplayDataItem(dataset.form.name, label="Format"),
            "columns": DisplayDataItem(", ".join(dataset.schema.columns), label="Columns"),
        }


def _options_of(form: Format, options: Any) -> Any:
    if isinstance(options, form.Options):
        return options
    if not isinstance(options, Mapping | None):
        raise UsageError(f"{form.name}: options {options!r}: must be a mapping, as in a recipe")
    try:
        return form.Options.model_validate(dict(options or {}))
    except ValidationError as error:
        raise UsageError(f"{form.name}: options: {describe_first(error)}") from error


_Mark = Mapping[str, Any]


@dataclass(frozen=True)
class _WrittenDataset:
    """What is written where; its methods are what workers do. Small and picklable."""

    place: Place
    form: Format
    schema: Schema
    options: Any
    period: int | None
    read_back: bool
    stale_after: float

    @property
    def _pieces(self) -> StagedBlocks:
        return StagedBlocks(self.place.stage, self.schema)

    def stage_block(self, block: Block) -> Iterator[tuple[str, StagedBlock]]:
        """Write a block as a piece, unless it has no rows, or another attempt was faster."""
        try:
            block = checked(block, self.schema)
            if problems := self.form.check_log(self.options, block.log_id, block.log_id):
                raise UsageError("; ".join(problems))
        except UsageError:
            metrics.count(blocks_refused=1)
            raise
        if len(block):
            with self._unless_written():
                yield block.log_id, self._pieces.write(block)

    # --- units ------------------------------------------------------------------------------------------

    def plan_units(self, log_id: str, pieces: Iterable[StagedBlock]) -> Iterator[list[StagedBlock]]:
        """The pieces of each unit of a log: those of a partition, and of all partitions that overlap."""
        partitions: dict[str, list[StagedBlock]] = {}
        for piece in sorted({*pieces}, key=attrgetter("start", "stop", "name")):
            partitions.setdefault(piece.partition, []).append(piece)
        unit: list[StagedBlock] = []
        stop = MIN_TIME
        for own in partitions.values():  # by their first rows
            if unit and own[0].start >= stop:
                yield unit
                unit = []
            stop = max(stop, *(piece.stop for piece in own))
            unit += own
        yield unit

    def make_unit(self, pieces: Sequence[StagedBlock]) -> Iterator[Entry]:
        """Write the rows of pieces as a unit, and read it back; none where another attempt was faster.

        Raises:
            DatasetError: two rows have one timestamp, or what is read back differs.
        """
        with self._unless_written():
            yield self._unit_of(pieces)

    def _unit_of(self, pieces: Sequence[StagedBlock]) -> Entry:
        stage, log_id, partition = self.place.stage, pieces[0].log_id, pieces[0].partition
        digests, rows, span = RowsDigest(self.schema), 0, (0, 0)
        stored = self.place.store.options
        context = UnitContext(log_id, log_id, partition, _SPLIT, self.period, storage_options=stored)
        with stage.scratch() as folder, explained(stage.uri):
            writer = self.form.writer(folder, self.schema, self.options, context)
            for columns in merged(log_id, [self._pieces.read(run) for run in end_to_end(pieces)]):
                block = Block(log_id, partition, rows, columns)
                span = span[0] if rows else int(block.timestamp[0]), int(block.timestamp[-1]) + 1
                rows += len(block)
                digests.update(block)
                writer.append(block)
            unit, of_columns = closed(writer, digests)
            entry = Entry(
                output=self.form.name,
                identity=digest_of([self._description, log_id, partition, of_columns])[:32],
                log_id=log_id,
                content_id="",
                partition=partition,
                start=span[0],
                stop=span[1],
                rows=rows,
                files=files_of(folder),
                columns=of_columns,
                unit=unit,
                tally={},
                software={},
                statistics="",
            )
            there = stage.sizes(entry.folder)
            if there and there != {file.name: file.size for file in entry.files}:
                stage.remove_all(entry.folder)  # of an attempt that was cut short
            if entry.files:
                stage.publish(folder, entry.folder, entry.files[-1].name, durable=False)
        self._check(entry)
        metrics.count(rows_written=rows, bytes_written=entry.size, units_written=1)
        return entry

    def _check(self, entry: Entry) -> None:
        """Read a unit back, unless it is a stage, whose dataset is read back."""
        stage = self.place.stage
        folder = stage.uri_of(entry.folder)
        reader = self.form.reader(
            folder, self.schema, self.options, entry.unit, storage_options=stage.options
        )
        if not self.read_back or isinstance(reader, StageReader):
            return
        digests, rows = RowsDigest(reader.schema), 0
        for block in reader.blocks(max_bytes=_READ_BYTES):
            digests.update(block)
            rows += len(block)
        found = digests.hexdigests()
        odd = [name for name, digest in found.items() if entry.columns.get(name, digest) != digest]
        if rows != entry.rows or odd:
            what = f"column {', '.join(odd)}" if odd else f"its {counted(rows, 'row')}, not {entry.rows}"
            raise DatasetError(
                f"{folder}: log {entry.log_id}: the data read back differs in {what} from "
                "what was written; run the pipeline again"
            )

    # --- the dataset ------------------------------------------------------------------------------------

    def tasks(self, units: Sequence[Entry]) -> list[tuple[str, Any]]:
        """The files to be made of all units, and the digest of their dataset; none where units are files."""
        if not isinstance(self.form, AssembledFormat) or self._is_written():
            return []
        digest = self._digest(units)
        return [(digest, task) for task in self._plan(units).tasks]

    def _digest(self, units: Sequence[Entry]) -> str:
        return digest_of([self._description, [unit.identity for unit in _in_order(units)]])

    def _plan(self, units: Sequence[Entry]) -> AssemblyPlan:
        """How all units, which come in any order, become one dataset; reads no payload."""
        assert isinstance(self.form, AssembledFormat)
        staged = [
            StagedUnit(e.log_id, e.log_id, _SPLIT, e.partition, e.folder, e.rows, e.unit, e.columns)
            for e in _in_order(units)
        ]
        return self.form.plan_assembly(self.place.stage, staged, self.schema, self.options, self.period)

    def write_file(self, task: tuple[str, Any]) -> Iterator[tuple[str, int]]:
        """Make one file of the dataset; give its name and size, nothing where another attempt was faster."""
        assert isinstance(self.form, AssembledFormat)
        with self._unless_written():
            name, data = self.form.make_chunk(self.place.stage, task[1])
            self.place.write(task[0], name, data)
            yield name, len(data)

    def claim(self, units: Sequence[Entry], written: Iterable[tuple[str, int]]) -> _Mark:
        """Finish the dataset, read it back, and claim the place for it.

        Returns:
            The mark of this run, perhaps of an earlier attempt.

        Raises:
            UsageError: another dataset is there, or no rows came, and the format has no dataset without rows.
            DatasetError: what is read back differs from what was written.
        """
        try:
            found = self.own_mark()
            return self._finished(_in_order(units), dict(written)) if found is None else found
        except (LogloomError, *MISSING) as error:
            if self._is_written() and (found := self.own_mark()) is not None:  # by another attempt, meanwhile
                return found
            if isinstance(error, UsageError):
                self.place.remove_stage()
            raise

    def own_mark(self) -> _Mark | None:
        """The mark of this run, if it is there.

        Raises:
            UsageError: something else is there.
        """
        found = self.place.own_mark()
        if found is not None:
            given = {key: found.get(key) for key in self._description}
            if digest_of(given) != digest_of(self._description):
                raise UsageError(
                    f"{self.place.store.uri}: run {self.place.run_id} wrote another dataset there, as "
                    f"{found.get('format')}; pass a new run_id, and choose another path"
                )
        return found

    @contextlib.contextmanager
    def _unless_written(self) -> Iterator[None]:
        """Pass over what fails in a stage that another attempt removed, as this run's dataset is there."""
        try:
            yield
        except (DatasetError, StorageError, *MISSING):
            if not self._is_written():
                raise

    def _is_written(self) -> bool:
        """Whether this run's dataset is there already, so that nothing is left to do, nor to read."""
        try:
            return self.own_mark() is not None
        except UsageError:
            self.place.remove_stage()
            raise

    def _finished(self, units: Sequence[Entry], made: dict[str, int]) -> _Mark:
        """See `claim`.

        Args:
            made: sizes of chunks by name.
        """
        place, digest = self.place, self._digest(units)
        last = self._write_metadata(units, digest)
        shown = self._shown(units)
        files = {as_shown: name for as_shown, (name, _) in shown.items()}
        if isinstance(self.form, AssembledFormat) or place.is_local:
            files = place.gather(digest, files, [*made, *last])
        self._check_dataset(units, place.dataset(digest))
        mark = {
            "digest": digest,
            **self._description,
            "logs": len({unit.log_id for unit in units}),
            "rows": sum(unit.rows for unit in units),
            "units": len(units),
            "bytes": sum([*made.values(), *last.values(), *(size for _, size in shown.values())]),
        }
        return place.claim(mark, files, self._last(units, last, files))

    @property
    def _description(self) -> dict[str, Any]:
        stored = self.form.columns_of(self.options, self.schema) or self.schema
        return {
            "format": self.form.name,
            "schema": stored.to_json(),
            "options": self.options.model_dump(mode="json"),
            "period": self.period,
        }

    def _write_metadata(self, units: Sequence[Entry], digest: str) -> dict[str, int]:
        """Write what belongs to no chunk; return sizes by name."""
        if not isinstance(self.form, AssembledFormat):
            return {}
        files = self._plan(units).files
        for name, data in files.items():
            self.place.write(digest, name, data)
        return {name: len(data) for name, data in files.items()}

    def _last(self, units: Sequence[Entry], others: Iterable[str], names: Iterable[str]) -> list[str]:
        """Files that are moved after all others: those that show that a dataset is there at the end.

        Args:
            others: files that belong to no chunk.
            names: of all files.
        """
        if not isinstance(self.form, AssembledFormat):
            return []
        marks = {*self.form.last, *self._plan(units).marks, self.place.file} & {*names}
        return [*sorted({*others} - marks), *sorted(marks)]

    def _shown(self, units: Sequence[Entry]) -> dict[str, tuple[str, int]]:
        """The files of units in the dataset: name in the stage, and size, by that in the dataset."""
        found = {}
        for number, unit in enumerate(units):
            sizes = {file.name: file.size for file in unit.files}
            for name, shown in self.form.view(number, sorted(sizes)).items():
                found[shown] = f"{unit.folder}/{name}", sizes[name]
        return found

    def _check_dataset(self, units: Sequence[Entry], dataset: Store) -> None:
        if not units:
            try:
                self.form.rows(dataset)
            except LogloomError as error:
                place, name = self.place.store.uri, self.form.name
                raise UsageError(
                    f"{place}: no rows came, and {name} has no dataset without rows; check the pipeline's "
                    "filters, or write another format"
                ) from error
        if self.read_back and isinstance(self.form, AssembledFormat):
            unit = self._plan(units).unit
            problem = next(self.form.assembled_differences(dataset.uri, unit, dataset.options), None)
            if problem is not None:
                raise DatasetError(f"{problem}; run the pipeline again")

    def moves(self, mark: _Mark) -> Iterator[Sequence[tuple[str, str]]]:
        """What is left to be moved to the place, some files at a time."""
        first, _ = self.place.moves(mark)
        for start in range(0, len(first), _MOVES):
            yield first[start : start + _MOVES]

    def finish(self, mark: _Mark, moved: Iterable[Any]) -> Written:
        """Move what shows that the dataset is whole, once all else is there; remove the stage."""
        self.place.move(self.place.moves(mark)[1])
        self.place.finish(mark)
        self.place.remove_stage(self.stale_after)
        uri = self.place.store.uri_of(self.place.file)
        return Written(uri, self.form.name, mark["logs"], mark["rows"], mark["units"], mark["bytes"])


def _in_order(units: Sequence[Entry]) -> list[Entry]:
    return sorted(units, key=attrgetter("log_id", "start"))
