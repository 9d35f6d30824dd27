"""The data of `logloom report`: a description of a version for people.

Here: `report_of`, which puts it together from the manifest, statistics and some rows, as plain values. The
same version gives the same values, and lists are bounded: what they leave out is counted.
Elsewhere: logs on a time line (logs), rows that are shown (samples), the page (page),
other papers (card, croissant), what the numbers mean (logloom.statistics).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from logloom.errors import LogloomError, UsageError
from logloom.io.catalog.manifest import Manifest, digest_of_manifest, manifest_at
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.row_counts import row_split_names
from logloom.io.catalog.tombstones import Purged
from logloom.io.storage.store import Store
from logloom.pipelines.report.logs import LogLine, SplitCount, Trouble, log_lines, split_counts, troubles
from logloom.pipelines.report.samples import Samples, evenly, samples_of
from logloom.pipelines.stats.stats import (
    VersionStatistics,
    changed_statistics,
    row_split_statistics,
    statistics_of,
)
from logloom.pipelines.stats.totals import has_merged, splits_of
from logloom.pipelines.version_rows import RowsOfLogs
from logloom.pipelines.versions.diff import LogChanges, VersionComparison, compare, recipe_text
from logloom.schema import Schema
from logloom.statistics.columns import Statistics
from logloom.values import dataclass

MAX_SPLITS = 8  # of which statistics are shown one by one
MAX_ANCESTORS = 10
MAX_COUNTED = 2000  # logs whose statistics are read, some milliseconds each, unless all are asked for
MAX_READ = 512 << 20  # bytes of rows that are read to tell the statistics of splits of single rows
_TOO_LARGE = f"it requires reading rows of more than {MAX_READ >> 20} MiB (logloom report --every-log does)"
_CHANGED_LOGS = 20  # that are named, of each kind


@dataclass(frozen=True)
class Ancestor:
    """A version that this one follows from, or itself.

    Attributes:
        problem: why no more is known of it.
    """

    version: int
    logs: int = 0
    rows: int = 0
    reason: str = ""
    problem: str = ""


@dataclass(frozen=True)
class DatasetReport:
    """A version, for people.

    Attributes:
        totals: see `Manifest.counts`.
        dropped: ticks that are no row, by reason.
        columns: of the version.
        statistics: by split, and of all splits under ""; splits alone where they are few.
        no_splits: why statistics by split of single rows are missing; "" if they aren't.
        uncounted: how many logs are not part of the statistics.
        erased: how many logs were purged, of which nothing but counts is shown.
        lines: some logs, by log_id.
        troubles: logs with refused messages, or that are not whole; the worst first.
        troubled: how many such logs there are.
        changes: against the parent; None where it isn't known, and `unchanged_since` says why.
        digest: BLAKE3 of the manifest.
        recipe: as YAML.
    """

    name: str
    version: int
    parent: int | None
    reason: str
    verified: str
    digest: str
    totals: Mapping[str, int]
    dropped: Mapping[str, int]
    splits: tuple[SplitCount, ...]
    outputs: Mapping[str, Mapping[str, Any]]
    software: Mapping[str, str]
    recipe: str
    columns: Schema
    statistics: Mapping[str, VersionStatistics]
    no_splits: str
    uncounted: int
    erased: int
    lines: tuple[LogLine, ...]
    troubles: tuple[Trouble, ...]
    troubled: int
    samples: Samples
    changes: VersionComparison | None
    no_changes: str
    ancestors: tuple[Ancestor, ...]


def report_of(
    store: Store, manifest: Manifest, *, every_log: bool = False, num_workers: int = 1
) -> DatasetReport:
    """Collects what there is to say of a version.

    Args:
        store: the root, as `open_root` gives it.
        manifest: of the version to show.
        every_log: read the statistics of all logs, not of MAX_COUNTED evenly chosen ones; and where single
            rows are split all of these rows, not up to MAX_READ.
        num_workers: processes that read the rows of logs without statistics.

    Returns:
        The samples, counts and statistics, for `page_of`.

    Raises:
        DatasetError: what is read is missing or damaged; names the file.
    """
    present, erased = _without_purged(store, manifest)
    rows = RowsOfLogs(store, present)
    splits = split_counts(manifest)
    found, troubled = troubles(present)
    counted = present if every_log or has_merged(store, present) else _some_logs(present)
    statistics, no_splits = _statistics(store, counted, num_workers, None if every_log else MAX_READ)
    changes, no_changes = _changes(store, manifest)
    return DatasetReport(
        name=manifest.name,
        version=manifest.version,
        parent=manifest.parent,
        reason=manifest.reason,
        verified=manifest.verified,
        digest=digest_of_manifest(store, manifest.version),
        totals=manifest.counts,
        dropped=dict(sorted(manifest.logs.dropped.items(), key=lambda pair: (-pair[1], pair[0]))),
        splits=splits,
        outputs=manifest.outputs,
        software=manifest.software,
        recipe=recipe_text(manifest),
        columns=Schema.from_json(manifest.schema),
        statistics=statistics,
        no_splits=no_splits,
        uncounted=len(present.logs) - len(counted.logs),
        erased=erased,
        lines=tuple(log_lines(rows, present)),
        troubles=found,
        troubled=troubled,
        samples=samples_of(rows, manifest.recipe),
        changes=changes,
        no_changes=no_changes,
        ancestors=tuple(_ancestors(store, manifest)),
    )


def _without_purged(store: Store, manifest: Manifest) -> tuple[Manifest, int]:
    """A version without the logs that were erased on purpose, and how many these are."""
    parts = manifest.logs.column("part").to_pylist()
    purged = Purged(store).parts
    left = [number for number, part in enumerate(parts) if part not in purged]
    if len(left) == len(parts):
        return manifest, 0
    present = LogRecords.of(manifest.logs.take(left))
    return dataclasses.replace(manifest, logs=present), len(parts) - len(left)


def _some_logs(manifest: Manifest) -> Manifest:
    """A version with so many of its logs as a page counts: itself, where these are all."""
    if len(manifest.logs) <= MAX_COUNTED:
        return manifest
    chosen = LogRecords.of(manifest.logs.take(evenly(len(manifest.logs), MAX_COUNTED)))
    return dataclasses.replace(manifest, logs=chosen)


def _statistics(
    store: Store, manifest: Manifest, num_workers: int, max_bytes: int | None
) -> tuple[dict[str, VersionStatistics], str]:
    """Return statistics of all splits, and of each if there are several; and why they aren't by split.

    Args:
        max_bytes: of rows that are read because single rows are split; None for any number.
    """
    of_rows = row_split_names(manifest.logs.column("splits"))
    names = of_rows or splits_of(manifest)
    if not 1 < len(names) <= MAX_SPLITS:
        return {"": statistics_of(store, manifest, num_workers=num_workers)}, ""
    if of_rows:
        whole = statistics_of(store, manifest, num_workers=num_workers)
        try:
            found = row_split_statistics(
                store, manifest, names, whole.schema, num_workers=num_workers, max_bytes=max_bytes
            )
        except UsageError:
            return {"": whole}, "no output has all columns as they were built"
        return {"": whole, **found}, "" if found else _TOO_LARGE
    found = {name: statistics_of(store, manifest, split=name, num_workers=num_workers) for name in names}
    parts = list(found.values())
    whole = dataclasses.replace(
        parts[0],
        splits=tuple(names),
        logs=sum(one.logs for one in parts),
        rows=sum(one.rows for one in parts),
        read=sum(one.read for one in parts),
        statistics=Statistics.merged(one.statistics for one in parts),
    )
    return {"": whole, **found}, ""


def _changes(store: Store, manifest: Manifest) -> tuple[VersionComparison | None, str]:
    """What differs from the parent, or why that isn't known."""
    if manifest.parent is None:
        return None, "This is the first version."
    try:
        parent = manifest_at(store, manifest.parent)
        names = f"{manifest.name}@{parent.version}", f"{manifest.name}@{manifest.version}"
        compared = compare(names, parent, manifest, _CHANGED_LOGS)
        before, after = (_without_purged(store, one) for one in (parent, manifest))
        if before[1] or after[1]:  # whose names are not shown
            logs = LogChanges.between(before[0].logs, after[0].logs, _CHANGED_LOGS)
            compared = dataclasses.replace(compared, logs=logs)
        changed = changed_statistics((store, store), (parent, manifest), MAX_COUNTED)
    except UsageError:
        return None, f"Its parent, version {manifest.parent}, is no longer there."
    except LogloomError as error:
        return None, f"Its parent, version {manifest.parent}, can't be read: {_without_place(store, error)}"
    return dataclasses.replace(compared, statistics=changed), ""


def _ancestors(store: Store, manifest: Manifest) -> list[Ancestor]:
    """The version and those that it follows from, the newest first."""
    found = [_ancestor(manifest)]
    while manifest.parent is not None and len(found) < MAX_ANCESTORS:
        number = manifest.parent
        try:
            manifest = manifest_at(store, number)
        except UsageError:
            return [*found, Ancestor(number, problem="no longer there")]
        except LogloomError as error:
            return [*found, Ancestor(number, problem=_without_place(store, error))]
        found.append(_ancestor(manifest))
    return found


def _ancestor(manifest: Manifest) -> Ancestor:
    sums = manifest.counts
    return Ancestor(manifest.version, sums["logs"], sums["rows"], manifest.reason)


def _without_place(store: Store, error: LogloomError) -> str:
    """Remove the root's place on a machine from a message."""
    return str(error).replace(f"{store.uri}/", "")
