"""Which split each single row is in, where rows of one log are in several.

Here: reading that of a version, of a column of texts, and of logs that are in one split each.
Elsewhere: making such splits (logloom.datasets.splits.split), `SplitLabels` (logloom.io.rows.log_ranges).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from logloom.io.catalog.entries import read_log_part
from logloom.io.catalog.row_counts import runs_of_unit
from logloom.io.rows.log_ranges import SplitLabels
from logloom.io.rows.sources import RowSource
from logloom.io.storage.metadata import parsed
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.row_splits import COLUMN

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1 << 16
_WHAT = ["output", "rows", "tally"]
_Run = tuple[str, int]


def labels_of_logs(store: Store, logs: pa.Table, output: str) -> SplitLabels:
    """Those of the rows of a version's logs, as builds noted them beside what became of messages.

    Args:
        logs: part and rows of each, in row order.

    Raises:
        DatasetError: the part of a log is missing or damaged, or notes other rows.
    """
    pairs = zip(logs["part"].to_pylist(), logs["rows"].to_pylist(), strict=True)
    runs = [run for found in ahead(lambda pair: list(_runs_of(store, output, *pair)), pairs) for run in found]
    return SplitLabels.of_runs([name for name, _ in runs], [count for _, count in runs])


def _runs_of(store: Store, output: str, part: str, rows: int) -> Iterator[_Run]:
    units = read_log_part(store, part, only=_WHAT)
    place = store.uri_of(f"logs/{part}.parquet")
    numbers, counts = units.with_rows(output, rows)
    tallies = units.table["tally"].take(numbers).to_pylist()
    for text, count in zip(tallies, counts.tolist(), strict=True):
        tally = parsed(text or "{}", f"{place}: tally")
        yield from runs_of_unit(tally, count, place) or [("", count)]


def labels_of_column(source: RowSource) -> SplitLabels:
    """Those that a column of texts says, of a dataset that is no version."""
    names: list[str] = []
    for start in range(0, len(source), _ROWS_AT_ONCE):
        some = np.arange(start, min(start + _ROWS_AT_ONCE, len(source)))
        names += source.take(some, [COLUMN])[COLUMN]
    return SplitLabels.of_runs(names, np.ones(len(names), np.int64))


def labels_of(source: RowSource) -> SplitLabels:
    """Those of any source; of whole logs where these are in one split each."""
    found = source.row_splits
    return SplitLabels.of_runs(source.stretches.splits, source.stretches.counts) if found is None else found
