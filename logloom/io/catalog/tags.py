"""Tags: names that people give to versions of a root.

    versions/tags/00000012.json        all tags after the twelfth change; created if absent
    versions/tags-again/00000012.json  the same bytes once more, written after it

Each file holds the digest of its values, and the number of the change: `{"change", "digest", "tags"}`.

Here: reading and changing them. A change creates the next file, so of two concurrent ones the store refuses
one, which is repeated on top of the other: none is lost, on a disk and in any store that creates files if
absent. The loss of the newest change's file would go unnoticed, as no later file refers to it. So each is
written twice, in two folders. Readers use the newest change in either folder, and a sound one of its two
files.
Elsewhere: the versions of a root (logloom.io.catalog.version_files).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

from pydantic import Field, Strict

from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import STRICT, canonical, checked, parsed, sealed, unsealed
from logloom.io.storage.store import Store
from logloom.values import dataclass

TAGS = "versions/tags"
AGAIN = "versions/tags-again"
Version = Annotated[int, Strict(), Field(ge=1, lt=10**8)]
_FILE = re.compile(r"([0-9]{8})\.json")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_NUMBER = re.compile(r"v*[0-9]+|latest")
_TRIES = 1000  # changes of others that came first
_WAY_OUT = (
    "put it back from a backup, or remove this file and its other one, in tags/ and tags-again/: the tags as "
    "they were before this change then count"
)


@dataclass(frozen=True)
class _Change:
    """The content of the file of a change.

    Attributes:
        change: its number.
        tags: all tags after it.
    """

    __pydantic_config__ = STRICT

    change: Version
    tags: dict[str, Version]


def check_tag(name: str) -> None:
    """Make sure that a tag can't be mistaken for a number, and can be written after ROOT@.

    Raises:
        UsageError: it can't.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} can't be a tag: they are made of up to 100 letters, digits, and . _ -")
    if _NUMBER.fullmatch(name):
        raise UsageError(f"{name!r} can't be a tag: it names a version already")


def read_tags(store: Store) -> dict[str, int]:
    """Read the tags, with the version of each.

    Raises:
        DatasetError: the file of tags can't be read.
    """
    return _read(store)[1]


def change_tags(store: Store, change: Callable[[Mapping[str, int]], dict[str, int]]) -> dict[str, int]:
    """Change the tags of a root; return the new ones.

    Args:
        change: from tags to tags; called again if another process changed the tags first.

    Raises:
        DatasetError: the file of tags can't be read.
        StorageError: it can't be written.
    """
    for _ in range(_TRIES):
        number, tags = _read(store)
        changed = change(tags)
        if changed == tags:
            # The process that wrote one of its files may have been killed before the other.
            mend_tags(store, newest_only=True)
            store.settle([TAGS, AGAIN])
            return changed
        name = _file_of(number + 1)
        data = sealed({"change": number + 1, "tags": changed})
        # Equal bytes that are there already are success, too: a response was lost.
        if store.create(name, data) or store.read(name) == data:
            store.restate(_file_of(number + 1, AGAIN), data)
            return changed
    raise StorageError(f"{store.uri_of(TAGS)}: others change tags all the time; try again")


def had_tag(store: Store, name: str) -> bool:
    """Return whether a version had this tag before, by the changes that can be read."""
    for number in reversed(_changes(store)):
        with contextlib.suppress(DatasetError, *MISSING):
            if name in _newest(store, number).tags:
                return True
    return False


def _read(store: Store) -> tuple[int, dict[str, int]]:
    """Read how often tags were changed, and the current ones."""
    number = max(_changes(store), default=0)
    if not number:
        return 0, {}
    try:
        return number, _newest(store, number).tags
    except MISSING:
        raise StorageError(f"{store.uri_of(_file_of(number))}: gone since it was listed; try again") from None


def _newest(store: Store, number: int) -> _Change:
    """A change by the first of its files that is sound.

    Raises:
        DatasetError: none is.
        FileNotFoundError: none is there.
    """
    try:
        return _change_in(store, _file_of(number), number)
    except (DatasetError, *MISSING) as error:
        try:
            return _change_in(store, _file_of(number, AGAIN), number)
        except (DatasetError, *MISSING):
            raise error from None


def _changes(store: Store) -> list[int]:
    """The numbers of all changes, ascending."""
    names = (name for folder in (TAGS, AGAIN) for name in store.names(folder))
    return sorted({int(match[1]) for name in names if (match := _FILE.fullmatch(name))})


def _file_of(number: int, folder: str = TAGS) -> str:
    return f"{folder}/{number:08d}.json"


def _change_in(store: Store, name: str, number: int) -> _Change:
    """Read the file of a change."""
    place = store.uri_of(name)
    value = parsed(store.read(name), place, _WAY_OUT)
    found = checked(_Change, unsealed(value, place, _WAY_OUT), place, _WAY_OUT)
    if found.change != number:
        raise DatasetError(f"{place}: the tags after another change, {found.change}; {_WAY_OUT}")
    return found


# --- both files of a change -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Problem:
    """What is wrong with a file of tags.

    Attributes:
        mended: the bytes that it should hold; None if unknown.
    """

    name: str
    text: str
    mended: bytes | None = None


def tag_problems(store: Store) -> Iterator[str]:
    """What is wrong with files of tags, of all changes."""
    return (one.text for one in _problems(store))


def mend_tags(store: Store, *, newest_only: bool = False) -> list[str]:
    """Restore damaged or lost files of tags from their sound copies; return their names."""
    mended = []
    for one in list(_problems(store, newest_only=newest_only)):
        if one.mended is not None:
            store.replace(one.name, one.mended, read_only=True)
            mended.append(one.name)
    return mended


def _problems(store: Store, *, newest_only: bool = False) -> Iterator[_Problem]:
    numbers = _changes(store)
    for number in numbers[-1:] if newest_only else numbers:
        yield from _problems_of(store, number, is_newest=number == numbers[-1])


def _problems_of(store: Store, number: int, *, is_newest: bool) -> Iterator[_Problem]:
    """What is wrong with the two files of a change; that one of them is missing only of the newest."""
    names = [_file_of(number, folder) for folder in (TAGS, AGAIN)]
    sound: dict[str, _Change] = {}
    wrong: dict[str, str] = {}
    for name in names:
        try:
            sound[name] = _change_in(store, name, number)
        except DatasetError as error:
            wrong[name] = str(error)
        except MISSING:
            wrong[name] = ""
    mended = next((store.read(name) for name in sound), None) if wrong else None
    for name, text in wrong.items():
        if text:
            yield _Problem(name, text, mended)
        elif is_newest:
            text = "missing, one of two files with the tags; `logloom repair` writes it again"
            yield _Problem(name, f"{store.uri_of(name)}: {text}", mended)
    if len({canonical(one.tags) for one in sound.values()}) > 1:
        yield _Problem(
            names[1],
            f"{store.uri_of(names[1])}: names other versions than {store.uri_of(names[0])}, which counts; "
            "remove the one that is wrong, then run `logloom repair`",
        )
