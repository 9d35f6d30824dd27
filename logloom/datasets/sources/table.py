"""Rows of a table: one that stands by itself, or a version's on a local disk."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.datasets.batches import Batch
from logloom.datasets.sources.base import Ints, RowSource, Stretches
from logloom.io.checks import is_checked, with_check
from logloom.io.entries import FileEntry
from logloom.io.storage import absolute_uri
from logloom.io.tables import description as d
from logloom.schema import Schema


class TableSource(RowSource):
    """The rows of a table, read through its row loader; its index columns are `small`."""

    def __init__(self, uri: str, storage_options: Mapping[str, Any], stretches: Stretches | None = None):
        """Reads what the table says of itself.

        Args:
            stretches: what a version's manifest says of the rows; None where there is none.

        Raises:
            DatasetError: there is no table, or it is damaged.
        """
        self.place = absolute_uri(uri).rstrip("/")
        self._storage, self._told = storage_options, stretches
        self._table = d.read_description(self.place, storage_options)
        if is_checked(storage_options) and stretches is None:
            self._storage = with_check(
                storage_options, functools.partial(_index_files, self.place, self._table)
            )
            lacking = "" if all(log.digest for log in self._table.logs) else " and index/"
            self.unknown = f"{d.FILE}{lacking} of a table that stands by itself"
        self.max_gap = self._table.max_gap
        self.has_stamps = set(d.KEYS) <= set(self._table.keys)

    @property
    def schema(self) -> Schema:
        return self._table.schema

    @functools.cached_property
    def stretches(self) -> Stretches:
        if self._told is not None:
            return self._told
        logs = self._table.logs
        return Stretches.of_logs([log.log_id for log in logs], [log.rows for log in logs])

    @property
    def stamps(self) -> Ints | None:
        stamps = self._index.get("timestamp")
        return None if stamps is None else np.asarray(stamps, np.int64)

    @property
    def small(self) -> Mapping[str, Array]:
        return {name: values for name, values in self._index.items() if name not in d.KEYS}

    @functools.cached_property
    def _index(self) -> dict[str, Array]:
        frame, _ = self.reader
        return {name: frame[name].to_numpy() for name in self._table.index if name != "log_id"}

    def _open(self) -> Any:
        import logloom.io.tables as tt

        frame = tt.read_index(self.place, storage_options=self._storage)
        check = is_checked(self._storage)
        loader = tt.row_loader(frame, check=check, storage_options=self._storage)
        return frame, self._checked(loader, self._told)

    def _after_fork(self, reader: Any) -> Any:
        return reader  # row loaders see to it that nothing open crosses a fork

    def rows(self, positions: Ints, names: Any) -> list[dict[str, Any]]:
        loader = self.reader[1]
        return [loader.get_row(position, names) for position in positions.tolist()]

    def batch(self, positions: Ints, names: Any, out: Mapping[str, Array] | None = None) -> Batch:
        batch: Batch = self.reader[1].get_many(positions, names, out)
        return batch


def open_rows(
    uri: str,
    storage_options: Mapping[str, Any],
    told: Stretches | None = None,
    columns: Sequence[str] | None = None,
) -> RowSource:
    """See `OpenRows` in logloom.datasets.sources.base."""
    return TableSource(uri, storage_options, told)


def _index_files(place: str, table: d.Description) -> dict[str, FileEntry]:
    """The index files whose digest the table tells."""
    return {f"{place}/{log.file}": FileEntry(log.file, -1, log.digest) for log in table.logs if log.digest}
