"""What the versions of a root need: which of them stay, and what these name.

Here: retention, and the names of all units, portions and files that versions name, or that datasets elsewhere
point to, as keys of 8 bytes each, since there may be tens of millions; made of columns.
Elsewhere: removing everything else (logloom.pipelines.gc.gc), what points into a root (`ReferredFormat` in
logloom.io.formats.references).
"""

from __future__ import annotations

import array
import contextlib
import datetime
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from logloom.errors import DatasetError, PurgedError, UsageError
from logloom.io.catalog.entries import ENTRY, read_log_part, unit_folder
from logloom.io.catalog.labels import files_named
from logloom.io.catalog.manifest import Assembled, Manifest, manifest_at, read_assembled
from logloom.io.catalog.pages import shard_file
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.removal_notes import Keys, are_in, key_of, keys_in
from logloom.io.catalog.tombstones import Purged
from logloom.io.catalog.version_files import lost_manifest
from logloom.io.formats.registry import referred_to
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.recipe import Keep

if TYPE_CHECKING:
    import pyarrow as pa

_NAMING = ("output", "identity", "files")  # columns of logs' parts
_NOTHING_REMOVED = "nothing was removed: nobody knows what that version needs"
_PARTS = 64  # of logs, that are looked at together


def kept_versions(times: Mapping[int, float | None], tagged: Iterable[int], keep: Keep | None) -> set[int]:
    """The versions that stay.

    Args:
        times: of all versions, when each was committed, in seconds since the Unix epoch; None where that
            isn't known: such a version stays where a rule asks for days.
        keep: None keeps all.
    """
    numbers = sorted(times)
    if keep is None:
        return set(numbers)
    kept = set(numbers[-(keep.last or 1) :])
    if keep.tags == "all":
        kept |= set(tagged) & times.keys()
    if keep.daily:
        timed = {n: at for n in numbers if (at := times[n]) is not None}
        kept |= times.keys() - timed.keys()
        newest_of_day = {
            datetime.datetime.fromtimestamp(at, datetime.UTC).date(): n for n, at in timed.items()
        }
        kept |= {newest_of_day[day] for day in sorted(newest_of_day, reverse=True)[: keep.daily]}
    return kept


class _Names:
    """Keys as they come, 8 bytes each."""

    def __init__(self) -> None:
        self._keys = array.array("Q")

    def add(self, names: Iterable[str]) -> None:
        self._keys.extend(map(key_of, names))

    def add_units(self, output: str, identities: Sequence[str]) -> None:
        self._keys.frombytes(unit_keys(output, identities).tobytes())

    def keys(self) -> Keys:
        return np.unique(np.frombuffer(self._keys, np.uint64))


def unit_keys(output: str, identities: Sequence[str]) -> Keys:
    """(n,) stand for folders of an output in parts/.

    Builds call these by 32 hex digits of a digest, of which no other is made.
    """
    of_output = np.uint64(key_of(output))
    digests = b""
    if all(len(identity) == 32 for identity in identities):
        with contextlib.suppress(ValueError):  # somebody called one otherwise
            digests = bytes.fromhex("".join(identities))
    if len(digests) == 16 * len(identities):  # spaces were left out
        halves = np.frombuffer(digests, "<u8").reshape(-1, 2)
        return np.asarray(halves[:, 0] ^ halves[:, 1] ^ of_output)
    if len(identities) == 1:
        return np.array([key_of(identities[0])], np.uint64) ^ of_output
    return np.concatenate([unit_keys(output, [identity]) for identity in identities])


