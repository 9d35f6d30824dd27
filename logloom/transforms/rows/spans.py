"""Partitions: spans of a log's ticks, and pieces of a span to read at a time.

Here: `plan_spans`, `cut` and the bytes of a time range according to the index.
Elsewhere: ticks (logloom.transforms.rows.ticks), making rows (logloom.transforms.rows.row_stream).
All arithmetic is on integers, so a log gives the same spans everywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from logloom import parts
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, TABLE_ROW, LogSummary, TopicInfo
from logloom.io.logs.message_times import by_log_time, time_source
from logloom.text import MAX_DURATION
from logloom.transforms.rows.plan.row_plan import (
    ColumnPlan,
    RateClock,
    RowPlan,
    Span,
    SyncClock,
    TopicClock,
    clock_topics,
)
from logloom.transforms.rows.ticks import tick_range, tick_time

MAX_SPANS = 1_000_000
BYTES_PER_TICK = 64  # memory for the choice of messages for each tick and column, apart from values


class ByteIndex:
    """Number of bytes of a log in a range of log time, with each chunk's bytes evenly spread over its
    time.
    """

    def __init__(self, summary: LogSummary):
        first, last = summary.chunk_times.reshape(-1, 2).T
        order = np.argsort(first, kind="stable")
        self._first = first[order]
        self._last = np.maximum(first, last)[order]
        self._latest = np.maximum.accumulate(self._last) if len(order) else self._last
        self._bytes = summary.chunk_bytes[order]
        self._total = np.zeros(len(order) + 1, np.int64)
        np.cumsum(self._bytes, out=self._total[1:])

    def before(self, time: int) -> int:
        """Bytes of messages earlier than `time`."""
        # Chunks left of `ended` end before `time`, those right of `begun` start at or after it.
        ended = int(np.searchsorted(self._latest, time, "left"))
        begun = int(np.searchsorted(self._first, time, "left"))
        total = int(self._total[ended])
        for chunk in range(ended, begun):
            first, last, size = int(self._first[chunk]), int(self._last[chunk]), int(self._bytes[chunk])
            length = last - first + 1
            total += size * min(time - first, length) // length
        return total

    def between(self, start: int, stop: int) -> int:
        """Bytes of messages in [start, stop)."""
        return self.before(stop) - self.before(start)

    def chunks(self, start: int, stop: int) -> int:
        """Count the chunks with messages in [start, stop), by their first and last."""
        begun = int(np.searchsorted(self._first, stop, "left"))
        ended = int(np.searchsorted(self._latest, start, "left"))
        return int((self._last[ended:begun] >= start).sum())


def plan_spans(summary: LogSummary, plan: RowPlan) -> list[Span]:
    """Plan the partitions of a log, in time order; none if the log has no ticks.

    They cover all of time: the first is open to `MIN_TIME`, the last to `MAX_TIME`. A span of a rate clock
    has only its planned ticks.

    Raises:
        LogReadError: the log's extent needs more than a million partitions.
        UsageError: the clock's rate is not usable.
    """
    if summary.num_messages == 0:
        return []
    if isinstance(plan.clock, RateClock):
        spans = _rate_spans(summary, plan, plan.clock)
    else:
        infos = [summary.topics.get(topic) for topic in clock_topics(plan.clock)]
        if not all(info is not None and info.num_ticks for info in infos):
            return []
        stamp = plan.clock.topic if isinstance(plan.clock, TopicClock) else plan.clock.stamp
        spans = _topic_spans(summary, plan, summary.topics[stamp])
    if spans:
        spans[0] = Span(MIN_TIME, spans[0].stop, spans[0].ticks)
        spans[-1] = Span(spans[-1].start, MAX_TIME, spans[-1].ticks)
    return spans


def span_named(summary: LogSummary, plan: RowPlan, name: str) -> Span | None:
    """Return the partition of a log that a unit's entry names; None if it doesn't exist."""
    return next((span for span in plan_spans(summary, plan) if span.name == name), None)


class TickRange(NamedTuple):
    """Consecutive ticks of a rate clock.

    Attributes:
        first, stop: the range of k.
        start: ns; the first message that they may use, or the first tick if that is earlier.
    """

    first: int
    stop: int
    start: int


def tick_ranges(summary: LogSummary, plan: RowPlan) -> list[TickRange]:
    """Return the ticks of a rate clock in a log's extent, without those in silences of over an hour.

    A silence only has ticks within a column's tolerance or window of a message; without any, if the
    tolerance is unlimited.

    Raises:
        UsageError: the clock's rate is not usable.
    """
    assert isinstance(plan.clock, RateClock)
    runs = summary.recorded.runs
    columns = [
        column
        for column in plan.columns
        if column.sampling.rules.uses != "topic" and column.sampling.tolerance < MAX_DURATION
    ]
    offsets = [column.sampling.offset + _from_log_time(summary, column) for column in columns]
    after = max([0, *(c.sampling.back + offset for c, offset in zip(columns, offsets, strict=True))])
    before = max([0, *(c.sampling.forward - offset for c, offset in zip(columns, offsets, strict=True))])
    found: list[TickRange] = []
    for run in runs:
        begin, end = max(runs[0].first, run.first - before), min(runs[-1].last, run.last + after)
        first, stop = tick_range(plan.clock.rate, begin, end)
        if first == stop:
            continue
        if found and first <= found[-1].stop:
            found[-1] = found[-1]._replace(stop=max(stop, found[-1].stop))
        else:
            found.append(TickRange(first, stop, min(run.first, tick_time(plan.clock.rate, first))))
    return found


def _from_log_time(summary: LogSummary, column: ColumnPlan) -> int:
    """Return what the recipe adds to log times; 0 for other times, which are near log times with it."""
    info = summary.topics.get(column.topic)
    if info is None or not column.shift or len(summary.recorded.runs) < 2:  # only silences ask for it
        return 0
    sources = column.time
    if info.type == TABLE_ROW:
        sources = tuple(one for one in sources if str(one) != "header")
    elif not all(map(by_log_time, sources)):
        with contextlib.suppress(UsageError):  # its messages can't be decoded
            found = time_source(parts.load("decoders", info.encoding)(info), info, sources)
            sources = () if found is None else (found,)
    return column.shift if any(map(by_log_time, sources[:1])) else 0


def _rate_spans(summary: LogSummary, plan: RowPlan, clock: RateClock) -> list[Span]:
    """Plan spans of whole ticks: the grid of `plan.rows` ticks, halved if there are too many bytes.

    A span ends where ticks are left out, and includes the time up to the next one.
    """
    ranges = tick_ranges(summary, plan)
    grids = [range(one.first // plan.rows, -(-one.stop // plan.rows)) for one in ranges]
    _check_number(sum(len(grid) for grid in grids), summary)
    sizes = ByteIndex(summary)

    def spans_of(one: TickRange, end: int, grid: range) -> Iterator[Span]:
        def span_of(lo: int, hi: int) -> Span | None:
            ticks = max(lo, one.first), min(hi, one.stop)
            if ticks[0] >= ticks[1]:
                return None
            start = one.start if ticks[0] == one.first else tick_time(clock.rate, ticks[0])
            return Span(start, end if ticks[1] == one.stop else tick_time(clock.rate, ticks[1]), ticks)

        def too_big(span: Span) -> bool:
            start = MIN_TIME if span.ticks and span.ticks[0] == ranges[0].first else span.start
            return sizes.between(start, span.stop) > plan.bytes

        for j in grid:
            yield from _halved(j * plan.rows, (j + 1) * plan.rows, span_of, too_big)

    ends = [*(one.start for one in ranges[1:]), MAX_TIME][: len(ranges)]
    return [span for one in zip(ranges, ends, grids, strict=True) for span in spans_of(*one)]


def _topic_spans(summary: LogSummary, plan: RowPlan, info: TopicInfo) -> list[Span]:
    """Plan spans of time with about `plan.rows` ticks of the clock's topic, halved like others."""
    sizes = ByteIndex(summary)
    period = plan.rows * (info.last - info.first) // (info.num_ticks - 1) if info.num_ticks > 1 else 0
    if period > 0:
        grid = range(info.first // period, info.last // period + 1)
        _check_number(len(grid), summary)
        cells = [(j * period, (j + 1) * period) for j in grid]
    else:
        cells = [(summary.first, summary.last + 1)]
    # What other topics recorded before the clock started and after it ended belongs to the outer cells.
    cells[0] = min(summary.first, cells[0][0]), cells[0][1]
    cells[-1] = cells[-1][0], max(summary.last + 1, cells[-1][1])
    shortest = max(1, (period or cells[0][1] - cells[0][0]) // plan.rows)  # about one tick

    def too_big(span: Span) -> bool:
        return span.stop - span.start > shortest and sizes.between(span.start, span.stop) > plan.bytes

    return [span for lo, hi in cells for span in _halved(lo, hi, Span, too_big)]


def cut(
    span: Span, plan: RowPlan, summary: LogSummary, max_bytes: int, sizes: ByteIndex | None = None
) -> list[Span]:
    """Split a span into pieces that are read and resampled one after the other.

    The pieces cover the span, in time order; each has at most `max_bytes` of messages according to the index,
    unless it is so short that it mostly reads its halo.

    Args:
        sizes: of the same summary, if available.
    """
    sizes = sizes or ByteIndex(summary)
    runs = summary.recorded.read
    first, stop = max(span.start, runs[0].first), min(span.stop, runs[-1].last + 1)
    reaches = [c.sampling.back + c.sampling.forward for c in plan.columns]
    shortest = max([0, *reaches, *([2 * plan.clock.margin] if isinstance(plan.clock, SyncClock) else [])])
    tick_bytes = BYTES_PER_TICK * max(1, len(plan.columns) + 4 * len(plan.transforms) + len(plan.labels))

    def piece_of(lo: int, hi: int) -> Span:
        start, end = span.start if lo == first else lo, span.stop if hi == stop else hi
        if span.ticks is None or not isinstance(plan.clock, RateClock):
            return Span(start, end)
        k0, k1 = (tick_range(plan.clock.rate, time, time)[0] for time in (lo, hi))
        k0, k1 = (min(max(k, span.ticks[0]), span.ticks[1]) for k in (k0, k1))
        return Span(start, end, (k0, k1))

    def too_big(piece: Span) -> bool:
        length = min(piece.stop, stop) - max(piece.start, first)
        num_ticks = piece.ticks[1] - piece.ticks[0] if piece.ticks else 0
        if num_ticks * tick_bytes > max_bytes:
            return True
        return length > shortest and sizes.between(piece.start, piece.stop) > max_bytes

    return list(_halved(first, stop, piece_of, too_big)) if stop - first > 1 else [span]


def _halved(
    lo: int, hi: int, span_of: Callable[[int, int], Span | None], too_big: Callable[[Span], bool]
) -> Iterator[Span]:
    """Return the span of [lo, hi), or recursively its halves."""
    span = span_of(lo, hi)
    if span is None:
        return
    if hi - lo < 2 or not too_big(span):
        yield span
        return
    middle = (lo + hi) // 2
    yield from _halved(lo, middle, span_of, too_big)
    yield from _halved(middle, hi, span_of, too_big)


def _check_number(num_spans: int, summary: LogSummary) -> None:
    if num_spans > MAX_SPANS:
        raise LogReadError(
            f"{summary.uris[0]}: log times from {summary.first} to {summary.last} ns ask for {num_spans} "
            f"partitions, more than {MAX_SPANS}. A message probably has a wrong log time; otherwise set "
            "a lower clock rate or more partition.rows."
        )
