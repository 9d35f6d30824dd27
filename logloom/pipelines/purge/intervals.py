"""Intervals that were saved with versions, without logs that are to be erased.

Elsewhere: their files (logloom.io.catalog.intervals), erasing (logloom.pipelines.purge.purge).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from logloom.errors import DatasetError
from logloom.io.catalog.intervals import (
    Intervals,
    intervals_file,
    intervals_of,
    read_intervals_file,
    write_intervals,
)
from logloom.io.catalog.pages import LogRecord
from logloom.io.storage.store import Store

Records = Mapping[int, Sequence[LogRecord]]


def forget_logs(store: Store, records: Records) -> list[str]:
    """Takes logs out of what was saved; gives files that can't be read, which are to go.

    Args:
        records: of the logs, by version.
    """
    damaged = []
    for file, found in list(mentioning(store, records)):
        if found is None:
            damaged.append(file)
            continue
        number, name = file.removesuffix(".parquet").split("/")[-2:]
        kept = found.without(_log_ids(records[int(number)]))
        write_intervals(store, int(number), name, kept, replace=True)
    return damaged


def mentioning(store: Store, records: Records) -> Iterator[tuple[str, Intervals | None]]:
    """The files that tell of logs, and what is in them; None in one that can't be read to know."""
    for number, own in records.items():
        for name in intervals_of(store, number):
            file = intervals_file(number, name)
            try:
                found = read_intervals_file(store, file)
            except DatasetError:
                yield file, None
                continue
            if found.mentions(_log_ids(own)):
                yield file, found


def _log_ids(records: Sequence[LogRecord]) -> set[str]:
    return {record.log_id for record in records}
