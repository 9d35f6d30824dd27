"""Converting: the rows of a version or of a foreign dataset, in another format.

The story: each part of the source is one worker's; it reads the rows, digests every column, and writes one
unit; another worker reads the unit back and compares the digests; then everything goes as in a build: a log
is finished, what is assembled is assembled, one step commits. Nothing but entries crosses a shuffle.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from logloom.digests import RowsDigest, digest_of
from logloom.errors import DatasetError, LogloomError, ReadBackError, StorageError
from logloom.extras import beam_needed
from logloom.io.entries import Entry, files_of, publish_unit, write_log_part
from logloom.io.filesystems import explained
from logloom.io.log_statistics import noted, of_units, write_statistics
from logloom.io.manifest import Manifest, read_manifest
from logloom.io.shards import LogRecord
from logloom.io.stretches import DAMAGE, LogRange
from logloom.io.units import UnitContext, Writer, format_named
from logloom.pipelines.build import check_reach, job_name, mend_digest, raise_outcome
from logloom.pipelines.convert_plan import ConvertJob, ConvertPlan, LogToConvert
from logloom.pipelines.progress import Watch
from logloom.pipelines.status import sweep_runs
from logloom.pipelines.versions import with_changes
from logloom.pipelines.view import make_view, viewing
from logloom.runners.options import RunnerOptions
from logloom.runners.running import run
from logloom.statistics.rows import RowStatistics
from logloom.transforms import finish, memory, partition
from logloom.transforms.build_logs import CommitVersion
from logloom.transforms.bundles import bundled, packed, unpacked
from logloom.transforms.job import LogTask, blank_entry
from logloom.transforms.journal import BUILDING, Note
from logloom.transforms.outcomes import GROUP, LogOutcome, stage_packed, staged_packed
from logloom.transforms.partition import Failure, PartitionResult
from logloom.transforms.running_note import Announced
from logloom.transforms.spread import SpreadByKey
from logloom.transforms.taking import taken_unit
from logloom.words import OnMessage, counted, ignore_message

with beam_needed():
    import apache_beam as beam


@dataclass(frozen=True)
class PartTask:
    """One part to convert.

    Attributes:
        record: of its log, as the source has it.
    """

    log: LogTask
    record: LogRecord
    part: LogRange


@dataclass(frozen=True)
class ConvertedPart:
    """What became of one part."""

    record: LogRecord
    result: PartitionResult


@dataclass(frozen=True)
class Converted:
    """A finished conversion.

    Attributes:
        view: the version's plain folder, "" in an object store.
        built, reused: units written, and found finished.
        left_out: under on_error skip, records of the logs that lack damaged parts of the source.
    """

    manifest: Manifest
    view: str
    built: int
    reused: int
    left_out: tuple[LogRecord, ...] = ()


class ConvertParts(beam.PTransform):
    """Bundles of PartTasks to LogOutcomes: writes a unit of each part, reads it back, finishes each log."""

    def __init__(self, job: ConvertJob):
        self.job = job

    def expand(self, parts: Any) -> Any:
        return (
            parts
            | "ConvertPart" >> beam.Map(_convert_parts, self.job)
            | "SpreadReadBack" >> beam.Reshuffle()
            | "ReadBack" >> beam.Map(_read_back, self.job)
            | "GroupByLog" >> beam.GroupByKey()
            | "FinishLog" >> beam.Map(_finish_log, self.job)
        )


def construct(pipeline: beam.Pipeline, plan: ConvertPlan) -> Any:
    """Adds a conversion to a pipeline; gives the one outcome."""
    return (
        pipeline
        | "Parts" >> _Parts(plan)
        | "SpreadParts" >> beam.Reshuffle()
        | "ConvertParts" >> ConvertParts(plan.job)
        | "CommitVersion" >> CommitVersion(plan.job, (log.task.log_id for log in plan.logs))
    )


@dataclass  # not frozen: Beam sets attributes on its transforms
class _Parts(beam.PTransform):
    """The bundles of a plan, packed: from the graph, or from files where they are many."""

    plan: ConvertPlan

    def expand(self, pipeline: Any) -> Any:
        if not self.plan.staged:
            return pipeline | beam.Create(list(_packed_bundles(self.plan)), reshuffle=False)
        return (
            pipeline
            | "Files" >> beam.Create(self.plan.staged, reshuffle=False)
            | "SpreadFiles" >> SpreadByKey(str)
            | "Read" >> beam.FlatMap(staged_packed, self.plan.job)
        )


def _packed_bundles(plan: ConvertPlan) -> Iterator[bytes]:
    return (packed(bundle) for log in plan.logs for bundle in _bundles(log, plan.job))


def convert(
    plan: ConvertPlan,
    *,
    runner: RunnerOptions | None = None,
    watch: Callable[..., Watch] = Watch.silent,
    on_message: OnMessage = ignore_message,
) -> Converted:
    """Runs a planned conversion to its end and makes the version's view.

    A plan that is up to date runs nothing.

    Args:
        runner: the engine; None is Beam's own, in this process.
        on_message: called with what the engine does, in words.

    Raises:
        UsageError: the engine's workers don't see the source or the root.
        DatasetError: the source is damaged; lists all that was found.
        ReadBackError: something written doesn't read back, or the source reads otherwise than it was written.
        CommitConflictError: somebody else committed this version first.
        StorageError: a disk or an object store refused.
    """
    job = plan.job
    job.store.sweep()
    mend_digest(job)
    if plan.up_to_date and job.parent is not None:
        return _with_view(job, job.parent, 0, 0)
    engine = runner or RunnerOptions("direct", workers=1)
    check_reach(engine, [job.recipe["convert"]["from"], job.store.uri])
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # what it says of errors stands in the error
    with watch(plan, sees_workers=engine.is_near or job.store.local is not None) as watching:
        told = dataclasses.replace(with_changes(job, plan.changes), journal=watching.journal)
        staged = stage_packed(told, _packed_bundles(plan)) if len(plan.parts) > GROUP else ()
        watched = dataclasses.replace(plan, job=told, staged=staged)
        try:
            steps = functools.partial(construct, plan=watched)
            with Announced(job, engine.name, len(plan.parts)):
                run(steps, engine, plan.size, name=job_name(job), on_message=on_message)
        finally:
            job.store.sweep()  # after workers that were ended amid their work
    outcome = finish.read_outcome(job)
    raise_outcome(outcome, "part", DatasetError)
    sweep_runs(job.store, job.number)
    return _with_view(job, job.number, outcome.built, outcome.reused)


def _with_view(job: ConvertJob, version: int, built: int, reused: int) -> Converted:
    manifest = read_manifest(job.store, version)
    with viewing(job.store, version):
        view = str(make_view(job.store, manifest)[0]) if job.store.local is not None else ""
    looked_at = manifest.logs if job.on_error == "skip" and DAMAGE in manifest.logs.dropped else ()
    damaged = tuple(record for record in looked_at if DAMAGE in record.dropped)
    return Converted(manifest, view, built, reused, damaged)


# --- a part ---------------------------------------------------------------------------------------------


def _bundles(log: LogToConvert, job: ConvertJob) -> Iterator[list[PartTask]]:
    """The parts of a log, those together that one worker converts after each other."""
    parts = log.source.parts
    tasks = (PartTask(log.task, log.source.record, part) for part in parts)
    return bundled(tasks, (part.size for part in parts), job.bundle)


def _convert_parts(planned: bytes, job: ConvertJob) -> bytes:
    return packed([_convert_counted(task, job) for task in unpacked(planned)])


def _convert_counted(task: PartTask, job: ConvertJob) -> ConvertedPart:
    converted = convert_part(task, job)
    beam.metrics.Metrics.counter("logloom", "partitions").inc()
    beam.metrics.Metrics.counter("logloom", "rows").inc(task.part.rows)
    return converted


def convert_part(task: PartTask, job: ConvertJob) -> ConvertedPart:
    """Writes the unit of one part unless it is there; a source that can't be read gives a failure."""
    log, part = task.log, task.part
    began = time.perf_counter()
    job.journal.write(Note(BUILDING, log.log_id, done=False))
    try:
        found = taken_unit(job, _blank_entry(task, job))
    except DatasetError as error:
        damage = Failure(log.log_id, part.name, "readback", str(error))
        return ConvertedPart(task.record, PartitionResult(log, part.name, (), (damage,)))
    try:
        entry = found or _write_unit(task, job)
    except StorageError:
        raise  # the fault of this machine or store
    except LogloomError as error:
        kind = "readback" if isinstance(error, ReadBackError) else "rows"
        if job.on_error == "skip" and isinstance(error, DatasetError):
            kind = "log"  # the source is damaged, and what is whole of it goes on
        failure = Failure(log.log_id, part.name, kind, str(error))
        return ConvertedPart(task.record, PartitionResult(log, part.name, (), (failure,)))
    seconds = time.perf_counter() - began
    done = Note(BUILDING, log.log_id, seconds=seconds, rows=entry.rows, found=found is not None)
    job.journal.write(done)
    result = PartitionResult(log, part.name, (entry,), (), int(found is None), seconds)
    return ConvertedPart(task.record, result)


