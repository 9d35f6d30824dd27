"""Entries: records of finished units and portions, and of each log's units.

Here: these records, the units of a log as a sequence of them (`LogUnits`), and their files:

    parts/<output>/<identity>/entry.json   a finished unit, an assembled output, or a portion that several
                                           of these share; written last
    logs/<digest>.parquet                  a log's part of a manifest: a row for each unit

All code uses these names. A `Store` with a `fan_out` adds a parent folder to parts/<output>/<identity>, named
by the identity's first characters.

Elsewhere: manifests, which name them (logloom.io.catalog.manifest); strict and canonical JSON
(logloom.io.storage.metadata).
"""

from __future__ import annotations

import functools
import io
import pathlib
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, overload

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray
from pydantic import AfterValidator

from logloom.digests import file_digest
from logloom.errors import DatasetError
from logloom.io.catalog.tombstones import check_purged
from logloom.io.storage.disk import paths_below, start_writing
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import (
    STRICT,
    Count,
    FileName,
    Int64,
    Name,
    NameOrNone,
    Text,
    canonical,
    checked,
    parsed,
)
from logloom.io.storage.step_times import step
from logloom.io.storage.store import Store
from logloom.io.storage.stored_files import UNITS
from logloom.text import counted
from logloom.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

ENTRY = "entry.json"
FAN_OUT = 2  # of a root: 256 folders an output, of 40 000 units each where there are ten millions
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_JSON_COLUMNS = ("files", "columns", "unit", "tally", "software")  # of a log's part
_NOTHING: Mapping[str, Any] = {**{key: {} for key in _JSON_COLUMNS}, "files": ()}  # where they are left out
_DETAILS = ("columns", "tally")  # not needed to read rows


@dataclass(frozen=True)
class FileEntry:
    """A file of a unit: its name within the unit's folder, size in bytes and BLAKE3.

    Attributes:
        portion: identity of the portion whose folder contains it; "" for the unit's own folder.
    """

    __pydantic_config__ = STRICT

    name: FileName
    size: Count
    digest: Text
    portion: NameOrNone = ""


def apart(files: tuple[FileEntry, ...]) -> tuple[FileEntry, ...]:
    """Check that no two files have the same place, nor one is a folder of another; else raise ValueError."""
    if not files:
        return files
    places = {(file.portion, file.name) for file in files}
    if len(places) < len(files):
        raise ValueError("two files have one name")
    for file in files:
        if file.name == ENTRY:
            raise ValueError(f"a file is called {ENTRY}, like what lists them")
        steps = file.name.split("/")
        if any((file.portion, "/".join(steps[:n])) in places for n in range(1, len(steps))):
            raise ValueError(f"{file.name!r} is in a folder that is a file")
    return files


Files = Annotated[tuple[FileEntry, ...], AfterValidator(apart)]


@dataclass(frozen=True)
class Entry:
    """A finished unit: one partition of one log in one output.

    Attributes:
        partition: the span's name.
        start, stop: the span in ns, half-open.
        rows: how many rows it holds.
        columns: digest of each column as the unit's reader gives it back.
        unit: what the writer said on closing.
        tally: how messages and ticks were used (see logloom.transforms.rows.row_stream).
        software: that made it (see logloom.software).
        statistics: of its rows (see logloom.io.catalog.log_statistics); "" without rows, and in the log's
            part.
    """

    __pydantic_config__ = STRICT

    output: Name
    identity: Name
    log_id: Text
    content_id: Text
    partition: Text
    start: Int64
    stop: Int64
    rows: Count
    files: Files
    columns: Mapping[str, Text]
    unit: Mapping[str, Any]
    tally: Mapping[str, Any]
    software: Mapping[str, Text]
    statistics: Text

    @property
    def folder(self) -> str:
        return unit_folder(self.output, self.identity)

    @property
    def folders(self) -> tuple[str, ...]:
        """All folders of the root with files of the unit: its own, and those of its portions."""
        names = dict.fromkeys([self.identity, *(file.portion or self.identity for file in self.files)])
        return tuple(unit_folder(self.output, name) for name in names)

    def path_of(self, file: FileEntry) -> str:
        """Return the name of a file of the unit within the root."""
        return f"{unit_folder(self.output, file.portion or self.identity)}/{file.name}"

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """Return the bytes of entry.json."""
        data = {own.name: getattr(self, own.name) for own in fields(self)}
        return data | {"files": [asdict(file) for file in self.files]}


