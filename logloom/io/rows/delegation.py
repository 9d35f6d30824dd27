"""Base of row sources that read another source and change its results.

Here: `DelegatingSource`.
Elsewhere: other names (logloom.datasets.views.renamed_source), rows in memory
(logloom.datasets.loader.row_groups).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom.blocks import Array, Block
from logloom.io.rows.batches import Batch
from logloom.io.rows.log_ranges import Ints, SplitLabels, Stretches
from logloom.io.rows.sources import BLOCK_BYTES, RowSource
from logloom.schema import ColumnType, Schema


def _of_source(name: str) -> Any:
    return property(lambda self: getattr(self.source, name))


class DelegatingSource(RowSource):
    """The rows of another source, and all that it has beside them, which is asked for when needed.

    Attributes:
        source: has the rows.
    """

    place: str = _of_source("place")
    kind: str = _of_source("kind")
    period: int | None = _of_source("period")
    max_gap: int | None = _of_source("max_gap")
    has_stamps: bool = _of_source("has_stamps")
    key_name: str = _of_source("key_name")
    unknown: str = _of_source("unknown")
    left_out: Mapping[str, str] = _of_source("left_out")
    refused: Mapping[str, str] = _of_source("refused")
    intervals = _of_source("intervals")
    find_splits = _of_source("find_splits")
    row_splits: SplitLabels | None = _of_source("row_splits")

    def __init__(self, source: RowSource):
        self.source, self.counted = source, source.counted

    @property
    def schema(self) -> Schema:
        return self.source.schema

    @property
    def stretches(self) -> Stretches:
        return self.source.stretches

    @property
    def stamps(self) -> Ints | None:
        return self.source.stamps

    @property
    def small(self) -> Mapping[str, Array]:
        return self.source.small

    def group_bounds(self, names: Sequence[str]) -> Ints:
        return self.source.group_bounds(names)

    def __len__(self) -> int:
        return len(self.source)

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        return self.source.take(positions, names, out)

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        return self.source.rows(positions, names)

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        return self.source.scan(names, max_bytes, start, stop)

    @property
    def structs(self) -> Mapping[str, ColumnType]:
        return self.source.structs

    def take_structs(self, positions: Ints, names: Sequence[str]) -> Batch:
        return self.source.take_structs(positions, names)

    def _keys(self) -> Sequence[str]:
        """What batches and rows have beside columns."""
        stamps = ("log_id", "timestamp") if self.has_stamps else ()
        return (*stamps, self.key_name) if self.key_name else stamps
