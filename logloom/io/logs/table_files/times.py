"""The times of a table's rows: their column and unit.

Here: `time_column`, and pure functions from Arrow columns to int64 nanoseconds since the Unix epoch.
Elsewhere: text, floats, pairs and local times (row_times), times in names of files (name_times).

Timestamps have a unit. Integers have that of their column's name (`timestamp_us`), else the one for which all
times of the file are between March 1973 and 2286: in seconds they have 9 or 10 digits, in milliseconds 12 or
13, in microseconds 15 or 16, in nanoseconds 18 or 19. Otherwise the unit is unknown, which is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME
from logloom.io.logs.messages.field_times import NANOSECONDS, SECONDS, as_nanoseconds, joined_stamps
from logloom.io.logs.table_files.name_times import UNITS

TIME_COLUMNS = (*(f"timestamp_{unit}" for unit in UNITS), "timestamp", "time", "stamp")

Times = NDArray[np.int64]


def time_column(names: Sequence[str]) -> str | None:
    """Return the name of the time column of a table; None if it has none."""
    return next((name for name in TIME_COLUMNS if names.count(name) == 1), None)


def times_of(name: str, columns: Sequence[pa.ChunkedArray], unit: str = "") -> list[Times]:
    """(N,) int64 ns of each group of rows of a time column; `MIN_TIME` for null.

    Args:
        unit: of integers, if a recipe states it.

    Raises:
        UsageError: the column's type isn't a time, its unit is unclear, or times don't fit 64 bits.
        pyarrow.ArrowInvalid: a time doesn't fit 64 bits.
    """
    plain = [_plain(column) for column in columns]
    if not columns or not pa.types.is_integer(columns[0].type):
        return plain
    known = [times[times != MIN_TIME] for times in plain]
    lowest = min((int(times.min()) for times in known if len(times)), default=0)
    highest = max((int(times.max()) for times in known if len(times)), default=0)
    if not any(len(times) for times in known):
        return plain
    factor = UNITS[unit or unit_for(name, lowest, highest)]
    if not MIN_TIME < lowest * factor <= highest * factor <= MAX_TIME:
        raise UsageError(f"its times, {lowest} to {highest}, don't fit 64 bits as nanoseconds")
    return [np.where(times == MIN_TIME, MIN_TIME, times * factor) if factor > 1 else times for times in plain]


def times_in(column: pa.ChunkedArray, path: Sequence[str], unit: str) -> Times:
    """(N,) int64 ns of each row of a column that a recipe names; `MIN_TIME` for null.

    Args:
        path: steps into structs; the last field is a timestamp, a number of `unit`, or a stamp of seconds and
            nanoseconds.
    """
    for name in path:
        column = pc.struct_field(column, name)
    kind = column.type
    if pa.types.is_struct(kind):
        own = [kind.field(i).name for i in range(kind.num_fields)]
        seconds, nanoseconds = (
            next(name for name in names if name in own) for names in (SECONDS, NANOSECONDS)
        )
        parts = [pc.struct_field(column, name) for name in (seconds, nanoseconds)]
        is_missing = _missing(parts[0]) | _missing(parts[1])
        return np.where(is_missing, MIN_TIME, joined_stamps(*map(_filled, parts)))
    if not unit:
        return _plain(column)
    return np.where(_missing(column), MIN_TIME, as_nanoseconds(_filled(column), unit))


def _missing(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    missing: NDArray[np.bool_] = column.is_null().to_numpy()
    return missing


def _filled(column: pa.ChunkedArray) -> NDArray[Any]:
    filled: NDArray[Any] = column.fill_null(0).to_numpy()
    return filled


def unit_of(lowest: int, highest: int) -> str | None:
    """Return the unit for which integers from lowest to highest are between March 1973 and 2286; None if
    none.
    """
    return next((u for u, ns in UNITS.items() if 10**17 <= lowest * ns <= highest * ns < 10**19), None)


def unit_for(name: str, lowest: int, highest: int) -> str:
    """Return the unit of times by the name of their column, else by their size.

    Raises:
        UsageError: neither name nor size determines it.
    """
    named = name.rpartition("_")[2]
    if named in UNITS:
        return named
    unit = unit_of(lowest, highest)
    if unit is not None:
        return unit
    names = ", ".join(f"timestamp_{unit}" for unit in UNITS)
    raise UsageError(
        f"its times are the integers {lowest} to {highest}, of unknown unit; name the column after it "
        f"({names}), or state it in the recipe: tables: [{{files: ..., time: {{column: {name}, unit: ms}}}}]"
    )


def _plain(column: pa.ChunkedArray) -> Times:
    """Return times as int64, those of timestamps in ns; `MIN_TIME` for null."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ns", kind.tz)).cast(pa.int64())
    elif pa.types.is_integer(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_floating(kind):
        raise UsageError(
            f"its times are {kind}, which can't store nanoseconds; write int64 nanoseconds or timestamps: "
            'in pandas, df["timestamp_ns"] = (df["timestamp"] * 1e9).round().astype("int64")'
        )
    else:
        raise UsageError(f"its times are {kind}; write int64 nanoseconds or timestamps")
    times: Times = column.fill_null(MIN_TIME).to_numpy()
    return times
