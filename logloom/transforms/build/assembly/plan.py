"""Plan of a version's assembled outputs: missing files, found once for all steps.

    units of all logs -> plan of the format -> portions that the parent has: named, nothing else
                                            -> the rest: units to check, files to write, small files

Here: `Assembly`, the units of an output and their plan; `PlannedAssembly`, what the steps need of it. Workers
read it from a file of runs/, as large as what is missing and the names of the rest.
Elsewhere: the layout of a format's dataset (`AssembledFormat`), portions (portions), the steps (files).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.catalog.assembled_outputs import AssembledEntry, SharedPortion, find_assembled
from logloom.io.catalog.entries import Entry, FileEntry, unit_folder
from logloom.io.catalog.log_tables import Catalogued
from logloom.io.catalog.manifest import units_of
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.records import LogRecords
from logloom.io.formats.interface import AssembledFormat, AssemblyPlan, StagedUnit, unit_name
from logloom.io.formats.registry import format_named
from logloom.io.storage.threads import ahead
from logloom.transforms.build.assembly.known_units import UnitMemory
from logloom.transforms.build.assembly.portions import (
    portion_identity,
    portions_of_parent,
    small_files,
)
from logloom.transforms.build.job import Target
from logloom.transforms.build.journal import PLANNING, Note
from logloom.transforms.build.outcomes import LogOutcomes, records_of
from logloom.transforms.build.reuse import taken_portion
from logloom.transforms.build.unit_checks import withdraw_assembled
from logloom.values import dataclass


@dataclass(frozen=True)
class AssembledFileTask:
    """One file of an assembled output: written by one worker, alone.

    Attributes:
        reads: folders of the units that it is made of; () where a plan doesn't tell.
    """

    output: str
    identity: str
    task: Any
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assembly:
    """The units that make one assembled output of one split, in row order."""

    output: str
    split: str
    identity: str
    units: tuple[StagedUnit, ...]

    @property
    def folder(self) -> str:
        return unit_folder(self.output, self.identity)

    @property
    def rows(self) -> int:
        return sum(unit.rows for unit in self.units)

    def plan(self, job: Target) -> AssemblyPlan:
        """How its units become one dataset."""
        return assembled_format(self.output).plan_assembly(
            job.store, self.units, job.schema, job.outputs[self.output], job.period
        )

    def entries(self, job: Target, logs: LogRecords, folders: Collection[str]) -> Iterator[Entry]:
        """The entries of its units in some folders, which alone say what files these have.

        Args:
            logs: of the version.
        """
        log_ids = {unit.log_id for unit in self.units if unit.folder in folders}
        records = logs.take(logs.where("log_id", log_ids))
        for _, entry in units_of(job.store, records, [self.output], left_out=["tally"]):
            if entry.folder in folders:
                yield entry


@dataclass(frozen=True)
class WantedPortion:
    """A portion of an assembled output.

    Attributes:
        shared: as the parent version names it; None where it doesn't.
        files: its small files, where the parent doesn't.
    """

    path: str
    identity: str
    shared: SharedPortion | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedAssembly:
    """What is to be done for an assembled output of one split.

    Attributes:
        entry: as stored if complete; otherwise without files and portions.
        found: it exists and is complete; nothing is to be done.
        checks: the units that missing files are made of.
        tasks: the missing files.
        portions: all of them, in order.
        files: the small files that are in none.
    """

    identity: str
    entry: AssembledEntry
    found: bool
    checks: tuple[Entry, ...] = ()
    tasks: tuple[AssembledFileTask, ...] = ()
    portions: tuple[WantedPortion, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


def assembled_format(output: str) -> AssembledFormat:
    form = format_named(output)
    assert isinstance(form, AssembledFormat)
    return form


def assembled_outputs(job: Target) -> list[str]:
    """The outputs of a job that are assembled."""
    return [output for output in job.outputs if isinstance(format_named(output), AssembledFormat)]


def assemblies(job: Target, records: Iterable[LogRecord], memory: UnitMemory) -> list[Assembly]:
    """What a version of these logs has of outputs that are assembled.

    Args:
        memory: of the units of logs that stay.
    """
    units: dict[tuple[str, str], list[StagedUnit]] = {}
    with_units = (record for record in records if record.part)
    for record, found in ahead(lambda record: (record, memory.units_of(record)), with_units):
        for output, own in found.items():
            if own:
                units.setdefault((output, record.split), []).extend(own)
    made = []
    for (output, split), own in sorted(units.items()):
        takes = assembled_format(output).takes
        sources = [
            [unit_name(unit.folder), unit.log_uri, unit.log_id, *_taken(unit.catalogued, takes)]
            for unit in own
        ]
        identity = digest_of(["assembled", job.output_identity(output), split, sources])[:32]
        made.append(Assembly(output, split, identity, tuple(own)))
    return made


def planned_parts(plan: AssemblyPlan, units: Sequence[StagedUnit]) -> dict[str, Sequence[Any]]:
    """What a plan says of new units, by their folders; nothing where a format says it otherwise."""
    parts = plan.unit.get("parts", ())
    if len(parts) != len(units):
        return {}
    return {unit.folder: part for unit, part in zip(units, parts, strict=True) if not unit.planned}


def _taken(known: Catalogued, takes: str) -> list[Any]:
    """What an output takes of what a catalogue says of a log, for its identity."""
    taken = getattr(known, takes) if takes else None
    return [taken] if taken else []


def _found(job: Target, assembly: Assembly) -> AssembledEntry | None:
    """The entry of an assembled output that is complete; None where it is to be made.

    Raises:
        DatasetError: it is damaged, and a version names it.
    """
    try:
        found = find_assembled(job.store, assembly.output, assembly.identity)
        return None if found is None else found[0]
    except DatasetError:
        if withdraw_assembled(job.store, assembly.output, assembly.identity):
            raise
        return None


def plan_assemblies(job: Target, outcomes: LogOutcomes) -> Iterator[PlannedAssembly]:
    """Plans the assembled outputs of a version; none where the build has failed, or changes nothing."""
    outputs = assembled_outputs(job)
    if not outputs or outcomes.failures or outcomes.unchanged:
        return
    job.journal.write(Note(PLANNING, ", ".join(outputs), done=False))
    logs, memory = records_of(job, outcomes), UnitMemory.load(job, outputs)
    parts: dict[str, Sequence[Any]] = {}
    for assembly in assemblies(job, logs, memory):
        found = _found(job, assembly)
        if found is not None:
            yield PlannedAssembly(assembly.identity, found, True)
            continue
        plan = assembly.plan(job)
        parts |= planned_parts(plan, assembly.units)
        yield _planned(job, assembly, plan, logs)
    memory.save(parts)


def _planned(job: Target, assembly: Assembly, plan: AssemblyPlan, logs: LogRecords) -> PlannedAssembly:
    """What is to be done for an output that is to be made; of what the parent has, the names alone."""
    output = assembly.output
    known = portions_of_parent(job, output)
    identities = {portion.path: portion_identity(job, output, portion) for portion in plan.portions}
    shared = {path: known[identity] for path, identity in identities.items() if identity in known}
    own, small = small_files(plan, left_out=shared)
    portions = tuple(
        WantedPortion(path, identity, shared.get(path), small[path]) for path, identity in identities.items()
    )
    folders = dict.fromkeys(range(len(plan.tasks)), assembly.identity)
    for portion in plan.portions:
        identity = identities[portion.path]
        is_there = portion.path in shared or taken_portion(job, output, identity) is not None
        for number in range(*portion.tasks):
            folders[number] = identity
            if is_there:
                del folders[number]
    tasks = tuple(
        AssembledFileTask(output, folder, plan.tasks[n], tuple(plan.reads[n]) if plan.reads else ())
        for n, folder in folders.items()
    )
    read = {folder for task in tasks for folder in task.reads}
    read = read if plan.reads else {unit.folder for unit in assembly.units}
    checks = tuple(assembly.entries(job, logs, read))
    entry = entry_of(assembly, plan, (), (), {})
    return PlannedAssembly(assembly.identity, entry, False, checks, tasks, portions, own)


def entry_of(
    assembly: Assembly,
    plan: AssemblyPlan,
    files: Iterable[FileEntry],
    portions: Sequence[SharedPortion],
    made_by: Mapping[str, str],
) -> AssembledEntry:
    """The entry of an assembled output.

    Args:
        made_by: software.
    """
    ordered = tuple(sorted(files, key=operator.attrgetter("name")))
    of_plan = assembly.output, assembly.split, plan.unit, assembly.rows
    return AssembledEntry(*of_plan, ordered, dict(made_by), tuple(portions))
