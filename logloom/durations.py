"""Lengths of time as the Python API takes them: a text with its unit, or a number of seconds.

Here: `nanoseconds_of`, the one rule for all arguments that are lengths of time.
Elsewhere: durations in recipes, which need their unit (logloom.recipe.values); in filters
(logloom.where_grammar).
"""

from __future__ import annotations

import math
import numbers
from decimal import Decimal
from fractions import Fraction
from typing import Any

from logloom.errors import UsageError
from logloom.where_grammar import MAX_DURATION, UNITS, parse_duration

Time = str | float  # "300ms", or 0.3 seconds


def nanoseconds_of(value: Any, where: str) -> int:
    """The nanoseconds of a length of time; a number is the decimal of its text, so 0.3 is exact.

    Args:
        value: a text such as "300ms", or a number of seconds.
        where: the argument, for messages: "window: max_gap".

    Raises:
        UsageError: it is neither, negative, not finite, or more than ten years.

    >>> nanoseconds_of("300ms", "max_gap") == nanoseconds_of(0.3, "max_gap") == 300_000_000
    True
    """
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except UsageError as error:
            raise _refusal(value, where) from error
    is_number = isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise _refusal(value, where)
    found = round(Fraction(str(value)) * UNITS["s"])
    if found > MAX_DURATION:
        raise _refusal(value, where)
    return found


def _refusal(value: Any, where: str) -> UsageError:
    return UsageError(
        f"{where}={value!r:.60}: not a length of time; pass a text such as '300ms' ({', '.join(UNITS)}) or a "
        "number of seconds such as 0.3, from 0 to ten years"
    )
