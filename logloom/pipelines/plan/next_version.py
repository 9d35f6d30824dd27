"""The next version of a root: what plans of builds and of conversions share.

Here: its number and parent; the parent's logs (`Before`), and which of their records change or go.
Elsewhere: the plans (logloom.pipelines.plan.plan, logloom.pipelines.convert.plan), merging
(logloom.io.catalog.page_merge).
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from logloom.caching import cached_property
from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.commit_times import clock
from logloom.io.catalog.entries import FAN_OUT
from logloom.io.catalog.manifest import Manifest, digest_of_manifest, manifest_at
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import GONE, LogRecord, LogStatus
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.row_counts import rows_by_split
from logloom.io.catalog.tombstones import Purged
from logloom.io.catalog.version_files import all_versions, lost_manifest, runs_folder
from logloom.io.logs.log_list import rows_in
from logloom.io.logs.passes import LATER, Pass, later_passes, pass_named
from logloom.io.storage.store import Store
from logloom.schema import Schema
from logloom.text import counted, near_to, some_of
from logloom.transforms.build.job import Target
from logloom.transforms.rows.notices import BuildWarning
from logloom.values import dataclass

AnyTarget = TypeVar("AnyTarget", bound=Target)
_COMPARED = 10_000  # names of logs that an unknown one is compared with
_SHOWN = 20  # names of logs listed by a plan
# Columns that nearly every plan reads, one after the other; together they read each page once.
_PLANNED = (
    "log_id",
    "key",
    "status",
    "content_id",
    "uris",
    "split",
    "rows",
    "part",
    "splits",
    "size",
    "duplicate_of",
)


def next_version(store: Store) -> tuple[Manifest | None, dict[str, Any]]:
    """Return the latest version, None in a new root; and the `Target` that follows it.

    Raises:
        DatasetError: the manifest of the latest one is missing or damaged.
    """
    begun = {"run": new_run(), "started": clock()}
    numbers = all_versions(store)
    if numbers.is_newest_lost:
        raise lost_manifest(store, numbers.lost[-1])  # whose number another version would take
    store = replace(store, fan_out=FAN_OUT)
    if not numbers.there:
        return None, {"store": store, "number": numbers.next, "parent": None, **begun}
    number = numbers.there[-1]
    newest = manifest_at(store, number)  # which gc may have removed since: then another build was first
    return newest, {
        "store": store,
        "number": numbers.next,
        "parent": number,
        "parent_digest": digest_of_manifest(store, number),
        "assembled": newest.assembled,
        **begun,
    }


def new_run() -> str:
    """Return the name of a build, or a repair, in runs/."""
    return uuid.uuid4().hex[:12]


class KnownLog(NamedTuple):
    """Values that a plan needs of each log of the latest version."""

    key: str
    status: str


@dataclass(frozen=True)
class KeptLogs:
    """Number of logs of the latest version kept in the next one, and by split the number of logs and rows."""

    logs: int = 0
    splits: tuple[tuple[str, int, int], ...] = ()


class Before:
    """The logs of the latest version, as columns; `known` are all of them as objects, by log_id."""

    def __init__(self, parent: Manifest | None):
        self.parent = parent
        self._logs = LogRecords() if parent is None else parent.logs
        self.recipe = {} if parent is None else parent.recipe

    @property
    def schema(self) -> Schema | None:
        """Its columns; None if there is no version."""
        return None if self.parent is None else Schema.from_json(self.parent.schema)

    @cached_property
    def known(self) -> Mapping[str, KnownLog]:
        columns = self._logs.columns("log_id", "key", "status").to_pydict()  # all that a conversion needs
        pairs = zip(columns["key"], columns["status"], strict=True)
        return dict(zip(columns["log_id"], map(KnownLog._make, pairs), strict=True))

    @cached_property
    def ids(self) -> pa.Array:
        """(N,) log_ids."""
        return self.column("log_id").combine_chunks()

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of its logs, see `LogRecords.columns`."""
        if name in _PLANNED:
            self._logs.columns(*_PLANNED)
        return self._logs.column(name)

    @cached_property
    def left_out(self) -> frozenset[str]:
        """The dropped logs, which are left out until that is undone."""
        if not self._logs.statuses.get(LogStatus.dropped):
            return frozenset()
        return frozenset(self.ids.take(self._logs.where("status", [LogStatus.dropped])).to_pylist())

    def rows_of(self, log_ids: Iterable[str] | pa.Array) -> NDArray[np.int64]:
        """Return the rows of these logs; -1 for unknown ones."""
        return rows_in(self.ids, log_ids)

    def having(self, log_ids: Collection[str]) -> list[str]:
        """Return those of these logs that it has."""
        return [log_id for log_id, row in zip(log_ids, self.rows_of(log_ids), strict=True) if row >= 0]

    def missing_from(self, log_ids: pa.Array) -> list[str]:
        """Return its logs that aren't among these; ascending."""
        import pyarrow.compute as pc

        found: list[str] = self.ids.filter(pc.invert(pc.is_in(self.ids, log_ids))).to_pylist()
        return sorted(found)

    def later_passes(self, log_ids: Iterable[str]) -> dict[str, str]:
        """See `logloom.io.logs.passes.later_passes`."""
        return later_passes(
            log_ids, lambda ids: {one.log_id: one.uris for one in self.records(self.having(ids))}
        )

    def with_passes(self, log_ids: Collection[str]) -> list[str]:
        """Return those of these logs that it has, and their later passes."""
        import pyarrow.compute as pc

        if not log_ids:
            return []
        named = self.ids.filter(pc.match_substring_regex(self.ids, LATER)).to_pylist()
        wanted = set(log_ids)
        passes = [log_id for log_id, whole in self.later_passes(named).items() if whole in wanted]
        return [*self.having(log_ids), *passes]

    def records(self, log_ids: Iterable[str]) -> Iterator[LogRecord]:
        """Return the records of some of its logs, in order."""
        return self._logs.take(np.sort(self.rows_of(log_ids)))

    def changes(self, records: Sequence[LogRecord], gone: Iterable[str]) -> tuple[LogRecord, ...]:
        """Return changed records, and marks of removed logs, by log_id."""
        rows = self.rows_of([record.log_id for record in records])
        before = {record.log_id: record for record in self._logs.take(np.sort(rows[rows >= 0]))}
        changed = [record for record in records if before.get(record.log_id) != record]
        marks = [LogRecord(log_id, (), "", "all", "", GONE, "", 0, 0, {}, 0, units=0) for log_id in gone]
        return tuple(sorted([*changed, *marks], key=operator.attrgetter("log_id")))

    def kept(self, *but_for: Collection[str] | pa.Array, moved: Sequence[LogRecord] = ()) -> KeptLogs:
        """Return what is kept of it, without the logs of these names.

        Args:
            moved: kept records with another split.
        """
        import pyarrow.compute as pc

        stays = np.ones(len(self._logs), bool)
        for leaving in filter(len, (self.left_out, *but_for)):
            rows = self.rows_of(leaving)
            stays[rows[rows >= 0]] = False
        columns = self._logs.columns("split", "rows", "part", "splits").filter(pa.array(stays))
        if moved:
            splits = np.array(self.column("split").to_pylist(), object)
            splits[self.rows_of([record.log_id for record in moved])] = [one.split for one in moved]
            split = pa.array(splits, pa.string()).filter(pa.array(stays))
            columns = columns.set_column(columns.schema.get_field_index("split"), "split", split)
        with_rows = columns.filter(pc.not_equal(columns["part"], ""))
        return KeptLogs(int(stays.sum()), tuple(rows_by_split(with_rows)))


