"""Pipeline steps that build logs and commit a version, and their connections.

Here: wiring, counters, and workers' log messages.
Elsewhere: the work of each step (logloom.transforms.build.partition, logloom.transforms.build.commit,
logloom.transforms.build.assembly.files), whole jobs (logloom.pipelines).
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

from logloom.io.catalog.entries import FileEntry
from logloom.io.catalog.pages import LogStatus
from logloom.io.storage.remote import retries
from logloom.io.storage.step_times import recorded, step
from logloom.metrics import count, spread
from logloom.transforms.build import commit
from logloom.transforms.build.assembly import files as assembly
from logloom.transforms.build.assembly.plan import (
    AssembledFileTask,
    PlannedAssembly,
    assembled_outputs,
    plan_assemblies,
)
from logloom.transforms.build.bundles import packed, unpacked
from logloom.transforms.build.job import Job, LogJob, LogTask, PartitionTask, Target
from logloom.transforms.build.journal import FINISHING, OPENED, Note
from logloom.transforms.build.log_summaries import Opened
from logloom.transforms.build.outcomes import (
    LogOutcome,
    LogOutcomes,
    group_of,
    group_starts,
    merge_outcomes,
    stage_packed,
    staged_packed,
    write_outcomes,
)
from logloom.transforms.build.partition_results import Failure, PartitionResult
from logloom.transforms.build.quarantine import build_bundle, open_new
from logloom.transforms.build.read_back import is_sampled
from logloom.transforms.build.read_marks import read_back_bundle

P = ParamSpec("P")
T = TypeVar("T")

LOG = logging.getLogger("logloom.build")  # engines show it on their pages
LOG.addHandler(logging.NullHandler())  # here, errors say the same


def build_logs(logs: Any, job: Target, beam: Any) -> Any:
    """LogTasks to LogOutcomes: plans, builds and reads back every partition, then finishes each log.

    Of a conversion come bundles of PartitionTasks, packed: its plan knows the parts of the source already.

    Args:
        beam: `apache_beam`, or its replacement (`logloom.runners.inline`); of all functions here.
    """
    return (
        logs
        | "PlanPartitions" >> beam.FlatMap(_plan_partitions, job)
        | "SpreadPartitions" >> beam.Reshuffle()
        | "BuildPartition" >> beam.Map(_build_partitions, job)
        | "SpreadReadBack" >> beam.Reshuffle()
        | "ReadBack" >> beam.Map(_read_back, job)
        | "GroupByLog" >> beam.GroupByKey()
        | "FinishLog" >> beam.Map(_finish_log, job)
    )


def commit_version(outcomes: Any, job: Target, log_ids: Iterable[str], beam: Any) -> Any:
    """LogOutcomes to the one outcome of the build: checks units, assembles outputs, then commits.

    Outcomes of neighbouring logs are written together; what goes on are the names of these files.
    """
    start = outcomes.pipeline | "Start" >> beam.Impulse()
    groups = (
        outcomes
        | "GroupNeighbours" >> beam.Map(_by_group, group_starts(log_ids))
        | "CollectGroup" >> beam.GroupByKey()
        | "WriteOutcomes" >> beam.Map(_write_outcomes, job)
    )
    merged = beam.pvalue.AsSingleton(start | "MergeLogs" >> beam.Map(_merge, job, beam.pvalue.AsList(groups)))
    # An engine takes time for each step of a graph, even for one that has nothing to do.
    plans: Any = ()
    if assembled_outputs(job):
        plans = beam.pvalue.AsSingleton(start | "PlanAssembly" >> beam.Map(_plan_assembly, job, merged))
    damaged = _checked(start, job, merged, plans, beam) if assembly.may_check(job) else []
    assembled = _assembled(start, job, plans, damaged, beam) if assembled_outputs(job) else []
    return start | "Commit" >> beam.Map(_commit, job, merged, assembled, damaged)


def _checked(start: Any, job: Target, merged: Any, plans: Any, beam: Any) -> Any:
    return beam.pvalue.AsList(
        start
        | "PlanChecks" >> beam.FlatMap(_plan_checks, job, merged, plans)
        | "SpreadChecks" >> beam.Reshuffle()
        | "CheckUnit" >> beam.FlatMap(_check_unit, job)
    )


def _assembled(start: Any, job: Target, plans: Any, damaged: Any, beam: Any) -> Any:
    files = (
        start
        | "PlanChunks" >> beam.FlatMap(_plan_chunks, job, plans, damaged)
        | "SpreadChunks" >> beam.Reshuffle()
        | "WriteChunk" >> beam.Map(_write_chunk, job)
    )
    return beam.pvalue.AsList(
        start
        | "Assemble" >> beam.FlatMap(_assemble, job, plans, beam.pvalue.AsList(files), damaged)
        | "SpreadAssembled" >> beam.Reshuffle()
        | "ReadBackAssembled" >> beam.Map(_finish_assembly, job)
    )


def _step(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function of (element, job, ...) a step: record its time, and count retried requests."""

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(work)  # by its name Beam sends it to workers
        def run(*arguments: P.args, **more: P.kwargs) -> T:
            job: Any = arguments[1]
            with recorded(job.journal.steps), step(name):
                done = work(*arguments, **more)
            count(storage_retries=retries.take())
            return done

        return run

    return decorate


