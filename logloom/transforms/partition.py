"""One partition: building its units, and reading them back. All that a worker does with payloads.

Here: pure functions of a job and a partition; any of them may run twice, or at the same time elsewhere.
Elsewhere: how rows are made (logloom.transforms.rows), the formats' writers and readers (logloom.io).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

from blake3 import blake3
from pydantic import BaseModel

from logloom.digests import RowsDigest, file_digest
from logloom.errors import LogloomError, LogReadError, StorageError
from logloom.io.manifest import ENTRY, Entry, FileEntry, canonical, find_entry
from logloom.io.storage import MISSING, Store, explained, sync
from logloom.io.units import Portion, Reader, UnitContext, Writer, format_named
from logloom.schema import Schema
from logloom.transforms.bundles import bundled
from logloom.transforms.columns import Span
from logloom.transforms.derive import DeriveError, load_files
from logloom.transforms.images import check_images, image_columns
from logloom.transforms.job import Job, LogTask, Partition, opened
from logloom.transforms.portions import open_portions, publish_portion
from logloom.transforms.rows import build_blocks
from logloom.transforms.spans import ByteIndex, plan_spans

_PIECE = 8 << 20  # bytes of an object that are hashed at a time


@dataclass(frozen=True)
class Failure:
    """Something that stops a build, or leaves a log out of it.

    Attributes:
        kind: "log" (the input is damaged), "derive" (a function of the user's fails on it), "rows" (a value
            doesn't fit the recipe) or "readback" (what was written doesn't read back).
    """

    log_id: str
    partition: str
    kind: str
    message: str


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


def plan_partitions(job: Job, log: LogTask) -> list[Partition]:
    """The partitions of a log, from its index."""
    return [Partition(log, span) for span in plan_spans(opened(job, log).summary, job.plan)]


def plan_bundles(job: Job, log: LogTask) -> list[list[Partition]]:
    """The partitions of a log, those together that one worker builds after each other."""
    partitions = plan_partitions(job, log)
    index = ByteIndex(opened(job, log).summary)
    sizes = (index.between(p.span.start, p.span.stop) for p in partitions)
    return list(bundled(partitions, sizes, job.bundle))


def build_partition(job: Job, partition: Partition) -> PartitionResult:
    """Builds the units of a partition that are not there yet.

    A log that can't be read gives a failure, not an exception, so that one build lists all bad logs.
    """
    log, span = partition.log, partition.span
    began = time.perf_counter()
    identities = {output: job.unit_identity(output, log, span) for output in job.outputs}
    found = {output: find_entry(job.store, output, name) for output, name in identities.items()}
    missing = {output: name for output, name in identities.items() if found[output] is None}
    try:
        built = _write_units(job, partition, missing) if missing else {}
    except StorageError:
        raise  # the fault of this machine or store, not of the log
    except LogloomError as error:
        kinds = {LogReadError: "log", DeriveError: "derive"}
        kind = next((kind for of, kind in kinds.items() if isinstance(error, of)), "rows")
        return PartitionResult(log, span.name, (), (Failure(log.log_id, span.name, kind, str(error)),))
    entries = tuple(entry for output in identities if (entry := found[output] or built.get(output)))
    return PartitionResult(log, span.name, entries, (), len(built), time.perf_counter() - began)


class _Writing:
    """Makes the rows of a partition once and feeds every output's writer, each in a scratch folder."""

    def __init__(
        self, job: Job, log: LogTask, span: Span, outputs: Iterable[str], *, keep_portions: bool = False
    ):
        self._job, self._log, self._span = job, log, span
        self._outputs = tuple(outputs)
        self._keep_portions = keep_portions
        self._stack = contextlib.ExitStack()
        # Hashing leaves Python's lock to others, so it goes on beside writing.
        self._hasher = self._stack.enter_context(ThreadPoolExecutor(1))
        self._writers: dict[str, Writer] = {}
        self._digests = RowsDigest(job.schema)
        self.folders: dict[str, pathlib.Path] = {}
        self.portions: dict[str, dict[str, Portion]] = {}
        self.rows = 0
        self.tally: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self) -> None:
        job, log, span = self._job, self._log, self._span
        load_files(job.py_files)
        stream = build_blocks(opened(job, log), log.log_id, job.plan, span, max_bytes=job.block_bytes)
        for block in stream:
            if len(block) and not self._writers:  # no rows, no files
                self._open_writers()
            digested = self._hasher.submit(self._digests.update, block)
            for writer in self._writers.values():
                writer.append(block)
            digested.result()
            self.rows += len(block)
        self.tally = stream.tally.to_json()

    def _open_writers(self) -> None:
        job, log = self._job, self._log
        span = self._span
        context = UnitContext(
            log.log_id,
            log.uris[0],
            span.name,
            log.split,
            job.plan.period,
            span.start,
            span.stop,
            job.store.options,
        )
        for output in self._outputs:
            folder = self.folders[output] = self._stack.enter_context(job.store.scratch())
            if self._keep_portions:
                self.portions[output] = open_portions(job, output, log, span, self._stack)
            own = dataclasses.replace(context, portions=self.portions.get(output, {}))
            options = job.outputs[output]
            self._writers[output] = format_named(output).writer(folder, job.schema, options, own)

    def close(self, output: str) -> tuple[dict[str, Any], dict[str, str]]:
        """What the output's writer says, and the digests of its columns; after `run`, once."""
        if output not in self._writers:
            self.folders[output] = self._stack.enter_context(self._job.store.scratch())
            return {}, {}
        unit = self._writers[output].close()
        # A format that maps columns says so; the others give back what they were given.
        columns = unit.pop("columns", None) or self._digests.hexdigests()
        return unit, columns


