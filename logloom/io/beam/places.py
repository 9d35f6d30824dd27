"""Formats by name, and datasets at a URI or glob."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping, Sequence
from typing import Any

from logloom.errors import DatasetError, UsageError
from logloom.io.formats.foreign import kind_of, kinds
from logloom.io.formats.interface import FolderKind
from logloom.io.formats.registry import format_named, format_names
from logloom.io.storage.filesystems import absolute_uri
from logloom.io.storage.store import Store
from logloom.text import near_to
from logloom.uris import is_local

STAGES = ".stage"  # how folders end in which `WriteTo` works
_MAGIC = frozenset("*?[")


def format_of(given: str | FolderKind | None) -> FolderKind | None:
    """The format that users name, as an output of a recipe or as a kind of folders; None for none.

    Raises:
        UsageError: there is none of this name; names the nearest.
    """
    if not isinstance(given, str) and (given is None or hasattr(given, "recognises")):
        return given
    found: dict[str, FolderKind] = {**kinds(), **{name: format_named(name) for name in format_names()}}
    if not isinstance(given, str) or given not in found:
        raise UsageError(f"no installed part offers the format {given!r}{near_to(str(given), found)}")
    return found[given]


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
    special = [n for n, step in enumerate(steps) if _MAGIC & {*step}]
    if is_local(place):  # names that exist are no patterns
        special = [n for n in special if not os.path.lexists("/".join(steps[: n + 1]))]
    if not special or _is_there(place, storage_options):
        return [place]
    plain = special[0]
    if "**" in steps:
        raise UsageError(f"{place}: '**' names no datasets; give a glob for each depth")
    folder = "/".join(steps[:plain])
    found = [f"{scheme}://{folder}" if scheme else folder]
    for step in steps[plain:]:
        found = [
            f"{parent}/{name}"
            for parent in found
            for name in Store.at(parent or "/", storage_options).names()
            if fnmatch.fnmatchcase(name, step)
            and (not name.startswith((".", "_")) or step[0] == name[0])
            and not (name.endswith(STAGES) and step.endswith("*"))
        ]
    if not found:
        raise DatasetError(f"{place}: nothing matches; check the path")
    return _joined(found, storage_options)


def _is_there(place: str, storage_options: Mapping[str, Any]) -> bool:
    """Whether a name with `[` in a store is a folder's own."""
    return "[" in place and not is_local(place) and bool(Store.at(place, storage_options).names())


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
