"""Steps that assemble outputs: a dataset per split, from the units of all logs.

The staged files are checked first, each by its digest; then the chunks are written, each by one worker; then
the dataset is read back, and only then its entry is written, the completion mark. Portions of the parent
version are only named in the entry, neither written nor read; finished ones aren't written again.
Here: the work of each step. Elsewhere: the plan that all of them follow (plan), the layout of a format's
dataset (`AssembledFormat`), Beam (logloom.transforms.beam.build), the commit
(logloom.transforms.build.commit).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from blake3 import blake3

from logloom.errors import DatasetError, ReadBackError
from logloom.io.catalog.assembled_outputs import (
    AssembledEntry,
    PortionEntry,
    SharedPortion,
    assembled_store,
    find_assembled,
    publish_assembled,
)
from logloom.io.catalog.entries import ENTRY, Entry, FileEntry, unit_folder
from logloom.io.catalog.manifest import Assembled, entries_of
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.version_files import runs_folder
from logloom.io.formats.assembly import problems_at
from logloom.io.formats.interface import AssembledFormat
from logloom.io.formats.registry import format_named
from logloom.io.storage.store import Store
from logloom.software import software
from logloom.transforms.build.assembly.known_units import forget_units
from logloom.transforms.build.assembly.plan import (
    AssembledFileTask,
    PlannedAssembly,
    assembled_format,
    assembled_outputs,
)
from logloom.transforms.build.assembly.portions import finished_portion, portion_entry, portions_of_parent
from logloom.transforms.build.job import Target
from logloom.transforms.build.journal import ASSEMBLING, CHECKING, READING_BACK, Note
from logloom.transforms.build.outcomes import LogOutcomes, kept_records
from logloom.transforms.build.partition_results import Failure
from logloom.transforms.build.read_back import Reading, damaged, differences, draw_of, is_sampled
from logloom.transforms.build.read_marks import is_marked, leave_mark, mark_of
from logloom.transforms.build.reuse import refresh_assembled
from logloom.transforms.build.unit_checks import check_files, withdraw_assembled, withdraw_portions
from logloom.values import dataclass


@dataclass(frozen=True)
class UnitCheck:
    """A unit to look at before the commit: whole, or just the files that an output is assembled from."""

    entry: Entry
    is_whole: bool


@dataclass(frozen=True)
class AssemblyCandidate:
    """An assembled output whose files are all there.

    Attributes:
        found: it was there before, complete.
        fresh: paths of the portions that the parent version doesn't have.
        made: by identity, the entries of those that were written, which mark them as complete.
    """

    identity: str
    entry: AssembledEntry
    found: bool
    fresh: frozenset[str] = frozenset()
    made: Mapping[str, PortionEntry] = field(default_factory=dict)


_MADE_ANEW = "build again: it will be made anew"
# What a version says of it; what is wrong with it; how many of its portions nobody read.
AssembledResult = tuple[Assembled, tuple[Failure, ...], int]


def may_check(job: Target) -> bool:
    """Whether `plan_checks` can find anything to look at."""
    verify = job.settings.verify
    return (
        bool(assembled_outputs(job))
        or verify.startswith("sample:")
        or (verify == "all" and job.parent is not None)
    )


def plan_checks(
    job: Target, outcomes: LogOutcomes, planned: Iterable[PlannedAssembly]
) -> Iterator[UnitCheck]:
    """Return the units that outputs will be assembled from.

    With verify "all" also those of logs that were kept; of a sample one of each output without any in it.
    """
    if outcomes.failures or outcomes.unchanged:
        return
    whole: set[tuple[str, str]] = set()
    more: Iterable[Entry] = ()
    if job.settings.verify == "all":
        more = (entry for _, entry in entries_of(job.store, kept_records(job, outcomes)))
    elif job.settings.verify.startswith("sample:"):
        more = _of_outputs_without_a_draw(job, outcomes)
    for entry in more:
        whole.add((entry.output, entry.identity))
        job.journal.write(Note(CHECKING, entry.log_id, done=False))
        yield UnitCheck(entry, True)
    for one in planned:
        staged = [entry for entry in one.checks if (entry.output, entry.identity) not in whole]
        job.journal.write(Note(CHECKING, one.entry.output, done=False, pieces=len(staged)))
        yield from (UnitCheck(entry, False) for entry in staged)


def _of_outputs_without_a_draw(job: Target, outcomes: LogOutcomes) -> list[Entry]:
    """Return the nearest unit of each output of which no new unit is in the sample."""
    nearest: dict[str, tuple[float, Entry]] = {}
    left = set(job.outputs)
    made = LogRecords(job.store, outcomes.made, runs_folder(job.number))
    for _, entry in entries_of(job.store, made):
        if entry.output in left and entry.rows:
            if is_sampled(job.settings.verify, entry.identity):
                left.discard(entry.output)
                nearest.pop(entry.output, None)
            else:
                draw = (draw_of(entry.identity), entry)
                nearest[entry.output] = min(nearest.get(entry.output, draw), draw, key=operator.itemgetter(0))
        if not left:
            break
    return [entry for _, (_, entry) in sorted(nearest.items())]


def check_unit(job: Target, check: UnitCheck) -> list[Failure]:
    """List the problems of a unit, which then no longer counts as finished."""
    found = damaged(job, check.entry, _problems(job, check))
    if not found and check.is_whole and job.settings.verify != "all":
        leave_mark(job, mark_of(job, [check.entry.output, check.entry.identity], read=1))
    job.journal.write(Note(CHECKING, check.entry.log_id))
    return found


def _problems(job: Target, check: UnitCheck) -> list[str]:
    entry = check.entry
    if check.is_whole:
        problems = list(check_files(job.store, entry))
        return problems or list(differences(Reading.of(job), entry) if entry.rows else ())
    # What a view shows of a unit stays where it is, so the rest is what assembly reads.
    shown = format_named(entry.output).view(0, [file.name for file in entry.files])
    staged = replace(entry, files=tuple(file for file in entry.files if file.name not in shown))
    return list(check_files(job.store, staged))


def plan_chunks(
    job: Target, planned: Iterable[PlannedAssembly], problems: Sequence[Failure]
) -> list[AssembledFileTask]:
    """The chunks still to be written of all assembled outputs; none where the build has failed.

    Args:
        problems: what checking units found.
    """
    tasks = [] if problems else [task for one in planned for task in one.tasks]
    if tasks:
        job.journal.write(Note(ASSEMBLING, "", done=False, pieces=len(tasks)))
    return tasks


def write_chunk(job: Target, chunk: AssembledFileTask) -> tuple[str, FileEntry]:
    """Writes one file of an assembled output; gives the identity of its folder and the file.

    Raises:
        ReadBackError: units were removed after they were looked at.
        DatasetError: what it is made of is damaged.
    """
    try:
        name, data = assembled_format(chunk.output).make_chunk(job.store, chunk.task)
    except DatasetError as error:
        gone = [folder for folder in chunk.reads if not job.store.exists(f"{folder}/{ENTRY}")]
        if not gone:
            raise
        place = job.store.uri_of(gone[0])
        raise ReadBackError(f"{place}: removed by `logloom gc` while this build ran; build again") from error
    published = publish_file(job, unit_folder(chunk.output, chunk.identity), name, data)
    job.journal.write(Note(ASSEMBLING, chunk.output))
    return chunk.identity, published


def publish_file(job: Target, folder: str, name: str, data: bytes) -> FileEntry:
    """Makes a file of a unit folder; one that differs, which a failed build left, is replaced."""
    job.store.restate(f"{folder}/{name}", data)
    return described(name, data)


def described(name: str, data: bytes) -> FileEntry:
    """A file as an assembled output's entry lists it."""
    return FileEntry(name, len(data), blake3(data).hexdigest())


