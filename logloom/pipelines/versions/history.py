"""Versions of a root, logs of one version, and a log's history, for `versions`.

Elsewhere: comparing two versions (logloom.pipelines.versions.diff), what builds left
(logloom.pipelines.status).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any

from logloom.errors import DatasetError, LogloomError, PurgedError, UsageError
from logloom.io.catalog.commit_times import first_since, is_day, read_times
from logloom.io.catalog.entries import Entry, read_log_part
from logloom.io.catalog.log_statistics import read_statistics
from logloom.io.catalog.manifest import Manifest, as_laid_out, manifest_at, no_version_at, resolve_version
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.removed_versions import had_log
from logloom.io.catalog.tags import read_tags
from logloom.io.catalog.tombstones import Purged
from logloom.io.catalog.version_files import all_versions, lost_manifest
from logloom.io.logs.interface import MAX_TIME, MIN_TIME
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.pipelines.plan.next_version import where_logs_are
from logloom.pipelines.status import BuildState, builds_of
from logloom.pipelines.versions.diff import LogChanges
from logloom.pipelines.versions.log_counts import reason_in_words
from logloom.schema import Schema
from logloom.statistics.summary import summary
from logloom.values import dataclass

MAX_PARTS = 1000  # of logs, that are read to say how large versions are


@dataclass(frozen=True)
class VersionSummary:
    """A version in a few words.

    Attributes:
        started, committed: when its build began, and when it ended with this version, in seconds since 1970
            by the clocks of those machines; None where unknown.
        run, engine: of the build that committed it; "" where unknown.
        reason: why it was made, if not by a build.
        logs, rows, units: counts of its contents; None if unknown.
        statuses: number of its logs by status; None if unknown.
        bytes: of all units and assembled outputs except purged ones; None if not counted.
        changes: against its parent, counts of logs; None without a parent that is there, and whole.
        problem: why no more is known of it.
    """

    version: int
    parent: int | None = None
    name: str = ""
    tags: tuple[str, ...] = ()
    started: int | None = None
    committed: int | None = None
    run: str = ""
    engine: str = ""
    reason: str = ""
    logs: int | None = None
    rows: int | None = None
    units: int | None = None
    statuses: Mapping[str, int] | None = None
    bytes: int | None = None
    outputs: tuple[str, ...] = ()
    changes: Mapping[str, int] | None = None
    problem: str = ""


def versions(
    store: Store, last: int | None = None, *, since: str = "", count_bytes: bool | None = None
) -> list[VersionSummary]:
    """The versions of a root, the newest first.

    Args:
        store: the root.
        last: only the newest so many; None for all.
        since: only those that were committed on this day or later, as in 2026-11-24, but for those of unknown
            time; or from this version on, by number or tag. "" for all.
        count_bytes: whether to read the parts of all logs for their sizes; None does it where they are few.

    Returns:
        When and by which build each was made, what it holds, and what changed in it.

    Raises:
        UsageError: there is no version.
    """
    numbers, removed, lost = all_versions(store)
    if not (numbers or lost):
        raise no_version_at(store)
    shown = sorted([*numbers, *lost])
    tags = read_tags(store)
    if since:
        is_dated = is_day(since) and since not in tags
        first = first_since(store, since, sorted([*shown, *removed])) if is_dated else None
        first = resolve_version(store, since) if first is None else first
        shown = [number for number in shown if number >= first]
    shown = shown[-last:] if last is not None else shown
    sizes: dict[str, int] = {}
    purged = Purged(store)
    found = []
    before: Manifest | None = None
    for number in shown:
        summary = VersionSummary(number, tags=tuple(sorted(tag for tag, at in tags.items() if at == number)))
        try:
            manifest = _manifest_of(store, number, lost)
            if before is None or before.version != manifest.parent:
                before = _parent_of(store, manifest, numbers)
            summary = _described(summary, manifest, before)
            size = _bytes_of(store, manifest, sizes, purged, count_bytes)
            found.append(replace(_with_run(store, summary), bytes=size))
            before = manifest
        except LogloomError as error:
            found.append(replace(summary, problem=str(error)))
            before = None
    return found[::-1]


def _manifest_of(store: Store, number: int, lost: Collection[int]) -> Manifest:
    """The manifest of a version.

    Raises:
        DatasetError: it is lost, or damaged.
    """
    if number in lost:
        raise lost_manifest(store, number)
    return manifest_at(store, number)


def _parent_of(store: Store, manifest: Manifest, numbers: list[int]) -> Manifest | None:
    if manifest.parent not in numbers:
        return None
    with contextlib.suppress(LogloomError):  # it is listed, with what is wrong with it
        return manifest_at(store, manifest.parent)
    return None


def _described(summary: VersionSummary, manifest: Manifest, parent: Manifest | None) -> VersionSummary:
    sums = manifest.counts
    changes = None if parent is None else _changes(parent, manifest)
    return replace(
        summary,
        parent=manifest.parent,
        name=manifest.name,
        reason=manifest.reason,
        logs=sums["logs"],
        rows=sums["rows"],
        units=sums["units"],
        statuses=manifest.logs.statuses,
        outputs=tuple(manifest.outputs),
        changes=changes,
    )


def _changes(parent: Manifest, manifest: Manifest) -> Mapping[str, int] | None:
    """How many logs differ; None where it is the parent that can't tell.

    Raises:
        DatasetError: a page of the version itself is missing or damaged.
    """
    try:
        return LogChanges.between(parent.logs, manifest.logs).counts
    except DatasetError:
        _, problems = manifest.logs.whole()
        if problems:
            raise
        return None


def _with_run(store: Store, summary: VersionSummary) -> VersionSummary:
    """Add the record of the build that made it, if there is one."""
    with contextlib.suppress(DatasetError):  # `verify` names it
        if times := read_times(store, summary.version):
            summary = replace(summary, started=times.started or None, committed=times.committed)
    with contextlib.suppress(LogloomError):
        done = [one for one in builds_of(store, summary.version) if one.state == BuildState.committed]
        for one in done[-1:]:  # two that committed the same bytes: the first
            started = summary.started or one.started or None
            return replace(summary, started=started, run=one.run, engine=one.engine)
    return summary


def _bytes_of(
    store: Store, manifest: Manifest, sizes: dict[str, int], purged: Purged, count: bool | None
) -> int | None:
    """Bytes of a version's units and assembled outputs.

    Args:
        sizes: of parts of logs that were read for other versions; takes those that are.
    """
    if count is False or (count is None and len(manifest.logs) > MAX_PARTS):
        return None
    parts = [part for part in manifest.logs.column("part").to_pylist() if part]
    new = [part for part in dict.fromkeys(parts) if part not in sizes]
    if count is None and len(sizes) + len(new) > MAX_PARTS:
        return None

    def read(part: str) -> tuple[str, int]:
        return part, sum(entry.size for entry in read_log_part(store, part, brief=True))

    sizes.update(dict.fromkeys(new, 0))
    sizes.update(ahead(read, [part for part in new if part not in purged.parts]))
    folders = ((part.folder, part.size) for part in manifest.assembled)
    shared = sum(size for folder, size in folders if folder not in purged.folders)
    return sum(sizes[part] for part in parts) + shared


# --- one log --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogStay:
    """Equal records of a log in some versions.

    Attributes:
        versions: their numbers, ascending.
        record: the record, of status "purged" if the log was; None if unknown.
        units: of all outputs, each with its folder within the root; none where the log has no rows or was
            purged.
        columns: what the build counted of its columns (see docs/statistics.md); None where it didn't, or the
            log was purged.
        removed: these versions had it, and were removed by `logloom gc`; no more is known.
        problem: why no more is known.
    """

    versions: tuple[int, ...]
    record: LogRecord | None
    units: tuple[tuple[str, Entry], ...] = field(default=(), repr=False)
    columns: Mapping[str, Mapping[str, Any]] | None = field(default=None, repr=False)
    problem: str = ""
    removed: bool = False

    def to_json(self) -> dict[str, Any]:
        """See docs/versions.md."""
        named = {"versions": list(self.versions), "problem": self.problem, "removed": self.removed}
        if self.record is None:
            return named
        units = [
            {
                "output": unit.output,
                "partition": unit.partition,
                "identity": unit.identity,
                "folder": folder,
                "rows": unit.rows,
                "bytes": unit.size,
                "start": None if unit.start == MIN_TIME else unit.start,
                "stop": None if unit.stop == MAX_TIME else unit.stop,
            }
            for folder, unit in self.units
        ]
        extent = {"units": units, "columns": self.columns}
        return {**named, **asdict(self.record), **extent}


@dataclass(frozen=True)
class LogInBrief:
    """A log of a version in a few words.

    Attributes:
        reason: the first of why it isn't whole, or of what is strange about it, or which log has the same
            content; "" for nothing.
    """

    log_id: str
    split: str
    status: str
    rows: int
    reason: str


def listed_logs(store: Store, manifest: Manifest, most: int) -> list[LogInBrief]:
    """The first so many logs of a version, by log_id."""
    purged = Purged(store)
    records = manifest.logs.take(range(min(most, len(manifest.logs))))
    return [
        LogInBrief(
            one.log_id,
            ", ".join(one.split_names),
            LogStatus.purged if one.part in purged.parts else one.status,
            one.rows,
            reason_in_words(one.reasons, one.uris) or _same_content(one),
        )
        for one in records
    ]


def _same_content(record: LogRecord) -> str:
    return f"same content as {record.duplicate_of}" if record.duplicate_of else ""


def follow(store: Store, log_id: str) -> list[LogStay]:
    """What the versions of a root say of a log, the newest first; successive ones that agree as one.

    Args:
        store: the root.
        log_id: of the log.

    Returns:
        What each range of versions says of it, and its units; of one that is damaged or lost, the problem.
        Then the removed versions that had it, and those of which that isn't known.

    Raises:
        UsageError: no version that can be read has this log, or had it.
    """
    numbers, removed, lost = all_versions(store)
    if not (numbers or lost):
        raise no_version_at(store)
    store = as_laid_out(store)
    found: list[LogStay] = []
    known: dict[str, LogRecord | None] = {}
    last: LogRecord | None = None
    newest = LogRecords()
    for number in sorted([*numbers, *lost]):
        try:
            manifest = _manifest_of(store, number, lost)
            record = _record_in(manifest, log_id, known)
        except DatasetError as error:
            last = None
            found.append(LogStay((number,), None, problem=str(error)))
            continue
        newest = manifest.logs
        if record is not None and record == last:
            found[-1] = replace(found[-1], versions=(*found[-1].versions, number))
        elif record is not None:
            found.append(LogStay((number,), record))
        last = record
    past = _past_of(store, log_id, removed)
    if not any(one.record for one in found) and not any(one.removed and not one.problem for one in past):
        found += past
        problems = "".join(f"\nversion {one.versions[0]}: {one.problem}" for one in found)
        where = where_logs_are(store.uri, newest, log_id)
        raise UsageError(f"{store.uri}: no version has a log {log_id!r}{where}{problems}")
    return [*(_with_extent(store, one) for one in reversed(found)), *past]


def _past_of(store: Store, log_id: str, removed: Sequence[int]) -> list[LogStay]:
    """Return removed versions that had a log, or may have had it; successive ones as one, the newest
    first.
    """
    known: dict[str, bool | None] = {}
    had = {number: _had(store, number, log_id, known) for number in removed}
    found: list[LogStay] = []
    for _, run in itertools.groupby(removed, lambda number: had[number]):
        numbers = tuple(run)
        if had[numbers[0]] is None:
            why = "was removed by `logloom gc`, and its logs weren't recorded"
            found.append(LogStay(numbers, None, problem=why, removed=True))
        elif had[numbers[0]]:
            found.append(LogStay(numbers, None, removed=True))
    return found[::-1]


def _had(store: Store, number: int, log_id: str, known: dict[str, bool | None]) -> bool | None:
    """Return whether a removed version had a log; None if unknown.

    Args:
        known: by the digest of a page whether that had it; takes what is found.
    """
    try:
        logs = manifest_at(store, number).logs
        page = logs.page_for(log_id)
        if page is None or not page.digest:
            return page is not None and logs.find(log_id) is not None
        if page.digest not in known:
            known[page.digest] = had_log(store, page.digest, log_id)
        if known[page.digest] is None:  # it hasn't been removed yet
            known[page.digest] = logs.find(log_id) is not None
        return known[page.digest]
    except LogloomError:
        return None


def _with_extent(store: Store, stay: LogStay) -> LogStay:
    """With the units of the log and what was counted of its columns."""
    if stay.record is None:
        return stay
    try:
        units, columns = _units(store, stay.record), _columns(store, stay.versions[-1], stay.record)
    except PurgedError:
        return replace(stay, record=replace(stay.record, status=LogStatus.purged))
    except DatasetError as error:
        return replace(stay, problem=str(error))
    return replace(stay, units=units, columns=columns)


def _columns(store: Store, version: int, record: LogRecord) -> dict[str, dict[str, Any]] | None:
    if not record.statistics:
        return None
    return summary(read_statistics(store, record), Schema.from_json(manifest_at(store, version).schema))


def _units(store: Store, record: LogRecord) -> tuple[tuple[str, Entry], ...]:
    units = read_log_part(store, record.part, brief=True) if record.part else ()
    return tuple((store.stored_name(unit.folder), unit) for unit in units)


def _record_in(manifest: Manifest, log_id: str, known: dict[str, LogRecord | None]) -> LogRecord | None:
    """A log's record in a version.

    Args:
        known: by the digest of pages that were read for other versions; takes the one that is.
    """
    logs = manifest.logs
    page = logs.page_for(log_id)
    if page is None or not page.digest:
        return logs.find(log_id)
    if page.digest not in known:
        known[page.digest] = logs.find(log_id)
    return known[page.digest]
