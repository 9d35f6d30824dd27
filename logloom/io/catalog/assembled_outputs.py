"""Assembled outputs in a root: datasets of own files and shared portions.

    parts/zarr/<identity>/zarr.json                  of this version's dataset alone
    parts/zarr/<identity>/portions.json              which portions it has
    parts/zarr/<portion>/2026-11-22/car-7/c/c/0      of one log, named by each version that has this log

Here: entries of outputs and portions; the files of such a dataset; a `Store` that shows them as one folder.
Elsewhere: entries of units (logloom.io.catalog.entries), the content of portions (`AssemblyPlan` in
logloom.io.formats.interface), writing them (logloom.transforms.build.assembly.files).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Annotated, Any, TypeVar

from blake3 import blake3
from pydantic import AfterValidator

from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.catalog.entries import ENTRY, FileEntry, Files, apart, read_metadata, repair_hint, unit_folder
from logloom.io.storage.metadata import STRICT, Count, FileName, Name, Text, canonical, checked
from logloom.io.storage.store import Store
from logloom.io.storage.stored_files import PLACES
from logloom.io.storage.threads import ahead
from logloom.values import dataclass

T = TypeVar("T")
PORTIONS = "portions.json"  # beside the entry of an assembled output that has some


@dataclass(frozen=True)
class SharedPortion:
    """A portion of an assembled output, as the output's entry names it; other versions may name it, too.

    Attributes:
        path: within the dataset, of the one file, or of the folder that holds all its files and no others.
        identity: names its folder, where the files have the names that they have in the dataset.
        entry: BLAKE3 of that folder's entry.json, but for its software: others may make the same files.
        size: of all files, in bytes.
    """

    __pydantic_config__ = STRICT

    path: FileName
    identity: Name
    entry: Text
    size: Count


def _side_by_side(portions: tuple[SharedPortion, ...]) -> tuple[SharedPortion, ...]:
    """Raise ValueError if portions have the same path, or one is within another."""
    apart(tuple(FileEntry(portion.path, 0, "") for portion in portions))
    return portions


Portions = Annotated[tuple[SharedPortion, ...], AfterValidator(_side_by_side)]


@dataclass(frozen=True)
class PortionEntry:
    """The entry of a portion of assembled outputs.

    Attributes:
        path: as in `SharedPortion`.
    """

    __pydantic_config__ = STRICT

    output: Name
    path: FileName
    files: Files
    software: Mapping[str, Text]

    def to_bytes(self) -> bytes:
        """Return the bytes of entry.json."""
        return _assembled_bytes(self, {})

    def shared(self, identity: str) -> SharedPortion:
        """As the entries of assembled outputs name it."""
        size = sum(file.size for file in self.files)
        data = replace(self, software={}).to_bytes()
        return SharedPortion(self.path, identity, blake3(data).hexdigest(), size)


@dataclass(frozen=True)
class AssembledEntry:
    """The entry of an output that was put together from many units of a split.

    Attributes:
        unit: what the format said of it.
        files: those in its own folder.
        portions: with all other files; listed in a file of their own, since readers need only that list.
    """

    __pydantic_config__ = STRICT

    output: Name
    split: Name
    unit: Mapping[str, Any]
    rows: Count
    files: Files
    software: Mapping[str, Text]
    portions: Portions = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files) + sum(portion.size for portion in self.portions)

    def folders(self, identity: str) -> list[str]:
        """All folders of the root that its files are in: its own, then those of its portions."""
        return [unit_folder(self.output, name) for name in (identity, *(p.identity for p in self.portions))]

    def to_bytes(self) -> bytes:
        """Return the bytes of entry.json, with the digest of `portions_bytes` instead of the portions."""
        portions = blake3(self.portions_bytes()).hexdigest() if self.portions else ""
        return _assembled_bytes(self, {"portions": portions})

    def portions_bytes(self) -> bytes:
        """Return the bytes of portions.json, if there are portions."""
        return canonical([asdict(portion) for portion in self.portions])


def _assembled_bytes(entry: AssembledEntry | PortionEntry, more: dict[str, str]) -> bytes:
    data = {own.name: getattr(entry, own.name) for own in fields(entry)}
    data["files"] = [{"name": file.name, "size": file.size, "digest": file.digest} for file in entry.files]
    return canonical(data | more)


def publish_assembled(store: Store, identity: str, entry: AssembledEntry, *, anew: bool = False) -> None:
    """Mark an assembled output as complete.

    Args:
        anew: whether to replace what is there.
    """
    folder = unit_folder(entry.output, identity)
    name = f"{folder}/{ENTRY}"
    if entry.portions and (anew or not store.exists(name)):
        # Without the entry, the files are of a failed build, which may have other portions.
        store.restate(f"{folder}/{PORTIONS}", entry.portions_bytes())
    if anew:
        store.replace(name, entry.to_bytes(), read_only=True)
    else:
        store.create(name, entry.to_bytes())


def read_portions(store: Store, output: str, identity: str) -> tuple[SharedPortion, ...]:
    """Read the portions of an assembled output: where its files outside of its own folder are.

    Raises:
        DatasetError: their list is damaged.
    """
    return _read_portions(store, output, identity)[0]


def _read_portions(store: Store, output: str, identity: str) -> tuple[tuple[SharedPortion, ...], str]:
    """Return the portions and the digest of their list; none and "" without a list."""
    found = read_metadata(store, output, identity, PORTIONS)
    if found is None:
        return (), ""
    data, *more = found
    portions: tuple[SharedPortion, ...] = checked(Portions, *more)
    return portions, blake3(data).hexdigest()


def find_assembled(store: Store, output: str, identity: str) -> tuple[AssembledEntry, str] | None:
    """Return the entry of a finished assembled output and its BLAKE3; None if unfinished.

    Raises:
        DatasetError: the entry can't be read.
    """
    found = read_metadata(store, output, identity)
    if found is None:
        return None
    data, value, place, way_out = found
    is_whole = isinstance(value, dict) and isinstance(value.get("portions"), str)
    promised = value.pop("portions") if is_whole else ""
    entry = checked(AssembledEntry, value | {"portions": ()} if is_whole else value, place, way_out)
    if promised:
        portions, digest = _read_portions(store, output, identity)
        if digest != promised:
            folder = place.rpartition("/")[0]
            if not store.exists(f"{unit_folder(output, identity)}/{ENTRY}"):
                return None  # removed since it was read, and the entry goes first
            raise DatasetError(f"{folder}/{PORTIONS}: missing, or its bytes changed; {way_out}")
        entry = replace(entry, portions=portions)
    return entry, blake3(data).hexdigest()


def find_portion(store: Store, output: str, identity: str) -> PortionEntry | None:
    """As `find_assembled`, of a portion of assembled outputs."""
    found = read_metadata(store, output, identity)
    if found is None:
        return None
    _, *more = found
    entry = checked(PortionEntry, *more)
    strangers = [file.name for file in entry.files if not f"{file.name}/".startswith(f"{entry.path}/")]
    if strangers or not entry.files:
        _, place, way_out = more
        raise DatasetError(f"{place}: {entry.path!r} contains {(strangers or ['nothing'])[0]!r}; {way_out}")
    return entry


def covering(portions: Mapping[str, T], name: str) -> T | None:
    """Look up a file in a mapping, by its name or by that of a folder that contains it."""
    end = len(name)
    while end > 0:
        if (found := portions.get(name[:end])) is not None:
            return found
        end = name.rfind("/", 0, end)
    return None


class Places:
    """Where the files of an assembled output are; part of the storage options (see `Store.uri_of`).

    Pickles as its arguments.
    """

    def __init__(self, root: Store, output: str, identity: str, find: Callable[[], Sequence[SharedPortion]]):
        """Read nothing yet.

        Args:
            root: needs no options, since it is only asked for URIs.
            output, identity: of the output; as if all files were in its folder.
            find: gives its portions.
        """
        self._arguments = (root, output, identity, find)
        self._prefix = f"{root.uri_of(unit_folder(output, identity))}/"

    def __reduce__(self) -> tuple[object, ...]:
        return (Places, self._arguments)

    @cached_property
    def _folders(self) -> Mapping[str, str]:
        """URIs of the portions' folders, by path."""
        root, output, _, find = self._arguments
        return {portion.path: root.uri_of(unit_folder(output, portion.identity)) for portion in find()}

    def place(self, uri: str) -> str:
        """Return the actual URI of a file that seems to be at a URI."""
        if not uri.startswith(self._prefix):
            return uri
        name = uri.removeprefix(self._prefix)
        folder = covering(self._folders, name)
        return uri if folder is None else f"{folder}/{name}"

    def names(self, uri: str) -> set[str]:
        """List the names directly in a folder of the dataset that are stored elsewhere."""
        within = f"{uri}/".removeprefix(self._prefix)
        return {path[len(within) :].split("/")[0] for path in self._folders if path.startswith(within)}


