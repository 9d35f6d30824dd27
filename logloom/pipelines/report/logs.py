"""The logs of a version for people: by split, on a time line, and damaged ones.

Here: pure values from a manifest and the times of rows.
Elsewhere: which rows are read (samples), the page (page).
Times are int64 nanoseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.catalog.row_counts import rows_by_split
from logloom.io.formats.registry import by_preference, format_named
from logloom.io.rows.sources import RowSource
from logloom.io.storage.metadata import parsed
from logloom.pipelines.report.samples import evenly
from logloom.pipelines.version_rows import RowsOfLogs
from logloom.pipelines.versions.log_counts import reasons_by_loss
from logloom.values import dataclass

MAX_LINES = 60  # logs on the time line
MAX_PIECES = 200  # stretches of rows of a log that are drawn; the shortest gaps between others are closed
MAX_UNITS = 2000  # whose times are read for the time line; one request or several each in an object store
MAX_TROUBLES = 30
_MAX_REASONS = 4


@dataclass(frozen=True)
class SplitCount:
    """How much of a version a split is."""

    name: str
    logs: int
    rows: int


@dataclass(frozen=True)
class LogLine:
    """A log on the time line.

    Attributes:
        splits: that its rows are in.
        planned: ticks.
        dropped: those that are no row, by reason.
        pieces: (n, 2) first and last tick of stretches without a gap; of a log of too many partitions, where
            these begin and end.
        gaps: between them, those that aren't drawn, too.
        interval, jitter: median time between two rows, and the 99 % quantile of how far others are off; ns.
            -1 where it isn't known.
        is_exact: whether the times of all rows were looked at, and not just where partitions begin and end.
        problem: why nothing is known of its rows.
    """

    log_id: str
    splits: tuple[str, ...]
    status: str
    files: tuple[str, ...]
    rows: int
    planned: int
    dropped: Mapping[str, int]
    refused: int
    pieces: tuple[tuple[int, int], ...] = ()
    gaps: int = 0
    interval: int = -1
    jitter: int = -1
    is_exact: bool = True
    problem: str = ""


@dataclass(frozen=True)
class Trouble:
    """A log that lost something, and why; file names have no folders."""

    log_id: str
    status: str
    refused: int
    reasons: tuple[str, ...]
    reasons_left_out: int


def split_counts(manifest: Manifest) -> tuple[SplitCount, ...]:
    """Count logs and rows by split, by name, without dropped logs."""
    import pyarrow.compute as pc

    logs = manifest.logs.columns("split", "rows", "status", "splits")
    logs = logs.filter(pc.not_equal(logs["status"], LogStatus.dropped))
    return tuple(SplitCount(*one) for one in rows_by_split(logs))


def log_lines(rows: RowsOfLogs, manifest: Manifest) -> Iterator[LogLine]:
    """Logs evenly spread over all that have rows, by log_id."""
    with_rows = np.flatnonzero(manifest.logs.column("rows").to_numpy())
    chosen = [int(with_rows[at]) for at in evenly(len(with_rows), MAX_LINES)]
    period = manifest.period or 0
    output = _timed_output(manifest)
    for record in manifest.logs.take(chosen):
        yield _line(rows, record, output, period, MAX_UNITS // len(chosen))


def _timed_output(manifest: Manifest) -> str:
    """One whose timestamps can be read without payload, where there is one; "" without outputs of rows."""
    names = [name for name in by_preference(manifest.outputs) if format_named(name).has_rows]
    return next((name for name in names if format_named(name).has_stamps_at_hand), names[0] if names else "")


def _line(rows: RowsOfLogs, record: LogRecord, output: str, period: int, max_units: int) -> LogLine:
    record_fields = (record.log_id, record.split_names, record.status, tuple(map(_file_name, record.uris)))
    counts = (record.rows, record.planned, record.dropped, record.refused)
    if not output:
        return LogLine(*record_fields, *counts, problem="no output has rows")
    units = [entry for entry in rows.units(record) if entry.output == output and entry.rows]
    is_exact = format_named(output).has_stamps_at_hand and len(units) <= max_units
    if len(units) <= max_units:
        times = [_times(rows.source(entry), entry.rows, is_exact) for entry in units]
    else:  # of long logs just what entries say
        times = [np.array([entry.start, entry.stop], np.int64) for entry in units]
    steps = np.diff(np.concatenate(times)) if is_exact else np.empty(0, np.int64)
    usual = period or (int(np.median(steps)) if len(steps) else 0)
    pieces, gaps = _pieces(times, usual * 3 // 2 if period else usual * 3, is_exact)
    small = steps[steps <= usual * 3 // 2]
    jitter = int(np.quantile(np.abs(small - usual), 0.99)) if len(small) else -1
    interval = int(np.median(steps)) if len(steps) else -1
    return LogLine(*record_fields, *counts, pieces, gaps, interval, jitter, is_exact)


def _file_name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]


def _times(source: RowSource, total: int, is_exact: bool) -> NDArray[np.int64]:
    """(n,) all times of a partition, or just its first and last."""
    stamps = source.stamps if is_exact else None
    if stamps is None:
        stamps = np.array([source.row(at, ())["timestamp"] for at in dict.fromkeys((0, total - 1))])
    return np.asarray(stamps, np.int64)


def _pieces(
    times: list[NDArray[np.int64]], max_gap: int, is_exact: bool
) -> tuple[tuple[tuple[int, int], ...], int]:
    """The stretches without a gap of more than `max_gap`, and how many gaps there are.

    Args:
        times: of each partition.
        is_exact: whether these are all of them, not just the first and the last.
    """
    if not times:
        return (), 0
    stamps = np.concatenate(times)
    ends = np.cumsum([len(one) for one in times])[:-1]
    steps = np.diff(stamps)
    is_gap = steps > max_gap if max_gap else np.zeros(len(steps), bool)
    if not is_exact:  # only between partitions is anything known
        between = np.zeros(len(steps), bool)
        between[ends - 1] = True
        is_gap &= between
    gaps = int(is_gap.sum())
    if gaps >= MAX_PIECES:
        least = np.sort(steps[is_gap])[-MAX_PIECES + 1]
        is_gap &= steps >= least
    at = np.flatnonzero(is_gap)
    firsts, lasts = stamps[np.r_[0, at + 1]], stamps[np.r_[at, len(stamps) - 1]]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True)), gaps


def troubles(manifest: Manifest) -> tuple[tuple[Trouble, ...], int]:
    """The logs that lost most, and how many lost anything."""
    logs = manifest.logs.columns("log_id", "status", "refused", "reasons", "uris").to_pydict()
    found = [
        (log_id, status, refused, reasons, uris)
        for log_id, status, refused, reasons, uris in zip(*logs.values(), strict=True)
        if (refused or reasons not in ("", "[]")) and status != LogStatus.dropped
    ]
    worst = sorted(found, key=lambda one: (-one[2], one[0]))[:MAX_TROUBLES]
    return tuple(map(_trouble, worst)), len(found)


def _trouble(record_fields: tuple[str, str, int, str, str]) -> Trouble:
    log_id, status, refused, reasons, uris = record_fields
    files = [str(uri) for uri in parsed(uris or "[]", f"{log_id}: uris")]
    words = reasons_by_loss(list(map(str, parsed(reasons or "[]", f"{log_id}: reasons"))), files)
    for uri in files:
        words = [one.replace(uri, _file_name(uri)) for one in words]
    return Trouble(log_id, status, refused, tuple(words[:_MAX_REASONS]), max(0, len(words) - _MAX_REASONS))
