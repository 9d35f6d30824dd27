"""Dialects of tables: text format, times and column names, given or guessed.

Here: `TableDialect` and `TableTime`, their plain data, and which of them is that of a file; `OfTables`.
Elsewhere: reading text by it, times, guesses (logloom.io.logs.table_files), the recipe's keys
(logloom.recipe.table_entries).
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol, runtime_checkable

from logloom.io.storage.filesystems import file_name_of
from logloom.uris import without_query
from logloom.values import dataclass

KEY = "tables"  # of a recipe
DELIMITERS = {"tab": "\t", "space": " "}  # by their names in recipes


@dataclass(frozen=True)
class TableTime:
    """The time of rows: that of a column, or seconds and nanoseconds of two.

    Attributes:
        columns: the column, or those of the date and of the time of day; () with `seconds`.
        unit: of numbers, a key of `UNITS`; "" for that of the column's name or size.
        zone: of local times, a name of the IANA database or an offset; "" for UTC.
    """

    columns: tuple[str, ...] = ()
    unit: str = ""
    zone: str = ""
    seconds: str = ""
    nanoseconds: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All columns."""
        return self.columns or (self.seconds, self.nanoseconds)

    def to_data(self) -> dict[str, Any]:
        """Return the value of `time` in a recipe."""
        if not self.columns:
            return {"seconds": self.seconds, "nanoseconds": self.nanoseconds}
        one = self.columns[0] if len(self.columns) == 1 else list(self.columns)
        more = {"unit": self.unit, "zone": self.zone}
        return {"column": one, **{key: value for key, value in more.items() if value}}


