"""`TableSource`: the rows of a table, in a version of a dataset or outside any."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Block
from logloom.caching import cached_property
from logloom.errors import UsageError
from logloom.io.catalog.entries import FileEntry
from logloom.io.formats.table import description as d
from logloom.io.formats.table.index.index import ROW, read_index
from logloom.io.formats.table.read.loader import RowLoader, joined_loader, row_loader
from logloom.io.formats.table.unit import BlockReader
from logloom.io.formats.table.versions import open_table
from logloom.io.formats.table.where import Where
from logloom.io.rows.log_ranges import Ints, SourceLog, Stretches, parts_of
from logloom.io.rows.sources import BLOCK_BYTES, RowSource, Share, check_count
from logloom.io.storage.folders import content_of
from logloom.io.storage.known_files import is_checked, with_check
from logloom.io.storage.store import Store
from logloom.schema import Schema


class TableSource(BlockReader):
    """The rows of a table, read through its row loader; its index columns are `small`."""

    kind = "table"

    def __init__(self, store: Store, known: Stretches | None = None, where: Where | None = None):
        """Read the description of the table.

        Args:
            known: the description of the rows in a version's manifest; None if there is none.
            where: which rows `blocks` yields, as for `read_index`.

        Raises:
            DatasetError: there is no table, or it is damaged.
        """
        self._known, self._where = known, where
        self._storage: Mapping[str, Any] = store.options
        self.place, self._table = open_table(store.uri, self._storage)
        self._store = Store.at(self.place, store.options)
        if is_checked(self._storage) and known is None:
            self._storage = with_check(
                self._storage, functools.partial(_index_files, self.place, self._table)
            )
            lacking = "" if all(log.digest for log in self._table.logs) else " and index/"
            self.unknown = f"{d.FILE}{lacking} of a table outside a version"
        self.max_gap = self._table.max_gap
        self.has_stamps = set(d.KEYS) <= set(self._table.keys)

    @property
    def schema(self) -> Schema:
        return self._table.schema

    @cached_property
    def stretches(self) -> Stretches:
        if self._known is not None:
            return self._known
        logs = self._table.logs
        return Stretches.of_logs([log.log_id for log in logs], [log.rows for log in logs])

    @property
    def stamps(self) -> Ints | None:
        stamps = self._index.get("timestamp")
        return None if stamps is None else np.asarray(stamps, np.int64)

    @property
    def small(self) -> Mapping[str, Array]:
        return {name: values for name, values in self._index.items() if name not in d.KEYS}

    @cached_property
    def _index(self) -> dict[str, Array]:
        frame = self._opened[0]
        return {name: frame[name].to_numpy() for name in self._table.index if name != "log_id"}

    @cached_property
    def _opened(self) -> tuple[Any, RowLoader]:
        """The index, and its row loader."""
        frame = read_index(self.place, storage_options=self._storage)
        check = is_checked(self._storage)
        loader = row_loader(frame, check=check, storage_options=self._storage)
        check_count(self.place, len(loader), self._known)
        return frame, loader

    @property
    def loader(self) -> RowLoader:
        return self._opened[1]

    def __len__(self) -> int:
        return self.stretches.num_rows

    def joined(self, others: Sequence[RowSource]) -> RowSource | None:
        """See `RowSource.joined`: of tables that store rows in one way."""
        tables = [self, *(other for other in others if isinstance(other, TableSource))]
        alike = all(one._storage == self._storage and one.has_stamps for one in tables)
        if len(tables) <= len(others) or not alike or is_checked(self._storage):
            return None
        loader = joined_loader([one.loader for one in tables], self._storage)
        return None if loader is None else BlockReader(loader)

    def shares(self) -> Sequence[Share]:
        """See `RowSource.shares`.

        Raises:
            UsageError: rows have no log_id and timestamp.
        """
        self._check_keys()
        return super().shares()

    def _check_keys(self) -> None:
        if tuple(self._table.keys) != d.KEYS:
            raise UsageError(f"{self.place}: its rows have no log_id and timestamp, so they make no logs")

    def logs(self) -> Sequence[SourceLog]:
        """See `RowSource.logs`.

        Raises:
            UsageError: rows have no log_id and timestamp.
        """
        self._check_keys()
        logs = []
        for log, first in zip(self._table.logs, self.stretches.bounds.tolist(), strict=False):
            content, _ = content_of(self._store, [log.file])
            stamps = self._index_of(log.log_id)["timestamp"].to_numpy()
            size = sum(self._table.bytes.values()) * log.rows // max(1, self._table.num_rows)
            parts = parts_of(log.log_id, stamps, first, content, size)
            logs.append(SourceLog.of(log.log_id, self._store.uri_of(log.file), parts))
        return sorted(logs, key=lambda log: log.log_id)

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """Read only the index of the logs that have such rows."""
        bounds = self.stretches.bounds
        for log_id, low, high in self.stretches.between(start, stop):
            first = bounds[self.stretches.number_of(np.array([low]))[0]]
            frame = self._index_of(log_id, self._where)
            within = frame[frame[ROW].between(low - first, high - first - 1)]
            loader = row_loader(within, storage_options=self._storage)
            yield from BlockReader(loader).scan(names, max_bytes)

    def _index_of(self, log_id: str, where: Where | None = None) -> Any:
        return read_index(self.place, [], where, logs=[log_id], storage_options=self._storage)


def _index_files(place: str, table: d.Description) -> dict[str, FileEntry]:
    """The index files whose digest the table records."""
    return {f"{place}/{log.file}": FileEntry(log.file, -1, log.digest) for log in table.logs if log.digest}
