"""Plain folders that logloom wrote and that say their own schema: zarr datasets and tables.

Elsewhere: reading them (logloom.io.zarr, logloom.io.tables). Plain folders of bags and tar shards are read as
granular's and webdataset's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Block, Ragged, Values
from logloom.digests import digest_of
from logloom.errors import UsageError
from logloom.io.foreign.base import ForeignLog, LogRange
from logloom.io.foreign.files import content_of, files_below
from logloom.io.storage import Store
from logloom.schema import TIMESTAMP, Schema

_PART_ROWS = 100_000
_FIRST_ROWS = 64  # of a block, before anything is known of the size of a row


class OwnZarr:
    """See `ForeignDataset`: a log for each group."""

    kind = "zarr"

    def __init__(self, store: Store):
        """
        Raises:
            DatasetError: it is damaged.
        """
        from logloom.io.zarr.reader import ZarrReader

        self.uri = store.uri
        self._store = store
        self._reader = ZarrReader(store.uri, storage_options=store.options)
        self.schema: Schema = self._reader.schema
        self.hints: Mapping[str, Mapping[str, Any]] = {}
        self.notes: tuple[str, ...] = ()

    def logs(self) -> Sequence[ForeignLog]:
        """See `ForeignDataset.logs`."""
        logs = []
        for log_id, rows in self._reader.logs.items():
            content, size = content_of(self._store, files_below(self._store, [log_id]))
            stamps = self._stamps(log_id, rows)
            logs.append(ForeignLog(log_id, f"{self.uri}/{log_id}", _parts(log_id, stamps, content, size)))
        return logs

    def _stamps(self, log_id: str, rows: int) -> Any:
        return self._reader.log(log_id).take("timestamp", TIMESTAMP, np.arange(rows))

    def blocks(
        self, log_id: str, part: LogRange, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20
    ) -> Iterator[Block]:
        """See `ForeignDataset.blocks`."""
        log = self._reader.log(log_id)
        types = self.schema.all
        chosen = {name: types[name] for name in (types if columns is None else columns)}
        start, step = part.where, _FIRST_ROWS
        stop = start + part.rows
        while start < stop:
            rows = np.arange(start, min(start + step, stop))
            found: dict[str, Values] = {
                name: _values(log.take(name, ctype, rows))
                for name, ctype in {"timestamp": TIMESTAMP, **chosen}.items()
            }
            block = Block(log_id, part.name, start - part.where, found)
            yield block
            start += len(rows)
            step = max(1, min(max_bytes * len(rows) // max(1, block.nbytes), 4 * step))


class OwnTable:
    """See `ForeignDataset`: a table whose rows have log_id and timestamp."""

    kind = "table"

    def __init__(self, store: Store):
        """
        Raises:
            DatasetError: it is damaged.
            UsageError: its rows have no log_id and timestamp.
        """
        from logloom.io.tables.description import KEYS, read_description

        self.uri = store.uri
        self._store = store
        self._table = read_description(store.uri, store.options)
        if tuple(self._table.keys) != KEYS:
            raise UsageError(f"{store.uri}: its rows have no log_id and timestamp, so they make no logs")
        self.schema: Schema = self._table.schema
        self.hints: Mapping[str, Mapping[str, Any]] = {}
        self.notes: tuple[str, ...] = ()

    def _index(self, log_id: str) -> Any:
        from logloom.io.tables.index import read_index

        return read_index(self.uri, [], logs=[log_id], storage_options=self._store.options)

    def logs(self) -> Sequence[ForeignLog]:
        """See `ForeignDataset.logs`."""
        logs = []
        for log in self._table.logs:
            content, _ = content_of(self._store, [log.file])
            stamps = self._index(log.log_id)["timestamp"].to_numpy()
            uri = self._store.uri_of(log.file)
            size = sum(self._table.bytes.values()) * log.rows // max(1, self._table.num_rows)
            logs.append(ForeignLog(log.log_id, uri, _parts(log.log_id, stamps, content, size)))
        return sorted(logs, key=lambda log: log.log_id)

    def blocks(
        self, log_id: str, part: LogRange, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20
    ) -> Iterator[Block]:
        """See `ForeignDataset.blocks`."""
        from logloom.io.tables.loader import row_loader
        from logloom.io.tables.unit import BlockReader

        frame = self._index(log_id).iloc[part.where : part.where + part.rows]
        loader = row_loader(frame, storage_options=self._store.options)
        yield from BlockReader(loader, part.name).blocks(columns, max_bytes)


def _values(taken: Values | list[bytes]) -> Values:
    return Ragged.from_bytes(taken) if isinstance(taken, list) else taken


def _parts(log_id: str, stamps: Any, content: str, size: int) -> tuple[LogRange, ...]:
    """A log's rows, cut where they are many."""
    parts = []
    for number, first in enumerate(range(0, len(stamps), _PART_ROWS)):
        rows = min(_PART_ROWS, len(stamps) - first)
        start = int(stamps[first])
        stop = int(stamps[first + rows]) if first + rows < len(stamps) else int(stamps[-1]) + 1
        identity = digest_of([content, log_id, first, rows])[:32]
        share = size * rows // len(stamps)
        parts.append(LogRange(f"{number:06}", start, stop, rows, identity, first, share))
    return tuple(parts)
