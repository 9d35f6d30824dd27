"""The index of a table: one Parquet file per log, in memory a pandas DataFrame.

Here: `read_index`, the rows of one log as stored (`read_log`), and writing index files.
Elsewhere: names of files and columns (logloom.io.tables.description), filters (logloom.io.tables.where).

Files have page checksums, are zstd-compressed, and are read by pandas, polars and DuckDB as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import fnmatch
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from logloom.errors import DatasetError, UsageError
from logloom.io.checks import check_file
from logloom.io.filesystems import stored_file
from logloom.io.tables import description as d
from logloom.io.tables.blobs import HASH_BYTES
from logloom.io.tables.versions import open_table
from logloom.io.tables.where import Where, index_columns, mask, to_filter
from logloom.uris import is_local
from logloom.where import Filter

ROWS_PER_GROUP = 1 << 16
LOG = d.service(0, "log")
ROW = d.service(0, "row")
HASH_TYPE = pa.binary(HASH_BYTES)


def read_index(
    uri: str,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    *,
    logs: Sequence[str] | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Opens a table: its small columns, and where the rest of each row lies.

    Rows are ordered by (log_id, timestamp). Texts are categories. Any pandas operation that keeps rows whole
    gives a frame that `row_loader` takes.

    Args:
        uri: of the table, anything fsspec opens; of one that `logloom build` made ROOT, ROOT@version or
            ROOT/v00000007/table/SPLIT, with or without a view.
        columns: names or globs of index columns to load beside log_id and timestamp; None is all.
        where: load only rows for which this holds: "speed > 3 and log_id == 'a'" (logloom.where), tuples
            [("speed", ">", 3), …] that must all hold, or a pyarrow expression. Of row groups without such
            rows only the columns are read that it looks at.
        logs: log_ids to load rows of; files of others are not opened.
        threads: that read index files; None is one per core and never less than four.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

    Raises:
        DatasetError: no table, damaged, or of a newer format.
        UsageError: a column or log that the index doesn't have, or a filter that doesn't fit it.
    """
    root, table = open_table(uri, storage_options)
    if logs is not None:
        table = _only_logs(table, logs, root)
    user = _chosen(table, columns, root)
    try:
        chosen = where if where is None or isinstance(where, pc.Expression) else to_filter(where, table)
    except UsageError as error:
        raise UsageError(f"{root}: {error}") from error
    fields = [d.service(0, g, field) for g in table.groups for field in ("blob", "offset", "length")]
    stored = [*user, ROW, *fields]

    def read(log: d.LogRows) -> pa.Table:
        if table.files is not None:
            table.files.prepare(log.log_id)
        return read_file(table.file_uri(root, log.file), stored, table, storage_options, chosen)

    with ThreadPoolExecutor(threads or max(4, os.cpu_count() or 1)) as pool:
        if chosen is None:
            frame = _Columns(root, table, [*user, LOG, ROW, *fields], [log.rows for log in table.logs])
            list(
                pool.map(lambda number: frame.fill(number, read(table.logs[number])), range(len(table.logs)))
            )
        else:
            parts = list(pool.map(read, table.logs))
            frame = _Columns(root, table, [*user, LOG, ROW, *fields], [len(part) for part in parts])
            for number, part in enumerate(parts):
                frame.fill(number, part)
    return frame.finish()


def _only_logs(table: d.Description, logs: Sequence[str], root: str) -> d.Description:
    """
    Raises:
        UsageError: the table has no such log.
    """
    known = {log.log_id for log in table.logs}
    if unknown := [log_id for log_id in logs if log_id not in known]:
        close = difflib.get_close_matches(unknown[0], sorted(known), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"{root}: no log {unknown[0]!r} among its {len(known)}{hint}")
    chosen = set(logs)
    return dataclasses.replace(table, logs=tuple(log for log in table.logs if log.log_id in chosen))


