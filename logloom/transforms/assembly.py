"""Assembled outputs: one dataset a split, put together from the units of all its logs.

The staged files are checked first, each by its digest; then the chunks are written, each by one worker; then
the dataset is read back, and only then its entry is written, the completion mark.
Elsewhere: how a format lays out its dataset (`AssembledFormat`), Beam (build_logs), the commit (finish).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blake3 import blake3

from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.entries import ENTRY, AssembledEntry, Entry, FileEntry, find_assembled, unit_folder
from logloom.io.manifest import Assembled, entries_of
from logloom.io.shards import LogRecord
from logloom.io.storage import Store
from logloom.io.units import AssembledFormat, AssemblyPlan, StagedUnit, format_named
from logloom.software import software
from logloom.transforms.finished import check_files, withdraw_assembled
from logloom.transforms.job import Target
from logloom.transforms.journal import ASSEMBLING, Note
from logloom.transforms.outcomes import LogOutcomes, failures_of, kept_records, records_of
from logloom.transforms.partition import Failure, Reading, damaged, differences, is_sampled


@dataclass(frozen=True)
class UnitCheck:
    """A unit to look at before the commit: whole, or just the files that an output is assembled from."""

    entry: Entry
    is_whole: bool


@dataclass(frozen=True)
class AssembledFileTask:
    """One file of an assembled output: written by one worker, alone."""

    output: str
    identity: str
    task: Any


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

    @property
    def rows(self) -> int:
        return sum(entry.rows for _, entry in self.units)

    def plan(self, job: Target) -> AssemblyPlan:
        """How its units become one dataset."""
        units = [StagedUnit.of(record, entry) for record, entry in self.units]
        return assembled_format(self.output).plan_assembly(
            job.store, units, job.schema, job.outputs[self.output], job.period
        )


@dataclass(frozen=True)
class AssemblyCandidate:
    """An assembled output whose files are all there.

    Attributes:
        digest: BLAKE3 of its entry's bytes.
        found: it was there before, complete.
    """

    identity: str
    entry: AssembledEntry
    digest: str
    found: bool


AssembledResult = tuple[Assembled, tuple[Failure, ...]]


def assembled_format(output: str) -> AssembledFormat:
    form = format_named(output)
    assert isinstance(form, AssembledFormat)
    return form


def assemblies(job: Target, records: Sequence[LogRecord]) -> list[Assembly]:
    """What a version of these logs has of outputs that are assembled."""
    outputs = [o for o in job.outputs if isinstance(format_named(o), AssembledFormat)]
    if not outputs:
        return []
    units: dict[tuple[str, str], list[tuple[LogRecord, Entry]]] = {}
    for record, entry in entries_of(job.store, records):
        if entry.output in outputs and entry.rows:
            units.setdefault((entry.output, record.split), []).append((record, entry))
    made = []
    for (output, split), pairs in sorted(units.items()):
        sources = [[entry.identity, record.uris[0], record.log_id] for record, entry in pairs]
        identity = digest_of(["assembled", job.output_identity(output), split, sources])[:32]
        made.append(Assembly(output, split, identity, tuple(pairs)))
    return made


def _found(job: Target, assembly: Assembly) -> tuple[AssembledEntry, str] | None:
    """The entry of an assembled output that is complete, and its digest; None where it is to be made.

    Raises:
        DatasetError: it is damaged, and a version names it.
    """
    try:
        return find_assembled(job.store, assembly.output, assembly.identity)
    except DatasetError:
        if withdraw_assembled(job.store, assembly.output, assembly.identity):
            raise
        return None


def plan_checks(job: Target, outcomes: LogOutcomes) -> Iterator[UnitCheck]:
    """The units that outputs will be assembled from; with verify "all" also those of logs that were kept."""
    if failures_of(outcomes):
        return
    whole: set[tuple[str, str]] = set()
    for _, entry in entries_of(job.store, kept_records(job, outcomes)) if job.verify == "all" else ():
        whole.add((entry.output, entry.identity))
        yield UnitCheck(entry, True)
    for assembly in assemblies(job, records_of(job, outcomes)):
        if _found(job, assembly) is None:
            for _, entry in assembly.units:
                if (entry.output, entry.identity) not in whole:
                    yield UnitCheck(entry, False)


def check_unit(job: Target, check: UnitCheck) -> list[Failure]:
    """Says what is wrong with a unit, which then no longer counts as finished."""
    entry = check.entry
    if check.is_whole:
        problems = list(check_files(job.store, entry))
        if not problems and entry.rows:
            problems = list(differences(Reading.of(job), entry))
        return damaged(job, entry, problems)
    # What a view shows of a unit stays where it is, so the rest is what assembly reads.
    shown = format_named(entry.output).view(0, [file.name for file in entry.files])
    staged = replace(entry, files=tuple(file for file in entry.files if file.name not in shown))
    return damaged(job, entry, check_files(job.store, staged))


def plan_chunks(job: Target, outcomes: LogOutcomes, problems: Sequence[Failure]) -> list[AssembledFileTask]:
    """The chunks still to be written of all assembled outputs; none where the build has failed.

    Args:
        problems: what checking units found.
    """
    if problems or failures_of(outcomes):
        return []
    tasks = [
        AssembledFileTask(assembly.output, assembly.identity, task)
        for assembly in assemblies(job, records_of(job, outcomes))
        if _found(job, assembly) is None
        for task in assembly.plan(job).tasks
    ]
    if tasks:
        job.journal.write(Note(ASSEMBLING, "", done=False, pieces=len(tasks)))
    return tasks


def write_chunk(job: Target, chunk: AssembledFileTask) -> tuple[str, FileEntry]:
    """Writes one file of an assembled output; gives the output's identity and the file."""
    name, data = assembled_format(chunk.output).make_chunk(job.store, chunk.task)
    published = publish_file(job, unit_folder(chunk.output, chunk.identity), name, data)
    job.journal.write(Note(ASSEMBLING, chunk.output))
    return chunk.identity, published


