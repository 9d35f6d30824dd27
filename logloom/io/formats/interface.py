"""The interface of a dataset format.

Here: the `Writer`, `FolderKind` and `Format` protocols, and `AssembledFormat` for datasets of many units.
Elsewhere: optional capabilities of formats (capabilities), finding formats (registry), the one
protocol for rows (logloom.io.rows.sources), the formats (a folder each), the summary of a finished unit
(unit_summary) and its entry (logloom.io.catalog.entries), the Beam transforms around formats
(logloom.io.beam).

A *unit* contains one partition in one output: some files in a folder of their own. A writer fills a local
folder and never looks outside it; its caller publishes the folder. Writers are deterministic: the same blocks
in the same order, cut anywhere, give the same bytes.
"""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from logloom.blocks import Block
from logloom.digests import RowsDigest
from logloom.errors import UsageError
from logloom.io.catalog.entries import Entry
from logloom.io.catalog.log_tables import Catalogued, catalogued
from logloom.io.catalog.pages import LogRecord
from logloom.io.formats.assembly import PartsJson, problems_at, row_problems
from logloom.io.formats.capabilities import Portion
from logloom.io.formats.unit_summary import check_unit
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.metadata import ChosenColumns
from logloom.io.storage.store import Store
from logloom.schema import MAX_TIME, MIN_TIME, Schema
from logloom.values import dataclass


@dataclass(frozen=True)
class UnitContext:
    """Facts of a partition that its writer needs besides the blocks.

    Attributes:
        log_uri: the log's first file (for templates such as l5kit's host).
        start, stop: the partition's span in ns, half-open.
        period: of a rate clock, in ns; None for a topic clock.
        storage_options: fsspec options by protocol, for what a unit refers to elsewhere.
        portions: by name, if the format is a `PortionedFormat` and the unit is to be kept; otherwise none,
            and the unit contains all its files.
    """

    log_id: str
    log_uri: str
    partition: str
    split: str
    period: int | None = None
    start: int = MIN_TIME
    stop: int = MAX_TIME
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    portions: Mapping[str, Portion] = field(default_factory=dict)


class Writer(Protocol):
    """Writes one unit into a local folder."""

    def append(self, block: Block) -> None:
        """Append the next rows; blocks come in row order.

        Args:
            block: rows of the unit's log and partition.
        """

    def close(self) -> dict[str, Any]:
        """Finishes the files (not yet fsynced).

        Returns:
            The unit's summary for readers and assembly, as JSON.
        """


class FolderKind(Protocol):
    """A kind of plain folders: recognises them, and opens their rows. To be subclassed; see `Format`.

    Attributes:
        name: of the format.
        kind: the value of `--from` for its folders; "" for its name.
        is_generic: whether it recognises everything with its suffix, so that others are tried first.
        mark_folder: the folder within a dataset that may contain a file of ours which no client expects.
    """

    name: str
    kind: str = ""
    is_generic: bool = False
    mark_folder: str = ""

    def recognises(self, store: Store) -> bool:
        """Whether a folder, or the files that a URI names, are a plain folder of this format.

        Args:
            store: the folder.
        """
        return False

    def units(self, store: Store) -> Sequence[RowSource]:
        """Open the sources of a plain folder, in row order; each source knows its own schema.

        Args:
            store: the folder.

        Raises:
            DatasetError: it is damaged.
        """
        raise UsageError(f"{store.uri}: {self.name} opens no plain folders as units; open the root")

    def declared_units(self, store: Store, schema: Schema) -> Sequence[RowSource] | None:
        """Open the sources of a plain folder whose rows have a known schema.

        Args:
            store: the folder, or a unit.
            schema: of the rows.

        Returns:
            The sources, in row order; None if files define the types of their rows, which is the default.

        Raises:
            DatasetError: there are no units.
        """
        return None

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> RowSource:
        """Open the rows of a plain folder, by default those of its `units`.

        Args:
            store: the folder.
            columns: names or globs of the columns to read, so that others can't cause errors.
            known: the rows' description in a manifest, if the folder is an assembled output of a version and
                the format `reads_assembled`.

        Raises:
            DatasetError: it is damaged.
        """
        from logloom.io.rows.chain import UnitsSource

        return UnitsSource(store, self.kind or self.name, list(self.units(store)))

    def typed_rows(
        self,
        store: Store,
        columns: Sequence[str] | None = None,
        *,
        num_workers: int = 1,
        on_error: str = "fail",
    ) -> RowSource:
        """Open the rows of a plain folder for a conversion, by default as `rows` does.

        Files that don't declare all types are read once: a `SurveyedSource`
        (logloom.io.rows.inference.source).

        Args:
            store: the folder.
            columns: as for `rows`.
            num_workers: processes that infer types.
            on_error: "skip" leaves out files that are found damaged while types are inferred, each as a
                skipped log.

        Raises:
            DatasetError: it is damaged.
        """
        return self.rows(store, columns)


