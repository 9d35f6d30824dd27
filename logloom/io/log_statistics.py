"""Statistics of a root's logs: in the entries of units, and merged in a file for each log.

    parts/<output>/<identity>/entry.json   `statistics`: of the unit's rows, the same in each output
    logs/<digest>.parquet                  of a log's rows; the log's record names it by its digest

Elsewhere: what statistics are (logloom.statistics), the records (logloom.io.shards).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.entries import Entry, repair_hint
from logloom.io.purged import check_purged
from logloom.io.remote import MISSING
from logloom.io.shards import LogRecord
from logloom.io.storage import Store
from logloom.statistics.state import Statistics


def statistics_file(record: LogRecord) -> str:
    """The file of the root with the statistics of a log that has some."""
    return f"logs/{record.statistics}.parquet"


def noted(statistics: Statistics) -> str:
    """Statistics as an entry has them."""
    return base64.b64encode(statistics.to_bytes()).decode()


def statistics_in(entry: Entry, place: str) -> Statistics:
    """The statistics in an entry that has some.

    Raises:
        DatasetError: they are damaged; names `place`.
    """
    try:
        data = base64.b64decode(entry.statistics, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DatasetError(f"{place}: statistics: {error}; {repair_hint(place)}") from error
    return Statistics.from_bytes(data, place)


def of_units(store: Store, entries: Iterable[Entry]) -> Statistics | None:
    """The statistics of a log, from the entries of its units; None where those of a partition lack them."""
    found: dict[tuple[int, int], Entry] = {}
    for entry in entries:
        span = entry.start, entry.stop
        if entry.rows and (span not in found or not found[span].statistics):
            found[span] = entry
    if not all(entry.statistics for entry in found.values()):
        return None
    return Statistics.merged(statistics_in(entry, store.uri_of(entry.folder)) for entry in found.values())


def write_statistics(store: Store, log_id: str, statistics: Statistics | None) -> str:
    """Writes a log's statistics, and gives the digest that names them; "" for none."""
    if statistics is None or not statistics.lanes:
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


def read_statistics_file(store: Store, digest: str, part: str) -> Statistics:
    """As `read_statistics`.

    Args:
        digest: names the file.
        part: of the log; tells whether it was erased.
    """
    name = f"logs/{digest}.parquet"
    place = store.uri_of(name)
    try:
        data = store.read(name)
    except MISSING:
        check_purged(store, place, part=part)
        raise DatasetError(f"{place}: the statistics of a log are missing; {repair_hint(place)}") from None
    if blake3(data).hexdigest() != digest:
        raise DatasetError(f"{place}: damaged, its bytes don't match its name; {repair_hint(place)}")
    return Statistics.from_bytes(data, place)
