"""Message times: their sources and bounds, and the refusal of messages.

A message is refused for all columns and outputs: for its length, its time, or the structure of its compressed
picture.

Here: pure functions on `RawMessages`, a decoder and a request.
Elsewhere: reading the messages (logloom.io.logs.files.container_log), decoding them (messages).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.interface import MAX_TIME, MIN_TIME, TimeSource, TopicRequest
from logloom.io.logs.messages.picture_structure import picture_problems
from logloom.io.logs.messages.raw_messages import Decoder, RawMessages
from logloom.values import dataclass


def log_range(request: TopicRequest, source: TimeSource) -> tuple[int, int]:
    """Return the first and last log time of messages that a request may match."""
    delay = 0 if source == "log" else request.max_delay
    if delay is None:
        return MIN_TIME, MAX_TIME
    first = request.start if request.start == MIN_TIME else max(MIN_TIME, request.start - delay)
    last = request.stop if request.stop == MAX_TIME else min(MAX_TIME, request.stop - 1 + delay)
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


def stamp(raw: RawMessages, decoder: Decoder, source: TimeSource, max_delay: int | None) -> Stamped:
    """Determine message times, refusing messages with an invalid length or time.

    Args:
        max_delay: ns; the largest distance of a time from its log time, or None.
    """
    fits = decoder.check(raw)
    log = raw.log_time
    time = decoder.header_time(raw) if source == "header" else getattr(raw, f"{source}_time")
    known = are_known(time) if source != "log" else time != MAX_TIME
    near = np.ones(len(raw), bool)
    if max_delay is not None and source != "log":
        near = are_near(time, log, max_delay)

    def reason(row: int) -> str:
        if not fits[row]:
            return misfit_words(raw, row)
        if not known[row]:
            return f"its {source} time is {time[row]}, which is not a time"
        delay = (int(time[row]) - int(log[row])) / 1e9
        return f"its {source} time is {delay:+.3f} s from its log time, further than max_delay allows"

    return Stamped(time, fits & known & near, reason)


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
