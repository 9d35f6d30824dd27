"""Find the intervals of logs in which a filter is true; save them on request.

Here: `find`.
Elsewhere: the language (logloom.query.where), the meaning of a filter for a log's rows
(logloom.query.bounds), the files of intervals (logloom.io.catalog.intervals).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from logloom.datasets.opening import open_rows, root_at
from logloom.datasets.search.log_matches import LogMatches, parsed_for, search
from logloom.durations import Time, nanoseconds_of
from logloom.errors import UsageError
from logloom.io.catalog.intervals import (
    Intervals,
    Search,
    intervals_file,
    name_taken,
    read_intervals_file,
    write_intervals,
)
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.tombstones import Purged
from logloom.io.rows.log_ranges import Ints
from logloom.io.storage.store import Store
from logloom.query.bounds import shifted, stretches
from logloom.schema import MAX_TIME
from logloom.values import dataclass


class Interval(NamedTuple):
    """A time of a log.

    Attributes:
        start, stop: [start, stop), int64 ns since the Unix epoch.
        rows: of the log that are in it.
    """

    log_id: str
    start: int
    stop: int
    rows: int


@dataclass(frozen=True)
class FoundIntervals:
    """What a search found.

    Attributes:
        version: that was searched; None where rows are of none.
        intervals: by log, ascending; those of a log are apart.
        looked_at: rows.
        matches: rows for which the filter holds.
        unknown: rows for which the filter is unknown, as values are unavailable.
        saved: the URI of the file; "" where nothing was saved.
    """

    version: int | None
    intervals: tuple[Interval, ...]
    looked_at: int
    matches: int
    unknown: int
    saved: str = ""

    @property
    def rows(self) -> int:
        """That are in intervals."""
        return sum(one.rows for one in self.intervals)

    @property
    def logs(self) -> int:
        """That have some."""
        return len({one.log_id for one in self.intervals})

    def to_json(self) -> dict[str, Any]:
        """What `logloom find --json` prints."""
        return {
            "version": self.version,
            "intervals": [one._asdict() for one in self.intervals],
            "rows": self.rows,
            "looked_at": self.looked_at,
            "matches": self.matches,
            "unknown": self.unknown,
            "saved": self.saved or None,
        }


def find(
    uri: str | os.PathLike[str],
    where: str,
    *,
    version: int | str | None = None,
    output: str | None = None,
    before: Time = "0s",
    after: Time = "0s",
    save: str | None = None,
    replace: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> FoundIntervals:
    """The intervals of logs in which a filter holds.

        found = logloom.datasets.find("data/urban", "accel.x < -3 for 300ms", before="5s", after="5s")

    Rows side by side for which it holds make an interval, from the first one's time to 1 ns after the last
    one's; a gap in the log ends it. Intervals of a log that meet, once they are widened, become one. Reads
    the columns that the filter looks at, and no more, of all rows.

    Args:
        uri, version, output, storage_options: see `logloom.datasets.open`.
        where: a filter, as of `logloom.datasets.open`, which may look at elements of lists and at rows around
            a row. A comparison with an unavailable value is unknown, in plain comparisons, too.
        before, after: by which intervals are widened: texts such as "500ms", or seconds.
        save: a name for the intervals, which `in(NAME)` of filters on this version then means.
        replace: also where other intervals have this name.

    Raises:
        UsageError: the filter can't be parsed, or has an unknown name; the name can't be one, or is taken.
        DatasetError: what is stored is damaged.

    Examples:
        >>> found = logloom.datasets.find("demo/dataset", "ego.speed > 9 for 200ms")
        >>> 0 < found.matches == found.rows < found.looked_at
        True
    """
    lengths = [nanoseconds_of(before, "find: before"), nanoseconds_of(after, "find: after")]
    options = storage_options or {}
    root = root_at(os.fspath(uri), version, options)
    if save is not None:
        if root is None:
            raise UsageError(f"{os.fspath(uri)}: no root of logloom, so nothing can be saved with a version")
        if not replace:
            _check_same(*root, save, Search(where, *lengths))
    place, number = (uri, None) if root is None else (root[0].uri, root[1].version)
    source, _ = open_rows(os.fspath(place), number, output, None, None, options, False, where)
    parsed = parsed_for(source, where)
    if source.stamps is None:
        raise UsageError(f"{source.place}: rows have no timestamps, so there are no intervals")
    found: list[Interval] = []
    matches = unknown = 0
    for log in search(source, parsed):
        found += _intervals(log, *lengths)
        matches += int(log.holds.sum())
        unknown += int((log.may & ~log.holds).sum())
    found.sort()
    searched = Search(where, *lengths)
    saved = "" if save is None or root is None else _save(*root, save, searched, found, replace)
    return FoundIntervals(number, tuple(found), len(source), matches, unknown, saved)


def _check_same(store: Store, manifest: Manifest, name: str, search: Search) -> None:
    """Spares the reading where a name is taken by another search."""
    file = intervals_file(manifest.version, name)
    if store.exists(file) and read_intervals_file(store, file).search != search:
        raise name_taken(store, file)


def _intervals(log: LogMatches, before: int, after: int) -> list[Interval]:
    stamps = log.rows.stamps
    first, last = stretches(log.holds, log.rows.starts)
    starts, stops = shifted(stamps[first], -before), shifted(stamps[last], after)
    stops = np.minimum(stops, MAX_TIME - 1) + 1
    starts, stops = merged(starts, stops)
    counts = stamps.searchsorted(stops) - stamps.searchsorted(starts)
    return [
        Interval(log.log_id, *one)
        for one in zip(starts.tolist(), stops.tolist(), counts.tolist(), strict=True)
    ]


def merged(starts: Ints, stops: Ints) -> tuple[Ints, Ints]:
    """Intervals that overlap or touch as one; starts and stops ascend.

    >>> [one.tolist() for one in merged(np.array([0, 3, 9]), np.array([4, 7, 10]))]
    [[0, 9], [7, 10]]
    """
    if not len(starts):
        return starts, stops
    apart = starts[1:] > stops[:-1]
    return starts[np.append(True, apart)], stops[np.append(apart, True)]


def _save(
    store: Store, manifest: Manifest, name: str, search: Search, found: list[Interval], replace: bool
) -> str:
    """Saves what was found; gives the URI.

    A purge writes its tombstones before it looks for intervals, so one of both sees the other.
    """
    kept = Intervals(
        search,
        [one.log_id for one in found],
        np.array([one.start for one in found], np.int64),
        np.array([one.stop for one in found], np.int64),
    )
    file = write_intervals(store, manifest.version, name, kept, replace=replace)
    purged = Purged(store).parts
    records = (manifest.logs.find(log_id) for log_id in {one.log_id for one in found} if purged)
    gone = {record.log_id for record in records if record is not None and record.part in purged}
    if gone:
        write_intervals(store, manifest.version, name, kept.without(gone), replace=True)
    return store.uri_of(file)
