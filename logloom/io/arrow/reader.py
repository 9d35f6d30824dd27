"""Rows of a file with an Arrow table that declares its columns' types.

Here: `TableReader`: a file as groups of rows, and their blocks.
Elsewhere: Arrow and values (layout), the files (formats).
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from logloom.blocks import Block, Values, concatenate, take
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.arrow.layout import LOG_ID, TIME, ArrowLayout
from logloom.io.rows.log_ranges import Ints, Stretches
from logloom.io.rows.sources import BLOCK_BYTES, RowSource
from logloom.io.storage.folders import content_of
from logloom.io.storage.store import Store
from logloom.schema import Schema

_Piece = tuple[str, dict[str, Values]]  # the log_id of some rows, and columns of them
Runs = list[tuple[str, int]]  # see `ArrowLayout.log_runs`


class TableReader(RowSource):
    """The rows of one file. Keeps no file open; pickles, serves many threads, crosses a fork.

    Attributes:
        group_name: name of a group in messages; "" to name its rows.
    """

    group_name: ClassVar[str] = ""

    def __init__(
        self,
        store: Store,
        name: str,
        layout: ArrowLayout | None = None,
        entry: Mapping[str, Any] | None = None,
    ):
        """Prepare reading, without opening anything yet.

        Args:
            store, name: a folder, and the file in it.
            layout: of the rows; None for the one in the file, if any.
            entry: result of the writer's `close`, to check the number of rows. Without rows there is no file.
        """
        self.place = store.uri_of(name)
        self._store, self._name, self._known, self._entry = store, name, layout, entry
        self._token = object()  # identifies rows in caches of this process

    @property
    def own_layout(self) -> ArrowLayout | None:
        """Return the layout declared in the file; None if it has no valid one."""
        return None

    @abc.abstractmethod
    def _row_counts(self) -> Ints:
        """(G,) rows of each group.

        Raises:
            DatasetError: the file is damaged.
        """

    @abc.abstractmethod
    def _table(self, group: int, start: int, stop: int, columns: list[str]) -> Any:
        """Return columns by their names in the table, of a group with the rows [start, stop) of the file.

        Raises:
            DatasetError, ValueError, KeyError, IndexError: the file is damaged.
        """

    @cached_property
    def _layout(self) -> ArrowLayout:
        layout = self._known or self.own_layout
        if layout is None:
            raise DatasetError(f"{self.place}: has no types of its columns; convert its folder")
        return layout

    @property
    def schema(self) -> Schema:
        """Of the rows."""
        return self._layout.schema

    @cached_property
    def _bounds(self) -> Ints:
        """(G + 1,) where each group begins."""
        if self._entry is not None and not self._entry["rows"]:
            return np.zeros(1, np.int64)
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._row_counts(), dtype=np.int64)])
        if self._entry is not None and bounds[-1] != self._entry["rows"]:
            raise DatasetError(f"{self.place}: {bounds[-1]} rows, {self._entry['rows']} were written")
        return bounds

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def group_bounds(self, names: Sequence[str]) -> Ints:
        """See `RowSource.group_bounds`."""
        return self._bounds

    def content(self) -> tuple[str, int]:
        """Identifies the file and its bytes; see `content_of` (logloom.io.storage.folders)."""
        return content_of(self._store, [self._name])

    def groups(self) -> list[tuple[str, int, int]]:
        """List (place, start, stop) of rows that are read, or damaged, alone: groups with a name, else all.

        Raises:
            DatasetError: the file is damaged.
        """
        if not self.group_name:
            return [(self.place, 0, len(self))]
        bounds = itertools.pairwise(self._bounds.tolist())
        return [
            (f"{self.place}: {self.group_name} {number}", start, stop)
            for number, (start, stop) in enumerate(bounds)
        ]

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        stop = len(self) if stop is None else stop
        partition, last, done = str((self._entry or {}).get("partition", "")), "", 0
        for log_id, found in _joined(self._pieces((TIME, *names), max_bytes, start, stop), max_bytes):
            done = done if log_id == last else 0
            block = Block(log_id, partition, done, found)
            yield block
            last, done = log_id, done + len(block)

    def _pieces(self, names: Sequence[str], max_bytes: int, start: int, stop: int) -> Iterator[_Piece]:
        """Split rows [start, stop) into pieces of one group and one log, of about `max_bytes` at most."""
        # Not an array of all these positions: a file may declare any number of rows.
        for group, (first_row, end_row) in enumerate(itertools.pairwise(self._bounds.tolist())):
            low, high = max(start - first_row, 0), min(stop, end_row) - first_row
            if low >= high:
                continue
            runs, found = self._group(group, names)
            step = max(1, max_bytes * runs[-1][1] // max(1, _weight(found)))
            counts = np.diff([0, *(end for _, end in runs)]).tolist()
            stretches = Stretches.of_logs([log_id for log_id, _ in runs], counts)
            for log_id, first, end in stretches.between(low, high):
                for at in range(first, end, step):
                    rows = slice(at, min(at + step, end))
                    yield log_id, {name: take(values, rows) for name, values in found.items()}

    def _group(self, group: int, names: Sequence[str]) -> tuple[Runs, dict[str, Values]]:
        """The log_ids of a group's rows, and columns of them."""
        found = self._read(group, [LOG_ID, *names])
        return found.pop(LOG_ID), found

    def _read(self, group: int, names: Sequence[str]) -> dict[str, Any]:
        """Columns of a group; `log_id` as `Runs`."""
        start, stop = self._bounds[group : group + 2].tolist()
        what = f"{self.group_name} {group}" if self.group_name else f"rows {start} to {stop}"
        return self._values(
            what, names, stop - start, lambda columns: self._table(group, start, stop, columns)
        )

    def _values(
        self, what: str, names: Sequence[str], rows: int, read: Callable[[list[str]], Any]
    ) -> dict[str, Any]:
        """Read columns of a table of `rows` rows with `read`; `log_id` as `Runs`.

        Raises:
            DatasetError: not as written; names `what`.
        """
        layout = self._layout
        try:
            table = read([layout.stored(name) for name in names])
            if len(table) != rows:
                raise ValueError(f"{len(table)} rows instead of {rows}")
            found: dict[str, Any] = layout.values(table, [name for name in names if name != LOG_ID])
            if LOG_ID in names:
                found[LOG_ID] = layout.log_runs(table)
        except (ValueError, KeyError, IndexError) as error:
            raise DatasetError(f"{self.place}: {what}: damaged ({error})") from error
        return found


def logs_at(runs: Runs, rows: Ints) -> list[str]:
    """Return the log_id of each of some rows."""
    ends = np.array([end for _, end in runs])
    return [runs[number][0] for number in ends.searchsorted(rows, side="right").tolist()]


def _weight(columns: Mapping[str, Values]) -> int:
    return sum(values.nbytes for values in columns.values())


def _joined(pieces: Iterator[_Piece], max_bytes: int) -> Iterator[_Piece]:
    """Join neighbours of one log, up to `max_bytes`."""
    log_id, held, weight = "", list[dict[str, Values]](), 0
    for own, found in pieces:
        size = _weight(found)
        if held and (own != log_id or weight + size > max_bytes):
            yield log_id, _one(held)
            held, weight = [], 0
        log_id, weight = own, weight + size
        held.append(found)
    if held:
        yield log_id, _one(held)


def _one(pieces: Sequence[dict[str, Values]]) -> dict[str, Values]:
    if len(pieces) == 1:
        return pieces[0]
    return {name: concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
