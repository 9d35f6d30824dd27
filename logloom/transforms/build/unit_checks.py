"""Checks of finished units, and removal of the completion marks of damaged ones.

A damaged unit that no version names loses its mark, so that it is built again. One that a version names keeps
it: readers of that version need its entry, and `logloom repair` proves that what it builds again is the same.
Elsewhere: entries (logloom.io.catalog.entries), manifests (logloom.io.catalog.manifest), building units
(logloom.transforms.build.partition).
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace

from logloom.errors import DatasetError
from logloom.io.catalog.assembled_outputs import AssembledEntry, SharedPortion, read_portion, read_portions
from logloom.io.catalog.entries import ENTRY, Entry, FileEntry, find_entry, read_log_part, unit_folder
from logloom.io.catalog.manifest import Assembled, read_assembled, read_manifest
from logloom.io.catalog.removal_notes import removing
from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import size_and_digest
from logloom.io.storage.store import Store
from logloom.text import counted


def finished_unit(store: Store, expected: Entry) -> Entry | None:
    """The entry of a unit that is there, all its files in their sizes; None where it is to be built.

    Args:
        expected: what is asked for: output, identity, log, partition and span.

    Raises:
        DatasetError: it is damaged, and a version names it.
    """
    entry, problem = _looked_at(store, expected)
    if not problem:
        return entry
    if not (way_out := withdraw(store, expected.log_id, (entry or expected).folders)):
        return None
    # A build may have made it again before its version was committed, both since it was looked at.
    entry, problem = _looked_at(store, expected)
    if problem:
        raise DatasetError(f"{problem}; {way_out}")
    return entry


def _looked_at(store: Store, expected: Entry) -> tuple[Entry | None, str]:
    """The entry of a unit, if it is there and can be read, and what is cheaply seen to be wrong."""
    try:
        entry = find_entry(store, expected.output, expected.identity)
        return entry, next(_problems(store, entry, expected), "") if entry else ""
    except DatasetError as error:
        return None, str(error).partition(";")[0]


def _problems(store: Store, entry: Entry, expected: Entry) -> Iterator[str]:
    """What is cheaply seen to be wrong with a unit."""
    for name in ("output", "identity", "log_id", "content_id", "partition", "start", "stop"):
        if getattr(entry, name) != getattr(expected, name):
            yield f"{store.uri_of(f'{expected.folder}/{ENTRY}')}: is about another {name}"
            return
    sizes = {folder: store.sizes(folder) for folder in entry.folders}
    for file in entry.files:
        path = entry.path_of(file)
        folder = path[: -len(file.name) - 1]
        size = sizes[folder].get(file.name)
        if size != file.size:
            is_there = "missing" if size is None else f"{counted(size, 'byte')}, should be {file.size}"
            yield f"{store.uri_of(path)}: {is_there}"


def withdraw(store: Store, log_id: str, folders: Iterable[str]) -> str:
    """Takes the completion marks from damaged folders of one log's unit, unless a version names one of them.

    Returns:
        What is left to do where a version names one; "" where the next build makes the unit again.
    """
    damaged = set(folders)
    if (number := _version_naming(store, log_id, damaged)) is not None:
        return f"`logloom repair {shlex.quote(f'{store.uri}@{number}')}` builds it again"
    _unmark(store, sorted(damaged))
    return ""


def withdraw_assembled(store: Store, output: str, identity: str) -> str:
    """As `withdraw`, for an assembled output."""
    for number in reversed(version_numbers(store)):
        if any(
            (part.output, part.identity) == (output, identity)
            for part in read_manifest(store, number).assembled
        ):
            return f"`logloom repair {shlex.quote(f'{store.uri}@{number}')}` builds it again"
    _unmark(store, [unit_folder(output, identity)])
    return ""


def _unmark(store: Store, folders: Sequence[str]) -> None:
    """Takes completion marks away; builds that found them are notified (logloom.io.catalog.removal_notes)."""
    names = [name for folder in folders if store.exists(name := f"{folder}/{ENTRY}")]
    if names:
        with removing(store, folders):
            for name in names:
                store.remove(name)


def withdraw_portions(store: Store, entry: AssembledEntry, is_sound: Callable[[SharedPortion], bool]) -> str:
    """As `withdraw`, for the portions of an assembled output that doesn't read back.

    Args:
        is_sound: whether a portion reads back by itself. Those that do keep their marks, unless all do:
            another build may have found them finished, and be about to commit them.

    Returns:
        What is left to do where a version names some; those keep their marks, too.
    """
    named: dict[str, int] = {}
    for number in version_numbers(store):
        for part in read_manifest(store, number).assembled:
            if part.output == entry.output:
                with contextlib.suppress(DatasetError):  # then nobody can read that version, either
                    named |= {p.identity: number for p in read_assembled(store, part).portions}
    suspects = [portion for portion in entry.portions if portion.identity not in named]
    damaged = [portion for portion in suspects if not is_sound(portion)] or suspects
    _unmark(store, [unit_folder(entry.output, portion.identity) for portion in damaged])
    if numbers := [named[p.identity] for p in entry.portions if p.identity in named]:
        command = f"`logloom repair {shlex.quote(f'{store.uri}@{max(numbers)}')}`"
        return f"build again; should it fail again, {command} builds again damaged files"
    return ""


def _version_naming(store: Store, log_id: str, folders: set[str]) -> int | None:
    """The newest version that names one of the folders."""
    read: set[str] = set()  # versions share the parts of logs that stayed
    for number in reversed(version_numbers(store)):
        record = read_manifest(store, number).logs.find(log_id)
        if record is None or not record.part or record.part in read:
            continue
        read.add(record.part)
        if any(folders.intersection(entry.folders) for entry in read_log_part(store, record.part)):
            return number
    return None


# --- by their bytes -------------------------------------------------------------------------------------


def unit_problems(store: Store, entry: Entry) -> Iterator[str]:
    """List the differences of a unit from its log's part of the manifest, by digests."""
    yield from entry_problems(store, entry)
    yield from check_files(store, entry)


