"""Lineage: the messages of a log that one row is made of, column by column.

Here: `trace`, which chooses messages like a build, and returns the place of each, or the nearest unused ones.
Elsewhere: the choice (resample), reading (topic_columns), showing it (logloom.pipelines.head.why).
Times are int64 nanoseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from logloom.io.logs.interface import MAX_TIME, MIN_TIME, Log, MessagePlace, Messages, Refusal, TopicRequest
from logloom.io.logs.message_times import reach_of
from logloom.io.logs.messages.adapters import VIDEO
from logloom.resample.policies import POLICIES, ResamplePolicy
from logloom.transforms.rows.plan.row_plan import ColumnPlan, RowPlan, Sampling, Span, SyncClock
from logloom.transforms.rows.resample import Indices, Times
from logloom.transforms.rows.sync_clock import synced
from logloom.transforms.rows.topic_columns import read_static, requests_of, sampled
from logloom.transforms.rows.video_columns import video_of
from logloom.values import dataclass

_FIRST_REACH, _LAST_REACH = 10**9, 1 << 61


@dataclass(frozen=True)
class Source:
    """A message that a value depends on.

    Attributes:
        time: its message time, without the column's offset; of a static column's message its log time.
        age: the tick minus that time, including the offset.
    """

    time: int
    log_time: int
    age: int
    place: MessagePlace


@dataclass(frozen=True)
class Keyframe:
    """The packets that a picture of video is decoded from.

    Attributes:
        key: the packet that decoding begins with.
        packets: how many are decoded, from that one up to the picture's own.
    """

    key: Source
    packets: int


@dataclass(frozen=True)
class Lineage:
    """Messages behind a column's value at a tick.

    Attributes:
        used: all messages of the value, in the order of their times.
        reason: why the value is unavailable; "" if it isn't.
        nearest: of an unavailable value, the messages it would use if they weren't refused; without these,
            the nearest unused messages: one, or, for a policy with messages on both sides of the tick, up to
            one on each side. For `previous` and `next`, one on the other side if theirs has none.
        keyframes: of pictures of video, one for each of `used`.
        topic: its name in the log.
    """

    column: ColumnPlan
    used: tuple[Source, ...]
    reason: str = ""
    nearest: tuple[Source, ...] = ()
    keyframes: tuple[Keyframe, ...] = ()
    topic: str = ""


def trace(log: Log, plan: RowPlan, tick: int) -> dict[str, Lineage]:
    """Trace the lineage of each column of a topic at one tick.

    Raises:
        LogReadError: the log is damaged, unless it is opened for salvage.
    """
    span = Span(tick, tick + 1)
    found = log.read(requests_of(plan, log.summary, span))
    clock = plan.clock
    matched = synced(log, plan, clock, found, span).times if isinstance(clock, SyncClock) else {}
    none = np.empty(0, np.int64)
    topics = log.summary.topics
    traced = {}
    for column in plan.columns:
        one = _trace(log, column, found, tick, span, matched.get(column.topic, none))
        topic = topics[column.topic].topic if column.topic in topics else column.topic
        traced[column.name] = replace(one, topic=topic)
    return traced


def _trace(
    log: Log, column: ColumnPlan, found: Mapping[str, Messages], tick: int, span: Span, matched: Times
) -> Lineage:
    """
    Trace one column.

    Args:
        matched: (1,) the time of the message that the clock chose of the topic, or (0,).
    """
    topic, sampling = column.topic, column.sampling
    if topic not in log.summary.topics:
        return Lineage(column, (), f"the log has no topic {topic}")
    if sampling.rules.uses == "topic":
        last = log.last_message(topic, column.spec)
        if not len(last):
            return Lineage(column, (), f"{topic} has no message with a value")
        log_time = int(last.log_time[0])
        place = log.places(topic, last.position)[0]
        source = Source(log_time, log_time, tick - log_time, place)
        static = read_static(log, column, "salvage")
        if not len(static.value):
            return Lineage(column, (), _refused(column, static.refused), (source,))
        return Lineage(column, (source,))
    messages = found[topic]
    if sampling.rules.by_clock and not len(matched):
        return Lineage(column, (), "the clock matched no set at this time")
    ticks, wanted = np.array([tick], np.int64), matched if sampling.rules.by_clock else None
    uri, video, whole = log.summary.uris[0], video_of(log, column), replace(column, deskew=None)
    # A row exists, so what can't be decoded was refused, whatever `on_error` is.
    chosen = sampled(whole, messages, ticks, span, uri, video, wanted=wanted, on_error="salvage")
    used = chosen.used(0)
    if chosen.available[0] and video is None and not chosen.made_available(np.arange(1))[0]:
        positions = messages.position[used].tolist()
        refused = [one for one in chosen.seen().refused if one.position in positions]
        rows = used[np.isin(positions, [one.position for one in refused])]
        return Lineage(column, (), _refused(column, refused), _sources(log, column, messages, rows, tick))
    used = chosen.used(0)  # less those that a window continues without
    if chosen.available[0]:
        keyframes = _keyframes(log, column, messages.position[used], tick)
        return Lineage(column, _sources(log, column, messages, used, tick), keyframes=keyframes)
    nearest = _nearest(log, column, tick)
    if sampling.rules.by_clock:
        return Lineage(column, (), "the message that the clock matched can't be used", nearest)
    lost = len(messages.refused) + len(messages) - len(chosen.usable)
    words = _missing(sampling) if nearest else f"{topic} has no usable message"
    words += f"; {lost} that can't be used" if lost else ""
    return Lineage(column, (), words, nearest)


def _refused(column: ColumnPlan, refused: Sequence[Refusal]) -> str:
    """Explain that messages that a column would use are refused."""
    why = dict.fromkeys(one.reason.removeprefix(f"column {column.name}: ") for one in refused)
    return f"a message that it would use is refused: {'; '.join(why)}"


def _sources(
    log: Log, column: ColumnPlan, messages: Messages, rows: Indices, tick: int
) -> tuple[Source, ...]:
    places = log.places(column.topic, messages.position[rows])
    offset = column.sampling.offset
    return tuple(
        Source(time, log_time, tick - time - offset, place)
        for time, log_time, place in zip(
            messages.time[rows].tolist(), messages.log_time[rows].tolist(), places, strict=True
        )
    )


def _keyframes(log: Log, column: ColumnPlan, positions: Times, tick: int) -> tuple[Keyframe, ...]:
    video = video_of(log, column) if column.spec.adapter == VIDEO else None
    if video is None or not len(positions):
        return ()
    packets, numbers = video.index.packets, video.index.numbers_of(positions)
    first = packets["start"][numbers]
    places = log.places(column.topic, packets["position"][first])
    times = packets["log_time"][first].tolist()
    found = [
        Keyframe(Source(time, time, tick - time, place), count)
        for time, place, count in zip(times, places, (numbers - first + 1).tolist(), strict=True)
    ]
    return tuple(found)


def _missing(sampling: Sampling) -> str:
    """Explain why there is no message for a policy that chooses among some."""
    tolerance = f"{sampling.tolerance / 1e6:g} ms"
    if sampling.rules.uses == "two":
        return f"no messages within {tolerance} on both sides of the tick"
    if sampling.rules.tolerates:
        back, forward = sampling.rules.before, sampling.rules.after
        side = "around" if back and forward else "before" if back else "after"
        return f"no message within {tolerance} {side} the tick"
    if sampling.rules.uses in ("one", "tick"):
        return "no message at the exact time of the tick"
    first, last = (f"{edge / 1e6:g} ms" for edge in sampling.window)
    return f"no message in the window from {first} to {last}"


def _nearest(log: Log, column: ColumnPlan, tick: int) -> tuple[Source, ...]:
    """Find what a policy would have used without limit of distance, or else what `nearest` would have.

    It searches further and further.
    """
    sampling = column.sampling
    reach = max(_FIRST_REACH, 2 * sampling.back, 2 * sampling.forward)
    at = tick - sampling.offset
    while True:
        start, stop = max(MIN_TIME, at - reach), min(MAX_TIME, at + reach + 1)
        request = TopicRequest(start, stop, column.time, column.max_delay)
        messages = log.read({column.topic: request})[column.topic]
        span = Span(start, stop)
        ticks, uri = np.array([tick], np.int64), log.summary.uris[0]
        chosen = sampled(column, messages, ticks, span, uri, video_of(log, column), on_error="salvage")
        is_all = _is_all(log, column, start, stop)
        sides = _beside(chosen.usable, messages, at, sampling.rules)
        if is_all and not len(sides):
            sides = _beside(chosen.usable, messages, at, POLICIES["nearest"])
        if is_all or len(sides) == (2 if sampling.rules.uses == "two" else 1):
            return _sources(log, column, messages, sides, tick)
        reach *= 2


def _beside(usable: Indices, messages: Messages, at: int, rules: ResamplePolicy) -> Indices:
    """Return the last usable message up to a time and the first after it; or the nearer of both."""
    times = messages.time[usable]
    before, after = usable[times <= at], usable[times >= at]
    sides = []
    if len(before) and (rules.before or not rules.after):
        latest = before[messages.time[before] == messages.time[before].max()]
        sides.append(latest[-1])
    if len(after) and (rules.after or not rules.before):
        earliest = after[messages.time[after] == messages.time[after].min()]
        sides.append(earliest[-1])
    if rules.uses != "two":
        sides = sorted(sides, key=lambda row: abs(int(messages.time[row]) - at))[:1]
    return np.array(sides, np.intp)


def _is_all(log: Log, column: ColumnPlan, start: int, stop: int) -> bool:
    """Return whether a range of message times includes every message of the topic."""
    info = log.summary.topics[column.topic]
    reach = reach_of(column.time, column.max_delay)
    delay = _LAST_REACH if reach is None else reach
    return start <= max(MIN_TIME, info.first - delay) and stop > min(MAX_TIME - 1, info.last + delay)
