"""Random access to rows of a Parquet file that records its column types.

Here: `ParquetReader`.
Elsewhere: blocks of such files (logloom.io.arrow.reader), other Parquet files, whose types are inferred
(foreign_files), conversion between Arrow and values (logloom.io.arrow.layout).

A row group is the least that is read of a column. The most recent ones stay in memory, as values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Values, take
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.arrow.layout import LOG_ID, TIME, ArrowLayout
from logloom.io.arrow.reader import Runs, TableReader, logs_at
from logloom.io.formats.parquet.foreign_files import open_parquet
from logloom.io.rows.batches import Batch, scattered
from logloom.io.rows.chain import grouped
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import batched
from logloom.io.storage.lru_cache import LruCache

_KEPT_BYTES = 128 << 20  # of row groups, in a process
_RUN_BYTES = 256  # about what the name of a log takes
_MAX_ROWS = 1 << 48


def _size(found: Any) -> int:
    return _RUN_BYTES * len(found) if isinstance(found, list) else int(found.nbytes)


_groups: LruCache[Any] = LruCache(_KEPT_BYTES, _size)


class ParquetReader(TableReader):
    """See `TableReader`; groups are row groups."""

    kind = "parquet"
    unknown = "footers of Parquet files"
    group_name = "row group"

    @cached_property
    def own_layout(self) -> ArrowLayout | None:
        with open_parquet(self._store, self._name) as file:
            return ArrowLayout.of(file.schema_arrow, self.place)

    def _row_counts(self) -> Ints:
        with open_parquet(self._store, self._name) as file:
            metadata = file.metadata
            counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        if min(counts, default=0) < 0 or sum(counts) >= _MAX_ROWS:
            raise DatasetError(f"{self.place}: damaged, its row groups claim {counts!r:.80} rows")
        return np.array(counts, np.int64)

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """See `RowSource.take`; each row group that is touched is read once."""
        types = self.schema.all
        parts: list[tuple[Ints, Batch]] = []
        for group, where, own in grouped(self._bounds, positions):
            runs, found = self._group(group, (TIME, *names), keep=True)
            batch: Batch = {LOG_ID: logs_at(runs, own), TIME: take(found[TIME], own)}
            for name in names:
                batch[name] = batched(self.place, name, take(found[name], own), types[name])
            parts.append((where, batch))
        return scattered(parts, len(positions), out) if parts else {}

    def _group(self, group: int, names: Sequence[str], keep: bool = False) -> tuple[Runs, dict[str, Values]]:
        keys = {name: (self._token, group, name) for name in (LOG_ID, *names)}
        found: dict[str, Any] = {name: _groups.get(key) for name, key in keys.items()}
        lacking = [name for name, values in found.items() if values is None]
        if lacking:
            read = self._read(group, lacking)
            found |= read
            for name in lacking if keep else ():
                _groups.put(keys[name], read[name])
        return found.pop(LOG_ID), found

    def _table(self, group: int, start: int, stop: int, columns: list[str]) -> Any:
        with open_parquet(self._store, self._name) as file:
            return file.read_row_group(group, columns=columns, use_threads=False)
