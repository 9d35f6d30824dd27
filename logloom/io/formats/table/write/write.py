"""Writing tables: from rows in memory, or in parallel parts.

Here: `write_table`; `write_part` and `commit_table`, which do the same in two steps on many machines.
Elsewhere: a part's files (logloom.io.formats.table.write.part_writer), conversion of users' rows
(logloom.io.formats.table.write.user_rows).
"""

from __future__ import annotations

import functools
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

from logloom.digests import file_digest
from logloom.durations import Time, nanoseconds_of
from logloom.errors import UsageError
from logloom.io.formats.table import description as d
from logloom.io.formats.table.index.assemble import PartRows, describe, index_columns, write_log_index
from logloom.io.formats.table.references import References, note_use
from logloom.io.formats.table.write.part_writer import ROWS_FILE, PartWriter, TablePlan, make_plan
from logloom.io.formats.table.write.user_rows import RowBatch, Rows, open_rows
from logloom.io.storage.store import TEMPORARY, Store
from logloom.io.storage.threads import in_threads
from logloom.schema import ColumnType, Schema

_INDEX = "index"  # the folder of the logs' files
PART_ROWS = 1 << 17
PART_BYTES = 1 << 30
_INDEX_WRITERS = 4  # logs' index files made at a time
_INDEX_FILES = 256  # of logs that are synced together

Patterns = str | Sequence[str]
Types = Schema | Mapping[str, ColumnType]


