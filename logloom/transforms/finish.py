"""Finishing: a log once all its partitions are done, and a version once all its logs are.

Here: the log's reconciled record, and the commit.
Elsewhere: single partitions (logloom.transforms.partition), the outputs that are assembled from many units
(logloom.transforms.assembly), Beam (logloom.transforms.build_logs).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blake3 import blake3

from logloom.digests import digest_of
from logloom.errors import CommitConflictError, DatasetError, LogloomError
from logloom.io.entries import Entry, write_log_part
from logloom.io.logs.base import Refusal
from logloom.io.manifest import Assembled, LogRecord, Manifest, version_file
from logloom.io.manifest_digest import write_digest
from logloom.io.metadata import Count, Text, canonical, checked, parsed
from logloom.io.remote import MISSING
from logloom.io.storage import Store
from logloom.software import software
from logloom.transforms.job import Job, LogTask, Target, opened
from logloom.transforms.partition import Failure, PartitionResult
from logloom.transforms.rows import Tally, reconcile
from logloom.words import counted

# Kinds of failures for which a log is left out, by on_error.
_LEFT_OUT = {"skip": ("log", "derive", "rows", "worker"), "salvage": ("derive", "rows", "worker")}
MAX_REASONS = 100  # of a log in the manifest; a file beside the log's part lists all
_LISTED = re.compile(r"logs/([0-9a-f]{64})\.refused\.txt$")


@dataclass(frozen=True)
class LogOutcome:
    """What became of a log: a record for the manifest, and why it failed where it did."""

    log_id: str
    record: LogRecord | None
    failures: tuple[Failure, ...] = ()
    built: int = 0
    reused: int = 0
    seconds: float = 0.0


def finish_log(job: Job, results: Iterable[PartitionResult]) -> LogOutcome:
    """Reconciles a log's partitions and writes its part of the manifest.

    Under on_error skip, a log with any failure of its own loses all its partitions; under salvage, one whose
    rows can't be made or written: nothing says which of them would be whole.
    """
    # Beam hands them over in any order, and the manifest says what kept a log from being built.
    done = sorted(results, key=lambda result: (len(result.partition), result.partition))
    log = done[0].log
    failures = tuple(dict.fromkeys(failure for result in done for failure in result.failures))
    if failures:
        left_out = _LEFT_OUT.get(job.open_options.on_error, ())
        skipped = all(failure.kind in left_out for failure in failures)
        return LogOutcome(log.log_id, skipped_record(log, failures) if skipped else None, failures)
    order = {output: position for position, output in enumerate(job.outputs)}
    entries = sorted((e for r in done for e in r.entries), key=lambda e: (order[e.output], e.start))
    try:
        record = _record(job, log, entries)
    except LogloomError as error:
        return LogOutcome(log.log_id, None, (Failure(log.log_id, "", "log", str(error)),))
    built = sum(result.built for result in done)
    seconds = sum(result.seconds for result in done)
    return LogOutcome(log.log_id, record, (), built, len(entries) - built, seconds)


def _record(job: Job, log: LogTask, entries: Sequence[Entry]) -> LogRecord:
    first_output, tallies, refusals = _tallied(job, log, entries)
    sums = reconcile(job.plan, opened(job, log).summary, tallies)
    dropped: dict[str, int] = {}
    for tally in tallies:
        for reason, count in tally.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    rows = sum(entry.rows for entry in first_output)
    refused = sum(topic.refused for topic in sums.values())
    planned = sum(tally.planned for tally in tallies)
    return LogRecord(
        log_id=log.log_id,
        uris=log.uris,
        content_id=log.content_id,
        split=log.split,
        key=log.key,
        status="salvaged" if refusals else "whole" if planned else "empty",
        part=write_log_part(job.store, entries),
        rows=rows,
        planned=planned,
        dropped=dropped,
        refused=refused,
        reasons=_reasons(job.store, [_told(refusal) for refusal in refusals]),
        verified=read_share(job),
    )


def _tallied(
    job: Job, log: LogTask, entries: Sequence[Entry]
) -> tuple[list[Entry], list[Tally], list[Refusal]]:
    """The units of the first output, their tallies, and all that was refused of the log, each once."""
    first_output = [entry for entry in entries if entry.output == next(iter(job.outputs))]
    tallies = [Tally.from_json(entry.tally, job.store.uri_of(entry.folder)) for entry in first_output]
    refusals = [*opened(job, log).summary.refusals, *(r for tally in tallies for r in tally.refusals)]
    return first_output, tallies, list(dict.fromkeys(refusals))


def read_share(job: Target) -> str:
    """How much of the units that a build makes it reads back."""
    return "all" if job.verify == "new" else job.verify


def _reasons(store: Store, told: list[str]) -> tuple[str, ...]:
    """What a manifest says of refusals: all, or the first and the file that lists them all."""
    if len(told) <= MAX_REASONS:
        return tuple(told)
    name, data = _listing(told)
    store.create(name, data)
    return (*told[:MAX_REASONS], f"and {len(told) - MAX_REASONS:,} more, all listed in {name}")


def _listing(told: Iterable[str]) -> tuple[str, bytes]:
    """The file that lists all refusals of a log, named by its content."""
    data = "".join(f"{line}\n" for line in told).encode()
    return f"logs/{blake3(data).hexdigest()}.refused.txt", data


def refusal_list_problem(store: Store, record: LogRecord) -> tuple[str, str] | None:
    """The file that lists what was refused of a log, and what is wrong with it; None where nothing is."""
    listed = _LISTED.search(record.reasons[-1]) if record.reasons else None
    if listed is None:
        return None
    try:
        is_whole = blake3(store.read(listed[0])).hexdigest() == listed[1]
    except MISSING:
        return listed[0], "missing"
    return None if is_whole else (listed[0], "its bytes changed")


def restore_refusal_list(job: Job, log: LogTask, entries: Sequence[Entry], name: str) -> str:
    """Writes the file that lists what was refused of a log again; says why it couldn't, or ""."""
    found, data = _listing(map(_told, _tallied(job, log, entries)[2]))
    if name != found:
        return "listed again it has other bytes"
    job.store.replace(name, data, read_only=True)
    return ""