class Format(FolderKind, Protocol):
    """A dataset format as the pipelines see it; offered by a part (logloom.parts).

    To be subclassed; attributes with a value here are optional.

    Attributes:
        semantics: incremented when the same rows would give other bytes; part of every unit's identity.
        Options: the model of `outputs.<name>` in a recipe.
        suffix: of a split's folder in a version's view, such as ".zarr".
        splits_share_folder: whether files are named by split themselves, so that a view has one folder.
        preference: the lower, the quicker are random rows. Unless an output is named, the one with the lowest
            number is read, of equal ones the first by name.
        keeps_columns: whether its rows have the columns that were written, not what these were mapped to.
        has_rows: whether `logloom.datasets.open` can read rows of it.
        has_stamps_at_hand: whether its timestamps are read without payload.
        compares_files: whether its reader compares each file that it opens with its recorded size and digest
            (logloom.io.storage.known_files); otherwise all files of a unit are compared before it is opened.
        forms_option: the option with the form of bytes columns: jpg, png, …; "" if there is none.
        shows_units: whether the assembled dataset is complete only in a view, together with files of its
            units. reads_assembled: whether `rows` opens the assembled dataset; otherwise its units are read.
            takes: the field of `Catalogued` that its datasets depend on; "" for none. takes_for_option:
            whether that field replaces the option of the same name. media_type: of its files. hub_files: a
            glob of the files in a split's folder that the viewer of Hugging Face's hub opens; "" for none.
        last: the file of a plain unit or dataset that is written last and marks it as complete; of several
            names, for versions of the format, one.
    """

    semantics: int
    Options: type[BaseModel]
    suffix: str = ""
    splits_share_folder: bool = False
    preference: int = 50
    keeps_columns: bool = True
    has_rows: bool = True
    has_stamps_at_hand: bool = False
    compares_files: bool = False
    forms_option: str = ""
    shows_units: bool = False
    reads_assembled: bool = False
    takes: str = ""
    takes_for_option: bool = False
    media_type: str = "application/octet-stream"
    hub_files: str = ""
    last: tuple[str, ...] = ()

    def check(self, options: Any, schema: Schema) -> list[str]:
        """List what this output can't store, one line each, without the recipe's line number.

        Args:
            options: a value of `Options`.
            schema: of the rows.
        """

    def check_clock(self, options: Any, period: int | None) -> dict[str, str]:
        """List why this output can't store rows of this clock, by the option that doesn't fit it.

        Args:
            options: a value of `Options`.
            period: of a rate clock, in ns; None for a topic clock.
        """
        return {}

    def decoded(self, options: Any, schema: Schema) -> set[str]:
        """List the columns of bytes whose pictures this output decodes, so that all must be valid.

        Args:
            options: a value of `Options`.
            schema: of the rows.

        Returns:
            Their names; none by default.
        """
        return set()

    def encoded(self, options: Any, schema: Schema) -> dict[str, str]:
        """List the columns of pixels that this output encodes as PNG for lack of another option.

        Args:
            options: a value of `Options`.
            schema: of the rows.

        Returns:
            By column the line of a recipe by which the output encodes them otherwise; none by default.
        """
        return {}

    def check_log(self, options: Any, log_id: str, log_uri: str) -> list[str]:
        """List why this output can't store a log of this name, one line each.

        Args:
            options: a value of `Options`.
            log_id: of the log.
            log_uri: the URI of its first file.
        """
        return []

    def check_taken(self, value: Any) -> str:
        """Explain why this output can't store a `value` of the field that it `takes`; "" if it can."""
        return ""

    def writer(self, directory: pathlib.Path, schema: Schema, options: Any, context: UnitContext) -> Writer:
        """Begin a unit.

        Args:
            directory: an empty folder that takes the unit's files.
            schema: of the blocks that are appended.
            options: a value of `Options`.
            context: which partition of which log the unit is of.

        Returns:
            The writer of the unit's rows.
        """

    def reader(
        self,
        directory: str,
        schema: Schema,
        options: Any,
        entry: Mapping[str, Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> RowSource:
        """Open the rows of one finished unit.

        Args:
            directory: the URI of the unit's folder.
            schema: of its rows.
            options: a value of `Options`.
            entry: the result of its writer's `close`.
            storage_options: fsspec options by protocol.
        """

    def columns_of(self, options: Any, schema: Schema) -> Schema | None:
        """The columns of a unit's rows without opening one; None if only a unit records them.

        By default all, or those chosen by options that are `ChosenColumns`, if it `keeps_columns`.

        Args:
            options: a value of `Options`.
            schema: of the version's rows.
        """
        if not self.keeps_columns:
            return None
        return options.stored(schema) if isinstance(options, ChosenColumns) else schema

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """Name a unit's files in the split's folder of a version's view.

        Args:
            number: of the unit in its split, from 0.
            files: names of the unit's files.

        Returns:
            The name in the folder, by the name of each file.
        """
        return {name: f"{number:06d}/{name}" for name in files}

    def again(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Adapt options so that rows read from an output with them become the same output again.

        Args:
            options: as in a recipe.
        """
        return dict(options)

    def proposed(self, schema: Schema, period: int | None) -> dict[str, Any]:
        """Return options, as in a recipe, that a user may write who gave none; {} if all have a default.

        Args:
            schema: of the rows.
            period: of a rate clock, in ns; None for a topic clock.
        """
        return {}


def closed(writer: Writer, digests: RowsDigest) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a writer's summary, and the digest of each column as the unit's reader will read it back.

    Args:
        digests: of the rows that were written.
    """
    unit = writer.close()
    # A format that maps columns returns digests of its own; the others read back what was written.
    return unit, unit.pop("columns", None) or digests.hexdigests()


@dataclass(frozen=True)
class PlannedPortion:
    """Files of a dataset that depend on only some of its units; versions with these units share them.

    Attributes:
        path: of the one file, or of the folder that holds all the files and no others, within the dataset.
        inputs: what their bytes depend on besides `path` and the output's options (JSON); a unit is
            identified by the name of its folder.
        tasks: [start, stop) of the plan's tasks that make them.
    """

    path: str
    inputs: Any
    tasks: tuple[int, int]


@dataclass(frozen=True)
class AssemblyPlan:
    """The plan of one dataset made of many units.

    Attributes:
        tasks: one for each chunk, picklable; each is written by one worker.
        files: small files that belong to no chunk, by name within the output's folder.
        unit: what readers and verification need (JSON).
        marks: names of files, any of which shows that a dataset exists; by default some of `files`, so plans
            without any name a chunk.
        portions: the `tasks` and `files` that versions share; all other files are written for each version.
        reads: for each task the folders of the units that it reads; if missing, each might read any.
    """

    tasks: Sequence[Any]
    files: Mapping[str, bytes]
    unit: Mapping[str, Any]
    marks: Sequence[str] = ()
    portions: Sequence[PlannedPortion] = ()
    reads: Sequence[Sequence[str]] = ()


def unit_name(folder: str) -> str:
    """The identity of the unit in a folder: digest of all that its bytes depend on."""
    return folder.rpartition("/")[2]


@dataclass(frozen=True)
class StagedUnit:
    """A finished unit with rows, as assembly needs it.

    Attributes:
        log_uri: the log's first file.
        folder: of the unit, within the store.
        unit: the result of its writer's `close`.
        columns: digest of each column as the unit's reader reads it back; {} if `planned` replaces them.
        catalogued: the log's fields in a catalogue.
        planned: the result of `parts_json` for it in an earlier plan of the same output; () if it is new.
    """

    log_id: str
    log_uri: str
    split: str
    partition: str
    folder: str
    rows: int
    unit: Mapping[str, Any]
    columns: Mapping[str, str]
    catalogued: Catalogued = field(default_factory=Catalogued)
    planned: Sequence[Any] = ()

    @classmethod
    def of(cls, record: LogRecord, entry: Entry) -> StagedUnit:
        """A unit of a root.

        Args:
            record: of the unit's log.
            entry: of the unit.
        """
        of_log = record.log_id, record.uris[0], record.split
        made = cls(*of_log, entry.partition, entry.folder, entry.rows, entry.unit, entry.columns)
        return replace(made, catalogued=catalogued(record.catalogue)) if record.catalogue else made


@runtime_checkable
class AssembledFormat(Format, Protocol):
    """A format whose units are only stages: one dataset is assembled from all units of a split.

    To be subclassed, with functions of logloom.io.formats.stages and logloom.io.formats.assembly.

    Attributes:
        planned: the model of its plans' `unit`.
    """

    planned: type[BaseModel] = PartsJson

    def plan_assembly(
        self, store: Store, units: Sequence[StagedUnit], schema: Schema, options: Any, period: int | None
    ) -> AssemblyPlan:
        """Plans the dataset from its units; reads no payload.

        Args:
            store: the root.
            units: of one split, in row order.
            schema: of the rows.
            options: a value of `Options`.
            period: of the recipe's clock, ns; None where a topic is the clock.

        Returns:
            The chunks to make, each with the units that it is made of, and the small files.
        """

    def make_chunk(self, store: Store, task: Any) -> tuple[str, bytes]:
        """Make the name and the bytes of one chunk.

        Args:
            store: the root.
            task: one of the plan's.
        """

    def assembled_problems(
        self, folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any]
    ) -> Iterator[str]:
        """List how the dataset, read through its reader, differs from what was written; errors report damage.

        This default is for formats whose `units` read the dataset.

        Args:
            folder: URI of the dataset.
            unit: of its `AssemblyPlan`.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        """
        return row_problems(unit, self.units(Store.at(folder, storage_options)))

    def fresh_problems(
        self, folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any], fresh: Collection[str]
    ) -> Iterator[str]:
        """List how the files of some portions, or of none, differ from what was written.

        For formats that plan portions.

        Args:
            folder: URI of the dataset.
            unit: of its `AssemblyPlan`.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
            fresh: paths of these portions.
        """
        return self.assembled_problems(folder, unit, storage_options)

    def assembled_differences(
        self, folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any]
    ) -> Iterator[str]:
        """List how the dataset differs from what was written, and where it is damaged.

        Args:
            folder: URI of the dataset.
            unit: of its `AssemblyPlan`.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

        Yields:
            One line for each difference.

        Raises:
            DatasetError: `unit` is not valid; names the field.
            StorageError: the dataset can't be read.
        """
        check_unit(self.planned, unit, folder)
        return problems_at(folder, lambda: self.assembled_problems(folder, unit, storage_options))

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """Name the files of a unit that a version's view shows besides the assembled dataset: none.

        Args:
            number: of the unit in its split, from 0.
            files: names of the unit's files.
        """
        return {}
