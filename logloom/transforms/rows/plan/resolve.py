"""Resolve topics, fields and types of a recipe for its logs; collect mistakes.

Here: `resolve`, which makes the row plan, and `hold_to`, which checks another log against it.
Elsewhere: topics over all logs (topics), types of columns (types), values of single keys of a recipe
(logloom.recipe), making rows (logloom.transforms.rows.row_stream). Only indices and message definitions are
used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from logloom.errors import OF_CONTENT, LogReadError, UsageError
from logloom.io.formats.registry import format_named
from logloom.io.logs.interface import FieldSpec, Log, MessageTime
from logloom.recipe import DerivedColumn, LabelColumn, Recipe, TopicColumn, TransformColumn
from logloom.recipe.columns import Deskew, FramePair, struct_dtype
from logloom.recipe.mistakes import Mistake
from logloom.recipe.sections import TopicTime
from logloom.resample.policies import POLICIES
from logloom.row_splits import COLUMN, position_problem, value_problem
from logloom.schema import BYTES, STRING, TIMESTAMP, ColumnType, Schema, root_of
from logloom.transforms.rows.derive import columns as derive
from logloom.transforms.rows.frames import is_transform_topic
from logloom.transforms.rows.notices import Notice, notes_of
from logloom.transforms.rows.plan.frames import frame_mistakes, pose_plan, topic_mistakes, transform_plan
from logloom.transforms.rows.plan.remedies import disagreement, remedy_of, shape_line, ways_to_hold
from logloom.transforms.rows.plan.row_plan import (
    ColumnPlan,
    DerivedPlan,
    LabelPlan,
    RateClock,
    RowPlan,
    Sampling,
    SyncClock,
    TopicClock,
    TransformPlan,
    clock_topics,
)
from logloom.transforms.rows.plan.topics import MAX_NAMED, Alike, ResolvedTopic, TopicsOfLogs
from logloom.transforms.rows.plan.types import (
    OF_VIDEO,
    MistakenError,
    casts,
    check_nan,
    check_video,
    key_of,
    message_type,
    row_type_of,
    settled_spec,
    spec_of,
)
from logloom.transforms.rows.plan.unfit_columns import unfit_columns
from logloom.validation import Path


def resolve(
    recipe: Recipe,
    logs: Mapping[str, Log],
    allow_derive: Sequence[str] = (),
    alike: Sequence[Alike] = (),
    labels: Mapping[str, ColumnType] | None = None,
    known: Schema | None = None,
) -> tuple[RowPlan, tuple[Notice, ...]]:
    """Make the row plan for these logs, and notes for people: topics that some logs lack.

    Args:
        logs: by log_id.
        allow_derive: modules and packages with functions of derived columns.
        alike: groups of logs whose topics are known; `logs` can open them by log_id. Only the first log with
            each definition of a topic is opened.
        labels: types of rows of label columns, from tables, or from versions made of them.
        known: columns of the previous version. If logs disagree about a field, and the recipe allows that
            (`on_error`), the plan follows the logs whose rows have these types; else most logs; else the
            first by name.

    Raises:
        RecipeError: topics that no log has, fields that no message has, policies, time sources and outputs
            that don't fit, logs that disagree about a field: all of them, each with its line and a remedy.
        UsageError: no logs.
    """
    if not (logs or alike):
        raise UsageError("a recipe can't be resolved without logs")
    return _Resolving(recipe, logs, allow_derive, alike, labels or {}, known).plan()


def hold_to(plan: RowPlan, recipe: Recipe, log_id: str, log: Log) -> None:
    """Check a log against the plan of a recipe that other logs made.

    Raises:
        RecipeError: its definitions don't fit; lists all mistakes.
        LogReadError: the same if `on_error` leaves such logs out. With salvage, columns that don't fit are
            accepted.
    """
    _Resolving(recipe, {log_id: log}, (), (), {}).hold_to(plan)


class _Resolving:
    """A recipe being resolved; collects mistakes."""

    def __init__(
        self,
        recipe: Recipe,
        logs: Mapping[str, Log],
        allow_derive: Sequence[str],
        alike: Sequence[Alike],
        labels: Mapping[str, ColumnType],
        known: Schema | None = None,
    ):
        self._labels = labels
        self._known = {} if known is None else known.columns
        self._contains = recipe.on_error_mode != "fail"  # whether a mistake in one log concerns only that log
        self._allow_derive = allow_derive
        self._recipe = recipe
        self._logs = logs
        self._topics = TopicsOfLogs(recipe, logs, alike)
        self._mistakes: list[Mistake] = []
        self._notes: list[Notice] = []
        self._lacking: dict[
            tuple[str, str], list[str]
        ] = {}  # topics that logs lack, in words, and their columns
        clock = recipe.clock
        self._clock = RateClock(clock.rate) if clock.rate is not None else None

    def plan(self) -> tuple[RowPlan, tuple[Notice, ...]]:
        recipe = self._recipe
        clock = self._clock or self._clock_of_messages()
        columns: dict[str, ColumnPlan] = {}
        derived: dict[str, DerivedPlan] = {}
        looked_up: dict[str, TransformPlan] = {}
        labelled: dict[str, LabelPlan] = {}
        for name, column in recipe.columns.items():
            try:
                if isinstance(column, DerivedColumn):
                    derived[name] = _derived_plan(name, column, self._allow_derive)
                elif isinstance(column, TransformColumn):
                    self._check_frames(("columns", name, "tf"), column.tf)
                    looked_up[name] = transform_plan(name, column, recipe.time)
                elif isinstance(column, LabelColumn):
                    labelled[name] = self._label_plan(name, column)
                else:
                    columns[name] = self._column_plan(name, column)
            except MistakenError as wrong:
                self._mistakes += wrong.mistakes
            except UsageError as error:
                self._mistakes.append(Mistake(("columns", name), str(error)))
        asked = {*clock_topics(clock), *(plan.topic for plan in columns.values())}
        for topic, own in recipe.time.topics.items():
            is_known = self._check_known(topic, ("time", "topics", topic))
            if is_known and topic not in asked and isinstance(own, TopicTime) and own.field is not None:
                self._sources(topic)  # of transforms, whose stamps are their times
        planned = {**columns, **derived, **looked_up, **labelled}
        plan = RowPlan(
            clock=clock,
            columns=tuple(columns.values()),
            derived=tuple(derived.values()),
            order=tuple(name for name in recipe.columns if name in planned),
            require=recipe.rows.require,
            where=recipe.rows.where,
            rows=recipe.partition.rows,
            bytes=recipe.partition.bytes,
            transforms=tuple(looked_up.values()),
            labels=tuple(labelled.values()),
            split=recipe.row_split,
        )
        self._mistakes += self._split_mistakes(plan)
        self._mistakes += self._filter_mistakes(plan.schema)
        self._mistakes += self._output_mistakes(plan.schema, plan.period)
        if self._mistakes:
            raise recipe.places.error(self._mistakes)
        plan = self._with_decoded(plan)
        if plan.split is not None:
            by = plan.split.column or plan.split.by
            known = "the sizes of the splits, and the number of rows in none, are known once they are built"
            texts = [f"single rows are split, by {by}: {known}", *self._without_split(plan.schema)]
            self._notes += notes_of("split", texts)
        lacking = [
            Notice(f"{words}; unavailable there: {', '.join(c)}", kind="absent", topic=topic)
            for (topic, words), c in self._lacking.items()
        ]
        return plan, (*self._notes, *lacking)

    def hold_to(self, plan: RowPlan) -> None:
        ((log_id, log),) = self._logs.items()
        self._check_required(plan)
        if self._contains:
            self._contain_misfits(plan, log)
        else:
            self._check_columns(plan, log_id)
        for pose in plan.lookups:
            variants = {topic: self._topics.of(topic).variants for topic in (*pose.topics, *pose.static)}
            self._mistakes += topic_mistakes(("columns", pose.name), variants, self._logs)
        for name in clock_topics(plan.clock):
            if self._topics.of(name).variants:
                self._sources(name)
        if self._mistakes and self._contains:
            # Without lines of the recipe, so that records don't depend on them.
            said = (f"{'.'.join(map(str, mistake.path))}: {mistake.message}" for mistake in self._mistakes)
            raise LogReadError(f"log {log_id} doesn't fit the recipe: {'; '.join(dict.fromkeys(said))}")
        if self._mistakes:
            raise self._recipe.places.error(self._mistakes)

    def _check_required(self, plan: RowPlan) -> None:
        """
        Check for required topics.

        Raises:
            RecipeError: the log lacks required topics.
        """
        for column in plan.columns:
            try:
                wanted = self._topic_column(column)
                self._check_there(("columns", column.name), wanted, self._topics.of(column.topic))
            except MistakenError as wrong:
                self._mistakes += wrong.mistakes
        if self._mistakes and self._contains:
            raise self._recipe.places.error(self._mistakes)

    def _contain_misfits(self, plan: RowPlan, log: Log) -> None:
        """Record the columns that a log doesn't fit; with salvage they are unavailable in its rows."""
        if self._recipe.on_error_mode == "salvage":
            return
        topics = {column.name: column.topic for column in plan.columns}
        for name, why in unfit_columns(plan, log).items():
            if log.summary.topics[topics[name]].num_messages:
                self._mistakes.append(Mistake(("columns", name), why))

    def _check_columns(self, plan: RowPlan, log_id: str) -> None:
        for column in plan.columns:
            wanted, topic, path = (
                self._topic_column(column),
                self._topics.of(column.topic),
                ("columns", column.name),
            )
            if not topic.variants:
                continue
            try:
                if POLICIES[wanted.resample].uses != "topic":
                    self._sources(column.topic)
                found = message_type(path, wanted, column.spec, topic, self._logs, self._topics.num_logs)
            except MistakenError as wrong:
                self._mistakes += wrong.mistakes
                continue
            if found != column.message_type:
                kinds = {column.message_type: "in those of the plan", found: f"in log {log_id}"}
                self._mistakes.append(Mistake((*path, key_of(wanted)), disagreement(kinds, wanted)))

    def _topic_column(self, column: ColumnPlan) -> TopicColumn:
        wanted = self._recipe.columns[column.name]
        assert isinstance(wanted, TopicColumn)
        return wanted

    # --- topics -----------------------------------------------------------------------------------------

    def _check_known(self, topic: str, path: Path) -> bool:
        problem = self._topics.unknown(topic)
        if problem:
            self._mistakes.append(Mistake(path, problem))
        return not problem

    def _sources(self, topic: str) -> tuple[MessageTime, ...]:
        """Return the sources of a topic's message times; report a mistake if messages have none of them."""
        named = topic in self._recipe.time.topics
        path: Path = ("time", "topics", topic) if named else ("time", "by")
        own = self._recipe.time.topics.get(topic)
        if isinstance(own, TopicTime) and own.field is not None:
            path = (*path, "field")
        sources = self._recipe.time.sources(topic)
        problems = list(self._topics.unstamped(topic, sources))
        if not self._contains or len(problems) == len(self._topics.of(topic).variants):
            self._mistakes += [Mistake(path, problem) for problem in problems]
        return sources

    def _clock_of_messages(self) -> TopicClock | SyncClock:
        clock, max_delay = self._recipe.clock, self._recipe.time.max_delay
        if clock.topic:
            return TopicClock(clock.topic, self._clock_sources(clock.topic, ("topic",)), max_delay)
        times = tuple(self._clock_sources(topic, ("sync", i)) for i, topic in enumerate(clock.sync))
        return SyncClock(clock.sync, times, clock.stamp or clock.sync[0], clock.within or 0, max_delay)

    def _clock_sources(self, topic: str, path: Path) -> tuple[MessageTime, ...]:
        if self._check_known(topic, ("clock", *path)):
            found = self._topics.of(topic)
            if found.absent:
                text = f"clock: {found.absent_words} no message of {topic}, and so no rows"
                self._notes.append(Notice(text, kind="absent", topic=topic))
        return self._sources(topic)

    # --- columns ----------------------------------------------------------------------------------------

    def _column_plan(self, name: str, column: TopicColumn) -> ColumnPlan:
        path: Path = ("columns", name)
        if not self._check_known(column.topic, (*path, "topic")):
            raise MistakenError
        topic = self._agreed(name, column, self._topics.of(column.topic))
        sampling = self._sampling(column)
        spec = self._spec(path, column, topic)
        known, num_logs = self._known.get(name), self._topics.num_logs
        found = message_type(path, column, spec, topic, self._logs, num_logs, known)
        check_nan(path, column, found)
        if spec.adapter in OF_VIDEO:
            check_video(path, column)
        needs_length = found.is_ragged and POLICIES[column.resample].takes not in ("any", "nothing")
        shape = shape_line(column, found, spec, topic, self._logs) if needs_length else ""
        ctype = row_type_of(path, column, found, shape)
        is_static = POLICIES[column.resample].uses == "topic"  # outside any time range
        time = self._recipe.time.sources(column.topic) if is_static else self._sources(column.topic)
        self._check_there(path, column, topic)
        if topic.absent:
            words = f"{topic.absent_words} no message of {column.topic}"
            self._lacking.setdefault((column.topic, words), []).append(name)
        plan = ColumnPlan(
            name=name,
            topic=column.topic,
            spec=spec,
            sampling=sampling,
            message_type=found,
            ctype=ctype,
            time=time,
            max_delay=self._recipe.time.max_delay,
            required=column.missing == "fail",
            partial=column.partial,
            casts=casts(column),
        )
        return self._deskewed(plan, column.deskew, topic) if column.deskew else plan

    def _spec(self, path: Path, column: TopicColumn, topic: ResolvedTopic) -> FieldSpec:
        tries = len(topic.some) if self._contains else 1
        return settled_spec(path, column, spec_of(column, topic), topic, self._logs, tries)

    def _agreed(self, name: str, column: TopicColumn, topic: ResolvedTopic) -> ResolvedTopic:
        """Return the topic to plan for, if logs disagree and the recipe allows that.

        The type is that of the previous version, else of most logs, else of the first log by name. If no log
        has a type, all variants are returned, to report what is wrong.
        """
        if not self._contains or len(topic.variants) == 1:
            return topic
        path: Path = ("columns", name)
        kinds: dict[tuple[bool, FieldSpec, ColumnType], list[str]] = {}
        sources = self._recipe.time.sources(column.topic)
        is_static = POLICIES[column.resample].uses == "topic"
        for log_id in topic.variants:
            one = topic.only([log_id])
            try:
                spec = self._spec(path, column, one)
                found = message_type(path, column, spec, one, self._logs, self._topics.num_logs)
                ctype = row_type_of(path, column, found)
                if not is_static and self._logs[log_id].time_source(column.topic, sources) is None:
                    continue
            except (MistakenError, *OF_CONTENT):
                continue
            before = self._known.get(name)
            is_known = before is not None and (before.dtype, before.shape) == (ctype.dtype, ctype.shape)
            kinds.setdefault((is_known, spec, found), []).append(log_id)
        if not kinds:
            return topic

        def weight(kind: tuple[bool, FieldSpec, ColumnType]) -> tuple[bool, int]:
            return kind[0], sum(topic.counts[log_id] for log_id in kinds[kind])

        chosen = max(kinds, key=weight)  # of equals the first, which is that of the first log by name
        if others := sorted(topic.variants.keys() - set(kinds[chosen])):
            same, different = kinds[chosen][0], ", ".join(others[:MAX_NAMED])
            remedy = remedy_of(dict.fromkeys(found for _, _, found in kinds), column).removesuffix("; or ")
            text = (
                f"{name}: logs disagree about {column.topic}: the dataset uses {chosen[2]} (log {same}); "
                f"logs like {different} have another type{f'; to use them, {remedy}' if remedy else ''}"
            )
            self._notes.append(Notice(text, kind="types", column=name, topic=column.topic))
        return topic.only(kinds[chosen])

    def _deskewed(self, column: ColumnPlan, wanted: Deskew, topic: ResolvedTopic) -> ColumnPlan:
        """Return the plan of a column with deskewing."""
        path: Path = ("columns", column.name, "deskew")
        tf = wanted.pair(column.topic)
        if wanted.pose.tf is not None:
            self._check_frames((*path, "pose", "tf"), tf)
        else:
            try:
                self._check_frames(path, tf)
            except MistakenError as wrong:  # at keys that aren't written
                raise MistakenError(
                    *(replace(m, path=(*path, "pose", "topic")) for m in wrong.mistakes)
                ) from wrong
        pose = pose_plan(column.name, tf, self._recipe.time)
        if not topic.first:
            why = f"times of points are declared in messages, and {column.topic} has none"
            raise MistakenError(Mistake(path, why))
        whose = f" (log {topic.first})"
        from logloom.transforms.rows.deskew import deskew_plan
        from logloom.transforms.rows.point_times import point_times

        try:
            column = replace(column, deskew=deskew_plan(column, wanted, pose))
            note = f"deskewed by {point_times(self._logs[topic.first], column).words}"
        except OF_CONTENT as error:
            if self._recipe.on_error_mode == "fail" or not isinstance(error, LogReadError):
                raise MistakenError(Mistake(path, f"{error}{whose}")) from error
            note = str(error)  # of that log only
        several = f" (log {topic.first}; each log uses its own clouds)"
        text = f"{column.name}: {note}{several * (self._topics.num_logs > 1)}"
        self._notes.append(Notice(text, kind="deskew", column=column.name, topic=column.topic))
        return column

    def _check_frames(self, path: Path, tf: FramePair) -> None:
        topics = (*tf.topics, *tf.static)
        variants = {topic: self._topics.of(topic).variants for topic in topics}
        if not any(variants.values()):
            self._check_known(topics[0], path)
            raise MistakenError
        unknown = {key: topic for key, topic in tf.named_by.items() if self._topics.unknown(topic)}
        if unknown:
            problems = ((key, self._topics.unknown(topic)) for key, topic in unknown.items())
            raise MistakenError(*(Mistake((*path, key), problem) for key, problem in problems))
        if self._contains:
            variants = {topic: self._with_transforms(topic, found) for topic, found in variants.items()}
        mistakes = list(frame_mistakes(path, tf, variants, self._logs))
        if mistakes:
            raise MistakenError(*mistakes)

    def _with_transforms(self, topic: str, variants: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the variants of a topic with transforms; all if there are none."""
        fitting = {
            log_id: kind for log_id, kind in variants.items() if is_transform_topic(self._logs[log_id], topic)
        }
        return fitting or variants

    def _label_plan(self, name: str, column: LabelColumn) -> LabelPlan:
        if name not in self._labels:
            raise UsageError("its table wasn't read, so the type of its labels is unknown")
        ctype = replace(self._labels[name], unit=column.unit, description=column.description)
        return LabelPlan(name, column.tolerance, column.expect == "many", ctype)

    def _check_there(self, path: Path, column: TopicColumn, topic: ResolvedTopic) -> None:
        """Report a mistake if logs lack a required topic."""
        if topic.absent and column.missing == "fail":
            words = f"{topic.absent_words} no message of {column.topic}, and this column has missing: fail"
            raise MistakenError(Mistake((*path, "missing"), words))

    def _sampling(self, column: TopicColumn) -> Sampling:
        # Without a period the column itself needs both; the recipe's own checks require that.
        period = int(10**9 / self._clock.rate) if self._clock else 0
        rules = POLICIES[column.resample]
        tolerance = column.tolerance if column.tolerance is not None else period
        if rules.by_clock:
            return Sampling(column.resample, self._recipe.clock.within or 0)
        return Sampling(
            column.resample,
            tolerance if rules.tolerates else 0,
            (column.window or (-period, 0)) if rules.uses == "window" else (0, 0),
            column.offset,
        )

    # --- checks of all columns -----------------------------------------------------------------------------

    def _without_split(self, schema: Schema) -> Iterator[str]:
        """Note outputs that may lack the column of rows' splits."""
        for output, options in self._recipe.outputs.items():
            held = format_named(output).columns_of(options, schema)
            if held is None or COLUMN not in held.columns:
                yield (
                    f"output {output} doesn't have all columns, so perhaps no `{COLUMN}`: open it with "
                    "logloom.datasets.open(…, split=…), as its own readers may not know splits"
                )

    def _split_mistakes(self, plan: RowPlan) -> Iterator[Mistake]:
        """Find mistakes in the column that rows are split by."""
        split = plan.split
        if split is None or split.column not in plan.order:
            return  # by time, or the column has a mistake of its own
        by_place = split.by == "place"
        problem = (position_problem if by_place else value_problem)(plan.schema.columns[split.column])
        if problem:
            path = ("split", "position") if by_place else ("split", "by", "column")
            yield Mistake(path, f"{split.column} {problem}")

    def _filter_mistakes(self, schema: Schema) -> Iterator[Mistake]:
        rows = self._recipe.rows
        if not rows.where:
            return
        from logloom.query import where

        parsed = where.parse(rows.where)
        known = {**schema.all, "timestamp": TIMESTAMP}
        if any(root_of(name, known) is None for name in parsed.columns):
            return  # the column has a mistake of its own
        try:
            parsed.bound(known)
        except UsageError as error:
            yield Mistake(("rows", "where"), str(error).removeprefix("where, "))

    def _with_decoded(self, plan: RowPlan) -> RowPlan:
        """Mark the columns that outputs decode, unless the recipe stops at what doesn't decode."""
        outputs = self._recipe.outputs.items() if self._contains else ()
        decoded = {
            name for output, options in outputs for name in format_named(output).decoded(options, plan.schema)
        }
        columns = (
            replace(c, decoded=True) if c.name in decoded and c.spec.adapter is None else c
            for c in plan.columns
        )
        return replace(plan, columns=tuple(columns))

    def _output_mistakes(self, schema: Schema, period: int | None) -> Iterator[Mistake]:
        """Find mistakes of outputs regarding the clock and the columns; if columns are missing, regarding
        the others.
        """
        missing = [name for name in self._recipe.columns if name not in schema.columns]
        for output, options in self._recipe.outputs.items():
            for key, problem in format_named(output).check_clock(options, period).items():
                yield Mistake(("outputs", output, key), problem)
            for line in format_named(output).check(options, schema):
                mentioned = set(re.findall(r"[a-z_][a-z0-9_.]*", line))
                if not missing or (mentioned & set(schema.columns) and not mentioned & set(missing)):
                    yield Mistake(("outputs", output), f"{line}{self._ways_on(output, line, schema)}")

    def _ways_on(self, output: str, line: str, schema: Schema) -> str:
        """Describe what to do about a column whose type an output refuses; "" if a line names none."""
        for name, ctype in schema.columns.items():
            is_named = re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", line) is not None
            if is_named and (f"column {name}" in line or f"{name} ({ctype}) is neither" in line):
                return ways_to_hold(name, self._recipe.columns.get(name), ctype, output)
        return ""


def _derived_plan(name: str, column: DerivedColumn, allowed: Sequence[str]) -> DerivedPlan:
    given, texts = column.dtype, {"string": STRING, "bytes": BYTES}
    if isinstance(given, str) and given in texts:
        ctype = texts[given]
    else:
        dtype = np.dtype(given) if isinstance(given, str) else struct_dtype(given, column.strings)
        shape = column.shape
        ctype = ColumnType(dtype, (None, None), "lists") if shape == "lists" else ColumnType(dtype, shape)
    ctype = replace(ctype, unit=column.unit, description=column.description)
    try:
        derive.check_allowed(column.derive, allowed)
        dependencies = derive.dependencies_of(column.derive)
    except UsageError as error:
        raise MistakenError(Mistake(("columns", name, "derive"), str(error))) from error
    return DerivedPlan(name, column.derive, dependencies, column.from_, ctype)
