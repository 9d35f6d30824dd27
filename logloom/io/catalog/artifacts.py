"""Artifacts: the files and folders of a root that its versions reference.

    logs/<digest><suffix>    called by the BLAKE3 of its bytes; a log's record names the digest

Here: `LOG_FILES`, the registry of such kinds of files, which gc, purge, verify, repair, rollback, reuse of
units and the commit use (how each is rebuilt: logloom.pipelines.repair.units); `Holdings`, the names of all
files, units and portions that some versions need, as keys of 8 bytes each: there may be tens of millions.
Elsewhere: files that no record names (logloom.pipelines.gc.areas), removing what no version needs
(logloom.pipelines.gc.gc), the records (logloom.io.catalog.pages).
"""

from __future__ import annotations

import array
import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.errors import DatasetError, PurgedError
from logloom.io.catalog.entries import ENTRY, read_log_part
from logloom.io.catalog.log_tables import catalogued
from logloom.io.catalog.manifest import Manifest, folders_of
from logloom.io.catalog.pages import LogRecord, page_file
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.removal_notes import Keys, are_in, key_of, keys_in
from logloom.io.catalog.tombstones import Purged
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

_NAMING = ("output", "identity", "files")  # columns of logs' parts
_PARTS = 64  # of logs, that are looked at together
_REFUSALS = re.compile(r'logs/([0-9a-f]{64})\.refused\.txt"\]\s*$')  # the last of a list of texts


@dataclass(frozen=True)
class LogFileKind:
    """A kind of file in logs/ that the records of logs name.

    Attributes:
        what: it contains, for messages.
        suffix: of its names, behind the digest.
        column: of records, that names such files.
        digests: gives those named by a text of that column, which is not empty.
        is_copied: a converted version has what its source says in this column, whose files are in the
            source's root.
    """

    what: str
    suffix: str
    column: str
    digests: Callable[[str], Iterable[str]]
    is_copied: bool = False

    def name(self, digest: str) -> str:
        """The file of a digest."""
        return f"logs/{digest}{self.suffix}"

    def named_by(self, texts: Iterable[str | None]) -> Iterator[str]:
        """The files that values of its column name, of many records at once."""
        return (self.name(digest) for text in texts if text for digest in self.digests(text))

    def of(self, record: LogRecord) -> list[str]:
        """The files of this kind that a record names."""
        value = getattr(record, self.column)
        text = value if isinstance(value, str) else canonical(value).decode()
        return list(self.named_by([text]))

    def problem(self, store: Store, name: str) -> str:
        """What is wrong with a file, naming it; "" for nothing."""
        if (data := store.read_if_there(name)) is None:
            return f"{store.uri_of(name)}: {self.what}: missing"
        if self.name(blake3(data).hexdigest()) != name:
            return f"{store.uri_of(name)}: {self.what}: its bytes changed"
        return ""


def _itself(text: str) -> tuple[str]:
    return (text,)


def _digests_of_labels(text: str) -> Iterable[str]:
    return sorted({*catalogued(text).labels.values()}) if '"labels"' in text else ()


PART, STATISTICS, REFUSALS, LABELS = "part", "statistics", "refusals", "labels"
LOG_FILES = {
    PART: LogFileKind("the log's part of the manifest", ".parquet", "part", _itself),
    STATISTICS: LogFileKind("statistics of the log", ".parquet", "statistics", _itself),
    REFUSALS: LogFileKind(
        "what was refused of the log", ".refused.txt", "reasons", _REFUSALS.findall, is_copied=True
    ),
    LABELS: LogFileKind("labels of the log", ".labels", "catalogue", _digests_of_labels, is_copied=True),
}


def log_file_pattern() -> re.Pattern[str]:
    """The names, within a root, of all files that a record may name."""
    suffixes = "|".join(re.escape(one.suffix) for one in LOG_FILES.values())
    return re.compile(rf"logs/[0-9a-f]{{64}}({suffixes})")


def files_named(record: LogRecord) -> set[str]:
    """All single files that a record names."""
    return {name for kind in LOG_FILES.values() for name in kind.of(record)}


def files_beside_parts(logs: LogRecords, *, is_converted: bool, without: Purged | None = None) -> set[str]:
    """The single files in a version's root that the records of its logs name, but for the logs' parts.

    Args:
        is_converted: whether the version was converted from another dataset.
        without: what was erased, whose records don't count.
    """
    kinds = [
        kind for name, kind in LOG_FILES.items() if name != PART and not (kind.is_copied and is_converted)
    ]
    identity = "log_id", "content_id", "part"
    columns = logs.columns(*identity, *(kind.column for kind in kinds))
    if without:
        values = (columns[name].to_pylist() for name in identity)
        columns = columns.filter(
            np.array([not without.has_files_of(*one) for one in zip(*values, strict=True)], bool)
        )
    return {name for kind in kinds for name in kind.named_by(columns[kind.column].to_pylist())}


@dataclass(frozen=True)
class DamagedFile:
    """A file that a log's record names, and what is wrong with it."""

    kind: str
    record: LogRecord
    name: str
    problem: str


def damaged_files(store: Store, record: LogRecord, *, is_converted: bool) -> Iterator[DamagedFile]:
    """Find files that a record names and that are missing or damaged, but for the log's part.

    Args:
        is_converted: whether the record is of a version that was converted from another dataset.
    """
    for name, kind in LOG_FILES.items():
        if name != PART and not (kind.is_copied and is_converted):
            for file in kind.of(record):
                if problem := kind.problem(store, file):
                    yield DamagedFile(name, record, file, problem)


# --- of versions ----------------------------------------------------------------------------------------


