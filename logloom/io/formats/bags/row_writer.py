"""Writing rows as a dataset of bags.

Here: `BagsWriter`, which writes blocks into one folder of bags.
Elsewhere: the records of a column (logloom.io.formats.bags.columns), datapoints of any kind
(logloom.io.formats.bags.dataset_writer).
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import msgpack

from logloom.blocks import Block
from logloom.errors import UsageError
from logloom.io.formats.bags.bag import Generation, RecordFile
from logloom.io.formats.bags.columns import META, Records, meta_records, records_of, repeated, types_of
from logloom.io.formats.bags.dataset_writer import UnfinishedDataset
from logloom.io.formats.bags.files import open_folder
from logloom.io.rows.row_order import RowOrder
from logloom.schema import TIMESTAMP, Schema


class BagsWriter:
    """Writes the rows of one log into a folder; keeps at most one block in memory."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        schema: Schema,
        types: Mapping[str, str] | None = None,
        generation: Generation = 1,
    ):
        """Create nothing before the first row; the caller publishes the folder.

        Args:
            directory: an existing folder without files of these names.
            schema: the columns to write; others in the blocks are ignored.
            types: of columns with another type than the default: {"camera.front": "jpg"}.
            generation: of the files: 1 or 3.

        Raises:
            UsageError: a type can't hold its column.
        """
        self._directory = pathlib.Path(directory)
        self._schema = schema
        self._spec = types_of(schema, types or {})
        self._generation: Generation = generation
        self._files: UnfinishedDataset | None = None
        self._order = RowOrder(f"{self._directory}", "a folder")
        self._rows = 0

    def append(self, block: Block) -> None:
        """Takes the next rows.

        Args:
            block: rows of one log.

        Raises:
            UsageError: another log_id, timestamps that don't ascend, or values that don't fit the schema.
            StorageError: the disk refused.
        """
        if len(block) == 0:
            return
        self._order.check(block)
        if self._files is None:
            folder = open_folder(self._directory)
            self._files = UnfinishedDataset(folder, self._spec, self._generation, scratch=self._directory)
        for key, file in self._files.files.items():
            try:
                file.extend(*self._records(key, block))
            except UsageError as error:
                raise UsageError(f"{self._directory}: column {key}: {error}") from error
        if self._files.refs is not None:
            append_refs(self._files.refs, len(self._spec), len(block))
        self._rows += len(block)

    def close(self) -> dict[str, Any]:
        """Finishes the files.

        Returns:
            {"log_id", "partition", "rows", "bytes"}; without rows no file is created.
        """
        size = 0
        if self._files is not None:
            size = self._files.size
            self._files.close()
        return {**self._order.source, "rows": self._rows, "bytes": size}

    def _records(self, key: str, block: Block) -> Records:
        if key == "log_id":
            return repeated(block.log_id.encode(), len(block))
        if key == "timestamp":
            return records_of("i64", TIMESTAMP, block.timestamp)
        if key == META:
            return meta_records(block.columns, list(self._schema.meta))
        return records_of(self._spec[key], self._schema.columns[key], block.columns[key])


def append_refs(refs: RecordFile, num_keys: int, count: int) -> None:
    """Adds references of rows whose number is that of their records."""
    first = len(refs)
    for number in range(first, first + count):
        refs.append(msgpack.packb([number] * num_keys))
