"""The versions of a root one after the other: `versions`, and `log`, which follows one log through them.

Elsewhere: comparing two versions (logloom.pipelines.comparison), what builds left (logloom.pipelines.status).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from logloom.errors import LogloomError, PurgedError, UsageError
from logloom.io.ahead import ahead
from logloom.io.entries import Entry, read_log_part, unit_folder
from logloom.io.log_statistics import read_statistics
from logloom.io.logs.base import MAX_TIME, MIN_TIME
from logloom.io.manifest import (
    Manifest,
    all_versions,
    lost_manifest,
    manifest_at,
    no_version_at,
    open_root,
    version_numbers,
)
from logloom.io.purged import Purged
from logloom.io.shards import LogRecord
from logloom.io.storage import Store
from logloom.io.tags import read_tags
from logloom.pipelines.comparison import LogChanges, sums_of
from logloom.pipelines.status import builds_of
from logloom.schema import Schema
from logloom.statistics.summary import summary

MAX_PARTS = 1000  # of logs, that are read to say how large versions are


@dataclass(frozen=True)
class VersionSummary:
    """A version in a few words.

    Attributes:
        started: when its build began, in seconds since 1970 by that machine's clock; None where unknown.
        run, engine: of the build that committed it; "" where unknown.
        reason: why somebody made it, where no build did.
        bytes: of all units and assembled outputs but for what was purged; None where nobody counted.
        changes: against its parent, counts of logs; None without a parent that is there.
        problem: why no more is known of it.
    """

    version: int
    parent: int | None = None
    name: str = ""
    tags: tuple[str, ...] = ()
    started: int | None = None
    run: str = ""
    engine: str = ""
    reason: str = ""
    logs: int = 0
    rows: int = 0
    units: int | None = None
    bytes: int | None = None
    outputs: tuple[str, ...] = ()
    changes: Mapping[str, int] | None = None
    problem: str = ""


def versions(
    store: Store, last: int | None = None, *, count_bytes: bool | None = None
) -> list[VersionSummary]:
    """The versions of a root, the newest first.

    Args:
        store: the root.
        last: only the newest so many; None for all.
        count_bytes: whether to read the parts of all logs for their sizes; None does it where they are few.

    Returns:
        When and by which build each was made, what it holds, and what changed in it.

    Raises:
        UsageError: there is no version.
    """
    numbers, _, lost = all_versions(store)
    if not (numbers or lost):
        raise no_version_at(store)
    shown = sorted([*numbers, *lost])
    shown = shown[-last:] if last is not None else shown
    tags = read_tags(store)
    sizes: dict[str, int] = {}
    purged = Purged(store)
    found = []
    before: Manifest | None = None
    for number in shown:
        summary = VersionSummary(number, tags=tuple(sorted(tag for tag, at in tags.items() if at == number)))
        try:
            if number in lost:
                raise lost_manifest(store, number)
            manifest = manifest_at(store, number)
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


def _parent_of(store: Store, manifest: Manifest, numbers: list[int]) -> Manifest | None:
    if manifest.parent not in numbers:
        return None
    with contextlib.suppress(LogloomError):  # it is listed, with what is wrong with it
        return manifest_at(store, manifest.parent)
    return None


def _described(summary: VersionSummary, manifest: Manifest, parent: Manifest | None) -> VersionSummary:
    sums = sums_of(manifest)
    changes = None if parent is None else LogChanges.between(parent.logs, manifest.logs).counts
    return replace(
        summary,
        parent=manifest.parent,
        name=manifest.name,
        reason=manifest.reason,
        logs=sums["logs"],
        rows=sums["rows"],
        units=sums.get("units"),
        outputs=tuple(manifest.outputs),
        changes=changes,
    )


def _with_run(store: Store, summary: VersionSummary) -> VersionSummary:
    """What runs/ tells of the build that made it; the rest of a version stands without it."""
    with contextlib.suppress(LogloomError):
        done = [one for one in builds_of(store, summary.version) if one.state == "committed"]
        for one in done[-1:]:  # two that committed the same bytes: the first
            return replace(summary, started=one.started or None, run=one.run, engine=one.engine)
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
    folders = ((unit_folder(part.output, part.identity), part.size) for part in manifest.assembled)
    shared = sum(size for folder, size in folders if folder not in purged.folders)
    return sum(sizes[part] for part in parts) + shared


# --- one log --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogStay:
    """What some versions, all alike, say of a log.

    Attributes:
        versions: their numbers, ascending.
        units: of all outputs, each with its folder within the root; none where the log has no rows or was
            purged.
        columns: what the build counted of its columns (see docs/statistics.md); None where it didn't, or the
            log was purged.
    """

    versions: tuple[int, ...]
    record: LogRecord
    units: tuple[tuple[str, Entry], ...] = field(default=(), repr=False)
    columns: Mapping[str, Mapping[str, Any]] | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """See docs/versions.md."""
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
        return {"versions": list(self.versions), **asdict(self.record), **extent}


def follow(store: Store, log_id: str) -> list[LogStay]:
    """What the versions of a root say of a log, the newest first; successive ones that agree as one.

    Args:
        store: the root.
        log_id: of the log.

    Returns:
        What each range of versions says of it, and its units.

    Raises:
        UsageError: no version has this log.
        DatasetError: a manifest, or what it names, is missing or damaged.
    """
    store = open_root(store)[0]
    found: list[tuple[list[int], LogRecord]] = []
    last: LogRecord | None = None
    for number, record in _records(store, log_id):
        if record is None:
            last = None
        elif record == last:
            found[-1][0].append(number)
        else:
            found.append(([number], record))
            last = record
    if not found:
        raise UsageError(
            f"{store.uri}: no version has a log {log_id!r}; `logloom diff` and `head` show log_ids"
        )
    return [
        LogStay(tuple(numbers), record, _units(store, record), _columns(store, numbers[-1], record))
        for numbers, record in reversed(found)
    ]


def _columns(store: Store, version: int, record: LogRecord) -> dict[str, dict[str, Any]] | None:
    if not record.statistics:
        return None
    try:
        found = read_statistics(store, record)
    except PurgedError:
        return None
    return summary(found, Schema.from_json(manifest_at(store, version).schema))


def _units(store: Store, record: LogRecord) -> tuple[tuple[str, Entry], ...]:
    try:
        units = read_log_part(store, record.part, brief=True) if record.part else ()
    except PurgedError:
        return ()
    return tuple((store.stored_name(unit.folder), unit) for unit in units)


def _records(store: Store, log_id: str) -> Iterator[tuple[int, LogRecord | None]]:
    """A log's record in each version; a shard that versions share is read once."""
    known: dict[str, LogRecord | None] = {}
    for number in version_numbers(store):
        logs = manifest_at(store, number).logs
        shard = logs.shard_for(log_id)
        digest = "" if shard is None else shard.digest
        if not digest:
            yield number, logs.find(log_id)
            continue
        if digest not in known:
            known[digest] = logs.find(log_id)
        yield number, known[digest]
