"""A catalogue: a table of a recipe's logs, with a row for each file or folder.

Here: reading the table and selecting rows.
Elsewhere: its keys in a recipe (`LogTable` in model), the files themselves (logs).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logloom.errors import DatasetError, LogReadError, UsageError
from logloom.io.formats.registry import taking
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import absolute_uri, contents, folder_of
from logloom.io.storage.metadata import canonical
from logloom.query import where
from logloom.query.comparison import Categories
from logloom.schema import AVAILABLE, NO_AGE, TIMESTAMP, ColumnType, root_of
from logloom.text import counted, near_to
from logloom.uris import shown, without_query

if TYPE_CHECKING:
    import pyarrow as pa

    from logloom.recipe.sections import LogTable

MAX_BYTES = 1 << 30
MAX_ROWS = 10_000_000


class ListedLog(NamedTuple):
    """A row of a catalogue.

    Attributes:
        uri: absolute.
        log_id, split: "" if the catalogue doesn't define it.
        catalogue: its values for outputs, see `logloom.io.catalog.log_tables`; "" if none.
    """

    uri: str
    log_id: str = ""
    split: str = ""
    catalogue: str = ""


def read_catalogue(
    logs: LogTable, base: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> list[ListedLog]:
    """Return the selected rows in the table's order; relative URIs are resolved against the table's folder.

    Raises:
        UsageError: the table or a column doesn't exist, a value isn't text, `where` is invalid, or no row is
            selected. Rows are numbered from 1, without the header.
        StorageError: it can't be read.
    """
    uri = absolute_uri(logs.table, base)
    table = _read(uri, storage_options)
    place = shown(uri)
    wanted = {"uri": logs.uri, "log_id": logs.log_id, "split": logs.split, "host": logs.host}
    for key, column in [*wanted.items(), *(("index", column) for column in logs.index)]:
        if column is not None and column not in table.column_names:
            raise UsageError(f"{place}: {key}: no column {column!r}{near_to(column, table.column_names)}")
    if not len(table):  # before types, which a table without rows may not have
        raise UsageError(f"{place}: the table has no rows, and so lists no logs")
    index = {name: _values(table, name, place) for name in logs.index}  # of all rows, so that types stay
    numbers = np.arange(1, len(table) + 1)
    if logs.where:
        meant = _meant(logs.where, table, place)
        numbers = numbers[np.asarray(meant)]
        if not len(numbers):
            raise UsageError(f"{place}: where: none of {counted(len(table), 'row')} matches {logs.where!r}")
        table, index = table.filter(meant), {name: values.filter(meant) for name, values in index.items()}
    texts = {
        key: _texts(table, column, numbers, place) for key, column in wanted.items() if column is not None
    }
    catalogued = _catalogued(texts.pop("host", None), index, numbers, place)
    folder = folder_of(uri)
    return [
        ListedLog(absolute_uri(row["uri"], folder), row.get("log_id", ""), row.get("split", ""), catalogue)
        for row, catalogue in zip(_rows(texts), catalogued, strict=True)
    ]


def _rows(columns: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _catalogued(
    hosts: Sequence[str] | None, index: Mapping[str, pa.Array], numbers: NDArray[np.int64], place: str
) -> Iterator[str]:
    """Return each row's values for outputs, see `logloom.io.catalog.log_tables`.

    Args:
        numbers: of the rows in their table.
    """
    for form in [] if hosts is None else taking("host"):
        for row, host in zip(numbers, hosts or (), strict=True):
            if problem := form.check_taken(host):
                raise UsageError(f"{place}: row {row}: {problem}")
    columns = {name: [_plain(value) for value in values.to_pylist()] for name, values in index.items()}
    for row in range(len(numbers)):
        entry: dict[str, Any] = {} if hosts is None else {"host": hosts[row]}
        if columns:
            entry["index"] = [[name, values[row]] for name, values in columns.items()]
        yield canonical(entry).decode() if entry else ""


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _values(table: pa.Table, name: str, place: str) -> pa.Array:
    """Return (N,) texts, booleans or numbers; missing texts are empty, missing booleans false."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    column = table[name].combine_chunks()
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_null(column.type) or types.is_string(column.type) or types.is_large_string(column.type):
        return pc.fill_null(column.cast(pa.string()), "")
    if types.is_boolean(column.type):
        return pc.fill_null(column, False)
    if types.is_floating(column.type) or (types.is_integer(column.type) and column.null_count):
        try:
            return column.cast(pa.float64())  # as in pandas, if numbers are missing
        except pa.ArrowInvalid as error:
            raise UsageError(
                f"{place}: index: {name} has missing numbers, so it is kept as float64, which can't "
                f"represent all others ({error}); fill them, or use text"
            ) from error
    if types.is_integer(column.type) and column.type != pa.uint64():
        return column
    raise UsageError(
        f"{place}: index: {name} is {column.type}; expected text, booleans, floats or integers within int64"
    )


