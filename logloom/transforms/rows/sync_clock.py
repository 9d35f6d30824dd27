"""Ticks of a clock that matches messages of several topics, and these messages.

Here: finding and reading the part of a log that gives the same sets as the whole log for a stretch of ticks.
Elsewhere: matching (logloom.resample.sync), clocks of one topic and rates (ticks), columns
(topic_columns).
Times are int64 nanoseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from logloom.io.logs.interface import MAX_TIME, MIN_TIME, Log, LogSummary, Messages, TopicRequest
from logloom.io.storage.lru_cache import LruCache
from logloom.resample.sync import match
from logloom.transforms.rows.accounts import within
from logloom.transforms.rows.plan.row_plan import RowPlan, Span, SyncClock
from logloom.transforms.rows.resample import Times
from logloom.transforms.rows.spans import cut
from logloom.values import dataclass

MARGIN_BYTES = 64 << 20  # of messages read at a time if only their stamps matter
FAR = 1_000_000_000  # ns; sets further apart aren't looked for
_GROWTH = 4  # of the margins, until they suffice
_WIDEST = 64  # times the margin at first; then the whole log is read, once per process
# The times of matched sets of whole logs, (K, S), if less doesn't suffice: as for sensors that are exactly
# half a period apart, whose sets are all equally tight. Else each span would read the log again.
_whole_logs: LruCache[Times] = LruCache(64 << 20)


@dataclass(frozen=True)
class Synced:
    """The matched sets of a span.

    Attributes:
        ticks: (T,) ascending, the times of the stamping topic's messages.
        times: by topic, the (T,) times of its messages.
    """

    ticks: Times
    times: Mapping[str, Times]


def synced(log: Log, plan: RowPlan, clock: SyncClock, messages: Mapping[str, Messages], span: Span) -> Synced:
    """Return the sets with ticks in a span, the same as for the whole log.

    Args:
        messages: of the clock's topics, within `clock.margin` of the span.

    Raises:
        LogReadError: the log is damaged, under `on_error: fail`.
    """
    times = [_stamps(messages.get(topic)) for topic in clock.topics]
    stamp, margin = clock.topics.index(clock.stamp), clock.margin
    start, stop = _bounds(log.summary, clock, span, margin)
    # Times in names of files aren't content.
    key = (log.summary.messages_id, log.summary.chunk_times.tobytes(), clock)
    while True:
        found = match(times, stamp, clock.within, start, stop)
        at = [own[found.sets[:, k]] for k, own in enumerate(times)]
        lacks_start, lacks_stop = found.first > span.start, found.stop < span.stop
        if not (lacks_start or lacks_stop):
            break
        known = _whole_logs.get(key)
        if known is not None:
            at = list(known)
            break
        margin *= _GROWTH
        wider = (MIN_TIME, MAX_TIME)
        widest = _WIDEST * clock.margin  # before the whole log is read
        if clock.max_delay is None:
            widest = min(widest, log.summary.last - log.summary.first)
        if margin <= widest:
            near = _bounds(log.summary, clock, span, margin)
            wider = (near[0] if lacks_start else start, near[1] if lacks_stop else stop)
        for part in (Span(wider[0], start), Span(stop, wider[1])):
            if part.start < part.stop:
                more = _read(log, plan, clock, part)
                times = [np.union1d(a, b) for a, b in zip(times, more, strict=True)]
        start, stop = wider
    if margin > clock.margin and (start, stop) == (MIN_TIME, MAX_TIME) and log.summary.content_id:
        _whole_logs.put(key, np.array(at))
    ticks = at[stamp]
    own = within(ticks, span)
    by_topic = {topic: of_topic[own] for topic, of_topic in zip(clock.topics, at, strict=True)}
    return Synced(ticks[own], by_topic)


def nearest(clock: SyncClock, messages: Mapping[str, Messages]) -> list[int]:
    """Return the spread of the tightest set of messages that a clock doesn't match; none beyond `FAR`.

    Of each topic, at most 1,000 messages count, from where all topics have begun.
    """
    times = [_stamps(messages.get(topic)) for topic in clock.topics]
    begun = max((int(own[0]) for own in times if len(own)), default=0) - FAR
    times = [own[own >= begun][:1000] for own in times]
    sets = match(times, clock.topics.index(clock.stamp), FAR).sets
    at = np.array([own[sets[:, k]] for k, own in enumerate(times)])
    return [int((at.max(axis=0) - at.min(axis=0)).min())] if len(sets) else []


def widened(span: Span, margin: int) -> tuple[int, int]:
    """Return the times within `margin` of a span, whose open ends stay open."""
    start = span.start if span.start == MIN_TIME else max(MIN_TIME, span.start - margin)
    stop = span.stop if span.stop == MAX_TIME else min(MAX_TIME, span.stop + margin)
    return start, stop


def clock_requests(summary: LogSummary, clock: SyncClock, start: int, stop: int) -> dict[str, TopicRequest]:
    """Return requests for the messages of a clock's topics in [start, stop)."""
    return {
        topic: TopicRequest(start, stop, time, clock.max_delay)
        for topic, time in zip(clock.topics, clock.times, strict=True)
        if topic in summary.topics
    }


def _stamps(messages: Messages | None) -> Times:
    """Return distinct times of a topic's messages, ascending, without erased ones."""
    return np.empty(0, np.int64) if messages is None else np.unique(messages.time)


def _bounds(summary: LogSummary, clock: SyncClock, span: Span, margin: int) -> tuple[int, int]:
    """Return the times within `margin` of a span; open if the log has nothing beyond them."""
    start, stop = widened(span, margin)
    if (reach := clock.reach) is None:  # stamps may have any value
        return start, stop
    is_all_before = start <= summary.first - reach
    is_all_after = stop > summary.last + reach
    return MIN_TIME if is_all_before else start, MAX_TIME if is_all_after else stop


def _read(log: Log, plan: RowPlan, clock: SyncClock, part: Span) -> list[Times]:
    """Read the stamps of a clock's topics in a part of the log, with little memory."""
    found = [_stamps(None)] * len(clock.topics)
    for piece in cut(part, plan, log.summary, MARGIN_BYTES):
        messages = log.read(clock_requests(log.summary, clock, piece.start, piece.stop))
        stamps = (_stamps(messages.get(topic)) for topic in clock.topics)
        found = [np.union1d(a, b) for a, b in zip(found, stamps, strict=True)]
    return found
