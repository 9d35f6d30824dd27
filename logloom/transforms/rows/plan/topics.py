"""The topics that a recipe names, over all logs.

Here: `Alike`, logs that define them alike; `TopicsOfLogs`, which says of a topic which logs have it, and how.
Elsewhere: what becomes of it in a row plan (resolve), what is known of a log without opening it
(logloom.io.logs.known_logs).
Logs that define a topic alike are looked at once, so that thousands of one fleet cost as much as a few.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from logloom.io.logs.interface import Log, TimeSource
from logloom.io.logs.known_logs import TopicKind, topic_kinds
from logloom.recipe import Recipe, TopicColumn, TransformColumn
from logloom.text import near_to

MAX_NAMED = 5  # logs in one note


@dataclass(frozen=True)
class Alike:
    """Logs of which is known that they define alike what a recipe names.

    Attributes:
        topics: that they have.
        log_ids: ascending; an Arrow array, where they are many.
    """

    topics: Mapping[str, TopicKind]
    log_ids: Sequence[Any]

    def first(self, count: int) -> list[str]:
        return list(map(str, self.log_ids[:count]))


@dataclass(frozen=True)
class ResolvedTopic:
    """A topic over all logs.

    Attributes:
        variants: for each way in which logs define it, the first log that does so.
        some: the first logs with a message of it; a few of each variant.
        counts: how many logs with a message of it define it as in a variant, by that one's first log.
        absent: the first of the logs that lack it, or have it without a message; a few.
        num_absent: how many there are.
    """

    variants: Mapping[str, TopicKind]
    some: tuple[str, ...]
    counts: Mapping[str, int]
    absent: tuple[str, ...]
    num_absent: int
    _of_variants: Mapping[str, tuple[str, ...]]

    @property
    def first(self) -> str:
        """The first log with a message of it; "" where there is none."""
        return self.some[0] if self.some else ""

    def only(self, variants: Collection[str]) -> ResolvedTopic:
        """The topic as some of its variants define it."""
        some = sorted(itertools.chain.from_iterable(self._of_variants[log_id] for log_id in variants))
        return replace(self, variants={log: self.variants[log] for log in variants}, some=tuple(some))

    @property
    def absent_words(self) -> str:
        """`3 logs (a, b, c) have`"""
        named = ", ".join(self.absent[:MAX_NAMED]) + (", …" if self.num_absent > MAX_NAMED else "")
        return f"1 log ({named}) has" if self.num_absent == 1 else f"{self.num_absent} logs ({named}) have"


def named_topics(recipe: Recipe) -> set[str]:
    """The topics that a recipe names: all that it asks logs for."""
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
    """The first logs by name of some groups; a few."""
    some = heapq.merge(*(logs.first(MAX_NAMED) for logs in groups))
    return tuple(itertools.islice(some, MAX_NAMED))


class TopicsOfLogs:
    """What logs say of topics; looks at each topic once."""

    def __init__(self, recipe: Recipe, logs: Mapping[str, Log], alike: Sequence[Alike]):
        """
        Args:
            logs: opened, by log_id.
            alike: logs beside these; `logs` has the first that defines a topic in its way.
        """
        named = named_topics(recipe)
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
        """That no log has a topic, and the nearest that they have; "" where one has it."""
        if self.of(topic).variants:
            return ""
        known = {name for log in self._logs.values() for name in log.summary.topics}
        known |= {name for logs in self._alike for name in logs.topics}
        whose = "the log has no" if self.num_logs == 1 else f"none of the {self.num_logs} logs has"
        return f"{whose} topic {topic!r}{near_to(topic, sorted(known))}"

    def unstamped(self, topic: str, sources: Sequence[TimeSource]) -> Iterator[str]:
        """In which logs a topic's messages have none of these stamps, and which they have."""
        for log_id, info in self.of(topic).variants.items():
            log = self._logs[log_id]
            if log.time_source(topic, sources) is not None:
                continue
            known: tuple[TimeSource, ...] = get_args(TimeSource)
            has = [source for source in known if log.time_source(topic, (source,)) is not None]
            yield (
                f"messages of {topic} ({info.type}, log {log_id}) have no {' or '.join(sources)} stamp; "
                f"write topics: {{{topic}: {has[0] if has else 'log'}}}"
            )
