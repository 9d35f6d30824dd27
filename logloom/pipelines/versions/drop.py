"""`plan_drop`: a version without some logs, as a build that reads none.

Elsewhere: running it (logloom.pipelines.build.build), and what later builds leave out
(logloom.pipelines.plan.plan).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from logloom.errors import UsageError
from logloom.io.catalog.manifest import Manifest, no_version_at
from logloom.io.catalog.page_merge import GONE
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.catalog.tombstones import Purged
from logloom.io.storage.store import Store
from logloom.pipelines.plan.build_plan import Plan
from logloom.pipelines.plan.next_version import check_whole, next_version, passes_of, where_logs_are
from logloom.pipelines.plan.plan import resolved_references
from logloom.pipelines.versions.history import follow
from logloom.text import counted
from logloom.transforms.build.job import Committed
from logloom.transforms.build.settings import BuildSettings


def plan_drop(
    store: Store, log_ids: Sequence[str], reason: str = "", *, undo: bool = False, allow_empty: bool = False
) -> Plan:
    """Plans a version of the newest one's logs without some, or one that later builds may add them to again.

    No log is read; what is assembled of many is put together anew without them. A log takes its passes along.
    The plan is up to date where all of them were dropped already, or with `undo` none is.

    Args:
        reason: kept with each of them.
        undo: takes back that they were dropped.
        allow_empty: a version without rows may be committed, as it always may with `undo`, and after such a
            version.

    Raises:
        UsageError: the newest version doesn't have such a log, or with `undo` none ever had; lists all. Or
            one is a pass of a log that isn't among them.
    """
    newest, following = next_version(store)
    if newest is None:
        raise no_version_at(store)
    store = following["store"]
    check_whole(store, newest.logs, log_ids)
    named = [one.log_id for log_id in set(log_ids) for one in passes_of(newest.logs, log_id)]
    chosen = {log_id: newest.logs.find(log_id) for log_id in sorted({*log_ids, *named})}
    unknown = [name for name, one in chosen.items() if one is None and not (undo and _was_there(store, name))]
    if unknown:
        names = f"log{'s' * (len(unknown) > 1)} {', '.join(map(repr, unknown))}"
        where = where_logs_are(store.uri, newest.logs, unknown[0])
        raise UsageError(f"{store.uri}: version {newest.version} has no {names}{where}")
    records = [
        one for one in chosen.values() if one is not None and (one.status == LogStatus.dropped) == undo
    ]
    version = Committed.of(store, newest)
    if not records:
        return Plan(job=dataclasses.replace(version, **following), up_to_date=True)
    words = f"drop{' --undo' if undo else ''} of {', '.join(one.log_id for one in records[:5])}"
    words += f" and {counted(len(records) - 5, 'more log')}" if len(records) > 5 else ""
    outputs, references = resolved_references(version.outputs, store.options)
    job = dataclasses.replace(
        version,
        **following,
        outputs=outputs,
        references=references,
        settings=BuildSettings(allow_empty=allow_empty or undo or not newest.totals.get("rows")),
        reason=f"{words}: {reason}" if reason else words,
    )
    changes = {one.log_id: gone(one) for one in erased(store, newest)}  # else this would bring them back
    changes |= {one.log_id: gone(one) if undo else _dropped(one, reason) for one in records}
    ordered = tuple(changes[log_id] for log_id in sorted(changes))
    return Plan(job=job, changes=ordered)


def _was_there(store: Store, log_id: str) -> bool:
    """Whether an earlier version has a log, so that its name isn't misspelt."""
    try:
        return bool(follow(store, log_id))
    except UsageError:
        return False


def erased(store: Store, manifest: Manifest) -> Iterator[LogRecord]:
    """The records of a version's logs that were purged since."""
    return manifest.logs.take(manifest.logs.where("part", Purged(store).parts))


def _dropped(record: LogRecord, reason: str) -> LogRecord:
    """What stays of a log's record."""
    named = record.log_id, record.uris, record.content_id, record.split, record.key
    reasons = (reason,) if reason else ()
    return LogRecord(*named, LogStatus.dropped, "", 0, 0, {}, 0, reasons, units=0, catalogue=record.catalogue)


def gone(record: LogRecord) -> LogRecord:
    """The mark that a log leaves."""
    return dataclasses.replace(_dropped(record, ""), status=GONE)
