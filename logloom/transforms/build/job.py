"""The job of a build, an input of every step: logs, partitions, names of units.

Here: small picklable values, and identities (digests of all that a unit's bytes depend on): `Job`, `LogJob`.
Elsewhere: making a job from a recipe (logloom.pipelines.plan.plan), the steps (partition, finish, ...), jobs
whose rows come from a dataset (conversion).
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
from pydantic import BaseModel

from logloom.blocks import Block
from logloom.caching import cached_property
from logloom.digests import RowsDigest, digest_of, digests_of
from logloom.errors import LogloomError, LogReadError, UsageError
from logloom.io.catalog.entries import Entry
from logloom.io.catalog.labels import LogLabels, read_labels
from logloom.io.catalog.log_tables import catalogued, without_label_files
from logloom.io.catalog.manifest import Assembled, Manifest
from logloom.io.catalog.pages import LogStatus, RecordPage
from logloom.io.formats.registry import format_named, options_of
from logloom.io.logs.interface import Log, OpenOptions, Refusal
from logloom.io.logs.table_files.name_times import timing_names
from logloom.io.rows.log_ranges import LogRange
from logloom.io.storage.store import Store
from logloom.query.where import SEMANTICS as FILTER_SEMANTICS
from logloom.recipe.model import Recipe
from logloom.schema import ColumnType, Schema, dtype_to_json
from logloom.software import software
from logloom.text import counted, some_of
from logloom.transforms.build.journal import Journal
from logloom.transforms.build.settings import BuildSettings
from logloom.transforms.rows.derive.columns import DeriveError
from logloom.transforms.rows.derive.python_files import PythonFile, load_files
from logloom.transforms.rows.plan.row_plan import RowPlan, Span
from logloom.uris import is_local
from logloom.values import dataclass

# Counts up when decoding or resampling would give other values for the same log and recipe.
READING_SEMANTICS = 3
# Kinds of failures for which a log is left out, but for `on_error: fail`.
_LEFT_OUT = ("log", "derive", "rows", "worker")


@dataclass(frozen=True)
class LogTask:
    """A log to build.

    Attributes:
        uris: in the order in which they are joined; in name order if the log has not been opened yet.
        content_id: "" if it has not been opened yet.
        key: digest of all that the log's rows and files depend on; "" if it has not been opened yet.
        listed: its identification in later listings; "" if there is none, or the driver remembers it.
        catalogue: see `LogRecord.catalogue`.
        before: key of its record in the parent version, where a worker is to tell whether that stays; ""
            where it doesn't, or there is none.
        replaces: digest of the part of its record in the parent version, "" where that has none, if it was
            skipped or salvaged and has this content id, by the ends of files that may be whole now. Units are
            called otherwise than those in it, whose rows may be others. None elsewhere.
        duplicate_of: see `LogRecord.duplicate_of`.
    """

    log_id: str
    uris: tuple[str, ...]
    content_id: str
    split: str
    key: str
    listed: str = ""
    catalogue: str = ""
    before: str = ""
    replaces: str | None = None
    duplicate_of: str = ""

    @property
    def stays(self) -> bool:
        """Whether a worker found that its record in the parent version is current."""
        if not (self.before and self.key):
            return False
        if self.replaces is not None:
            return self.before == survivors_key(self.key, software())  # whoever reads it may die once more
        # No other record than one that was skipped has the key of those.
        return is_key_of(self.key, self.before, LogStatus.skipped)


@dataclass(frozen=True)
class PartitionTask:
    """One span of one log, or one part of a source: what one worker builds, alone."""

    log: LogTask
    span: Span | LogRange


class PartitionRows(Protocol):
    """The rows of a partition, to be iterated once."""

    def __iter__(self) -> Iterator[Block]: ...

    def account(self, rows: int, digests: RowsDigest) -> dict[str, Any]:
        """How messages were used, as an entry's `tally` says it, once all blocks were taken.

        Args:
            rows, digests: of all blocks.

        Raises:
            ReadBackError: these are not the rows that the source was made of.
        """

    def refused(self) -> Mapping[str, Sequence[Refusal]]:
        """Return the messages without which the latest rows were made, by column."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A version to be made, as the steps see it that don't ask where its rows come from.

    Attributes:
        outputs: name to the output's options.
        changes: pages in runs/ of what changes in the parent's records beside logs that are built: those
            that are out of the recipe's reach, or that can't be read.
        number, parent: of the version that is committed; fixed when the job is submitted.
        skip_budget: the share of the logs that may be skipped, 0 where there is no limit.
        settings: what people chose for this build.
        parent_digest: BLAKE3 of the parent's manifest; "" without a parent.
        assembled: the parent's assembled outputs.
        references: digests of the datasets that outputs point into, by output.
        reason: see `Manifest.reason`.
        run: name of this submission; in no file's bytes, only in the name of its outcome.
        started: time of planning, seconds since the Unix epoch; recorded next to the manifest and in runs/.
        block_bytes: how many bytes of rows a worker holds at a time.
        bundle: how many partitions of a log pass through the engine together at most.
        if_changed: nothing is committed where the records turn out to be the parent's.
        journal: records notes of the work, for displays of progress.
    """

    store: Store
    name: str
    recipe: Mapping[str, Any]
    outputs: Mapping[str, BaseModel]
    number: int
    parent: int | None
    changes: tuple[RecordPage, ...] = ()
    skip_budget: float = 0.0
    settings: BuildSettings = field(default_factory=BuildSettings)
    parent_digest: str = ""
    assembled: tuple[Assembled, ...] = ()
    references: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    run: str = "again"
    started: int = 0
    block_bytes: int = 64 << 20
    bundle: int = 1
    if_changed: bool = False
    journal: Journal = field(default_factory=Journal)

    @property
    def schema(self) -> Schema:
        """The columns of the rows."""
        raise NotImplementedError

    @property
    def period(self) -> int | None:
        """Of a rate clock, in ns; None for a topic clock."""
        raise NotImplementedError

    @property
    def plan_identity(self) -> str:
        """Digest of what all rows depend on beside the logs."""
        raise NotImplementedError

    @property
    def dependencies(self) -> Mapping[str, str]:
        """See `Manifest.dependencies`."""
        return {}

    def over_budget(self, skipped: int, total: int, names: Callable[[], Iterable[str]]) -> str:
        """Why a build may not commit that skips so many of its logs; "" where it may."""
        if not self.skip_budget or skipped <= self.skip_budget * total:
            return ""
        budget = f"{self.skip_budget:.2%}"
        return (
            f"{skipped} of {counted(total, 'log')} skipped, over the budget of {budget}: {some_of(names())}"
        )

    def output_identity(self, output: str) -> list[Any]:
        """What an output's files depend on beside the rows."""
        options = self.outputs[output].model_dump(mode="json")
        semantics = format_named(output).semantics
        return [output, semantics, options, self.references.get(output, "")]

    def log_key(
        self, log_id: str, content_id: str, uris: tuple[str, ...], split: str, catalogue: str = ""
    ) -> str:
        """Digest of all that a log's record depends on."""
        catalogued = [without_label_files(catalogue)] if catalogue else []
        return digest_of([*self._key_of_all, log_id, content_id, list(uris), split, *catalogued])

    def log_keys(self, logs: Iterable[str]) -> Iterator[str]:
        """As `log_key`, of many logs of which no table says anything.

        Args:
            logs: of each its log_id, content id, URIs and split as canonical JSON, with commas between them.
        """
        return digests_of(self._key_of_all, logs)

    @cached_property
    def _key_of_all(self) -> list[Any]:
        return [self.plan_identity, [self.output_identity(output) for output in self.outputs]]