def entry_problems(store: Store, entry: Entry) -> Iterator[str]:
    """List entries of a unit, its own and those of its portions, that are missing or differ."""
    for expected in (entry, *portion_entries(entry)):
        place = store.uri_of(f"{expected.folder}/{ENTRY}")
        try:
            found = find_entry(store, expected.output, expected.identity)
        except DatasetError as error:
            yield str(error).rpartition(";")[0]
            continue
        if found is None:
            yield f"{place}: missing"
            continue
        # A portion may have been made long before, by other software. Parts of logs have no statistics.
        same = found if expected is entry else replace(found, software={})
        compared = [field.name for field in fields(Entry) if field.name != "statistics"]
        other = [name for name in compared if getattr(same, name) != getattr(expected, name)]
        if other:
            yield f"{place}: has another {', '.join(other)} than the manifest"


def portion_entries(entry: Entry) -> list[Entry]:
    """Return the entries of a unit's portions that its own entry promises, but for their software."""
    files: dict[str, list[FileEntry]] = {}
    for file in entry.files:
        if file.portion:
            files.setdefault(file.portion, []).append(replace(file, portion=""))
    said = entry.unit.get("portions")  # anything, in a damaged manifest
    ones = [one for one in said.values() if isinstance(one, dict)] if isinstance(said, dict) else []
    portions = {str(one.get("identity")): one for one in ones}
    return [
        replace(
            entry,
            identity=identity,
            files=tuple(own),
            columns={},
            unit=portions.get(identity, {}),
            tally={},
            software={},
        )
        for identity, own in files.items()
    ]


def check_files(store: Store, entry: Entry) -> Iterator[str]:
    """List files of a unit that are missing or have other bytes than its entry records."""
    for file in entry.files:
        yield from check_file(store, entry.path_of(file), file)


def check_file(store: Store, name: str, file: FileEntry) -> Iterator[str]:
    """Says how a file differs from its entry."""
    try:
        size, digest = size_and_digest(store.uri_of(name), store.options)
    except MISSING:
        yield f"{store.uri_of(name)}: missing"
        return
    if size != file.size:
        yield f"{store.uri_of(name)}: {counted(size, 'byte')}, should be {file.size}"
    elif digest != file.digest:
        yield f"{store.uri_of(name)}: its bytes changed (BLAKE3 {digest[:16]}, should be {file.digest[:16]})"


def assembled_problems(store: Store, part: Assembled) -> Iterator[str]:
    """List the differences of an assembled output from the manifest, by digests."""
    folder = part.folder
    try:
        entry = read_assembled(store, part)
    except DatasetError as error:
        yield str(error).rpartition(";")[0]
        with contextlib.suppress(DatasetError):  # its portions may be damaged, too, and are listed elsewhere
            for shared in read_portions(store, part.output, part.identity):
                yield from portion_problems(store, part.output, shared)
        return
    if (entry.output, entry.split, entry.rows) != (part.output, part.split, part.rows):
        place = store.uri_of(f"{folder}/{ENTRY}")
        yield f"{place}: is about another output, split or number of rows than the manifest"
    for file in entry.files:
        yield from check_file(store, f"{folder}/{file.name}", file)
    for shared in entry.portions:
        yield from portion_problems(store, entry.output, shared)


def portion_problems(store: Store, output: str, shared: SharedPortion) -> Iterator[str]:
    """As `assembled_problems`, of a portion."""
    try:
        portion = read_portion(store, output, shared)
    except DatasetError as error:
        yield str(error).rpartition(";")[0]
        return
    for file in portion.files:
        yield from check_file(store, f"{unit_folder(output, shared.identity)}/{file.name}", file)