def assembled_store(
    store: Store, output: str, identity: str, find: Callable[[], Sequence[SharedPortion]] | None = None
) -> Store:
    """Return an assembled output as one folder, for its format's readers.

    Args:
        store: the root.
        find: gives its portions, once they are needed; None to read which they are.
    """
    find = find or functools.partial(read_portions, store, output, identity)
    places = Places(replace(store, options={}), output, identity, find)
    return Store.at(store.uri_of(unit_folder(output, identity)), {**store.options, PLACES: places})


def read_portion(store: Store, output: str, shared: SharedPortion) -> PortionEntry:
    """The entry of a portion that the entry of an assembled output names.

    Raises:
        DatasetError: it is missing, damaged, or another one.
    """
    found = find_portion(store, output, shared.identity)
    place = store.uri_of(f"{unit_folder(output, shared.identity)}/{ENTRY}")
    if found is None:
        raise DatasetError(f"{place}: missing; {repair_hint(place)}")
    if found.shared(shared.identity) != shared:
        raise DatasetError(f"{place}: damaged, its bytes changed; {repair_hint(place)}")
    return found


def assembled_files(store: Store, identity: str, entry: AssembledEntry) -> Iterator[tuple[str, FileEntry]]:
    """Return the files of an assembled output and its portions, with the place of each in the root.

    Raises:
        DatasetError: the entry of a portion is missing, damaged, or another one.
    """
    for file in entry.files:
        yield f"{unit_folder(entry.output, identity)}/{file.name}", file
    read = functools.partial(read_portion, store, entry.output)
    for shared, portion in zip(entry.portions, ahead(read, entry.portions), strict=True):
        for file in portion.files:
            yield f"{unit_folder(entry.output, shared.identity)}/{file.name}", file