def plan_candidates(
    job: Target,
    planned: Iterable[PlannedAssembly],
    files: Sequence[tuple[str, FileEntry]],
    problems: Sequence[Failure],
) -> Iterator[AssemblyCandidate]:
    """Writes what belongs to no chunk; gives the outputs that are ready to be read back."""
    if problems:
        return
    written: dict[str, list[FileEntry]] = {}
    for identity, file in files:
        written.setdefault(identity, []).append(file)
    for one in planned:
        if one.found:
            # As of one that is made, so that the version is the same when a step is done once more.
            known = {} if _is_parents(job, one.identity) else portions_of_parent(job, one.entry.output)
            fresh = frozenset(part.path for part in one.entry.portions if part.identity not in known)
            yield AssemblyCandidate(one.identity, one.entry, True, fresh)
        else:
            yield _candidate(job, one, written)


def _is_parents(job: Target, identity: str) -> bool:
    """Whether the parent version has an assembled output."""
    return identity in {part.identity for part in job.assembled}


def _candidate(
    job: Target, planned: PlannedAssembly, written: Mapping[str, Sequence[FileEntry]]
) -> AssemblyCandidate:
    """An assembled output whose chunks are written, by the folder that they are in."""
    output = planned.entry.output
    made: dict[str, PortionEntry] = {}
    portions: list[SharedPortion] = []
    for portion in planned.portions:
        identity, shared = portion.identity, portion.shared
        if shared is None:
            there = None if identity in written else finished_portion(job, output, identity)
            if there is None:
                files = [*written.get(identity, ()), *_published_files(job, output, identity, portion.files)]
                there = made[identity] = portion_entry(output, portion.path, files, software())
            shared = there.shared(identity)
        portions.append(shared)
    own = _published_files(job, output, planned.identity, planned.files)
    ordered = sorted([*written.get(planned.identity, ()), *own], key=operator.attrgetter("name"))
    entry = replace(planned.entry, files=tuple(ordered), software=software(), portions=tuple(portions))
    fresh = frozenset(portion.path for portion in planned.portions if portion.shared is None)
    return AssemblyCandidate(planned.identity, entry, False, fresh, made)


