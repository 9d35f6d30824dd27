"""Rows of a window: neighbours in the stored log, even if the frame is filtered.

Here: `Windows`, which finds the rows around a position and their chunks; `steps_of`, which checks offsets.
Elsewhere: windows as arithmetic on positions (logloom.windows), reading them
(logloom.io.formats.table.read.loader), rows of a log as stored (logloom.io.formats.table.index.index).

Where the neighbours are in the frame too (an unfiltered frame), their places are taken from there. Otherwise
the log's index file is read, once. A window ends where the log ends, and at gaps longer than the table's
`max_gap`. In the second and later tables of a merge a neighbour is looked up by the merge's keys; a row that
one of them lacks doesn't exist.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.formats.table.index.index import StoredLog, read_log
from logloom.io.formats.table.read.frames import Ints, OpenFrame
from logloom.io.formats.table.read.merge import MergeStep
from logloom.io.formats.table.read.plans import Step
from logloom.io.formats.table.read.range_reader import RangeReader, Ranges
from logloom.io.storage.lru_cache import LruCache
from logloom.values import dataclass
from logloom.windows import rows_around, run_numbers, run_starts

_CACHE_BYTES = 256 << 20
_FARTHEST = 1 << 40  # rows from another
_NO_GAP = int(np.iinfo(np.int64).max)
_REPEATED = -2  # in place of a row's number: several have the key


@dataclass(frozen=True)
class RowWindow:
    """Rows around a position.

    Attributes:
        exists: (k,) whether there is such a row.
        origin: position of the row at offset 0.
        positions: (k,) of the rows in the frame; None if they have to be found as stored.
        stored: of each slot the log as stored, and the (k,) rows in it, -1 for rows that lack it.
    """

    exists: NDArray[np.bool_]
    origin: int
    positions: Ints | None = None
    stored: Sequence[tuple[StoredLog | None, Ints]] = ()


class Windows:
    """Finds the neighbours of rows. Pickles without what it has read, and serves many threads."""

    def __init__(
        self,
        frame: OpenFrame,
        max_gap: int | None,
        reader: RangeReader,
        storage_options: Mapping[str, Any] | None,
    ):
        """Take the slots of a frame; `max_gap` (ns) replaces that of the tables."""
        self._slots, self._steps, self._stamps = frame.slots, frame.steps, frame.stamps
        self._reader, self._storage = reader, storage_options
        self._max_gap, self._may_lack = max_gap, frame.may_lack
        self._runs: NDArray[np.int32] | None = None
        self._logs: LruCache[StoredLog] = LruCache(_CACHE_BYTES, least=1)

    def holds(self, position: int, low: int, high: int) -> bool:
        """Whether the rows from `low` to `high` around a row are in the frame as they are stored."""
        runs = self._runs
        if runs is None:
            runs = self._runs = self._find_runs()
        if position + low < 0 or position + high >= len(runs):
            return False
        return runs.item(position + low) == runs.item(position + high)

    def around(self, position: int, offsets: NDArray[np.int64], low: int, high: int) -> RowWindow:
        """Find the rows at `offsets` from a row.

        Args:
            position: of the row in the frame.
            offsets: (k,) rows as stored.
            low, high: the least and the greatest offset, or 0.
        """
        if self.holds(position, low, high):
            return RowWindow(np.ones(len(offsets), np.bool_), position, offsets + position)
        return self._stored_around(position, offsets)

    def _gap_of(self, table: int) -> int:
        gap = self._slots[0].descriptions[table].max_gap if self._max_gap is None else self._max_gap
        return _NO_GAP if gap is None else gap

    def _find_runs(self) -> NDArray[np.int32]:
        """(N,) equal numbers for rows of the frame that are neighbours in their log, without a gap."""
        slot = self._slots[0]
        logs, rows = slot.log_codes, slot.rows
        begins = np.ones(len(rows) + 1, np.bool_)
        begins[1:-1] = (logs[1:] != logs[:-1]) | (rows[1:] != rows[:-1] + 1)
        gaps = np.array([self._gap_of(table) for table in range(len(slot.tables))], np.int64)
        if (gaps == _NO_GAP).all():
            return run_numbers(run_starts(begins))
        if not self._stamps_are_stored():  # only the log's file shows where the gaps are
            return np.arange(len(rows), dtype=np.int32)
        return run_numbers(run_starts(begins, self._stamps, gaps[slot.tables_of_rows()[1:]]))

    def _stamps_are_stored(self) -> bool:
        """Whether the frame has the timestamps of its logs as stored, judged by the latest one."""
        if self._stamps is None or self._stamps.dtype != np.int64 or not len(self._stamps):
            return False
        latest = int(self._stamps.argmax())
        stored = self._log(0, latest).columns.get("timestamp")
        return stored is not None and stored[self._slots[0].rows[latest]] == self._stamps[latest]

    def _stored_around(self, position: int, offsets: NDArray[np.int64]) -> RowWindow:
        first = self._log(0, position)
        own = int(self._slots[0].rows[position])
        # The row itself comes last: its merged row shows whether the keys are unchanged.
        table = int(self._slots[0].table_of_log[self._slots[0].log_codes[position]])
        begins = np.zeros(first.rows + 1, np.bool_)
        starts = run_starts(begins, first.columns.get("timestamp"), self._gap_of(table))
        (rows,), (exists,) = rows_around(np.array([own]), np.append(offsets, 0), starts)
        stored: list[tuple[StoredLog | None, Ints]] = [(first, np.where(exists, rows, -1))]
        for step in self._steps:
            log = self._merged_log(step, position, stored)
            found = self._look_up(step, log, stored)
            stored.append((log, found))
            if step.how == "inner":
                self._leave_out(step.base, found < 0, stored)
        for step in self._steps:
            log, found = stored[step.slot]
            if log is not None and found[-1] != self._slots[step.slot].rows[position]:
                raise UsageError(
                    f"windows: position {position}: by {', '.join(step.on)} {log.uri} has another row than "
                    "the frame was merged with, so neighbours that the frame lacks can't be found; merge on "
                    "columns as they were read"
                )
        exists = stored[0][1] >= 0
        return RowWindow(exists[:-1], position, stored=[(log, found[:-1]) for log, found in stored])

    def _leave_out(
        self, base: int, lacking: NDArray[np.bool_], stored: Sequence[tuple[StoredLog | None, Ints]]
    ) -> None:
        """Remove rows from the tables from `base` on, and from those that these were merged with."""
        steps = {step.slot: step for step in self._steps}
        while base and steps[base].how == "inner":
            base = steps[base].base
        for _, rows in stored[base:]:
            rows[lacking] = -1

    def _merged_log(
        self, step: MergeStep, position: int, stored: Sequence[tuple[StoredLog | None, Ints]]
    ) -> StoredLog | None:
        """The log of a later table that a row's neighbours are merged with; None if there is none."""
        own = self._slots[step.slot]
        if own.log_codes[position] >= 0 or step.slot not in self._may_lack:
            return self._log(step.slot, position)
        # The row itself has no match; the key gives the log of those that have one.
        names = {log.log_id: log.file for table in own.descriptions for log in table.logs}
        left = dict(zip(step.right_on, step.on, strict=True)).get("log_id")
        if left is None:
            return self.log(step.slot, own.logs[0]) if len(own.logs) == 1 else None
        log, rows = next((log, rows) for log, rows in stored[step.base :] if log and left in log.columns)
        file = names.get(str(log.columns[left][rows.max()])) if log and rows.max() >= 0 else None
        uris = [uri for uri in own.logs if file is not None and uri.endswith(f"/{file}")]
        return self.log(step.slot, uris[0]) if uris else None

    def _look_up(
        self, step: MergeStep, log: StoredLog | None, stored: Sequence[tuple[StoredLog | None, Ints]]
    ) -> Ints:
        """Find (k,) rows of a later table's log with the keys of the rows found so far; -1: none.

        Raises:
            UsageError: the index lacks a key, or a key is of several rows.
        """
        exists = stored[step.base][1] >= 0
        if "log_id" not in step.right_on and len(self._slots[step.slot].logs) > 1:
            raise UsageError(
                f"windows: merged on {', '.join(step.on)}, which doesn't show the log among the "
                f"{len(self._slots[step.slot].logs)} of table {step.slot + 1}, so neighbours that the frame "
                "lacks can't be found; merge on log_id too"
            )
        if log is None or not exists.any():
            return np.full(len(exists), -1)
        columns = []
        for key, right in zip(step.on, step.right_on, strict=True):
            holders = [(own, rows) for own, rows in stored[step.base :] if own and key in own.columns]
            if not holders or right not in log.columns:
                raise UsageError(
                    f"windows: the merge key {right!r} is no index column of {log.uri}, so neighbours that "
                    "the frame lacks can't be found"
                )
            columns.append(holders[0][0].columns[key][holders[0][1]].tolist())
        lookup = log.lookups.get(step.right_on)
        if lookup is None:
            lookup = {}
            keys = zip(*(log.columns[key].tolist() for key in step.right_on), strict=True)
            for row, values in enumerate(keys):
                lookup[values] = _REPEATED if values in lookup else row
            log.lookups[step.right_on] = lookup
        found = np.array([lookup.get(key, -1) for key in zip(*columns, strict=True)], np.int64)
        if (found[exists] == _REPEATED).any():
            raise UsageError(
                f"windows: several rows of {log.uri} share their {', '.join(step.on)}, so neighbours that "
                "the frame lacks can't be found; merge on columns that distinguish them"
            )
        return np.where(exists, found, -1)

    def _log(self, slot: int, position: int) -> StoredLog:
        code = int(self._slots[slot].log_codes[position])
        if code < 0:
            raise UsageError(
                f"position {position}: this row was never merged with table {slot + 1} of the frame"
            )
        return self.log(slot, self._slots[slot].logs[code])

    def log(self, slot: int, uri: str, *, hashes: bool = False) -> StoredLog:
        """Read a log as stored; the last ones used are cached."""
        key = (slot, uri, hashes)
        found = self._logs.get(key)
        if found is not None:
            return found
        own = self._slots[slot]
        table = own.descriptions[own.table_of_log[own.logs.index(uri)]]
        wanted = {"timestamp", *(key for step in self._steps for key in (*step.on, *step.right_on))}
        found = read_log(
            uri,
            table,
            [name for name in table.index if name in wanted],
            hashes=hashes,
            storage_options=self._storage,
        )
        self._logs.put(key, found)
        return found

    def present(self, step: Step, window: RowWindow) -> NDArray[np.bool_]:
        """(k,) whether the row exists and has a row of the step's table."""
        if window.positions is not None:
            if step.places.is_whole:
                return window.exists
            return window.exists & (step.places.codes[window.positions] >= 0)
        return window.exists & (window.stored[step.slot][1] >= 0)

    def ranges(self, step: Step, window: RowWindow) -> Ranges:
        """(file, offset, length) of a group's chunks for the rows of a window; undefined for missing rows."""
        if window.positions is not None:
            return step.places.take(window.positions)
        log, rows = window.stored[step.slot]
        if log is None:
            return (np.zeros(len(rows), np.int64),) * 3
        uris, codes = log.blobs[step.group]
        files = np.array([self._reader.number_of(uri) for uri in uris], np.int64)
        places = log.places[step.group][rows]
        return files[codes[rows]], places[:, 0], places[:, 1]

    def stamps(self, window: RowWindow) -> NDArray[np.int64]:
        """(k,) timestamps of the rows of a window."""
        if window.positions is not None:
            assert self._stamps is not None
            return self._stamps[window.positions]
        log, rows = window.stored[0]
        assert log is not None  # it is the row's own
        return log.columns["timestamp"][rows]


