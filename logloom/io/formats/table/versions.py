"""Tables in versions of a dataset, found by the manifest, with or without a view.

Here: `open_table`, which finds the table of a URI, and `VersionFiles`, which locates its files.
Elsewhere: the description of a table (logloom.io.formats.table.description), views (logloom.pipelines.view).

A view links a table's files into one folder, `<root>/v00000007/table/<split>`. Without one, as on an object
store, they stay where they were built, and the same URI means the same table.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.entries import read_log_part, unit_folder
from logloom.io.catalog.manifest import Manifest, open_root, split_root
from logloom.io.catalog.row_counts import row_split_names
from logloom.io.catalog.version_files import version_numbers, view_folder
from logloom.io.formats.table import description as d
from logloom.io.storage.filesystems import absolute_uri
from logloom.io.storage.store import Store
from logloom.text import near_to

OUTPUT = "table"
_IN_VIEW = re.compile(rf"(?P<root>.+)/v(?P<version>\d{{8}})(?:/{OUTPUT}(?:/(?P<split>[^/]+))?)?")


def open_table(uri: str, storage_options: Mapping[str, Any] | None = None) -> tuple[str, d.Description]:
    """Find the table of a URI, and read its description.

    Args:
        uri: of a table; or a root that `logloom build` wrote, with or without @version, whose table has one
            split; or `<root>/v00000007/table/<split>`, whether or not that view exists.
        storage_options: fsspec options by protocol.

    Returns:
        The table's URI, absolute, by which it opens again, and its description.

    Raises:
        DatasetError: there is no table, it is damaged, or of a newer format version.
        UsageError: the version has no table, no such split, or several.
    """
    place = absolute_uri(uri).rstrip("/")
    try:
        return place, d.read_description(place, storage_options)
    except d.NoTableError as error:
        found = _find_version(place, storage_options or {})
        if found is None:
            raise DatasetError(
                f"{error}. Give the folder that write_table wrote; of a dataset that `logloom build` made "
                "its root, ROOT@VERSION, or the view's folder ROOT/v00000001/table/all"
            ) from error
    store, manifest, split = found
    folder, files = _table_of(store, manifest, split)
    table = store.uri_of(folder)
    try:
        return table, d.read_description(table, storage_options)  # a view is there
    except d.NoTableError:
        return table, d.read_description(files.folder, storage_options, files)


def pinned(uri: str, storage_options: Mapping[str, Any] | None = None) -> str:
    """Pin a URI of a root to its current version; a URI of a table or a view is returned unchanged.

    Raises:
        DatasetError: the root's files about it are damaged.
    """
    place = absolute_uri(uri).rstrip("/")
    with contextlib.suppress(d.NoTableError):
        d.read_description(place, storage_options)
        return uri
    found = None if _IN_VIEW.fullmatch(place) else _find_version(place, storage_options or {})
    return uri if found is None else f"{found[0].uri}@{found[1].version}"


class VersionFiles:
    """The places of the files of a version's table. Pickles without its caches, and serves many threads."""

    def __init__(self, store: Store, identity: str, parts: Mapping[str, str]):
        """Name a table; nothing is read yet.

        Args:
            store: the root.
            identity: of the assembled index.
            parts: log_id to the digest that names the log's part of the manifest.
        """
        self.root = store.uri
        self.folder = store.uri_of(unit_folder(OUTPUT, identity))
        self._store = store
        self._parts = {d.file_name(log_id): part for log_id, part in parts.items()}
        self._blobs: dict[str, Mapping[str, str]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_blobs": {}}

    def uri(self, name: str) -> str:
        """Find a file of the table.

        Raises:
            DatasetError: it is a blob that the manifest doesn't know.
        """
        if not name.startswith("parts/"):
            return f"{self.folder}/{name}"
        log = d.log_of_part(name.split("/")[1])
        found = self._blobs_of(log).get(name)
        if found is None:
            raise DatasetError(f"{self.folder}: the index names {name!r}, which the manifest doesn't have")
        return found

    def prepare(self, log_id: str) -> None:
        """Read the places of a log's blobs, so that `uri` needn't wait for it."""
        self._blobs_of(d.file_name(log_id))

    def _blobs_of(self, log: str) -> Mapping[str, str]:
        # Two threads that read the same part find the same.
        if log not in self._blobs:
            entries = read_log_part(self._store, self._parts[log]) if log in self._parts else []
            self._blobs[log] = {
                shown: self._store.uri_of(entry.path_of(file))
                for entry in entries
                if entry.output == OUTPUT
                for file in entry.files
                if (shown := d.shown_file(file.name)) is not None
            }
        return self._blobs[log]


def _find_version(
    place: str, storage_options: Mapping[str, Any]
) -> tuple[Store, Manifest, str | None] | None:
    """Find the root, the version and the split of a URI; None if there is no root."""
    if match := _IN_VIEW.fullmatch(place):
        store = Store.at(match["root"], storage_options)
        if version_numbers(store):
            return *open_root(store, int(match["version"])), match["split"]
    root, version = split_root(place)
    for candidate, chosen in ((place, "latest"), (root, version)):
        store = Store.at(candidate, storage_options)
        if version_numbers(store):
            return *open_root(store, chosen), None
    return None


def _table_of(store: Store, manifest: Manifest, split: str | None) -> tuple[str, VersionFiles]:
    """Find the folder in the view of a version's table, and the places of its files."""
    at = f"{store.uri}@{manifest.version}"
    identities = {part.split: part.identity for part in manifest.assembled if part.output == OUTPUT}
    if not identities:
        raise UsageError(
            f"{at}: this version has no table (it has {', '.join(sorted(manifest.outputs)) or 'nothing'}); "
            f"`logloom convert {at} FOLDER --format table` makes one, or name it in the recipe's outputs"
        )
    folder = f"{view_folder(manifest.version)}/{OUTPUT}"
    if split is None and len(identities) > 1:
        places = ", ".join(store.uri_of(f"{folder}/{name}") for name in sorted(identities))
        raise UsageError(f"{at}: a table for each split; read one of {places}, or concatenate their frames")
    split = next(iter(identities)) if split is None else split
    if split not in identities:
        single = split in row_split_names(manifest.logs.column("splits"))
        why = ", whose rows are split one by one: choose them by its column `split`" if single else ""
        raise UsageError(f"{at}: no split {split!r} of its table{why}{near_to(split, sorted(identities))}")
    columns = manifest.logs.columns("log_id", "part", "split").to_pylist()
    parts = {log["log_id"]: log["part"] for log in columns if log["part"] and log["split"] == split}
    return f"{folder}/{split}", VersionFiles(store, identities[split], parts)
