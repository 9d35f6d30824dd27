"""Splits of a dataset that share no place, no time, or no value of a column.

Here: `split`, which cuts a dataset that is there; `nearest` and `nearest_in_time`, which prove how far splits
are apart.
Elsewhere: which split a row falls into (logloom.row_splits), splits that builds make (`split` of recipes).
"""

from __future__ import annotations

import datetime
import fnmatch
import itertools
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from logloom.blocks import Array
from logloom.datasets.dataset import Dataset
from logloom.datasets.splits.distances import least_distance, least_time
from logloom.datasets.views.column_choice import names_of
from logloom.durations import Time, nanoseconds_of
from logloom.errors import UsageError
from logloom.io.rows.log_ranges import Ints
from logloom.row_splits import (
    UNKNOWN,
    Labels,
    Shares,
    labels_by_place,
    labels_by_time,
    labels_by_value,
    listing_split,
    position_problem,
    value_problem,
    with_names,
)
from logloom.schema import ColumnType
from logloom.text import near_to

_ROWS_AT_ONCE = 1 << 16
_ROUNDING = Fraction(1, 10**6)  # of shares that sum to 1, such as 0.333333 three times


def split(
    rows: Dataset[Any],
    shares: Mapping[str, float | str | Fraction | Decimal | Sequence[str]],
    *,
    by: str,
    cell: Time | None = None,
    gap: Time = 0.0,
    position: str | None = None,
) -> dict[str, Dataset[Any]]:
    """The rows of a dataset in splits that share no place, no time, or no value of a column.

        parts = logloom.datasets.split(
            rows, {"train": 0.8, "val": 0.2}, by="place", position="ego.position", cell=500, gap=50
        )

    Rows nearer than `gap` to a cell of another split are in no split, nor are those without a position, or
    a value. Two rows of different splits so are at least `gap` apart, of any logs. Windows made of a split
    stay within it. Reads, here and now, the column that decides, of all rows.

    Args:
        rows: any dataset; `window` and `map` come after.
        shares: by name; they sum to 1, within rounding: three times 1/3 will do. Or whole numbers, in
            proportion: {"train": 8, "val": 2}. A hash of its number decides the split of a cell, so of many
            cells each split has about its share. By "log_id", a list instead of a share names logs, or
            patterns of them: `{"train": 1, "val": ["take_003"]}`. The name of a log is no pattern.
        by: "place", "time", or the name of a column of texts or whole numbers, whose value decides.
        cell: on a side: metres, or time, as a text ("24h") or in seconds.
        gap: metres, or time; at most a cell.
        position: the column of the positions, of which the first two numbers count: metres, in one frame for
            all logs.

    Raises:
        UsageError: an argument makes no sense; the column doesn't exist, or has an unsuitable type.
    """
    if rows.is_mapped or rows.window_steps:
        raise UsageError("split: the dataset has windows or was mapped; split first, then window or map")
    if not isinstance(shares, Mapping):
        raise UsageError(
            f"split: shares={shares!r:.60}; pass a dict of names and shares, as in "
            "{'train': 0.8, 'val': 0.2}"
        )
    listed: dict[str, Any] = {
        name: part for name, part in shares.items() if not isinstance(part, numbers.Number | str | np.generic)
    }
    if listed and by != "log_id":
        raise UsageError(f"split: {min(listed)} lists logs, which goes with by='log_id'")
    exact = _exact({name: part for name, part in shares.items() if name not in listed})
    if by == "place":
        labels = labels_by_place(positions_of(rows, position), *_lengths(by, cell, gap), exact)
    elif by == "time":
        if (stamps := rows.source.stamps) is None:
            raise UsageError(f"{rows.place}: rows have no timestamps to split them by")
        labels = labels_by_time(stamps, *_lengths(by, cell, gap), exact)
    else:
        labels = _by_value(rows, by, exact)
    names = [*exact, *listed]
    if listed:
        labels = _with_listed(rows, labels, listed, names)
    own = labels[rows.positions]
    return {name: rows.apart(own == names.index(name), labels) for name in shares}


