"""Parquet files of any origin as rows, one for each of their rows; a folder's files in order of name.

Here: `ParquetFiles`, and `open_parquet`, which opens every Parquet file of a dataset.
Elsewhere: Arrow's types as column types (logloom.io.arrow.columns), files that declare ours (reader).
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from logloom.errors import DatasetError, UsageError
from logloom.io.arrow.columns import chosen, columns_of, raw_columns
from logloom.io.arrow.files import arrow_file
from logloom.io.rows.inference.files import Batch, DatasetPiece, RawRows
from logloom.io.storage.folders import content_of, files_of
from logloom.io.storage.known_files import check_file
from logloom.io.storage.store import Store

SUFFIXES = (".parquet", ".pq")
_MOST_ROWS = 1 << 20  # of a batch: a footer may claim any number, which pyarrow would make room for
_PARTITION = re.compile(r"[^/=]+=[^/]*/")


class ParquetFiles(RawRows):
    """Parquet files as `RawRows`; a piece is a row group."""

    kind = "parquet"

    def __init__(self, store: Store):
        """Find the files.

        Raises:
            DatasetError: there is no file.
            UsageError: folders are named key=value; these values would be lost.
        """
        self.place = store.uri
        self._store, self._files = files_of(store, SUFFIXES)
        if not self._files:
            raise DatasetError(f"{store.uri}: no Parquet files")
        keyed = next((name for name in self._files if _PARTITION.search(name)), None)
        if keyed is not None:
            raise UsageError(
                f"{store.uri}: {keyed} is in a folder named key=value, which its rows don't hold; convert "
                "the folders one by one, or write the table without partitions"
            )

    def names(self) -> Sequence[str]:
        """Of the first file."""
        with open_parquet(self._store, self._files[0]) as file:
            return [column.name for column in columns_of(file.schema_arrow)]

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
        name, group = piece.where
        with open_parquet(self._store, name) as file:
            columns = chosen(columns_of(file.schema_arrow), names, piece.place)
            metadata = file.metadata.row_group(group)
            step = max(1, max_bytes * metadata.num_rows // max(1, metadata.total_byte_size))
            roots = list(dict.fromkeys(column.path[0] for column in columns))
            rows = 0
            for batch in file.iter_batches(min(step, _MOST_ROWS), [group], columns=roots):
                rows += len(batch)
                try:
                    yield raw_columns(batch, columns)
                except ValueError as error:
                    raise DatasetError(f"{piece.place}: {error}") from error
            if rows != metadata.num_rows:  # which pyarrow doesn't compare
                raise DatasetError(f"{piece.place}: damaged, {rows} rows instead of {metadata.num_rows}")


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