def unit_keys(output: str, identities: Sequence[str]) -> Keys:
    """(n,) keys of folders of an output in parts/.

    Builds call these by 32 hex digits of a digest, of which no other is made.
    """
    of_output = np.uint64(key_of(output))
    digests = b""
    if all(len(identity) == 32 for identity in identities):
        with contextlib.suppress(ValueError):  # a folder with another name
            digests = bytes.fromhex("".join(identities))
    if len(digests) == 16 * len(identities):  # spaces were left out
        halves = np.frombuffer(digests, "<u8").reshape(-1, 2)
        return np.asarray(halves[:, 0] ^ halves[:, 1] ^ of_output)
    if len(identities) == 1:
        return np.array([key_of(identities[0])], np.uint64) ^ of_output
    return np.concatenate([unit_keys(output, [identity]) for identity in identities])


@dataclass(frozen=True)
class Holdings:
    """What some versions need.

    Attributes:
        keys: sorted; of the files that manifests and records name, content ids of logs, and `unit_keys`.
        knows_logs: whether `keys` has the content id of each file of these logs: not where a log has several.
    """

    keys: Keys
    knows_logs: bool

    def has(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """(n,) which files in logs/ and versions/pages/, or logs of these content ids, are needed."""
        return are_in(self.keys, names)

    def has_units(self, output: str, identities: Sequence[str]) -> NDArray[np.bool_]:
        """(n,) which folders of an output in parts/ are needed."""
        return keys_in(self.keys, unit_keys(output, identities))

    def merged(self, other: Holdings) -> Holdings:
        """What either needs."""
        return Holdings(np.union1d(self.keys, other.keys), self.knows_logs and other.knows_logs)

    @classmethod
    def of(
        cls,
        store: Store,
        manifests: Sequence[Manifest],
        folders: Sequence[str] = (),
        removed: Sequence[Manifest] = (),
    ) -> Holdings:
        """List what some versions need.

        Args:
            folders: in parts/, that are needed, too.
            removed: of versions that were taken out, of which an earlier gc may have removed files; what is
                left is needed.

        Raises:
            DatasetError: a file that names what a version needs is damaged; or is missing, and the version is
                not in `removed`.
        """

        def collected() -> Holdings:
            found = _Collector(store)
            for folder in folders:
                _, output, identity = folder.split("/")
                found.add_units(output, [identity])
            found.take(manifests)
            found.take(removed, may_lack=True)  # last: what the others name, too, must be there
            return cls(np.unique(np.frombuffer(found.keys, np.uint64)), found.knows_logs)

        try:
            return collected()
        except PurgedError:  # since that began; another time it knows the tombstone
            return collected()


class _Collector:
    """Holdings in the making.

    Attributes:
        keys: as they come.
        knows_logs: see `Holdings`.
    """

    def __init__(self, store: Store):
        self.keys, self.knows_logs = array.array("Q"), True
        self._store, self._purged = store, Purged(store)
        self._pages, self._parts, self._assembled = set[str](), set[str](), set[str]()

    def _add(self, names: Iterable[str]) -> None:
        self.keys.extend(map(key_of, names))

    def add_units(self, output: str, identities: Sequence[str]) -> None:
        self.keys.frombytes(unit_keys(output, identities).tobytes())

    def take(self, manifests: Iterable[Manifest], *, may_lack: bool = False) -> None:
        """Add what versions need, except for what is known from others.

        Args:
            may_lack: ignore missing files.
        """
        parts: set[str] = set()
        for manifest in manifests:
            for name, logs in self._new_logs(manifest):
                with self._unless_gone(name, may_lack):
                    parts.update(self._parts_of(logs))
            for part in manifest.assembled:
                if part.folder not in self._assembled and part.folder not in self._purged.folders:
                    self._assembled.add(part.folder)
                    with self._unless_gone(f"{part.folder}/{ENTRY}", may_lack):
                        folders = folders_of(self._store, part)
                        self.add_units(part.output, [folder.rpartition("/")[2] for folder in folders])
        parts -= {"", *self._purged.parts, *self._parts}
        self._parts |= parts
        self._add(map(LOG_FILES[PART].name, parts))

        def units_of(part: str) -> pa.Table | None:
            with self._unless_gone(LOG_FILES[PART].name(part), may_lack):
                return read_log_part(self._store, part, only=_NAMING).table
            return None

        tables = (table for table in ahead(units_of, sorted(parts)) if table is not None)
        while some := list(itertools.islice(tables, _PARTS)):
            for output, identities in _units_in(some):
                self.add_units(output, identities)

    def _new_logs(self, manifest: Manifest) -> Iterator[tuple[str, LogRecords]]:
        """The records of a version by the file that has them, but for files that were seen."""
        logs = manifest.logs
        for page in logs.pages:
            name = page_file(page, logs.folder)
            if name not in self._pages:
                self._pages.add(name)
                self._add([name])
                yield name, LogRecords(self._store, [page], logs.folder)

    def _parts_of(self, logs: LogRecords) -> list[str]:
        """Add what records name beside the parts of their logs; give those parts."""
        kinds = [kind for name, kind in LOG_FILES.items() if name != PART]
        columns = logs.columns("part", "content_id", "uris", *(kind.column for kind in kinds))
        self._add(columns["content_id"].to_pylist())
        self.knows_logs &= all(uris.count('","') == 0 for uris in columns["uris"].to_pylist())
        for kind in kinds:
            self._add(kind.named_by(columns[kind.column].to_pylist()))
        parts: list[str] = columns["part"].to_pylist()
        return parts

    @contextlib.contextmanager
    def _unless_gone(self, name: str, may_lack: bool) -> Iterator[None]:
        try:
            yield
        except DatasetError:
            if not may_lack or self._store.exists(name):
                raise


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
