"""Digests of a version's files, to check these when they are opened.

Here: `unit_files`, `known_files` and `options_in_view`, from entries and manifests.
Elsewhere: comparing files with them (logloom.io.storage.known_files).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from logloom.io.storage.filesystems import absolute_uri

if TYPE_CHECKING:
    from logloom.io.catalog.entries import Entry, FileEntry
    from logloom.io.catalog.manifest import Assembled
    from logloom.io.storage.store import Store
from logloom.io.storage.known_files import with_check

_IN_VIEW = re.compile(r"(?P<root>.+)/(?P<folder>v(?P<version>\d{8})/(?P<output>[^/]+))/.+")


def unit_files(store: Store, entry: Entry) -> dict[str, FileEntry]:
    """Return the files of a unit by URI."""
    return {store.uri_of(entry.path_of(file)): file for file in entry.files}


def known_files(store: Store, part: Assembled, shown: str | None = None) -> dict[str, FileEntry]:
    """Return the files of an assembled output by URI.

    Args:
        shown: the folder in a version's view that holds them too.

    Raises:
        DatasetError: a list of files is missing, or isn't the one that the manifest means.
    """
    from logloom.io.catalog.assembled_outputs import assembled_files
    from logloom.io.catalog.manifest import read_assembled

    known = {}
    for place, file in assembled_files(store, part.identity, read_assembled(store, part)):
        known[store.uri_of(place)] = file
        if shown is not None:
            known[store.uri_of(f"{shown}/{file.name}")] = file
    return known


def options_in_view(uri: str) -> dict[str, Any] | None:
    """Return storage options to check a file in a version's view, in an output's folder for all splits.

    Returns:
        None if it is elsewhere.
    """
    from logloom.io.catalog.manifest import open_root
    from logloom.io.catalog.version_files import version_numbers
    from logloom.io.storage.store import Store

    found = _IN_VIEW.fullmatch(absolute_uri(uri))
    store = Store.at(found["root"]) if found else None
    if found is None or store is None or int(found["version"]) not in version_numbers(store):
        return None
    output, shown = found["output"], found["folder"]
    store, manifest = open_root(store, int(found["version"]))
    parts = [part for part in manifest.assembled if part.output == output]
    return with_check(None, functools.partial(_files_of_all, store, parts, shown))


def _files_of_all(store: Store, parts: Sequence[Assembled], shown: str) -> dict[str, FileEntry]:
    return {uri: file for part in parts for uri, file in known_files(store, part, shown).items()}