@dataclass(frozen=True)
class Needed:
    """What versions need.

    Attributes:
        names: of files in logs/ and versions/shards/, content ids of logs, and `unit_keys`.
        are_known: whether `names` has the content id of each file of these logs: not where a log has several.
    """

    names: Keys
    are_known: bool

    def has(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """(n,) which files in logs/ and versions/shards/, or logs of these content ids, are needed."""
        return are_in(self.names, names)

    def has_units(self, output: str, identities: Sequence[str]) -> NDArray[np.bool_]:
        """(n,) which folders of an output in parts/ are needed."""
        return keys_in(self.names, unit_keys(output, identities))

    def merged(self, other: Needed) -> Needed:
        """What either needs."""
        return Needed(np.union1d(self.names, other.names), self.are_known and other.are_known)

    @classmethod
    def by(
        cls,
        store: Store,
        manifests: Sequence[Manifest],
        others: Sequence[str] = (),
        removed: Sequence[Manifest] = (),
    ) -> Needed:
        """What some versions need.

        Args:
            others: folders in parts/ that are needed, too.
            removed: of versions that were taken out, of which an earlier gc may have removed files; what is
                left is needed.

        Raises:
            DatasetError: something that says what a version needs is damaged, or missing where that version
                wasn't taken out.
        """
        try:
            return cls._by(store, manifests, others, removed)
        except PurgedError:  # since that began; another time it knows the tombstone
            return cls._by(store, manifests, others, removed)

    @classmethod
    def _by(
        cls, store: Store, manifests: Sequence[Manifest], others: Sequence[str], removed: Sequence[Manifest]
    ) -> Needed:
        needing = _Needing(store)
        for folder in others:
            _, output, identity = folder.split("/")
            needing.names.add_units(output, [identity])
        needing.take(manifests)
        needing.take(removed, may_lack=True)  # last: what the others name, too, must be there
        return cls(needing.names.keys(), needing.are_known)


class _Needing:
    """What versions need, as they come.

    Attributes:
        names, are_known: see `Needed`.
    """

    def __init__(self, store: Store):
        self.names, self.are_known = _Names(), True
        self._store, self._purged = store, Purged(store)
        self._shards, self._parts, self._assembled = set[str](), set[str](), set[str]()

    def take(self, manifests: Iterable[Manifest], *, may_lack: bool = False) -> None:
        """Adds what versions need, but for what others said before.

        Args:
            may_lack: a file that isn't there is none that they need.
        """
        parts: set[str] = set()
        for manifest in manifests:
            for name, logs in self._new_logs(manifest):
                with self._unless_gone(name, may_lack):
                    parts.update(self._named_by(logs))
            for part in manifest.assembled:
                folder = unit_folder(part.output, part.identity)
                if folder not in self._assembled and folder not in self._purged.folders:
                    self._assembled.add(folder)
                    with self._unless_gone(f"{folder}/{ENTRY}", may_lack):
                        self._add_assembled(part)
        parts -= {"", *self._purged.parts, *self._parts}
        self._parts |= parts
        self.names.add(f"logs/{part}.parquet" for part in parts)

        def units_of(part: str) -> pa.Table | None:
            with self._unless_gone(f"logs/{part}.parquet", may_lack):
                return read_log_part(self._store, part, only=_NAMING).table
            return None

        tables = (table for table in ahead(units_of, sorted(parts)) if table is not None)
        while some := list(itertools.islice(tables, _PARTS)):
            for output, identities in _units_in(some):
                self.names.add_units(output, identities)

    def _add_assembled(self, part: Assembled) -> None:
        portions = read_assembled(self._store, part).portions
        self.names.add_units(part.output, [part.identity, *(portion.identity for portion in portions)])

    def _new_logs(self, manifest: Manifest) -> Iterator[tuple[str, LogRecords]]:
        """The records of a version by the file that has them, but for files that were seen."""
        logs = manifest.logs
        for shard in logs.shards:
            name = shard_file(shard, logs.folder)
            if name not in self._shards:
                self._shards.add(name)
                self.names.add([name])
                yield name, LogRecords(self._store, [shard], logs.folder)

    def _named_by(self, logs: LogRecords) -> list[str]:
        """Adds what records name; gives the parts of their logs."""
        columns = logs.columns("part", "content_id", "uris", "reasons", "statistics", "catalogue")
        self.names.add(columns["content_id"].to_pylist())
        self.names.add(_listed(logs, columns["reasons"].to_pylist()))
        self.are_known &= all(uris.count('","') == 0 for uris in columns["uris"].to_pylist())
        self.names.add(f"logs/{digest}.parquet" for digest in filter(None, columns["statistics"].to_pylist()))
        for said in filter(None, columns["catalogue"].to_pylist()):
            self.names.add(files_named(said))
        parts: list[str] = columns["part"].to_pylist()
        return parts

    @contextlib.contextmanager
    def _unless_gone(self, name: str, may_lack: bool) -> Iterator[None]:
        try:
            yield
        except DatasetError:
            if not may_lack or self._store.exists(name):
                raise


def _listed(logs: LogRecords, reasons: Sequence[str]) -> Iterator[str]:
    """The files that list what was refused of logs."""
    places = [place for place, text in enumerate(reasons) if ".refused.txt" in text]
    return (record.refusal_list for record in logs.take(places) if record.refusal_list)


def _units_in(parts: Sequence[pa.Table]) -> Iterator[tuple[str, list[str]]]:
    """By output, the units of some logs, and their portions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.concat_tables(parts)
    for output in table["output"].unique().drop_null().to_pylist():
        own = table.filter(pc.equal(table["output"], output))
        yield output, own["identity"].drop_null().to_pylist()
        # Most formats have no portions, and parsing what lists files takes the longest.
        portioned = own["files"].filter(pc.match_substring_regex(own["files"], '"portion":"[^"]'))
        files = (file for text in portioned.to_pylist() for file in json.loads(text))
        yield output, [file["portion"] for file in files if file.get("portion")]


def view_users(store: Store, number: int) -> list[str]:
    """The notes of datasets elsewhere that point into the view of a version."""
    return [note for form in referred_to() for note in form.notes(store, number)]


def check_found(store: Store, lost: Sequence[int]) -> None:
    """Raises DatasetError if the manifest of a version is lost."""
    for number in lost:
        raise DatasetError(f"{lost_manifest(store, number)}\n{_NOTHING_REMOVED}")


def check_versions(store: Store, numbers: Sequence[int], *, may_lack: bool = False) -> list[Manifest]:
    """The manifests of versions, which are needed whole to know what can go.

    Args:
        may_lack: one that is lost is left out: somebody gave its version up.

    Raises:
        DatasetError: one is damaged.
    """
    missing = (UsageError,) if may_lack else ()
    found = []
    try:
        for number in numbers:
            with contextlib.suppress(*missing):
                found.append(manifest_at(store, number))
    except DatasetError as error:
        raise DatasetError(f"{error}\n{_NOTHING_REMOVED}") from error
    return found
