"""Pages of a manifest: records of logs, in Parquet files that versions share.

    versions/pages/<digest>.parquet        a row for each of some thousands of logs, sorted by log_id

Here: `LogRecord`, the columns of a page, writing one and reading one, where one ends and the next begins.
Elsewhere: all pages of a version as one sequence (logloom.io.catalog.records), merging
(logloom.io.catalog.page_merge), manifests (logloom.io.catalog.manifest), a log's
units (logloom.io.catalog.entries).

A page's name is the BLAKE3 of its bytes, and the borders between pages are found in the log_ids alone: two
versions with equal records of neighbouring logs share their page, and a new log changes one.
"""

from __future__ import annotations

import enum
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import (
    STRICT,
    Count,
    Name,
    NameOrNone,
    Text,
    Unicode,
    canonical,
    checked,
    parsed,
)
from logloom.io.storage.store import Store
from logloom.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

PAGES = "versions/pages"
NO_LOGS = {"logs": 0, "parts": 0, "rows": 0, "ticks_planned": 0, "refused": 0, "skipped": 0, "units": 0}
MEAN_LOGS = 2048  # of a page
MAX_LOGS = 8192  # hashes leave one run of logs in fifty longer; it is cut from its first log on
MAX_BYTES = 1 << 30  # a hundred kB for each log, where one says a hundred times why it isn't whole
_BATCH = 256  # rows that are unpacked at once
_BORDER = 2**64 // MEAN_LOGS
_TAIL = 64 << 10  # bytes of a page's end that are read for its footer; a shorter page is read whole
_STRINGS = ("log_id", "split", "status", "verified", "part", "key", "content_id")
_COUNTS = ("rows", "planned", "refused", "units", "size")
_TEXTS = ("statistics", "catalogue", "splits", "duplicate_of")  # null where a log has none
_JSON = {"uris": "[]", "dropped": "{}", "reasons": "[]"}  # and what stands there for nothing
_REPEATED = ["split", "status", "verified", "dropped", "reasons"]  # worth a dictionary
# One part of a path, as `logloom.io.storage.metadata.Name` says it, for columns that are read without their
# records.
_NAMES = {
    "split": r"^[^/\\\x00-\x1f]{1,255}$",
    "part": r"^[^/\\\x00-\x1f]{0,255}$",
    "statistics": r"^[^/\\\x00-\x1f]{0,255}$",
}

GONE = "gone"  # the status of a change that takes its log out of the version; in no version's pages


class LogStatus(enum.StrEnum):
    """The outcome of a log."""

    whole = "whole"
    salvaged = "salvaged"
    skipped = "skipped"  # left out, as it is damaged
    empty = "empty"  # no ticks
    kept = "kept"  # it is gone or was cut; its rows of an earlier version stay
    dropped = "dropped"  # left out by hand, and by builds that follow
    purged = "purged"  # erased; no record has this status, but lists show it