@dataclass(frozen=True)
class TableDialect:
    """How the tables with some names are written.

    Attributes:
        files: pattern of their names or paths.
        delimiter, decimal, encoding: of text.
        header: whether the first line has the columns' names; or the names, if no line has.
        skip: number of lines before the header.
        time: of rows; None for a column with a usual name.
        columns: pairs of a column's name and another for it.
        where: the place in a recipe that states this, for messages.
    """

    files: str = "*"
    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    header: bool | tuple[str, ...] = True
    skip: int = 0
    time: TableTime | None = None
    columns: tuple[tuple[str, str], ...] = ()
    where: str = field(default=KEY, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether a file needs no entry in a recipe."""
        return self.to_data().keys() <= {"files"}

    @property
    def row_time(self) -> TableTime | None:
        """The time of rows, by the names that columns get."""
        if self.time is None or not self.columns:
            return self.time
        new = dict(self.columns)
        seconds, rest = (new.get(name, name) for name in (self.time.seconds, self.time.nanoseconds))
        columns = tuple(new.get(name, name) for name in self.time.columns)
        return replace(self.time, columns=columns, seconds=seconds, nanoseconds=rest)

    @property
    def of_text(self) -> list[str]:
        """The keys that apply to CSV alone, as far as they are stated."""
        return [key for key in self.to_data() if key not in ("files", "time", "columns")]

    def fits(self, uri: str) -> bool:
        """Return whether the pattern is that of a file."""
        path = without_query(uri)
        return fnmatchcase(file_name_of(uri), self.files) or any(
            fnmatchcase(path, pattern) for pattern in (self.files, f"*/{self.files}")
        )

    def to_data(self) -> dict[str, Any]:
        """Return the entry of a recipe: what differs from the defaults.

        >>> TableDialect("gps.csv", delimiter=";", time=TableTime(("Zeit",), "ms")).to_data()
        {'files': 'gps.csv', 'delimiter': ';', 'time': {'column': 'Zeit', 'unit': 'ms'}}
        """
        names = {character: name for name, character in DELIMITERS.items()}
        stated: dict[str, Any] = {"files": self.files}
        for key in ("delimiter", "decimal", "encoding", "header", "skip"):
            value = getattr(self, key)
            if value != getattr(TableDialect, key):
                stated[key] = list(value) if isinstance(value, tuple) else value
        if "delimiter" in stated:
            stated["delimiter"] = names.get(self.delimiter, self.delimiter)
        if self.time is not None:
            stated["time"] = self.time.to_data()
        return stated | ({"columns": dict(self.columns)} if self.columns else {})

    @classmethod
    def from_data(cls, data: Mapping[str, Any], where: str = KEY) -> TableDialect:
        """Return the dialect of a recipe's entry, which has been checked."""
        header, time = data.get("header", True), data.get("time")
        delimiter = data.get("delimiter", ",")
        return cls(
            data["files"],
            DELIMITERS.get(delimiter, delimiter),
            data.get("decimal", "."),
            data.get("encoding", "utf-8"),
            header if isinstance(header, bool) else tuple(header),
            data.get("skip", 0),
            None if time is None else _time(time),
            tuple(data.get("columns", {}).items()),
            where,
        )


def _time(data: Mapping[str, Any]) -> TableTime:
    column = data.get("column") or ()
    columns = (column,) if isinstance(column, str) else tuple(column)
    more = (data.get(key) or "" for key in ("unit", "zone", "seconds", "nanoseconds"))
    return TableTime(columns, *more)


@runtime_checkable
class OfTables(Protocol):
    """What a log of tables has beside other logs."""

    def dialects(self) -> dict[str, TableDialect]:
        """Return how files are written, by URI, as far as no recipe states it."""

    def time_notes(self, uri: str) -> list[str]:
        """Return notes on the precision and the zone of the times in a file."""

    def left_out(self, topic: str) -> dict[str, str]:
        """Return the columns of a topic that aren't data, or can't be, and why."""


def dialects_of(recipe: Mapping[str, Any]) -> tuple[TableDialect, ...]:
    """Return the dialects that a recipe's data, as in manifests, state."""
    return tuple(TableDialect.from_data(entry) for entry in recipe.get(KEY, ()))


def dialect_for(uri: str, dialects: Iterable[TableDialect]) -> TableDialect | None:
    """Return the first dialect whose pattern is that of a file."""
    return next((one for one in dialects if one.fits(uri)), None)


def entries(dialects: Mapping[str, TableDialect]) -> list[TableDialect]:
    """Return the entries of a recipe that give files their dialects, without those that need none.

    Args:
        dialects: by URI, of all tables.

    >>> how = TableDialect(delimiter=";")
    >>> [one.files for one in entries({"/a/gps.csv": how, "/b/imu.csv": how})]
    ['*.csv']
    >>> [one.files for one in entries({"/a/gps.csv": how, "/b/imu.csv": TableDialect()})]
    ['gps.csv']
    >>> [one.files for one in entries({"/a/gps.csv": how, "/b/gps.csv": TableDialect()})]
    ['a/gps.csv']
    """
    plain = {uri: replace(how, files="*") for uri, how in dialects.items()}
    for length in (0, 1, 2, None):  # of the path's end that is the pattern; 0 for its suffix
        found: dict[str, set[TableDialect]] = {}
        for uri, how in plain.items():
            found.setdefault(_pattern(uri, length), set()).add(how)
        if all(len(one) == 1 for one in found.values()):
            break
    made = [replace(how, files=pattern) for pattern, (how, *_) in sorted(found.items())]
    if len(dialects) == 1:
        made = [replace(how, files=glob.escape(file_name_of(uri))) for uri, how in plain.items()]
    return [how for how in made if not how.is_plain]


def _pattern(uri: str, length: int | None) -> str:
    path = without_query(uri)
    if length == 0:
        return f"*{path[path.rindex('.') :]}" if "." in file_name_of(uri) else "*"
    return glob.escape("/".join(path.split("/")[-(length or 0) :]))


def unique(names: Sequence[str]) -> list[str]:
    """Return names of columns, each once: the second `speed` is `speed_2`, one without a name `unnamed`.

    >>> unique(["speed", " speed", "speed_2", ""])
    ['speed', 'speed_3', 'speed_2', 'unnamed']
    """
    plain = [name.strip() or "unnamed" for name in names]
    known, counts, made = set(plain), Counter[str](), []
    for name in plain:
        counts[name] += 1
        one = name if counts[name] == 1 else f"{name}_{counts[name]}"
        while one != name and one in known:
            counts[name] += 1
            one = f"{name}_{counts[name]}"
        known.add(one)
        made.append(one)
    return made
