"""Rows of folders that say neither their types nor where rows lie: of Parquet files, and of Lance.

They are read once when they are opened, as a conversion reads them; see docs/convert.md.
Elsewhere: reading them (logloom.io.foreign).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Block
from logloom.datasets.sources.base import Ints, RowSource, Stretches
from logloom.io.foreign import open_foreign
from logloom.io.foreign.base import ForeignDataset, LogRange
from logloom.schema import Schema

_KEPT = (
    4  # parts whose rows a process holds: who reads rows in order, or near each other, reads each part once
)


def open_rows(
    uri: str,
    storage_options: Mapping[str, Any],
    told: Stretches | None = None,
    columns: Sequence[str] | None = None,
) -> RowSource:
    """See `OpenRows` in logloom.datasets.sources.base."""
    dataset = open_foreign(uri, storage_options=storage_options, columns=columns)
    return ForeignRows(uri, dataset, getattr(dataset, "has_stamps", True))


class ForeignRows(RowSource):
    """Rows of a foreign dataset; a part is read whole, and the last few stay in memory."""

    def __init__(self, uri: str, dataset: ForeignDataset, has_stamps: bool):
        self.place, self.has_stamps = uri, has_stamps
        self.unknown = f"what {dataset.kind} doesn't check itself"
        self._dataset = dataset
        self._parts = [(log.log_id, part) for log in dataset.logs() for part in log.parts]

    @property
    def schema(self) -> Schema:
        return self._dataset.schema

    @functools.cached_property
    def stretches(self) -> Stretches:
        return Stretches.of_logs(
            [log_id for log_id, _ in self._parts], [part.rows for _, part in self._parts]
        )

    @functools.cached_property
    def stamps(self) -> Ints | None:
        if not self.has_stamps:
            return None
        blocks = [block for log_id, part in self._parts for block in self._dataset.blocks(log_id, part, ())]
        return np.concatenate([np.empty(0, np.int64), *(block.timestamp for block in blocks)])

    def _open(self) -> Any:
        return _Parts(self._dataset, self._parts, self.stretches.bounds)

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        rows = super().rows(positions, names)
        return rows if self.has_stamps else [{name: row[name] for name in names} for row in rows]


class _Parts:
    """Rows by position."""

    def __init__(self, dataset: ForeignDataset, parts: Sequence[tuple[str, LogRange]], bounds: Ints):
        self._dataset, self._parts, self._bounds = dataset, parts, bounds
        self._read = functools.lru_cache(maxsize=_KEPT)(self._load)

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def row(self, index: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """See `Reader.row`."""
        schema = self._dataset.schema
        names = tuple(schema.columns if columns is None else columns)
        number = int(np.searchsorted(self._bounds, index, side="right")) - 1
        blocks, firsts = self._read(number, names)
        at = index - int(self._bounds[number])
        place = int(np.searchsorted(firsts, at, side="right")) - 1
        return blocks[place].row(at - int(firsts[place]), schema, names)

    def _load(self, number: int, names: tuple[str, ...]) -> tuple[list[Block], Ints]:
        blocks = list(self._dataset.blocks(*self._parts[number], names))
        lengths = np.array([len(block) for block in blocks], np.int64)
        return blocks, np.cumsum(lengths) - lengths
