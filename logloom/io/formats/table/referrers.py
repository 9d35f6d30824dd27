"""Referrers: tables elsewhere that point into the units of a root, or into its views.

Here: finding the notes that they leave, and the files that they need.
Elsewhere: the callers (`ReferredFormat` in logloom.io.formats.references), leaving notes (references).
"""

from __future__ import annotations

from logloom.errors import DatasetError, LogloomError
from logloom.io.catalog.entries import unit_folder
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.version_files import version_numbers, view_folder
from logloom.io.formats.references import Users
from logloom.io.formats.table.index.index import read_log
from logloom.io.formats.table.references import USERS
from logloom.io.formats.table.versions import OUTPUT, open_table
from logloom.io.storage.metadata import Text, checked, parsed
from logloom.io.storage.store import Store
from logloom.io.storage.stored_files import UNITS


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