def _told(refusal: Refusal) -> str:
    """Where something was refused, and why."""
    place = f"{refusal.uri}, {refusal.place.removeprefix('at ')}" if refusal.offset >= 0 else refusal.uri
    return f"{place}: {refusal.topic}{': ' if refusal.topic else ''}{refusal.reason}"


def skipped_record(log: LogTask, failures: Sequence[Failure]) -> LogRecord:
    """The record of a log that is left out; tried again once its content or our reading of it changes."""
    told = dict.fromkeys(
        failure.message if failure.kind == "log" else f"partition {failure.partition}: {failure.message}"
        for failure in failures
    )
    reasons = tuple(told)[:MAX_REASONS]
    died = any(failure.kind == "worker" for failure in failures)
    key = quarantine_key(log.key, software()) if died else log.key
    return LogRecord(
        log.log_id, log.uris, log.content_id, log.split, key, "skipped", "", 0, 0, {}, 0, reasons
    )


def quarantine_key(key: str, made_by: Mapping[str, str]) -> str:
    """The key of a log on which workers died: other software may survive it, so it is part of the key."""
    return digest_of([key, dict(made_by)])


def records_of(job: Target, outcomes: Sequence[LogOutcome]) -> list[LogRecord]:
    """The records of all logs that a build kept or finished."""
    made = [outcome.record for outcome in outcomes if outcome.record is not None]
    return sorted([*job.kept, *made], key=lambda record: record.log_id)


def failures_of(outcomes: Sequence[LogOutcome]) -> list[Failure]:
    """What keeps a build from committing."""
    return [f for o in sorted(outcomes, key=lambda o: o.log_id) if o.record is None for f in o.failures]


# --- the commit -----------------------------------------------------------------------------------------


def outcome_file(job: Target) -> str:
    """What became of one submission; two builds of one version must not take each other's for theirs."""
    return f"runs/{job.number:08d}/{job.run}.json"


@dataclass(frozen=True)
class Outcome:
    """What became of a build, as it stands in runs/.

    Attributes:
        problem: why the build as a whole can't be committed; "" when it can.
        conflict: who committed this version first; "" for nobody.
    """

    version: Count
    committed: bool
    failures: tuple[Failure, ...]
    problem: Text
    conflict: Text
    built: Count
    reused: Count


def read_outcome(job: Target) -> Outcome:
    """What became of a build that has run.

    Raises:
        DatasetError: its file is missing or damaged.
    """
    name = outcome_file(job)
    place = job.store.uri_of(name)
    try:
        data = job.store.read(name)
    except MISSING:
        raise DatasetError(
            f"{place}: missing, so nobody knows what became of this build; build again"
        ) from None
    return checked(Outcome, parsed(data, place), place)


