"""Tags: names that people give to versions of a root.

    versions/tags/00000012.json   all tags after the twelfth change; created if absent
    versions/tags.json            all tags, where nobody changed them since there are changes

Each file holds the digest of its values, and the number of the change: `{"change", "digest", "tags"}`. Those
of before hold the tags alone.

Here: reading and changing them. A change creates the next file, so of two at once one is refused by the store
and made again upon the other: none is lost, on a disk and in any store that creates files if absent.
Elsewhere: what versions there are (logloom.io.version_files).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, Strict

from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.metadata import STRICT, checked, parsed, sealed, unsealed
from logloom.io.remote import MISSING
from logloom.io.storage import Store

TAGS = "versions/tags"
Version = Annotated[int, Strict(), Field(ge=1, lt=10**8)]
_BEFORE = f"{TAGS}.json"
_FILE = re.compile(r"([0-9]{8})\.json")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_NUMBER = re.compile(r"v*[0-9]+|latest")
_TRIES = 1000  # changes of others that came first
_WAY_OUT = "put it back from a backup, or remove it: the tags as they were before this change then count"


@dataclass(frozen=True)
class _Change:
    """What stands in the file of a change: its number, and all tags after it."""

    __pydantic_config__ = STRICT

    change: Version
    tags: dict[str, Version]


def check_tag(name: str) -> None:
    """Makes sure that a tag can be told from a number, and written after ROOT@.

    Raises:
        UsageError: it can't.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} can't be a tag: they are made of up to 100 letters, digits, and . _ -")
    if _NUMBER.fullmatch(name):
        raise UsageError(f"{name!r} can't be a tag: it says which version by itself")


def read_tags(store: Store) -> dict[str, int]:
    """The versions that tags name.

    Raises:
        DatasetError: the file of tags can't be read.
    """
    return _read(store)[1]


def change_tags(store: Store, change: Callable[[Mapping[str, int]], dict[str, int]]) -> dict[str, int]:
    """Changes the tags of a root; gives them as they are then.

    Args:
        change: from tags to tags; called again where somebody else's change came first.

    Raises:
        DatasetError: the file of tags can't be read.
        StorageError: it can't be written.
    """
    for _ in range(_TRIES):
        number, tags = _read(store)
        changed = change(tags)
        name = f"{TAGS}/{number + 1:08d}.json"
        data = sealed({"change": number + 1, "tags": changed})
        if changed == tags:
            store.settle([TAGS])
            return changed
        # Equal bytes that are there already are success, too: a response was lost.
        if store.create(name, data) or store.read(name) == data:
            return changed
    raise StorageError(f"{store.uri_of(TAGS)}: others change tags all the time; try again")


def _read(store: Store) -> tuple[int, dict[str, int]]:
    """How often tags were changed, and what they are."""
    number = max(_changes(store), default=0)
    try:
        return number, _tags_after(store, number)
    except MISSING:
        if not number:
            return 0, {}
        raise StorageError(f"{store.uri_of(_file_of(number))}: gone since it was listed; try again") from None


def _changes(store: Store) -> list[int]:
    return sorted(int(match[1]) for name in store.names(TAGS) if (match := _FILE.fullmatch(name)))


def _file_of(number: int) -> str:
    return f"{TAGS}/{number:08d}.json" if number else _BEFORE


def _tags_after(store: Store, number: int) -> dict[str, int]:
    """The tags after a change; after none, those of before there were changes."""
    name = _file_of(number)
    place = store.uri_of(name)
    value = parsed(store.read(name), place, _WAY_OUT)
    if not (isinstance(value, dict) and isinstance(value.get("tags"), dict)):  # as of before
        return checked(dict[str, Version], value, place, _WAY_OUT)
    found = checked(_Change, unsealed(value, place, _WAY_OUT), place, _WAY_OUT)
    if found.change != number:
        raise DatasetError(f"{place}: the tags after another change, {found.change}; {_WAY_OUT}")
    return found.tags


def tag_problems(store: Store) -> Iterator[str]:
    """What is wrong with files of tags, of all changes."""
    for number in _changes(store) or [0]:
        try:
            _tags_after(store, number)
        except DatasetError as error:
            yield str(error)
        except MISSING:  # there are no tags, or somebody removed the file meanwhile
            continue