def _chosen(table: d.Description, columns: Sequence[str] | None, root: str) -> list[str]:
    if columns is None:
        return list(table.index)
    chosen = set(table.keys)
    for pattern in [columns] if isinstance(columns, str) else columns:
        ctype = table.schema.all.get(pattern)
        parts = [] if ctype is None or ctype.is_ragged else [name for name, _ in d.scalars(pattern, ctype)]
        found = {name for name in table.index if name in parts or fnmatch.fnmatchcase(name, pattern)}
        if not found:
            raise UsageError(
                f"{root}: the index has no column {pattern!r}; there are {', '.join(table.index)}. "
                "Other columns are read through row_loader(index).get_row"
            )
        chosen |= found
    return [name for name in table.index if name in chosen]


class _Columns:
    """The columns of a frame while the logs' files are read into their places, by several threads."""

    def __init__(self, root: str, table: d.Description, names: Sequence[str], counts: Sequence[int]):
        self._root, self._table = root, table
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        total = int(self._starts[-1])
        self._arrays = {name: np.empty(total, _memory_dtype(name, table)) for name in names}
        self._texts: dict[str, dict[str, int]] = {name: {} for name in names if is_text(name, table)}
        self._lock = Lock()

    def fill(self, number: int, part: pa.Table) -> None:
        start, stop = self._starts[number : number + 2].tolist()
        log = self._table.logs[number]
        if len(part) != stop - start:
            raise DatasetError(
                f"{self._root}/{log.file}: {len(part)} rows, {d.FILE} says {stop - start}; build the table "
                "again"
            )
        for name, array in self._arrays.items():
            if name == LOG:
                array[start:stop] = number
                continue
            end = start
            for chunk in part[name].chunks:  # one a row group: joining them first would copy all once more
                own = array[end : end + len(chunk)]
                own[...] = self._codes(name, chunk) if name in self._texts else chunk.to_numpy(False)
                end += len(chunk)

    def _codes(self, name: str, chunk: pa.DictionaryArray) -> NDArray[Any]:
        texts = chunk.dictionary.to_pylist()
        with self._lock:
            known = self._texts[name]
            numbers = [known.setdefault(text, len(known)) for text in texts]
        found: NDArray[Any] = np.array(numbers, np.int32)[chunk.indices.to_numpy(zero_copy_only=False)]
        return found

    def finish(self) -> pd.DataFrame:
        columns: dict[str, Any] = {}
        for name in list(self._arrays):
            array: Any = self._arrays.pop(
                name
            )  # so that a column's 32-bit codes are freed before the next one's
            if name == LOG:
                array = _categorical(array, [f"{self._root}/{log.file}" for log in self._table.logs])
            elif name in self._texts:
                array = _categorical(array, self._categories(name))
            columns[name] = array
        return pd.DataFrame(columns, copy=False)

    def _categories(self, name: str) -> list[str]:
        texts = list(self._texts[name])
        if d.group_field(name) is None:
            return texts
        return [blob_uri(text, self._root, self._table) for text in texts]


def decode_texts(column: pa.ChunkedArray) -> tuple[list[str], NDArray[Any]]:
    """The distinct texts of a dictionary column, and the (N,) number of each row's text among them."""
    if not len(column):
        return [], np.empty(0, np.int32)
    merged = column.unify_dictionaries()
    codes = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in merged.chunks]
    return merged.chunk(0).dictionary.to_pylist(), np.concatenate(codes)


def is_text(name: str, table: d.Description) -> bool:
    """Whether an index or service column holds texts: dictionaries on disk, categories in memory."""
    group = d.group_field(name)
    return group[2] == "blob" if group else table.index.get(name) == "str"


def _memory_dtype(name: str, table: d.Description) -> np.dtype[Any]:
    if is_text(name, table) or name in (LOG, ROW):
        return np.dtype(np.int32)
    return np.dtype(table.index.get(name, np.int64))


