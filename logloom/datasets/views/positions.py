"""Choose rows of an open dataset: pure functions on arrays of row positions.

Here: shuffling, sharding, taking, the rows of windows (`SampleWindows`), and a digest of the chosen rows.
Elsewhere: windows as arithmetic on positions (logloom.windows), the dataset that holds such an array
(logloom.datasets.dataset), reading rows (its source).
Positions are int64 numbers of rows in stored order, (n,) each, or a range, which takes no memory.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from blake3 import blake3
from numpy.typing import ArrayLike, NDArray

from logloom.digests import digest_of
from logloom.durations import Time, offset_of
from logloom.errors import UsageError
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.values import dataclass
from logloom.windows import nearest_rows, rows_around, run_starts, whole_windows, within_runs

Ints = NDArray[np.int64]
Rows = Ints | range
Many = slice | list[int] | list[bool] | range | NDArray[Any]  # numbers of several rows, or a mask
Offsets = Sequence[int] | Sequence[Time] | NDArray[Any]
OnEdge = Literal["drop", "pad", "repeat", "error"]
ON_EDGE = ("drop", "pad", "repeat", "error")
_TIMES = (float, str, datetime.timedelta, np.floating, np.timedelta64)
_FARTHEST = 1 << 60  # rows or ns of an offset, with its stride
_AT_ONCE = 1 << 20  # rows of windows that are looked up together


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
                f"take({count}): how many rows can't be negative; take([{count}]) returns that row"
            )
        return positions[:count]
    return at(positions, checked(which, len(positions)))


def last_of(positions: Rows, count: int) -> Rows:
    """The last positions, or all where there are fewer.

    Raises:
        UsageError: the count is negative.
    """
    if (count := operator.index(count)) < 0:
        raise UsageError(
            f"tail({count}): how many rows can't be negative; rows[{-count}:] skips {-count} rows"
        )
    return positions[max(0, len(positions) - count) :]


def checked(numbers: ArrayLike | slice, length: int, outside: type[Exception] = UsageError) -> Ints:
    """(k,) numbers of rows as they count from 0.

    Args:
        numbers: negative ones count from the end; a slice; or (length,) bool, of which true ones are chosen.

    Raises:
        UsageError: one is no integer, or a mask has another length; `outside`: one is out of range.
    """
    if isinstance(numbers, slice):
        return np.arange(length)[numbers]
    found = np.asarray(numbers)
    if found.dtype == np.bool_ and found.ndim:
        if found.shape != (length,):
            shown = len(found) if found.ndim == 1 else list(found.shape)
            raise UsageError(f"a mask of {shown} for {length} rows; it has a True or False for each row")
        return np.flatnonzero(found)
    if found.size == 0:
        return np.empty(0, np.int64)
    is_long = found.dtype.hasobject and all(isinstance(one, int) for one in found.flat)  # beyond 64 bits
    if found.ndim != 1 or not (is_long or found.dtype.kind in "iu"):
        raise UsageError(f"rows are chosen by (k,) integers or bools, not {found.dtype}{list(found.shape)}")
    beyond = (found < -length) | (found >= length)  # before uint64 wraps around
    if beyond.any():
        raise outside(f"row {found[beyond][0]} of {length}")
    rows = found.astype(np.int64)
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
        steps: (k,) rows before (negative) or after, as stored; or ns, for the rows nearest to these times.
        runs: (R + 1,) where runs begin; windows don't leave theirs.
        on_edge: what becomes of windows that would.
        is_time: whether steps are ns.
        tolerance: ns from a time to its row, see `nearest_rows`.
    """

    steps: Ints
    runs: Ints
    on_edge: OnEdge
    is_time: bool = False
    tolerance: int | None = None

    def rows(self, positions: Ints, stamps: Ints | None = None) -> tuple[Ints, NDArray[np.bool_]]:
        """(n, k) positions around each row, and which of them are rows of its run.

        Args:
            stamps: (N,) ns of all rows, where steps are times.
        """
        if not self.is_time:
            rows, exists = rows_around(positions, self.steps, self.runs)
            return (within_runs(rows, positions, self.runs) if self.on_edge == "repeat" else rows), exists
        assert stamps is not None
        return nearest_rows(positions, self.steps, self.runs, stamps, self.tolerance)

    def whole(self, positions: Ints, stamps: Ints | None = None) -> Ints:
        """The positions whose windows are whole."""
        if not self.is_time:
            return whole_windows(positions, self.steps, self.runs)
        step = max(1, _AT_ONCE // len(self.steps))
        parts = [positions[start : start + step] for start in range(0, len(positions), step)]
        kept = [part[self.rows(part, stamps)[1].all(axis=1)] for part in parts]
        return np.concatenate([positions[:0], *kept])


@dataclass(frozen=True)
class SampleWindows:
    """Which columns of a sample are windows, and of which rows.

    Attributes:
        all: of every column and of `timestamp`; None where columns have windows of their own.
        columns: of these, by name; the others have the value of the row itself.
        on_edge: what becomes of windows that would leave their run.
        mask: the key of the (k,) mask of rows that exist, or the last part of a key `column.mask` for each.
    """

    all: WindowSpec | None
    columns: Mapping[str, WindowSpec]
    on_edge: OnEdge
    mask: str

    def of(self, name: str) -> WindowSpec | None:
        """The window of a column, or of `timestamp`; None where a sample has one value."""
        return self.columns.get(name) if self.all is None else None if name == "log_id" else self.all

    def masks(self, names: Sequence[str]) -> dict[str, WindowSpec]:
        """The keys of the masks of a sample that has these columns."""
        if self.on_edge not in ("pad", "repeat"):
            return {}
        if self.all is not None:
            return {self.mask: self.all}
        known = ("timestamp", *names)
        return {f"{name}.{self.mask}": self.columns[name] for name in known if name in self.columns}

    @property
    def specs(self) -> Sequence[WindowSpec]:
        """Each that there is, once."""
        found = self.columns.values() if self.all is None else [self.all]
        return list({id(spec): spec for spec in found}.values())

    def whole(self, positions: Ints, source: RowSource) -> Ints:
        """The positions of a source all of whose windows are whole."""
        for spec in self.specs:
            positions = spec.whole(positions, source.stamps if spec.is_time else None)
        return positions

    def __str__(self) -> str:
        if self.all is not None:
            return f"windows of {_shown(self.all)}"
        return "windows: " + "; ".join(f"{name}: {_shown(spec)}" for name, spec in self.columns.items())


def _shown(spec: WindowSpec) -> str:
    low, high = spec.steps.min().item(), spec.steps.max().item()
    if spec.is_time:
        return f"{len(spec.steps)} times, {low / 1e9:g} to {high / 1e9:g} s"
    return f"{len(spec.steps)} rows, {low} to {high}"


def _is_rows(offset: Any) -> bool:
    return (
        isinstance(offset, int | np.integer) and not isinstance(offset, bool) and abs(int(offset)) < 1 << 48
    )


def steps_of(offsets: Offsets, stride: int) -> tuple[Ints, bool]:
    """(k,) offsets times the stride, in rows or in ns; and whether they are ns.

    Raises:
        UsageError: no offsets, or none that are integers or lengths of time.
    """
    listed: list[Any] = [] if isinstance(offsets, str) or not np.iterable(offsets) else list(offsets)
    is_time = any(isinstance(one, _TIMES) for one in listed)
    if operator.index(stride) < 1:
        raise UsageError(f"window: stride={stride}; it is at least 1")
    if is_time:
        steps = np.array([offset_of(one, "window: offset") for one in listed], np.int64)
    elif listed and all(_is_rows(one) for one in listed):
        steps = np.array(listed, np.int64)
    else:
        raise UsageError(
            "window: offsets are integers such as range(-10, 1), or times such as ['-200ms', '0ms'] or, in "
            f"seconds, [-0.2, 0.0], got {offsets!r:.80}"
        )
    if int(np.abs(steps).max()) * operator.index(stride) > _FARTHEST:
        raise UsageError(f"window: stride={stride}: no log is so long")
    return steps * operator.index(stride), is_time


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
