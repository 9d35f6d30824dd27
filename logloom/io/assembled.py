"""What was assembled of many units, as it lies in a root: its own files, and portions that versions share.

    parts/zarr/<identity>/zarr.json                  of this version's dataset alone
    parts/zarr/<portion>/2026-11-22/car-7/c/c/0      of one log, named by each version that has this log

Here: which files make up such a dataset, and a `Store` that shows them as the one folder that they stand for.
Elsewhere: entries (logloom.io.entries), what a portion is made of (`AssemblyPlan` in logloom.io.units), who
writes them (logloom.transforms.assembly).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from logloom.errors import DatasetError
from logloom.io.entries import (
    ENTRY,
    AssembledEntry,
    FileEntry,
    PortionEntry,
    SharedPortion,
    find_portion,
    repair_hint,
    unit_folder,
)
from logloom.io.storage import PLACES, Store

T = TypeVar("T")
_READERS = 16  # threads that read entries; they wait for storage


def covering(portions: Mapping[str, T], name: str) -> T | None:
    """What stands in a mapping under the name of a file, or under a folder that it lies in."""
    end = len(name)
    while end > 0:
        if (found := portions.get(name[:end])) is not None:
            return found
        end = name.rfind("/", 0, end)
    return None


class Places:
    """Where the files of an assembled output lie; it travels with the storage options (see `Store.uri_of`).

    Pickles as what it was made of.
    """

    def __init__(self, root: str, folder: str, find: Callable[[], AssembledEntry]):
        """Reads nothing yet.

        Args:
            root: URI.
            folder: within the root, that the files are thought to lie in.
            find: gives the output's entry.
        """
        self._arguments = (root, folder, find)
        self._prefix = f"{root}/{folder}/"

    def __reduce__(self) -> tuple[object, ...]:
        return (Places, self._arguments)

    @functools.cached_property
    def _folders(self) -> Mapping[str, str]:
        """URIs of the portions' folders, by path."""
        root, _, find = self._arguments
        entry = find()
        return {p.path: f"{root}/{unit_folder(entry.output, p.identity)}" for p in entry.portions}

    def place(self, uri: str) -> str:
        """Where the file lies that is thought to lie at a URI."""
        if not uri.startswith(self._prefix):
            return uri
        name = uri.removeprefix(self._prefix)
        folder = covering(self._folders, name)
        return uri if folder is None else f"{folder}/{name}"

    def names(self, uri: str) -> set[str]:
        """The names directly in the folder that a URI stands for, of what doesn't lie there."""
        within = f"{uri}/".removeprefix(self._prefix)
        return {path[len(within) :].split("/")[0] for path in self._folders if path.startswith(within)}


def assembled_store(store: Store, output: str, identity: str, find: Callable[[], AssembledEntry]) -> Store:
    """An assembled output as one folder, for its format's readers.

    Args:
        store: the root.
        find: gives the output's entry, once it is needed; picklable where readers are to be.
    """
    folder = unit_folder(output, identity)
    return Store.at(store.uri_of(folder), {**store.options, PLACES: Places(store.uri, folder, find)})


def read_portion(store: Store, output: str, shared: SharedPortion) -> PortionEntry:
    """The entry of a portion that the entry of an assembled output names.

    Raises:
        DatasetError: it is missing, damaged, or another one.
    """
    found = find_portion(store, output, shared.identity)
    place = store.uri_of(f"{unit_folder(output, shared.identity)}/{ENTRY}")
    if found is None:
        raise DatasetError(f"{place}: missing; {repair_hint(place)}")
    entry, digest = found
    if digest != shared.entry:
        raise DatasetError(f"{place}: damaged, its bytes changed; {repair_hint(place)}")
    return entry


def assembled_files(
    store: Store, identity: str, entry: AssembledEntry, portions: Sequence[SharedPortion] | None = None
) -> Iterator[tuple[str, FileEntry]]:
    """The files of an assembled output, and where each lies in the root.

    Args:
        portions: to give the files of; None for all, and the output's own.

    Raises:
        DatasetError: the entry of a portion is missing, damaged, or another one.
    """
    if portions is None:
        for file in entry.files:
            yield f"{unit_folder(entry.output, identity)}/{file.name}", file
        portions = entry.portions
    with ThreadPoolExecutor(_READERS) as threads:
        read = functools.partial(read_portion, store, entry.output)
        for shared, portion in zip(portions, threads.map(read, portions), strict=True):
            for file in portion.files:
                yield f"{unit_folder(entry.output, shared.identity)}/{file.name}", file