def publish_file(job: Target, folder: str, name: str, data: bytes) -> FileEntry:
    """Makes a file of a unit folder; one that differs, which a failed build left, is replaced."""
    path = f"{folder}/{name}"
    if not job.store.create(path, data) and job.store.read(path) != data:
        job.store.replace(path, data, read_only=True)
    return described(name, data)


def described(name: str, data: bytes) -> FileEntry:
    """A file as an assembled output's entry lists it."""
    return FileEntry(name, len(data), blake3(data).hexdigest())


def plan_candidates(
    job: Target,
    outcomes: LogOutcomes,
    files: Sequence[tuple[str, FileEntry]],
    problems: Sequence[Failure],
) -> Iterator[AssemblyCandidate]:
    """Writes what belongs to no chunk; gives the outputs that are ready to be read back."""
    if problems or failures_of(outcomes):
        return
    for assembly in assemblies(job, records_of(job, outcomes)):
        if (found := _found(job, assembly)) is not None:
            yield AssemblyCandidate(assembly.identity, *found, found=True)
            continue
        plan = assembly.plan(job)
        own = [file for identity, file in files if identity == assembly.identity]
        own += [publish_file(job, assembly.folder, name, data) for name, data in plan.files.items()]
        entry = entry_of(assembly, plan, own, software())
        yield AssemblyCandidate(assembly.identity, entry, blake3(entry.to_bytes()).hexdigest(), found=False)


def entry_of(
    assembly: Assembly, plan: AssemblyPlan, files: Sequence[FileEntry], made_by: Mapping[str, str]
) -> AssembledEntry:
    """The entry of an assembled output.

    Args:
        made_by: software; none in entries of before.
    """
    ordered = tuple(sorted(files, key=operator.attrgetter("name")))
    return AssembledEntry(assembly.output, assembly.split, plan.unit, assembly.rows, ordered, dict(made_by))


def finish_assembly(job: Target, candidate: AssemblyCandidate) -> AssembledResult:
    """Reads an assembled output back, and writes the entry that marks it as complete.

    One that the parent version has is trusted, unless all is to be read.
    """
    entry, digest, output = candidate.entry, candidate.digest, candidate.entry.output
    problems: list[str] = []
    is_trusted = candidate.found and candidate.identity in job.assembled and job.verify != "all"
    if is_sampled(job.verify, candidate.identity) and not is_trusted:
        problems = list(assembled_differences(job.store, candidate.identity, entry))
    if problems and candidate.found:
        left = withdraw_assembled(job.store, output, candidate.identity)
        problems = [f"{problem}; {left or 'build again: it will be made anew'}" for problem in problems]
    elif not (problems or candidate.found):
        name = f"{unit_folder(output, candidate.identity)}/{ENTRY}"
        if not job.store.create(name, entry.to_bytes()):
            # Another build's, which may have been made by other software.
            there = find_assembled(job.store, output, candidate.identity)
            entry, digest = there or (entry, digest)
    part = Assembled(output, entry.split, candidate.identity, digest, entry.size, entry.rows)
    return part, tuple(Failure(part.output, part.split, "readback", problem) for problem in problems)


def assembled_differences(store: Store, identity: str, entry: AssembledEntry) -> Iterator[str]:
    """Says how an assembled output, read through its own reader, differs from what its entry says."""
    form = format_named(entry.output)
    if not isinstance(form, AssembledFormat):
        yield f"{store.uri}: {entry.output} is no format that is assembled"
        return
    folder = store.uri_of(unit_folder(entry.output, identity))
    yield from form.assembled_differences(folder, entry.unit, store.options)
