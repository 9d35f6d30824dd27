"""Observations of a log for `logloom doctor`, in memory of bounded size.

Here: `Examination`, and its state of each topic.
Elsewhere: reading a log (doctor), results (findings).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.files.collector import Origin
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, LogSummary, Refusal
from logloom.io.logs.message_times import are_known, are_near
from logloom.io.logs.messages.raw_messages import RawMessages
from logloom.io.logs.recording_times import RecordedTime
from logloom.pipelines.doctor.findings import MAX_SKEW, SALVAGE, Gap, HealthFinding, LostRange, TopicHealth
from logloom.values import dataclass

Times = NDArray[np.int64]
FramesOf = Callable[[NDArray[np.intp]], Sequence[Hashable] | None]

KEPT_GAPS = 64  # of a topic

_NONE: Times = np.empty(0, np.int64)


def _no_frames(rows: NDArray[np.intp]) -> None:
    """Return None for messages without frames."""


class Thinned:
    """Every 2ᵏ-th of the values added, k growing so that at most `LIMIT` are kept."""

    LIMIT = 1 << 16

    def __init__(self) -> None:
        self._kept = np.empty(0, np.int64)
        self._step = 1
        self._next = 0  # number of values to skip first

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
    """State of one topic, whose messages arrive in log order.

    Attributes:
        longest: the longest intervals, at most `KEPT_GAPS`, longest first.
        last_of_frame: by frame, the last stamp before messages whose stamps don't increase.
    """

    messages: int = 0
    longest: tuple[Gap, ...] = ()
    num_intervals: int = 0
    log_steps_back: int = 0
    steps_back: int = 0
    duplicates: int = 0
    late: int = 0
    unstamped: int = 0
    unfit: int = 0
    lost: int = 0
    first: int = MAX_TIME
    last: int = MIN_TIME
    last_log: Times = field(default_factory=_NONE.copy)
    last_stamp: Times = field(default_factory=_NONE.copy)
    last_of_frame: dict[Hashable, Times] = field(default_factory=dict)
    newest: Times = field(default_factory=_NONE.copy)  # message time, for gaps
    lowest_skew: int = MAX_TIME
    highest_skew: int = MIN_TIME
    skews: Thinned = field(default_factory=Thinned)
    periods: Thinned = field(default_factory=Thinned)

    def add(self, log_time: Times, stamp: Times | None, frames: FramesOf = _no_frames) -> None:
        """Add the next messages.

        Args:
            log_time: (N,).
            stamp: (N,) header stamps, 0 or `MIN_TIME` if there is none; None without headers.
            frames: maps numbers of these messages to their frames; None if they have none.
        """
        if len(log_time) == 0:
            return
        self.messages += len(log_time)
        in_order = np.concatenate([self.last_log, log_time])
        self.log_steps_back += int((in_order[1:] < in_order[:-1]).sum())
        self.last_log = log_time[-1:]
        self.first, self.last = min(self.first, int(log_time.min())), max(self.last, int(log_time.max()))
        if stamp is None:
            self.duplicates += _num_equal(in_order)
            self._measure_gaps(log_time)
        else:
            self._compare(log_time, stamp, frames)

    def _measure_gaps(self, times: Times) -> None:
        """Add message times; several messages at one time count once."""
        times = np.unique(times)
        newest = self.newest[0] if len(self.newest) else MIN_TIME
        self._fill_gaps(times[times < newest])
        times = np.concatenate([self.newest, times[times > newest]])
        self.newest = times[-1:]
        periods = np.diff(times)
        if len(periods) == 0:
            return
        self.periods.add(periods)
        self.num_intervals += len(periods)
        least = self.longest[-1].length if len(self.longest) == KEPT_GAPS else 0
        chosen = np.flatnonzero(periods > least)
        chosen = chosen[np.argsort(-periods[chosen], kind="stable")[:KEPT_GAPS]]
        if len(chosen):
            self.longest = _longest(
                [*self.longest, *map(Gap, times[chosen].tolist(), periods[chosen].tolist())]
            )

    def _fill_gaps(self, times: Times) -> None:
        """Add messages that come after others of a later time, as in a file with unordered chunks.

        Args:
            times: (N,) ascending.
        """
        if not len(times) or not self.longest:
            return
        gaps: list[Gap] = []
        for at, length in self.longest:
            first, stop = np.searchsorted(times, [at, at + length])
            edges = np.unique(np.concatenate([[at], times[first:stop], [at + length]]))
            gaps += map(Gap, edges.tolist(), np.diff(edges).tolist())
        self.longest = _longest(gaps)

    def _compare(self, log_time: Times, stamp: Times, frames: FramesOf) -> None:
        known = np.flatnonzero(are_known(stamp))
        self.unstamped += len(stamp) - len(known)
        log_time, stamp = log_time[known], stamp[known]
        if len(stamp) == 0:
            return
        near = are_near(stamp, log_time, MAX_SKEW)
        self.late += int((~near).sum())
        in_order = np.concatenate([self.last_stamp, stamp[near]])
        if (in_order[1:] <= in_order[:-1]).any():
            self._count_out_of_order(in_order, frames(known[near]))
        self.last_stamp = in_order[-1:]
        self._measure_gaps(stamp[near])
        # Stamps may have any value; half the range keeps their differences from wrapping around.
        skew = np.clip(stamp, MIN_TIME // 2, MAX_TIME // 2) - np.clip(log_time, 0, MAX_TIME // 2)
        self.lowest_skew = min(self.lowest_skew, int(skew.min()))
        self.highest_skew = max(self.highest_skew, int(skew.max()))
        self.skews.add(skew)

    def _count_out_of_order(self, in_order: Times, frames: Sequence[Hashable] | None) -> None:
        """Count stamps that are equal or decrease, among messages of one frame.

        Args:
            in_order: the last stamp before, if there is one, and (N,) the next.
            frames: (N,) of the next; None if messages have none.
        """
        if frames is None:
            series = [in_order]
        else:
            stamp = in_order[-len(frames) :]
            rows: dict[Hashable, list[int]] = {}
            for row, frame in enumerate(frames):
                rows.setdefault(frame, []).append(row)
            series = []
            for frame, own in rows.items():
                series.append(np.concatenate([self.last_of_frame.get(frame, _NONE), stamp[own]]))
                self.last_of_frame[frame] = stamp[own[-1:]]
        for times in series:
            self.steps_back += int((times[1:] < times[:-1]).sum())
            self.duplicates += _num_equal(times)

    def health(self, topic: str, kind: str, promised: int) -> TopicHealth:
        has_skew = self.lowest_skew <= self.highest_skew
        skew = (self.lowest_skew, self.skews.quantile(0.5), self.highest_skew) if has_skew else None
        periods = self.periods.quantile(0.1), self.periods.quantile(0.5), self.periods.quantile(0.9)
        return TopicHealth(
            topic=topic,
            type=kind,
            promised=promised,
            messages=self.messages,
            first=self.first if self.messages else 0,
            last=self.last if self.messages else 0,
            longest=self.longest,
            num_intervals=self.num_intervals,
            periods=periods,
            skew=skew,
            log_steps_back=self.log_steps_back,
            steps_back=self.steps_back,
            duplicates=self.duplicates,
            late=self.late,
            unstamped=self.unstamped,
            unfit=self.unfit,
            lost=self.lost,
            strays=0,
        )


def _longest(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    return tuple(sorted(gaps, key=lambda gap: (-gap.length, gap.at))[:KEPT_GAPS])


def _num_equal(times: Times) -> int:
    ordered = np.sort(times)
    return int((ordered[1:] == ordered[:-1]).sum())


@dataclass
class Examination:
    """State of an examination.

    Attributes:
        recorded: recording times; strays are ignored.
        unchecked: see `Diagnosis`.
        refused: by topic and kind of finding, the first message that a build refuses for its content, which
            counts all of them.
    """

    recorded: RecordedTime
    topics: dict[str, WatchedTopic] = field(default_factory=dict)
    unchecked: int | None = None
    findings: list[HealthFinding] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    refused: dict[tuple[str, str], Refusal] = field(default_factory=dict)

    def watched(self, topic: str) -> WatchedTopic:
        return self.topics.setdefault(topic, WatchedTopic())

    def health(self, topic: str, summary: LogSummary) -> TopicHealth:
        info = summary.topics[topic]
        return replace(
            self.watched(topic).health(topic, info.type, info.num_messages), strays=info.num_strays
        )

    def refuse(self, kind: str, raw: RawMessages, origin: Origin, reasons: Mapping[int, str]) -> None:
        """Record messages of a stretch that a build refuses, by their reasons."""
        if not reasons:
            return
        self.watched(raw.topic).unfit += len(reasons)
        row = min(reasons)
        position, log_time = int(raw.position[row]), int(raw.log_time[row])
        offset = origin.offset_of(position)
        new = Refusal(origin.uri, offset, raw.topic, position, log_time, reasons[row], 0, origin.unit)
        first = self.refused.get((raw.topic, kind), new)
        count = first.num_messages + len(reasons)
        self.refused[raw.topic, kind] = replace(first, num_messages=count)

    def lose(
        self,
        kind: str,
        where: LostRange,
        reason: str,
        counts: Mapping[str, int],
        remedy: str,
        unit: str = "byte",
    ) -> None:
        """Record damage.

        Args:
            counts: number of lost messages by topic.
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
            HealthFinding(
                kind,
                where.uri,
                where.offset,
                topics,
                sum(counts.values()),
                message,
                remedy,
                unit,
                recipe=SALVAGE,
            )
        )
