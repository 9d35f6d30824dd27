"""One partition: building its units, and reading them back. All that a worker does with payloads.

Here: pure functions of a job and a partition; any of them may run twice, or at the same time elsewhere.
Elsewhere: where rows come from (rows, conversion), the formats' writers and readers (logloom.io).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

from blake3 import blake3
from pydantic import BaseModel

from logloom.blocks import Block
from logloom.digests import RowsDigest, file_digest
from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.io.ahead import ahead
from logloom.io.disk import start_writing
from logloom.io.entries import Entry, FileEntry, files_in, files_of, publish_unit
from logloom.io.filesystems import explained
from logloom.io.log_statistics import noted
from logloom.io.memory import keep_freed_memory
from logloom.io.metadata import Text
from logloom.io.remote import MISSING
from logloom.io.sources import RowSource
from logloom.io.steps import each, step
from logloom.io.storage import Store
from logloom.io.units import Portion, UnitContext, Writer, closed, format_named
from logloom.schema import Schema
from logloom.statistics.rows import RowStatistics
from logloom.transforms import memory
from logloom.transforms.bundles import bundled
from logloom.transforms.columns import Span
from logloom.transforms.derive import NOT_OF_THE_LOG
from logloom.transforms.finished import withdraw
from logloom.transforms.images import check_images, image_columns
from logloom.transforms.job import Job, LogJob, LogTask, PartitionTask, Target, opened
from logloom.transforms.journal import BUILDING, READING_BACK, Note
from logloom.transforms.portions import open_portions, publish_portion
from logloom.transforms.spans import ByteIndex, plan_spans
from logloom.transforms.taking import taken_unit
from logloom.words import counted

_log = logging.getLogger("logloom.build")  # engines show it on their pages
_WRITE_OUT = 16 << 20  # bytes of rows that are sent to the disk together
READ_BYTES = 16 << 20  # of a block that is read back: a few of them need no fresh memory, which costs more
_AT_A_TIME = 6  # blocks: that are read, wait for their digest, or have it, and buffers
_UNPACKED = 8  # times the bytes of its files that a unit's rows may take, and their buffers


@dataclass(frozen=True)
class Failure:
    """Something that stops a build, or leaves a log out of it.

    Attributes:
        kind: "log" (the source is damaged), "derive" (a function of the user's fails on it), "rows" (a value
            doesn't fit the recipe or an output), "worker" (processes die of it), "recipe" (nothing of the
            log's), "machine" (another attempt may do without) or "readback" (what was written doesn't read
            back).
    """

    log_id: Text
    partition: Text
    kind: Text
    message: Text


@dataclass(frozen=True)
class PartitionResult:
    """What became of one partition: an entry for each output, or failures.

    Attributes:
        built: how many of the entries this attempt wrote; the others were found finished.
        seconds: what the attempt took.
    """

    log: LogTask
    partition: str
    entries: tuple[Entry, ...]
    failures: tuple[Failure, ...] = ()
    built: int = 0
    seconds: float = 0.0


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
    began = time.perf_counter()
    job.journal.write(Note(BUILDING, log.log_id, done=False))
    blank = {output: job.blank_entry(output, log, span) for output in job.outputs}
    try:
        found = {output: taken_unit(job, entry) for output, entry in blank.items()}
    except DatasetError as error:
        return PartitionResult(log, span.name, (), (Failure(log.log_id, span.name, "readback", str(error)),))
    missing = {output: entry for output, entry in blank.items() if found[output] is None}
    try:
        built = _write_units(job, partition, missing) if missing else {}
    except (StorageError, *NOT_OF_THE_LOG):
        raise  # the fault of this machine or store, not of the log
    except Exception as error:  # whatever a format or a library raises of a log's values
        return PartitionResult(log, span.name, (), (_failure(job, partition, error),))
    entries = _counted_once(entry for output in blank if (entry := found[output] or built.get(output)))
    seconds = time.perf_counter() - began
    rows = max((entry.rows for entry in entries), default=0)
    job.journal.write(Note(BUILDING, log.log_id, seconds=seconds, rows=rows, found=not built))
    return PartitionResult(log, span.name, entries, (), len(built), seconds)


def _counted_once(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Entries of one partition, but for statistics that one before has, too: they cross shuffles."""
    once: list[Entry] = []
    for entry in entries:
        is_known = any(other.statistics for other in once)
        once.append(dataclasses.replace(entry, statistics="") if is_known else entry)
    return tuple(once)


