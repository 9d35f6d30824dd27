"""Modification times by the store's own clock, and removal of many files.

Here: `listed`, `changed_at`, `now_of`, `remove_files` and `remove_folder`.
Elsewhere: how files appear (logloom.io.storage.store), which of them are garbage (logloom.pipelines.gc.gc).
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from typing import Any

from logloom.errors import StorageError
from logloom.io.storage.disk import own_name, sync
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import explained
from logloom.io.storage.store import TEMPORARY, Store
from logloom.io.storage.threads import in_threads
from logloom.values import dataclass

_CLOCK = f"{TEMPORARY}/clock"  # written to be dated by the store
# What fsspec's file systems call the time of the last change, the best first.
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "timeModified", "created")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a store.

    Attributes:
        name: within the store.
        size: in bytes.
        changed: seconds since the Unix epoch, by the clock of the disk or store.
    """

    name: str
    size: int
    changed: float


def listed(store: Store, folder: str) -> Iterator[FoundFile]:
    """Yield every file below a folder, folder by folder; symbolic links are not followed.

    Raises:
        StorageError: it can't be listed, or an object store doesn't report when its objects changed.
    """
    if store.local is not None:
        with explained(store.uri_of(folder)):
            yield from _walked(store.local_name(folder), folder)
        return
    fs = store.fs
    fs.invalidate_cache()
    own = f"/{store.uri_of(folder).split('://', 1)[-1].strip('/')}/"
    try:
        with explained(store.uri_of(folder), MISSING):
            found = fs.find(store.fs_path(folder), detail=True)
    except MISSING:
        return
    for path, info in sorted(found.items()):
        name = f"/{path.lstrip('/')}".removeprefix(own)
        yield FoundFile(f"{folder}/{name}", int(info["size"] or 0), _time_of(info, store.uri_of(folder)))


def _walked(path: str, name: str) -> Iterator[FoundFile]:
    folders = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                    continue
                with contextlib.suppress(FileNotFoundError):  # another process removed it
                    stat = entry.stat(follow_symlinks=False)
                    yield FoundFile(f"{name}/{entry.name}", stat.st_size, stat.st_mtime)
    except (FileNotFoundError, NotADirectoryError):
        return
    for folder in sorted(folders):
        yield from _walked(f"{path}/{folder}", f"{name}/{folder}")


def changed_at(store: Store, name: str) -> float | None:
    """Return when a file changed last; None if it doesn't exist."""
    try:
        with explained(store.uri_of(name), MISSING):
            if store.local is not None:
                return os.lstat(store.local_name(name)).st_mtime
            fs = store.fs
            fs.invalidate_cache()
            return _time_of(fs.info(store.fs_path(name)), store.uri_of(name))
    except MISSING:
        return None


def now_of(store: Store) -> float:
    """Return the time by the clock that dates the store's files, perhaps that of another machine."""
    name = f"{_CLOCK}-{own_name()}"
    store.create(name, b"", durable=False)
    try:
        now = changed_at(store, name)
    finally:
        store.remove(name, durable=False)
    return time.time() if now is None else now


def _time_of(info: dict[str, Any], place: str) -> float:
    for key in _TIMES:
        value = info.get(key)
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value)
        if isinstance(value, datetime.datetime):
            zone = value.tzinfo or datetime.UTC
            return value.replace(tzinfo=zone).timestamp()
        if isinstance(value, int | float):
            return float(value)
    raise StorageError(f"{place}: its store doesn't report when objects changed, so none counts as old")


def remove_files(store: Store, names: Sequence[str], within: str = "") -> None:
    """Remove files; missing ones are ignored.

    Args:
        within: the folder that all are in; on a disk, it and those in it go, too, where they are empty.
    """
    if store.local is None:
        # One by one: a list of names would be taken for patterns.
        in_threads(store.remove, list(names))
        return
    top = store.local_name(within)
    folders = {top} if within else set()
    for name in names:
        path = f"{top}/{name[len(within) + 1 :]}" if within else store.local_name(name)
        with contextlib.suppress(*MISSING), explained(path, MISSING):
            os.unlink(path)
        while within and (path := os.path.dirname(path)) not in folders:
            folders.add(path)
    for folder in sorted(folders, reverse=True):  # the deepest first
        with contextlib.suppress(OSError):  # it holds something, or is gone
            os.rmdir(folder)


def remove_folder(store: Store, name: str, last: str = "") -> None:
    """Remove a folder that readers see whole or not at all.

    Args:
        last: in an object store, the object that marks the others as complete.
    """
    if store.local is None:
        if last:
            store.remove(f"{name}/{last}")
        store.remove_all(name)
        return
    path, aside = store.path_of(name), store.path_of(TEMPORARY) / own_name()
    with explained(str(path)), contextlib.suppress(FileNotFoundError):
        aside.parent.mkdir(exist_ok=True)
        path.rename(aside)
        sync(path.parent)  # else a power cut could show it with half of what was in it
        shutil.rmtree(aside, ignore_errors=True)
