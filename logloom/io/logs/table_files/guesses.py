"""Guesses of table dialects, for suggested recipes.

A build never uses a guess silently.

Here: `guess`, and pure functions from the beginning of text to a dialect, and from columns to their time.
Elsewhere: what is guessed (logloom.io.logs.table_dialects), the usual names of time columns (times).
"""

from __future__ import annotations

import codecs
import csv
import glob
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logloom.errors import LogReadError, UsageError
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.interface import MIN_TIME, OpenOptions
from logloom.io.logs.table_dialects import TableDialect, TableTime, unique
from logloom.io.logs.table_files import csv_text
from logloom.io.logs.table_files.files import CsvTable, TableFile, table_file
from logloom.io.logs.table_files.name_times import UNITS, timing_names
from logloom.io.logs.table_files.row_times import PAIRS, column_at, path_to, text_times
from logloom.io.logs.table_files.times import time_column, unit_of
from logloom.io.storage.filesystems import file_name_of

MAX_SAMPLE = 1 << 20  # bytes of text that show a dialect
MAX_LINES = 60
MAX_DEPTH = 3  # of structs that may hold a time

_DELIMITERS = ",;\t|"
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf)\s*", re.IGNORECASE)
_DATED = re.compile(r"\s*\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T]\d{1,2}:.*)?")
_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_COMMENT = re.compile(r"\s*(#|//|%|sep=.$)")  # also a line for Excel
_UNIT_WORDS = {
    **{unit: unit for unit in UNITS},
    **dict.fromkeys(("nsec", "nsecs", "nanosec", "nanosecs", "nanosecond", "nanoseconds", "nanos"), "ns"),
    **dict.fromkeys(("usec", "usecs", "µs", "μs", "microsecond", "microseconds", "micros"), "us"),
    **dict.fromkeys(("msec", "msecs", "millisecond", "milliseconds", "millis"), "ms"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
}
_TIMES = {
    "time",
    "timestamp",
    "stamp",
    "zeit",
    "zeitstempel",
    "datetime",
    "t",
    "ts",
    "timestamps",
    "unixtime",
}
_TIMES |= {
    "epoch",
    "utc",
    "utctime",
    "rosbagtimestamp",
    "systemtime",
    "gpstime",
    "unixtimestamp",
    "datumzeit",
}
_DAYS, _HOURS = {"date", "datum", "day", "tag"}, {"time", "zeit", "uhrzeit", "clock", "timeofday"}
_INDEX = re.compile(r"__index_level_\d+__|unnamed(_\d+)?|Unnamed: 0|index")
_OF_VALUES = 3  # the rank of any other name, if the column contains dates with times of day
_TIMED = r"^\s*\d{1,4}[-./]\d{1,2}[-./]\d{1,4}[ T]\d{1,2}:"
_PAIR = re.compile(
    r"(?P<stem>.*?)(?P<seconds>tv_sec|seconds|secs|sec|s)", re.IGNORECASE
)  # of a name, before the nanoseconds
_RESTS = ("nanosec", "nanosecs", "nsec", "nsecs", "nanoseconds", "nanosecond", "nanos", "tv_nsec", "ns")


def guess(uri: str, options: OpenOptions, known: TableDialect | None = None) -> TableDialect:
    """Return how a table seems to be written; `files` is its name.

    A table that needs no statement of a recipe has the plain dialect, as has a sweep, which is named by its
    time.

    Args:
        known: what a recipe states of it; only the time is guessed.

    Raises:
        LogReadError: the file can't be read as a table.
    """
    how = known or TableDialect(glob.escape(file_name_of(uri)))
    if how.time is not None or timing_names([uri], ()):
        return how
    file = table_file(uri, options, how)
    if not isinstance(file, CsvTable):
        return replace(how, time=time_of(file.schema, _reader(file)))
    sample, how = _sample(LogFile(uri, options.storage_options), options, how, known is None)
    return replace(how, time=time_of(sample.schema, sample.column))


def is_time_name(name: str) -> bool:
    """Return whether a column's name is that of a time, or of a part of one.

    >>> [is_time_name(name) for name in ("timestamp_ns", "header.stamp.secs", "%time", "nsec")]
    [True, True, True, True]
    >>> [is_time_name(name) for name in ("lap_times", "speed", "s")]  # an arc length, too, is called s
    [False, False, False]
    """
    words = _words(name)
    parts = [word for word in words if word not in _UNIT_WORDS]
    return "".join(parts) in _TIMES or "stamp" in parts or (not parts and words not in ([], ["s"]))


def _reader(file: TableFile) -> Callable[[str], pa.ChunkedArray]:
    """Read a column of a file's first rows."""
    if not len(file.groups):
        return lambda name: pa.chunked_array([], file.schema.field(name).type)
    return lambda name: file.read(0, [name]).column(name)


# --- text -----------------------------------------------------------------------------------------------


def _sample(
    file: LogFile, options: OpenOptions, how: TableDialect, is_free: bool
) -> tuple[pa.Table, TableDialect]:
    """Return the first rows of a CSV file, and its dialect; that of a recipe unless `is_free`."""
    whole = file.read(0, min(file.size, options.max_chunk_bytes))
    try:
        if is_free:
            how = replace(how, encoding=encoding_of(whole))
        start = whole[:MAX_SAMPLE]
        text = (
            csv_text.in_utf8(start, how.encoding) if len(start) == len(whole) else _cut(start, how.encoding)
        )
        if is_free and not _is_plain(text, how):
            how = text_dialect(text, how)
        written, first = csv_text.header_of(text, how)
        return csv_text.rows_of(text, first, unique(written), how), how
    except (ValueError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise LogReadError(
            f"{file.uri}: can't be read as csv: {reason}. Write it again, or leave it out."
        ) from error


def _cut(start: bytes, encoding: str) -> bytes:
    """Return the whole lines of the beginning of a text, as UTF-8.

    Raises:
        ValueError: it has no line, but perhaps a very long one.
    """
    text = codecs.getincrementaldecoder(encoding)("replace").decode(start).removeprefix("\ufeff")
    end = text.rfind("\n")
    if end < 0:
        raise ValueError(f"line 1 is longer than {MAX_SAMPLE} bytes")
    return text[: end + 1].encode()


def _is_plain(text: bytes, how: TableDialect) -> bool:
    """Whether text is read by the defaults, as it has a column with a usual name of times."""
    try:
        written, first = csv_text.header_of(text, how)
        csv_text.rows_of(text, first, unique(written), how)
    except (ValueError, pa.ArrowException):
        return False
    return time_column(unique(written)) is not None


def encoding_of(data: bytes) -> str:
    """Return the encoding of text: by its byte order mark, as UTF-8, else one of Western Europe.

    Raises:
        ValueError: it isn't text.

    >>> [encoding_of(text) for text in ("ü".encode(), "ü".encode("utf-16"), "ü".encode("latin-1"), b"5\\x80")]
    ['utf-8', 'utf-16', 'latin-1', 'cp1252']
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    start = data[:4096]
    if b"\0" in start:
        for at, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
            if start[at::2].count(0) > len(start) // 4 and not start[1 - at :: 2].count(0):
                return encoding
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise ValueError(f"line {line} has a NUL byte, which no text has")
    try:
        csv_text.in_utf8(data, "utf-8")
    except ValueError:
        return "cp1252" if any(0x80 <= byte < 0xA0 for byte in set(data)) else "latin-1"
    return "utf-8"


def text_dialect(text: bytes, how: TableDialect) -> TableDialect:
    """Return the format with delimiter, lines to skip, header and decimal point of some first lines."""
    lines = text.decode().splitlines()[:MAX_LINES]
    delimiter, count = _delimiter(lines)
    fit = [i for i, line in enumerate(lines) if line.strip() and len(_cells(line, delimiter)) == count]
    at = next((i for i in fit if not _COMMENT.match(lines[i])), fit[0] if fit else 0)
    header: bool | tuple[str, ...] = True
    if lines and _is_data(_cells(lines[at], delimiter)):
        if at - 1 in fit and not _is_data(_cells(lines[at - 1], delimiter)):  # a comment of as many cells
            at -= 1
        else:
            header = _commented(lines[at - 1], delimiter, count) if at else False
    data = [_cells(line, delimiter) for line in lines[at + (header is True) :]]
    flat = [cell.strip() for row in data for cell in row]
    commas, points = (sum(bool(one.fullmatch(cell)) for cell in flat) for one in (_COMMA, _POINT))
    decimal = "," if commas and not points and delimiter != "," else "."
    return replace(how, delimiter=delimiter, decimal=decimal, header=header, skip=at)


def _delimiter(lines: Sequence[str]) -> tuple[str, int]:
    """Return the delimiter that most lines agree on, and the cells that it makes of a line.

    Of several, the one that makes most cells numbers or dates: 0,5;1,5 holds no 5;1.
    """
    rows = [line for line in lines if line.strip() and not _COMMENT.match(line)]
    rows = rows or [line for line in lines if line.strip()]
    best = (0.0, 0.0, 0, ",")
    for delimiter in _DELIMITERS + " " if rows else "":
        cells = [_cells(line, delimiter) for line in rows]
        count, agreed = Counter(map(len, cells)).most_common(1)[0]
        clear = sum(_is_value(cell) for row in cells if len(row) == count for cell in row)
        rank = (agreed / len(rows), clear / max(agreed * count, 1), count)
        is_better = count > 1 and rank > best[:3] and (delimiter != " " or best[2] < 2)
        best = (*rank, delimiter) if is_better else best
    return best[3], max(best[2], 1)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return [line]


def _is_data(cells: Sequence[str]) -> bool:
    """Whether cells are those of a row, and no names, none of which is a number."""
    return any(map(_is_value, cells))


def _is_value(cell: str) -> bool:
    """Whether a cell is a number or a date."""
    return bool(_NUMBER.fullmatch(cell) or _DATED.fullmatch(cell))


def _commented(line: str, delimiter: str, count: int) -> bool | tuple[str, ...]:
    """Return the names in a comment above the first row; False if it has none."""
    names = _cells(_COMMENT.sub("", line, count=1).strip(), delimiter)
    names = [name.strip() for name in names]
    return tuple(names) if len(names) == count and all(names) and not _is_data(names) else False


# --- times ----------------------------------------------------------------------------------------------


def time_of(schema: pa.Schema, column: Callable[[str], pa.ChunkedArray]) -> TableTime | None:
    """Return the time of a table's rows; None if its usual column is clear, or there is none.

    Args:
        column: reads one of some first rows.
    """
    usual = time_column(schema.names)
    if usual is not None and _unit(usual, usual, schema.field(usual).type, column(usual)) is not None:
        kind = schema.field(usual).type
        is_plain = not pa.types.is_struct(kind) and _by_size_or_name(usual, column(usual))
        return None if is_plain else _one(usual, kind, column(usual))
    paths = list(paths_of(schema))
    return _by_date(schema, column) or _by_pair(paths) or _by_name(schema, paths, column)


def _by_size_or_name(name: str, column: pa.ChunkedArray) -> bool:
    """Whether the unit of a usual column is known without a statement."""
    if not _is_number(column.type):
        return True
    low, high = _range(column)
    return name.rpartition("_")[2] in UNITS or unit_of(int(low), int(high)) is not None


def paths_of(
    schema: Sequence[pa.Field], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, pa.DataType]]:
    """Return columns and fields of structs, by their paths."""
    for field in schema:
        yield prefix + field.name, field.type
        if pa.types.is_struct(field.type) and depth < MAX_DEPTH:
            yield from paths_of(list(field.type), f"{prefix}{field.name}.", depth + 1)


def _words(name: str) -> list[str]:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).casefold()
    return [word for word in re.split(r"[^0-9a-zäöüßµμ]+", name) if word]


def _rank(name: str) -> int | None:
    """Return how likely a name is that of a time, from 0; None if it isn't."""
    words = [word for word in _words(name) if word not in _UNIT_WORDS]
    if "".join(words) in _TIMES:
        return 0
    if words[-1:] and words[-1] in _TIMES - {"t"}:
        return 1
    return 2 if _INDEX.fullmatch(name) else None


def _named_unit(name: str) -> str:
    units = [_UNIT_WORDS[word] for word in _words(name) if word in _UNIT_WORDS]
    return units[-1] if units else ""


def _by_name(
    schema: pa.Schema, paths: Sequence[tuple[str, pa.DataType]], column: Callable[[str], pa.ChunkedArray]
) -> TableTime | None:
    found: list[tuple[int, int, TableTime]] = []
    for at, (path, kind) in enumerate(paths):
        rank = _rank(path)
        names = path_to(schema, path)
        is_dated = pa.types.is_timestamp(kind) or pa.types.is_string(kind)
        if names is None or pa.types.is_nested(kind) or (rank is None and not is_dated):
            continue
        values = column_at(pa.table({names[0]: column(names[0])}), names)
        if rank is None:
            if pa.types.is_string(kind) and not _looks(values, _TIMED):
                continue
            rank = _OF_VALUES
        unit = _unit(path, path, kind, values, is_index=rank == 2)
        if unit is not None:
            found.append((rank, at, TableTime((path,), unit)))
    return min(found)[2] if found else None


def _one(name: str, kind: pa.DataType, column: pa.ChunkedArray) -> TableTime:
    return TableTime((name,), _unit(name, name, kind, column) or "")


def _unit(
    name: str, path: str, kind: pa.DataType, column: pa.ChunkedArray, is_index: bool = False
) -> str | None:
    """Return the unit of a column of times, "" for timestamps and dates; None if it has no times."""
    if pa.types.is_timestamp(kind):
        return ""
    if pa.types.is_struct(kind):
        return "" if _pair_in(kind) else None
    if _is_number(kind):
        low, high = _range(column)
        known = unit_of(int(low), int(high)) if low <= high else None
        named = "" if is_index else _named_unit(path)
        is_seconds = not is_index and pa.types.is_floating(kind) and 0 <= low <= high < 10**7
        return named or known or ("s" if is_seconds else None)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            times = text_times(name, [column], TableTime((name,), _named_unit(path)))[0]
        except (UsageError, pa.ArrowException):
            return None
        return "" if len(times) and (times != MIN_TIME).mean() > 0.5 else None
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _range(column: pa.ChunkedArray) -> tuple[float, float]:
    """Return the lowest and the highest number; (1, 0) without any."""
    known = column.drop_null().cast(pa.float64() if not pa.types.is_integer(column.type) else column.type)
    values = known.to_numpy()
    values = values[np.isfinite(values)]
    return (values.min().item(), values.max().item()) if len(values) else (1, 0)


def _by_pair(paths: Sequence[tuple[str, pa.DataType]]) -> TableTime | None:
    """Return the first pair of seconds and nanoseconds, or a struct of one; a stamp's before others."""
    found: list[tuple[bool, int, TableTime]] = []
    kinds = {path.casefold(): (path, kind) for path, kind in paths}
    names = {path for path, _ in paths}
    for at, (path, kind) in enumerate(paths):
        is_stamp = "stamp" not in path.casefold()
        if pa.types.is_struct(kind) and _pair_in(kind):
            found.append((is_stamp, at, TableTime((path,))))
        match = _PAIR.fullmatch(path)
        is_inside = path.rpartition(".")[0] in names  # of a struct, which is found whole
        if match is None or not _is_number(kind) or is_inside:
            continue
        rest = (kinds.get(f"{match['stem'].casefold()}{name}") for name in _RESTS)
        other = next((one for one in rest if one and _is_number(one[1])), None)
        if other is not None:
            found.append((is_stamp, at, TableTime(seconds=path, nanoseconds=other[0])))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _pair_in(kind: pa.DataType) -> bool:
    names = {field.name for field in kind}
    return any(names >= set(pair) for pair in PAIRS)


def _by_date(schema: pa.Schema, column: Callable[[str], pa.ChunkedArray]) -> TableTime | None:
    """Return columns of the date and of the time of day."""

    def named(known: set[str]) -> list[str]:
        return [name for name in schema.names if "".join(_words(name)) in known]

    for day in named(_DAYS):
        kind = schema.field(day).type
        is_day = pa.types.is_date(kind) or (
            pa.types.is_string(kind) and _looks(column(day), r"^\d+\D\d+\D\d+$")
        )
        for hour in named(_HOURS) if is_day else ():
            kind = schema.field(hour).type
            is_text = pa.types.is_string(kind) and _looks(column(hour), r"^\d+:\d+(:[\d.,]+)?$")
            if hour != day and (pa.types.is_time(kind) or is_text):
                return TableTime((day, hour))
    return None


def _looks(column: pa.ChunkedArray, pattern: str) -> bool:
    known = column.drop_null()
    return len(known) > 0 and bool(pc.all(pc.match_substring_regex(known, pattern)).as_py())
