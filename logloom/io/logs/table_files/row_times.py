"""The times of a table's rows, by the format of its file.

Here: `times_by`, and pure functions from text, floats, pairs and local times to int64 nanoseconds.
Elsewhere: integers and timestamps (times), usual names of time columns (times), guesses (guesses).

Decimal text is exact: its digits are moved, never made a float; digits beyond a nanosecond are dropped.
Floats are rounded to the nearest nanosecond. A cell that is no time is `MIN_TIME`, like a null.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME
from logloom.io.logs.messages.field_times import as_nanoseconds
from logloom.io.logs.table_dialects import TableTime
from logloom.io.logs.table_files.files import CsvTable, TableFile
from logloom.io.logs.table_files.name_times import UNITS
from logloom.io.logs.table_files.times import Times, time_column, times_of, unit_for
from logloom.text import near_to, some_of

PAIRS = (("sec", "nanosec"), ("secs", "nsecs"), ("seconds", "nanoseconds"), ("tv_sec", "tv_nsec"))

_NUMBER = r"^[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d{1,3})?$"
_EXPONENT = re.compile("[eE]")
_WHOLE_DIGITS = 19
# Dates as text, to those of ISO 8601; day and month are clear where dots part them.
_DATES = (
    (r"^(\d{1,2})\.(\d{1,2})\.(\d{4})", r"\3-\2-\1"),
    (r"^(\d{4})[/.](\d{1,2})[/.](\d{1,2})", r"\1-\2-\3"),
    (r"^(\d{4})-(\d)-", r"\1-0\2-"),
    (r"^(\d{4}-\d{2})-(\d)([ T]|$)", r"\1-0\2\3"),
    (r"([ T])(\d):", r"\10\2:"),
    (r"(:\d{2}),(\d+)", r"\1.\2"),
    (r" ?(?:UTC|GMT)$", "Z"),
    (r" ([+-]\d{2}:?\d{2})$", r"\1"),
    (r"(\.\d{9})\d+", r"\1"),
)
_LAST_LOCAL = 2_114_380_800 * 10**9  # 2037-01-01; Arrow knows no summer time after that year
_ZONED = r"([Zz]|[+-]\d{2}:?\d{0,2})$"
_ISO = r"^\d{4}-\d{2}-\d{2}([ Tt]\d{2}(:\d{2}(:\d{2}(\.\d{1,9})?)?)?([Zz]|[+-]\d{2}(:?\d{2})?)?)?$"


def times_by(file: TableFile) -> list[Times]:
    """(N,) int64 ns of each group of rows; `MIN_TIME` for a row without a time.

    Raises:
        UsageError: the recipe states columns or a unit that the table lacks.
        LogReadError: there is no time column, or it has no times.
    """
    how = file.how.row_time or _usual(file)
    names, place = file.schema.names, f"{file.how.where}.time"
    for name in how.names:
        if path_to(file.schema, name) is None:
            raise UsageError(
                f"{place}: {file.uri} has no column {name!r}{near_to(name, names)} (it has "
                f"{some_of(names, 20)})"
            )
    try:
        return _pair(file, how) if how.seconds else _of_columns(file, how)
    except (UsageError, pa.ArrowException) as error:
        raise LogReadError(f"{file.uri}: column {', '.join(how.names)}: {error}") from error


def _usual(file: TableFile) -> TableTime:
    name = time_column(file.schema.names)
    if name is None:
        raise LogReadError(f"{file.uri}: has no time column, only {some_of(file.schema.names, 20)}")
    return TableTime((name,))


def path_to(schema: pa.Schema, name: str) -> tuple[str, ...] | None:
    """Return the names that lead to a column, or into a struct by `a.b`; None without one."""
    if name in schema.names:
        return (name,)
    for at in (i for i, character in enumerate(name) if character == "."):
        if name[:at] in schema.names and pa.types.is_struct(kind := schema.field(name[:at]).type):
            inner = path_to(pa.schema(list(kind)), name[at + 1 :])
            if inner is not None:
                return (name[:at], *inner)
    return None


def column_at(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """Return the column that a path leads to."""
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, [name])
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _columns(file: TableFile, name: str) -> list[pa.ChunkedArray]:
    path = path_to(file.schema, name) or (name,)
    return [column_at(file.read(group, path[:1]), path) for group in range(len(file.groups))]


def _texts(file: TableFile, name: str) -> list[pa.ChunkedArray]:
    """Return a column as text: of CSV as it is written."""
    if isinstance(file, CsvTable):
        return [file.texts([name]).column(name)]
    return [column.cast(pa.string()) for column in _columns(file, name)]


def _joined(file: TableFile, how: TableTime) -> list[pa.ChunkedArray]:
    """Return dates and times of day, each in a column of its own, joined as texts."""
    parts = [_texts(file, name) for name in how.columns]
    return [pc.binary_join_element_wise(*both, " ") for both in zip(*parts, strict=True)]


def shows_no_zone(file: TableFile) -> bool:
    """Return whether a table has times as text without a zone, and no recipe states one."""
    how = file.how.row_time or _usual(file)
    if how.zone or how.seconds:
        return False
    if len(how.columns) == 1:
        path = path_to(file.schema, how.columns[0]) or how.columns
        if not _is_text(column_at(file.schema.empty_table(), path).type):
            return False
        texts = _texts(file, how.columns[0])
    else:
        texts = _joined(file, how)
    dates = (_zoned(pc.utf8_trim_whitespace(_one(text).cast(pa.string()))) for text in texts)
    return any(pc.any(pc.and_(is_one, pc.invert(is_zoned))).as_py() for _, is_one, is_zoned in dates)


def _of_columns(file: TableFile, how: TableTime) -> list[Times]:
    if len(how.columns) > 1:
        return text_times(", ".join(how.columns), _joined(file, how), how)
    (name,) = how.columns
    columns = _columns(file, name)
    kind = columns[0].type if columns else pa.null()
    if pa.types.is_struct(kind):
        return _struct(name, columns)
    if pa.types.is_floating(kind) and not isinstance(file, CsvTable):
        return float_times(name, columns, how.unit)
    if pa.types.is_timestamp(kind) and how.zone:
        return [local_times(column, how.zone) for column in columns]
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        if how.zone:
            raise UsageError(f"its times are {kind}, which have no zone; leave `zone` out")
        return times_of(name, columns, how.unit)
    if pa.types.is_null(kind):
        return [np.full(len(column), MIN_TIME) for column in columns]
    if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind) or _is_text(kind)):
        raise UsageError(f"its times are {kind}; take another column")
    return text_times(name, _texts(file, name), how)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _pair(file: TableFile, how: TableTime) -> list[Times]:
    both = zip(_columns(file, how.seconds), _columns(file, how.nanoseconds), strict=True)
    return [pair_times(seconds, rest) for seconds, rest in both]


def _struct(name: str, columns: Sequence[pa.ChunkedArray]) -> list[Times]:
    names = [field.name for field in columns[0].type]
    pair = next((pair for pair in PAIRS if set(pair) <= set(names)), None)
    if pair is None:
        raise UsageError(f"it has {', '.join(names)}, and no seconds and nanoseconds")
    return [pair_times(*(pc.struct_field(column, [part]) for part in pair)) for column in columns]


def pair_times(seconds: pa.ChunkedArray, rest: pa.ChunkedArray) -> Times:
    """(N,) ns of whole seconds and the nanoseconds beyond them.

    Raises:
        UsageError: they don't fit 64 bits.
        pyarrow.ArrowInvalid: they aren't whole.
    """
    whole, part = (_whole(column) for column in (seconds, rest))
    known = (whole != MIN_TIME) & (part != MIN_TIME)
    _check(whole[known], 10**9)
    _check(part[known], 1)
    _check(whole[known] + part[known] // 10**9, 10**9)
    total: Times = np.where(known, whole, 0) * 10**9 + np.where(known, part, 0)
    return np.where(known, total, MIN_TIME)


def _whole(column: pa.ChunkedArray) -> Times:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise UsageError(f"it is {column.type}, not whole numbers")
    if pa.types.is_floating(column.type):  # of pandas, if some are missing
        column = pc.if_else(pc.is_nan(column), None, column)
    plain: Times = column.cast(pa.int64()).fill_null(MIN_TIME).to_numpy()
    return plain


def float_times(name: str, columns: Sequence[pa.ChunkedArray], unit: str = "") -> list[Times]:
    """(N,) ns of floats, to the nearest; NaN is no time."""
    values = [column.cast(pa.float64()).fill_null(np.nan).to_numpy() for column in columns]
    known = np.concatenate([np.empty(0), *values])
    known = known[~np.isnan(known)]
    if not len(known):
        return [np.full(len(part), MIN_TIME) for part in values]
    low, high = float(known.min()), float(known.max())
    if not -MAX_TIME < low <= high < MAX_TIME:
        raise UsageError(f"its times, {low:g} to {high:g}, don't fit 64 bits as nanoseconds")
    unit = unit or unit_for(name, int(low), int(high))
    _check(np.floor([low, high]).astype(np.int64), UNITS[unit])
    return [as_nanoseconds(part, unit) for part in values]


def resolution(times: Times, kind: pa.DataType) -> int:
    """Return the step of float seconds at the latest of some times, in ns.

    Args:
        kind: the type of floats.
    """
    known = times[times != MIN_TIME]
    latest = np.abs(known).max(initial=0) / 1e9
    return round(float(np.spacing(np.asarray(latest, kind.to_pandas_dtype()))) * 1e9)


def text_times(name: str, columns: Sequence[pa.ChunkedArray], how: TableTime) -> list[Times]:
    """(N,) ns of texts: of numbers, or of dates with times of day.

    Raises:
        UsageError: none is a time, they don't fit 64 bits, or their unit is unclear.
    """
    plain = [pc.utf8_trim_whitespace(_one(column).cast(pa.string())) for column in columns]
    numbers = [pc.fill_null(pc.match_substring_regex(text, _NUMBER), False) for text in plain]
    if not how.zone and any(pc.any(one).as_py() for one in numbers):
        return _decimals(name, [_only(*pair) for pair in zip(plain, numbers, strict=True)], how.unit)
    found = [_dates(text, how.zone) for text in plain]
    if any(len(part) for part in found) and all((part == MIN_TIME).all() for part in found):
        given = next(
            (text.as_py() for part in plain for text in part if text.is_valid and text.as_py()), None
        )
        if given is not None:
            raise UsageError(
                f"its times are text such as {given[:40]!r}; write numbers, or dates like "
                "2023-11-14T22:13:20.5Z"
            )
    return found


def _only(text: pa.Array, wanted: pa.Array) -> pa.Array:
    return pc.if_else(wanted, text, pa.scalar(None, pa.string()))


def _one(column: pa.ChunkedArray) -> pa.Array:
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def _decimals(name: str, columns: Sequence[pa.Array], unit: str) -> list[Times]:
    split = [_split(text) for text in columns]
    known = np.concatenate([np.empty(0, np.int64), *(part[0][part[3]] for part in split)])
    if not len(known):
        return [np.full(len(text), MIN_TIME) for text in columns]
    factor = UNITS[unit or unit_for(name, int(known.min()), int(known.max()))]
    digits = len(str(factor)) - 1
    found = []
    for whole, rest, sign, is_known in split:
        _check(whole[is_known], factor)
        beyond = np.zeros(len(whole), np.int64)
        if digits:
            padded = pc.utf8_slice_codeunits(pc.utf8_rpad(rest, digits, "0"), 0, digits)
            beyond = padded.cast(pa.int64()).to_numpy(zero_copy_only=False)
        times = (np.abs(whole) * factor + beyond) * sign
        found.append(np.where(is_known, times, MIN_TIME))
    return found


def _split(text: pa.Array) -> tuple[Times, pa.Array, Times, NDArray[np.bool_]]:
    """Return whole parts, digits after the point, signs, and which are numbers, of decimal texts or nulls."""
    is_known = text.is_valid().to_numpy(zero_copy_only=False)
    if pc.any(pc.match_substring(pc.fill_null(text, ""), "e", ignore_case=True)).as_py():
        text = pa.array([one and _written_out(one) for one in text.to_pylist()], pa.string())
    text = pc.replace_substring(pc.fill_null(text, "0"), ",", ".")
    sign = np.where(pc.starts_with(text, "-").to_numpy(zero_copy_only=False), -1, 1)
    text = pc.utf8_ltrim(text, "+-")
    digits = pc.utf8_ltrim(pc.replace_substring_regex(text, r"\..*$", ""), "0")
    longest = pc.max(pc.utf8_length(digits)).as_py() or 0
    if longest > _WHOLE_DIGITS - 1 and pc.any(pc.greater(pc.utf8_length(digits), _WHOLE_DIGITS)).as_py():
        raise UsageError("its times don't fit 64 bits as nanoseconds")
    whole = pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64()).to_numpy(zero_copy_only=False)
    rest = pc.if_else(pc.match_substring(text, "."), pc.replace_substring_regex(text, r"^[^.]*\.", ""), "")
    return whole * sign, rest, sign, is_known


def _written_out(number: str) -> str:
    """Return a number without an exponent."""
    return f"{Decimal(number.replace(',', '.')):f}" if _EXPONENT.search(number) else number


def _dates(text: pa.Array, zone: str) -> Times:
    """(N,) ns of texts of dates and times; `MIN_TIME` for what isn't one."""
    text, is_one, is_zoned = _zoned(text)
    with_zone = _parsed(_only(text, is_zoned), pa.timestamp("ns", "UTC")).cast(pa.int64())
    plain = _parsed(_only(text, pc.and_(is_one, pc.invert(is_zoned))), pa.timestamp("ns"))
    local = local_times(pa.chunked_array([plain]), zone) if zone else None
    found: Times = np.asarray(with_zone.fill_null(MIN_TIME).to_numpy(zero_copy_only=False))
    if local is None:
        local = plain.cast(pa.int64()).fill_null(MIN_TIME).to_numpy(zero_copy_only=False)
    return np.where(found == MIN_TIME, local, found)


