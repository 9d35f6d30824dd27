"""Splits of rows by place, time or value: functions of arrays.

Here: `RowSplit`, the settings; `labels_by_place`, `labels_by_time`, `labels_by_value`;
checks of columns to split by; `listing_split` and `with_names`, for whole logs.
Elsewhere: builds that split rows (logloom.transforms.rows.row_stream), splits of an existing dataset
(logloom.datasets.splits.split), splits of whole logs (logloom.recipe.logs).

Cells are squares of a grid that begins at 0, or spans of time since the Unix epoch. A hash of a cell's number
decides its split, so a cell stays in its split whatever drives arrive, and a row's split follows from the row
alone:

    train | train | val            rows of train nearer than the gap to the square of val are in no split, and
    ------+-------+------          so are rows of val that near to any square of train
    val   | train | train
"""

from __future__ import annotations

import fnmatch
import glob
import itertools
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.digests import share_of
from logloom.schema import ColumnType, Schema
from logloom.values import dataclass

COLUMN = "split"  # of the rows that a build splits: the name of each row's split
NEAR = -1  # the label of rows in no split as they are nearer than the gap to another split's cell
UNKNOWN = -2  # of rows in none as their place or value is unknown

_REASON = "split "  # prefix of the reasons for dropping rows in no split

Labels = NDArray[np.int32]  # (N,) the number of each row's split, NEAR or UNKNOWN
Shares = Mapping[str, Decimal] | Mapping[str, Fraction]  # by name; they sum to 1

_MOST = 2**52  # numbers of cells beyond which floats can't distinguish places
_METRES = ("", "m", "metre", "metres", "meter", "meters")


def listing_split(log_id: str, listed: Mapping[str, Sequence[str]]) -> str | None:
    """Return the split whose list names a log, or else the first with a pattern of its name; None for none.

    >>> listing_split("take_003", {"test": ["take_*"], "val": ["take_003", "take_004"]})
    'val'
    """
    for is_listed in (_is_named, fnmatch.fnmatchcase):
        for split, logs in listed.items():
            if any(is_listed(log_id, log) for log in logs):
                return split
    return None


def _is_named(log_id: str, log: str) -> bool:
    return log in (log_id, glob.escape(log_id))


def with_names(listed: Mapping[str, Sequence[str]], names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return lists of logs in which these names match nothing else, even if they look like patterns.

    >>> with_names({"val": ["take[1]", "rain[1]"]}, ["take[1]"])
    {'val': ('take[[]1]', 'rain[1]')}
    """
    return {
        split: tuple(glob.escape(log) if log in names else log for log in logs)
        for split, logs in listed.items()
    }


@dataclass(frozen=True)
class RowSplit:
    """How rows are split.

    Attributes:
        by: "value" for a column's value.
        shares: names in order, with their shares, which sum to 1.
        column: of positions, or of values; "" for time.
        cell, gap: metres, or seconds; 0 for values.
    """

    by: Literal["place", "time", "value"]
    shares: tuple[tuple[str, Decimal], ...]
    column: str = ""
    cell: Decimal = Decimal(0)
    gap: Decimal = Decimal(0)

    @property
    def reasons(self) -> dict[int, str]:
        """Why rows are in no split, by label."""
        return {NEAR: f"{_REASON}gap", UNKNOWN: f"{_REASON}without {self.column}"}


def has_row_splits(schema: Schema) -> bool:
    """Return whether rows have a column of texts with each row's split, as made by builds."""
    ctype = schema.columns.get(COLUMN)
    return ctype is not None and ctype.kind == "string"


def left_out_of(dropped: Mapping[str, int]) -> int:
    """Return how many rows are in no split, from counts of dropped rows by reason."""
    return sum(count for reason, count in dropped.items() if reason.startswith(_REASON))


def labels_by_place(places: Array, cell: float, gap: float, shares: Shares) -> Labels:
    """The labels of rows by their cell of a grid.

    Args:
        places: (N, 2) float64 metres; NaN where one is unavailable.
        cell, gap: metres; the gap is at most a cell.
    """
    with np.errstate(invalid="ignore"):  # of rows without a position
        cells, within = np.floor_divide(places, cell), np.mod(places, cell)
    return _labels(cells, within, cell, gap, shares)


def labels_by_time(stamps: NDArray[np.int64], cell: float, gap: float, shares: Shares) -> Labels:
    """The labels of rows by their span of time.

    Args:
        stamps: (N,) int64 ns.
        cell, gap: seconds, at least a nanosecond a cell; the gap is at most a cell.
    """
    length, apart = round(cell * 1e9), round(gap * 1e9)
    cells, within = np.divmod(stamps, length)
    return _labels(cells[:, None], within[:, None], length, apart, shares)


def labels_by_value(values: Sequence[Any], shares: Shares) -> Labels:
    """The labels of rows by a text or a whole number each."""
    names = {name: number for number, name in enumerate(shares)}
    splits = {value: names[share_of(str(value), shares)] for value in dict.fromkeys(values)}
    return np.array([splits[value] for value in values], np.int32)


def _labels(cells: Array, within: Array, cell: float, gap: float, shares: Shares) -> Labels:
    """
    Compute labels from cells.

    Args:
        cells: (N, d) numbers of each row's cell; NaN and infinities mean none.
        within: (N, d) distance from the cell's lower borders.
    """
    labels = np.full(len(cells), UNKNOWN, np.int32)
    known = np.flatnonzero((np.abs(cells) < _MOST).all(axis=1))
    numbers = cells[known].astype(np.int64)
    unique, own = np.unique(numbers, axis=0, return_inverse=True)
    own = own.reshape(-1)
    names = {name: number for number, name in enumerate(shares)}
    decided: dict[tuple[int, ...], int] = {}

    def split_of(place: tuple[int, ...]) -> int:
        if place not in decided:
            decided[place] = names[share_of(",".join(map(str, place)), shares)]
        return decided[place]

    chosen = np.array([split_of(tuple(one)) for one in unique.tolist()], np.int32)
    labels[known] = chosen[own]
    for step in itertools.product((-1, 0, 1), repeat=cells.shape[1]) if gap > 0 else ():
        beside = np.array([split_of(tuple(one)) for one in (unique + np.array(step)).tolist()], np.int32)
        odd = np.flatnonzero((beside != chosen)[own])  # rows in a cell beside one of another split
        inside = within[known[odd]]
        distances = np.where(np.array(step) < 0, inside, np.where(np.array(step) > 0, cell - inside, 0))
        labels[known[odd[np.hypot.reduce(distances.astype(np.float64), axis=1) < gap]]] = NEAR
    return labels


def position_problem(ctype: ColumnType) -> str | None:
    """Explain why rows can't be split by a column as positions; None if they can."""
    if ctype.is_ragged or len(ctype.shape) != 1 or (ctype.shape[0] or 0) < 2:
        return f"is {ctype}; a position has two numbers or more"
    if ctype.dtype.kind not in "fiu" or ctype.unit not in _METRES:
        unit = f" in {ctype.unit}" if ctype.unit else ""
        return (
            f"is {ctype}{unit}; positions are metres in one frame for all logs, such as a map's (degrees of "
            "latitude and longitude are none)"
        )
    return None


def value_problem(ctype: ColumnType) -> str | None:
    """Explain why rows can't be split by a column's values; None if they can."""
    if ctype.kind == "string" or (ctype.kind == "array" and not ctype.shape and ctype.dtype.kind in "biuSU"):
        return None
    return f"is {ctype}; rows are split by a column of texts or whole numbers"