def steps_of(offsets: Sequence[int], stride: int) -> tuple[NDArray[np.int64], int, int, bool]:
    """Multiply offsets by stride; return them, the least and the greatest of them and 0, and whether
    they are consecutive.

    Raises:
        UsageError: they aren't integers, or too far; the stride is less than 1.
    """
    if isinstance(offsets, range):
        return _steps(offsets, frozenset(), stride)
    return _steps(tuple(offsets), frozenset(map(type, offsets)), stride)  # since True and 1.0 are equal to 1


@functools.lru_cache(maxsize=256)
def _steps(
    offsets: Sequence[int], kinds: frozenset[type], stride: int
) -> tuple[NDArray[np.int64], int, int, bool]:
    given = np.array(offsets)
    if (given.size and given.dtype.kind != "i") or stride != int(stride) or stride < 1:
        raise UsageError(f"offsets {offsets}, stride {stride}: offsets are whole, strides from 1 on")
    if given.size and int(np.abs(given).max()) * int(stride) > _FARTHEST:
        raise UsageError(f"offsets {offsets}, stride {stride}: no log has so many rows")
    steps = given.astype(np.int64) * stride
    consecutive = len(steps) > 0 and bool((np.diff(steps) == 1).all())
    return steps, int(min(0, *steps, 0)), int(max(0, *steps, 0)), consecutive
