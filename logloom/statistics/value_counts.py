"""Cells: counts of values in bounded memory, independent of their order.

A float's *key* is a 64-bit integer; keys order as floats do. A *cell* is all values whose keys share their
upper bits: one value at level 0, and two cells of the level below at each next level, until each power of
two has 16 cells (level 48). Each higher level only widens cells near zero: below a power of two that grows
with the level, all cells have one width w.

    level 0                    1.0  1.0+  1.0++  1.0+++ …              exact
    level 48 = RELATIVE        [1, 17/16)  [17/16, 18/16) …  [2, 34/16)  [34/16, 36/16) …
    level 48 + k               [0, w)  [w, 2w)  …  up to 32 w = 2**(k - 1021), and from there on as above

The level of many values is the least at which they fill no more than CELLS cells. As it depends on the values
alone, and a part never needs a higher one than the whole, counts are the same for any parts merged in any
order. Cells of negative values mirror those of their magnitudes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.values import dataclass

CELLS = 512
_STEP = 4
_CELLS = 1 << _STEP  # of a power of two
RELATIVE = 52 - _STEP
MAX_LEVEL = RELATIVE + 2046  # of which no power of two keeps its own cells
_END = 0x7FF << 52  # the bits of infinity
_SIGNLESS = np.int64(2**63 - 1)
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """Counts of values by cell.

    Attributes:
        level: of all cells; at 0 each is one value.
        numbers: (k,) ascending; -1 is the one just below 0.
        counts: (k,) above 0.
    """

    level: int
    numbers: Ints
    counts: Ints

    @property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(k,) the least and the greatest value of each."""
        negative = self.numbers < 0
        sizes = np.where(negative, ~self.numbers, self.numbers)
        inner, outer = (_bits_of(number, self.level) - less for number, less in ((sizes, 0), (sizes + 1, 1)))
        inner = np.where(negative, np.maximum(inner, 1), inner)  # zeros have no sign
        least, greatest = np.where(negative, ~outer, inner), np.where(negative, ~inner, outer)
        return floats_of(least), floats_of(greatest)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Cells)
            and self.level == other.level
            and np.array_equal(self.numbers, other.numbers)
            and np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]


NO_CELLS = Cells(0, np.empty(0, np.int64), np.empty(0, np.int64))


def keys_of(values: NDArray[np.float64]) -> Ints:
    """Map floats to whole numbers in the same order; NaNs without a sign come last.

    >>> keys_of(np.array([-1.0, 0.0, 1.0])).argsort().tolist()
    [0, 1, 2]
    """
    bits = values.view(np.int64)
    return bits ^ ((bits >> 63) & _SIGNLESS)


def floats_of(keys: Ints) -> NDArray[np.float64]:
    """The inverse of `keys_of`."""
    return (keys ^ ((keys >> 63) & _SIGNLESS)).view(np.float64)


def end_of(level: int) -> int:
    """Return the number after that of the last cell of finite floats at a level."""
    return _END >> level if level <= RELATIVE else (_END >> RELATIVE) - _CELLS * (level - RELATIVE)


# --- levels -------------------------------------------------------------------------------------------


def _raised(numbers: Ints, level: int, higher: int) -> Ints:
    """Return the numbers of a level's cells at a higher one; both at most RELATIVE, or both at least."""
    if higher <= RELATIVE:
        return numbers >> (higher - level)
    negative = numbers < 0
    relative = _relative(np.where(negative, ~numbers, numbers), level)
    # Power 0 stands for all that are smaller, and is as wide as power 1.
    power, within = relative >> _STEP, relative & (_CELLS - 1)
    own = higher - RELATIVE + 1  # the least power with cells of its own
    steps = np.where(power > 0, _CELLS + within, within) >> np.minimum(own - np.maximum(power, 1), 63).clip(0)
    raised = np.where(power >= own, relative - _CELLS * (own - 1), steps)
    return np.where(negative, ~raised, raised)


def _relative(sizes: Ints, level: int) -> Ints:
    """The number at RELATIVE of the first cell in each cell of a level no lower than that; none negative."""
    own = level - RELATIVE + 1
    lengths = np.frexp(sizes.astype(np.float64))[1].astype(np.int64)  # in bits
    missing = _STEP + 1 - lengths  # of the bits that a cell of its own power has; the upper one isn't stored
    power = own - missing
    normal = (power << _STEP) + (sizes << missing.clip(0)) - _CELLS
    small = np.where(power > 0, normal, sizes << min(own - 1, _STEP + 1))
    return np.where(sizes >= _CELLS, sizes + _CELLS * (own - 1), np.where(sizes > 0, small, 0))


def _bits_of(sizes: Ints, level: int) -> Ints:
    """The bits of the least float in each cell, none negative."""
    if level <= RELATIVE:
        return sizes << level
    return _relative(sizes, level) << RELATIVE


