"""Logs whose topics and fields have one of several names.

Here: `RenamedLog`, which gives them the first name.
Elsewhere: the names (`Alternatives` of logloom.io.logs.interface), their keys (logloom.recipe), opening logs
(opening).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Values
from logloom.caching import cached_property
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import (
    Alternatives,
    FieldSpec,
    Log,
    LogSummary,
    MessagePlace,
    Messages,
    MessageTime,
    Refusal,
    TopicRequest,
)
from logloom.io.logs.messages.fields import NoFieldError, UntypedError
from logloom.io.logs.recording_times import MessageRun, RecordedTime
from logloom.schema import ColumnType

_WAYS_ON = "give each a column of its own, or leave the log out (`!` in `logs`, or on_error: skip)"


class RenamedLog:
    """See `Log`; topics and fields have the first of their names, in refusals and the summary, too."""

    def __init__(self, log: Log, names: Alternatives):
        self._log, self._names = log, names

    def __reduce__(self) -> tuple[Any, ...]:
        return RenamedLog, (copy.copy(self._log), self._names)

    @cached_property
    def _topics(self) -> dict[str, str]:
        """The log's names of topics that it calls otherwise, by the first name."""
        topics = self._log.summary.topics
        found = {}
        for first, others in self._names.topics.items():
            known = [name for name in (first, *others) if name in topics]
            used = [name for name in known if topics[name].num_messages]
            if len(used) > 1:
                raise LogReadError(
                    f"{self._log.summary.uris[0]}: has messages of {used[0]} and of {used[1]}, which `any` "
                    f"makes one topic; {_WAYS_ON}"
                )
            found[first] = (used or known or [first])[0]
        return {first: name for first, name in found.items() if name != first}

    @cached_property
    def _fields(self) -> dict[str, dict[str, str]]:
        """The log's paths of fields that it calls otherwise, by the first name, by topic."""
        summary, found = self._log.summary, dict[str, dict[str, str]]()
        for topic, fields in self._names.fields.items():
            name = self._topics.get(topic, topic)
            for first, others in fields.items() if name in summary.topics else ():
                known = [path for path in (first, *others) if self._has(name, path)]
                if len(known) > 1:
                    raise LogReadError(
                        f"{summary.uris[0]}: messages of {name} have {known[0]!r} and {known[1]!r}, which "
                        f"`any` makes one field; {_WAYS_ON}"
                    )
                if known and known[0] != first:
                    found.setdefault(topic, {})[first] = known[0]
        return found

    def _has(self, topic: str, path: str) -> bool:
        """Return whether messages have a field by their definition; if that has no types, whether one has."""
        spec = FieldSpec((path,))
        try:
            self._log.column_type(topic, spec)
            return True
        except LogReadError:  # the plan reports what is wrong with all of them
            return False
        except (NoFieldError, UntypedError):
            pass
        except UsageError:  # an adapter may read it
            return True
        with contextlib.suppress(UsageError, LogReadError):
            untyped = replace(spec, dtype="float64")
            self._log.column_type(topic, untyped)
            return len(self._log.last_message(topic, untyped)) > 0
        return False

    @cached_property
    def summary(self) -> LogSummary:
        summary, first_of = self._log.summary, {name: first for first, name in self._topics.items()}
        paths = [(f"{topic} {a}", b) for topic, fields in self._fields.items() for a, b in fields.items()]
        renamed = tuple(sorted((*self._topics.items(), *paths)))
        if not renamed:
            return summary
        topics = {
            first_of.get(name, name): info
            for name, info in summary.topics.items()
            if name not in self._topics  # without messages
        }
        times = summary.known_times
        return replace(
            summary,
            topics=dict(sorted(topics.items())),
            refusals=_with_topics(summary.refusals, first_of),
            known_times=None if times is None else _with_names(times, first_of),
            renamed=renamed,
        )

    @property
    def other_topics(self) -> Mapping[str, tuple[str, ...]]:
        """The other names that topics may have, by the first."""
        return self._names.topics

    @property
    def sidecars(self) -> Any:
        """Sidecars of the original log."""
        return getattr(self._log, "sidecars", None)

    def _spec(self, topic: str, spec: FieldSpec) -> FieldSpec:
        own = self._fields.get(topic)
        return replace(spec, paths=tuple(own.get(path, path) for path in spec.paths)) if own else spec

    def column_type(self, topic: str, spec: FieldSpec) -> ColumnType:
        return self._log.column_type(self._topics.get(topic, topic), self._spec(topic, spec))

    def time_source(self, topic: str, sources: Sequence[MessageTime]) -> MessageTime | None:
        return self._log.time_source(self._topics.get(topic, topic), sources)

    def read(self, requests: Mapping[str, TopicRequest]) -> dict[str, Messages]:
        names = {topic: self._topics.get(topic, topic) for topic in requests}
        found = self._log.read({names[topic]: request for topic, request in requests.items()})
        return {topic: self._renamed(topic, found[name]) for topic, name in names.items() if name in found}

    def places(self, topic: str, positions: NDArray[np.int64]) -> list[MessagePlace]:
        return self._log.places(self._topics.get(topic, topic), positions)

    def last_message(self, topic: str, spec: FieldSpec | None = None) -> Messages:
        wanted = None if spec is None else self._spec(topic, spec)
        return self._renamed(topic, self._log.last_message(self._topics.get(topic, topic), wanted))

    def _renamed(self, topic: str, messages: Messages) -> Messages:
        if messages.topic == topic and topic not in self._fields:
            return messages
        return _RenamedMessages(messages, topic, self)


class _RenamedMessages:
    """See `Messages`; those of a topic of a `RenamedLog`."""

    def __init__(self, messages: Messages, topic: str, log: RenamedLog):
        self._messages, self._log, self.topic = messages, log, topic
        self.time, self.log_time, self.position = messages.time, messages.log_time, messages.position
        self.refused: Sequence[Refusal] = _with_topics(messages.refused, {messages.topic: topic})

    def __len__(self) -> int:
        return len(self._messages)

    def take(self, spec: FieldSpec, rows: NDArray[np.intp]) -> Values:
        return self._messages.take(self._log._spec(self.topic, spec), rows)

    def has_value(self, spec: FieldSpec) -> NDArray[np.bool_] | None:
        return self._messages.has_value(self._log._spec(self.topic, spec))


def _with_topics(refusals: Iterable[Refusal], first_of: Mapping[str, str]) -> tuple[Refusal, ...]:
    return tuple(replace(one, topic=first_of.get(one.topic, one.topic)) for one in refusals)


def _with_names(times: RecordedTime, first_of: Mapping[str, str]) -> RecordedTime:
    """Return when a log was recorded, with other names of topics."""

    def of_run(run: MessageRun) -> MessageRun:
        named = {first_of.get(name, name): count for name, count in run.messages.items()}
        return replace(run, messages=dict(sorted(named.items())))

    return replace(
        times,
        runs=tuple(map(of_run, times.runs)),
        strays=tuple(stray._replace(run=of_run(stray.run)) for stray in times.strays),
        set_backs=tuple(
            replace(one, topics=tuple(first_of.get(name, name) for name in one.topics))
            for one in times.set_backs
        ),
        around=tuple(map(of_run, times.around)),
    )
