"""A log held in arrays: what the `Log` protocol promises, without files."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from logloom.blocks import Values, take
from logloom.errors import LogReadError
from logloom.io.logs.interface import (
    MAX_TIME,
    FieldSpec,
    LogSummary,
    Refusal,
    TimeSource,
    TopicInfo,
    TopicRequest,
)
from logloom.io.logs.recording_times import Bound, MessageTimes, RecordedTime, recorded
from logloom.schema import ColumnType

LOST = "its stamp is zero"
BROKEN = "it doesn't decode"


@dataclass
class MemoryTopic:
    """Messages in log order.

    Attributes:
        stamps, log_times, positions: (N,); a stamp of 0 is refused.
        fields: path to (type, N values).
    """

    stamps: np.ndarray
    log_times: np.ndarray
    positions: np.ndarray
    fields: Mapping[str, tuple[ColumnType, Values]]
    without: Mapping[str, np.ndarray] = field(default_factory=dict)  # by field, messages that lack it
    broken: np.ndarray | None = None  # messages that don't decode


@dataclass
class MemoryMessages:
    source: MemoryTopic
    topic: str
    rows: np.ndarray
    refused: Sequence[Refusal]
    taken: int = 0

    def __post_init__(self):
        self.time = self.source.stamps[self.rows]
        self.log_time = self.source.log_times[self.rows]
        self.position = self.source.positions[self.rows]

    def __len__(self):
        return len(self.rows)

    def take(self, spec: FieldSpec, rows: np.ndarray) -> Values:
        assert len(rows) == 0 or (np.diff(rows) > 0).all()
        if self.source.broken is not None and self.source.broken[self.rows[rows]].any():
            raise LogReadError(BROKEN)
        return take(self.source.fields[spec.paths[0]][1], self.rows[rows])

    def has_value(self, spec: FieldSpec) -> np.ndarray | None:
        without = self.source.without.get(spec.paths[0]) if spec.paths else None
        return None if without is None else ~without[self.rows]


@dataclass
class MemoryLog:
    """Reads as a log under `on_error: salvage`, or "fail"."""

    topics: dict[str, MemoryTopic]
    chunk: int = 3  # messages of a chunk in the index
    on_error: str = "salvage"
    uri: str = "memory.mcap"
    refusals: tuple[Refusal, ...] = ()
    requests: list[Mapping[str, TopicRequest]] = field(default_factory=list)
    extent: tuple[Bound | None, Bound | None] = (None, None)
    _made: tuple[Sequence[object], LogSummary] | None = None

    @cached_property
    def recorded(self) -> RecordedTime:
        times = {name: topic.log_times for name, topic in self.topics.items()}
        return recorded(MessageTimes.of(times)).within(*self.extent)

    @property
    def summary(self) -> LogSummary:
        """Made again where topics or their arrays were replaced."""
        now = [part for n, t in self.topics.items() for part in (n, t.stamps, t.log_times, t.positions)]
        before, summary = self._made or ((), None)
        if summary is None or len(now) != len(before) or any(map(operator.is_not, now, before)):
            summary = self._summary()
            self._made = now, summary
        return summary

    def _summary(self) -> LogSummary:
        none, facts = np.empty(0, np.int64), self.recorded
        kept = {name: t.log_times[~facts.are_strays(t.log_times)] for name, t in self.topics.items()}
        times = np.concatenate([none, *(t.log_times for t in self.topics.values())])
        positions = np.concatenate([none, *(t.positions for t in self.topics.values())])
        times = times[np.argsort(positions)]
        chunks = [times[i : i + self.chunk] for i in range(0, len(times), self.chunk)]
        # As logs have it: a chunk that holds several runs stands for each of them.
        chunks = [
            inside
            for chunk in chunks
            for run in facts.read
            if len(inside := chunk[(chunk >= run.first) & (chunk <= run.last)])
        ]
        return LogSummary(
            uris=(self.uri,),
            size=100 * len(times),
            content_id="",
            topics={
                name: TopicInfo(
                    name,
                    "",
                    "cdr",
                    "ros2msg",
                    b"",
                    len(t.stamps),
                    int(kept[name].min(initial=MAX_TIME)) if len(kept[name]) else 0,
                    int(kept[name].max(initial=0)),
                    num_strays=facts.num_strays(name),
                )
                for name, t in sorted(self.topics.items())
            },
            first=facts.first,
            last=facts.last,
            chunk_times=np.array([[c.min(), c.max()] for c in chunks], np.int64).reshape(-1, 2),
            chunk_bytes=np.array([100 * len(c) for c in chunks], np.int64),
            refusals=self.refusals,
            known_times=facts,
        )

    def column_type(self, topic: str, spec: FieldSpec) -> ColumnType:
        return self.topics[topic].fields[spec.paths[0]][0]

    def time_source(self, topic: str, sources: Sequence[TimeSource]) -> TimeSource | None:
        return sources[0]

    def read(self, requests: Mapping[str, TopicRequest]) -> dict[str, MemoryMessages]:
        self.requests.append(requests)
        return {name: self._read(name, r) for name, r in requests.items() if name in self.topics}

    def _read(self, name: str, request: TopicRequest) -> MemoryMessages:
        topic = self.topics[name]
        delay = np.abs(topic.stamps - topic.log_times)
        usable = topic.stamps != 0
        if request.max_delay is not None:
            usable &= delay <= request.max_delay
        mine = ~self.recorded.are_strays(topic.log_times)
        usable, refusable = usable & mine, ~usable & mine
        refused = []
        for i in np.flatnonzero(refusable & _within(topic.log_times, request)).tolist():
            if self.on_error == "fail":
                raise LogReadError(f"{self.uri}: {LOST}")
            refused.append(Refusal(self.uri, i, name, int(topic.positions[i]), int(topic.log_times[i]), LOST))
        rows = np.flatnonzero(usable & _within(topic.stamps, request))
        return MemoryMessages(topic, name, rows, refused)

    def last_message(self, topic: str, spec: FieldSpec | None = None) -> MemoryMessages:
        found = self.topics[topic]
        messages = MemoryMessages(found, topic, np.arange(len(found.stamps)), ())
        has_value = None if spec is None else messages.has_value(spec)
        return replace(messages, rows=(messages.rows if has_value is None else messages.rows[has_value])[-1:])


def _within(times, request):
    return (times >= request.start) & ((times < request.stop) | (request.stop == MAX_TIME))