def _categorical(codes: NDArray[np.int32], texts: Sequence[str]) -> Any:
    """Categories in sorted order, so that they depend neither on threads nor on the order of files."""
    order = sorted(range(len(texts)), key=texts.__getitem__)
    small = np.min_scalar_type(-max(1, len(texts)))
    rank = np.empty(len(texts), small)
    rank[order] = np.arange(len(texts))
    categories = pd.Index([texts[i] for i in order], dtype=str)
    return pd.Categorical.from_codes(rank[codes], categories, validate=False)


def blob_uri(path: str, root: str, table: d.Description) -> str:
    """The URI of a blob as an index names it: relative, or in a referenced table.

    Raises:
        DatasetError: the path leaves the table.
    """
    if path.startswith("/") or "://" in path:
        if any(path.startswith(f"{reference}/") for reference in table.references) and ".." not in path.split(
            "/"
        ):
            return path
        raise DatasetError(f"{root}: the index names {path!r}, which lies in no table that it references")
    if ".." in path.split("/"):
        raise DatasetError(f"{root}: the index names {path!r}, which leaves the table")
    return table.file_uri(root, path)


def read_file(
    uri: str,
    names: Sequence[str],
    table: d.Description,
    storage_options: Mapping[str, Any] | None = None,
    where: Filter | pc.Expression | None = None,
) -> pa.Table:
    """Columns of one log's index, of all rows or those that pass a filter; texts as dictionaries.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    looked_at = index_columns(where, table) if isinstance(where, Filter) else []
    texts = [name for name in {*names, *looked_at} if is_text(name, table)]
    reading = {"read_dictionary": texts, "page_checksum_verification": True}
    with parquet_source(uri, storage_options) as source:
        if isinstance(where, pc.Expression):
            rows = pq.read_table(source, columns=list(names), filters=where, use_threads=False, **reading)
        else:
            with pq.ParquetFile(source, **reading) as file:
                if where is None:
                    rows = file.read(columns=list(names), use_threads=False)
                else:
                    rows = _passing(file, list(names), where, looked_at, table)
        _check_types(rows, names, table)
        return rows


def _passing(
    file: pq.ParquetFile, names: list[str], where: Filter, looked_at: list[str], table: d.Description
) -> pa.Table:
    """The rows that pass; of row groups without any, only what the filter looks at is read."""
    parts = [file.read_row_groups([], columns=names)]
    others = [name for name in names if name not in looked_at]
    for number in range(file.num_row_groups):
        seen = file.read_row_group(number, columns=looked_at, use_threads=False)
        _check_types(seen, looked_at, table)
        passed = mask(where, seen, table)
        if passed.any():
            rows = file.read_row_group(number, columns=others, use_threads=False)
            for name in set(names).intersection(looked_at):
                rows = rows.append_column(name, seen[name])
            parts.append(rows.select(parts[0].column_names).filter(passed))
    return pa.concat_tables(parts)


def _check_types(rows: pa.Table, names: Sequence[str], table: d.Description) -> None:
    for name in names:
        if name not in rows.column_names:
            raise KeyError(f"no column {name}")
        group, found = d.group_field(name), rows.schema.field(name).type
        if is_text(name, table):
            wanted = pa.dictionary(pa.int32(), pa.string())
        elif group and group[2] == "hash":
            wanted = HASH_TYPE
        else:
            wanted = pa.from_numpy_dtype(np.dtype(table.index.get(name, np.int64)))
        if found != wanted or rows[name].null_count:
            raise KeyError(f"column {name} is {found} with {rows[name].null_count} nulls, expected {wanted}")
        if is_text(name, table):
            rows[name].validate(full=True)  # that no row's number lies beyond the dictionary


@contextlib.contextmanager
def parquet_source(uri: str, storage_options: Mapping[str, Any] | None) -> Iterator[Any]:
    """What pyarrow can read a file from; its errors become DatasetErrors that name the file."""
    check_file(uri, storage_options)
    local = contextlib.nullcontext(uri.split("://", 1)[-1])
    try:
        with local if is_local(uri) else stored_file(uri, storage_options) as source:
            yield source
    except FileNotFoundError as error:
        raise DatasetError(f"{uri}: this index file is missing; build the table again") from error
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DatasetError(f"{uri}: this index file is damaged ({error}); build the table again") from error


@dataclass(frozen=True)
class StoredLog:
    """The rows of one log as stored: a table's chunk directory.

    Attributes:
        uri: of its index file.
        columns: the wanted index columns, (N,) each; texts as objects.
        blobs: group to (distinct blob URIs, (N,) number of each row's blob).
        places: group to (N, 2) offset and length.
        hashes: group to (N,) 32 bytes; empty unless asked for.
        lookups: by index columns, the row of their values; filled by those who look rows up.
    """

    uri: str
    rows: int
    columns: Mapping[str, NDArray[Any]]
    blobs: Mapping[str, tuple[list[str], NDArray[Any]]]
    places: Mapping[str, NDArray[np.int64]]
    hashes: Mapping[str, Sequence[bytes]]
    lookups: dict[tuple[str, ...], dict[Any, int]] = field(default_factory=dict, compare=False)

    @property
    def nbytes(self) -> int:
        return self.rows * (8 * len(self.columns) + 24 * len(self.places) + 65 * len(self.hashes))


def read_log(
    uri: str,
    table: d.Description,
    columns: Sequence[str],
    *,
    hashes: bool = False,
    span: tuple[int, int] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StoredLog:
    """Reads one log's rows as stored.

    Args:
        uri: of the log's index file.
        columns: index columns to load.
        hashes: whether to load those of the chunks.
        span: only the rows with span[0] <= timestamp < span[1], where the table has stamps.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    fields = ("blob", "offset", "length", "hash")[: 4 if hashes else 3]
    names = [*columns, *(d.service(0, group, field) for group in table.groups for field in fields)]
    expression = None
    if span is not None and "timestamp" in table.keys:
        stamp = pc.field("timestamp")
        expression = (stamp >= span[0]) & (stamp < span[1])
    root = d.table_of(uri)
    place = table.file_uri(root, uri.removeprefix(f"{root}/")) if root else uri
    rows = read_file(place, names, table, storage_options, expression)

    def texts(name: str) -> tuple[list[str], NDArray[Any]]:
        return decode_texts(rows[name])

    blobs, places, digests = {}, {}, {}
    for group in table.groups:
        paths, codes = texts(d.service(0, group, "blob"))
        blobs[group] = ([blob_uri(path, root, table) for path in paths], codes)
        offset, length = (rows[d.service(0, group, field)].to_numpy() for field in ("offset", "length"))
        places[group] = np.stack([offset, length], axis=1)
        if hashes:
            digests[group] = rows[d.service(0, group, "hash")].to_pylist()
    loaded = {}
    for name in columns:
        if is_text(name, table):
            distinct, codes = texts(name)
            loaded[name] = np.array(distinct, object)[codes]
        else:
            loaded[name] = rows[name].to_numpy()
    return StoredLog(uri, len(rows), loaded, blobs, places, digests)


def read_part(uri: str, storage_options: Mapping[str, Any] | None = None) -> pa.Table:
    """All columns of a part's share of the index, texts as dictionaries.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    with (
        parquet_source(uri, storage_options) as source,
        pq.ParquetFile(source, page_checksum_verification=True) as file,
    ):
        rows = file.read(use_threads=False)
        rows.validate(full=True)
        return rows


def write_file(path: str, rows: pa.Table) -> None:
    """Writes index rows as a local Parquet file; the same rows give the same bytes."""
    names = rows.column_names
    texts = [field.name for field in rows.schema if pa.types.is_dictionary(field.type)]
    hashes = [name for name in names if name.endswith(".hash")]
    deltas = [name for name in names if rows.schema.field(name).type == pa.int64()]
    pq.write_table(
        rows,
        path,
        row_group_size=ROWS_PER_GROUP,
        compression="zstd",
        use_dictionary=texts,
        column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in names if name not in hashes],
        write_page_checksum=True,
    )
