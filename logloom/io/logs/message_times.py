"""Message times: their sources, offsets and bounds, and the refusal of messages.

A message is refused for all columns and outputs: for its length, its time, or the structure of its compressed
picture.

Here: pure functions on `RawMessages`, a decoder and a request.
Elsewhere: reading the messages (logloom.io.logs.files.container_log), decoding them (messages).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.logs.interface import (
    MAX_TIME,
    MIN_TIME,
    MessageTime,
    StatedTime,
    TopicInfo,
    TopicRequest,
    source_of,
)
from logloom.io.logs.messages.picture_structure import picture_problems
from logloom.io.logs.messages.raw_messages import Decoder, RawMessages
from logloom.values import dataclass


def time_source(decoder: Decoder, info: TopicInfo, sources: Sequence[MessageTime]) -> MessageTime | None:
    """See `Log.time_source`."""
    for source in sources:
        if not isinstance(source, StatedTime):
            found = decoder.time_source((source,))
        elif source.by is not None:
            found = decoder.time_source((source.by,))
        else:
            check_field(decoder, info, source)
            found = "log"
        if found is not None:
            return source
    return None


def check_field(decoder: Any, info: TopicInfo, source: StatedTime) -> None:
    """Check that messages have the field that is their time.

    Raises:
        UsageError: they don't, or it is no time.
    """
    where = f"topic {info.topic} ({info.type})"
    if not hasattr(decoder, "field_time"):
        raise UsageError(f"{where}: the decoder of {info.encoding} messages reads no time from fields")
    try:
        decoder.check_field_time(source.field, source.unit)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def by_log_time(source: MessageTime) -> bool:
    """Return whether a message time is the log time, or at a constant distance from it."""
    return source_of(source) == "log"


def offset_of(sources: Sequence[MessageTime]) -> int:
    """Return what a recipe adds to the times of a topic, ns; equal for all its sources."""
    return next((source.offset for source in sources if isinstance(source, StatedTime)), 0)


def reach_of(sources: Sequence[MessageTime], max_delay: int | None) -> int | None:
    """Return the largest distance of a message time from its log time, ns; None for any."""
    if max_delay is None or not any(map(by_log_time, sources)):
        return max_delay
    return max(max_delay, abs(offset_of(sources)))


def log_range(request: TopicRequest, source: MessageTime) -> tuple[int, int]:
    """Return the first and last log time of messages that a request may match or refuse.

    Times at a constant distance from log times are found there; refused messages at their own log time.
    """
    offset = source.offset if isinstance(source, StatedTime) and by_log_time(source) else 0
    before = after = request.max_delay
    if by_log_time(source):
        before, after = max(0, offset), max(0, -offset)
    if before is None or after is None:
        return MIN_TIME, MAX_TIME
    first = request.start if request.start == MIN_TIME else max(MIN_TIME, request.start - before)
    last = request.stop if request.stop == MAX_TIME else min(MAX_TIME, request.stop - 1 + after)
    return first, last


def within(times: NDArray[np.int64], start: int, stop: int) -> NDArray[np.bool_]:
    """Select times in [start, stop); a stop of `MAX_TIME` is open."""
    return (times >= start) & ((times < stop) | (stop == MAX_TIME))


def are_known(stamp: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Select stamps that are times; zero is none."""
    known: NDArray[np.bool_] = (stamp != 0) & (stamp != MIN_TIME) & (stamp != MAX_TIME)
    return known


def are_near(stamp: NDArray[np.int64], log: NDArray[np.int64], max_delay: int) -> NDArray[np.bool_]:
    """Select stamps at most `max_delay` ns from their log times."""
    # Log times are never negative, so only the sum can overflow 64 bits.
    near: NDArray[np.bool_] = (stamp >= log - max_delay) & (
        stamp <= log + np.minimum(max_delay, MAX_TIME - log)
    )
    return near


@dataclass(frozen=True)
class Stamped:
    """Message times and refusals.

    Attributes:
        time: (N,).
        usable: (N,).
        reason: why the unusable message `row` is refused.
    """

    time: NDArray[np.int64]
    usable: NDArray[np.bool_]
    reason: Callable[[int], str]


def moved(times: NDArray[np.int64], offset: int) -> NDArray[np.int64]:
    """Add an offset to times; those that leave 64 bits, or are `MIN_TIME`, become `MIN_TIME`."""
    if not offset:
        return times
    fits = (times <= MAX_TIME - offset) if offset > 0 else (times > MIN_TIME - offset)
    return np.where(fits & (times != MIN_TIME), times + np.where(fits, offset, 0), MIN_TIME)


def _times(raw: RawMessages, decoder: Any, source: MessageTime) -> NDArray[np.int64]:
    """(N,) times of a source, without its offset."""
    if isinstance(source, StatedTime) and source.by is None:
        times: NDArray[np.int64] = decoder.field_time(raw, source.field, source.unit)
        return times
    by = source_of(source)
    if by == "header":
        return decoder.header_time(raw)  # type: ignore[no-any-return]
    return raw.publish_time if by == "publish" else raw.log_time


def stamp(raw: RawMessages, decoder: Decoder, source: MessageTime, max_delay: int | None) -> Stamped:
    """Determine message times, refusing messages with an invalid length or time.

    Args:
        max_delay: ns; the largest distance of a time from its log time, or None.
    """
    fits = decoder.check(raw)
    found = stated(_times(raw, decoder, source), raw.log_time, source, max_delay)

    def reason(row: int) -> str:
        return found.reason(row) if fits[row] else misfit_words(raw, row)

    return Stamped(found.time, fits & found.usable, reason)


def stated(
    times: NDArray[np.int64], log: NDArray[np.int64], source: MessageTime, max_delay: int | None
) -> Stamped:
    """Add a source's offset to its times, refusing invalid ones and those too far from their log times.

    Args:
        times: (N,) without the offset; `MIN_TIME` for none.
        log: (N,) log times.
    """
    known = times != MAX_TIME if by_log_time(source) else are_known(times)
    time = moved(times, source.offset) if isinstance(source, StatedTime) else times
    known &= (time != MIN_TIME) | (time == times)
    near = np.ones(len(times), bool)
    if max_delay is not None and not by_log_time(source):
        near = are_near(time, log, max_delay)

    def reason(row: int) -> str:
        if not known[row] and times[row] == MIN_TIME and isinstance(source, StatedTime):
            return f"its {source} has no time"
        if not known[row]:
            return f"its {source} time is {times[row]}, which is not a time"
        delay = (int(time[row]) - int(log[row])) / 1e9
        return f"its {source} time is {delay:+.3f} s from its log time, further than max_delay allows"

    return Stamped(time, known & near, reason)


def misfit_words(raw: RawMessages, row: int) -> str:
    """Describe a message whose length doesn't fit its definition."""
    return f"its {raw.length[row]} bytes don't fit its definition"


def without_broken_pictures(
    stamped: Stamped, raw: RawMessages, decoder: Decoder, asked: NDArray[np.bool_]
) -> Stamped:
    """Refuse also those of the compressed pictures asked for whose structure is broken.

    Args:
        asked: (N,) the messages to look at; the others stay as they are.
    """
    problems = picture_problems(raw, decoder, np.flatnonzero(asked & stamped.usable))
    if not problems:
        return stamped
    usable = stamped.usable.copy()
    usable[list(problems)] = False
    return replace(stamped, usable=usable, reason=lambda row: problems.get(row) or stamped.reason(row))