def _failure(job: Job, partition: PartitionTask, error: Exception) -> Failure:
    """An error of building a partition as a failure of its log."""
    log, span = partition.log, partition.span
    kind = next((kind for of, kind in job.failure_kinds.items() if isinstance(error, of)), "rows")
    if kind == "rows" and isinstance(error.__cause__, NOT_OF_THE_LOG):
        kind = "machine"
    message = str(error) if isinstance(error, LogloomError) else f"{type(error).__name__}: {error}"
    if not isinstance(error, LogloomError):
        _log.warning("%s %s: %s", log.log_id, span.name, message, exc_info=error)
    return Failure(log.log_id, span.name, kind, message)


class _Writing:
    """Makes the rows of a partition once and feeds every output's writer, each in a scratch folder."""

    def __init__(
        self,
        job: Job,
        partition: PartitionTask,
        outputs: Iterable[str],
        *,
        keep_portions: bool = False,
        anew: bool = False,
        with_statistics: bool = False,
    ):
        self._job, self._partition, self._outputs = job, partition, tuple(outputs)
        self._keep_portions, self._anew = keep_portions, anew
        self._stack = contextlib.ExitStack()
        # Hashing leaves Python's lock to others, so it goes on beside writing.
        self._hasher = self._stack.enter_context(ThreadPoolExecutor(1))
        self._writers: dict[str, Writer] = {}
        self._digests = RowsDigest(job.schema)
        self._counting = RowStatistics(job.schema) if with_statistics else None
        self.folders: dict[str, pathlib.Path] = {}
        self.portions: dict[str, dict[str, Portion]] = {}
        self.rows = self._unwritten = 0
        self.tally: dict[str, Any] = {}
        self.statistics = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self) -> None:
        stream = self._job.rows_of(self._partition)
        count = None if self._counting is None else self._counting.update
        for block in each("make rows", stream):
            if len(block) and not self._writers:  # no rows, no files
                self._open_writers()
            digested = self._hasher.submit(_digest, self._digests, count, block)
            for output, writer in self._writers.items():
                with step(f"write {output}", block.nbytes):
                    writer.append(block)
            digested.result()
            self.rows += len(block)
            self._write_out(block.nbytes)
        self.tally = stream.account(self.rows, self._digests)
        if self._counting is not None and self.rows:
            self.statistics = noted(self._counting.close())

    def _write_out(self, nbytes: int) -> None:
        """Has the disk busy while the next rows are made, so that little is left to wait for when all are."""
        self._unwritten += nbytes
        if self._unwritten < _WRITE_OUT or self._anew or not self._keep_portions:  # else nothing is published
            return
        self._unwritten = 0
        portions = itertools.chain.from_iterable(own.values() for own in self.portions.values())
        folders = [*self.folders.values(), *(one.scratch for one in portions if one.scratch is not None)]
        self._hasher.submit(start_writing, [path for folder in folders for path in files_in(folder)])

    def _open_writers(self) -> None:
        job, log, span = self._job, self._partition.log, self._partition.span
        context = UnitContext(
            log.log_id,
            log.uris[0],
            span.name,
            log.split,
            job.period,
            span.start,
            span.stop,
            job.store.options,
        )
        for output in self._outputs:
            folder = self.folders[output] = self._stack.enter_context(job.store.scratch())
            if self._keep_portions:
                self.portions[output] = open_portions(job, output, log, span, self._stack, anew=self._anew)
            own = dataclasses.replace(context, portions=self.portions.get(output, {}))
            options = job.outputs[output]
            self._writers[output] = format_named(output).writer(folder, job.schema, options, own)

    def close(self, output: str) -> tuple[dict[str, Any], dict[str, str]]:
        """What the output's writer says, and the digests of its columns; after `run`, once."""
        if output not in self._writers:
            self.folders[output] = self._stack.enter_context(self._job.store.scratch())
            return {}, {}
        with step(f"write {output}"):
            return closed(self._writers[output], self._digests)


