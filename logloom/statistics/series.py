"""Lanes: mergeable statistics of a series of numbers, or of texts.

Here: `Numbers` and `Texts`. Merging is exact, in any order and any grouping: the result is the same bit by
bit, regardless of the parts.
Elsewhere: exact sums (logloom.statistics.exact_sums), counts of values by ranges of them, called cells
(logloom.statistics.value_counts), the lanes of each column (logloom.statistics.rows), the summary for people
(logloom.statistics.summary).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.statistics.exact_sums import CHUNK, Dyadic, slow_sums, sums_of
from logloom.statistics.value_counts import NO_CELLS, Cells, cells_of, floats_of, keys_of, merged_cells
from logloom.values import dataclass

MAX_TEXTS = 256  # limit of different ones that are counted
MAX_TEXT = 256  # characters of one
_WHOLE = 2**53  # floats hold all whole numbers up to it


@dataclass(frozen=True)
class Numbers:
    """Statistics of numbers of a column, or of one element of it.

    Attributes:
        count: of all but NaN.
        nan: how many were NaN.
        below, above: how many of `count` were minus and plus infinity.
        left_out: numbers of large values that weren't sampled, not in `count` and `nan`.
        low, high: least and greatest finite number; None without any.
        total, squares: the sum of finite numbers, and of their squares.
        cells: the finite numbers by size; whole ones beyond 2**53 are truncated to 53 bits there.
    """

    count: int = 0
    nan: int = 0
    below: int = 0
    above: int = 0
    left_out: int = 0
    low: Dyadic | None = None
    high: Dyadic | None = None
    total: Dyadic = field(default_factory=Dyadic)
    squares: Dyadic = field(default_factory=Dyadic)
    cells: Cells = field(default_factory=lambda: NO_CELLS)

    @property
    def finite(self) -> int:
        return self.count - self.below - self.above


@dataclass(frozen=True)
class Texts:
    """Statistics of texts of a column.

    Attributes:
        count: of all.
        known: count by text; None if there are more than MAX_TEXTS different ones, or long ones.
    """

    count: int = 0
    known: Mapping[str, int] | None = field(default_factory=dict)


Lane = Numbers | Texts


def numbers_of(values: NDArray[np.float64]) -> list[Numbers]:
    """Return statistics of the numbers of each row.

    Args:
        values: (L, n); NaN counts as NaN, whatever it means.

    >>> one = numbers_of(np.array([[3.0, np.nan, 1.0, 3.0]]))[0]
    >>> one.count, one.nan, float(one.low), float(one.total), one.cells.counts.tolist()
    (3, 1, 1.0, 7.0, [1, 2])
    """
    if values.shape[1] > CHUNK:
        parts = [numbers_of(values[:, at : at + CHUNK]) for at in range(0, values.shape[1], CHUNK)]
        return [merged_numbers(own) for own in zip(*parts, strict=True)]
    with np.errstate(invalid="ignore"):  # NaNs that would signal
        values = values + 0.0  # a copy, in which zeros have no sign
    missing = np.isnan(values)
    nan = missing.sum(axis=1)
    below = (values == -np.inf).sum(axis=1)
    above = (values == np.inf).sum(axis=1)
    if below.any() or above.any():
        missing |= np.isinf(values)
    is_missing = bool(missing.any())
    if is_missing:
        values[missing] = np.nan  # which has no sign, so that it comes last
    finite = values.shape[1] - nan - below - above
    keys = np.sort(keys_of(values), axis=1)
    if is_missing:
        values[missing] = 0.0
    totals, squares = sums_of(values)
    cells = cells_of(keys, finite)
    found = []
    for row, num in enumerate(finite.tolist()):
        ends = floats_of(keys[row, [0, num - 1]]).tolist() if num else None
        low, high = map(Dyadic.of, ends) if ends else (None, None)
        counts = num + int(below[row] + above[row]), int(nan[row]), int(below[row]), int(above[row]), 0
        found.append(Numbers(*counts, low, high, totals[row], squares[row], cells[row]))
    return found


def whole_numbers_of(values: NDArray[Any]) -> Numbers:
    """`numbers_of` for (n,) whole numbers that floats may not represent.

    >>> float(whole_numbers_of(np.array([2**62, 1 - 2**62])).total)
    1.0
    """
    if not len(values):
        return Numbers()
    low, high = int(values.min()), int(values.max())
    if max(-low, high) <= _WHOLE:
        return numbers_of(values.astype(np.float64)[None])[0]
    total, squares = slow_sums(values.tolist())
    # Toward zero, like all numbers of a cell with several.
    cut = np.where(np.abs(values.astype(np.float64)) < _WHOLE, values, values - np.fmod(values, 4096))
    keys = np.sort(keys_of(cut.astype(np.float64) + 0.0))[None]
    (cells,) = cells_of(keys, np.array([len(values)]))
    ends = Dyadic.of(low), Dyadic.of(high)
    return Numbers(len(values), 0, 0, 0, 0, *ends, total, squares, cells)


def texts_of(values: Iterable[str]) -> Texts:
    """Return statistics of texts.

    >>> texts_of(["car", "bus", "car"])
    Texts(count=3, known={'bus': 1, 'car': 2})
    """
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return texts_known(sum(counts.values()), counts)


def texts_known(count: int, known: Mapping[str, int] | None) -> Texts:
    """Return statistics from counts of texts, which are dropped if they are too many or too long."""
    if known is not None and (len(known) > MAX_TEXTS or any(len(text) > MAX_TEXT for text in known)):
        known = None
    return Texts(count, None if known is None else dict(sorted(known.items())))


def merged_lanes(parts: Sequence[Lane]) -> Lane:
    """Merge lanes of one kind."""
    if len(parts) == 1:
        return parts[0]
    numbers = [part for part in parts if isinstance(part, Numbers)]
    return merged_numbers(numbers) if numbers else _merged_texts([p for p in parts if isinstance(p, Texts)])


def merged_numbers(parts: Sequence[Numbers]) -> Numbers:
    """Merge statistics of numbers."""
    if len(parts) == 1:
        return parts[0]
    return Numbers(
        sum(part.count for part in parts),
        sum(part.nan for part in parts),
        sum(part.below for part in parts),
        sum(part.above for part in parts),
        sum(part.left_out for part in parts),
        min((part.low for part in parts if part.low is not None), default=None),
        max((part.high for part in parts if part.high is not None), default=None),
        Dyadic.total(part.total for part in parts),
        Dyadic.total(part.squares for part in parts),
        merged_cells([part.cells for part in parts]),
    )


def _merged_texts(parts: Sequence[Texts]) -> Texts:
    count = sum(part.count for part in parts)
    known: dict[str, int] = {}
    for part in parts:
        if part.known is None:
            return Texts(count, None)
        for text, number in part.known.items():
            known[text] = known.get(text, 0) + number
    return texts_known(count, known)