def _levels(steps: Ints, highest: int) -> Ints:
    """(L,) the lowest level, up to `highest`, at which each row needs at most CELLS cells; `highest` if none.

    Args:
        steps: (L, n) bits in which each number differs from the one before; 0 for the first.
    """
    levels = np.zeros(len(steps), np.int64)
    full = np.flatnonzero(np.count_nonzero(steps, axis=1) >= CELLS)
    if len(full):
        lengths = _bit_lengths(steps[full]) + 65 * np.arange(len(full))[:, None]
        found = np.bincount(lengths.reshape(-1), minlength=65 * len(full)).reshape(-1, 65)
        longer = found[:, ::-1].cumsum(axis=1)[:, -2::-1]  # [:, b] steps of more than b bits
        few = longer < CELLS  # cells at a level are one more than the steps longer than it
        few[:, highest:] = True
        levels[full] = np.argmax(few, axis=1)
    return levels


def _bit_lengths(numbers: Ints) -> Ints:
    """How many bits each number takes, 64 for negative ones."""
    upper = (numbers >> 32) & 0xFFFFFFFF
    halves = np.where(upper, upper, numbers & 0xFFFFFFFF).astype(np.float64)  # exact, unlike 64 bits
    lengths: Ints = np.frexp(halves)[1].astype(np.int64) + 32 * (upper != 0)
    return lengths


def _leveled(level: int, numbers: Ints, counts: Ints) -> Cells:
    """Raise cells of a level, ascending, to the lowest level with few enough of them."""
    if len(numbers) > CELLS and level < RELATIVE:
        steps = np.zeros((1, len(numbers)), np.int64)
        steps[0, 1:] = numbers[1:] ^ numbers[:-1]
        higher = level + int(_levels(steps, RELATIVE - level)[0])
        numbers, counts = _joined(_raised(numbers, level, higher), counts)
        level = higher
    if len(numbers) > CELLS:
        low, high = level, MAX_LEVEL  # too low, and high enough
        while high - low > 1:
            between = (low + high) // 2
            raised = _raised(numbers, level, between)
            is_enough = np.count_nonzero(raised[1:] != raised[:-1]) < CELLS
            low, high = (low, between) if is_enough else (between, high)
        numbers, counts = _joined(_raised(numbers, level, high), counts)
        level = high
    return Cells(level, numbers, counts)


def _joined(numbers: Ints, counts: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return ascending numbers, each once, and the sums of their counts."""
    if not len(numbers):
        return numbers, counts
    firsts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    return numbers[firsts], np.add.reduceat(counts, firsts)


# --- counting -----------------------------------------------------------------------------------------


def cells_of(keys: Ints, counts: Ints) -> list[Cells]:
    """Return the cells of each row's values.

    Args:
        keys: (L, n) ascending in each row.
        counts: (L,) number of keys to use of each row.
    """
    rows, width = keys.shape
    if not width:
        return [NO_CELLS] * rows
    steps = np.zeros((rows, width), np.int64)
    np.bitwise_xor(keys[:, 1:], keys[:, :-1], out=steps[:, 1:])
    if (counts < width).any():
        steps[np.arange(width) >= counts[:, None]] = 0
    levels = _levels(steps, RELATIVE)
    begins = (steps >> levels[:, None]) != 0
    begins[:, 0] = counts > 0
    at = np.flatnonzero(begins)
    owners = at // width
    ends = np.minimum(np.append(at[1:], rows * width), owners * width + counts[owners])
    numbers = keys.reshape(-1)[at] >> levels[owners]
    borders = np.searchsorted(owners, np.arange(1, rows))
    own = zip(levels.tolist(), np.split(numbers, borders), np.split(ends - at, borders), strict=True)
    return [_leveled(*one) for one in own]


def merged_cells(parts: Sequence[Cells]) -> Cells:
    """Merge cells.

    >>> one, other = (cells_of(keys_of(np.array([[x, 2.0]])), np.array([2]))[0] for x in (1.0, 2.0))
    >>> merged_cells([one, other]).counts.tolist()
    [1, 3]
    """
    level = max((part.level for part in parts), default=0)
    numbers = np.concatenate([NO_CELLS.numbers, *(_at_level(part, level) for part in parts)])
    counts = np.concatenate([NO_CELLS.counts, *(part.counts for part in parts)])
    order = np.argsort(numbers, kind="stable")
    return _leveled(level, *_joined(numbers[order], counts[order]))


def _at_level(cells: Cells, level: int) -> Ints:
    if cells.level == level:
        return cells.numbers
    between = max(cells.level, min(level, RELATIVE))
    return _raised(_raised(cells.numbers, cells.level, between), between, level)
