"""Lengths of time in the Python API: text with a unit, seconds, or a timedelta.

Here: `nanoseconds_of`, the one rule for all arguments that are lengths of time, and `offset_of`, for those
that may be negative.
Elsewhere: durations in recipes, which need their unit (logloom.recipe.values); in filters
(logloom.query.grammar).
"""

from __future__ import annotations

import datetime
import math
import numbers
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from logloom.errors import UsageError
from logloom.query.grammar import parse_duration
from logloom.text import DURATION_UNITS, MAX_DURATION

Time = str | float | datetime.timedelta | np.timedelta64  # "300ms", or 0.3 seconds
_NUMPY_UNITS = {**DURATION_UNITS, "D": DURATION_UNITS["d"], "W": 7 * DURATION_UNITS["d"]}


def nanoseconds_of(value: Any, where: str) -> int:
    """The nanoseconds of a length of time; a number is the decimal of its text, so 0.3 is exact.

    Args:
        value: a text such as "300ms", a number of seconds, or a timedelta of Python or numpy.
        where: the argument, for messages: "window: max_gap".

    Raises:
        UsageError: it is none of these, negative, not finite, or more than ten years.

    >>> nanoseconds_of("300ms", "max_gap") == nanoseconds_of(0.3, "max_gap") == 300_000_000
    True
    """
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except UsageError as error:
            raise _refusal(value, where) from error
    is_timedelta = isinstance(value, datetime.timedelta | np.timedelta64)
    found = _of_timedelta(value) if is_timedelta else _of_number(value)
    if found is None or not 0 <= found <= MAX_DURATION:
        raise _refusal(value, where)
    return found


def offset_of(value: Any, where: str) -> int:
    """The nanoseconds of a length of time before (negative) or after; otherwise as `nanoseconds_of`.

    >>> offset_of("-300ms", "window") == offset_of(-0.3, "window") == -300_000_000
    True
    """
    try:
        is_before = value.startswith("-") if isinstance(value, str) else bool(value < 0 * value)
    except TypeError:
        is_before = False
    if not is_before:
        return nanoseconds_of(value, where)
    return -nanoseconds_of(value[1:] if isinstance(value, str) else -value, where)


def _of_number(seconds: Any) -> int | None:
    """None for a number that isn't finite, or is negative."""
    is_number = isinstance(seconds, numbers.Real | Decimal) and not isinstance(seconds, bool)
    if not is_number or not math.isfinite(seconds) or seconds < 0:
        return None
    return round(Fraction(str(seconds)) * DURATION_UNITS["s"])


def _of_timedelta(value: datetime.timedelta | np.timedelta64) -> int | None:
    """None for NaT, and for units that are no fixed length, such as months."""
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(microseconds=1) * DURATION_UNITS["us"]
    unit, count = np.datetime_data(value.dtype)
    if np.isnat(value) or unit not in _NUMPY_UNITS:
        return None
    return int(value.astype(np.int64)) * count * _NUMPY_UNITS[unit]


def _refusal(value: Any, where: str) -> UsageError:
    return UsageError(
        f"{where}={value!r:.60}: not a length of time; pass a text such as '300ms' "
        f"({', '.join(DURATION_UNITS)}) or a number of seconds such as 0.3 (or a timedelta), from 0 to ten "
        "years"
    )
