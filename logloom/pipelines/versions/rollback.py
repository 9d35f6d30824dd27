"""New versions with earlier contents (`rollback`) or without logs (`plan_drop`).

Elsewhere: running such a plan (logloom.pipelines.build.build), and what later builds leave out
(logloom.pipelines.plan.plan).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from logloom.errors import CommitConflictError, DatasetError, LogloomError, UsageError, after_commit
from logloom.io.catalog.artifacts import files_beside_parts
from logloom.io.catalog.assembled_outputs import assembled_files
from logloom.io.catalog.entries import ENTRY, read_log_part
from logloom.io.catalog.manifest import (
    Assembled,
    Manifest,
    manifest_at,
    no_version_at,
    read_assembled,
    read_manifest,
)
from logloom.io.catalog.page_merge import merge_records
from logloom.io.catalog.pages import GONE, LogRecord, LogStatus
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.tombstones import Purged
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.build_plan import Plan
from logloom.pipelines.plan.next_version import (
    Before,
    check_whole,
    left_out_note,
    next_version,
    passes_of,
    where_logs_are,
)
from logloom.pipelines.plan.plan import resolved_references
from logloom.pipelines.versions.history import follow
from logloom.pipelines.view import show
from logloom.text import OnMessage, counted, ignore_message, some_of
from logloom.transforms.build.commit import commit
from logloom.transforms.build.job import Committed
from logloom.transforms.build.outcomes import LogOutcomes
from logloom.transforms.build.run_note import Announced
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


class RolledBack(NamedTuple):
    """The version that contains what an earlier one did.

    Attributes:
        view: the folder of its view; "" without one.
        left_out: logs of the earlier version that were dropped or purged since.
        up_to_date: the newest version contains that already, so nothing was committed.
    """

    manifest: Manifest
    view: str
    left_out: tuple[str, ...] = ()
    up_to_date: bool = False


def rollback(
    store: Store,
    version: int | str,
    reason: str = "",
    *,
    view: str = "auto",
    on_message: OnMessage = ignore_message,
) -> RolledBack:
    """Commit a version with the contents of an earlier one, except for logs dropped or purged since.

    No data is copied or read: both versions name the same units. Where a log is left out, outputs that
    combine all logs are assembled again without it.

    Args:
        view: as of a build.
        on_message: called with what is left out, too.

    Raises:
        UsageError: there is no such version.
        DatasetError: it isn't complete.
        CommitConflictError: another build committed this number first.
        PurgedError: a log was purged meanwhile.
    """
    old = read_manifest(store, version)
    newest, following = next_version(store)
    assert newest is not None  # there is an old one
    store = following["store"]
    changes, left_out = _changes(store, old, newest, on_message)
    logs = merge_records(store, old.logs, [LogRecords.of(changes)]) if changes else old.logs
    same = newest.logs == logs and newest.outputs == old.outputs and newest.recipe == old.recipe
    if same and (changes or newest.assembled == old.assembled):
        return RolledBack(newest, show(store, newest, view, on_message)[0], left_out, up_to_date=True)
    words = f"rollback to version {old.version}{f': {reason}' if reason else ''}"
    settings = BuildSettings(allow_empty=True)
    job = dataclasses.replace(Committed.of(store, old), **following, settings=settings, reason=words)
    if changes:
        for problem in missing_from(store, dataclasses.replace(old, logs=logs, assembled=()), newest):
            raise DatasetError(f"version {old.version} can't be gone back to: {problem}")
        built = build(_plan(job, logs, newest), view=view, on_message=on_message)
        return RolledBack(built.manifest, built.view, left_out)
    job = dataclasses.replace(job, assembled=old.assembled)
    with Announced(job, "rollback"):  # so that `gc` and `purge` know of it before it looks
        lacking = missing_from(store, old, newest)
        for problem in itertools.chain(_purged_in(store, logs, old.assembled), lacking):
            raise DatasetError(f"version {old.version} can't be gone back to: {problem}")
        assembled = [(part, (), len(read_assembled(store, part).portions)) for part in old.assembled]
        outcome = commit(job, LogOutcomes(version=logs.pages), assembled)
    _raise(outcome)
    with after_commit(f"version {job.number} of {store.uri}", "Roll back again to have its view"):
        made = manifest_at(store, job.number)  # which gc may have taken out since, after later ones
        return RolledBack(made, show(store, made, view, on_message)[0])


def _changes(
    store: Store, old: Manifest, newest: Manifest, on_message: OnMessage
) -> tuple[list[LogRecord], tuple[str, ...]]:
    """What a version says otherwise than an earlier one that it goes back to, by log_id; and the logs that it
    leaves out.

    Logs that the latest version records as dropped stay dropped until that is undone, and purged ones stay
    purged.
    """
    dropped = {one.log_id: one for one in _dropped_in(newest)}
    before = {one.log_id: one for one in _dropped_in(old)}
    purged = {one.log_id: one for one in erased(store, old) if one.log_id not in dropped}
    again = [one for log_id, one in before.items() if log_id not in dropped]
    changes = {one.log_id: gone(one) for one in (*purged.values(), *again)}
    changes |= {log_id: one for log_id, one in dropped.items() if before.get(log_id) != one}
    missing = [log_id for log_id in dropped.keys() - before.keys() if old.logs.find(log_id) is not None]
    for note in left_out_note(store, missing):
        on_message(note)
    if purged:
        on_message(f"{counted(len(purged), 'log')} left out, purged since then: {some_of(sorted(purged))}")
    return [changes[log_id] for log_id in sorted(changes)], tuple(sorted([*missing, *purged]))


def _dropped_in(manifest: Manifest) -> Iterator[LogRecord]:
    if manifest.logs.statuses.get(LogStatus.dropped):
        yield from manifest.logs.take(manifest.logs.where("status", [LogStatus.dropped]))


def _plan(job: Committed, logs: LogRecords, newest: Manifest) -> Plan:
    """A build that reads no log, and makes the newest version's logs these."""
    outputs, references = resolved_references(job.outputs, job.store.options)
    records = list(logs.without(newest.logs.pages))
    leaving = newest.logs.without(logs.pages).column("log_id").to_pylist()
    going = set(leaving).difference(one.log_id for one in records)
    job = dataclasses.replace(job, outputs=outputs, references=references)
    return Plan(job=job, changes=Before(newest).changes(records, sorted(going)))


