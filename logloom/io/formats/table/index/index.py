"""The index of a table: one Parquet file per log, in memory a pandas DataFrame.

Here: `read_index`, and the rows of one log as stored (`read_log`).
Elsewhere: the files (logloom.io.formats.table.index.files), names of files and columns
(logloom.io.formats.table.description), filters (logloom.io.formats.table.where).
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import field
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logloom.cpus import available_cpus
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.table import description as d
from logloom.io.formats.table.index.files import decode_texts, is_text, read_file
from logloom.io.formats.table.versions import open_table
from logloom.io.formats.table.where import Where, to_filter
from logloom.io.storage.threads import in_threads
from logloom.text import near_to
from logloom.values import dataclass

LOG = d.service(0, "log")
ROW = d.service(0, "row")


def read_index(
    uri: str,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    *,
    logs: Sequence[str] | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Open a table: its small columns, and the places of the rest of each row.

    Rows are ordered by (log_id, timestamp). Texts are categories. Any pandas operation that keeps rows whole
    gives a frame that `row_loader` takes.

    Args:
        uri: of the table, anything fsspec opens; of one that `logloom build` made ROOT, ROOT@version or
            ROOT/v00000007/table/SPLIT, with or without a view.
        columns: names or globs of index columns to load besides log_id and timestamp; None is all.
        where: load only rows for which this holds: "speed > 3 and log_id == 'a'" (logloom.query.where),
            tuples [("speed", ">", 3), …] that must all hold, or a pyarrow expression. Of row groups without
            such rows only the columns are read that it looks at.
        logs: log_ids to load rows of; files of others are not opened.
        threads: that read index files; None is one per core and never less than four.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

    Returns:
        A row for each row of the table, with service columns (`__0.row`, …) that `row_loader` needs.

    Raises:
        DatasetError: no table, damaged, or of a newer format.
        UsageError: a column or log that the index doesn't have, or a filter that doesn't fit it.

    Examples:
        >>> index = tt.read_index("sensors", where="pedestrians > 2")  # a DataFrame
        >>> len(index), sorted(index.pedestrians.unique().tolist())
        (10, [3, 4])
    """
    root, table = open_table(uri, storage_options)
    if logs is not None:
        table = _only_logs(table, logs, root)
    user = _chosen(table, columns, root)
    chosen = _filter_of(where, table, root)
    fields = [d.service(0, g, field) for g in table.groups for field in ("blob", "offset", "length")]
    stored = [*user, ROW, *fields]

    def read(log: d.LogRows) -> pa.Table:
        if table.files is not None:
            table.files.prepare(log.log_id)
        return read_file(table.file_uri(root, log.file), stored, table, storage_options, chosen)

    threads = threads or max(4, available_cpus())
    if chosen is None:
        frame = _Columns(root, table, [*user, LOG, ROW, *fields], [log.rows for log in table.logs])
        in_threads(lambda at: frame.fill(at, read(table.logs[at])), range(len(table.logs)), threads)
    else:
        parts = in_threads(read, table.logs, threads)
        frame = _Columns(root, table, [*user, LOG, ROW, *fields], [len(part) for part in parts])
        for number, part in enumerate(parts):
            frame.fill(number, part)
    return frame.finish()


def _filter_of(where: Where | None, table: d.Description, root: str) -> pc.Expression | None:
    if where is None or isinstance(where, pc.Expression):
        return where
    try:
        return to_filter(where, table)
    except UsageError as error:
        raise UsageError(f"{root}: {error}") from error


def _only_logs(table: d.Description, logs: Sequence[str], root: str) -> d.Description:
    """
    Raises:
        UsageError: the table has no such log.
    """
    known = {log.log_id for log in table.logs}
    if unknown := [log_id for log_id in logs if log_id not in known]:
        hint = near_to(unknown[0], sorted(known), most=5)
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
                f"{root}: the index has no column {pattern!r} (columns that aren't in the index are read by "
                f"row_loader(index).get_row){near_to(pattern, table.index)}"
            )
        chosen |= found
    return [name for name in table.index if name in chosen]


class _Columns:
    """The columns of a frame while several threads read the logs' files into them."""

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
                f"{self._root}/{log.file}: {len(part)} rows, {d.FILE} has {stop - start}; build the table "
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
            array: Any = self._arrays.pop(name)  # frees a column's 32-bit codes before the next one's
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


def _memory_dtype(name: str, table: d.Description) -> np.dtype[Any]:
    if is_text(name, table) or name in (LOG, ROW):
        return np.dtype(np.int32)
    return np.dtype(table.index.get(name, np.int64))


def _categorical(codes: NDArray[np.int32], texts: Sequence[str]) -> Any:
    """Sort categories, so that they depend neither on threads nor on the order of files."""
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
        raise DatasetError(f"{root}: the index names {path!r}, which is in no table that it references")
    if ".." in path.split("/"):
        raise DatasetError(f"{root}: the index names {path!r}, which leaves the table")
    return table.file_uri(root, path)


@dataclass(frozen=True)
class StoredLog:
    """The rows of one log as stored: a table's chunk directory.

    Attributes:
        uri: of its index file.
        columns: the wanted index columns, (N,) each; texts as objects.
        blobs: group to (distinct blob URIs, (N,) number of each row's blob).
        places: group to (N, 2) offset and length.
        hashes: group to (N,) 32 bytes; empty unless asked for.
        lookups: by index columns, the row of their values; filled by lookups.
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
