"""How tables are written: the keys under `tables` of a recipe.

Elsewhere: their meaning (logloom.io.logs.table_dialects), reading by them (logloom.io.logs.table_files).
"""

from __future__ import annotations

import codecs
import zoneinfo
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from logloom.io.logs.table_dialects import DELIMITERS
from logloom.recipe.columns import RecipePart, as_list, text_check
from logloom.text import near_to

_OFFSET = "+01:00"


def _delimiter_problem(delimiter: str) -> str | None:
    if delimiter in DELIMITERS or (
        len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n\0'
    ):
        return None
    return f"{delimiter!r}: expected one character such as ; or the words {' or '.join(DELIMITERS)}"


def _encoding_problem(encoding: str) -> str | None:
    usual = ("utf-8", "utf-16", "latin-1", "cp1252")
    try:
        codecs.lookup(encoding)
        "a".encode(encoding).decode(encoding)
    except (LookupError, ValueError, UnicodeError):
        return f"no such encoding as {encoding!r}{near_to(encoding, usual)}"
    return None


def _zone_problem(zone: str) -> str | None:
    try:
        if zone[:1] in ("+", "-"):
            hours, _, minutes = zone[1:].partition(":")
            is_offset = len(hours) == len(minutes) == 2 and int(hours) < 15 and int(minutes) < 60
            return None if is_offset else f"{zone!r}: write an offset like {_OFFSET}"
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        near = near_to(zone, sorted(zoneinfo.available_timezones()))
        return f"no such zone as {zone!r}{near}; write a name like Europe/Berlin, or an offset like {_OFFSET}"
    return None


def _header(value: Any) -> Any:
    is_names = isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value)
    if not isinstance(value, bool) and not is_names:
        raise ValueError("expected true, false, or a list of the columns' names")
    return value if isinstance(value, bool) else tuple(value)


_Column = Annotated[str, Field(min_length=1)]


class RowTime(RecipePart):
    """`time` of a table: `{column: Zeit, unit: ms, zone: Europe/Berlin}`, or seconds and nanoseconds.

    Attributes:
        column: of the time, or those of the date and of the time of day.
        unit: of numbers.
        zone: of local times.
        seconds, nanoseconds: columns of whole seconds, and of the nanoseconds beyond them.
    """

    column: Annotated[tuple[_Column, ...], BeforeValidator(as_list), Field(max_length=2)] = ()
    unit: Literal["ns", "us", "ms", "s"] | None = None
    zone: Annotated[str, text_check(_zone_problem)] | None = None
    seconds: _Column | None = None
    nanoseconds: _Column | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        pair = [self.seconds, self.nanoseconds]
        if bool(self.column) == any(pair) or (any(pair) and not all(pair)):
            raise ValueError("write {column: Zeit}, or {seconds: sec, nanoseconds: nanosec}")
        if any(pair) and (self.unit or self.zone):
            raise ValueError("seconds and nanoseconds need no `unit` and no `zone`")
        if self.unit and self.zone:
            raise ValueError("numbers of a `unit` count from 1970 UTC, so they need no `zone`; leave one out")
        return self


class TableEntry(RecipePart):
    """An entry of `tables`: how the tables with some names are written.

    Attributes:
        files: pattern of their names or paths; the first entry that fits a file counts.
        delimiter, decimal, encoding: of CSV.
        header: whether the first line has the names; or the names, for files that have none.
        skip: number of lines before the header.
        time: of rows.
        columns: other names of columns.
    """

    files: Annotated[str, Field(min_length=1)]
    delimiter: Annotated[str, text_check(_delimiter_problem)] = ","
    decimal: Literal[".", ","] = "."
    encoding: Annotated[str, text_check(_encoding_problem)] = "utf-8"
    header: Annotated[bool | tuple[str, ...], BeforeValidator(_header)] = True
    skip: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 0
    time: RowTime | None = None
    columns: dict[_Column, _Column] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _are_distinct(self) -> Self:
        if self.delimiter == self.decimal:
            raise ValueError(f"delimiter and decimal are both {self.decimal!r}; decimal commas need another")
        return self