@dataclass(frozen=True, kw_only=True)
class Job(Target):
    """A version made of units, as its workers know it, wherever their rows come from.

    Attributes:
        source_error: what a source that can't be read raises.
    """

    source_error: ClassVar[type[LogloomError]]

    @property
    def on_error(self) -> str:
        """What becomes of a source that is damaged: "fail", "skip", or of logs "salvage"."""
        raise NotImplementedError

    @property
    def failure_kinds(self) -> Mapping[type[Exception], str]:
        """The kind of failure that an error is, the first that fits; see `Failure`."""
        raise NotImplementedError

    @property
    def left_out(self) -> Sequence[str]:
        """The kinds of failures for which a log, or a part of it, is left out."""
        raise NotImplementedError

    def rows_of(self, partition: PartitionTask) -> PartitionRows:
        """The rows that the units of a partition hold."""
        raise NotImplementedError

    def unit_identity(self, output: str, log: LogTask, span: Span | LogRange) -> str:
        """The name of one partition's unit of one output."""
        where = self._place(log, span)
        return digest_of([self.plan_identity, self.output_identity(output), where])[:32]

    def _place(self, log: LogTask, span: Any) -> list[Any]:
        """Which rows of which content a partition has."""
        raise NotImplementedError

    def blank_entry(self, output: str, log: LogTask, span: Span | LogRange) -> Entry:
        """The entry of a unit before it is built: which it is, and nothing of what it holds."""
        return Entry(
            output=output,
            identity=self.unit_identity(output, log, span),
            log_id=log.log_id,
            content_id=log.content_id,
            partition=span.name,
            start=span.start,
            stop=span.stop,
            rows=0,
            files=(),
            columns={},
            unit={},
            tally={},
            software=software(),
            statistics="",
        )


