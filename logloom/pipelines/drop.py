"""`plan_drop`: a version without some logs, as a build that reads none.

Elsewhere: running it (logloom.pipelines.build), and what later builds leave out (logloom.pipelines.plan).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from logloom.errors import UsageError
from logloom.io.manifest import Manifest, no_version_at
from logloom.io.merging import GONE
from logloom.io.purged import Purged
from logloom.io.shards import DROPPED, LogRecord
from logloom.io.storage import Store
from logloom.pipelines.plan import resolved_references
from logloom.pipelines.planned import Plan
from logloom.pipelines.versions import check_whole, next_version, passes_of, where_logs_are
from logloom.transforms.job import Committed
from logloom.words import counted


def plan_drop(
    store: Store, log_ids: Sequence[str], reason: str = "", *, undo: bool = False, allow_empty: bool = False
) -> Plan:
    """Plans a version of the newest one's logs without some, or one that later builds may add them to again.

    No log is read; what is assembled of many is put together anew without them. A log takes its passes along.

    Args:
        reason: kept with each of them.
        undo: takes back that they were dropped.
        allow_empty: a version without rows may be committed, as it always may with `undo`, and after such a
            version.

    Raises:
        UsageError: the newest version doesn't have such a log, or nobody dropped it; lists all. Or one is a
            pass of a log that isn't among them.
    """
    newest, following = next_version(store)
    if newest is None:
        raise no_version_at(store)
    store = following["store"]
    check_whole(store, newest.logs, log_ids)
    named = [one.log_id for log_id in set(log_ids) for one in passes_of(newest.logs, log_id)]
    chosen = {log_id: newest.logs.find(log_id) for log_id in sorted({*log_ids, *named})}
    wrong = [name for name, one in chosen.items() if one is None or (one.status == DROPPED) != undo]
    if wrong:
        what = "leaves out no" if undo else "doesn't have, or leaves out already,"
        names = f"log{'s' * (len(wrong) > 1)} {', '.join(map(repr, wrong))}"
        where = where_logs_are(store.uri, newest.logs, wrong[0])
        raise UsageError(f"{store.uri}: version {newest.version} {what} {names}{where}")
    records = [one for one in chosen.values() if one is not None]
    words = f"drop{' --undo' if undo else ''} of {', '.join(list(chosen)[:5])}"
    words += f" and {counted(len(chosen) - 5, 'more log')}" if len(chosen) > 5 else ""
    version = Committed.of(store, newest)
    outputs, references = resolved_references(version.outputs, store.options)
    job = dataclasses.replace(
        version,
        **following,
        outputs=outputs,
        references=references,
        allow_empty=allow_empty or undo or not newest.totals.get("rows"),
        reason=f"{words}: {reason}" if reason else words,
    )
    changes = {one.log_id: _gone(one) for one in _erased(store, newest)}  # else this would bring them back
    changes |= {one.log_id: _gone(one) if undo else _dropped(one, reason) for one in records}
    ordered = tuple(changes[log_id] for log_id in sorted(changes))
    return Plan(job=job, changes=ordered)


def _erased(store: Store, manifest: Manifest) -> Iterator[LogRecord]:
    """The records of a version's logs that were purged since."""
    return manifest.logs.take(manifest.logs.where("part", Purged(store).parts))


def _dropped(record: LogRecord, reason: str) -> LogRecord:
    """What stays of a log's record."""
    named = record.log_id, record.uris, record.content_id, record.split, record.key
    reasons = (reason,) if reason else ()
    return LogRecord(*named, DROPPED, "", 0, 0, {}, 0, reasons, units=0, catalogue=record.catalogue)


def _gone(record: LogRecord) -> LogRecord:
    return dataclasses.replace(_dropped(record, ""), status=GONE)