def _plan_partitions(log: LogTask | bytes, job: LogJob) -> Iterable[bytes]:
    """Bundles of partitions, packed, or of the result of a log that there is nothing to be done for."""
    if isinstance(log, bytes):
        return [log]
    task, failed, bundles, size = _open_new(log, job)
    if failed is not None:
        return [packed([PartitionResult(task, "", (), (failed,))])]
    job.journal.write(Note(OPENED, task.log_id, pieces=sum(map(len, bundles)), size=size))
    # A log without ticks is finished all the same.
    return map(packed, bundles) if bundles else [packed([PartitionResult(task, "", ())])]


@_step("open a log")
def _open_new(log: LogTask, job: LogJob) -> Opened:
    return open_new(job, log)


@_step("build partitions")
def _build_partitions(planned: bytes, job: Job) -> bytes:
    elements: list[PartitionTask | PartitionResult] = unpacked(planned)
    tasks = [element for element in elements if isinstance(element, PartitionTask)]
    results = [element for element in elements if isinstance(element, PartitionResult)]
    built = build_bundle(job, tasks) if tasks else []
    for result in built:
        _count_built(result)
    return packed([*results, *built])


def _count_built(result: PartitionResult) -> None:
    rows = max((entry.rows for entry in result.entries), default=0)
    size = sum(entry.size for entry in result.entries)
    found = len(result.entries) - result.built
    count(partitions=1, rows=rows, bytes_written=size, units_built=result.built, units_found=found)
    count(partitions_failed=int(bool(result.failures)))
    spread(partition_milliseconds=round(1000 * result.seconds), partition_bytes=size)
    for failure in result.failures:
        LOG.warning("%s %s: %s", failure.log_id, failure.partition, failure.message)
    LOG.info(
        "%s %s: %d rows, %d units built, %d found finished, %.1f s",
        result.log.log_id,
        result.partition,
        rows,
        result.built,
        found,
        result.seconds,
    )


@_step("read units back")
def _read_back(built: bytes, job: Job) -> tuple[str, bytes]:
    """PartitionResults of a log, packed, by log_id."""
    read, known = read_back_bundle(job, unpacked(built))
    units = [entry for result in read for entry in result.entries]
    looked_at = 0 if known else sum(is_sampled(job.settings.verify, unit.identity) for unit in units)
    count(units_read_back=looked_at, units_known_read=known)
    return read[0].log.log_id, packed(read)


@_step("finish a log")
def _finish_log(grouped: tuple[str, Iterable[bytes]], job: Job) -> LogOutcome:
    outcome = commit.finish_log(job, itertools.chain.from_iterable(map(unpacked, grouped[1])))
    job.journal.write(Note(FINISHING, outcome.log_id))
    count(logs=1, logs_failed=int(outcome.record is None and bool(outcome.failures)))
    if outcome.record is not None:
        is_skipped = outcome.record.status == LogStatus.skipped
        count(logs_skipped=int(is_skipped), messages_refused=outcome.record.refused)
    return outcome


def _by_group(outcome: LogOutcome, starts: Sequence[str]) -> tuple[int, LogOutcome]:
    return group_of(outcome.log_id, starts), outcome


@_step("write outcomes")
def _write_outcomes(group: tuple[int, Iterable[LogOutcome]], job: Target) -> LogOutcomes:
    return write_outcomes(job, group[1])


@_step("merge outcomes")
def _merge(_: bytes, job: Target, groups: list[LogOutcomes]) -> LogOutcomes:
    return merge_outcomes(job, groups)


@_step("plan assembled outputs")
def _plan_assembly(_: bytes, job: Target, outcomes: LogOutcomes) -> tuple[str, ...]:
    return stage_packed(job, plan_assemblies(job, outcomes))


def _plans(job: Target, digests: Iterable[str]) -> Iterator[PlannedAssembly]:
    return itertools.chain.from_iterable(staged_packed(digest, job) for digest in digests)


def _plan_checks(
    _: bytes, job: Target, outcomes: LogOutcomes, plans: Sequence[str]
) -> Iterable[assembly.UnitCheck]:
    return assembly.plan_checks(job, outcomes, _plans(job, plans))


@_step("check a unit")
def _check_unit(check: assembly.UnitCheck, job: Target) -> list[Failure]:
    return assembly.check_unit(job, check)


def _plan_chunks(
    _: bytes, job: Target, plans: Sequence[str], damaged: list[Failure]
) -> list[AssembledFileTask]:
    return assembly.plan_chunks(job, _plans(job, plans), damaged)


@_step("write an assembled file")
def _write_chunk(chunk: AssembledFileTask, job: Target) -> tuple[str, FileEntry]:
    return assembly.write_chunk(job, chunk)


def _assemble(
    _: bytes, job: Target, plans: Sequence[str], files: list[tuple[str, FileEntry]], damaged: list[Failure]
) -> Iterable[assembly.AssemblyCandidate]:
    return assembly.plan_candidates(job, _plans(job, plans), files, damaged)


@_step("finish an assembled output")
def _finish_assembly(candidate: assembly.AssemblyCandidate, job: Target) -> assembly.AssembledResult:
    return assembly.finish_assembly(job, candidate)


@_step("commit")
def _commit(
    _: bytes,
    job: Target,
    outcomes: LogOutcomes,
    assembled: list[assembly.AssembledResult],
    damaged: list[Failure],
) -> dict[str, Any]:
    return commit.commit(job, outcomes, assembled, damaged)
