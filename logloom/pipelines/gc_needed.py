"""What the versions of a root need: which of them stay, and what these name.

Here: retention, and the names of all units, portions and files that versions name, or that datasets elsewhere
point to, as keys of 8 bytes each, since there may be tens of millions; made of columns.
Elsewhere: removing everything else (logloom.pipelines.gc), what points into a root (`ReferredFormat` in
logloom.io.referring).
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

from logloom.errors import DatasetError, PurgedError
from logloom.io.ahead import ahead
from logloom.io.entries import read_log_part, unit_folder
from logloom.io.formats import referred_to
from logloom.io.labels.stored import files_named
from logloom.io.manifest import Manifest, manifest_at, read_assembled
from logloom.io.purged import Purged
from logloom.io.records import LogRecords
from logloom.io.removals import Keys, are_in, key_of, keys_in
from logloom.io.shards import shard_file
from logloom.io.storage import Store
from logloom.recipe import Keep

if TYPE_CHECKING:
    import pyarrow as pa

_NAMING = ("output", "identity", "files")  # columns of logs' parts
_PARTS = 64  # of logs, that are looked at together


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
    def by(cls, store: Store, manifests: Sequence[Manifest], others: Sequence[str] = ()) -> Needed:
        """What some versions need.

        Args:
            others: folders in parts/ that are needed, too.

        Raises:
            DatasetError: something that says what a version needs is missing or damaged.
        """
        try:
            return cls._by(store, manifests, others)
        except PurgedError:  # since that began; another time it knows the tombstone
            return cls._by(store, manifests, others)

    @classmethod
    def _by(cls, store: Store, manifests: Sequence[Manifest], others: Sequence[str]) -> Needed:
        names, parts, assembled, shards = _Names(), set[str](), set[tuple[str, str]](), set[str]()
        for folder in others:
            _, output, identity = folder.split("/")
            names.add_units(output, [identity])
        are_known, purged = True, Purged(store)
        for manifest in manifests:
            for logs in _new_logs(store, manifest, shards):
                columns = logs.columns("part", "content_id", "uris", "reasons", "statistics", "catalogue")
                names.add(columns["content_id"].to_pylist())
                names.add(_listed(logs, columns["reasons"].to_pylist()))
                are_known &= all(uris.count('","') == 0 for uris in columns["uris"].to_pylist())
                parts.update(columns["part"].to_pylist())
                counted = filter(None, columns["statistics"].to_pylist())
                names.add(f"logs/{digest}.parquet" for digest in counted)
                for said in filter(None, columns["catalogue"].to_pylist()):
                    names.add(files_named(said))
            for part in manifest.assembled:
                if unit_folder(part.output, part.identity) in purged.folders:
                    continue
                if (part.output, part.identity) not in assembled:
                    assembled.add((part.output, part.identity))
                    portions = read_assembled(store, part).portions
                    names.add_units(part.output, [part.identity, *(portion.identity for portion in portions)])
        parts -= {"", *purged.parts}
        names.add(f"{shard}.parquet" for shard in shards)
        names.add(f"logs/{part}.parquet" for part in parts)
        tables = ahead(lambda part: read_log_part(store, part, only=_NAMING).table, sorted(parts))
        while some := list(itertools.islice(tables, _PARTS)):
            for output, identities in _units_in(some):
                names.add_units(output, identities)
        return cls(names.keys(), are_known)


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


def check_versions(store: Store, numbers: Sequence[int]) -> list[Manifest]:
    """The manifests of versions, which are needed whole to know what can go.

    Raises:
        DatasetError: one is damaged.
    """
    try:
        return [manifest_at(store, number) for number in numbers]
    except DatasetError as error:
        raise DatasetError(f"{error}\nnothing was removed: nobody knows what that version needs") from error