@dataclass(frozen=True, kw_only=True)
class LogJob(Job):
    """A build from logs.

    Attributes:
        py_files: with functions that columns are derived by.
        held_to: the recipe, where workers open logs that the driver didn't, and hold them to it.
    """

    source_error = LogReadError
    failure_kinds = MappingProxyType({LogReadError: "log", DeriveError: "derive", UsageError: "recipe"})

    plan: RowPlan
    open_options: OpenOptions
    py_files: tuple[PythonFile, ...] = ()
    held_to: Recipe | None = None

    @property
    def on_error(self) -> str:
        return self.open_options.on_error

    @property
    def left_out(self) -> Sequence[str]:
        return () if self.on_error == "fail" else _LEFT_OUT

    @cached_property
    def plan_identity(self) -> str:
        return digest_of([*self.reading_identity, plain(self._plan_of_values)])

    @property
    def _plan_of_values(self) -> RowPlan:
        """The plan without what changes no value of a log that was built without it.

        If a log that doesn't fit ends the build, all that was built has the planned types, so `dtype` may be
        added for a log with others.
        """
        if self.on_error != "fail":
            return self.plan
        return replace(self.plan, columns=tuple(replace(one, casts=False) for one in self.plan.columns))

    @property
    def reading_identity(self) -> list[Any]:
        """What rows depend on beside logs and plan: how logs are read."""
        options = self.open_options
        names = [list(options.time_names)] if options.time_names else []
        extent = [plain(options.extent)] if any(options.extent) else []
        part = [{"set_back": options.set_back}] if options.set_back else []
        tables = [{"dialects": [one.to_data() for one in options.tables]}] if options.tables else []
        alternatives = [{"any": options.alternatives.to_data()}] if options.alternatives else []
        filtered = [{"filters": FILTER_SEMANTICS}] if self.plan.where else []
        return [
            READING_SEMANTICS,
            options.on_error,
            *names,
            *extent,
            *part,
            *tables,
            *alternatives,
            *filtered,
        ]

    @property
    def dependencies(self) -> Mapping[str, str]:
        return self.plan.dependencies

    @property
    def schema(self) -> Schema:
        return self.plan.schema

    @property
    def period(self) -> int | None:
        return self.plan.period

    def rows_of(self, partition: PartitionTask) -> PartitionRows:
        """See `Job.rows_of`; from the messages of a log."""
        log, span = partition.log, partition.span
        assert isinstance(span, Span)
        load_files(self.py_files)
        source, labels = opened(self, log), self.labels_of(log)
        how = self.open_options.on_error
        from logloom.transforms.rows.row_stream import build_blocks  # only workers make rows

        return build_blocks(
            source, log.log_id, self.plan, span, max_bytes=self.block_bytes, labels=labels, on_error=how
        )

    def labels_of(self, log: LogTask) -> dict[str, LogLabels]:
        """The labels of a log, by column; none of a log without labels.

        Raises:
            DatasetError: what the root keeps of them is missing or damaged.
        """
        return read_labels(self.store, log.catalogue) if self.plan.labels else {}

    def _place(self, log: LogTask, span: Span) -> list[Any]:
        return place_of(self.plan, log, span, self.open_options)