def write_table(
    uri: str,
    frame_or_rows: Rows,
    *,
    index: Patterns | None = None,
    groups: Mapping[str, Patterns] | None = None,
    reference: str | Sequence[str] | None = None,
    compress: str | Mapping[str, str] | None = None,
    max_gap: Time | None = None,
    types: Types | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Writes a table from a DataFrame, dicts or blocks; the same rows give the same bytes.

    Rows may have log_id (text) and timestamp (int64 ns); each log's rows are ordered by timestamp. None
    is a missing value: such a column `c` also gets `c.available` and `c.age`.

    Args:
        uri: of a folder that holds no table yet. A table is never changed once written.
        frame_or_rows: a DataFrame, dicts by column name, or blocks; logs stay in their order.
        index: patterns of the small columns to keep in memory, for pandas to select rows by.
        groups: names and patterns of columns to store together; what they leave out is grouped by default.
        reference: tables whose chunks are pointed to instead of being stored again.
        compress: "lz4" or "zstd" for all groups, or group to codec.
        max_gap: the longest time between neighbouring rows of a window, as a text ("300ms") or in seconds.
        types: a schema or column types; inferred by default.
        threads: that hash and compress.
        storage_options: fsspec options by protocol.

    Raises:
        UsageError: there is a table already, or rows that don't fit.
        StorageError: the disk or the object store refused.

    Examples:
        >>> rows = [{"log_id": "a", "timestamp": n * 10**8, "speed": float(n)} for n in range(20)]
        >>> write_table("speeds", rows, index=["speed"])
    """
    gap = None if max_gap is None else nanoseconds_of(max_gap, "write_table: max_gap")
    _refuse_existing(uri, storage_options)
    schema, keys, batches = open_rows(frame_or_rows, types)
    plan = make_plan(schema, index, groups, compress, keys)
    references = _open(reference, storage_options)
    store = Store.at(uri, storage_options)
    entries = []
    with store.scratch() as scratch, ThreadPoolExecutor(1) as publisher:
        publishing: Future[None] | None = None
        for number, part in enumerate(_cut(batches)):
            entry = _fill_part(scratch / "part", part, plan, f"{number:06d}", references, threads)
            unit = (scratch / "part").rename(scratch / entry["part"])
            (unit / ROWS_FILE).rename(_rows_of(scratch, entry["part"]))
            if publishing is not None:
                publishing.result()
            publishing = publisher.submit(_publish_blobs, store, unit)
            entries.append(entry)
        logs = _write_index(store, scratch, entries, functools.partial(_part_rows, scratch))
        if publishing is not None:
            publishing.result()
        _describe(store, plan, entries, logs, references, gap)
    _tidy(store)


def _part_rows(scratch: pathlib.Path, part: str) -> PartRows:
    return PartRows(str(_rows_of(scratch, part)), part, None)


def _rows_of(scratch: pathlib.Path, part: str) -> pathlib.Path:
    """The local folder of `write_table` for parts' index rows, which it alone reads."""
    return scratch / f"{part}.parquet"


def _publish_blobs(store: Store, unit: pathlib.Path) -> None:
    blobs = sorted(path.name for path in unit.iterdir())
    store.publish(unit, f"parts/{unit.name}", last=blobs[-1] if blobs else "")
    shutil.rmtree(unit, ignore_errors=True)
    _drop_rows(store, unit.name)


def _drop_rows(store: Store, part: str) -> None:
    """Remove a part's index rows, if they were published (by `write_part`)."""
    name = f"parts/{part}/{ROWS_FILE}"
    if store.exists(name):
        store.fs.rm_file(store.fs_path(name))


def write_part(
    uri: str,
    rows: Rows,
    part: str,
    types: Types,
    *,
    index: Patterns | None = None,
    groups: Mapping[str, Patterns] | None = None,
    reference: str | Sequence[str] | None = None,
    compress: str | Mapping[str, str] | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes one part of a table, on any machine, in any order; `commit_table` makes the table of them.

    Args:
        uri: as of `write_table`.
        rows: of this part.
        part: its name: a file name, different for each part. Rows of equal log_id and timestamp are ordered
            by it.
        types: of the columns; the same for all parts, as are index, groups, reference and compress.
        index: as of `write_table`.
        groups: as of `write_table`.
        reference: as of `write_table`.
        compress: as of `write_table`.
        threads: as of `write_table`.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

    Returns:
        JSON for `commit_table`.

    Raises:
        UsageError: there is a table without this part already, or rows don't fit.
        StorageError: the disk or the object store refused.
    """
    schema, keys, batches = open_rows(rows, types)
    plan = make_plan(schema, index, groups, compress, keys)
    if "/" in part or part.startswith(".") or not part:
        raise UsageError(f"part {part!r}: a part's name is a file name")
    store = Store.at(uri, storage_options)
    with store.scratch() as scratch:
        unit = scratch / "part"
        entry = _fill_part(unit, batches, plan, part, _open(reference, storage_options), threads)
        if not store.exists(d.FILE):
            store.publish(unit, f"parts/{entry['part']}", ROWS_FILE)
        elif entry["part"] not in store.names("parts"):  # else a retry, of a part that the table has
            _refuse_existing(uri, storage_options)
    return entry


def commit_table(
    uri: str,
    entries: Iterable[Mapping[str, Any]],
    types: Types,
    *,
    keys: Sequence[str] = d.KEYS,
    index: Patterns | None = None,
    groups: Mapping[str, Patterns] | None = None,
    reference: str | Sequence[str] | None = None,
    compress: str | Mapping[str, str] | None = None,
    max_gap: Time | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Makes a table of parts that `write_part` wrote, given what it returned; arguments as there.

    A retry with the same arguments leaves the table unchanged. An entry that comes twice counts once.

    Args:
        uri: as of `write_part`, and so are `types`, `index`, `groups`, `reference` and `compress`.
        entries: what `write_part` returned for each part.
        keys: which of log_id and timestamp the rows have.
        max_gap: time between rows of a log beyond which no window goes, as a text ("300ms") or in seconds.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

    Raises:
        UsageError: there is another table already, or parts were written with other arguments.
        DatasetError: a part is missing or damaged.
        StorageError: the disk or the object store refused.
    """
    gap = None if max_gap is None else nanoseconds_of(max_gap, "commit_table: max_gap")
    schema = types if isinstance(types, Schema) else Schema(dict(types))
    plan = make_plan(schema, index, groups, compress, keys)
    distinct = {str(entry["part"]): entry for entry in entries}
    ordered = [distinct[part] for part in sorted(distinct)]
    if _is_made_of(uri, plan, ordered, storage_options):
        return
    _refuse_existing(uri, storage_options)
    references = _open(reference, storage_options)
    store = Store.at(uri, storage_options)

    def open_part(part: str) -> PartRows:
        rows = PartRows(store.uri_of(f"parts/{part}/{ROWS_FILE}"), part, storage_options)
        if rows.columns != index_columns(plan):
            differing = ", ".join(sorted(rows.columns ^ index_columns(plan)))
            raise UsageError(
                f"{uri}: part {part} and the table differ in {differing}; give write_part and commit_table "
                "the same types, index, groups and compress, and commit_table the keys that rows have"
            )
        return rows

    with store.scratch() as scratch:
        logs = _write_index(store, scratch, ordered, open_part)
        _describe(store, plan, ordered, logs, references, gap)
    for entry in ordered:  # the logs' index files contain it
        _drop_rows(store, entry["part"])
    _tidy(store)


def _is_made_of(
    uri: str, plan: TablePlan, entries: Sequence[Mapping[str, Any]], storage_options: Mapping[str, Any] | None
) -> bool:
    """Whether there is a table of exactly these parts, which are named by content."""
    store = Store.at(uri, storage_options)
    if not store.exists(d.FILE) or any(set(entry["bytes"]) != set(plan.groups) for entry in entries):
        return False
    there = d.read_description(store.uri, storage_options)
    wanted = describe(plan, entries, there.logs, there.max_gap, there.references)
    parts, rows = {entry["part"] for entry in entries}, sum(entry["rows"] for entry in entries)
    return parts <= set(store.names("parts")) and (there, there.num_rows) == (wanted, rows)


def _refuse_existing(uri: str, storage_options: Mapping[str, Any] | None) -> None:
    if Store.at(uri, storage_options).exists(d.FILE):
        raise UsageError(f"{uri}: there is a table already, and tables never change; write to another folder")


def _open(
    reference: str | Sequence[str] | None, storage_options: Mapping[str, Any] | None
) -> References | None:
    if not reference:
        return None
    return References([reference] if isinstance(reference, str) else reference, storage_options)


def _cut(batches: Iterator[RowBatch]) -> Iterator[Iterator[RowBatch]]:
    """Cut batches into parts of bounded size; at least one part, maybe empty."""
    waiting = next(batches, None)
    if waiting is None:
        yield iter(())

    def part() -> Iterator[RowBatch]:
        nonlocal waiting
        rows = size = 0
        while waiting is not None and (not rows or (rows < PART_ROWS and size < PART_BYTES)):
            rows += waiting.rows
            size += sum(values.nbytes for values in waiting.columns.values())
            yield waiting
            waiting = next(batches, None)

    while waiting is not None:
        yield part()


def _fill_part(
    folder: pathlib.Path,
    batches: Iterable[RowBatch],
    plan: TablePlan,
    name: str,
    references: References | None,
    threads: int | None,
) -> dict[str, Any]:
    """Writes a part's files into a new folder (not synced)."""
    folder.mkdir()
    writer = PartWriter(folder, plan, references, threads)
    try:
        for batch in batches:
            writer.append(batch.log_id, batch.columns, batch.rows)
    finally:
        entry = writer.close()
    # Named by content too, so that files of an interrupted attempt with other rows are never mistaken for it.
    return entry | {"part": f"{name}-{file_digest(folder / ROWS_FILE)[:12]}"}


def _write_index(
    store: Store,
    scratch: pathlib.Path,
    entries: Sequence[Mapping[str, Any]],
    open_part: Callable[[str], PartRows],
) -> list[d.LogRows]:
    """Writes the index files of all logs."""
    parts_of: dict[str, list[str]] = {}
    for entry in entries:
        for log_id in entry["logs"]:
            parts_of.setdefault(log_id, []).append(entry["part"])
    # A log's parts are close together, so a few open parts are enough, however many logs and parts there are.
    opened, lock = functools.lru_cache(maxsize=8)(open_part), Lock()

    def write(log_id: str) -> d.LogRows:
        with lock:  # or each thread would read the part anew
            parts = [opened(part) for part in parts_of[log_id]]
        path = scratch / d.log_file(log_id)
        count = write_log_index(path, log_id, parts)
        path.chmod(0o444)  # as all files of a table, which never changes
        return d.LogRows(log_id, d.log_file(log_id), count, file_digest(path))

    folder = scratch / _INDEX
    folder.mkdir()
    log_ids = list(parts_of)
    logs: list[d.LogRows] = []
    for start in range(0, len(log_ids), _INDEX_FILES):
        logs += in_threads(write, log_ids[start : start + _INDEX_FILES], _INDEX_WRITERS)
        store.fill(folder, _INDEX)
    return logs


def _describe(
    store: Store,
    plan: TablePlan,
    entries: Sequence[Mapping[str, Any]],
    logs: Sequence[d.LogRows],
    references: References | None,
    max_gap: int | None,
) -> None:
    """Write the description, which makes the table visible."""
    holders = references.holders if references else ()
    table = describe(plan, entries, logs, max_gap, holders)
    note_use(store.uri, holders, store.options)
    data = d.to_bytes(table)
    # The same bytes are success: the answer to creating them was lost, and the client sent a retry.
    if not store.create(d.FILE, data) and store.read(d.FILE) != data:
        raise UsageError(f"{store.uri}: another writer made a table here meanwhile")


def _tidy(store: Store) -> None:
    if store.local is not None:
        shutil.rmtree(store.local / TEMPORARY, ignore_errors=True)
