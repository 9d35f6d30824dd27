"""Counts of logs and rows by split, where whole logs or single rows are split.

Elsewhere: records of logs (logloom.io.catalog.pages), the split of each row
(logloom.datasets.splits.labels).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from logloom.errors import DatasetError
from logloom.io.storage.metadata import Count, Name, Text, checked, parsed

if TYPE_CHECKING:
    import pyarrow as pa


def row_split_names(splits: pa.ChunkedArray) -> list[str]:
    """The splits that single rows of logs are in, by name; none where whole logs are split.

    Args:
        splits: the column of records.

    Raises:
        DatasetError: it holds something else.
    """
    return sorted({name for text in splits.unique().drop_null().to_pylist() for name in _counts(text)})


def row_split_counts(splits: pa.ChunkedArray) -> list[dict[str, int]]:
    """The rows of each log by split, of splits that have some; empty where whole logs are split.

    Args:
        splits: the column of records.

    Raises:
        DatasetError: it holds something else.
    """
    known: dict[str | None, dict[str, int]] = {None: {}}  # logs of equal counts are parsed once
    found = []
    for text in splits.to_pylist():
        if text not in known:
            known[text] = {name: rows for name, rows in _counts(text).items() if rows}
        found.append(known[text])
    return found


def rows_by_split(logs: pa.Table) -> list[tuple[str, int, int]]:
    """By split, in name order: its name, the logs that have rows in it, and its rows.

    A log whose rows are split counts for each split that has some of them.

    Args:
        logs: split, rows and splits of each.

    Raises:
        DatasetError: `splits` holds something else.
    """
    found: dict[str, tuple[int, int]] = {}
    grouped = [*_grouped(logs)]
    if any(splits for _, splits, _, _ in grouped):
        grouped = [one for one in grouped if one[-1]]  # logs without rows are in no split
    for split, splits, number, total in grouped:
        # Logs of equal counts come together.
        own = _counts(splits) if splits else {split: total}
        for name, rows in own.items():
            logs_before, rows_before = found.get(name, (0, 0))
            found[name] = logs_before + number, rows_before + (rows * number if splits else rows)
    return [(name, *counts) for name, counts in sorted(found.items())]


def _grouped(logs: pa.Table) -> Iterator[tuple[str, str | None, int, int]]:
    """Of the logs of each split and splits: these two, how many they are, and their rows."""
    # Arrow's own grouping imports its engine, which takes 50 ms.
    split, splits = (logs[name].combine_chunks().dictionary_encode("encode") for name in ("split", "splits"))
    codes = split.indices.to_numpy().astype(np.int64) * max(1, len(splits.dictionary))
    codes += splits.indices.to_numpy()
    places, inverse = np.unique(codes, return_inverse=True)
    numbers = np.bincount(inverse).tolist()
    order = np.argsort(inverse, kind="stable")
    starts = np.cumsum([0, *numbers[:-1]])
    sums = np.add.reduceat(logs["rows"].to_numpy()[order], starts).tolist() if numbers else []
    for place, number, total in zip(places.tolist(), numbers, sums, strict=True):
        own, other = divmod(place, len(splits.dictionary))
        yield split.dictionary[own].as_py(), splits.dictionary[other].as_py(), number, total


def runs_of_unit(tally: Mapping[str, Any], rows: int, place: str) -> tuple[tuple[str, int], ...]:
    """The split of each row of a unit and the number of rows, run after run; none where no rows are split.

    Args:
        tally: of the unit's entry (see logloom.transforms.rows.row_stream).
        rows: that the unit has.
        place: of the tally, for errors.

    Raises:
        DatasetError: it says something else, or is of other rows.
    """
    splits = tally.get("splits", ()) if isinstance(tally, dict) else None
    runs = checked(tuple[tuple[Text, Count], ...], splits, f"{place}: tally: splits")
    if runs and sum(number for _, number in runs) != rows:
        raise DatasetError(f"{place}: splits of other rows than the unit has; see `logloom verify`")
    return runs


def _counts(text: str) -> dict[str, int]:
    return checked(dict[Name, Count], parsed(text, "splits"), "splits")
