"""The topics of a recipe over all logs.

Here: `Alike`, logs with equal definitions; `TopicsOfLogs`, which finds the logs and definitions of a topic.
Elsewhere: their use in a row plan (resolve), cached logs
(logloom.io.logs.log_cache).
Logs with equal definitions are examined once, so that thousands of one fleet cost as much as a few.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from logloom.errors import UsageError
from logloom.io.logs.interface import Log, MessageTime, TimeSource
from logloom.io.logs.log_cache import TopicKind, topic_kinds
from logloom.recipe import Recipe, TopicColumn, TransformColumn
from logloom.text import near_to
from logloom.values import dataclass

MAX_NAMED = 5  # logs in one note


@dataclass(frozen=True)
class Alike:
    """Logs known to define the topics of a recipe in the same way.

    Attributes:
        topics: that they have.
        log_ids: ascending; an Arrow array if there are many.
    """

    topics: Mapping[str, TopicKind]
    log_ids: Sequence[Any]

    def first(self, count: int) -> list[str]:
        return list(map(str, self.log_ids[:count]))


@dataclass(frozen=True)
class ResolvedTopic:
    """A topic over all logs.

    Attributes:
        variants: the first log with each definition of it.
        some: the first logs with a message of it; a few of each variant.
        counts: number of logs with a message of it and a variant's definition, by the variant's first log.
        absent: some of the logs that lack it, or have no message of it.
        num_absent: the number of these.
    """

    variants: Mapping[str, TopicKind]
    some: tuple[str, ...]
    counts: Mapping[str, int]
    absent: tuple[str, ...]
    num_absent: int
    _of_variants: Mapping[str, tuple[str, ...]]

    @property
    def first(self) -> str:
        """The first log with a message of it; "" if there is none."""
        return self.some[0] if self.some else ""

    def only(self, variants: Collection[str]) -> ResolvedTopic:
        """Select some of its variants."""
        some = sorted(itertools.chain.from_iterable(self._of_variants[log_id] for log_id in variants))
        return replace(self, variants={log: self.variants[log] for log in variants}, some=tuple(some))

    @property
    def absent_words(self) -> str:
        """`3 logs (a, b, c) have`"""
        named = ", ".join(self.absent[:MAX_NAMED]) + (", …" if self.num_absent > MAX_NAMED else "")
        return f"1 log ({named}) has" if self.num_absent == 1 else f"{self.num_absent} logs ({named}) have"


def named_topics(recipe: Recipe) -> set[str]:
    """Return the topics of a recipe."""
    of_topics = [column for column in recipe.columns.values() if isinstance(column, TopicColumn)]
    columns = (column.topic for column in of_topics)
    moved = (column.deskew.pair(column.topic) for column in of_topics if column.deskew is not None)
    clock = [recipe.clock.topic] if recipe.clock.topic else recipe.clock.sync
    looked_up = (column.tf for column in recipe.columns.values() if isinstance(column, TransformColumn))
    transforms = (
        topic for tf in (*looked_up, *moved) for topic in (*tf.topics, *tf.static, *tf.named_by.values())
    )
    return {*columns, *clock, *recipe.time.topics, *transforms}


def _first_of(groups: Sequence[Alike]) -> tuple[str, ...]:
    """Return a few of the first logs by name of some groups."""
    some = heapq.merge(*(logs.first(MAX_NAMED) for logs in groups))
    return tuple(itertools.islice(some, MAX_NAMED))


class TopicsOfLogs:
    """Topics in logs; examines each topic once."""

    def __init__(self, recipe: Recipe, logs: Mapping[str, Log], alike: Sequence[Alike]):
        """
        Args:
            logs: opened, by log_id.
            alike: groups of other logs; `logs` has the first log with each definition of a topic.
        """
        named, self._others = named_topics(recipe), recipe.alternatives.topics
        opened = [Alike(topic_kinds(logs[log_id].summary, named), [log_id]) for log_id in sorted(logs)]
        self._logs = logs
        self._alike = sorted([*alike, *opened], key=lambda logs: logs.first(1))
        self._found: dict[str, ResolvedTopic] = {}
        self.num_logs = sum(len(logs.log_ids) for logs in self._alike)

    def of(self, topic: str) -> ResolvedTopic:
        if topic not in self._found:
            variants: dict[tuple[str, ...], tuple[str, TopicKind]] = {}
            having: dict[str, list[Alike]] = {}
            absent: list[Alike] = []
            for logs in self._alike:
                kind = logs.topics.get(topic)
                if kind is not None:
                    log_id, _ = variants.setdefault(kind[:4], (logs.first(1)[0], kind))
                    having.setdefault(log_id, []).extend([logs] if kind.has_messages else [])
                if kind is None or not kind.has_messages:
                    absent.append(logs)
            named = {log_id: _first_of(known) for log_id, known in having.items()}
            self._found[topic] = ResolvedTopic(
                dict(variants.values()),
                tuple(sorted(itertools.chain.from_iterable(named.values()))),
                {log_id: sum(len(logs.log_ids) for logs in known) for log_id, known in having.items()},
                _first_of(absent),
                sum(len(logs.log_ids) for logs in absent),
                named,
            )
        return self._found[topic]

    def unknown(self, topic: str) -> str:
        """Explain that no log has a topic, with the nearest that they have; "" if one has it."""
        if self.of(topic).variants:
            return ""
        known = {name for log in self._logs.values() for name in log.summary.topics}
        known |= {name for logs in self._alike for name in logs.topics}
        whose = "the log has no" if self.num_logs == 1 else f"none of the {self.num_logs} logs has"
        names = " or ".join(map(repr, (topic, *self._others.get(topic, ()))))
        return f"{whose} topic {names}{near_to(topic, sorted(known))}"

    def unstamped(self, topic: str, sources: Sequence[MessageTime]) -> Iterator[str]:
        """Explain that a topic's messages have none of these stamps in some logs, and which they have."""
        for log_id, info in self.of(topic).variants.items():
            log = self._logs[log_id]
            try:
                if log.time_source(topic, sources) is not None:
                    continue
            except UsageError as error:  # of a field
                yield str(error)
                continue
            names = list(map(str, sources))
            known: tuple[TimeSource, ...] = get_args(TimeSource)
            has = [source for source in known if log.time_source(topic, (source,)) is not None]
            yield (
                f"messages of {topic} ({info.type}, log {log_id}) have no {' or '.join(names)} stamp; "
                f"write topics: {{{topic}: {has[0] if has else 'log'}}}"
            )
