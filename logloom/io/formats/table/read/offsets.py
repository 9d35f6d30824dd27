"""Offsets of a window's rows, as callers give them.

Here: `steps_of`. Elsewhere: where such rows lie (windows).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from logloom.errors import UsageError
from logloom.io.rows.log_ranges import Ints

_FARTHEST = 1 << 40  # rows from another


def steps_of(offsets: Sequence[int], stride: int) -> tuple[Ints, int, int, bool]:
    """Offsets times stride, the least and the greatest of them and 0, and whether they go up by one.

    Raises:
        UsageError: they aren't whole, or too far; the stride isn't from 1 on.
    """
    if isinstance(offsets, range):
        return _steps(offsets, frozenset(), stride)
    return _steps(tuple(offsets), frozenset(map(type, offsets)), stride)  # since True and 1.0 are equal to 1


@functools.lru_cache(maxsize=256)
def _steps(offsets: Sequence[int], kinds: frozenset[type], stride: int) -> tuple[Ints, int, int, bool]:
    given = np.array(offsets)
    if (given.size and given.dtype.kind != "i") or stride != int(stride) or stride < 1:
        raise UsageError(f"offsets {offsets}, stride {stride}: offsets are whole, strides from 1 on")
    if given.size and int(np.abs(given).max()) * int(stride) > _FARTHEST:
        raise UsageError(f"offsets {offsets}, stride {stride}: no log has so many rows")
    steps = given.astype(np.int64) * stride
    consecutive = len(steps) > 0 and bool((np.diff(steps) == 1).all())
    return steps, int(min(0, *steps, 0)), int(max(0, *steps, 0)), consecutive