def _purged_in(store: Store, logs: LogRecords, assembled: Sequence[Assembled]) -> Iterator[str]:
    """What logs and outputs of a version name that was purged, though it may not have been removed yet."""
    purged = Purged(store)
    names = [f"logs/{part}.parquet" for part in logs.column("part").to_pylist() if part in purged.parts]
    names += purged.folders.intersection(part.folder for part in assembled)
    for name in sorted(names):
        yield f"{store.uri_of(name)}: was purged meanwhile; go back once more"


def missing_from(store: Store, old: Manifest, newest: Manifest) -> Iterator[str]:
    """Find what logs and outputs of an earlier version refer to and is missing, except for what was purged.

    What the newest one names, too, isn't looked for.
    """
    purged = Purged(store)
    sound, problems = old.logs.whole()
    yield from problems
    known = {"", *newest.logs.column("part").to_pylist(), *purged.parts}
    parts = [part for part in sound.column("part").to_pylist() if part not in known]

    def lost(part: str) -> list[str]:
        try:
            folders = [f for entry in read_log_part(store, part, brief=True) for f in entry.folders]
        except DatasetError as error:
            return [str(error)]
        return [f"{store.uri_of(f)}: missing" for f in folders if not store.exists(f"{f}/{ENTRY}")]

    for found in ahead(lost, parts, threads=8):
        yield from found
    files = files_beside_parts(sound, is_converted="convert" in old.recipe, without=purged)
    files -= files_beside_parts(newest.logs, is_converted="convert" in newest.recipe)
    for name, is_there in ahead(lambda name: (name, store.exists(name)), sorted(files), threads=8):
        if not is_there:
            yield f"{store.uri_of(name)}: missing"
    for part in old.assembled:
        if part in newest.assembled or part.folder in purged.folders:
            continue
        try:
            for place, file in assembled_files(store, part.identity, read_assembled(store, part)):
                if store.size(place) != file.size:
                    yield f"{store.uri_of(place)}: missing"
        except DatasetError as error:
            yield str(error)


def _raise(outcome: dict[str, Any]) -> None:
    """Raises what kept a version from being committed."""
    if outcome["conflict"]:
        raise CommitConflictError(outcome["conflict"])
    if not outcome["committed"]:
        messages = [failure["message"] for failure in outcome["failures"]]
        raise LogloomError("\n".join(["nothing was committed", *messages, outcome["problem"]]).strip())
