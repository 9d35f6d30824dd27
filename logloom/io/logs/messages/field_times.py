"""Message times from fields: numbers with a unit, or seconds and nanoseconds.

Here: which fields of a definition are times, and exact conversion of numbers to int64 nanoseconds.
Elsewhere: reading the fields (decoders of this room, logloom.io.logs.tables.log), offsets and refusals
(logloom.io.logs.message_times).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME
from logloom.io.logs.messages.definitions import Number, Struct, Text
from logloom.io.logs.messages.fields import Selection, select
from logloom.values import dataclass

UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
SECONDS = ("sec", "secs", "seconds")
NANOSECONDS = ("nanosec", "nsec", "nsecs", "nanosecs", "nanos", "nanoseconds")
_EXAMPLE = "us"


@dataclass(frozen=True)
class FieldTime:
    """A field that is a time.

    Attributes:
        first: the number, the stamp, or the seconds.
        nanoseconds: of a stamp whose parts are plain integers; else None.
    """

    first: Selection
    nanoseconds: Selection | None = None

    @property
    def selections(self) -> tuple[Selection, ...]:
        return (self.first,) if self.nanoseconds is None else (self.first, self.nanoseconds)


def field_time(root: Struct, path: str, unit: str) -> FieldTime:
    """Find a time in a definition.

    Args:
        unit: of a number; "" for a stamp.

    Raises:
        UsageError: no such field (suggests the nearest), one that is no time, a number without a unit, or
            a stamp with one.
    """
    found = select(root, path)
    kind = found.type
    if found.array is not None or found.inner is not None:
        raise UsageError(f"field {path!r} is an array, and a message has one time; name a number or a stamp")
    if isinstance(kind, Text):
        raise UsageError(f"field {path!r} is text, not a time; name a number or a stamp")
    if isinstance(kind, Number):
        if kind.dtype.kind == "b":
            raise UsageError(f"field {path!r} is a bool, not a time; name a number or a stamp")
        if not unit:
            raise UsageError(
                f"field {path!r} is a number ({kind.dtype.name}) without a unit; write {{field: {path}, "
                f"unit: {_EXAMPLE}}} (or {', '.join(one for one in UNITS if one != _EXAMPLE)})"
            )
        return FieldTime(found)
    pair = None if kind.is_time else _pair(kind)
    if not kind.is_time and pair is None:
        names = ", ".join(field.name for field in kind.fields) or "no fields"
        raise UsageError(
            f"field {path!r} has {names}, so it is no stamp of seconds and nanoseconds; name a number or a "
            "stamp in it"
        )
    if unit:
        raise UsageError(f"field {path!r} is a stamp of seconds and nanoseconds; leave out `unit`")
    if pair is None:
        return FieldTime(found)
    seconds, nanoseconds = (select(root, f"{path}.{name}") for name in pair)
    return FieldTime(seconds, nanoseconds)


def _pair(kind: Struct) -> tuple[str, str] | None:
    """Return the names of whole seconds and nanoseconds of a stamp; None if it has none."""
    whole = [f.name for f in kind.fields if f.array is None and isinstance(f.type, Number)
             and f.type.dtype.kind in "iu"]  # fmt: skip
    seconds = next((name for name in SECONDS if name in whole), None)
    nanoseconds = next((name for name in NANOSECONDS if name in whole), None)
    return None if seconds is None or nanoseconds is None else (seconds, nanoseconds)


def as_nanoseconds(values: NDArray[Any], unit: str) -> NDArray[np.int64]:
    """(N,) numbers of a unit as int64 ns: integers exactly, floats to the nearest; `MIN_TIME` beyond 64 bits.

    >>> as_nanoseconds(np.array([1_700_000_000_123_457], "u8"), "us").tolist()
    [1700000000123457000]
    """
    factor = UNITS[unit]
    times = np.full(len(values), MIN_TIME, np.int64)
    if values.dtype.kind == "f":
        # The product of a float and 10**9 has too few digits; its whole and its rest have enough.
        plain = values.astype(np.float64)
        fits = np.abs(plain) < MAX_TIME // factor  # false for NaN
        whole = np.floor(plain[fits])
        rest = np.rint((plain[fits] - whole) * factor).astype(np.int64)
        times[fits] = whole.astype(np.int64) * factor + rest
        return times
    limit = MAX_TIME // factor
    fits = values <= limit
    if values.dtype.kind == "i":
        fits &= values >= -limit
    times[fits] = values[fits].astype(np.int64) * factor
    return times


def joined_stamps(seconds: NDArray[Any], nanoseconds: NDArray[Any]) -> NDArray[np.int64]:
    """(N,) stamps in ns; `MIN_TIME` beyond 64 bits."""
    times = as_nanoseconds(seconds, "s")
    rest = as_nanoseconds(nanoseconds, "ns")
    fits = (times != MIN_TIME) & (rest >= 0) & (rest <= MAX_TIME - np.maximum(times, 0))
    return np.where(fits, times + np.where(fits, rest, 0), MIN_TIME)


def exact_nanoseconds(value: int | float, unit: str) -> int:
    """One number in ns, as `as_nanoseconds`.

    Raises:
        ValueError: it is no number, or beyond 64 bits.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.40} is no number")
    try:
        time = value * UNITS[unit] if isinstance(value, int) else round(Fraction(value) * UNITS[unit])
    except OverflowError:  # infinity
        raise ValueError(f"{value!r} is no time") from None
    if not MIN_TIME < time < MAX_TIME:
        raise ValueError(f"{value!r} {unit} leave the range of int64 nanoseconds")
    return time