def _write_units(job: Job, partition: Partition, identities: dict[str, str]) -> dict[str, Entry]:
    """Builds and publishes the given outputs' units of a partition."""
    log, span = partition.log, partition.span
    entries = {}
    with _Writing(job, log, span, identities, keep_portions=True) as writing, explained(job.store.uri):
        writing.run()
        for output, identity in identities.items():
            unit, columns = writing.close(output)
            folder = writing.folders[output]
            portions = writing.portions.get(output, {})
            files = [*files_of(folder), *itertools.chain(*map(_files_of_portion, portions.values()))]
            entry = Entry(
                output=output,
                identity=identity,
                log_id=log.log_id,
                content_id=log.content_id,
                partition=span.name,
                start=span.start,
                stop=span.stop,
                rows=writing.rows,
                files=tuple(files),
                columns=columns,
                unit=unit,
                tally=writing.tally,
            )
            for name, portion in portions.items():
                publish_portion(job, entry, name, portion)
            (folder / ENTRY).write_bytes(canonical(entry.to_json()))
            job.store.publish(folder, entry.folder, last=ENTRY)
            entries[output] = entry
    return entries


def _files_of_portion(portion: Portion) -> list[FileEntry]:
    if portion.finished is not None:
        files = portion.finished.files
    else:
        assert portion.scratch is not None
        files = files_of(portion.scratch)
    return [dataclasses.replace(file, portion=portion.identity) for file in files]


