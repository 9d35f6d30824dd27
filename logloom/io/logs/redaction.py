"""Redacted logs: read as if nothing had been recorded in erased ranges of time.

Here: `RedactedLog`, which leaves out every message whose message time or log time is in an erased range.
Elsewhere: defining the ranges (logloom.io.catalog.tombstones), opening logs (opening).

The rest is another log with its own content id, so no units of the original are reused for it. The index is
still that of the files: extents and counts of messages don't change.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Values
from logloom.caching import cached_property
from logloom.digests import digest_of
from logloom.io.catalog.tombstones import digest_of_log, merged_ranges
from logloom.io.logs.interface import (
    MIN_TIME,
    FieldSpec,
    Log,
    LogSummary,
    MessagePlace,
    Messages,
    MessageTime,
    Redactions,
    Refusal,
    TopicRequest,
)
from logloom.schema import ColumnType, TimeRanges

_FIRST_REACH = 10**9  # ns; how far before a range to search for a topic's last message at first


def lie_in(times: NDArray[np.int64], ranges: TimeRanges) -> NDArray[np.bool_]:
    """(N,) mask of times in one of the ranges."""
    found = np.zeros(len(times), np.bool_)
    for start, stop in ranges:
        found |= (times >= start) & (times < stop)
    return found


class RedactedMessages:
    """See `Messages`; the remaining messages of a topic.

    Attributes:
        erased_times: (M,) message times of the erased messages.
        erased_refusals: refusals in the erased time, all with a known topic.
    """

    def __init__(self, messages: Messages, ranges: TimeRanges):
        erased = lie_in(messages.time, ranges) | lie_in(messages.log_time, ranges)
        self.erased_times = messages.time[erased]
        at = np.array([refusal.log_time for refusal in messages.refused], np.int64)
        # An unreadable stretch without a topic means that counts of messages are unreliable.
        pairs = list(zip(messages.refused, lie_in(at, ranges).tolist(), strict=True))
        self.erased_refusals = [refusal for refusal, is_erased in pairs if is_erased and refusal.topic]
        self.refused: Sequence[Refusal] = [
            refusal for refusal, is_erased in pairs if not (is_erased and refusal.topic)
        ]
        self._messages = messages
        self._choose(np.flatnonzero(~erased))

    def _choose(self, rows: NDArray[np.intp]) -> None:
        self._rows = rows
        self.topic = self._messages.topic
        self.time = self._messages.time[rows]
        self.log_time = self._messages.log_time[rows]
        self.position = self._messages.position[rows]

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, spec: FieldSpec, rows: NDArray[np.intp]) -> Values:
        return self._messages.take(spec, self._rows[rows])

    def has_value(self, spec: FieldSpec) -> NDArray[np.bool_] | None:
        found = self._messages.has_value(spec)
        return None if found is None else found[self._rows]

    def last(self, spec: FieldSpec | None) -> RedactedMessages:
        """Return the last message by position with a value for a column; none if there is none."""
        one = copy.copy(self)
        found = None if spec is None else self.has_value(spec)
        rows = np.arange(len(self)) if found is None else np.flatnonzero(found)
        one._choose(self._rows[rows[np.argsort(self.position[rows])[-1:]]])
        return one


class RedactedLog:
    """See `Log`.

    A static column takes the topic's last message; if that is erased, the last one before the erased range.
    """

    def __init__(self, log: Log, log_id: str, redactions: Redactions):
        """
        Args:
            log: the original log.
            log_id: "" if unknown: then redactions are found by content only.
            redactions: see `OpenOptions`.
        """
        self._log, self._log_id, self._redactions = log, log_id, redactions

    def __reduce__(self) -> tuple[Any, ...]:
        return RedactedLog, (copy.copy(self._log), self._log_id, self._redactions)

    @cached_property
    def ranges(self) -> TimeRanges:
        """The erased ranges."""
        return redacted_ranges(self._redactions, self._log_id, self._log.summary.content_id)

    @cached_property
    def summary(self) -> LogSummary:
        summary = self._log.summary
        if not self.ranges:
            return summary
        return replace(summary, content_id=digest_of(["redacted", summary.content_id, self.ranges]))

    @property
    def sidecars(self) -> Any:
        """Sidecars of the original log; the redacted one has another content id."""
        return getattr(self._log, "sidecars", None)

    @property
    def other_topics(self) -> Mapping[str, tuple[str, ...]]:
        """The other names that topics of the original log may have, by the first."""
        return getattr(self._log, "other_topics", {})

    def column_type(self, topic: str, spec: FieldSpec) -> ColumnType:
        return self._log.column_type(topic, spec)

    def time_source(self, topic: str, sources: Sequence[MessageTime]) -> MessageTime | None:
        return self._log.time_source(topic, sources)

    def read(self, requests: Mapping[str, TopicRequest]) -> dict[str, Messages]:
        found = self._log.read(requests)
        if not self.ranges:
            return found
        return {topic: RedactedMessages(messages, self.ranges) for topic, messages in found.items()}

    def places(self, topic: str, positions: NDArray[np.int64]) -> list[MessagePlace]:
        return self._log.places(topic, positions)

    def last_message(self, topic: str, spec: FieldSpec | None = None) -> Messages:
        last = self._log.last_message(topic, spec)
        if not len(last) or not lie_in(last.log_time, self.ranges)[0]:
            return last
        return self._last_before(topic, int(last.log_time[0]), spec)

    def _last_before(self, topic: str, time: int, spec: FieldSpec | None) -> Messages:
        """Search for the last message before the range with a log time, going back in growing steps."""
        stop = next(start for start, end in self.ranges if start <= time < end)
        first, reach = self._log.summary.topics[topic].first, _FIRST_REACH
        while True:
            start = max(MIN_TIME, stop - reach)
            request = TopicRequest(start, stop, ("log",))
            found = RedactedMessages(self._log.read({topic: request})[topic], self.ranges)
            last = found.last(spec)
            if len(last) or start <= first:
                return last
            reach *= 4


def redacted_ranges(redactions: Redactions, log_id: str, content_id: str) -> TimeRanges:
    """Return the erased ranges of a log.

    Args:
        content_id: of its original files.
    """
    of_content = redactions.get(content_id)
    if of_content == ():  # erased as a whole: it must be recognizable
        return ()
    return merged_ranges([*(of_content or ()), *redactions.get(digest_of_log(log_id), ())])