def unit_folder(output: str, identity: str) -> str:
    """The name of a unit's folder within the root; also of an assembled output's, and of a portion's."""
    return f"{UNITS}/{output}/{identity}"


def folder_beside(folder: str, identity: str) -> str:
    """Return the URI of the folder of another unit, or a portion, of the same output.

    Args:
        folder: URI of a unit's folder, from which its root is seen, but not the `Store.fan_out`.
    """
    above, _, name = folder.rpartition("/")
    output, _, beginning = above.rpartition("/")
    if name.startswith(beginning) and output.rpartition("/")[0].endswith(f"/{UNITS}"):
        return f"{output}/{identity[: len(beginning)]}/{identity}"
    return f"{above}/{identity}"


def unit_names(
    store: Store,
    output: str,
    beginnings: Collection[str] | None = None,
    on_stranger: Callable[[str], object] = lambda name: None,
) -> Iterator[str]:
    """The identities of all folders of an output, finished or not.

    Args:
        beginnings: the first `store.fan_out` characters of those that are asked for; None for all.
        on_stranger: called with the names, within the root, of what is no unit's folder.
    """
    as_it_lies, folder = replace(store, fan_out=0), f"{UNITS}/{output}"
    for beginning in sorted(as_it_lies.names(folder) if beginnings is None else beginnings):
        within = f"{folder}/{beginning}"
        if len(beginning) != store.fan_out:
            on_stranger(within)
            continue
        for name in as_it_lies.names(within):
            if name.startswith(beginning) and _IDENTITY.fullmatch(name):
                yield name
            else:
                on_stranger(f"{within}/{name}")


def repair_hint(place: str) -> str:
    """Return the remedy for a damaged or lost file of a root, given its URI."""
    root = place.rpartition("/parts/")[0] or place.rpartition("/logs/")[0] or "ROOT"
    return f"`logloom repair {shlex.quote(root)}` builds it again"


def files_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """All files of a folder and of those in it, sorted."""
    return [path for path in paths_below(folder) if path.is_file()]


def files_of(folder: pathlib.Path) -> tuple[FileEntry, ...]:
    """Sizes and digests of a folder's files; the disk begins to write them meanwhile."""
    paths = files_in(folder)
    start_writing(paths)
    return tuple(_file_entry(folder, path) for path in paths)


def _file_entry(folder: pathlib.Path, path: pathlib.Path) -> FileEntry:
    size = path.stat().st_size
    with step("hash files", size):
        return FileEntry(path.relative_to(folder).as_posix(), size, file_digest(path))


def publish_unit(store: Store, folder: pathlib.Path, entry: Entry) -> None:
    """Publish the files of a scratch folder as a finished unit."""
    (folder / ENTRY).write_bytes(canonical(entry.to_json()))
    store.publish(folder, entry.folder, last=ENTRY)


def find_entry(store: Store, output: str, identity: str) -> Entry | None:
    """The entry of a unit, where it is finished.

    Raises:
        DatasetError: the entry can't be read.
    """
    found = read_metadata(store, output, identity)
    return None if found is None else checked(Entry, *found[1:])


def read_metadata(
    store: Store, output: str, identity: str, file: str = ENTRY
) -> tuple[bytes, Any, str, str] | None:
    """Read a JSON file in a unit's folder: its bytes, value and place, and the remedy for damage.

    None if it doesn't exist.
    """
    name = f"{unit_folder(output, identity)}/{file}"
    try:
        data = store.read(name)
    except MISSING:
        return None
    place = store.uri_of(name)
    way_out = repair_hint(place)
    return data, parsed(data, place, way_out), place, way_out


def write_log_part(store: Store, entries: Sequence[Entry]) -> str:
    """Write a log's part of the manifest; return the digest that names it."""
    data = log_part_bytes(entries)
    digest = blake3(data).hexdigest()
    store.renew(f"logs/{digest}.parquet", data)
    return digest


def log_part_bytes(entries: Sequence[Entry]) -> bytes:
    """A log's part of the manifest: a Parquet row a unit."""
    import pyarrow as pa

    return part_bytes(pa.Table.from_pylist([_entry_row(entry) for entry in entries], schema=_part_schema()))