@dataclass(frozen=True, kw_only=True)
class Committed(Target):
    """A committed version, for reading it or rebuilding parts of it."""

    manifest: Manifest

    @classmethod
    def of(cls, store: Store, manifest: Manifest) -> Committed:
        return cls(
            store=store,
            name=manifest.name,
            recipe=manifest.recipe,
            outputs=options_of(store, manifest),
            number=manifest.version,
            parent=manifest.parent,
            manifest=manifest,
        )

    @cached_property
    def schema(self) -> Schema:
        return Schema.from_json(self.manifest.schema)

    @property
    def period(self) -> int | None:
        return self.manifest.period

    @property
    def plan_identity(self) -> str:
        return self.manifest.plan

    @property
    def dependencies(self) -> Mapping[str, str]:
        return self.manifest.dependencies


def survivors_key(key: str, made_by: Mapping[str, str]) -> str:
    """The key of the record of a log that workers died of: other software may survive it."""
    return digest_of([key, dict(made_by)])


def is_key_of(key: str, record_key: str, status: str, made_by: Mapping[str, str] | None = None) -> bool:
    """Whether a record, by its key and status, is that of a log with this key.

    Args:
        made_by: software; ours by default.
    """
    return record_key == key or (
        status == LogStatus.skipped and record_key == survivors_key(key, made_by or software())
    )


def place_of(plan: RowPlan, log: LogTask, span: Span, options: OpenOptions) -> list[Any]:
    """Which rows of which content a partition has, and which labels these may have."""
    digests = catalogued(log.catalogue).labels if plan.labels else {}
    labels = {column.name: digests[column.name] for column in plan.labels if column.name in digests}
    place: list[Any] = [log.log_id, log.content_id, span.start, span.stop, span.ticks]
    if names := timing_names(log.uris, options.time_names):
        place.append(names)
    if log.replaces:
        place.append({"replaces": log.replaces})
    return [*place, labels] if labels else place


def plain(value: Any) -> Any:
    """Dataclasses, dtypes and decimals as JSON values, for digests.

    A field that is empty by default is left out while it is, so that a new one changes no digest.
    """
    if isinstance(value, ColumnType):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        silent = {f.name for f in dataclasses.fields(value) if not f.default and fields[f.name] == f.default}
        return [kind, {name: plain(item) for name, item in fields.items() if name not in silent}]
    if isinstance(value, np.dtype):
        return dtype_to_json(value)
    if isinstance(value, Decimal):
        return str(value.normalize())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


@functools.lru_cache(maxsize=4)
def _open(uris: tuple[str, ...], log_id: str, options: _Hashable, state: object) -> Log:
    from logloom.io.logs.opening import open_log

    return open_log(uris, options.value, log_id)


@dataclass(frozen=True)
class _Hashable:
    """Options as a cache key: their file system settings are a dict."""

    value: OpenOptions

    def __hash__(self) -> int:
        return hash((self.value.on_error, self.value.sidecars, self.value.hash))


def _state_of(uris: tuple[str, ...]) -> object:
    """What changes when a local file does, so that a file that was replaced is opened again."""
    stats = [os.stat(uri) for uri in uris if is_local(uri) and os.path.exists(uri)]
    return tuple((s.st_ino, s.st_size, s.st_mtime_ns) for s in stats)


def opened_now(job: LogJob, log_id: str, uris: Sequence[str]) -> Log:
    """The log of these files, whatever it holds; kept open for the next who asks in this process.

    Raises:
        LogReadError: it can't be read.
    """
    return _open(tuple(uris), log_id, _Hashable(job.open_options), _state_of(tuple(uris)))


def opened(job: LogJob, task: LogTask) -> Log:
    """The log of a task; kept open for the next partition that this process builds of it.

    Raises:
        LogReadError: it can't be read, or is no longer what was planned.
    """
    log = opened_now(job, task.log_id, task.uris)
    if log.summary.content_id != task.content_id:
        raise LogReadError(f"{task.uris[0]}: no longer the log that was planned or built from; build again")
    return log
