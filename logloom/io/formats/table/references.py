"""References to chunks that other tables already contain.

Here: `References`, which finds them by hash; the note that marks a referenced table as in use; finding these
notes in a root, and the units that they protect.
Elsewhere: leaving them out of blobs (logloom.io.formats.table.blobs), what gc asks about referred units
(logloom.io.formats.capabilities).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from blake3 import blake3

from logloom.errors import DatasetError, LogloomError, StorageError, UsageError
from logloom.io.catalog.entries import unit_folder
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.version_files import version_numbers, view_folder
from logloom.io.formats.capabilities import USERS, Users
from logloom.io.formats.table.blobs import Place
from logloom.io.formats.table.description import Description
from logloom.io.formats.table.index.index import read_log
from logloom.io.formats.table.versions import OUTPUT, open_table
from logloom.io.storage.metadata import Text, checked, parsed
from logloom.io.storage.store import Store
from logloom.io.storage.stored_files import UNITS


class References:
    """The chunks of some tables, looked up log by log.

    A place names the file that contains the chunk, so chains of references never grow.
    """

    def __init__(self, uris: Sequence[str], storage_options: Mapping[str, Any] | None = None):
        """Opens the tables.

        Raises:
            DatasetError: one of them is missing.
        """
        self._storage = storage_options
        self._tables: dict[str, Description] = {}
        for uri in uris:
            try:
                root, table = open_table(uri, storage_options)
            except DatasetError as error:
                raise DatasetError(f"reference {error}; nothing was written") from error
            self._tables[root] = table
        self._there: set[str] = set()
        self._key: tuple[str, tuple[int, int] | None] | None = None
        self._known: Mapping[bytes, Place] = {}

    @property
    def holders(self) -> tuple[str, ...]:
        """Tables whose files may be referred to: the referenced ones, and those that they point into."""
        tables = self._tables.items()
        found = dict.fromkeys(root if table.files is None else table.files.root for root, table in tables)
        for table in self._tables.values():
            found |= dict.fromkeys(table.references)
        return tuple(found)

    def known(self, log_id: str, span: tuple[int, int] | None = None) -> Mapping[bytes, Place]:
        """Map hashes to places of the chunks of one log; the table named first wins.

        Args:
            span: only chunks of rows with span[0] <= timestamp < span[1], so that a partition of a long log
                keeps only those in memory; None is the whole log.

        Raises:
            DatasetError: a table with some of the chunks is gone.
        """
        if self._key != (log_id, span):
            places: dict[bytes, Place] = {}
            for root, table in self._tables.items():
                for log in table.logs:
                    if log.log_id == log_id:
                        _add_chunks(places, f"{root}/{log.file}", table, span, self._storage)
            self._check_holders({uri for uri, _, _ in places.values()})
            self._key, self._known = (log_id, span), places
        return self._known

    def _check_holders(self, blobs: Collection[str]) -> None:
        """Check that the tables of some blobs still exist."""
        for holder in self.holders:
            if holder not in self._there and any(uri.startswith(f"{holder}/") for uri in blobs):
                if not _is_there(holder, self._storage):
                    raise DatasetError(
                        f"reference {', '.join(self._tables)} points into {holder}, which is gone; bring it "
                        "back, or write without this reference"
                    )
                self._there.add(holder)


def _is_there(holder: str, storage_options: Mapping[str, Any] | None) -> bool:
    """Whether there is a table, or a root, which has its files whatever tables its versions have."""
    try:
        open_table(holder, storage_options)
    except UsageError:
        return True
    except DatasetError:
        return False
    return True


def _add_chunks(
    places: dict[bytes, Place],
    uri: str,
    table: Description,
    span: tuple[int, int] | None,
    storage_options: Mapping[str, Any] | None,
) -> None:
    stored = read_log(uri, table, [], hashes=True, span=span, storage_options=storage_options)
    for group, hashes in stored.hashes.items():
        blobs, codes = stored.blobs[group]
        rows = zip(hashes, codes.tolist(), stored.places[group].tolist(), strict=True)
        for digest, code, (offset, length) in rows:
            places.setdefault(digest, (blobs[code], offset, length))


def note_use(table: str, holders: Sequence[str], storage_options: Mapping[str, Any] | None = None) -> None:
    """Leave a note in each table that `table` points into, as a warning before it is deleted.

    Warns if such a table can't be written to: its owner has to be informed in another way.
    """
    text = json.dumps({"table": table}, separators=(",", ":")).encode()
    for holder in holders:
        if not _is_there(holder, storage_options):
            continue  # it held nothing that is needed
        try:
            Store.at(holder, storage_options).create(
                f"{USERS}/{blake3(table.encode()).hexdigest()[:32]}.json", text
            )
        except StorageError as error:
            warnings.warn(
                f"{table} points into {holder}, where no note of it could be left ({error}): see that it "
                "is not deleted",
                stacklevel=2,
            )


def users_of(store: Store) -> Users:
    """Read the references of tables that left a note in the root."""
    folders: set[str] = set()
    unknown = []
    for note in notes(store):
        try:
            folders |= _pointed_to(store, user_of(store, note))
        except (LogloomError, FileNotFoundError) as error:
            unknown.append(
                f"{store.uri_of(note)}: what that table needs is unknown ({error}), so no unit of a table "
                "is removed; if it is gone for good, remove this note"
            )
    return Users(tuple(sorted(folders)), tuple(unknown))


def notes(store: Store, version: int | None = None) -> list[str]:
    """List the notes in the root, or in the view of a version, which contains links to its files."""
    view = None if version is None else f"{view_folder(version)}/{OUTPUT}"
    folders = [USERS] if view is None else [f"{view}/{split}/{USERS}" for split in store.names(view)]
    return [f"{folder}/{name}" for folder in folders for name in store.names(folder)]


def user_of(store: Store, note: str) -> str:
    """Read the URI of the table or root that left a note.

    Raises:
        DatasetError: the note is damaged.
    """
    place = store.uri_of(note)
    fields = checked(dict[Text, Text], parsed(store.read(note), place), place)
    if "table" not in fields:
        raise DatasetError(
            f"{place}: damaged, it names no table; write that table again, or remove this note"
        )
    return fields["table"]


def _pointed_to(store: Store, uri: str) -> set[str]:
    """Find the folders of this root that a table, or the tables of all versions of a root, point into.

    Raises:
        LogloomError: it can't be read.
    """
    prefix = f"{store.uri}/{UNITS}/{OUTPUT}/"
    found: set[str] = set()
    elsewhere = Store.at(uri, store.options)
    tables = [uri]
    if numbers := version_numbers(elsewhere):
        manifests = [read_manifest(elsewhere, number) for number in numbers]
        parts = [(m.version, part) for m in manifests for part in m.assembled if part.output == OUTPUT]
        tables = [f"{elsewhere.uri}/v{number:08d}/{OUTPUT}/{part.split}" for number, part in parts]
    for one in tables:
        root, table = open_table(one, store.options)
        for log in table.logs:
            stored = read_log(f"{root}/{log.file}", table, [], storage_options=store.options)
            for blobs, _ in stored.blobs.values():
                inside = (blob.removeprefix(prefix) for blob in blobs if blob.startswith(prefix))
                found |= {unit_folder(OUTPUT, name.rsplit("/", 2)[-2]) for name in inside}
    return found
