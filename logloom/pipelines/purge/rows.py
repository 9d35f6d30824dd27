"""Rows to erase in a time range of a log, and whether the rest can be rebuilt.

Here: `ErasedTime`, `content_without`, and `count_rows`.
Elsewhere: erasing (logloom.pipelines.purge.purge), logs without that time (logloom.io.logs.redaction).
Times are int64 nanoseconds since the Unix epoch; ranges are half-open.
"""

from __future__ import annotations

import functools

from logloom.errors import OF_CONTENT, PurgedError, UsageError
from logloom.io.catalog.entries import Entry, read_log_part
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.tombstones import Purged, digest_of_log, merged_ranges
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.io.logs.redaction import RedactedLog, lie_in, redacted_ranges
from logloom.io.logs.table_dialects import dialects_of
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.schema import TimeRanges
from logloom.text import human_time
from logloom.transforms.build.job import Committed
from logloom.transforms.build.read_back import Reading
from logloom.values import dataclass


@dataclass(frozen=True)
class ErasedTime:
    """A time of a log, of which nothing is to stay.

    Attributes:
        log: its log_id, or the URI of one of its files.
        start, stop: `logloom.schema.MIN_TIME` and `MAX_TIME` where it is open to a side.
    """

    log: str
    start: int
    stop: int

    def __post_init__(self) -> None:
        if self.start >= self.stop:
            raise UsageError(
                f"{self.log}: a range from {self.start} to {self.stop} is empty: it starts at the first "
                "and ends before the second"
            )


def content_without(store: Store, manifest: Manifest, record: LogRecord, ranges: TimeRanges) -> str:
    """The content id that a log has without these times, and without those that were erased before.

    Args:
        manifest: the newest version that has the log.

    Raises:
        UsageError: it has no messages around these times, or its other rows can't be built again.
    """
    if source := manifest.recipe.get("convert"):
        raise UsageError(
            f"{store.uri}: version {manifest.version} was converted from {source['from']}: purge the rows "
            f"there and convert again, after `logloom purge --log {record.log_id}` here"
        )
    recipe = manifest.recipe
    names = tuple(recipe.get("time", {}).get("name", ()))
    options = OpenOptions(
        "salvage",
        store.options,
        hash=recipe.get("hash", "ends"),
        time_names=names,
        tables=dialects_of(recipe),
    )
    try:
        log = open_log(record.uris, options)
        summary = log.summary
    except OF_CONTENT as error:
        raise UsageError(
            f"{record.log_id}: its files are needed to build its other rows again, and can't be read "
            f"({error}); `logloom purge --log {record.log_id}` erases all of it"
        ) from error
    for start, stop in ranges:
        if stop <= summary.first or start > summary.last:
            raise UsageError(
                f"{record.log_id}: nothing was recorded from {start} to {stop}: its messages run from "
                f"{summary.first} to {summary.last} ns ({human_time(summary.first)} to "
                f"{human_time(summary.last)})"
            )
    before = redacted_ranges(Purged(store).redactions, record.log_id, summary.content_id)
    redactions = {digest_of_log(record.log_id): merged_ranges([*before, *ranges])}
    return RedactedLog(log, record.log_id, redactions).summary.content_id


def count_rows(store: Store, manifest: Manifest, record: LogRecord, ranges: TimeRanges) -> int:
    """How many rows of a log are in these times; 0 where they are gone."""
    reading = Reading.of(Committed.of(store, manifest))
    try:
        units = read_log_part(store, record.part, brief=True) if record.part else ()
    except PurgedError:
        return 0
    first = next(iter(manifest.outputs))
    chosen = [unit for unit in units if unit.output == first and unit.rows and _touches(unit, ranges)]
    return sum(ahead(functools.partial(_rows_in, reading, ranges), chosen))


def _touches(unit: Entry, ranges: TimeRanges) -> bool:
    return any(start < unit.stop and unit.start < stop for start, stop in ranges)


def _rows_in(reading: Reading, ranges: TimeRanges, unit: Entry) -> int:
    stamps = reading.open(unit).stamps
    return 0 if stamps is None else int(lie_in(stamps, ranges).sum())
