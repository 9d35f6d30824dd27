"""What the versions of a root need: which of them stay, and what these name.

Here: retention, and the names of all units, portions and files that versions name, or that tables elsewhere
point to, as keys of 8 bytes each, since there may be tens of millions.
Elsewhere: removing everything else (logloom.pipelines.gc).
"""

from __future__ import annotations

import array
import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from logloom.errors import DatasetError, LogloomError
from logloom.io.ahead import ahead
from logloom.io.entries import LogUnits, read_log_part, unit_folder
from logloom.io.manifest import (
    Manifest,
    manifest_at,
    read_assembled,
    read_manifest,
    version_numbers,
    view_folder,
)
from logloom.io.metadata import Text, checked, parsed
from logloom.io.purged import Purged
from logloom.io.records import LogRecords
from logloom.io.removals import Keys, key_of
from logloom.io.shards import shard_file
from logloom.io.storage import UNITS, Store
from logloom.io.tables.index import read_log
from logloom.io.tables.references import USERS
from logloom.io.tables.versions import OUTPUT, open_table
from logloom.recipe import Keep


def kept_versions(times: Mapping[int, float], tagged: Iterable[int], keep: Keep | None) -> set[int]:
    """The versions that stay.

    Args:
        times: of all versions, when each was committed, in seconds since the Unix epoch.
        keep: None keeps all.
    """
    numbers = sorted(times)
    if keep is None:
        return set(numbers)
    kept = set(numbers[-(keep.last or 1) :])
    if keep.tags == "all":
        kept |= set(tagged) & times.keys()
    newest_of_day = {datetime.datetime.fromtimestamp(times[n], datetime.UTC).date(): n for n in numbers}
    kept |= {newest_of_day[day] for day in sorted(newest_of_day, reverse=True)[: keep.daily or 0]}
    return kept


class _Names:
    """Keys as they come, 8 bytes each."""

    def __init__(self) -> None:
        self._keys = array.array("Q")

    def add(self, names: Iterable[str]) -> None:
        self._keys.extend(map(key_of, names))

    def keys(self) -> Keys:
        return np.unique(np.frombuffer(self._keys, np.uint64))


@dataclass(frozen=True)
class Needed:
    """What versions need.

    Attributes:
        names: of folders in parts/, of files in logs/ and versions/shards/, and content ids of logs.
        are_told: whether `names` has the content id of each file of these logs: not where a log has several.
    """

    names: Keys
    are_told: bool

    @classmethod
    def by(cls, store: Store, manifests: Iterable[Manifest], others: Iterable[str] = ()) -> Needed:
        """What some versions need.

        Args:
            others: names that are needed, too.

        Raises:
            DatasetError: something that says what a version needs is missing or damaged.
        """
        names, parts, assembled, shards = _Names(), set[str](), set[tuple[str, str]](), set[str]()
        names.add(others)
        are_told, purged = True, Purged(store)
        for manifest in manifests:
            for logs in _new_logs(store, manifest, shards):
                columns = logs.columns("part", "content_id", "uris", "reasons", "statistics")
                names.add(columns["content_id"].to_pylist())
                names.add(_listed(logs, columns["reasons"].to_pylist()))
                are_told &= all(uris.count('","') == 0 for uris in columns["uris"].to_pylist())
                parts.update(columns["part"].to_pylist())
                counted = filter(None, columns["statistics"].to_pylist())
                names.add(f"logs/{digest}.parquet" for digest in counted)
            for part in manifest.assembled:
                if unit_folder(part.output, part.identity) in purged.folders:
                    continue
                if (part.output, part.identity) not in assembled:
                    assembled.add((part.output, part.identity))
                    portions = read_assembled(store, part).portions
                    folders = [part.identity, *(portion.identity for portion in portions)]
                    names.add(unit_folder(part.output, folder) for folder in folders)
        parts -= {"", *purged.parts}
        names.add(f"{shard}.parquet" for shard in shards)
        names.add(f"logs/{part}.parquet" for part in parts)
        for units in ahead(lambda part: read_log_part(store, part, brief=True), sorted(parts)):
            names.add(_folders(units))
        return cls(names.keys(), are_told)


def _new_logs(store: Store, manifest: Manifest, seen: set[str]) -> Iterator[LogRecords]:
    """The records of a version, but for shards that were seen."""
    logs = manifest.logs
    if not logs.is_stored:
        yield logs
        return
    for shard in logs.shards:
        name = shard_file(shard, logs.folder).removesuffix(".parquet")
        if name not in seen:
            seen.add(name)
            yield LogRecords(store, [shard], logs.folder)


def _listed(logs: LogRecords, reasons: Sequence[str]) -> Iterator[str]:
    """The files that list what was refused of logs."""
    places = [place for place, text in enumerate(reasons) if ".refused.txt" in text]
    return (record.refusal_list for record in logs.take(places) if record.refusal_list)


def _folders(units: LogUnits) -> Iterator[str]:
    """The folders of a log's units, and of their portions."""
    import pyarrow.compute as pc

    table = units.table
    for output, identity in zip(table["output"].to_pylist(), table["identity"].to_pylist(), strict=True):
        yield unit_folder(output, identity)
    # Most formats have no portions, and parsing what lists files takes the longest.
    portioned = table.filter(pc.match_substring_regex(table["files"], '"portion":"[^"]'))
    for output, files in zip(portioned["output"].to_pylist(), portioned["files"].to_pylist(), strict=True):
        for file in json.loads(files):
            if file.get("portion"):
                yield unit_folder(output, file["portion"])


# --- tables elsewhere -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Users:
    """What tables elsewhere point to.

    Attributes:
        names: folders of this root that they need.
        unknown: why nobody knows what some of them need; then no unit of a table can be removed.
    """

    names: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def users_of(store: Store) -> Users:
    """Reads what the tables point to that left a note in `referenced-by/`."""
    names: set[str] = set()
    unknown = []
    for note in store.names(USERS):
        place = store.uri_of(f"{USERS}/{note}")
        try:
            names |= _pointed_to(store, user_of(store, f"{USERS}/{note}"))
        except (LogloomError, FileNotFoundError) as error:
            unknown.append(
                f"{place}: nobody knows what that table needs ({error}), so no unit of a table is removed; "
                "if it is gone for good, remove this note"
            )
    return Users(tuple(sorted(names)), tuple(unknown))


def user_of(store: Store, note: str) -> str:
    """The URI of the table or root that left a note.

    Raises:
        DatasetError: the note is damaged.
    """
    place = store.uri_of(note)
    said = checked(dict[Text, Text], parsed(store.read(note), place), place)
    if "table" not in said:
        raise DatasetError(
            f"{place}: damaged, it names no table; write that table again, or remove this note"
        )
    return said["table"]


def view_users(store: Store, number: int) -> list[str]:
    """The notes of tables elsewhere that point into the view of a version, which holds its files by links."""
    folders = [
        f"{view_folder(number)}/{OUTPUT}/{split}/{USERS}"
        for split in store.names(f"{view_folder(number)}/{OUTPUT}")
    ]
    return [f"{folder}/{name}" for folder in folders for name in store.names(folder)]


def _pointed_to(store: Store, uri: str) -> set[str]:
    """The folders of this root that a table, or the tables of all versions of a root, point into.

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


def check_versions(store: Store, numbers: Sequence[int]) -> list[Manifest]:
    """The manifests of versions, which are needed whole to know what can go.

    Raises:
        DatasetError: one is damaged.
    """
    try:
        return [manifest_at(store, number) for number in numbers]
    except DatasetError as error:
        raise DatasetError(f"{error}\nnothing was removed: nobody knows what that version needs") from error