def _with_listed(
    rows: Dataset[Any], labels: Labels, listed: Mapping[str, Sequence[str]], names: Sequence[str]
) -> Labels:
    """Return the labels of rows, with those of listed logs replaced.

    Raises:
        UsageError: no log has a listed name, a list is empty, or two have the same name.
    """
    stretches = rows.source.stretches
    known = list(dict.fromkeys(stretches.log_ids))
    owners: dict[str, str] = {}
    for split_name, logs in listed.items():
        if not len(logs):
            raise UsageError(f"split: {split_name}: a list of logs has the log_id of at least one")
        for log in logs:
            if not any(fnmatch.fnmatchcase(log_id, log) or log_id == log for log_id in known):
                raise UsageError(f"split: {split_name}: no log has the log_id {log!r}{near_to(log, known)}")
            if (other := owners.setdefault(log, split_name)) != split_name:
                raise UsageError(f"split: {split_name}: {log!r} is in {other}, too; leave it out of one")
    listed = with_names(listed, known)
    found = (listing_split(log_id, listed) for log_id in stretches.log_ids)
    numbers = np.array([-1 if name is None else names.index(name) for name in found], np.int32)
    own = np.repeat(numbers, stretches.counts)
    return np.where(own < 0, labels, own)


def _lengths(by: str, cell: Time | None, gap: Time) -> tuple[float, float]:
    """Metres, or seconds, of a cell and a gap."""
    length: Any = cell
    apart: Any = gap
    if by == "time" and cell is not None:
        length, apart = (nanoseconds_of(cell, "split: cell") / 1e9, nanoseconds_of(gap, "split: gap") / 1e9)
    elif any(isinstance(one, str | datetime.timedelta | np.timedelta64) for one in (cell, gap)):
        raise UsageError(f"split: cell={cell!r}, gap={gap!r}: lengths of places are numbers of metres")
    if length is None or not 0 < float(length) < math.inf or not 0 <= float(apart) <= float(length):
        raise UsageError(
            f"split: cell={cell}, gap={gap}: the cell must be larger than 0 and at least as large as the gap"
        )
    return float(length), float(apart)


def _exact(shares: Mapping[str, Any]) -> dict[str, Fraction]:
    """Shares that sum to 1, of shares that do so within rounding, or of whole numbers in proportion.

    Raises:
        UsageError: one isn't above 0, or they sum to something else.
    """
    shown = f"split: shares {dict(shares)}"
    try:
        exact = {name: Fraction(str(share)) for name, share in shares.items()}  # of a float its decimal
    except (ValueError, ZeroDivisionError):  # NaN, too
        exact = {}
    if not exact or min(exact.values()) <= 0:
        raise UsageError(f"{shown}: each is a number above 0; leave out splits that get nothing")
    total = sum(exact.values(), Fraction(0))
    are_weights = all(isinstance(share, numbers.Integral | np.integer) for share in shares.values())
    if not are_weights and abs(total - 1) > _ROUNDING:
        raise UsageError(
            f"{shown}: they sum to {float(total):.6g}, not to 1; change one, or pass whole numbers in "
            'proportion, such as {"train": 8, "val": 2}'
        )
    return {name: share / total for name, share in exact.items()}


def positions_of(rows: Dataset[Any], column: str | None) -> Array:
    """(N, 2) float64 positions of all rows of the source, in metres; NaN where one is unavailable.

    Raises:
        UsageError: there is no such column, or it holds no positions in metres.
    """
    if column is None:
        raise UsageError("split: name the column of positions, with position=…")
    problem = position_problem(_type_of(rows, column))
    if problem:
        raise UsageError(f"{rows.place}: {column} {problem}")
    found = [np.empty((0, 2))]
    for one in _read(rows, column):
        places = np.asarray(one[column][:, :2], np.float64)
        found.append(np.where(_available(column, one)[:, None], places, np.nan))
    return np.concatenate(found)


def _type_of(rows: Dataset[Any], column: str) -> ColumnType:
    names = names_of([column], rows.source.schema, None, rows.place)
    if names != (column,) or column not in rows.source.schema.columns:
        raise UsageError(f"{rows.place}: {column!r} names no single column; its name does")
    return rows.source.schema.columns[column]


def _read(rows: Dataset[Any], column: str) -> Iterator[Mapping[str, Any]]:
    """A column of all rows of the source, and whether it is available where that is stored."""
    source = rows.source
    names = [name for name in (column, f"{column}.available") if name in source.schema.all]
    for start in range(0, len(source), _ROWS_AT_ONCE):
        yield source.take(np.arange(start, min(start + _ROWS_AT_ONCE, len(source))), names)