def commit(
    job: Target,
    outcomes: Sequence[LogOutcome],
    assembled: Sequence[tuple[Assembled, tuple[Failure, ...]]],
    damaged: Sequence[Failure] = (),
) -> dict[str, Any]:
    """Creates the version, or says why not; what it says also stands in runs/, for detached jobs.

    Args:
        damaged: what was found wrong with units of earlier builds.

    Returns:
        {"version", "committed", "failures", "problem", "conflict", "built", "reused"}.
    """
    assembled = sorted(assembled, key=lambda result: (result[0].output, result[0].split))
    failures = failures_of(outcomes) + sorted(damaged, key=lambda failure: (failure.log_id, failure.message))
    failures += [failure for _, found in assembled for failure in found]
    records = records_of(job, outcomes)
    problem = "" if failures else _refusal(job, records)
    outcome: dict[str, Any] = {
        "version": job.number,
        "committed": False,
        "failures": [asdict(failure) for failure in failures],
        "problem": problem,
        "conflict": "",
        "built": sum(o.built for o in outcomes),
        "reused": sum(o.reused for o in outcomes),
    }
    if not failures and not problem:
        try:
            create_version(job, records, [part for part, _ in assembled])
            outcome["committed"] = True
        except CommitConflictError as error:
            outcome["conflict"] = str(error)
    job.store.replace(outcome_file(job), canonical(outcome))
    return outcome


def _refusal(job: Target, records: Sequence[LogRecord]) -> str:
    """Why the build as a whole can't be committed though no log failed it; "" when it can."""
    skipped = [record for record in records if record.status == "skipped"]
    if job.skip_budget and len(skipped) > job.skip_budget * len(records):
        names = ", ".join(record.log_id for record in skipped[:5])
        budget = f"{job.skip_budget:.2%}"
        return (
            f"{len(skipped)} of {counted(len(records), 'log')} skipped, over the budget of {budget}: {names}"
        )
    if not any(record.rows for record in records) and not job.allow_empty:
        dropped = total(record.dropped for record in records)
        why = [f"{counted(count, 'tick')} dropped by {reason}" for reason, count in dropped.items()]
        if skipped:
            why.append(
                f"{counted(len(skipped), 'log')} skipped, {skipped[0].log_id}: {skipped[0].reasons[0]}"
            )
        told = ", ".join(why) or "no log has a tick"
        return f"no rows at all ({told}); --allow-empty commits an empty version"
    return ""


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums of counts by name."""
    summed: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            summed[name] = summed.get(name, 0) + count
    return summed


def create_version(job: Target, records: Sequence[LogRecord], assembled: Sequence[Assembled]) -> Manifest:
    """Creates the manifest; equal bytes that are there already are success (a lost response, a retry).

    Raises:
        CommitConflictError: another build committed this number with other content.
    """
    manifest = Manifest(
        version=job.number,
        parent=job.parent,
        name=job.name,
        recipe=job.recipe,
        schema=job.schema.to_json(),
        plan=job.plan_identity,
        outputs={name: options.model_dump(mode="json") for name, options in job.outputs.items()},
        logs=tuple(records),
        assembled=tuple(assembled),
        totals=totals_of(records),
        verified=job.verify,
        software=software(),
        parent_digest=job.parent_digest,
        trusted=_trusted(job, assembled),
    )
    data = manifest.to_bytes()
    name = version_file(job.number)
    if not job.store.create(name, data) and job.store.read(name) != data:
        raise CommitConflictError(
            f"{job.store.uri_of(name)}: another build committed version {job.number} first; "
            "build again, what is finished is kept"
        )
    write_digest(job.store, job.number, data)
    return manifest


def totals_of(records: Sequence[LogRecord]) -> dict[str, int]:
    """What a manifest says of all its logs."""
    return {
        "logs": len(records),
        "rows": sum(record.rows for record in records),
        "ticks_planned": sum(record.planned for record in records),
        "refused": sum(record.refused for record in records),
        "skipped": sum(record.status == "skipped" for record in records),
    }


def _trusted(job: Target, assembled: Sequence[Assembled]) -> dict[str, int]:
    """How much of a version nobody read in this build, since an earlier one made it."""
    if job.verify == "all":
        return {"logs": 0, "assembled": 0}
    kept = sum(bool(record.part) for record in job.kept)
    return {"logs": kept, "assembled": sum(part.identity in job.assembled for part in assembled)}
