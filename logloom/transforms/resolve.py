"""A recipe meets its logs: topics and fields are looked up, types follow, all that is wrong is said at once.

Here: `resolve`, which makes the row plan.
Elsewhere: finding and naming logs (match, whose names stand here, too), what one key of a recipe may hold
(logloom.recipe), making rows (rows).
Only indices and message definitions are looked at. Logs that define a topic alike are looked at once, so that
thousands of logs of one fleet cost as much as a few.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from logloom import where
from logloom.errors import LogloomError, UsageError
from logloom.io.logs.base import FieldSpec, Log, TimeSource
from logloom.io.logs.decoding.clouds import settled
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.match import group_logs
from logloom.io.logs.remembered import TopicKind, topic_kinds
from logloom.io.units import format_named
from logloom.recipe import DerivedColumn, Recipe, TopicColumn
from logloom.recipe.logs import expand_logs, split_of
from logloom.recipe.mistakes import Mistake, nearest
from logloom.resample.policies import POLICIES
from logloom.schema import BYTES, STRING, TIMESTAMP, ColumnType, Schema
from logloom.transforms import derive
from logloom.transforms.columns import (
    ColumnPlan,
    DerivedPlan,
    RateClock,
    RowPlan,
    Sampling,
    TopicClock,
    row_type,
)
from logloom.validation import Path

__all__ = ["LogFiles", "expand_logs", "group_logs", "resolve", "split_of"]

MAX_NAMED = 5  # logs in one note
_VIDEO = re.compile(r"CompressedVideo|FFMPEGPacket|H26[45]|ffmpeg_image|theora", re.IGNORECASE)
_ROTATION = "rotation_matrix"


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
class _ResolvedTopic:
    """A topic over all logs.

    Attributes:
        variants: for each way in which logs define it, the first log that does so.
        first: log with a message of it; "" where there is none.
        absent: the first of the logs that lack it, or have it without a message; a few.
        num_absent: how many there are.
    """

    variants: Mapping[str, TopicKind]
    first: str
    absent: tuple[str, ...]
    num_absent: int

    @property
    def absent_words(self) -> str:
        """`3 logs (a, b, c) have`"""
        named = ", ".join(self.absent[:MAX_NAMED]) + (", …" if self.num_absent > MAX_NAMED else "")
        return f"1 log ({named}) has" if self.num_absent == 1 else f"{self.num_absent} logs ({named}) have"


def named_topics(recipe: Recipe) -> set[str]:
    """The topics that a recipe names: all that it asks logs for."""
    columns = (column.topic for column in recipe.columns.values() if isinstance(column, TopicColumn))
    clock = [recipe.clock.topic] if recipe.clock.topic else []
    return {*columns, *clock, *recipe.time.topics}


def resolve(
    recipe: Recipe,
    logs: Mapping[str, Log],
    allow_derive: Sequence[str] = (),
    alike: Sequence[Alike] = (),
) -> tuple[RowPlan, tuple[str, ...]]:
    """What workers need to make the rows of these logs, and notes for people: topics that some logs lack.

    Args:
        logs: by log_id.
        allow_derive: modules and packages that columns may be derived by.
        alike: logs beside these of which it is known what topics they have; `logs` has them by their log_ids,
            too. Only the first that defines a topic in its way is asked for.

    Raises:
        RecipeError: topics that no log has, fields that no message has, policies, time sources and outputs
            that don't fit, logs that disagree about a field: all of them, each with its line and the way out.
        UsageError: no logs.
    """
    if not (logs or alike):
        raise UsageError("a recipe can't be resolved without logs")
    return _Resolving(recipe, logs, allow_derive, alike).plan()


def hold_to(plan: RowPlan, recipe: Recipe, log_id: str, log: Log) -> None:
    """Holds a log to the plan of a recipe that other logs made.

    Raises:
        RecipeError: what it defines doesn't fit; says all of it.
    """
    _Resolving(recipe, {log_id: log}, (), ()).hold_to(plan)


class _Resolving:
    """One recipe on its way to a plan; collects mistakes."""

    def __init__(
        self,
        recipe: Recipe,
        logs: Mapping[str, Log],
        allow_derive: Sequence[str],
        alike: Sequence[Alike],
    ):
        self._allow_derive = allow_derive
        self._recipe = recipe
        self._logs = logs
        self._opened = sorted(logs)
        named = named_topics(recipe)
        opened = [Alike(topic_kinds(logs[log_id].summary, named), [log_id]) for log_id in self._opened]
        self._alike = sorted([*alike, *opened], key=lambda logs: logs.first(1))
        self._count = sum(len(logs.log_ids) for logs in self._alike)
        self._topics: dict[str, _ResolvedTopic] = {}
        self._mistakes: list[Mistake] = []
        self._notes: list[str] = []
        self._lacking: dict[str, list[str]] = {}  # which logs lack what, and the columns that want it
        clock = recipe.clock
        self._clock = RateClock(clock.rate) if clock.rate is not None else None

    def plan(self) -> tuple[RowPlan, tuple[str, ...]]:
        recipe = self._recipe
        clock = self._clock or self._topic_clock(recipe.clock.topic or "")
        columns: dict[str, ColumnPlan] = {}
        derived: dict[str, DerivedPlan] = {}
        for name, column in recipe.columns.items():
            try:
                if isinstance(column, DerivedColumn):
                    derived[name] = _derived_plan(name, column, self._allow_derive)
                else:
                    columns[name] = self._column_plan(name, column)
            except _MistakenError as wrong:
                self._mistakes += wrong.mistakes
            except UsageError as error:
                self._mistakes.append(Mistake(("columns", name), str(error)))
        for topic in recipe.time.topics:
            self._check_known(topic, ("time", "topics", topic))
        plan = RowPlan(
            clock=clock,
            columns=tuple(columns.values()),
            derived=tuple(derived.values()),
            order=tuple(name for name in recipe.columns if name in columns or name in derived),
            require=recipe.rows.require,
            where=recipe.rows.where,
            rows=recipe.partition.rows,
            bytes=recipe.partition.bytes,
        )
        self._mistakes += self._filter_mistakes(plan.schema)
        self._mistakes += self._output_mistakes(plan.schema)
        if self._mistakes:
            raise recipe.places.error(self._mistakes)
        lacking = [f"{words}; unavailable there: {', '.join(c)}" for words, c in self._lacking.items()]
        return plan, (*self._notes, *lacking)

    def hold_to(self, plan: RowPlan) -> None:
        (log_id,) = self._logs
        for column in plan.columns:
            wanted = self._recipe.columns[column.name]
            assert isinstance(wanted, TopicColumn)
            topic, path = self._topic(column.topic), ("columns", column.name)
            try:
                self._check_there(path, wanted, topic)
                if not topic.variants:
                    continue
                if POLICIES[wanted.resample].uses != "topic":
                    self._sources(column.topic)
                found = self._message_type(path, wanted, column.spec, topic)
            except _MistakenError as wrong:
                self._mistakes += wrong.mistakes
                continue
            if found != column.message_type:
                said = f"{column.message_type} in those that the plan was made of but {found} in log {log_id}"
                self._mistakes.append(
                    Mistake((*path, _key_of(wanted)), f"logs disagree about its type: {said}")
                )
        if isinstance(plan.clock, TopicClock) and self._topic(plan.clock.topic).variants:
            self._sources(plan.clock.topic)
        if self._mistakes:
            raise self._recipe.places.error(self._mistakes)

    # --- topics -----------------------------------------------------------------------------------------

    def _topic(self, topic: str) -> _ResolvedTopic:
        if topic not in self._topics:
            variants: dict[tuple[str, ...], tuple[str, TopicKind]] = {}
            absent: list[Alike] = []
            first = ""
            for logs in self._alike:
                kind = logs.topics.get(topic)
                if kind is not None:
                    variants.setdefault(kind[:4], (logs.first(1)[0], kind))
                if kind is None or not kind.has_messages:
                    absent.append(logs)
                else:
                    first = first or logs.first(1)[0]
            some = heapq.merge(*(logs.first(MAX_NAMED) for logs in absent))
            self._topics[topic] = _ResolvedTopic(
                dict(variants.values()),
                first,
                tuple(itertools.islice(some, MAX_NAMED)),
                sum(len(logs.log_ids) for logs in absent),
            )
        return self._topics[topic]

    def _check_known(self, topic: str, path: Path) -> bool:
        if self._topic(topic).variants:
            return True
        known = {name for log_id in self._opened for name in self._logs[log_id].summary.topics}
        known |= {name for logs in self._alike for name in logs.topics}
        whose = "the log has" if self._count == 1 else f"none of the {self._count} logs has"
        no = " no" if self._count == 1 else ""
        self._mistakes.append(Mistake(path, f"{whose}{no} topic {topic!r}{nearest(topic, sorted(known))}"))
        return False

    def _sources(self, topic: str) -> tuple[TimeSource, ...]:
        """The ways to stamp a topic's messages; a mistake where messages have none of them."""
        sources = self._recipe.time.sources(topic)
        for log_id, info in self._topic(topic).variants.items():
            log = self._logs[log_id]
            if log.time_source(topic, sources) is not None:
                continue
            known: tuple[TimeSource, ...] = get_args(TimeSource)
            has = [source for source in known if log.time_source(topic, (source,)) is not None]
            problem = (
                f"messages of {topic} ({info.type}, log {log_id}) have no {' or '.join(sources)} stamp; "
                f"write topics: {{{topic}: {has[0] if has else 'log'}}}"
            )
            named = topic in self._recipe.time.topics
            self._mistakes.append(Mistake(("time", "topics", topic) if named else ("time", "by"), problem))
        return sources

    def _topic_clock(self, topic: str) -> TopicClock:
        if self._check_known(topic, ("clock", "topic")):
            found = self._topic(topic)
            if found.absent:
                self._notes.append(f"clock: {found.absent_words} no message of {topic}, and so no rows")
        return TopicClock(topic, self._sources(topic), self._recipe.time.max_delay)

    # --- columns ----------------------------------------------------------------------------------------

    def _column_plan(self, name: str, column: TopicColumn) -> ColumnPlan:
        path: Path = ("columns", name)
        if not self._check_known(column.topic, (*path, "topic")):
            raise _MistakenError
        topic = self._topic(column.topic)
        sampling = self._sampling(column)
        spec = self._settled(path, column, self._spec(column, topic), topic)
        message_type = self._message_type(path, column, spec, topic)
        ctype = _row_type(path, column, message_type)
        is_static = POLICIES[column.resample].uses == "topic"  # outside all time
        time = self._recipe.time.sources(column.topic) if is_static else self._sources(column.topic)
        self._check_there(path, column, topic)
        if topic.absent:
            words = f"{topic.absent_words} no message of {column.topic}"
            self._lacking.setdefault(words, []).append(name)
        return ColumnPlan(
            name=name,
            topic=column.topic,
            spec=spec,
            sampling=sampling,
            message_type=message_type,
            ctype=ctype,
            time=time,
            max_delay=self._recipe.time.max_delay,
            required=column.missing == "fail",
        )

    def _check_there(self, path: Path, column: TopicColumn, topic: _ResolvedTopic) -> None:
        """A mistake where logs lack a topic that no log may lack."""
        if topic.absent and column.missing == "fail":
            words = f"{topic.absent_words} no message of {column.topic}, and this column says missing: fail"
            raise _MistakenError(Mistake((*path, "missing"), words))

    def _sampling(self, column: TopicColumn) -> Sampling:
        # Without a period both stand in the column itself; the recipe's own checks see to that.
        period = int(10**9 / self._clock.rate) if self._clock else 0
        rules = POLICIES[column.resample]
        tolerance = column.tolerance if column.tolerance is not None else period
        return Sampling(
            column.resample,
            tolerance if rules.tolerates else 0,
            (column.window or (-period, 0)) if rules.uses == "window" else (0, 0),
            column.offset,
        )

    def _spec(self, column: TopicColumn, topic: _ResolvedTopic) -> FieldSpec:
        untyped = any(info.encoding == "json" for info in topic.variants.values())
        return FieldSpec(
            paths=column.field,
            adapter=column.adapter,
            strings=column.strings,
            shape=column.shape,
            resize=column.resize,
            encode=column.encode,
            dtype=column.dtype if untyped or column.adapter == "image" else None,
        )

    def _settled(self, path: Path, column: TopicColumn, spec: FieldSpec, topic: _ResolvedTopic) -> FieldSpec:
        """The spec with what only a message tells; one of the first log that has any stands for all."""
        if not topic.first:
            return spec
        try:
            return settled(self._logs[topic.first], column.topic, spec)
        except LogloomError as error:
            raise _MistakenError(Mistake((*path, "as"), f"{error} (log {topic.first})")) from error

    def _message_type(
        self, path: Path, column: TopicColumn, spec: FieldSpec, topic: _ResolvedTopic
    ) -> ColumnType:
        """The type of a message's value; a mistake where a definition lacks the field, or logs disagree."""
        key = _key_of(column)
        types: dict[ColumnType, str] = {}
        mistakes = []
        for log_id, info in topic.variants.items():
            try:
                types.setdefault(self._logs[log_id].column_type(column.topic, spec), log_id)
            except LogloomError as error:
                whose = f" (log {log_id})" if self._count > 1 else ""
                mistakes.append(Mistake((*path, key), f"{error}{whose}"))
                continue
            if _VIDEO.search(info.type) and (column.adapter or "data" in "".join(column.field)):
                why = (
                    f"{column.topic} is compressed video ({info.type}): a single message of it is no image; "
                    "record or transcode it as images (JPEG), or leave the column out"
                )
                mistakes.append(Mistake((*path, "topic"), why))
        if len(types) > 1:
            said = " but ".join(f"{kind} in log {log_id}" for kind, log_id in types.items())
            mistakes.append(Mistake((*path, key), f"logs disagree about its type: {said}"))
        if mistakes:
            raise _MistakenError(*mistakes)
        found = next(iter(types))
        return replace(found, unit=column.unit, description=column.description)

    # --- what looks at all columns ----------------------------------------------------------------------

    def _filter_mistakes(self, schema: Schema) -> Iterator[Mistake]:
        rows = self._recipe.rows
        if not rows.where:
            return
        parsed = where.parse(rows.where)
        known = {**schema.all, "timestamp": TIMESTAMP}
        if any(name not in known for name in parsed.columns):
            return  # of a column that has a mistake of its own
        try:
            parsed.check(known)
        except UsageError as error:
            yield Mistake(("rows", "where"), str(error).removeprefix("where, "))

    def _output_mistakes(self, schema: Schema) -> Iterator[Mistake]:
        """What outputs say of the columns; while some are missing, only what they say of the others."""
        missing = [name for name in self._recipe.columns if name not in schema.columns]
        for output, options in self._recipe.outputs.items():
            for line in format_named(output).check(options, schema):
                said_of = set(re.findall(r"[a-z_][a-z0-9_.]*", line))
                if not missing or (said_of & set(schema.columns) and not said_of & set(missing)):
                    yield Mistake(("outputs", output), line)