def files_of(folder: pathlib.Path) -> tuple[FileEntry, ...]:
    """Sizes and digests of a folder's files; they are sent to the disk meanwhile."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor(1) as syncer:
        synced = [syncer.submit(sync, path) for path in paths]
        files = tuple(
            FileEntry(path.relative_to(folder).as_posix(), path.stat().st_size, file_digest(path))
            for path in paths
        )
        for one in synced:
            one.result()  # its error, if any
    return files


@dataclass(frozen=True)
class Reading:
    """What reading a version's units back takes.

    Attributes:
        outputs: name to the output's options.
        encoded: columns that hold images which the recipe encoded.
    """

    store: Store
    schema: Schema
    outputs: Mapping[str, BaseModel]
    encoded: frozenset[str]
    block_bytes: int = 64 << 20

    @classmethod
    def of(cls, job: Job) -> Reading:
        encoded = frozenset(column.name for column in job.plan.columns if column.spec.encode)
        return cls(job.store, job.schema, job.outputs, encoded, job.block_bytes)

    def open(self, entry: Entry) -> Reader:
        """The reader of a finished unit."""
        folder = self.store.uri_of(entry.folder)
        options = self.outputs[entry.output]
        form = format_named(entry.output)
        return form.reader(folder, self.schema, options, entry.unit, storage_options=self.store.options)


def read_back(job: Job, result: PartitionResult) -> PartitionResult:
    """Reads the units through their own readers; adds a failure for each that differs from its entry."""
    failures = list(result.failures)
    reading = Reading.of(job)
    for entry in result.entries:
        if entry.rows and is_sampled(job.verify, entry.identity):
            failures += [
                Failure(entry.log_id, entry.partition, "readback", problem)
                for problem in differences(reading, entry)
            ]
    return dataclasses.replace(result, failures=tuple(failures))


def is_sampled(verify: str, identity: str) -> bool:
    """Whether a unit is among those to read back; the same ones in every attempt."""
    if verify in ("all", "none"):
        return verify == "all"
    share = float(verify.removeprefix("sample:"))
    return int(blake3(identity.encode()).hexdigest()[:8], 16) < share * 2**32


def differences(reading: Reading, entry: Entry) -> Iterator[str]:
    """Says how a unit differs, read through its reader, from what its entry promises."""
    place = reading.store.uri_of(entry.folder)
    images = image_columns(reading.schema, reading.encoded, reading.outputs[entry.output])
    try:
        reader = reading.open(entry)
        digests = RowsDigest(reader.schema)
        rows = 0
        for block in reader.blocks(max_bytes=reading.block_bytes):
            digests.update(block)
            rows += len(block)
            yield from check_images(place, block, images & set(block.columns))
    except (LogloomError, OSError, ValueError) as error:
        yield f"{place}: {error}"
        return
    if rows != entry.rows:
        yield f"{place}: {rows} rows, its entry says {entry.rows}"
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
    with _Writing(job, log, span, outputs) as writing:
        writing.run()
        return {output: (writing.rows, writing.close(output)[1]) for output in outputs}


def check_files(store: Store, entry: Entry) -> Iterator[str]:
    """Says which files of a unit are missing or hold other bytes than its entry promises."""
    for file in entry.files:
        yield from check_file(store, entry.path_of(file), file)


def check_file(store: Store, name: str, file: FileEntry) -> Iterator[str]:
    """Says how a file differs from its entry."""
    try:
        if store.local is not None:
            size = (store.local / name).stat().st_size
            digest = file_digest(store.local / name) if size == file.size else ""
        else:
            size, digest = _object_digest(store, name)
    except MISSING:
        yield f"{store.uri_of(name)}: missing"
        return
    if size != file.size:
        yield f"{store.uri_of(name)}: {size} bytes, should be {file.size}"
    elif digest != file.digest:
        yield f"{store.uri_of(name)}: its bytes changed (BLAKE3 {digest[:16]}, should be {file.digest[:16]})"


def _object_digest(store: Store, name: str) -> tuple[int, str]:
    """Size and BLAKE3 of an object, a piece at a time: it may be larger than memory."""
    size, digest = 0, blake3()
    with store.fs.open(store.path_of(name), "rb", block_size=_PIECE) as file:
        while piece := file.read(_PIECE):
            size += len(piece)
            digest.update(piece)
    return size, digest.hexdigest()


def listed(failures: Sequence[Failure]) -> str:
    """The failures as lines for people, at most twenty."""
    lines = [f"{f.log_id} {f.partition}: {f.message}" for f in failures[:20]]
    return "\n".join(lines + [f"… and {len(failures) - 20} more"] * (len(failures) > 20))