def _blank_entry(task: PartTask, job: ConvertJob) -> Entry:
    """The entry of a unit before it is written."""
    return blank_entry(job.output, job.unit_identity(task.log.log_id, task.part), task.log, task.part)


def _write_unit(task: PartTask, job: ConvertJob) -> Entry:
    log, part = task.log, task.part
    digests, counting = RowsDigest(job.schema), RowStatistics(job.schema)
    rows = 0
    writer: Writer | None = None
    with (
        contextlib.ExitStack() as stack,
        explained(job.store.uri),
        memory.ROWS.reserved(3 * job.block_bytes if part.rows else 0),
        # Hashing leaves Python's lock to others, so it goes on beside writing.
        ThreadPoolExecutor(1) as hasher,
    ):
        folder = stack.enter_context(job.store.scratch())
        # A unit without rows has no files to open.
        everything = tuple(job.schema.all)
        blocks = job.source.part_blocks(log.log_id, part, everything, job.block_bytes) if part.rows else ()
        for block in blocks:
            digested, counted_up = hasher.submit(digests.update, block), hasher.submit(counting.update, block)
            if writer is None:
                context = UnitContext(
                    log.log_id,
                    log.uris[0],
                    part.name,
                    log.split,
                    job.period,
                    part.start,
                    part.stop,
                    job.store.options,
                )
                options = job.outputs[job.output]
                writer = format_named(job.output).writer(folder, job.schema, options, context)
            # A format keeps to the partition's name that the plan knows, whatever the source's reader says.
            writer.append(dataclasses.replace(block, partition=part.name, first_row=rows))
            digested.result()
            counted_up.result()
            rows += len(block)
        unit = writer.close() if writer is not None else {}
        columns = digests.hexdigests() if rows else {}
        _check_source(task, job, rows, columns)
        entry = dataclasses.replace(
            _blank_entry(task, job),
            rows=rows,
            files=files_of(folder),
            columns=unit.pop("columns", None) or columns,
            unit=unit,
            tally=part.tally,
            statistics=noted(counting.close()) if rows else "",
        )
        publish_unit(job.store, folder, entry)
    return entry