def _zoned(text: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return texts by ISO 8601, which of them are dates with or without a time, and which have a zone."""
    for pattern, replacement in _DATES:
        text = pc.replace_substring_regex(text, pattern, replacement)
    is_one = pc.fill_null(pc.match_substring_regex(text, _ISO), False)
    is_zoned = pc.and_(is_one, pc.fill_null(pc.match_substring_regex(text, _ZONED), False))
    dated = pc.match_substring_regex(pc.fill_null(text, ""), "[:]")  # or a date ends in -14
    return text, is_one, pc.and_(is_zoned, dated)


def _parsed(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return timestamps; null for what isn't one, such as a 30th of February."""
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return pa.array([_parsed_one(one, kind) for one in text], kind)


def _parsed_one(text: Any, kind: pa.DataType) -> Any:
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return None


def local_times(column: pa.ChunkedArray, zone: str) -> Times:
    """(N,) ns of timestamps that a clock on the wall of a zone showed.

    A time that the zone has twice or never, as summer time ends or begins, is no time; nor is one after
    2036, for which the rules of zones aren't known.
    """
    if column.type.tz:
        raise UsageError(f"its times have the zone {column.type.tz}; leave `zone` out")
    plain = column.cast(pa.timestamp("ns"))
    both = [
        pc.assume_timezone(plain, zone, ambiguous=which, nonexistent=which).cast(pa.int64())
        for which in ("earliest", "latest")
    ]
    first, last = (one.fill_null(MIN_TIME).to_numpy() for one in both)
    return np.where((first == last) & (first < _LAST_LOCAL), first, MIN_TIME)


def _check(values: Times, factor: int) -> None:
    """
    Check the size of times, which may have a fraction beside.

    Raises:
        UsageError: they don't fit 64 bits.
    """
    if not len(values):
        return
    if not -MAX_TIME < (int(values.min()) - 1) * factor <= (int(values.max()) + 1) * factor < MAX_TIME:
        raise UsageError(f"its times, {values.min()} to {values.max()}, don't fit 64 bits as nanoseconds")
