"""Splits of rows in a build: dropping rows, and the column of splits.

Here: `RowSplitter`, and counting the splits of a log's rows.
Elsewhere: choosing a row's split (logloom.row_splits), the recipe (logloom.recipe),
the rows (row_stream).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from logloom.blocks import Ragged, Values
from logloom.row_splits import UNKNOWN, Labels, RowSplit, labels_by_place, labels_by_time, labels_by_value
from logloom.schema import STRING


class RowSplitter:
    """Assigns rows to splits.

    Attributes:
        inputs: the columns that it needs.
        names: of the splits, by their numbers.
        reasons: why rows are in no split, by label.
    """

    def __init__(self, split: RowSplit):
        self._split = split
        self._shares = dict(split.shares)
        self.inputs = (split.column,) if split.column else ()
        self.names = tuple(self._shares)
        self.reasons = split.reasons
        self._texts = Ragged.from_rows([np.frombuffer(name.encode(), "u1") for name in self.names], STRING)

    def labels(self, columns: Mapping[str, Values]) -> Labels:
        """Return the labels of rows.

        Args:
            columns: `timestamp` and `inputs`, with their availabilities, if any.
        """
        split, values = self._split, columns.get(self._split.column)
        cell, gap = float(split.cell), float(split.gap)
        if values is None:
            stamps = columns["timestamp"]
            assert isinstance(stamps, np.ndarray)
            return labels_by_time(stamps, cell, gap, self._shares)
        if split.by == "place":
            assert isinstance(values, np.ndarray)
            labels = labels_by_place(values[:, :2].astype(np.float64), cell, gap, self._shares)
        elif isinstance(values, Ragged):
            texts = [row.tobytes().decode("utf-8", "replace") for row in values]
            labels = labels_by_value(texts, self._shares)
        else:
            labels = labels_by_value(values.tolist(), self._shares)
        available = columns.get(f"{split.column}.available")
        if isinstance(available, np.ndarray):
            labels[~available] = UNKNOWN
        return labels

    def column(self, labels: Labels) -> Values:
        """Return the column of splits for rows that are all in one."""
        return self._texts.take(labels)

    def runs(self, labels: Labels) -> Iterator[tuple[str, int]]:
        """Return the split of each row and the number of rows, as runs."""
        starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1])[: len(labels)])
        counts = np.diff(np.append(starts, len(labels)))
        for label, count in zip(labels[starts].tolist(), counts.tolist(), strict=True):
            yield self.names[label], count


def joined_runs(runs: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Join neighbouring runs of the same split.

    >>> joined_runs([("train", 3), ("train", 2), ("val", 1)])
    (('train', 5), ('val', 1))
    """
    joined: list[tuple[str, int]] = []
    for name, count in runs:
        if joined and joined[-1][0] == name:
            count += joined.pop()[1]
        joined.append((name, count))
    return tuple(joined)


def rows_by_split(runs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Count the rows of each split that has some, by name."""
    counts: Counter[str] = Counter()
    for name, count in runs:
        counts[name] += count
    return dict(sorted(counts.items()))
