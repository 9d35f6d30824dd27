"""Build the units of a partition (a span of a log's ticks), one for each output.

Here: pure functions of a job and a partition; any of them may run twice, or at the same time elsewhere.
Elsewhere: making and writing rows (logloom.transforms.build.unit_writer), reading units back
(logloom.transforms.build.read_back), results (logloom.transforms.build.partition_results).
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator, Sequence

from logloom.digests import file_digest
from logloom.errors import DatasetError, StorageError
from logloom.io.catalog.entries import Entry, FileEntry, publish_unit
from logloom.io.storage.files import keep_freed_memory
from logloom.io.storage.filesystems import explained
from logloom.transforms.build.bundles import bundled
from logloom.transforms.build.job import Job, LogJob, LogTask, PartitionTask, opened
from logloom.transforms.build.journal import BUILDING, Note
from logloom.transforms.build.partition_progress import PartitionProgress
from logloom.transforms.build.partition_results import Failure, PartitionResult, failure_of
from logloom.transforms.build.reuse import taken_unit
from logloom.transforms.build.unit_writer import Writing, publish_portion
from logloom.transforms.rows.derive.columns import NOT_OF_THE_LOG
from logloom.transforms.rows.plan.row_plan import Span
from logloom.transforms.rows.spans import ByteIndex, plan_spans

_log = logging.getLogger("logloom.build")  # engines show it on their pages


def plan_partitions(job: LogJob, log: LogTask) -> list[PartitionTask]:
    """The partitions of a log, from its index."""
    return [PartitionTask(log, span) for span in plan_spans(opened(job, log).summary, job.plan)]


def plan_bundles(job: LogJob, log: LogTask) -> list[list[PartitionTask]]:
    """The partitions of a log, those together that one worker builds after each other."""
    partitions = plan_partitions(job, log)
    index = ByteIndex(opened(job, log).summary)
    sizes = (index.between(p.span.start, p.span.stop) for p in partitions)
    return list(bundled(partitions, sizes, job.bundle))


def build_partition(job: Job, partition: PartitionTask) -> PartitionResult:
    """Builds the units of a partition that are not there yet.

    A source that can't be read gives a failure, not an exception, so that one build lists all that is bad.
    """
    keep_freed_memory()
    log, span = partition.log, partition.span
    began, progress = time.perf_counter(), PartitionProgress(job, partition)
    job.journal.write(Note(BUILDING, log.log_id, done=False))
    blank = {output: job.blank_entry(output, log, span) for output in job.outputs}
    try:
        found = {output: taken_unit(job, entry) for output, entry in blank.items()}
    except DatasetError as error:
        return PartitionResult(log, span.name, (), (Failure(log.log_id, span.name, "readback", str(error)),))
    missing = {output: entry for output, entry in blank.items() if found[output] is None}
    try:
        built = _write_units(job, partition, missing, progress) if missing else {}
    except (StorageError, *NOT_OF_THE_LOG):
        raise  # the fault of this machine or store, not of the log
    except Exception as error:  # whatever a format or a library raises of a log's values
        return PartitionResult(log, span.name, (), (failure_of(job, log.log_id, span.name, error),))
    entries = _counted_once(entry for output in blank if (entry := found[output] or built.get(output)))
    seconds = time.perf_counter() - began
    rows = max((entry.rows for entry in entries), default=0)
    progress.close(rows, found=not built)
    return PartitionResult(log, span.name, entries, (), len(built), seconds)


def _counted_once(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Entries of one partition, but for statistics that one before has, too: they cross shuffles."""
    once: list[Entry] = []
    for entry in entries:
        is_known = any(other.statistics for other in once)
        once.append(dataclasses.replace(entry, statistics="") if is_known else entry)
    return tuple(once)


def _write_units(
    job: Job, partition: PartitionTask, blank: dict[str, Entry], progress: PartitionProgress
) -> dict[str, Entry]:
    """Builds and publishes the given outputs' units of a partition."""
    entries = {}
    with (
        Writing(
            job, partition, blank, keep_portions=True, with_statistics=True, progress=progress
        ) as writing,
        explained(job.store.uri),
    ):
        writing.run()
        for output in blank:
            entry = writing.entry(blank[output])
            folder = writing.folders[output]
            for name, portion in writing.portions.get(output, {}).items():
                publish_portion(job, entry, name, portion)
            publish_unit(job.store, folder, entry)
            entries[output] = entry
    return entries


def derive_entry(job: Job, log: LogTask, span: Span, output: str) -> Entry:
    """The entry that a unit has when it is built, keeping nothing of it."""
    with (
        Writing(
            job, PartitionTask(log, span), [output], keep_portions=True, anew=True, with_statistics=True
        ) as writing,
        explained(job.store.uri),
    ):
        writing.run()
        return writing.entry(job.blank_entry(output, log, span))


def rebuild_files(
    job: Job, log: LogTask, span: Span, entry: Entry, files: Sequence[FileEntry]
) -> Iterator[tuple[FileEntry, str]]:
    """Rebuild a unit, and put back those of its files that come out with the bytes they should have.

    Yields:
        Each of the files, and why it wasn't put back; "" where it was.
    """
    with (
        Writing(job, PartitionTask(log, span), [entry.output], keep_portions=True, anew=True) as writing,
        explained(job.store.uri),
    ):
        writing.run()
        writing.close(entry.output)
        portions = writing.portions.get(entry.output, {}).values()
        folders = {portion.identity: portion.scratch for portion in portions}
        for file in files:
            folder = folders.get(file.portion) if file.portion else writing.folders[entry.output]
            path = None if folder is None else folder / file.name
            if path is None or not path.is_file():
                yield file, "the log has no such file"
            elif file_digest(path) != file.digest:
                yield file, "built again it has other bytes"
            else:
                job.store.restore(path, entry.path_of(file))
                yield file, ""


def derive_columns(
    job: Job, log: LogTask, span: Span, outputs: Sequence[str]
) -> dict[str, tuple[int, dict[str, str]]]:
    """Makes a partition's rows from its log again, keeping nothing.

    Returns:
        For each output the number of rows, and the digests of its columns as its reader would give them.
    """
    with Writing(job, PartitionTask(log, span), outputs) as writing:
        writing.run()
        return {output: (writing.rows, writing.close(output)[1]) for output in outputs}
