"""Checks of the statistics of units and logs, and counting them again.

Here: the statistics in entries and in the file of a log, against each other and against rows that are read.
Elsewhere: counting them in a build (logloom.transforms.build.unit_writer), their files
(logloom.io.catalog.log_statistics).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.catalog.artifacts import LOG_FILES, STATISTICS
from logloom.io.catalog.entries import ENTRY, Entry, find_entry
from logloom.io.catalog.log_statistics import noted, of_units, read_statistics, statistics_in
from logloom.io.catalog.pages import LogRecord
from logloom.io.formats.registry import format_named
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.schema import Schema
from logloom.software import software
from logloom.statistics.columns import Statistics
from logloom.statistics.rows import RowStatistics
from logloom.transforms.build.read_back import Reading


def count_unit(reading: Reading, entry: Entry, schema: Schema, *, every_value: bool = False) -> Statistics:
    """The statistics of a unit's rows, from its files.

    Args:
        schema: of the columns that are counted, which the unit has.
    """
    counting = RowStatistics(schema, every_value=every_value)
    for block in reading.open(entry).blocks(tuple(schema.all), max_bytes=reading.block_bytes):
        counting.update(block)
    return counting.close()


def columns_held(reading: Reading, output: str) -> Schema:
    """The columns of an output that it gives back as they were built, as far as that is known unread."""
    form = format_named(output)
    held = form.columns_of(reading.outputs[output], reading.schema) if form.keeps_columns else None
    return held or Schema({})


def unit_statistics_problem(store: Store, entry: Entry) -> str:
    """Why a unit's entry has no statistics that can be read, though it has rows; "" where it is as it should.

    Args:
        entry: as the log's part has it.
    """
    if not entry.rows:
        return ""
    try:
        found = find_entry(store, entry.output, entry.identity)
    except DatasetError as error:
        return str(error).rpartition(";")[0] or str(error)
    return "" if found is None else _statistics_problem(store, found)  # whoever looks at entries says so


def _statistics_problem(store: Store, entry: Entry) -> str:
    """What is wrong with the statistics in an entry; "" for nothing."""
    place = store.uri_of(f"{entry.folder}/{ENTRY}")
    if not entry.statistics:
        return f"{place}: without statistics"
    try:
        found = statistics_in(store, entry)
    except DatasetError as error:
        return str(error).rpartition(";")[0] or str(error)
    # Some bits could turn without another value; which bytes other software writes, nobody knows here.
    if entry.software == software() and noted(found) != entry.statistics:
        return f"{place}: its statistics have other bytes than were written"
    return ""


def unit_statistics_problems(store: Store, entry: Entry, counted: Statistics) -> Iterator[str]:
    """Says of which columns the statistics in a unit's entry aren't those of its rows.

    Args:
        entry: as the log's part has it.
        counted: of columns of its rows, as they were read.
    """
    place = store.uri_of(f"{entry.folder}/{ENTRY}")
    found = find_entry(store, entry.output, entry.identity)
    if found is None:
        return  # whoever looks at entries says so
    try:
        stored = statistics_in(store, found)
    except DatasetError:
        return  # whoever looks at the log's statistics says so
    other = [name for name in counted.columns() if stored.only(name) != counted.only(name)]
    if other:
        yield f"{place}: its statistics aren't those of its rows in column {', '.join(other)}"


def statistics_sum_problem(store: Store, record: LogRecord, entries: Iterable[Entry]) -> str:
    """Why the statistics of a log, whose file is whole, aren't the sum of its units'; "" where they are.

    Args:
        entries: of its units, from their folders.
    """
    try:
        found, merged = read_statistics(store, record), of_units(store, entries)
    except DatasetError as error:
        return str(error).rpartition(";")[0] or str(error)
    if merged is not None and merged != found:
        (name,) = LOG_FILES[STATISTICS].of(record)
        return f"{store.uri_of(name)}: not the sum of what its units' entries have"
    return ""


def found_entries(store: Store, units: Sequence[Entry]) -> list[Entry]:
    """The entries of units from their folders, but for those that are missing or damaged."""
    found = []
    for entry in units:
        try:
            found.append(find_entry(store, entry.output, entry.identity))
        except DatasetError:
            found.append(None)
    return [entry for entry in found if entry is not None]


def restore_unit_statistics(reading: Reading, entry: Entry, siblings: Iterable[Entry]) -> bool:
    """Write statistics into a unit's entry; return whether some output has them.

    Args:
        siblings: units of the same log, as its part has them.
    """
    store = reading.store
    same = [one for one in siblings if (one.start, one.stop) == (entry.start, entry.stop)]
    for one in found_entries(store, same):
        if not _statistics_problem(store, one):
            put_statistics(store, entry, one.statistics)
            return True
    for one in same:
        if columns_held(reading, one.output).columns.keys() == reading.schema.columns.keys():
            try:
                found = count_unit(reading, one, reading.schema)
            except DatasetError:
                continue
            put_statistics(store, entry, noted(found))
            return True
    return False


def put_statistics(store: Store, entry: Entry, statistics: str) -> None:
    """Writes a unit's entry with these statistics.

    Args:
        entry: as the log's part has it.
    """
    whole = dataclasses.replace(entry, statistics=statistics)
    store.replace(f"{entry.folder}/{ENTRY}", canonical(whole.to_json()), read_only=True)


def restore_log_statistics(store: Store, record: LogRecord, units: Sequence[Entry]) -> str:
    """Writes the file with a log's statistics again; says why it couldn't, or ""."""
    try:
        merged = of_units(store, found_entries(store, units))
    except DatasetError as error:
        return str(error)
    if merged is None:
        return "the entries of its units have no statistics"
    data = merged.to_bytes(record.log_id)
    if blake3(data).hexdigest() != record.statistics:
        return "counted again they have other bytes"
    store.replace(LOG_FILES[STATISTICS].name(record.statistics), data, read_only=True)
    return ""
