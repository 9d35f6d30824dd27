"""Places of datasets, as users name them: globs of datasets, and of the files of one."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from logloom.errors import DatasetError, UsageError
from logloom.io.formats.foreign import kind_of
from logloom.io.storage.filesystems import absolute_uri
from logloom.io.storage.store import Store

_MAGIC = frozenset("*?[")


def datasets_at(place: str, storage_options: Mapping[str, Any]) -> Sequence[str]:
    """Find the datasets that a place names: itself, or the matches of a glob.

    Files that match in one folder are one dataset.

    Args:
        place: a URI; `*`, `?` and `[…]` match within names.
        storage_options: fsspec options by protocol.

    Raises:
        UsageError: it has `**`.
        DatasetError: nothing matches.
    """
    place = absolute_uri(place).rstrip("/")
    scheme, _, path = place.rpartition("://")
    steps = path.split("/")
    plain = next((n for n, step in enumerate(steps) if _MAGIC & {*step}), len(steps))
    if plain == len(steps) or _is_there(place, storage_options):
        return [place]
    if "**" in steps:
        raise UsageError(f"{place}: '**' names no datasets; give a glob for each depth")
    folder = "/".join(steps[:plain])
    found = [f"{scheme}://{folder}" if scheme else folder]
    for step in steps[plain:]:
        found = [
            f"{parent}/{name}"
            for parent in found
            for name in Store.at(parent or "/", storage_options).names()
            if fnmatch.fnmatchcase(name, step) and (not name.startswith((".", "_")) or step[0] == name[0])
        ]
    if not found:
        raise DatasetError(f"{place}: nothing matches; check the path")
    return _joined(found, storage_options)


def _is_there(place: str, storage_options: Mapping[str, Any]) -> bool:
    """Whether a name with `[` is a folder's own."""
    return "[" in place and bool(Store.at(place, storage_options).names())


def _joined(places: Sequence[str], storage_options: Mapping[str, Any]) -> Sequence[str]:
    """One place in braces for files of one folder, which are one dataset; else the places."""
    folders = {place.rpartition("/")[0] for place in places}
    names = [place.rpartition("/")[2] for place in places]
    if len(places) < 2 or len(folders) > 1 or any({*"{},"} & {*name} for name in names):
        return places
    if any(Store.at(place, storage_options).names() for place in places[:1]):
        return places
    files = f"{folders.pop()}/{{{','.join(names)}}}"
    return places if kind_of(Store.at(files, storage_options)) is None else [files]