def _write_units(job: Job, partition: PartitionTask, blank: dict[str, Entry]) -> dict[str, Entry]:
    """Builds and publishes the given outputs' units of a partition."""
    entries = {}
    with (
        _Writing(job, partition, blank, keep_portions=True, with_statistics=True) as writing,
        explained(job.store.uri),
    ):
        writing.run()
        for output in blank:
            entry = _closed(writing, blank[output])
            folder = writing.folders[output]
            for name, portion in writing.portions.get(output, {}).items():
                publish_portion(job, entry, name, portion)
            publish_unit(job.store, folder, entry)
            entries[output] = entry
    return entries


def _closed(writing: _Writing, blank: Entry) -> Entry:
    """The entry of a unit whose rows are all written."""
    unit, columns = writing.close(blank.output)
    portions = writing.portions.get(blank.output, {})
    own = files_of(writing.folders[blank.output])
    return dataclasses.replace(
        blank,
        rows=writing.rows,
        files=(*own, *itertools.chain(*map(_files_of_portion, portions.values()))),
        columns=columns,
        unit=unit,
        tally=writing.tally,
        statistics=writing.statistics,
    )


def derive_entry(job: Job, log: LogTask, span: Span, output: str) -> Entry:
    """The entry that a unit has when it is built, keeping nothing of it."""
    with (
        _Writing(
            job, PartitionTask(log, span), [output], keep_portions=True, anew=True, with_statistics=True
        ) as writing,
        explained(job.store.uri),
    ):
        writing.run()
        return _closed(writing, job.blank_entry(output, log, span))


def _files_of_portion(portion: Portion) -> list[FileEntry]:
    if portion.finished is not None:
        files = portion.finished.files
    else:
        assert portion.scratch is not None
        files = files_of(portion.scratch)
    return [dataclasses.replace(file, portion=portion.identity) for file in files]


