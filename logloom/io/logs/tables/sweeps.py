"""Sweeps: tables that are one message each, named by time or by a pattern.

    lidar/315968434060167000.feather    a sweep: each row a point, and the whole table a message of /lidar
    lidar/315968434159632000.feather

Here: finding them, and `SweepFile`, a view of one as a table of a single row with a list of all.
Elsewhere: patterns and times within tables (logloom.io.logs.table_files), rows as messages (log). Without a
pattern a name is its time as an integer since the Unix epoch, in the unit for which all names of the folder
are between March 1973 and 2262; names of tables that contain times are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from logloom.errors import LogReadError
from logloom.io.logs.interface import MAX_TIME
from logloom.io.logs.table_files.columns import definition_of
from logloom.io.logs.table_files.files import Group, TableFile
from logloom.io.logs.table_files.name_times import STAMP, UNITS, time_in
from logloom.io.logs.table_files.times import TIME_COLUMNS, time_column, unit_of
from logloom.io.storage.filesystems import file_name_of, folder_of

_SHOWN = 20
ROWS = "rows"
WAY_OUT = (
    "Name the column that contains their times, tables: [{files: NAME.csv, time: {column: TIME}}], or leave "
    'them out by a pattern: logs: [DRIVES, "!**/NAME.feather"]; if each is a sweep, declare the times in '
    'their names: time: {name: "lidar_{ns}"}.'
)


class SweepFile:
    """A table as one row, whose only column `rows` is a list of all rows of the table; see `TableFile`.

    Attributes:
        time: ns since the Unix epoch.
    """

    def __init__(self, table: TableFile, time: int):
        self.uri = table.uri
        self.how = table.how
        self.marks_nothing = False
        self.time = time
        self._table = table

    @property
    def _fields(self) -> list[pa.Field]:
        counts = Counter(self._table.schema.names)
        return [field for field in self._table.schema if counts[field.name] == 1]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(ROWS, pa.large_list(pa.struct(self._fields)))])

    @property
    def groups(self) -> Sequence[Group]:
        return [Group(0, 1, sum(group.num_bytes for group in self._table.groups))]

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """See `TableFile.read`; the only group has one column."""
        fields = self._fields
        names = [field.name for field in fields]
        self.check_joined(columns)
        parts = [self._table.read(number, names) for number in range(len(self._table.groups))]
        try:
            whole = pa.concat_tables([pa.schema(fields).empty_table(), *parts]).combine_chunks()
            items = [_one_chunk(whole.column(name)) for name in names]
            struct = pa.StructArray.from_arrays(items, fields=fields)
        except pa.ArrowException as error:
            raise LogReadError(f"{self.uri}: can't be joined to one message: {error}") from error
        return pa.table({ROWS: pa.LargeListArray.from_arrays(np.array([0, len(whole)]), struct)})

    def check_joined(self, columns: Sequence[str]) -> None:
        """See `TableFile.check_joined`."""
        self._table.check_joined([field.name for field in self._fields])


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def with_sweeps(files: Sequence[TableFile], patterns: Sequence[str] = ()) -> list[TableFile]:
    """Return the tables of a log, treating as sweeps those that match a pattern, and those without times if
    all such tables of their folder are named by times.

    Unreadable files are unchanged; reading them reports the error.

    Args:
        patterns: see `names`.

    Raises:
        LogReadError: a name that matches a pattern has no valid time, or that of another file.
    """
    times = {file.uri: time for file in files if (time := time_in(file.uri, patterns)) is not None}
    _check_names(files, times)
    named = {folder_of(uri) for uri in times}
    untimed: dict[str, list[TableFile]] = {}
    for file in files:
        if folder_of(file.uri) not in named and is_untimed(file):
            untimed.setdefault(folder_of(file.uri), []).append(file)
    for found in untimed.values():
        stamps = stamps_of([stem_of(file) for file in found])
        if stamps is not None:
            times |= {file.uri: stamp for file, stamp in zip(found, stamps, strict=True)}
    return [SweepFile(file, times[file.uri]) if file.uri in times else file for file in files]


def _check_names(files: Sequence[TableFile], times: Mapping[str, int]) -> None:
    """
    Check names for conflicts.

    Args:
        times: found by patterns, by URI.

    Raises:
        LogReadError: two files of a folder have the same time, or one that matches no pattern has the columns
            of sweeps.
    """
    seen: dict[tuple[str, int], str] = {}
    for uri, time in times.items():
        other = seen.setdefault((folder_of(uri), time), uri)
        if other != uri:
            raise LogReadError(
                f"{uri}: its name has the time of {file_name_of(other)}, {time} ns, and both would be "
                "messages of one topic; use a folder for each sensor, or leave one out"
            )
    sweeps: dict[str, TableFile] = {}
    for file in files:
        if file.uri in times:
            sweeps.setdefault(folder_of(file.uri), file)
    for file in files:
        sweep = sweeps.get(folder_of(file.uri))
        if sweep is not None and file.uri not in times and _are_alike(file, sweep):
            raise LogReadError(
                f"{file.uri}: has the columns of {file_name_of(sweep.uri)}, which is a sweep by its name, "
                "and a name that doesn't match; rename it, write a pattern that matches, or leave it out"
            )


def _are_alike(one: TableFile, other: TableFile) -> bool:
    try:
        return definition_of(one.schema) == definition_of(other.schema)
    except LogReadError:
        return False  # reading it reports the error


def stamps_of(names: Sequence[str]) -> list[int] | None:
    """Return the times in names, in ns since the Unix epoch; None unless all have one, in one unit.

    >>> stamps_of(["1700000000", "1700000001"])
    [1700000000000000000, 1700000001000000000]
    >>> stamps_of(["1700000000", "1700000001000"]) is None
    True
    """
    if not names or not all(STAMP.fullmatch(name) for name in names):
        return None
    numbers = [int(name) for name in names]
    unit = unit_of(min(numbers), max(numbers))
    if unit is None or max(numbers) * UNITS[unit] > MAX_TIME:
        return None
    return [number * UNITS[unit] for number in numbers]


def stem_of(file: TableFile) -> str:
    """Return the name of a table without its suffix."""
    return file_name_of(file.uri).rsplit(".", 1)[0]


def topic_of(file: TableFile) -> str:
    """Return the topic of a table: the name of the table, or of the folder of sweeps."""
    return "/" + (file_name_of(folder_of(file.uri)) if isinstance(file, SweepFile) else stem_of(file))


def check_folders(topic: str, files: Sequence[TableFile]) -> None:
    """
    Check for overlapping folders of sweeps.

    Raises:
        LogReadError: sweeps of one topic are in folders whose times overlap, so they are of several sensors.
    """
    spans: dict[str, list[int]] = {}
    for file in files:
        if isinstance(file, SweepFile):
            spans.setdefault(folder_of(file.uri), []).append(file.time)
    ordered = sorted((min(times), max(times), folder) for folder, times in spans.items())
    for (_, last, one), (first, _, other) in pairwise(ordered):
        if first <= last:
            raise LogReadError(
                f"{one} and {other}: both contain tables named by times, which overlap, and both would be "
                f"topic {topic}; rename the folders, or give the logs other log_ids"
            )


def check_times(files: Sequence[TableFile], advice: Callable[[TableFile], str]) -> None:
    """
    Check that tables have times.

    Args:
        advice: returns lines for a recipe with which a table has times; "" if it doesn't.

    Raises:
        LogReadError: several tables have no times; lists them.
    """
    untimed = [file for file in files if not isinstance(file, SweepFile) and _time_column(file) is None]
    if len(untimed) > 1:
        names = ", ".join(file_name_of(file.uri) for file in untimed[:_SHOWN])
        more = f" and {len(untimed) - _SHOWN} more" if len(untimed) > _SHOWN else ""
        raise LogReadError(
            f"{folder_of(untimed[0].uri)}: {len(untimed)} tables of the log have neither a time column "
            f"({', '.join(TIME_COLUMNS)}) nor, all of their folder, times as names: {names}{more}."
            + ("".join(map(advice, untimed[:_SHOWN])) or f" {WAY_OUT}")
        )


def is_untimed(file: TableFile) -> bool:
    """Return whether a table has no possible time column, which excludes floats; false if it is damaged."""
    if file.how.time is not None:
        return False
    name = _time_column(file)
    return name is None or (name != "" and pa.types.is_floating(file.schema.field(name).type))


def _time_column(file: TableFile) -> str | None:
    """See `time_column`; "" for a damaged file, and for one whose time a recipe states."""
    if file.how.time is not None:
        return ""
    try:
        return time_column(file.schema.names)
    except LogReadError:
        return ""