def _key_of(column: TopicColumn) -> str:
    """The key that says which value of a message a column is."""
    return "as" if column.adapter and not column.field else "field"


class _MistakenError(Exception):
    """A column can't be planned; what is wrong with it, where that isn't listed yet."""

    def __init__(self, *mistakes: Mistake):
        super().__init__(*mistakes)
        self.mistakes = mistakes


def _row_type(path: Path, column: TopicColumn, message: ColumnType) -> ColumnType:
    # An image's dtype is what it is read as; there is nothing left to cast.
    dtype = None if column.adapter == "image" else column.dtype
    try:
        ctype = row_type(message, column.resample, dtype)
    except ValueError as error:
        key = "dtype" if str(error).startswith("dtype") else "resample"
        raise _MistakenError(Mistake((*path, key), str(error))) from error
    if column.adapter == _ROTATION and message.tail == (4,):
        return replace(ctype, shape=(*ctype.shape[:-1], 3, 3))
    return ctype


def _derived_plan(name: str, column: DerivedColumn, allowed: Sequence[str]) -> DerivedPlan:
    kinds = {"string": STRING, "bytes": BYTES}
    ctype = kinds.get(column.dtype) or ColumnType(np.dtype(column.dtype), column.shape)
    ctype = replace(ctype, unit=column.unit, description=column.description)
    try:
        derive.check_allowed(column.derive, allowed)
        digest = derive.source_digest(column.derive)
    except UsageError as error:
        raise _MistakenError(Mistake(("columns", name, "derive"), str(error))) from error
    return DerivedPlan(name, column.derive, digest, column.from_, ctype)
