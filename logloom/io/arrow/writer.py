"""Writing a partition as a file of an Arrow table, group after group of rows.

Here: `TableWriter`, which cuts rows into groups whose bounds depend on rows alone, however they arrive.
Elsewhere: what a row is in Arrow (layout), the files (formats).
"""

from __future__ import annotations

import abc
import os
import pathlib
from typing import Any

import numpy as np

from logloom.blocks import Block, Ragged, Values, concatenate, take
from logloom.io.arrow.layout import LOG_ID, ArrowLayout
from logloom.io.storage.filesystems import explained

MAX_ROWS = 1 << 16  # of a group, as of a table's index


class TableWriter(abc.ABC):
    """Writes the rows of one log; holds no more than a group and the block it is given."""

    def __init__(self, path: str | os.PathLike[str], layout: ArrowLayout, group_bytes: int):
        """Nothing is created before the first row.

        Args:
            layout: of the columns to write; others in the blocks are left aside.
            group_bytes: a group ends with the row by which its values have so many bytes.
        """
        self.path, self.layout, self.group_bytes = pathlib.Path(path), layout, group_bytes
        self._names = [name for name in layout.types if name != LOG_ID]
        self._pending: list[Block] = []
        self._pending_rows = self._pending_bytes = self._rows = 0
        self._log_id = self._partition = ""

    @abc.abstractmethod
    def write(self, table: Any) -> None:
        """Appends a group to the file, which its first one makes.

        Args:
            table: the rows of the group.
        """

    @abc.abstractmethod
    def finish(self) -> None:
        """Completes the file."""

    def append(self, block: Block) -> None:
        """Takes the next rows.

        Args:
            block: rows of one log.

        Raises:
            UsageError: a value that the table can't hold.
            StorageError: the disk refuses.
        """
        if not len(block):
            return
        self._log_id, self._partition = block.log_id, block.partition
        sizes = np.zeros(len(block), np.int64)  # of each row
        for name in self._names:
            sizes += _value_bytes(block.columns[name])
        ends = np.cumsum(sizes)
        start = taken = 0
        while start < len(block):
            room = self.group_bytes - self._pending_bytes + taken
            stop = min(
                int(np.searchsorted(ends, room)) + 1, start + MAX_ROWS - self._pending_rows, len(block)
            )
            rows = slice(start, stop)
            columns = {name: take(block.columns[name], rows) for name in self._names}
            self._pending.append(Block(block.log_id, block.partition, 0, columns))
            self._pending_rows += stop - start
            self._pending_bytes += int(ends[stop - 1]) - taken
            start, taken = stop, int(ends[stop - 1])
            if self._pending_bytes >= self.group_bytes or self._pending_rows == MAX_ROWS:
                self._flush()

    def close(self) -> dict[str, Any]:
        """Writes the last group and completes the file.

        Returns:
            {"log_id", "partition", "rows", "bytes"}; no file was made where there are no rows.
        """
        if self._pending:
            self._flush()
        size = 0
        if self._rows:
            with explained(str(self.path)):
                self.finish()
                size = self.path.stat().st_size
        return {"log_id": self._log_id, "partition": self._partition, "rows": self._rows, "bytes": size}

    def _flush(self) -> None:
        columns = {
            name: concatenate([block.columns[name] for block in self._pending]) for name in self._names
        }
        group = Block(self._log_id, self._partition, 0, columns)
        table = self.layout.table(group)
        with explained(str(self.path)):
            self.write(table)
        self._rows += len(group)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


def _value_bytes(values: Values) -> Any:
    if isinstance(values, Ragged):
        return values.lengths * (int(np.prod(values.tail, dtype=np.int64)) * values.dtype.itemsize)
    return values.nbytes // max(1, len(values))