def part_bytes(table: pa.Table) -> bytes:
    """The file of a log's part, given its rows."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()


@functools.cache
def _part_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [(name, pa.string()) for name in ("output", "identity", "log_id", "content_id", "partition")]
        + [(name, pa.int64()) for name in ("start", "stop", "rows", "size")]
        + [(name, pa.string()) for name in _JSON_COLUMNS]
    )


def _entry_row(entry: Entry) -> dict[str, Any]:
    row = entry.to_json() | {"size": entry.size}
    return row | {name: canonical(row[name]).decode() for name in _JSON_COLUMNS}


class LogUnits(Sequence[Entry]):
    """The units of a log as rows of a table; a row is checked when its entry is requested.

    Attributes:
        table: a row a unit, in the order in which they were written.
    """

    def __init__(self, table: pa.Table, place: str):
        self.table, self._place = table, place

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.table.nbytes)

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Entry]:
        return (self._entry(number, row) for number, row in enumerate(self.table.to_pylist()))

    @overload
    def __getitem__(self, number: int) -> Entry: ...
    @overload
    def __getitem__(self, number: slice) -> list[Entry]: ...
    def __getitem__(self, number: int | slice) -> Entry | list[Entry]:
        """
        Raises:
            DatasetError: a row isn't what an entry is; names the file and the row.
        """
        if isinstance(number, slice):
            return [self[n] for n in range(len(self))[number]]
        position = range(len(self))[number]
        return self._entry(position, self.table.slice(position, 1).to_pylist()[0])

    def with_rows(self, output: str, total: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(n,) the numbers of an output's units that hold rows, and (n,) how many.

        Args:
            total: rows of the log, as the manifest says.

        Raises:
            DatasetError: these units have other rows.
        """
        import pyarrow.compute as pc

        rows = self.table["rows"]
        chosen = pc.and_(pc.equal(self.table["output"], output), pc.greater(rows, 0))
        numbers = np.flatnonzero(chosen.fill_null(False).to_numpy())
        counts = rows.to_numpy()[numbers].astype(np.int64)
        if (found := int(counts.sum())) != total:
            raise DatasetError(
                f"{self._place}: its units in {output} have {counted(found, 'row')}, the manifest has "
                f"{total}; see `logloom verify`"
            )
        return numbers, counts

    def entries_with_rows(self, outputs: Collection[str]) -> Iterator[Entry]:
        """The units of some outputs that hold rows; of all others, no entries are made.

        Raises:
            DatasetError: as for one of them.
        """
        wanted = {*outputs, None}  # a null, which no entry has: that is for its check to say
        # Arrow's kernels would take longer for the few rows that most logs have.
        return (
            self._entry(number, row)
            for number, row in enumerate(self.table.to_pylist())
            if row["output"] in wanted and row["rows"] != 0
        )

    def _entry(self, number: int, row: dict[str, Any]) -> Entry:
        place = f"{self._place}: row {number}"
        del row["size"]
        for key in _JSON_COLUMNS:
            is_left_out = key not in row
            row[key] = _NOTHING[key] if is_left_out else parsed(row[key] or "null", f"{place}: {key}")
        return checked(Entry, row | {"statistics": ""}, place)


def read_log_file(store: Store, digest: str, part: str, what: str) -> tuple[str, bytes]:
    """The URI and the bytes of a file in logs/, which the digest of its bytes names.

    Args:
        part: the digest of its log's part of the manifest, to report a purged log as such.
        what: the file with its verb, for messages.

    Raises:
        DatasetError: it is missing or damaged; names the file.
    """
    name = f"logs/{digest}.parquet"
    place = store.uri_of(name)
    try:
        data = store.read(name)
    except MISSING:
        check_purged(store, place, part=part)
        raise DatasetError(f"{place}: {what} missing; {repair_hint(place)}") from None
    if blake3(data).hexdigest() != digest:
        raise DatasetError(f"{place}: damaged, its bytes don't match its name; {repair_hint(place)}")
    return place, data


def read_log_part(
    store: Store,
    part: str,
    *,
    brief: bool = False,
    only: Sequence[str] | None = None,
    left_out: Sequence[str] = (),
) -> LogUnits:
    """The units of a log.

    Args:
        brief: leave out digests of columns and tallies, which take most of the space.
        left_out: JSON columns of the table that are not read; empty in entries.
        only: columns of the table, for callers that read no entries.

    Raises:
        DatasetError: the part is missing or damaged; names the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    place, data = read_log_file(store, part, part, "a log's part of the manifest is")
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            if file.schema_arrow != _part_schema():
                raise DatasetError(f"{place}: not a log's part of a manifest, its columns are others")
            without = {*left_out, *(_DETAILS if brief else ())}
            names = [column for column in only or file.schema_arrow.names if column not in without]
            # Arrow's threads would let go of Python's bytes a little later, which aborts a process that ends.
            return LogUnits(file.read(names, use_threads=False), place)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError(f"{place}: damaged ({error})") from error
