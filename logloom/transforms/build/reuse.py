"""Reuse of finished units, protecting them from gc until the commit.

What no version names may be garbage that `logloom gc` is about to remove. A build that reuses such a unit
writes its entry again, so that it is young, and then checks that all of it still exists; right before the
commit it checks once more everything that was noted as being removed meanwhile (see
logloom.io.catalog.removal_notes). What the parent version names needs neither.
Elsewhere: checks of finished units (logloom.transforms.build.unit_checks), removing
(logloom.pipelines.gc.gc).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field

from logloom.errors import DatasetError
from logloom.io.catalog.artifacts import files_named
from logloom.io.catalog.assembled_outputs import AssembledEntry, PortionEntry
from logloom.io.catalog.entries import ENTRY, Entry, read_log_part, unit_folder
from logloom.io.catalog.manifest import Assembled, folders_of, manifest_at, read_assembled
from logloom.io.catalog.pages import page_file
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.removal_notes import Removals, are_in
from logloom.io.storage.store import Store
from logloom.transforms.build.assembly.portions import finished_portion, portions_of_parent
from logloom.transforms.build.job import Target
from logloom.transforms.build.unit_checks import finished_unit
from logloom.values import dataclass

_CHECKED = 1024  # names that are looked up together


@dataclass(frozen=True)
class _Parent:
    """A version, which never changes, as a key of caches."""

    uri: str
    number: int
    digest: str
    store: Store = field(compare=False)


@functools.lru_cache(maxsize=2)
def _logs_of(parent: _Parent) -> LogRecords:
    return manifest_at(parent.store, parent.number).logs


@functools.lru_cache(maxsize=64)
def _folders_of(parent: _Parent, log_id: str) -> frozenset[str]:
    try:
        record = _logs_of(parent).find(log_id)
        entries = read_log_part(parent.store, record.part, brief=True) if record and record.part else ()
        return frozenset(folder for entry in entries for folder in entry.folders)
    except DatasetError:
        return frozenset()  # it is for `verify` to say; what is found is written once more


def _is_named_by_parent(job: Target, entry: Entry) -> bool:
    if job.parent is None:
        return False
    parent = _Parent(job.store.uri, job.parent, job.parent_digest, job.store)
    return _folders_of(parent, entry.log_id).issuperset(entry.folders)


def taken_unit(job: Target, expected: Entry) -> Entry | None:
    """Return the entry of a finished unit, protected until the commit; None if it is to be built.

    Args:
        expected: see `finished_unit`, which raises the same.
    """
    found = finished_unit(job.store, expected)
    if found is None or _is_named_by_parent(job, found):
        return found
    if not refresh(job.store, found.folders):
        return None
    return finished_unit(job.store, expected)


def refresh(store: Store, folders: Iterable[str]) -> bool:
    """Writes the entries of folders anew, with the bytes that they have; says whether all are there.

    They are synced to survive a power cut: their first writer may have been killed just before that.
    """
    folders = list(folders)
    for folder in folders:
        name = f"{folder}/{ENTRY}"
        if (data := store.read_if_there(name)) is None:
            return False
        store.replace(name, data, read_only=True)
    store.settle_names(folders)
    return True


def taken_portion(job: Target, output: str, identity: str) -> PortionEntry | None:
    """As `taken_unit`, of a portion of assembled outputs that the parent version doesn't name."""
    if finished_portion(job, output, identity) and refresh(job.store, [unit_folder(output, identity)]):
        return finished_portion(job, output, identity)
    return None


def refresh_assembled(job: Target, identity: str, entry: AssembledEntry) -> bool:
    """Do as `refresh`, for a finished assembled output and its portions."""
    known = {unit_folder(entry.output, name) for name in portions_of_parent(job, entry.output)}
    return refresh(job.store, (folder for folder in entry.folders(identity) if folder not in known))


# --- right before the commit ----------------------------------------------------------------------------


def removed_meanwhile(
    job: Target, made: LogRecords, version: LogRecords, assembled: Sequence[Assembled]
) -> Iterator[tuple[str, str]]:
    """Find what a version would name and was removed while it was built: log_id or output, and the place.

    Args:
        made: records of the logs that were built; those of others are the parent's.
        version: all its records.

    Raises:
        StorageError: a removal of it doesn't finish.
    """
    removals = Removals(job.store)
    if not len(removals.keys):
        return
    coming = _named(job, made, version, assembled)
    while names := list(itertools.islice(coming, _CHECKED)):
        noted = are_in(removals.keys, [name for _, name, _ in names])
        for (what, name, is_there), is_noted in zip(names, noted, strict=True):
            if is_noted:
                removals.wait(name)
                if not is_there():
                    yield what, job.store.uri_of(name)


_Named = tuple[str, str, Callable[[], bool]]  # log_id or output, file or folder, and whether it is there


def _named(
    job: Target, made: LogRecords, version: LogRecords, assembled: Sequence[Assembled]
) -> Iterator[_Named]:
    store = job.store
    for record in made:
        for name in sorted(files_named(record)):
            yield record.log_id, name, functools.partial(store.exists, name)
        with contextlib.suppress(DatasetError):  # the part's own line says that it is gone
            for entry in read_log_part(store, record.part) if record.part else ():
                for folder in entry.folders:
                    yield record.log_id, folder, functools.partial(_has_unit, store, entry)
    for page in version.pages:
        name = page_file(page, version.folder)
        yield "", name, functools.partial(store.exists, name)
    of_parent = {part.identity for part in job.assembled}
    for part in assembled:
        if part.identity not in of_parent:
            yield part.output, part.folder, functools.partial(_has_assembled, store, part)
            with contextlib.suppress(DatasetError):  # the output's own line says that it is gone
                for folder in folders_of(store, part)[1:]:
                    yield part.output, folder, functools.partial(_has_portion, job, folder)


def _has_unit(store: Store, entry: Entry) -> bool:
    are_marked = all(store.exists(f"{folder}/{ENTRY}") for folder in entry.folders)
    return are_marked and finished_unit(store, entry) is not None


def _has_assembled(store: Store, part: Assembled) -> bool:
    try:
        files = read_assembled(store, part).files
    except DatasetError:
        return False
    sizes = store.sizes(part.folder)
    return all(sizes.get(file.name) == file.size for file in files)


def _has_portion(job: Target, folder: str) -> bool:
    _, output, identity = folder.split("/")
    return finished_portion(job, output, identity) is not None
