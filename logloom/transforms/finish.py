"""Finishing: a log once all its partitions are done, and a version once all its logs are.

Here: the log's reconciled record, the outputs that are assembled from many units, and the commit.
Elsewhere: single partitions (logloom.transforms.partition), Beam (logloom.pipelines.build).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blake3 import blake3

from logloom.digests import digest_of
from logloom.errors import CommitConflictError, LogloomError
from logloom.io.logs.base import Refusal
from logloom.io.manifest import (
    ENTRY,
    Assembled,
    Entry,
    LogRecord,
    Manifest,
    canonical,
    entries_of,
    software,
    unit_folder,
    version_file,
    write_log_part,
)
from logloom.io.storage import Store
from logloom.io.units import AssembledFormat, format_named
from logloom.transforms.job import Job, LogTask, Target, opened
from logloom.transforms.partition import Failure, PartitionResult, is_sampled
from logloom.transforms.rows import Tally, reconcile

_LEFT_OUT = {"skip": ("log", "derive"), "salvage": ("derive",)}  # kinds of failures, by on_error
MAX_REASONS = 100  # of a log in the manifest; a file beside the log's part lists all


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

    Under on_error skip, a log with any failure loses all its partitions; under salvage, one on whose rows a
    function of the user's fails: nothing says which of its rows would be whole.
    """
    # Beam hands them over in any order, and the manifest says what kept a log from being built.
    done = sorted(results, key=lambda result: (len(result.partition), result.partition))
    log = done[0].log
    failures = tuple(failure for result in done for failure in result.failures)
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
    first_output = [entry for entry in entries if entry.output == next(iter(job.outputs))]
    tallies = [Tally.from_json(entry.tally) for entry in first_output]
    summary = opened(job, log).summary
    sums = reconcile(job.plan, summary, tallies)
    refusals = dict.fromkeys([*summary.refusals, *(r for tally in tallies for r in tally.refusals)])
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
    )


def _reasons(store: Store, told: list[str]) -> tuple[str, ...]:
    """What a manifest says of refusals: all, or the first and the file that lists them all."""
    if len(told) <= MAX_REASONS:
        return tuple(told)
    data = "".join(f"{line}\n" for line in told).encode()
    name = f"logs/{blake3(data).hexdigest()}.refused.txt"
    store.create(name, data)
    return (*told[:MAX_REASONS], f"and {len(told) - MAX_REASONS:,} more, all listed in {name}")


def _told(refusal: Refusal) -> str:
    """Where something was refused, and why."""
    place = f"{refusal.uri}, {refusal.place.removeprefix('at ')}" if refusal.offset >= 0 else refusal.uri
    return f"{place}: {refusal.topic}{': ' if refusal.topic else ''}{refusal.reason}"


def skipped_record(log: LogTask, failures: Sequence[Failure]) -> LogRecord:
    """The record of a log that is left out; tried again once its content or our reading of it changes."""
    reasons = tuple(
        f"partition {failure.partition}: {failure.message}" if failure.kind == "derive" else failure.message
        for failure in failures[:MAX_REASONS]
    )
    return LogRecord(
        log.log_id, log.uris, log.content_id, log.split, log.key, "skipped", "", 0, 0, {}, 0, reasons
    )


# --- assembled outputs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChunkTask:
    """One file of an assembled output: written by one worker, alone."""

    output: str
    identity: str
    task: Any


def _records(job: Target, outcomes: Sequence[LogOutcome]) -> list[LogRecord]:
    made = [outcome.record for outcome in outcomes if outcome.record is not None]
    return sorted([*job.kept, *made], key=lambda record: record.log_id)


def failures_of(job: Target, outcomes: Sequence[LogOutcome]) -> list[Failure]:
    """What keeps a build from committing."""
    return [f for o in sorted(outcomes, key=lambda o: o.log_id) if o.record is None for f in o.failures]


@dataclass(frozen=True)
class Assembly:
    """The units that make one assembled output of one split, in row order."""

    output: str
    split: str
    identity: str
    units: tuple[tuple[LogRecord, Entry], ...]

    @property
    def folder(self) -> str:
        return unit_folder(self.output, self.identity)


def assemblies(job: Target, outcomes: Sequence[LogOutcome]) -> list[Assembly]:
    """What is to be assembled, none where the build has failed."""
    outputs = [o for o in job.outputs if isinstance(format_named(o), AssembledFormat)]
    if not outputs or failures_of(job, outcomes):
        return []
    units: dict[tuple[str, str], list[tuple[LogRecord, Entry]]] = {}
    for record, entry in entries_of(job.store, _records(job, outcomes)):
        if entry.output in outputs and entry.rows:
            units.setdefault((entry.output, record.split), []).append((record, entry))
    made = []
    for (output, split), pairs in sorted(units.items()):
        sources = [[entry.identity, record.uris[0], record.log_id] for record, entry in pairs]
        identity = digest_of(["assembled", job.output_identity(output), split, sources])[:32]
        made.append(Assembly(output, split, identity, tuple(pairs)))
    return made


