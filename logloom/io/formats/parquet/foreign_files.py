"""Parquet files of any origin as rows, a folder's files in order of name.

Here: `ParquetFiles`, and `open_parquet`, which opens every Parquet file of a dataset.
Elsewhere: Arrow's types as column types (logloom.io.arrow.columns), files that declare ours (reader).
"""

from __future__ import annotations

import contextlib
import copy
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.arrow.columns import ArrowColumn, columns_of, raw_columns, without_name
from logloom.io.arrow.files import arrow_file
from logloom.io.rows.inference.files import Batch, DatasetPiece, RawRows, absent, rows_between
from logloom.io.rows.inference.types import RawColumn
from logloom.io.rows.log_ranges import Ints
from logloom.io.storage.folders import content_of, files_of
from logloom.io.storage.known_files import check_file
from logloom.io.storage.store import Store
from logloom.row_splits import COLUMN as SPLIT
from logloom.schema import STRING, ColumnType

SUFFIXES = (".parquet", ".pq")
_MOST_ROWS = 1 << 20  # of a batch: a footer may claim any number, which pyarrow would make room for
_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile("-?[0-9]{1,10}")


class ParquetFiles(RawRows):
    """Parquet files as `RawRows`; a piece is a row group.

    Names of folders such as `day=3` are columns, unless the files have a column of that name. Folders
    `split=train` decide the split of their rows: the files' own column `split` is `split_`.
    """

    kind = "parquet"

    def __init__(self, store: Store):
        """Find the files.

        Raises:
            DatasetError: there is no file.
        """
        self.place = store.uri
        self._store, self._files = files_of(store, SUFFIXES)
        if not self._files:
            raise DatasetError(f"{store.uri}: no Parquet files")
        self.keys = _key_types(self._files)
        self._last_columns: tuple[pa.Schema | None, list[ArrowColumn]] = (None, [])

    def names(self) -> Sequence[str]:
        """Of all files that can be read, and of their folders."""
        names: dict[str, None] = {}
        for name in self._files:
            with contextlib.suppress(DatasetError), open_parquet(self._store, name) as file:
                names |= dict.fromkeys(column.name for column in self._columns_of(file.schema_arrow))
        return list(names | dict.fromkeys(self.keys))

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """The row groups of all files."""
        found = []
        for name in self._files:
            content, size = content_of(self._store, [name])
            try:
                with open_parquet(self._store, name) as file:
                    groups = file.metadata.num_row_groups
            except DatasetError:
                groups = 1  # reading it raises an error; readers of other files can go on
            if self.keys:  # rows change with the name of their folder
                content = digest_of([content, name.rpartition("/")[0]])
            uri = self._store.uri_of(name)
            found += [
                DatasetPiece(f"{uri}: row group {group}", (name, group), content, size // groups)
                for group in range(groups)
            ]
        return found

    def part(self, piece: DatasetPiece) -> ParquetFiles:
        part = copy.copy(self)
        part._files = [piece.where[0]]
        return part

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        for batch, columns_from in self._record_batches(piece, names, max_bytes):
            yield columns_from(batch)

    def pick(
        self, piece: DatasetPiece, names: Sequence[str] | None, rows: Ints, max_bytes: int
    ) -> Iterator[Batch]:
        """See `RawRows.pick`; only values of these rows are converted."""
        at = 0
        for batch, columns_from in self._record_batches(piece, names, max_bytes):
            own = rows_between(rows, at, at + len(batch))
            if len(own):
                try:
                    taken = batch.take(pa.array(own))
                except pa.ArrowNotImplementedError:  # of some type that Arrow itself takes no rows of
                    yield {name: column.take(own) for name, column in columns_from(batch).items()}
                else:
                    yield columns_from(taken)
            at += len(batch)
            if at > rows[-1]:
                return

    def _columns_of(self, schema: pa.Schema) -> list[ArrowColumn]:
        """The columns of a file; kept for the next file, as schemas of thousands of columns take a second."""
        before, columns = self._last_columns
        if before is None or not schema.equals(before, check_metadata=True):
            columns = columns_of(schema)
            columns = without_name(columns, SPLIT) if SPLIT in self.keys else columns
            self._last_columns = schema, columns
        return columns

    def _record_batches(
        self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int
    ) -> Iterator[tuple[pa.RecordBatch, Callable[[pa.RecordBatch], Batch]]]:
        """The rows of a piece as Arrow has them, each with a function that makes columns of such rows."""
        name, group = piece.where
        with open_parquet(self._store, name) as file:
            schema, chosen = file.schema_arrow, None if names is None else set(names)
            every = self._columns_of(schema)
            columns = [column for column in every if chosen is None or column.name in chosen]
            columns = [_checked(file, schema, group, column) for column in columns]
            own = {column.path[0] for column in every} - {SPLIT}
            keys = {key: ctype for key, ctype in self.keys.items() if key not in own}
            metadata = file.metadata.row_group(group)
            step = max(1, max_bytes * metadata.num_rows // max(1, metadata.total_byte_size))
            roots = list(dict.fromkeys(column.path[0] for column in columns if not column.problem))
            roots = roots or [column.path[0] for column in every[:1]]  # so that rows can be counted

            def columns_from(batch: pa.RecordBatch) -> Batch:
                try:
                    found = raw_columns(batch, columns)
                except ValueError as error:
                    raise DatasetError(f"{piece.place}: {error}") from error
                found |= _key_columns(name, keys, len(batch))
                wanted = found if names is None else names
                return {name: found.get(name) or absent(len(batch)) for name in wanted}

            rows = 0
            for batch in file.iter_batches(min(step, _MOST_ROWS), [group], columns=roots):
                rows += len(batch)
                yield batch, columns_from
            if rows != metadata.num_rows:  # which pyarrow doesn't compare
                raise DatasetError(f"{piece.place}: damaged, {rows} rows instead of {metadata.num_rows}")


def _checked(file: Any, schema: pa.Schema, group: int, column: ArrowColumn) -> ArrowColumn:
    """The column of a row group, with a problem where Arrow can't read it, though it could write it.

    Args:
        schema: of the file, which makes it anew each time it is asked.
    """
    root = column.path[0]
    if column.problem or not _has_fixed_lists(schema.field(root).type):
        return column
    metadata = file.metadata.row_group(group)
    leaves = [metadata.column(number) for number in range(metadata.num_columns)]
    found = [leaf.statistics for leaf in leaves if leaf.path_in_schema.partition(".")[0] == root]
    if found and all(one is not None and one.has_null_count and not one.null_count for one in found):
        return column
    try:
        file.read_row_group(group, columns=[root], use_threads=False)
    except pa.ArrowInvalid as error:
        if not str(error).startswith("Expected all lists to be of size"):
            raise
        return replace(column, problem="a null among lists of a fixed length, which Arrow can't read")
    return column


def _has_fixed_lists(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return True
    return any(_has_fixed_lists(kind.field(number).type) for number in range(kind.num_fields))


def _keys_of(name: str) -> dict[str, str | None]:
    """The keys and values in a file's folders, such as `day=3`; None is a null."""
    found: dict[str, str | None] = {}
    for folder in name.split("/")[:-1]:
        key, equals, value = folder.partition("=")
        if key and equals:
            text = urllib.parse.unquote(value)
            found[urllib.parse.unquote(key)] = None if text in ("", _NULL) else text
    return found


def _key_types(names: Sequence[str]) -> dict[str, ColumnType]:
    """The keys in folders of some files: int32 where all values are, else text, as pyarrow infers them."""
    values: dict[str, set[str]] = {}
    for name in names:
        for key, value in _keys_of(name).items():
            values.setdefault(key, set()).update([] if value is None else [value])
    number = ColumnType(np.dtype("<i4"))
    return {key: number if found and all(map(_is_int32, found)) else STRING for key, found in values.items()}


def _is_int32(text: str) -> bool:
    return bool(_WHOLE.fullmatch(text)) and -(2**31) <= int(text) < 2**31


def _key_columns(name: str, types: Mapping[str, ColumnType], num_rows: int) -> dict[str, RawColumn]:
    """The values that a file's folders give its rows."""
    values, found = _keys_of(name), {}
    for key, ctype in types.items():
        value = values.get(key)
        if value is None:
            found[key] = RawColumn([None] * num_rows, ctype, available=np.zeros(num_rows, np.bool_))
        elif ctype.kind == "string":
            found[key] = RawColumn([value] * num_rows, ctype)
        else:
            found[key] = RawColumn(np.full(num_rows, int(value), "<i4"), ctype)
    return found


@contextlib.contextmanager
def open_parquet(store: Store, name: str) -> Iterator[Any]:
    """Open a file in a folder as pyarrow's ParquetFile; page checksums are compared.

    Raises:
        DatasetError: it is missing or damaged, or pyarrow finds damage within the block.
        StorageError: a disk or an object store refused.
    """
    uri = store.uri_of(name)
    check_file(uri, store.options)

    def damaged(reason: str) -> DatasetError:
        return DatasetError(f"{uri}: no Parquet file, or a damaged one ({reason})")

    with (
        arrow_file(uri, store.options, damaged) as stream,
        pq.ParquetFile(stream, page_checksum_verification=True) as file,
    ):
        yield file