def _read(uri: str, storage_options: Mapping[str, Any] | None) -> pa.Table:
    """
    Raises:
        UsageError: the table doesn't exist, or isn't one.
        StorageError: it can't be read.
    """
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    readers = {
        ".parquet": pyarrow.parquet.read_table,
        ".pq": pyarrow.parquet.read_table,
        ".feather": pyarrow.feather.read_table,
        ".csv": _csv,
    }
    place = shown(uri)
    path = without_query(uri).lower()
    reader = next((reader for suffix, reader in readers.items() if path.endswith(suffix)), None)
    if reader is None:
        raise UsageError(f"{place}: not a table; a catalogue has the suffix {', '.join(readers)}")
    try:
        data = contents(uri, storage_options, MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"{place}: larger than {MAX_BYTES >> 30} GiB, the limit for a catalogue")
        table = reader(pa.BufferReader(data))
    except MISSING:
        raise UsageError(f"{place}: there is no such table") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"{place}: not a table, or a damaged one ({error})") from error
    if table.num_rows > MAX_ROWS:
        raise UsageError(f"{place}: more than {MAX_ROWS:,} rows, the limit for a catalogue")
    return table


def _csv(source: pa.BufferReader) -> pa.Table:
    from pyarrow.csv import ConvertOptions

    from logloom.io.logs.table_dialects import TableDialect, unique
    from logloom.io.logs.table_files import csv_text

    how = TableDialect()
    text = csv_text.in_utf8(source.read(), how.encoding)
    names, first = csv_text.header_of(text, how)
    return csv_text.rows_of(text, first, unique(names), how, nulls=ConvertOptions().null_values)


def _texts(table: pa.Table, column: str, numbers: NDArray[np.int64], place: str) -> list[str]:
    """Return the values of a column, each a non-empty text."""
    values: list[Any] = table[column].to_pylist()
    for row, value in zip(numbers, values, strict=True):
        if not isinstance(value, str) or not value:
            raise UsageError(f"{place}: row {row}: {column} is {value!r:.80}; expected a text")
    return values


def _meant(text: str, table: pa.Table, place: str) -> pa.Array:
    """Return a (N,) mask of the rows that match a filter; comparisons with a missing value are unknown."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    try:
        found = where.parse(text)
        found.check_names([*table.column_names, *(f"{name}.available" for name in table.column_names)])
        columns: dict[str, Any] = {}
        kinds: dict[str, ColumnType] = {}
        for name in dict.fromkeys(root_of(name, table.column_names) or name for name in found.columns):
            column = table[name]
            if types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if types.is_string(column.type) or types.is_large_string(column.type):
                columns[name] = Categories.found_in(pc.fill_null(column, "").to_pylist())
                kinds[name] = ColumnType(np.dtype(np.uint8), (None,), "string")
            elif types.is_integer(column.type):
                columns[name] = pc.fill_null(column, 0).to_numpy()  # floats would round integers
                kinds[name] = ColumnType(columns[name].dtype)
            elif types.is_floating(column.type):
                columns[name] = column.to_numpy()
                kinds[name] = ColumnType(columns[name].dtype)
            elif types.is_boolean(column.type):
                columns[name] = pc.fill_null(column, False).to_numpy()
                kinds[name] = ColumnType(np.dtype(bool))
            elif types.is_timestamp(column.type) or types.is_date(column.type):
                times = column.cast(pa.timestamp("ns", getattr(column.type, "tz", None)), safe=True)
                columns[name] = pc.fill_null(times.cast(pa.int64()), NO_AGE).to_numpy()
                kinds[name] = TIMESTAMP
            else:
                raise UsageError(
                    f"where: {name} is {column.type}; only numbers, texts, booleans, dates and times are "
                    "compared"
                )
            columns.setdefault(f"{name}.available", column.is_valid().to_numpy())
            kinds.setdefault(f"{name}.available", AVAILABLE)
        return pa.array(np.asarray(found.bound(kinds).mask(columns, table.num_rows)))
    except (UsageError, DatasetError, LogReadError, pa.ArrowInvalid) as error:
        raise UsageError(f"{place}: {error}") from error
