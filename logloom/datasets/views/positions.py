"""Choose rows of an open dataset: pure functions on arrays of row positions.

Here: shuffling, sharding, taking, the rows of windows (`WindowSpec`), and a digest of the chosen rows.
Elsewhere: windows as arithmetic on positions (logloom.windows), the dataset that holds such an array
(logloom.datasets.dataset), reading rows (its source).
Positions are int64 numbers of rows in stored order, (n,) each, or a range, which takes no memory.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from blake3 import blake3
from numpy.typing import ArrayLike, NDArray

from logloom.digests import digest_of
from logloom.errors import UsageError
from logloom.io.rows.log_ranges import Stretches
from logloom.values import dataclass
from logloom.windows import rows_around, run_starts, whole_windows

Ints = NDArray[np.int64]
Rows = Ints | range
OnEdge = Literal["drop", "pad", "error"]
ON_EDGE = ("drop", "pad", "error")


def array_of(rows: Rows) -> Ints:
    """(n,) the positions, one by one."""
    return np.arange(rows.start, rows.stop, rows.step, dtype=np.int64) if isinstance(rows, range) else rows


def at(rows: Rows, numbers: Ints) -> Ints:
    """(k,) the positions that have these numbers, which count from 0."""
    return rows.start + numbers * rows.step if isinstance(rows, range) else rows[numbers]


def shuffled(positions: Ints, seed: int) -> Ints:
    """The positions in an order that depends on the seed and their number alone."""
    return positions[np.random.default_rng(seed).permutation(len(positions))]


def shard_of(positions: Rows, number: int, count: int) -> Rows:
    """Every `count`-th position, from the `number`-th on: shards share out all, none twice.

    Raises:
        UsageError: there is no such shard.
    """
    number, count = operator.index(number), operator.index(count)
    if not 0 <= number < count:
        raise UsageError(f"shard {number} of {count}: shards are numbered from 0 to their count less 1")
    return positions[number::count]


def taken(positions: Rows, which: Any) -> Rows:
    """Some of the positions.

    Args:
        which: how many of the first, or fewer where there aren't as many; a slice; numbers in any order,
            negative ones from the end; or (n,) bool.

    Raises:
        UsageError: a number out of range, or a mask of another length.
    """
    if isinstance(which, slice):
        return positions[which]
    if not isinstance(which, Sequence | np.ndarray) and hasattr(which, "__index__"):
        count = operator.index(which)
        if count < 0:
            raise UsageError(
                f"take({count}): how many rows can't be negative; take([{count}]) takes that row"
            )
        return positions[:count]
    chosen = np.asarray(which)
    if chosen.dtype == np.bool_:
        if chosen.shape != (len(positions),):
            raise UsageError(f"take: a mask of {chosen.size} for {len(positions)} rows")
        chosen = np.flatnonzero(chosen)
    return at(positions, checked(chosen, len(positions)))


def checked(numbers: ArrayLike, length: int, outside: type[Exception] = UsageError) -> Ints:
    """(k,) numbers of rows as they count from 0.

    Raises:
        UsageError: one is no integer; `outside`: one is out of range.
    """
    found = np.asarray(numbers)
    if found.size == 0:
        return np.empty(0, np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise UsageError(f"rows are chosen by (k,) integers or bools, not {found.dtype}{list(found.shape)}")
    rows = found.astype(np.int64)
    beyond = (rows < -length) | (rows >= length)
    if beyond.any():
        raise outside(f"row {rows[beyond][0]} of {length}")
    return np.where(rows < 0, rows + length, rows)


def runs_of(
    stretches: Stretches, stamps: Ints | None, max_gap: int | None, borders: NDArray[np.bool_] | None = None
) -> Ints:
    """(R + 1,) where runs begin: rows of one log without a gap longer than `max_gap` ns.

    Args:
        borders: (N,) rows before which a run ends, too.
    """
    begins = np.zeros(stretches.num_rows + 1, np.bool_)
    if borders is not None:
        begins[:-1] = borders
    begins[stretches.log_starts()] = True
    return run_starts(begins, stamps, max_gap)


@dataclass(frozen=True)
class WindowSpec:
    """The rows around a row.

    Attributes:
        steps: (k,) rows before (negative) or after, as stored.
        runs: (R + 1,) where runs begin; windows don't leave theirs.
        on_edge: what becomes of windows that would.
        mask: the key of a padded window's (k,) mask of rows that exist.
    """

    steps: Ints
    runs: Ints
    on_edge: OnEdge
    mask: str

    def rows(self, positions: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """(n, k) positions around each row, and which of them are rows of its run."""
        return rows_around(positions, self.steps, self.runs)

    def whole(self, positions: Ints) -> Ints:
        """The positions whose windows are whole."""
        return whole_windows(positions, self.steps, self.runs)


def steps_of(offsets: Sequence[int], stride: int) -> Ints:
    """(k,) offsets times the stride.

    Raises:
        UsageError: no offsets, or none that are integers.
    """
    try:
        steps = np.asarray(list(offsets))
    except (TypeError, ValueError):  # no sequence, or lists of several lengths
        steps = np.empty(0)
    if steps.ndim != 1 or not steps.size or steps.dtype.kind not in "iu":
        raise UsageError(f"window: offsets are integers such as range(-10, 1), got {offsets!r}")
    if operator.index(stride) < 1:
        raise UsageError(f"window: stride={stride}; it is at least 1")
    return steps.astype(np.int64) * operator.index(stride)


def digest_of_rows(rows: Rows, stretches: Stretches) -> str:
    """Digest a choice of rows: their logs and numbers, in order.

    The same for any format that has the rows, however it stores logs.
    """
    starts = stretches.log_starts()
    if isinstance(rows, range) and rows.step == 1:
        borders = np.unique(starts)
        cuts = borders[(borders > rows.start) & (borders < rows.stop)] - rows.start
    else:
        positions = array_of(rows)
        logs = starts[stretches.number_of(positions)]
        cuts = np.flatnonzero((np.diff(positions) != 1) | (np.diff(logs) != 0)) + 1
    # A run is rows of a log that follow each other: the log, its row that comes first, and how many.
    begins = np.append(0, cuts)[: len(rows)]
    firsts, counts = at(rows, begins), np.diff(np.append(begins, len(rows)))
    unique, inverse = np.unique(stretches.number_of(firsts), return_inverse=True)
    inverse = inverse.reshape(-1)
    owners = stretches.owners or [0] * len(stretches.log_ids)
    logs_of = [(owners[n], stretches.splits[n], stretches.log_ids[n]) for n in unique.tolist()]
    known = {log: number for number, log in enumerate(sorted(set(logs_of)))}
    numbers = np.array([known[log] for log in logs_of], np.int64)
    runs = np.stack([numbers[inverse], firsts - starts[unique][inverse], counts], axis=1)
    data = np.ascontiguousarray(runs, "<i8")
    return digest_of([list(known), blake3(data.view(np.uint8).data).hexdigest()])