def rebuild_files(
    job: Job, log: LogTask, span: Span, entry: Entry, files: Sequence[FileEntry]
) -> Iterator[tuple[FileEntry, str]]:
    """Builds a unit again, and puts back those of its files that come out with the bytes they should have.

    Yields:
        Each of the files, and why it wasn't put back; "" where it was.
    """
    with (
        _Writing(job, PartitionTask(log, span), [entry.output], keep_portions=True, anew=True) as writing,
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
                yield file, "the log gives no such file"
            elif file_digest(path) != file.digest:
                yield file, "built again it has other bytes"
            else:
                job.store.restore(path, entry.path_of(file))
                yield file, ""


@dataclass(frozen=True)
class Reading:
    """What reading a version's units back takes.

    Attributes:
        outputs: name to the output's options.
        encoded: columns that hold images which the recipe encoded.
        block_bytes: of rows that are looked at together, about.
    """

    store: Store
    schema: Schema
    outputs: Mapping[str, BaseModel]
    encoded: frozenset[str]
    block_bytes: int = READ_BYTES

    @classmethod
    def of(cls, job: Target) -> Reading:
        return cls(job.store, job.schema, job.outputs, job.encoded, min(job.block_bytes, READ_BYTES))

    def open(self, entry: Entry) -> RowSource:
        """The reader of a finished unit."""
        folder = self.store.uri_of(entry.folder)
        options = self._options(entry)
        form = format_named(entry.output)
        return form.reader(folder, self.schema, options, entry.unit, storage_options=self.store.options)

    def image_columns(self, entry: Entry) -> set[str]:
        """The columns of a unit that hold images."""
        form = format_named(entry.output)
        return image_columns(self.schema, self.encoded, form, self._options(entry))

    def _options(self, entry: Entry) -> BaseModel:
        if entry.output not in self.outputs:
            raise DatasetError(
                f"{self.store.uri_of(entry.folder)}: a unit of output {entry.output!r}, which the version "
                f"doesn't have; there are {', '.join(self.outputs)}"
            )
        return self.outputs[entry.output]


def read_back(job: Target, result: PartitionResult) -> PartitionResult:
    """Reads the units through their own readers; adds a failure for each that differs from its entry."""
    keep_freed_memory()
    reading = Reading.of(job)
    began = time.perf_counter()
    chosen = [entry for entry in result.entries if entry.rows and is_sampled(job.verify, entry.identity)]
    failures = [one for entry in chosen for one in damaged(job, entry, differences(reading, entry))]
    job.journal.write(Note(READING_BACK, result.log.log_id, seconds=time.perf_counter() - began))
    return dataclasses.replace(result, failures=(*result.failures, *failures))


def damaged(job: Target, entry: Entry, problems: Iterable[str]) -> list[Failure]:
    """The failures of a unit that isn't what its entry promises, which no longer counts as finished."""
    found = list(problems)
    if not found:
        return []
    way_out = withdraw(job.store, entry.log_id, entry.folders) or "build again: it will be made anew"
    return [Failure(entry.log_id, entry.partition, "readback", f"{one}; {way_out}") for one in found]


def _digest(digests: RowsDigest, count: Callable[[Block], object] | None, block: Block) -> Block:
    """Takes the block's rows into digests of columns and, where asked, into statistics; gives it back."""
    with step("hash columns", block.nbytes):
        digests.update(block)
    if count is not None:
        with step("count statistics", block.nbytes):
            count(block)
    return block


def is_sampled(verify: str, identity: str) -> bool:
    """Whether a unit is among those to read back; the same ones in every attempt."""
    if verify in ("all", "new", "none"):
        return verify != "none"
    share = float(verify.removeprefix("sample:"))
    return int(blake3(identity.encode()).hexdigest()[:8], 16) < share * 2**32


def differences(
    reading: Reading, entry: Entry, on_block: Callable[[Block], object] | None = None
) -> Iterator[str]:
    """Says how a unit differs, read through its reader, from what its entry promises.

    Args:
        on_block: called with all that is read.

    Raises:
        StorageError: it can't be read.
    """
    place = reading.store.uri_of(entry.folder)
    try:
        with explained(place, MISSING):
            images = reading.image_columns(entry)
            reader = reading.open(entry)
            digests = RowsDigest(reader.schema)
            rows = 0

            with memory.ROWS.reserved(min(_AT_A_TIME * reading.block_bytes, _UNPACKED * entry.size)):
                # Hashing leaves Python's lock to whoever reads the next block.
                blocks = each("read rows", reader.blocks(max_bytes=reading.block_bytes))
                for block in ahead(functools.partial(_digest, digests, on_block), blocks, threads=1):
                    rows += len(block)
                    yield from check_images(place, block, images & set(block.columns))
    except StorageError:
        raise  # the fault of this machine or store, not of the unit
    except (LogloomError, *MISSING, ValueError) as error:
        yield f"{place}: {error}"
        return
    if rows != entry.rows:
        yield f"{place}: {counted(rows, 'row')}, its entry says {entry.rows}"
        return
    found = digests.hexdigests()
    unknown = [name for name in found if name not in entry.columns]
    if unknown:
        yield f"{place}: the entry has no digest of column {', '.join(unknown)}"
    different = [name for name in found if found[name] != entry.columns.get(name, found[name])]
    if different:
        yield f"{place}: read back differs from what was written in column {', '.join(different)}"


def derive_columns(
    job: Job, log: LogTask, span: Span, outputs: Sequence[str]
) -> dict[str, tuple[int, dict[str, str]]]:
    """Makes a partition's rows from its log again, keeping nothing.

    Returns:
        For each output the number of rows, and the digests of its columns as its reader would give them.
    """
    with _Writing(job, PartitionTask(log, span), outputs) as writing:
        writing.run()
        return {output: (writing.rows, writing.close(output)[1]) for output in outputs}


def listed(failures: Sequence[Failure], total: int = 0) -> str:
    """The failures as lines for people, at most twenty.

    Args:
        total: how many there are, if more than these.
    """
    lines = [f"{f.log_id} {f.partition}".rstrip() + f": {f.message}" for f in failures[:20]]
    more = max(total, len(failures)) - len(lines)
    return "\n".join(lines + [f"… and {more} more"] * (more > 0))
