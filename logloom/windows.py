"""Windows of rows: the rows at some offsets around a row, within its run.

Here: the beginnings of runs, and the rows of windows, as arithmetic on positions and times.
Elsewhere: views of datasets (logloom.datasets.views.positions).

A run is rows of one log, side by side as stored, without a gap that is too long:

    rows      0  1  2 | 3  4 | 5  6         starts 0 3 5 7
    of log    a  a  a | a  a | b  b         (a has a gap between rows 2 and 3)
    around 3 at -1, 0, 1: rows 2 3 4, of which 3 and 4 exist

Positions are int64 numbers of rows, offsets too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def run_starts(
    begins: NDArray[np.bool_], stamps: Ints | None = None, max_gap: int | Ints | None = None
) -> Ints:
    """(R + 1,) where each of R runs begins, and where the last one ends.

    Args:
        begins: (N + 1,) rows before which a run ends anyway; the first and the last may be anything.
        stamps: (N,) ns; None where there are none.
        max_gap: ns between two rows of a run, one for all or (N - 1,); None: no limit.

    >>> begins = np.array([True, False, False, False, True, False])
    >>> run_starts(begins, np.array([0, 10, 90, 100, 110]), 20).tolist()
    [0, 2, 4, 5]
    """
    starts = begins.copy()
    starts[[0, -1]] = True
    if max_gap is not None and stamps is not None:
        starts[1:-1] |= np.diff(stamps) > max_gap
    return np.flatnonzero(starts).astype(np.int64)


def run_numbers(starts: Ints) -> NDArray[np.int32]:
    """Return (N,) the run of each row, for looking up one row at a time.

    >>> run_numbers(np.array([0, 2, 4, 5])).tolist()
    [0, 0, 1, 1, 2]
    """
    return np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))


def rows_around(positions: Ints, offsets: Ints, starts: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Return (n, k) the rows at (k,) offsets from (n,) rows, and which of them are in the same run.

    >>> rows, exists = rows_around(np.array([3]), np.array([-1, 0, 1]), np.array([0, 3, 5, 7]))
    >>> rows.tolist(), exists.tolist()
    ([[2, 3, 4]], [[False, True, True]])
    """
    rows = positions[:, None] + offsets
    run = np.searchsorted(starts, positions, side="right")[:, None]
    return rows, (rows >= starts[run - 1]) & (rows < starts[run])


def within_runs(rows: Ints, positions: Ints, starts: Ints) -> Ints:
    """Return (n, k) rows around (n,) positions, each brought to the nearest row of the position's run.

    >>> within_runs(np.array([[2, 3, 9]]), np.array([3]), np.array([0, 3, 5, 7])).tolist()
    [[3, 3, 4]]
    """
    run = np.searchsorted(starts, positions, side="right")[:, None]
    return np.clip(rows, starts[run - 1], starts[run] - 1)


def nearest_rows(
    positions: Ints, deltas: Ints, starts: Ints, stamps: Ints, tolerance: int | None
) -> tuple[Ints, NDArray[np.bool_]]:
    """Return (n, k) the rows of the same run nearest to (k,) times from (n,) rows, and which are near enough.

    Args:
        deltas: ns before (negative) or after; 0 is the row itself.
        stamps: (N,) ns, ascending within runs. Of two rows that are equally near the earlier one counts.
        tolerance: ns to the nearest row; None: any, for times between the first and the last row of the run.

    >>> starts, stamps = np.array([0, 3, 5]), np.array([0, 10, 21, 50, 60])
    >>> rows, exists = nearest_rows(np.array([1]), np.array([-10, 12, 20]), starts, stamps, 2)
    >>> rows.tolist(), exists.tolist()
    ([[0, 2, 2]], [[True, True, False]])
    """
    rows = np.empty((len(positions), len(deltas)), np.int64)
    exists = np.empty(rows.shape, np.bool_)
    run = np.searchsorted(starts, positions, side="right")
    order = np.argsort(run, kind="stable")
    cuts = np.flatnonzero(np.diff(run[order])) + 1
    for some in np.split(order, cuts) if len(order) else ():
        first, stop = starts[run[some[0]] - 1], starts[run[some[0]]]
        times = stamps[first:stop]
        wanted = stamps[positions[some]][:, None] + deltas
        after = np.minimum(np.searchsorted(times, wanted), len(times) - 1)
        before = np.maximum(after - 1, 0)
        found = np.where(wanted - times[before] <= np.abs(times[after] - wanted), before, after)
        found = np.where(
            deltas == 0, positions[some][:, None] - first, found
        )  # also where two times are equal
        rows[some] = found + first
        if tolerance is None:
            exists[some] = (wanted >= times[0]) & (wanted <= times[-1])
        else:
            exists[some] = np.abs(times[found] - wanted) <= tolerance
    return rows, exists


def whole_windows(positions: Ints, offsets: Ints, starts: Ints) -> Ints:
    """Return positions whose windows, with all rows between the offsets, are within one run.

    >>> whole_windows(np.arange(7), np.array([-1, 0]), np.array([0, 3, 5, 7])).tolist()
    [1, 2, 4, 6]
    """
    low, high = offsets.min(initial=0), offsets.max(initial=0)
    run = np.searchsorted(starts, positions, side="right")
    is_whole = (positions + low >= starts[run - 1]) & (positions + high < starts[run])
    return positions[np.flatnonzero(is_whole)]
