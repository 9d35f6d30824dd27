"""Check a table of logs against the previous version: a column of an index has one kind of values in all
logs.

Elsewhere: reading the table (logloom.recipe.log_table).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from logloom.errors import UsageError
from logloom.io.catalog.log_tables import catalogued
from logloom.io.catalog.pages import LogRecord
from logloom.io.logs.log_list import LogFiles

_KINDS = {str: "a text", bool: "a truth", int: "a number", float: "a number"}


def check_index(
    table: str, columns: Iterable[str], logs: Iterable[LogFiles], staying: Iterable[LogRecord]
) -> None:
    """Check that logs kept from a version have values of the same kinds as the table.

    Args:
        table: URI of the table that lists `logs`.
        columns: of the table, which are copied to the index.
        staying: records of logs that the table no longer lists, or that wait for a later build.

    Raises:
        UsageError: a column has values of two kinds; names the rows.
    """
    names = set(columns)
    listed: dict[str, tuple[Any, str]] | None = None
    for record in staying if names else ():
        stored = dict(catalogued(record.catalogue).index) if record.part else {}
        for name in sorted(names.intersection(stored)):
            if stored[name] is None:
                continue
            listed = _first_values(logs, names) if listed is None else listed
            value, uri = listed.get(name, (stored[name], ""))
            if _KINDS[type(value)] != _KINDS[type(stored[name])]:
                raise UsageError(
                    f"{table}: index: {name} of {uri} is {value!r:.80}, {_KINDS[type(value)]}, but the kept "
                    f"rows of {record.log_id} were built with {stored[name]!r:.80}, "
                    f"{_KINDS[type(stored[name])]}: restore that column, list {record.log_id} again, or "
                    "leave its rows out by `vanished: drop`"
                )


def _first_values(logs: Iterable[LogFiles], names: set[str]) -> dict[str, tuple[Any, str]]:
    """Return a value of each column, all of whose values are of one kind, and the file of the log in that
    row.
    """
    found: dict[str, tuple[Any, str]] = {}
    for log in logs:
        stored = dict(catalogued(log.catalogue).index)
        new = {name: (value, log.uris[0]) for name, value in stored.items() if value is not None}
        found = new | found
        if names <= found.keys():
            break
    return found