@dataclass(frozen=True)
class LogRecord:
    """A log in a manifest.

    Attributes:
        key: digest of all that its rows and files depend on; a build with an equal key reuses the record.
        status: a `LogStatus`.
        part: digest that names logs/<part>.parquet; "" when skipped or dropped.
        reasons: for people, why it isn't whole, and before that what is strange about its frames and labels.
        verified: what the build that made its units read back of them: "all", "sample:0.05" or "none"; "" of
            logs without units.
        units: of all outputs.
        statistics: digest that names logs/<statistics>.parquet, what is known of the values of its columns;
            "" without rows.
        catalogue: what tables beside it say of it, see `logloom.io.catalog.log_tables`; "" for nothing.
        splits: rows of each split, by name, where rows are split; then `split` is "all".
        size: bytes of its files when its units were made; 0 without units.
        duplicate_of: log_id of the log with the same content whose split it shares; "" for none.
    """

    __pydantic_config__ = STRICT

    log_id: Unicode
    uris: tuple[Text, ...]
    content_id: Unicode
    split: Name
    key: Unicode
    status: Unicode
    part: NameOrNone
    rows: Count
    planned: Count
    dropped: Mapping[str, Count]
    refused: Count
    reasons: tuple[Text, ...] = ()
    verified: Unicode = ""
    units: Count = 0
    statistics: NameOrNone = ""
    catalogue: Unicode = ""
    splits: Mapping[str, Count] = field(default_factory=dict)
    size: Count = 0
    duplicate_of: Unicode = ""

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that its rows are in."""
        return tuple(self.splits) or (self.split,)


@dataclass(frozen=True)
class RecordPage:
    """A page as a manifest names it.

    Attributes:
        digest: BLAKE3 of its bytes.
        size: in bytes.
        first, last: log_ids of its first and last record.
        totals: sums over its logs, see `totals_of`.
        statuses: how many logs are of each status.
        dropped: ticks that are no row, by reason.
    """

    __pydantic_config__ = STRICT

    digest: Name
    size: Count
    first: Unicode
    last: Unicode
    totals: Mapping[str, Count]
    statuses: Mapping[str, Count]
    dropped: Mapping[str, Count]

    @property
    def logs(self) -> int:
        return self.totals["logs"]


def page_file(page: RecordPage, folder: str = PAGES) -> str:
    return f"{folder}/{page.digest}.parquet"


def is_border(log_id: str) -> bool:
    """Return whether a page begins with this log, whatever its neighbours are."""
    return int.from_bytes(blake3(log_id.encode()).digest()[:8], "big") < _BORDER


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums of counts by name."""
    summed: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            summed[name] = summed.get(name, 0) + count
    return summed


# --- rows ---------------------------------------------------------------------------------------------


def schema() -> pa.Schema:
    """The columns of records; `statistics` and those after it are null where a log has none."""
    import pyarrow as pa

    return pa.schema(
        [(name, pa.string()) for name in _STRINGS]
        + [(name, pa.int64()) for name in _COUNTS]
        + [(name, pa.string()) for name in (*_JSON, *_TEXTS)]
    )


def table_of(records: Iterable[LogRecord]) -> pa.Table:
    """Convert records to rows."""
    import pyarrow as pa

    # Paths may hold what no UTF-8 has, which JSON escapes.
    rows = [
        vars(record)
        | {name: canonical(getattr(record, name)).decode() for name in _JSON}
        | {name: getattr(record, name) or None for name in _TEXTS}
        | {"splits": canonical(record.splits).decode() if record.splits else None}
        for record in records
    ]
    return pa.Table.from_pylist(rows, schema=schema())


def records_of(table: pa.Table, place: str) -> list[LogRecord]:
    """Convert rows to records.

    Raises:
        DatasetError: a value is of another type than it should be; names the row.
    """
    rows = table.to_pylist()
    for number, row in enumerate(rows):
        where = f"{place}: row {number}"
        row |= {name: row[name] or "" for name in _TEXTS}
        row["splits"] = parsed(row["splits"] or "{}", f"{where}: splits")
        for name, nothing in _JSON.items():
            row[name] = () if row[name] == "[]" else parsed(row[name] or nothing, f"{where}: {name}")
        if not row["uris"] and row["status"] != GONE:
            raise DatasetError(f"{where}: log {row['log_id']!r} has no uris")
    return [checked(LogRecord, row, f"{place}: row {number}") for number, row in enumerate(rows)]


def totals_of(table: pa.Table) -> dict[str, int]:
    """Sums over logs: `logs`, `parts` (logs that have units, or might), `rows`, `ticks_planned`, `refused`,
    `skipped` and `units`."""
    import pyarrow.compute as pc

    return {
        "logs": len(table),
        "parts": pc.sum(pc.not_equal(table["part"], "")).as_py() or 0,
        "rows": pc.sum(table["rows"]).as_py() or 0,
        "ticks_planned": pc.sum(table["planned"]).as_py() or 0,
        "refused": pc.sum(table["refused"]).as_py() or 0,
        "skipped": pc.sum(pc.equal(table["status"], LogStatus.skipped)).as_py() or 0,
        "units": pc.sum(table["units"]).as_py() or 0,
    }


