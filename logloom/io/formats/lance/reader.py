"""Rows of Lance tables, by pylance.

Here: `LanceReader`, random access to a data file that logloom wrote; `LanceTable`, a table of any origin,
whose types are inferred.
Elsewhere: blocks of such files (logloom.io.arrow.reader), the columns that Arrow's types become
(logloom.io.arrow.columns).

Rows of a local file are read in place. pylance can't read through fsspec, so a file that is elsewhere is
copied whole to a temporary file; the most recently used copies are kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, take
from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.arrow.columns import ArrowColumn, columns_of, raw_columns
from logloom.io.arrow.layout import LOG_ID, TIME
from logloom.io.arrow.reader import TableReader, logs_at
from logloom.io.arrow.writer import MAX_ROWS
from logloom.io.formats.lance.pylance import anywhere, damage, lance
from logloom.io.rows.batches import Batch, scattered
from logloom.io.rows.inference.files import Batch as RawBatch
from logloom.io.rows.inference.files import DatasetPiece, RawRows
from logloom.io.rows.inference.types import RawColumn
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import batched
from logloom.io.storage.disk import remove_with
from logloom.io.storage.filesystems import explained, stored_file
from logloom.io.storage.known_files import check_file
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.remote.range_requests import failure
from logloom.io.storage.store import Store

_GROUP_BYTES = 4 << 20  # of a file, that are read at a time where all rows are
_BATCH_ROWS = 1024
_COPIED_BYTES = 4 << 30  # of temporary files, in a process
_MOST_ROWS = 1 << 36


class _Copy:
    """A temporary copy of a remote file; removed with this object."""

    def __init__(self, uri: str, options: Mapping[str, Any] | None):
        handle, self.path = tempfile.mkstemp(prefix="logloom-", suffix=".lance")
        remove_with(self, self.path)
        with os.fdopen(handle, "wb") as target, stored_file(uri, options) as source:
            shutil.copyfileobj(source, target, 1 << 20)
            self.nbytes = target.tell()


_copies: LruCache[_Copy] = LruCache(_COPIED_BYTES, least=1)


class LanceReader(TableReader):
    """See `TableReader`; groups are ranges of rows of a few MiB. Only the table records columns' types."""

    kind = "lance"
    unknown = "Lance files"

    def _row_counts(self) -> Ints:
        names = (self._entry or {}).get("stored_names")  # of a plain table alone
        with self._local() as path:
            # Lance renames columns in the table alone, and files are read by their own names.
            if names is not None and _names(self.place, path) != names:
                raise DatasetError(f"{self.place}: its columns were renamed; write the table anew")
            rows, size = _num_rows(self.place, path), os.path.getsize(path)
        if not 0 <= rows < _MOST_ROWS:
            raise DatasetError(f"{self.place}: damaged, it claims {rows} rows")
        step = min(MAX_ROWS, max(1, _GROUP_BYTES * rows // max(1, size)))
        return np.diff([*range(0, rows, step), rows]).astype(np.int64)

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """See `RowSource.take`; each row is read once."""
        if not len(positions):
            return {}
        rows, back = np.unique(positions, return_inverse=True)

        def read(columns: list[str]) -> Any:
            with self._local() as path:
                return _taken(self.place, path, columns, rows.tolist())

        what = f"rows {rows[0]} to {rows[-1]}"
        found = self._values(what, [*dict.fromkeys((LOG_ID, TIME, *names))], len(rows), read)
        types = self.schema.all
        batch: Batch = {LOG_ID: logs_at(found[LOG_ID], back), TIME: take(found[TIME], back)}
        for name in names:
            batch[name] = batched(self.place, name, take(found[name], back), types[name])
        return scattered([(np.arange(len(back)), batch)], len(back), out)

    def _table(self, group: int, start: int, stop: int, columns: list[str]) -> Any:
        with self._local() as path:
            return _range(self.place, path, columns, start, stop)

    @contextlib.contextmanager
    def _local(self) -> Iterator[str]:
        """The path of the file, or of a copy.

        Raises:
            DatasetError: it is missing, or of another size or digest.
            StorageError: it can't be read.
        """
        store = self._store
        check_file(self.place, store.options)
        if store.local is not None:
            path = store.path_of(self._name)
            with explained(self.place):
                if not path.is_file():
                    raise DatasetError(f"{self.place}: there is no such file")
            yield str(path)
            return
        key = (self._token, os.getpid())
        copy = _copies.get(key)
        if copy is None:
            try:
                copy = _Copy(self.place, store.options)
            except OSError as error:
                raise failure(self.place, error) from error
            _copies.put(key, copy)
        yield copy.path


@anywhere
def _num_rows(place: str, path: str) -> int:
    """Of the file."""
    package = lance()
    with damage(place):
        return int(package.file.LanceFileReader(path).num_rows())


@anywhere
def _names(place: str, path: str) -> list[str]:
    """The file's own names of its columns, in order."""
    package = lance()
    with damage(place):
        return list(package.file.LanceFileReader(path).metadata().schema.names)


@anywhere
def _taken(place: str, path: str, columns: list[str], rows: list[int]) -> Any:
    """Read rows in ascending order, as a table of columns by their names in it."""
    package = lance()
    with damage(place):
        file = package.file.LanceFileReader(path, columns=columns)
        return file.take_rows(rows, batch_size=_BATCH_ROWS).to_table()


@anywhere
def _range(place: str, path: str, columns: list[str], start: int, stop: int) -> Any:
    """Read rows [start, stop) as a table of columns by their names in it."""
    package = lance()
    with damage(place):
        file = package.file.LanceFileReader(path, columns=columns)
        return file.read_range(start, stop - start, batch_size=_BATCH_ROWS).to_table()


_READ_BYTES = 32 << 20  # about, of a fragment, that are read at a time


class LanceTable(RawRows):
    """A Lance table as `RawRows`; a piece is a fragment of the newest version."""

    kind = "lance"
    is_direct = True

    def __init__(self, store: Store):
        """Find the newest version.

        Raises:
            UsageError: pylance isn't installed.
            DatasetError: there is no table.
        """
        self.place = store.uri
        self._options = dict(store.options.get(self.place.partition("://")[0], {}))
        self._version, self._schema = _newest(self.place, self._options)

    def names(self) -> Sequence[str]:
        """Of the table."""
        return [column.name for column in columns_of(self._schema)]

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """The fragments in their order."""
        return [
            DatasetPiece(f"{self.place}: fragment {number}", (number, rows), content, size)
            for number, rows, content, size in _fragments(self.place, self._options, self._version)
        ]

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[RawBatch]:
        columns = [c for c in columns_of(self._schema) if names is None or c.name in names]
        roots = list(dict.fromkeys(column.path[0] for column in columns if not column.problem))
        number, rows = piece.where
        if not roots:
            yield {column.name: RawColumn([None] * rows, problem=column.problem) for column in columns}
            return
        step = max(_BATCH_ROWS, rows * _READ_BYTES // piece.size if piece.size else 0)
        for start in range(0, rows, step):
            wanted = number, roots, start, min(step, rows - start)
            for batch in _rows(self.place, self._options, self._version, *wanted):
                yield _columns_from(batch, columns, piece)

    def pick(
        self, piece: DatasetPiece, names: Sequence[str] | None, rows: Ints, max_bytes: int
    ) -> Iterator[RawBatch]:
        """See `RawRows.pick`; nothing but these rows is read."""
        columns = [c for c in columns_of(self._schema) if names is None or c.name in names]
        roots = list(dict.fromkeys(column.path[0] for column in columns if not column.problem))
        if not roots:
            yield from super().pick(piece, names, rows, max_bytes)
            return
        number, _ = piece.where
        for start in range(0, len(rows), _BATCH_ROWS):
            wanted = rows[start : start + _BATCH_ROWS].tolist()
            for batch in _rows_at(self.place, self._options, self._version, number, roots, wanted):
                yield _columns_from(batch, columns, piece)


def _columns_from(batch: Any, columns: Sequence[ArrowColumn], piece: DatasetPiece) -> RawBatch:
    try:
        return raw_columns(batch, columns)
    except ValueError as error:
        raise DatasetError(f"{piece.place}: {error}") from error


def _table(place: str, options: Mapping[str, Any], version: int | None) -> Any:
    package = lance()
    with damage(place):
        return package.dataset(place, version=version, storage_options=dict(options) or None)


@anywhere
def _newest(place: str, options: Mapping[str, Any]) -> tuple[int, Any]:
    """The number and the schema of the newest version."""
    table = _table(place, options, None)
    return int(table.version), table.schema


@anywhere
def _fragments(place: str, options: Mapping[str, Any], version: int) -> list[tuple[int, int, str, int]]:
    """The number, rows, digest and bytes of each fragment."""
    found = []
    for fragment in _table(place, options, version).get_fragments():
        metadata = fragment.metadata.to_json()
        content = digest_of(metadata if isinstance(metadata, dict) else json.loads(metadata))
        size = sum(file.file_size_bytes or 0 for file in fragment.metadata.files)
        found.append((fragment.fragment_id, fragment.count_rows(), content, size))
    return found


@anywhere
def _rows(
    place: str,
    options: Mapping[str, Any],
    version: int,
    number: int,
    columns: list[str],
    start: int,
    rows: int,
) -> list[Any]:
    """Rows [start, start + rows) of a fragment, as record batches."""
    with damage(f"{place}: fragment {number}"):
        fragment = _fragment(place, options, version, number)
        return list(fragment.to_batches(columns=columns, batch_size=_BATCH_ROWS, offset=start, limit=rows))


@anywhere
def _rows_at(
    place: str, options: Mapping[str, Any], version: int, number: int, columns: list[str], rows: list[int]
) -> list[Any]:
    """Ascending rows of a fragment, as record batches."""
    with damage(f"{place}: fragment {number}"):
        found = _fragment(place, options, version, number).take(rows, columns=columns)
        return list(found.combine_chunks().to_batches())


def _fragment(place: str, options: Mapping[str, Any], version: int, number: int) -> Any:
    fragment = _table(place, options, version).get_fragment(number)
    if fragment is None:
        raise DatasetError(f"{place}: fragment {number}: is gone")
    return fragment