def _published_files(job: Target, output: str, identity: str, files: Mapping[str, bytes]) -> list[FileEntry]:
    folder = unit_folder(output, identity)
    return [publish_file(job, folder, name, data) for name, data in files.items()]


def finish_assembly(job: Target, candidate: AssemblyCandidate) -> AssembledResult:
    """Reads an assembled output back, and writes the entry that marks it as complete.

    What the parent version has, all of it or portions, is trusted, unless all is to be read. What an earlier
    attempt at this version read isn't read again.
    """
    entry, identity, output = candidate.entry, candidate.identity, candidate.entry.output
    job.journal.write(Note(READING_BACK, output, done=False))
    problems: list[str] = []
    is_trusted = candidate.found and _is_parents(job, identity)
    num_trusted = 0 if job.settings.verify == "all" else len(entry.portions) - len(candidate.fresh)
    mark = mark_of(job, [output, identity, blake3(entry.to_bytes()).hexdigest()])
    is_known = (is_trusted and job.settings.verify != "all") or (candidate.found and is_marked(job, mark))
    if candidate.found and not is_trusted and not refresh_assembled(job, identity, entry):
        problems = [f"{job.store.uri_of(unit_folder(output, identity))}: removed while this build ran"]
    elif is_sampled(job.settings.verify, identity) and not is_known:
        problems = list(
            assembled_differences(job.store, identity, entry, candidate.fresh if num_trusted else None)
        )
        if not problems:
            leave_mark(job, mark)
    if problems:
        forget_units(job.store)  # should they be at fault, the next plan doesn't believe them
        way_out = withdraw_assembled(job.store, output, identity) if candidate.found else ""

        def is_sound(portion: SharedPortion) -> bool:
            return not any(assembled_differences(job.store, identity, entry, {portion.path}))

        way_out = withdraw_portions(job.store, entry, is_sound) or way_out or _MADE_ANEW
        problems = [f"{problem}; {way_out}" for problem in problems]
    elif not candidate.found:
        entry = _published(job, candidate)
    digest = blake3(entry.to_bytes()).hexdigest()
    part = Assembled(output, entry.split, identity, digest, entry.size, entry.rows)
    failures = tuple(Failure(part.output, part.split, "readback", problem) for problem in problems)
    return part, failures, num_trusted


def _published(job: Target, candidate: AssemblyCandidate) -> AssembledEntry:
    """Write the entries of new portions, then that of the output; return the latter as stored.

    Another build's may have been made by other software.
    """
    entry, output = candidate.entry, candidate.entry.output
    for identity, made in candidate.made.items():
        name = f"{unit_folder(output, identity)}/{ENTRY}"
        if not job.store.create(name, made.to_bytes()):
            there = finished_portion(job, output, identity)
            if there is None or there.shared(identity) != made.shared(identity):
                job.store.replace(name, made.to_bytes(), read_only=True)
    publish_assembled(job.store, candidate.identity, entry)
    there_too = find_assembled(job.store, output, candidate.identity)
    return there_too[0] if there_too else entry


def assembled_differences(
    store: Store, identity: str, entry: AssembledEntry, fresh: Collection[str] | None = None
) -> Iterator[str]:
    """Says how an assembled output, read through its own reader, differs from what its entry says.

    Args:
        fresh: paths of the portions to read, besides files in none; None for all.
    """
    form = format_named(entry.output)
    if not isinstance(form, AssembledFormat):
        yield f"{store.uri}: {entry.output} is no format that is assembled"
        return
    shown = assembled_store(store, entry.output, identity, lambda: entry.portions)
    if fresh is None:
        yield from form.assembled_differences(shown.uri, entry.unit, shown.options)
    else:
        find = functools.partial(form.fresh_problems, shown.uri, entry.unit, shown.options, fresh)
        yield from problems_at(shown.uri, find)
