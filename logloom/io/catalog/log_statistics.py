"""Statistics of logs: in the entries of units, and merged in a file for each log.

    parts/<output>/<identity>/entry.json   `statistics`: of the unit's rows, the same in each output
    logs/<digest>.parquet                  of a log's rows; the log's record names it by its digest

Elsewhere: what statistics are (logloom.statistics), the records (logloom.io.catalog.pages).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator

from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.catalog.entries import ENTRY, Entry, read_log_file, repair_hint
from logloom.io.catalog.pages import LogRecord
from logloom.io.storage.store import Store
from logloom.statistics.columns import Key, Statistics
from logloom.statistics.series import Lane

MANY_LOGS = 64  # that are worth statistics of all together; those of each take some milliseconds


def noted(statistics: Statistics) -> str:
    """Return statistics as a text for an entry."""
    return base64.b64encode(statistics.to_bytes()).decode()


def statistics_in(store: Store, entry: Entry) -> Statistics:
    """The statistics in an entry that has some.

    Raises:
        DatasetError: they are damaged; names the file.
    """
    place = store.uri_of(f"{entry.folder}/{ENTRY}")
    try:
        data = base64.b64decode(entry.statistics, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DatasetError(f"{place}: statistics: {error}; {repair_hint(place)}") from error
    return _parsed(data, place)


def _parsed(data: bytes, place: str, *, brief: bool = False) -> Statistics:
    try:
        return Statistics.from_bytes(data, place, brief=brief)
    except DatasetError as error:
        raise DatasetError(f"{error}; {repair_hint(place)}") from error


def of_units(store: Store, entries: Iterable[Entry]) -> Statistics | None:
    """The statistics of a log, from the entries of its units; None where these have no rows.

    Raises:
        DatasetError: some are damaged; names the file.
    """
    found: dict[tuple[int, int], Entry] = {}
    for entry in entries:
        span = entry.start, entry.stop
        if entry.rows and (span not in found or not found[span].statistics):
            found[span] = entry
    if not found:
        return None
    return Statistics.merged(_of_one_kind(store, found.values()))


def _of_one_kind(store: Store, entries: Iterable[Entry]) -> Iterator[Statistics]:
    """The statistics in entries that have some, each lane of numbers in all of them, or of texts."""
    kinds: dict[Key, type[Lane]] = {}
    for entry in entries:
        found = statistics_in(store, entry)
        for key, lane in found.lanes.items():
            if kinds.setdefault(key, type(lane)) is not type(lane):
                place = store.uri_of(f"{entry.folder}/{ENTRY}")
                raise DatasetError(
                    f"{place}: statistics: column {key.column!r} has other values than in other units of its "
                    f"log; {repair_hint(place)}"
                )
        yield found


def write_statistics(store: Store, log_id: str, statistics: Statistics | None) -> str:
    """Write a log's statistics; return the digest that names them, or "" for none."""
    if statistics is None:
        return ""
    data = statistics.to_bytes(log_id)
    digest = blake3(data).hexdigest()
    store.renew(f"logs/{digest}.parquet", data)
    return digest


def read_statistics(store: Store, record: LogRecord) -> Statistics:
    """The statistics of a log that has some.

    Raises:
        DatasetError: they are missing or damaged; names the file.
    """
    return read_statistics_file(store, record.statistics, record.part)


def read_statistics_file(store: Store, digest: str, part: str, *, brief: bool = False) -> Statistics:
    """As `read_statistics`.

    Args:
        digest: names the file.
        part: of the log, to report a purged log as such.
        brief: see `Statistics.from_bytes`.
    """
    place, data = read_log_file(store, digest, part, "the statistics of a log are")
    return _parsed(data, place, brief=brief)