def _available(column: str, values: Mapping[str, Any]) -> Array:
    """(n,) bool, of some rows."""
    name = f"{column}.available"
    return np.asarray(values[name], np.bool_) if name in values else np.ones(len(values[column]), np.bool_)


def _by_value(rows: Dataset[Any], column: str, shares: Shares) -> Labels:
    if column == "log_id":
        stretches = rows.source.stretches
        return np.repeat(labels_by_value(stretches.log_ids, shares), stretches.counts)
    if column in rows.source.small and column not in rows.source.schema.columns:  # of a table's index
        found = rows.source.small[column]
        if found.dtype.kind in "biuOSU":
            return labels_by_value(found.tolist(), shares)
        problem: str | None = f"is {found.dtype}; rows are split by a column of texts or whole numbers"
    else:
        problem = value_problem(_type_of(rows, column))
    if problem:
        raise UsageError(f'{rows.place}: {column} {problem}, by="place" or by="time"')
    labels = [np.empty(0, np.int32)]
    for one in _read(rows, column):
        values = one[column]  # a list of texts stays one: numpy would make all as wide as the longest
        own = labels_by_value(values.tolist() if isinstance(values, np.ndarray) else list(values), shares)
        labels.append(np.where(_available(column, one), own, UNKNOWN).astype(np.int32))
    return np.concatenate(labels)


class Nearest(NamedTuple):
    """The two rows of two splits that are nearest to each other, or were recorded nearest.

    Attributes:
        splits: their names.
        apart: metres, or seconds; infinite where one has no position, or no rows.
        rows: (log_id, timestamp) of each; () where there are none.
    """

    splits: tuple[str, str]
    apart: float
    rows: tuple[tuple[str, int], ...]

    @property
    def metres(self) -> float:
        """`apart`, as `nearest` measures it."""
        return self.apart


def nearest(parts: Mapping[str, Dataset[Any]], position: str) -> list[Nearest]:
    """Finds, for any two splits, the rows that are nearest to each other, whichever logs they are of.

    Args:
        parts: datasets by name, as `split` gives them or as `open` does for each split of a version.
        position: see `split`.

    Returns:
        For any two splits, the distance in metres and the two rows.

    Raises:
        UsageError: there is no such column, or it holds no positions in metres.
    """
    sources = {id(part.source): part for part in parts.values()}
    every = {number: positions_of(part, position) for number, part in sources.items()}
    found = {name: every[id(part.source)][part.positions] for name, part in parts.items()}
    usable = {name: np.flatnonzero(np.isfinite(places).all(axis=1)) for name, places in found.items()}
    places = {name: found[name][rows] for name, rows in usable.items()}
    return _pairs(parts, places, usable, least_distance)


def nearest_in_time(parts: Mapping[str, Dataset[Any]]) -> list[Nearest]:
    """As `nearest`, by the timestamps of rows.

    Args:
        parts: datasets by name, of rows that have timestamps.
    """
    found = {name: _stamps_of(part) for name, part in parts.items()}
    return _pairs(parts, found, {name: np.arange(len(stamps)) for name, stamps in found.items()}, least_time)


def _pairs(
    parts: Mapping[str, Dataset[Any]],
    places: Mapping[str, Array],
    rows: Mapping[str, Ints],
    least: Callable[[Array, Array], tuple[float, tuple[int, ...]]],
) -> list[Nearest]:
    """The nearest of any two parts.

    Args:
        places: of the rows that have one, in space or in time.
        rows: which rows these are.
    """
    pairs = []
    for one, other in itertools.combinations(parts, 2):
        apart, at = least(places[one], places[other])
        ends = zip((one, other), at, strict=True) if at else ()
        named = tuple(_named(parts[name], int(rows[name][number])) for name, number in ends)
        pairs.append(Nearest((one, other), apart, named))
    return pairs


def _stamps_of(part: Dataset[Any]) -> Ints:
    """(n,) of the rows of a dataset."""
    stamps = part.source.stamps
    if stamps is None:
        raise UsageError(f"{part.place}: rows have no timestamps")
    return stamps[part.positions]


def _named(part: Dataset[Any], number: int) -> tuple[str, int]:
    """(log_id, timestamp) of a row; its number in its log where rows have no timestamps."""
    index = part.take([number]).index
    return str(index["log_id"].iloc[0]), int(index["timestamp" if "timestamp" in index else "row"].iloc[0])
