"""Values of arrays that others wrote as columns, by the attributes of the CF conventions.

Here: `column_of`. Units and descriptions are those of `units` and `long_name`; whole numbers "since" a date
become int64 ns.
Elsewhere: the arrays (source).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import UsageError
from logloom.io.pieces import TIME
from logloom.io.survey import RawColumn, UnfitValuesError, plain_dtype, stacked
from logloom.schema import STRING, ColumnType

_SINCE = re.compile(
    r"(?P<unit>[a-z]+) since (?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[T ](?P<time>\d{2}:\d{2}(?::\d{2})?)(?:\.(?P<fraction>\d{1,9}))?)?(?: ?(?:Z|UTC|\+00:?00))?"
)
_NS = {
    "nanosecond": 1,
    "microsecond": 10**3,
    "millisecond": 10**6,
    "second": 10**9,
    "minute": 60 * 10**9,
    "hour": 3600 * 10**9,
    "day": 86400 * 10**9,
}
_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")


def column_of(values: Array, name: str, attributes: Mapping[str, Any]) -> RawColumn:
    """
    Raises:
        UnfitValuesError: no column has such values.
    """
    unit, description = (str(attributes.get(key) or "") for key in ("units", "long_name"))
    if (values.dtype.kind == "U" and values.ndim == 1) or values.dtype.kind in "TO":
        return _text(values, description)
    if values.dtype.kind in "mM":
        ctype = ColumnType(np.dtype("<i8"), values.shape[1:])
        values, unit = np.asarray(stacked(RawColumn(values), ctype)), "ns"
    elif values.dtype.kind in "iu" and " since " in unit:
        times = _times(values, unit, str(attributes.get("calendar") or "standard"))
        if times is None and name == TIME:
            raise UsageError(
                f"timestamp counts {unit!r}, which isn't understood; rename it, or make it int64 ns"
            )
        values, unit = (values, unit) if times is None else (times, "ns")
    dtype = plain_dtype(values.dtype)
    return RawColumn(
        values.astype(dtype, copy=False), ColumnType(dtype, values.shape[1:], "array", unit, description)
    )


def _text(values: Array, description: str) -> RawColumn:
    found = values.tolist()
    if values.ndim > 1 or not all(isinstance(value, str) for value in found):
        raise UnfitValuesError(
            "values are Python objects" if values.dtype.kind == "O" else "text of several axes"
        )
    return RawColumn(found, ColumnType(STRING.dtype, STRING.shape, "string", "", description))


def _times(counts: Array, unit: str, calendar: str) -> Array | None:
    """(n, …) int64 ns since the Unix epoch; None where the unit isn't one of a plain calendar.

    Raises:
        UnfitValuesError: a time that int64 ns can't hold.
    """
    found = _SINCE.fullmatch(unit)
    factor = _NS.get(found["unit"].removesuffix("s")) if found else None
    if found is None or factor is None or calendar not in _CALENDARS:
        return None
    try:
        # In seconds: numpy's nanoseconds wrap around in silence.
        start = int(np.datetime64(f"{found['day']}T{found['time'] or '00:00'}", "s").astype(np.int64))
    except ValueError:
        return None
    epoch = start * 10**9 + int((found["fraction"] or "").ljust(9, "0"))
    low, high = (int(counts.min()), int(counts.max())) if counts.size else (0, 0)
    if not -(2**63) < low * factor + epoch <= high * factor + epoch < 2**63:
        raise UnfitValuesError("a time that int64 ns can't hold")
    times = counts.astype(np.int64).view(np.uint64) * np.uint64(factor)  # on the way they may wrap around
    return (times + np.uint64(epoch % 2**64)).view(np.int64)
