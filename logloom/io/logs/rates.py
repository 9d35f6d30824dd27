"""Rates of topics: median message interval, and share of time without messages.

Here: `rates_of`, by samples of times from a log's index.
Elsewhere: the samples (`sampled_times` of the kinds of logs), recording times (recording_times), intervals of
all messages (logloom.pipelines.doctor). A mean would make a slow topic of one with pauses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.interface import Log, LogSummary, TopicInfo
from logloom.values import dataclass

MIN_INTERVALS = 5  # fewer show no median
_REGULAR = 2  # times the median, which most intervals neither exceed nor fall below
_BURSTS = 0.75  # a topic with more silence than this has bursts of messages
_NOTABLE = 0.02  # share of time without messages that is shown


@dataclass(frozen=True)
class TopicRate:
    """The rate of a topic.

    Attributes:
        period: ns between messages: the median of a regular topic's intervals, else their mean; 0 with fewer
            than two messages.
        silent: share of the time between its first and last message in which it lacks messages; 0 if it has
            no regular intervals.
    """

    period: float
    silent: float = 0.0

    @property
    def hertz(self) -> float:
        """
        Messages per second; 0 if it is unknown.

        >>> TopicRate(1e8).hertz
        10.0
        """
        return 1e9 / self.period if self.period else 0.0

    @property
    def silence_words(self) -> str:
        """
        Describe a notable share of time without messages; "" if there is none.

        >>> TopicRate(1e8, 0.123).silence_words
        '12 % of the time silent'
        """
        return f"{self.silent * 100:.0f} % of the time silent" if self.silent >= _NOTABLE else ""


def rates_of(log: Log) -> dict[str, TopicRate]:
    """Return the rate of each topic of a log.

    Args:
        log: opened; kinds of logs without `sampled_times` have means.
    """
    samples = getattr(log, "sampled_times", None)
    intervals = _intervals(samples()) if samples is not None else {}
    none = np.empty(0, np.int64)
    return {
        name: rate_of(info, log.summary, intervals.get(name, none))
        for name, info in log.summary.topics.items()
    }


def rate_of(info: TopicInfo, summary: LogSummary, intervals: NDArray[np.int64]) -> TopicRate:
    """Return the rate of a topic; silences of all topics don't count.

    Args:
        intervals: (N,) some between its messages, ns.
    """
    lasts, count = info.last - info.first, info.num_recorded - 1
    for last, first in summary.recorded.silences:
        if info.first <= last and first <= info.last and count > 1:
            lasts, count = lasts - (first - last), count - 1
    if count < 1 or lasts <= 0:
        return TopicRate(0)
    if len(intervals) >= MIN_INTERVALS:
        low, median, high = np.quantile(intervals, (0.1, 0.5, 0.85))
        silent = 1 - count * median / lasts
        if median <= _REGULAR * low and high <= _REGULAR * median and silent <= _BURSTS:
            return TopicRate(float(median), max(0.0, float(silent)))
    return TopicRate(lasts / count)


def _intervals(samples: Iterable[Mapping[str, NDArray[np.int64]]]) -> dict[str, NDArray[np.int64]]:
    """Return intervals between neighbouring messages within each sample, by topic."""
    found: dict[str, list[NDArray[np.int64]]] = {}
    for times in samples:
        for topic, own in times.items():
            if len(own) > 1:
                ordered = np.sort(own)
                found.setdefault(topic, []).append(ordered[1:] - ordered[:-1])
    return {topic: np.concatenate(parts) for topic, parts in found.items()}
