"""Repair of assembled outputs, the datasets that are made of many units.

Here: `assemble_again`, which rebuilds the damaged files in an output's own folder and in its portions, the
folders that several versions may share.
Elsewhere: finding damage, and the order of repairs (repair), single files and units (units).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.catalog.assembled_outputs import (
    AssembledEntry,
    PortionEntry,
    SharedPortion,
    find_portion,
    publish_assembled,
)
from logloom.io.catalog.entries import ENTRY, FileEntry, unit_folder
from logloom.io.catalog.manifest import Assembled, Manifest, read_assembled, read_manifest
from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.store import Store
from logloom.pipelines.repair.units import (
    check_stages,
    describe_chunk,
    other_software,
    put_back,
    restore_chunk,
)
from logloom.pipelines.verify.verify import Task
from logloom.software import software
from logloom.transforms.build.assembly.files import described
from logloom.transforms.build.assembly.known_units import UnitMemory
from logloom.transforms.build.assembly.plan import Assembly, assembled_outputs, assemblies, entry_of
from logloom.transforms.build.assembly.portions import portion_entry, portion_identity, small_files
from logloom.transforms.build.job import Committed
from logloom.transforms.build.unit_checks import check_file
from logloom.values import dataclass

RunAll = Callable[[Sequence[Task]], list[Any]]


@dataclass(frozen=True)
class _Bundle:
    """What belongs into one folder of an assembled output.

    Attributes:
        path: of the portion; "" for files in none.
        tasks: that make its chunks.
        small: its other files, by name.
    """

    path: str
    name: str
    tasks: Sequence[Any]
    small: Mapping[str, bytes]


def assemble_again(store: Store, manifest: Manifest, part: Assembled, run_all: RunAll) -> dict[str, str]:
    """Makes the damaged files of an assembled output again; why each couldn't be, "" where it was.

    Args:
        run_all: gives what all of some tasks find.

    Raises:
        DatasetError: units that it is put together from are damaged.
    """
    version = Committed.of(store, manifest)
    memory = UnitMemory(version, tuple(assembled_outputs(version)))
    whole = assemblies(version, manifest.logs, memory)
    found = [one for one in whole if (one.output, one.split) == (part.output, part.split)]
    if not found:
        return {part.folder: "the manifest names no units of it"}
    return _Again(store, version, dataclasses.replace(found[0], identity=part.identity), run_all).run(part)


class _Again:
    """An assembled output that is put together again."""

    def __init__(self, store: Store, version: Committed, assembly: Assembly, run_all: RunAll):
        folders = {unit.folder for unit in assembly.units}
        check_stages(store, assembly.entries(version, version.manifest.logs, folders))
        self._store, self._version, self._assembly, self._run_all = store, version, assembly, run_all
        self._plan = assembly.plan(version)
        self._other = other_software(version.manifest.software)

    def run(self, part: Assembled) -> dict[str, str]:
        name = f"{self._assembly.folder}/{ENTRY}"
        whys: dict[str, str] = {}
        try:
            promised = read_assembled(self._store, part)
        except DatasetError:
            entries = self._whole_entries(part)
            if entries is None:
                return {name: f"put together again it has other bytes{self._other}"}
            for place, entry in entries.items():
                if isinstance(entry, AssembledEntry):
                    publish_assembled(self._store, part.identity, entry, anew=True)
                else:
                    self._store.replace(place, entry.to_bytes(), read_only=True)
                whys[place] = ""
            promised = read_assembled(self._store, part)
        own, *portions = self._folders(promised.portions)
        whys |= self._mend_files(own, promised.files)
        for folder, shared in zip(portions, promised.portions, strict=True):
            whys |= self._mend_portion(folder, shared)
        return whys

    def _folders(self, portions: Sequence[SharedPortion]) -> list[_Bundle]:
        """The output's own folder, with all files in none of these portions; and theirs."""
        output, plan = self._assembly.output, self._plan
        tasks = {planned.path: planned.tasks for planned in plan.portions}
        missing = [portion.path for portion in portions if portion.path not in tasks]
        if missing:
            raise DatasetError(
                f"its entry names the portion {missing[0]}, which it is not made of{self._other}"
            )
        chosen = [planned for planned in plan.portions if planned.path in {p.path for p in portions}]
        own, small = small_files(dataclasses.replace(plan, portions=chosen))
        used = {number for planned in chosen for number in range(*planned.tasks)}
        rest = [task for number, task in enumerate(plan.tasks) if number not in used]
        return [_Bundle("", self._assembly.folder, rest, own)] + [
            _Bundle(p.path, unit_folder(output, p.identity), plan.tasks[slice(*tasks[p.path])], small[p.path])
            for p in portions
        ]

    # --- entries

    def _made_by(self) -> Iterator[Mapping[str, str]]:
        """The software that may have made it: this version's, an earlier one's, ours."""
        yield self._version.manifest.software
        for number in reversed(version_numbers(self._store)):
            if number < self._version.number:
                yield read_manifest(self._store, number).software
        yield software()

    def _described(self, folder: _Bundle) -> list[FileEntry]:
        output = self._assembly.output
        files = self._run_all([Task(describe_chunk, (self._store, output, task)) for task in folder.tasks])
        return [*files, *(described(name, data) for name, data in folder.small.items())]

    def _whole_entries(self, part: Assembled) -> dict[str, AssembledEntry | PortionEntry] | None:
        """The output's entry, and those of portions that lack one, by place; None if they come out other."""
        output, version = part.output, self._version
        portions = [
            SharedPortion(p.path, portion_identity(version, output, p), "", 0) for p in self._plan.portions
        ]
        own, *folders = self._folders(portions)
        files = self._described(own)
        there = [self._entry_there(portion) for portion in portions]
        made = [
            () if entry else self._described(folder) for entry, folder in zip(there, folders, strict=True)
        ]
        entries: dict[str, AssembledEntry | PortionEntry] = {}
        shared = []
        for portion, folder, entry, own_files in zip(portions, folders, there, made, strict=True):
            if entry is None:
                entry = entries[f"{folder.name}/{ENTRY}"] = self._portion_entry(folder, own_files)
            shared.append(entry.shared(portion.identity))
        for by in self._made_by():
            whole = entry_of(self._assembly, self._plan, files, shared, by)
            if blake3(whole.to_bytes()).hexdigest() == part.entry:
                return entries | {f"{own.name}/{ENTRY}": whole}
        return None

    def _entry_there(self, portion: SharedPortion) -> PortionEntry | None:
        try:
            return find_portion(self._store, self._assembly.output, portion.identity)
        except DatasetError:
            return None

    def _portion_entry(self, folder: _Bundle, files: Sequence[FileEntry]) -> PortionEntry:
        return portion_entry(self._assembly.output, folder.path, files, software())

    # --- files

    def _mend_portion(self, folder: _Bundle, shared: SharedPortion) -> dict[str, str]:
        name, whys = f"{folder.name}/{ENTRY}", {}
        entry = self._entry_there(shared)
        if entry is None or entry.shared(shared.identity) != shared:
            entry = self._portion_entry(folder, self._described(folder))
            if entry.shared(shared.identity) != shared:
                return {name: f"put together again it has other bytes{self._other}"}
            self._store.replace(name, entry.to_bytes(), read_only=True)
            whys[name] = ""
        return whys | self._mend_files(folder, entry.files)

    def _mend_files(self, folder: _Bundle, promised: Sequence[FileEntry]) -> dict[str, str]:
        store, output = self._store, self._assembly.output
        wanted = {
            file.name: file.digest
            for file in promised
            if next(check_file(store, f"{folder.name}/{file.name}", file), "")
        }
        if not wanted:
            return {}
        tasks = [(store, output, folder.name, task, wanted) for task in folder.tasks]
        self._run_all([Task(restore_chunk, arguments) for arguments in tasks])
        for name, data in folder.small.items():
            put_back(store, f"{folder.name}/{name}", data, wanted.get(name))
        whys = {}
        for file in promised:
            if file.name in wanted:
                place = f"{folder.name}/{file.name}"
                left = next(check_file(store, place, file), "")
                whys[place] = f"made again it has other bytes{self._other}" if left else ""
        return whys