def _check_source(task: PartTask, job: ConvertJob, rows: int, columns: dict[str, str]) -> None:
    """Raises ReadBackError where the source's rows are not those it was made of."""
    part = task.part
    if rows != part.rows:
        raise ReadBackError(
            f"{job.recipe['convert']['from']}: {counted(rows, 'row')}, there were {part.rows} before"
        )
    known = part.digests
    different = [name for name, digest in columns.items() if known.get(name, digest) != digest]
    if different:
        raise ReadBackError(
            f"{job.recipe['convert']['from']}: column {', '.join(different)} reads otherwise than it was "
            "written; `logloom verify` says where"
        )


def _read_back(converted: bytes, job: ConvertJob) -> tuple[str, bytes]:
    """ConvertedParts of a log, packed, by log_id."""
    read = [read_back(one, job) for one in unpacked(converted)]
    return read[0].result.log.log_id, packed(read)


def read_back(converted: ConvertedPart, job: ConvertJob) -> ConvertedPart:
    """Reads the unit through its own reader; adds a failure where a column's digest is another."""
    return dataclasses.replace(converted, result=partition.read_back(job, converted.result))


# --- a log ----------------------------------------------------------------------------------------------


def _finish_log(grouped: tuple[str, Iterable[bytes]], job: ConvertJob) -> LogOutcome:
    """A log's record, once all its parts are done."""
    log_id, bundles = grouped
    parts: list[ConvertedPart] = [part for bundle in bundles for part in unpacked(bundle)]
    done = sorted(parts, key=lambda part: part.result.partition)  # Beam hands them over in any order
    failures = tuple(failure for part in done for failure in part.result.failures)
    if any(failure.kind != "log" for failure in failures):
        return LogOutcome(log_id, None, failures)
    entries = sorted((e for part in done for e in part.result.entries), key=lambda entry: entry.start)
    rows = sum(entry.rows for entry in entries)
    key = done[0].result.log.key
    record = dataclasses.replace(
        done[0].record,
        key=key,
        part=write_log_part(job.store, entries),
        units=len(entries),
        rows=rows,
        verified=finish.read_share(job),
        statistics=write_statistics(job.store, log_id, of_units(job.store, entries)),
    )
    if failures:
        record = _without_damaged(done[0].record, record, failures)
    built = sum(part.result.built for part in done)
    seconds = sum(part.result.seconds for part in done)
    return LogOutcome(log_id, record, failures, built, len(entries) - built, seconds)


def _without_damaged(source: LogRecord, record: LogRecord, failures: Sequence[Failure]) -> LogRecord:
    """The record of a log that lacks damaged parts."""
    reasons = (*source.reasons, *(f"partition {one.partition}: {one.message}" for one in failures))
    return dataclasses.replace(
        record,
        # Another key than that of the whole log, so that each conversion tries these parts again.
        key=digest_of([record.key, DAMAGE]),
        status="salvaged" if record.rows else "skipped",
        dropped={**source.dropped, DAMAGE: source.dropped.get(DAMAGE, 0) + source.rows - record.rows},
        reasons=reasons[: finish.MAX_REASONS],
    )