def described(table: pa.Table, digest: str = "", size: int = 0) -> RecordPage:
    """Return the manifest's description of a page of these rows."""
    statuses = {one["values"]: one["counts"] for one in table["status"].value_counts().to_pylist()}
    dropped: dict[str, int] = {}
    for one in table["dropped"].value_counts().to_pylist():
        of_reasons = checked(dict[Text, Count], parsed(one["values"], "dropped"), "dropped")
        dropped = total([dropped, {reason: count * one["counts"] for reason, count in of_reasons.items()}])
    first, last = (table["log_id"][at].as_py() if len(table) else "" for at in (0, -1))
    return RecordPage(digest, size, first, last, totals_of(table), statuses, dropped)


# --- files --------------------------------------------------------------------------------------------


def page_of(table: pa.Table) -> tuple[RecordPage, bytes]:
    """A page of these rows, and its bytes.

    Raises:
        DatasetError: they aren't sorted, or are two of one log.
    """
    import pyarrow.parquet as pq

    if disorder := _disorder(table):
        raise DatasetError(f"logs of a version: {disorder}")
    buffer = io.BytesIO()
    pq.write_table(
        table,
        buffer,
        row_group_size=len(table) or 1,
        compression="zstd",
        use_dictionary=_REPEATED,
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
    )
    data = buffer.getvalue()
    return described(table, blake3(data).hexdigest(), len(data)), data


def _disorder(table: pa.Table) -> str:
    """Which log isn't before the one that follows it, "" where all are."""
    import pyarrow.compute as pc

    ids = table["log_id"]
    bad = pc.less_equal(ids[1:], ids[:-1]) if len(table) > 1 else None
    row = -1 if bad is None else bad.index(value=True).as_py()
    return "" if row < 0 else f"{ids[row + 1].as_py()!r} follows {ids[row].as_py()!r}"


def write_page(store: Store, table: pa.Table, folder: str = PAGES) -> RecordPage:
    """Write a page of these rows; one that is there already has the same bytes, unless it is damaged."""
    page, data = page_of(table)
    store.renew(page_file(page, folder), data)
    return page


def read_page(store: Store, page: RecordPage, folder: str = PAGES) -> pa.Table:
    """All rows of a page, which is proven by its digest.

    Raises:
        DatasetError: it is missing, damaged, or isn't what the manifest says of it; names the file.
    """
    return rows_of(store, page, fetch(store, page, None, folder), None, folder)


