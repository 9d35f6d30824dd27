"""What an examination has seen of a log so far, in memory that doesn't grow with the log.

Here: `Examination`, and what it keeps of each topic.
Elsewhere: going through a log (doctor), what is strange about what was seen (doctor_findings).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.base import MAX_TIME, MIN_TIME, LogSummary
from logloom.pipelines.doctor_findings import MAX_SKEW, HealthFinding, LostRange, TopicHealth

Times = NDArray[np.int64]


class Thinned:
    """Every 2ᵏ-th of the values added, k growing so that at most `LIMIT` are kept."""

    LIMIT = 1 << 16

    def __init__(self) -> None:
        self._kept = np.empty(0, np.int64)
        self._step = 1
        self._next = 0  # how many values to pass over first

    def add(self, values: Times) -> None:
        chosen = values[self._next :: self._step]
        self._next = (self._next - len(values)) % self._step
        self._kept = np.concatenate([self._kept, chosen])
        while len(self._kept) > self.LIMIT:
            # An odd number of kept values ends in one that stays, so the next to keep is a whole step later.
            self._next += self._step * (len(self._kept) % 2)
            self._kept = self._kept[::2]
            self._step *= 2

    def quantile(self, share: float) -> int:
        return int(np.quantile(self._kept, share, method="lower")) if len(self._kept) else 0


@dataclass
class WatchedTopic:
    """What was seen so far of one topic's messages, which come in the order in which they lie in the log."""

    messages: int = 0
    longest_gap: int = 0
    gap_at: int = 0
    log_steps_back: int = 0
    steps_back: int = 0
    duplicates: int = 0
    late: int = 0
    unstamped: int = 0
    unfit: int = 0
    lost: int = 0
    first: int = MAX_TIME
    last: int = MIN_TIME
    last_log: Times = field(default_factory=lambda: np.empty(0, np.int64))
    last_stamp: Times = field(default_factory=lambda: np.empty(0, np.int64))
    newest: Times = field(default_factory=lambda: np.empty(0, np.int64))  # message time, for gaps
    lowest_skew: int = MAX_TIME
    highest_skew: int = MIN_TIME
    skews: Thinned = field(default_factory=Thinned)
    periods: Thinned = field(default_factory=Thinned)

    def add(self, log_time: Times, stamp: Times | None) -> None:
        """Takes the next messages.

        Args:
            log_time: (N,).
            stamp: (N,) header stamps, 0 or `MIN_TIME` where there is none; None without headers.
        """
        if len(log_time) == 0:
            return
        self.messages += len(log_time)
        in_order = np.concatenate([self.last_log, log_time])
        self.log_steps_back += int((in_order[1:] < in_order[:-1]).sum())
        self.last_log = log_time[-1:]
        self.first, self.last = min(self.first, int(log_time.min())), max(self.last, int(log_time.max()))
        if stamp is None:
            ordered = np.sort(in_order)
            self.duplicates += int((ordered[1:] == ordered[:-1]).sum())
            self._measure_gaps(np.sort(log_time))
        else:
            self._compare(log_time, stamp)

    def _measure_gaps(self, times: Times) -> None:
        times = np.concatenate(
            [self.newest, times[times > (self.newest[0] if len(self.newest) else MIN_TIME)]]
        )
        self.newest = times[-1:]
        periods = np.diff(times)
        if len(periods) == 0:
            return
        self.periods.add(periods)
        longest = int(np.argmax(periods))
        if periods[longest] > self.longest_gap:
            self.longest_gap, self.gap_at = int(periods[longest]), int(times[longest])

    def _compare(self, log_time: Times, stamp: Times) -> None:
        known = (stamp != 0) & (stamp != MIN_TIME)
        self.unstamped += int((~known).sum())
        log_time, stamp = log_time[known], stamp[known]
        if len(stamp) == 0:
            return
        in_order = np.concatenate([self.last_stamp, stamp])
        self.steps_back += int((in_order[1:] < in_order[:-1]).sum())
        ordered = np.sort(in_order)
        self.duplicates += int((ordered[1:] == ordered[:-1]).sum())
        self.last_stamp = stamp[-1:]
        # Stamps may be anything; half the range keeps their differences from wrapping around.
        skew = np.clip(stamp, MIN_TIME // 2, MAX_TIME // 2) - np.clip(log_time, 0, MAX_TIME // 2)
        near = np.abs(skew) <= MAX_SKEW
        self.late += int((~near).sum())
        self._measure_gaps(np.sort(stamp[near]))
        self.lowest_skew = min(self.lowest_skew, int(skew.min()))
        self.highest_skew = max(self.highest_skew, int(skew.max()))
        self.skews.add(skew)

    def health(self, topic: str, kind: str, promised: int) -> TopicHealth:
        has_skew = self.lowest_skew <= self.highest_skew
        skew = (self.lowest_skew, self.skews.quantile(0.5), self.highest_skew) if has_skew else None
        span = (self.first, self.last) if self.messages else (0, 0)
        return TopicHealth(
            topic,
            kind,
            promised,
            self.messages,
            *span,
            self.longest_gap,
            self.gap_at,
            self.periods.quantile(0.5),
            skew,
            self.log_steps_back,
            self.steps_back,
            self.duplicates,
            self.late,
            self.unstamped,
            self.unfit,
            self.lost,
        )


@dataclass
class Examination:
    """What an examination found so far.

    Attributes:
        unchecked: see `Diagnosis`.
        first_unfit: by topic, the file, offset and length of the first message that doesn't fit, and what the
            offset counts.
    """

    topics: dict[str, WatchedTopic] = field(default_factory=dict)
    unchecked: int | None = None
    findings: list[HealthFinding] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    first_unfit: dict[str, tuple[str, int, int, str]] = field(default_factory=dict)

    def watched(self, topic: str) -> WatchedTopic:
        return self.topics.setdefault(topic, WatchedTopic())

    def health(self, topic: str, summary: LogSummary) -> TopicHealth:
        info = summary.topics[topic]
        return self.watched(topic).health(topic, info.type, info.num_messages)

    def lose(
        self,
        kind: str,
        where: LostRange,
        reason: str,
        counts: Mapping[str, int],
        remedy: str,
        unit: str = "byte",
    ) -> None:
        """Takes damage.

        Args:
            counts: how many messages each topic lost by it.
            unit: what the offset counts.
        """
        for topic, count in counts.items():
            self.watched(topic).lost += count
        lost = [f"{count:,} of {topic or 'unknown topics'}" for topic, count in counts.items() if count]
        message = reason + (f"; lost: {', '.join(lost)}" if lost else "")
        topics = ", ".join(topic for topic, count in counts.items() if count)
        if where.length:
            self.lost.append(where)
        self.findings.append(
            HealthFinding(kind, where.uri, where.offset, topics, sum(counts.values()), message, remedy, unit)
        )