def plan_chunks(job: Target, outcomes: Sequence[LogOutcome]) -> list[ChunkTask]:
    """The chunks still to be written of all assembled outputs."""
    tasks = []
    for assembly in assemblies(job, outcomes):
        if job.store.exists(f"{assembly.folder}/{ENTRY}"):
            continue
        form = format_named(assembly.output)
        assert isinstance(form, AssembledFormat)
        planned = form.plan_assembly(
            job.store, assembly.units, job.schema, job.outputs[assembly.output], job.period
        )
        tasks += [ChunkTask(assembly.output, assembly.identity, task) for task in planned.tasks]
    return tasks


def write_chunk(job: Target, chunk: ChunkTask) -> tuple[str, dict[str, Any]]:
    """Writes one file of an assembled output.

    Returns:
        The output's identity and the file's {"name", "size", "digest"}.
    """
    form = format_named(chunk.output)
    assert isinstance(form, AssembledFormat)
    name, data = form.make_chunk(job.store, chunk.task)
    return chunk.identity, publish_file(job, unit_folder(chunk.output, chunk.identity), name, data)


def publish_file(job: Target, folder: str, name: str, data: bytes) -> dict[str, Any]:
    """Creates a file of a unit folder, or leaves the equal one that is there."""
    job.store.create(f"{folder}/{name}", data)
    return {"name": name, "size": len(data), "digest": blake3(data).hexdigest()}


AssembledResult = tuple[Assembled, tuple[Failure, ...]]


def finish_assembly(
    job: Target, outcomes: Sequence[LogOutcome], files: Sequence[tuple[str, dict[str, Any]]]
) -> list[Assembled]:
    """Writes what belongs to no chunk, and the entries that mark assembled outputs as complete."""
    done = []
    for assembly in assemblies(job, outcomes):
        name = f"{assembly.folder}/{ENTRY}"
        if not job.store.exists(name):
            form = format_named(assembly.output)
            assert isinstance(form, AssembledFormat)
            planned = form.plan_assembly(
                job.store, assembly.units, job.schema, job.outputs[assembly.output], job.period
            )
            own = [file for identity, file in files if identity == assembly.identity]
            own += [publish_file(job, assembly.folder, n, data) for n, data in planned.files.items()]
            entry: dict[str, Any] = {
                "output": assembly.output,
                "split": assembly.split,
                "unit": planned.unit,
                "rows": sum(e.rows for _, e in assembly.units),
                "files": sorted(own, key=lambda file: str(file["name"])),
            }
            job.store.create(name, canonical(entry))
        data = job.store.read(name)
        entry = json.loads(data)
        size = sum(file["size"] for file in entry["files"])
        digest = blake3(data).hexdigest()
        done.append(
            Assembled(assembly.output, assembly.split, assembly.identity, digest, size, entry["rows"])
        )
    return done


def read_back_assembled(job: Target, part: Assembled) -> AssembledResult:
    """Reads an assembled output through its own reader."""
    if not is_sampled(job.verify, part.identity):
        return part, ()
    folder = unit_folder(part.output, part.identity)
    form = format_named(part.output)
    assert isinstance(form, AssembledFormat)
    unit = job.store.read_json(f"{folder}/{ENTRY}")["unit"]
    problems = form.assembled_differences(job.store.uri_of(folder), unit, job.store.options)
    return part, tuple(Failure(part.output, part.split, "readback", problem) for problem in problems)


# --- the commit -----------------------------------------------------------------------------------------


def outcome_file(job: Target) -> str:
    """What became of one submission; two builds of one version must not take each other's for theirs."""
    return f"runs/{job.number:08d}/{job.run}.json"


def commit(
    job: Target, outcomes: Sequence[LogOutcome], assembled: Sequence[AssembledResult]
) -> dict[str, Any]:
    """Creates the version, or says why not; what it says also stands in runs/, for detached jobs.

    Returns:
        {"version", "committed", "failures", "problem", "conflict", "built", "reused"}.
    """
    assembled = sorted(assembled, key=lambda result: (result[0].output, result[0].split))
    failures = failures_of(job, outcomes) + [failure for _, found in assembled for failure in found]
    records = _records(job, outcomes)
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
        return f"{len(skipped)} of {len(records)} logs skipped, over the budget of {budget}: {names}"
    if not any(record.rows for record in records) and not job.allow_empty:
        dropped = _total(record.dropped for record in records)
        why = ", ".join(f"{count} ticks dropped by {reason}" for reason, count in dropped.items())
        return f"no rows at all ({why or 'no log has a tick'}); --allow-empty commits an empty version"
    return ""


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total


def create_version(job: Target, records: Sequence[LogRecord], assembled: Sequence[Assembled]) -> Manifest:
    """Creates the manifest; equal bytes that are there already are success (a lost response, a retry).

    Raises:
        CommitConflictError: another build committed this number with other content.
    """
    totals = {
        "logs": len(records),
        "rows": sum(record.rows for record in records),
        "ticks_planned": sum(record.planned for record in records),
        "refused": sum(record.refused for record in records),
        "skipped": sum(record.status == "skipped" for record in records),
    }
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
        totals=totals,
        verified=job.verify,
        software=software(),
    )
    data = manifest.to_bytes()
    name = version_file(job.number)
    if not job.store.create(name, data) and job.store.read(name) != data:
        raise CommitConflictError(
            f"{job.store.uri_of(name)}: another build committed version {job.number} first; "
            "build again, what is finished is kept"
        )
    return manifest
