"""Parquet files: a row for each of theirs; a folder's files by name, one after the other.

Elsewhere: which columns Arrow's types become (arrow).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logloom.errors import DatasetError, UsageError
from logloom.io.arrow import chosen, columns_of, raw_columns
from logloom.io.filesystems import stored_file
from logloom.io.folders import content_of, files_of
from logloom.io.pieces import Batch, DatasetPiece, RawRows
from logloom.io.storage import Store

SUFFIXES = (".parquet", ".pq")
_PARTITION = re.compile(r"[^/=]+=[^/]*/")


class ParquetFiles(RawRows):
    """See `RawRows`; a piece is a row group."""

    kind = "parquet"

    def __init__(self, store: Store):
        """Looks for the files.

        Raises:
            DatasetError: there is no file.
            UsageError: folders are named key=value, whose values rows would lose.
        """
        self.place = store.uri
        self._store, self._files = files_of(store, SUFFIXES)
        if not self._files:
            raise DatasetError(f"{store.uri}: no Parquet files")
        keyed = next((name for name in self._files if _PARTITION.search(name)), None)
        if keyed is not None:
            raise UsageError(
                f"{store.uri}: {keyed} lies in a folder named key=value, which its rows don't hold; convert "
                "the folders one by one, or write the table without partitions"
            )

    def names(self) -> Sequence[str]:
        """Of the first file."""
        with self._open_file(self._files[0]) as file:
            return [column.name for column in columns_of(file.schema_arrow)]

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """The row groups of all files."""
        found = []
        for name in self._files:
            content, size = content_of(self._store, [name])
            try:
                with self._open_file(name) as file:
                    groups = file.metadata.num_row_groups
            except DatasetError:
                groups = 1  # whoever reads it will be told; others may go on without it
            uri = self._store.uri_of(name)
            found += [
                DatasetPiece(f"{uri}: row group {group}", (name, group), content, size // groups)
                for group in range(groups)
            ]
        return found

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        """See `RawRows.batches`."""
        name, group = piece.where
        with self._open_file(name) as file:
            columns = chosen(columns_of(file.schema_arrow), names, piece.place)
            said = file.metadata.row_group(group)
            step = max(1, max_bytes * said.num_rows // max(1, said.total_byte_size))
            roots = list(dict.fromkeys(column.path[0] for column in columns))
            for batch in file.iter_batches(step, [group], columns=roots):
                try:
                    yield raw_columns(batch, columns)
                except ValueError as error:
                    raise DatasetError(f"{piece.place}: {error}") from error

    def _opening(self, uri: str) -> Any:
        if self._store.local is not None:
            return self._store.fs.open(uri, "rb")
        return stored_file(uri, self._store.options)

    @contextlib.contextmanager
    def _open_file(self, name: str) -> Iterator[Any]:
        uri = self._store.uri_of(name)
        try:
            with (
                self._opening(uri) as stream,
                pq.ParquetFile(stream, page_checksum_verification=True) as file,
            ):
                yield file
        except FileNotFoundError:
            raise DatasetError(f"{uri}: there is no such file") from None
        except (pa.ArrowException, OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise DatasetError(f"{uri}: no Parquet file, or a damaged one ({error})") from error