def fetch(store: Store, page: RecordPage, names: Sequence[str] | None, folder: str = PAGES) -> bytes:
    """The bytes of a page, proven by its digest; or just those of some columns, the others zero.

    Raises:
        DatasetError: it is missing or damaged; names the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = page_file(page, folder)
    place = store.uri_of(name)
    if names is None or page.size <= _TAIL:
        whole = _read(store, name)
        if blake3(whole).hexdigest() != page.digest:
            raise DatasetError(f"{place}: damaged, its bytes don't match its name; {_WAY_OUT}")
        return whole
    tail = _read(store, name, page.size - _TAIL, page.size)
    try:
        ranges = _ranges_of(pq.read_metadata(pa.BufferReader(tail)), names, page.size)
        data = bytearray(page.size)
        data[-len(tail) :] = tail
        for start, stop in ranges:
            found = _read(store, name, start, stop)
            if len(found) != stop - start:
                raise ValueError(f"ends before byte {stop}")
            data[start:stop] = found
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError(f"{place}: damaged ({error}); {_WAY_OUT}") from error
    return bytes(data)


def rows_of(
    store: Store, page: RecordPage, data: bytes, names: Sequence[str] | None, folder: str = PAGES
) -> pa.Table:
    """The rows of a page, or some columns, from the bytes that `fetch` gave.

    Raises:
        DatasetError: they are damaged, or not what the manifest says; names the file.
    """
    import pyarrow as pa

    place = store.uri_of(page_file(page, folder))
    table = _parsed_table(pa.BufferReader(data), place, names)
    _check(table, place, page)
    if names is not None:
        return table.select(list(names))
    if disorder := _disorder(table):
        raise DatasetError(f"{place}: {disorder}; {_WAY_OUT}")
    if described(table, page.digest, len(data)) != page:
        raise DatasetError(f"{place}: contains other logs or sums than the manifest; {_WAY_OUT}")
    return table


_WAY_OUT = (
    "only this file lists the version's logs: restore it from a backup, or open another version; "
    "`logloom verify` reports which are whole"
)


def _read(store: Store, name: str, start: int = 0, stop: int | None = None) -> bytes:
    try:
        return store.read(name) if stop is None else store.read_range(name, start, stop)
    except MISSING:
        raise DatasetError(f"{store.uri_of(name)}: a page of the manifest is missing; {_WAY_OUT}") from None


def _ranges_of(metadata: Any, names: Sequence[str], size: int) -> list[tuple[int, int]]:
    """The bytes of columns, those together that touch."""
    columns = [metadata.schema.column(number).name for number in range(metadata.num_columns)]
    if metadata.num_row_groups != 1 or columns != schema().names:
        raise ValueError("other columns than a page has")
    group = metadata.row_group(0)
    ranges: list[tuple[int, int]] = []
    for position, name in enumerate(columns):
        if name not in names:
            continue
        chunk = group.column(position)
        start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
        stop = start + chunk.total_compressed_size
        if not 0 <= start <= stop <= size:
            raise ValueError(f"column {name} is outside of the file")
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((start, stop))
    return ranges


def _parsed_table(source: Any, place: str, names: Sequence[str] | None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            if file.schema_arrow != schema():
                raise DatasetError(f"{place}: not a manifest page: unexpected columns; {_WAY_OUT}")
            if file.metadata.num_rows > MAX_LOGS:
                raise DatasetError(f"{place}: not a manifest page: too many rows; {_WAY_OUT}")
            return _bounded_table(file, place, names)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError(f"{place}: damaged ({error}); {_WAY_OUT}") from error


def _bounded_table(file: Any, place: str, names: Sequence[str] | None) -> pa.Table:
    """The rows, or some columns; few at a time, since a dictionary of 100 kB may say it in each row."""
    import pyarrow as pa

    chosen = [field for field in file.schema_arrow if names is None or field.name in names]
    columns = [field.name for field in chosen]
    batches, size = [], 0
    # Arrow's threads would let go of Python's bytes a little later, which aborts a process that ends.
    for batch in file.iter_batches(_BATCH, columns=columns, use_threads=False):
        batches.append(batch)
        size += batch.nbytes
        if size > MAX_BYTES:
            raise DatasetError(
                f"{place}: not a manifest page: decompressed size exceeds the limit; {_WAY_OUT}"
            )
    return pa.Table.from_batches(batches, pa.schema(chosen)).combine_chunks()


def _check(table: pa.Table, place: str, page: RecordPage) -> None:
    """Raises DatasetError where columns hold what no page does."""
    import pyarrow.compute as pc

    if len(table) != page.logs:
        raise DatasetError(f"{place}: {len(table)} logs, the manifest has {page.logs}; {_WAY_OUT}")
    for name in table.column_names:
        column = table[name]
        if name not in _TEXTS and column.null_count:
            raise DatasetError(f"{place}: {name} is missing in a row; {_WAY_OUT}")
        if name in _COUNTS and (pc.min(column).as_py() or 0) < 0:
            raise DatasetError(f"{place}: {name} is below 0 in a row; {_WAY_OUT}")
        if name in _NAMES:
            values = column.drop_null().unique()
            named = pc.match_substring_regex(values, _NAMES[name])
            dots = (values.index(dots).as_py() for dots in (".", ".."))
            if not pc.all(named, min_count=0).as_py() or max(dots) >= 0:
                raise DatasetError(f"{place}: {name} is no name in a row; {_WAY_OUT}")
