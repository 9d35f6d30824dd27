"""Text of CSV tables: encodings, headers and dialects.

Here: pure functions from the bytes of a file to UTF-8, names and Arrow columns.
Elsewhere: the file (files), how it is written
(logloom.io.logs.table_dialects), guesses of that (guesses).
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from logloom.io.logs.table_dialects import TableDialect

MAX_HEADER = 1 << 20  # bytes of the lines up to the end of the header
# Numbers that are none, beside empty cells; NaN is a number here.
NULLS = ["", "#N/A", "#N/A N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "n/a", "null", "None"]
NULLS += ["-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN"]

_BOM = b"\xef\xbb\xbf"
_ROW = re.compile(r"Row #(\d+)")
_EXACT = 2.0**53  # float64 has all integers up to this one
_INTEGER = r"^\s*[-+]?[0-9]+\s*$"


def in_utf8(data: bytes, encoding: str) -> bytes:
    """Return text as UTF-8 without a byte order mark.

    Raises:
        ValueError: it isn't text of this encoding; names line and byte.
    """
    try:
        if encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig"):
            return data.decode(encoding).removeprefix("\ufeff").encode()
        offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)]).validate(full=True)
    except UnicodeDecodeError as error:
        raise _undecodable(data, error, encoding) from error
    except pa.ArrowInvalid:
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _undecodable(data, error, encoding) from error
    return data.removeprefix(_BOM)


def _undecodable(data: bytes, error: UnicodeDecodeError, encoding: str) -> ValueError:
    line = data.count(b"\n", 0, error.start) + 1
    return ValueError(
        f"line {line} is not {encoding}: byte {data[error.start]:#04x} at byte {error.start} ({error.reason})"
    )


def header_of(data: bytes, how: TableDialect) -> tuple[list[str], int]:
    """Return the names of the columns as they are written, and where the rows begin.

    Raises:
        ValueError: there is no header, or it is too long to be one.
    """
    start = 0
    for _ in range(how.skip):
        end = data.find(b"\n", start)
        if end < 0:
            raise ValueError(f"it has fewer than the {how.skip} lines that `skip` leaves out")
        start = end + 1
    at = [start]
    try:
        lines = _lines(data, at)
        found = next((names for names in csv.reader(lines, delimiter=how.delimiter) if any(names)), None)
    except csv.Error as error:
        raise ValueError(f"its header can't be read: {error}") from error
    if found is None:
        raise ValueError("it has no lines" if not how.skip else "it has no lines after those left out")
    if how.header is True:
        return found, at[0]
    names = how.header or [f"column_{number}" for number in range(1, len(found) + 1)]
    return list(names), start


def _lines(data: bytes, at: list[int]) -> Iterator[str]:
    """Return the lines from a place, which is moved along."""
    first = at[0]
    while at[0] < len(data):
        end = data.find(b"\n", at[0], first + MAX_HEADER) + 1
        if not end and len(data) > first + MAX_HEADER:
            raise csv.Error(f"its first lines are longer than {MAX_HEADER} bytes")
        line = data[at[0] : end or len(data)]
        at[0] += len(line)
        yield line.decode()


def rows_of(
    data: bytes,
    first: int,
    names: Sequence[str],
    how: TableDialect,
    texts: Sequence[str] = (),
    nulls: Sequence[str] = NULLS,
) -> pa.Table:
    """Return the rows from a place on; Arrow infers their types.

    Columns of integers that float64 would round are int64, uint64 or, beyond 64 bits, text; NaN is no value.

    Args:
        names: of all columns, each once.
        texts: only these columns, as text; () for all.
        nulls: cells of numbers that are none.

    Raises:
        pyarrow.ArrowInvalid: rows have other numbers of cells; names the line.
    """
    if not data[first:].strip() if len(data) - first < MAX_HEADER else False:
        return pa.table({name: pa.array([], pa.string() if texts else pa.null()) for name in texts or names})
    plain = dict.fromkeys(texts, pa.string())
    convert = pa_csv.ConvertOptions(
        null_values=list(nulls),
        decimal_point=how.decimal,
        include_columns=list(texts) or None,
        column_types=plain,
        strings_can_be_null=bool(texts),
    )
    # Only quoted cells contain line breaks; looking for these slows the reading down.
    parse = pa_csv.ParseOptions(delimiter=how.delimiter, newlines_in_values=data.find(b'"', first) >= 0)
    try:
        table = pa_csv.read_csv(
            pa.py_buffer(memoryview(data)[first:]),
            read_options=pa_csv.ReadOptions(use_threads=False, column_names=list(names)),
            parse_options=parse,
            convert_options=convert,
        )
    except pa.ArrowInvalid as error:
        above = data.count(b"\n", 0, first)
        raise pa.ArrowInvalid(_ROW.sub(lambda row: f"line {int(row[1]) + above}", str(error))) from error
    large = [name for name in table.column_names if _may_be_rounded(table.column(name))]
    if large:
        written = rows_of(data, first, names, how, large, nulls)
        for name in large:
            table = table.set_column(
                table.column_names.index(name), name, _exact(table.column(name), written.column(name))
            )
    return table


def _may_be_rounded(column: pa.ChunkedArray) -> bool:
    """Return whether Arrow may have read a column of large integers as floats."""
    if not pa.types.is_float64(column.type):
        return False
    numbers = column.to_numpy()
    return bool((np.isfinite(numbers) & (np.abs(numbers) >= _EXACT)).any())


def _exact(floats: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the numbers of a column, as integers or texts if all its cells are integers."""
    texts = pc.if_else(pc.is_nan(floats), pa.scalar(None, pa.string()), texts)
    if not pc.all(pc.match_substring_regex(texts, _INTEGER)).as_py():
        return floats
    plain = pc.utf8_ltrim(pc.utf8_trim_whitespace(texts), "+")
    for kind in (pa.int64(), pa.uint64()):
        with contextlib.suppress(pa.ArrowInvalid):
            return pc.cast(plain, kind)
    return texts