def passes_of(logs: LogRecords, log_id: str) -> Iterator[LogRecord]:
    """Return the records of the later passes of a log."""
    whole = logs.find(log_id)
    if whole is None or not whole.uris:
        return
    for number in itertools.count(2):
        one = logs.find(Pass(log_id, number).name)
        if one is None or one.uris != whole.uris:
            return
        yield one


def check_whole(store: Store, logs: LogRecords, log_ids: Collection[str]) -> None:
    """Check that none of these logs is a later pass of a log that isn't among them.

    Raises:
        UsageError: one is.
    """
    for log_id in log_ids:
        whole = pass_named(log_id).log_id
        if whole not in log_ids and any(one.log_id == log_id for one in passes_of(logs, whole)):
            raise UsageError(
                f"{store.uri}: {log_id!r} is a pass of log {whole!r}, whose clock was set back; name "
                f"{whole!r}, which includes all its passes"
            )


def where_logs_are(root: str, logs: LogRecords, log_id: str) -> str:
    """Extend a message on an unknown log by the nearest one, and a way to list all."""
    hint = ""
    if len(logs) <= _COMPARED:
        with contextlib.suppress(DatasetError):  # the message is about something else
            hint = near_to(log_id, logs.column("log_id").to_pylist())
    return f"{hint if hint.endswith('?') else ';'} `logloom versions {root} --logs 100` lists logs"


def left_out_note(store: Store, log_ids: Collection[str]) -> list[str]:
    """List the dropped logs that a build leaves out."""
    if not log_ids:
        return []
    they_were = "it was" if len(log_ids) == 1 else "they were"
    names = some_of(sorted(log_ids))
    return [
        f"{counted(len(log_ids), 'log')} left out, as {they_were} dropped ({names}); "
        f"`logloom drop --undo {store.uri} LOG` undoes that"
    ]


def purged_notes(purged: Purged, log_ids: Collection[str]) -> Iterator[str]:
    """List the purged logs that a build leaves out."""
    for log_id in sorted(log_ids)[:_SHOWN]:
        why = "it was purged" if purged.has_named(log_id) else "it has the content of a log that was purged"
        yield f"{log_id}: left out, since {why}"
    if len(log_ids) > _SHOWN:
        yield f"{len(log_ids):,} logs left out, as they were purged; the first {_SHOWN} are listed"


def namesake_warnings(purged: Purged, log_ids: Iterable[str]) -> Iterator[BuildWarning]:
    """Return a warning for each log to build that has the name of a purged one, and another content."""
    for log_id in sorted(log_id for log_id in log_ids if purged.had_whole(log_id)):
        yield BuildWarning(
            f"{log_id}: a log of this name was purged. This one has another content, so it is built; if it "
            "is a repacked copy, exclude its files from the recipe's `logs`",
            kind="purged",
            log=log_id,
        )


def with_changes(job: AnyTarget, changes: Sequence[LogRecord]) -> AnyTarget:
    """Return a job whose changes of the parent's records are in the root, where its workers read them."""
    return replace(job, changes=write_records(job.store, changes, runs_folder(job.number)).pages)


def is_unchanged(job: Target, parent: Manifest) -> bool:
    """Return whether a version of the parent's unchanged logs would equal its parent."""
    outputs = {name: options.model_dump(mode="json") for name, options in job.outputs.items()}
    same_rows = parent.plan == job.plan_identity and dict(parent.outputs) == outputs
    same_keep = parent.recipe.get("keep") == job.recipe.get("keep")
    # No row depends on these, but viewers of a version read them in its recipe.
    same_frames = _frames(parent.recipe) == _frames(job.recipe)
    return same_rows and parent.name == job.name and same_keep and same_frames


def _frames(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the frames of columns for which a recipe defines one; none for a conversion."""
    columns = recipe.get("columns") or {}
    return {name: column["frame"] for name, column in columns.items() if column.get("frame")}
