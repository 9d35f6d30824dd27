"""The lineage of rows of a version, traced in its logs.

Here: tracing messages, poses and labels; the table and JSON of `logloom head --why`.
Elsewhere: choosing messages (logloom.transforms.rows.lineage), the rows themselves (head).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from logloom.errors import LogloomError, UsageError
from logloom.io.catalog.labels import digest_of_labels, read_labels
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.tombstones import Purged
from logloom.io.logs.interface import Log, MessagePlace
from logloom.io.logs.opening import open_log
from logloom.io.storage.filesystems import file_name_of
from logloom.io.storage.store import Store
from logloom.recipe import DerivedColumn, LabelColumn, Recipe, Rows, TopicColumn, TransformColumn
from logloom.recipe.alternatives import OtherNames, in_any
from logloom.recipe.labels import RecipeLabels
from logloom.recipe.logs import open_options
from logloom.recipe.yaml import flow
from logloom.text import counted, human_duration, iso8601
from logloom.transforms.rows.deskew import deskew_plan
from logloom.transforms.rows.lineage import Lineage, Source, trace
from logloom.transforms.rows.plan.frames import pose_plan, transform_plan
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.plan.row_plan import RowPlan, Sampling
from logloom.transforms.rows.pose_lineage import PoseLineage, trace_motion, trace_pose
from logloom.transforms.rows.resample import choose
from logloom.values import dataclass

RecipeColumn = TopicColumn | DerivedColumn | TransformColumn | LabelColumn


@dataclass(frozen=True)
class LabelLineage:
    """The labels of a row.

    Attributes:
        time: of them, in ns; None without any.
        rows: the file and the row of each, rows from 0; None if unknown.
        reason: why there are no labels, or no rows.
    """

    time: int | None = None
    rows: tuple[tuple[str, int], ...] | None = None
    reason: str = ""


@dataclass(frozen=True)
class Why:
    """The lineage of one row.

    Attributes:
        columns: the recipe's; none for a converted version.
        lineages: of each column of a topic of the log.
        poses: of each column of poses or deskewed points.
        labels: of each column of labels.
        lacking: why other columns of these kinds have none, by name.
        is_read: whether the log could be read.
        has_files: whether it consists of several files, so that places include theirs.
        problem: why other columns have no lineage.
        others: other names of topics and fields.
    """

    columns: Mapping[str, RecipeColumn] = field(default_factory=dict)
    lineages: Mapping[str, Lineage] = field(default_factory=dict)
    poses: Mapping[str, PoseLineage] = field(default_factory=dict)
    labels: Mapping[str, LabelLineage] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)
    is_read: bool = False
    has_files: bool = False
    problem: str = ""
    others: OtherNames = field(default_factory=OtherNames)

    def lines(self, name: str, value: str, age: int | None) -> list[tuple[str, ...]]:
        """Return lines of a table for a column: its name and value, then message time, UTC, age and place.

        Args:
            age: from the output, if the logs have none.
        """
        column, lineage = self.columns.get(name), self.lineages.get(name)
        places: list[tuple[str, ...]]
        if lineage is None:
            stored = "" if age is None else human_duration(age, digits=6)
            places = [("", "", stored, self._source(column))]
        else:
            places = self._messages(lineage)
        if labels := self.labels.get(name):
            places += self._rows_of(labels)
        if pose := self.poses.get(name):
            places += self._hops(pose)
        if reason := self.lacking.get(name):
            places.append(("", "", "", reason))
        for base in bases_of(self.columns, name):
            places += [line[2:] for line in self.lines(base, "", None)]
        return [(name, value, *places[0]), *(("", "", *more) for more in places[1:])]

    def _messages(self, lineage: Lineage) -> list[tuple[str, ...]]:
        topic = lineage.topic
        places = [self._line(source, topic) for source in lineage.used]
        if lineage.reason:
            places = [("", "", "", f"{topic}: no usable message: {lineage.reason}")]
            places += [self._line(source, "nearest") for source in lineage.nearest]
        for one in lineage.keyframes:
            what = f"{counted(one.packets, 'packet')} decoded from the keyframe"
            places.append(self._line(one.key, what))
        return places or [("", "", "", f"{topic}: no message")]

    def _rows_of(self, labels: LabelLineage) -> Iterator[tuple[str, ...]]:
        time = ("", "") if labels.time is None else (str(labels.time), iso8601(labels.time))
        yield from ((*time, "", f"{uri}, row {row}") for uri, row in labels.rows or ())
        if labels.reason:
            yield *time, "", labels.reason

    def _hops(self, pose: PoseLineage) -> Iterator[tuple[str, ...]]:
        for hop in pose.hops:
            held = "static" if hop.is_static else hop.topic
            what = f"{hop.child} in {hop.parent}, {held}" if hop.parent else f"{hop.child}: nearest of {held}"
            yield from (self._line(source, what) for source in hop.used)
        if pose.reason:
            yield "", "", "", f"no pose of {pose.source} in {pose.target}: {pose.reason}"

    def recipe_line(self, name: str) -> str:
        """Return the recipe of a column as YAML on one line; "" for a column that isn't in the recipe.

        It lacks what has its default, but for `resample`.
        """
        column = self.columns.get(name)
        if column is None:
            return ""
        chosen = column.model_dump(by_alias=True, exclude_defaults=True)
        keys = column.model_dump(mode="json", by_alias=True).items()
        shown = {key: value for key, value in keys if key in chosen or key == "resample"}
        for key in shown.keys() & {"field", "from"}:
            if len(shown[key]) == 1:
                (shown[key],) = shown[key]
        return flow({name: in_any(shown, self.others)})

    def _line(self, source: Source, what: str) -> tuple[str, ...]:
        place = f"{what} {place_in_words(source.place, self.has_files)}"
        return str(source.time), iso8601(source.time), human_duration(source.age, digits=6), place

    def _source(self, column: RecipeColumn | None) -> str:
        if isinstance(column, DerivedColumn):
            return f"derived from {', '.join(column.from_)} by {column.derive}"
        if isinstance(column, TransformColumn):
            when = f"the time of {column.at}" if column.at else "the tick"
            topics = ", ".join((*column.tf.topics, *column.tf.static))
            source, target = column.tf.words
            return f"the pose of {source} in {target} at {when}, of {topics}"
        if isinstance(column, LabelColumn):
            return f"labels of {column.table} within {human_duration(column.tolerance)}"
        reason = self._reason(column)
        return f"{column.topic}: {reason}" if column else reason

    def _reason(self, column: RecipeColumn | None) -> str:
        made = column is None and self.columns
        return "made by the output from the recipe's columns" if made else self.problem

    def to_json(self, name: str) -> dict[str, Any]:
        """Return its keys of logloom/cli/json_keys.txt but `age` and `available`."""
        column, lineage = self.columns.get(name), self.lineages.get(name)
        if isinstance(column, DerivedColumn):
            bases = {base: self.to_json(base) for base in bases_of(self.columns, name)}
            made = {"derived_from": list(column.from_), "function": column.derive}
            return {"topic": None, **made, "columns": bases}
        if isinstance(column, TransformColumn):
            pose = {**dict(zip(("from", "to"), column.tf.words, strict=True)), "at": column.at}
            return {
                "topic": None,
                "pose": pose,
                "topics": [*column.tf.topics, *column.tf.static],
                **self._pose_json(name),
            }
        if isinstance(column, LabelColumn):
            labels = {"topic": None, "labels": column.table, "tolerance": column.tolerance}
            return labels | self._labels_json(name)
        if lineage is None:
            none: list[Any] | None = [] if column and self.is_read else None
            topic = column.topic if column else None
            return {"topic": topic, "messages": none, "reason": self._reason(column)}
        found: dict[str, Any] = {"topic": lineage.topic, "policy": lineage.column.sampling.policy}
        found["messages"] = [_as_json(source) for source in lineage.used]
        if lineage.keyframes:
            found["keyframes"] = [{**_as_json(one.key), "packets": one.packets} for one in lineage.keyframes]
        if name in self.poses or name in self.lacking:
            found["motion"] = self._pose_json(name)
        if lineage.reason:
            found |= {"reason": lineage.reason, "nearest": [_as_json(source) for source in lineage.nearest]}
        return found

    def _labels_json(self, name: str) -> dict[str, Any]:
        found = self.labels.get(name)
        if found is None:
            return {"label_time": None, "rows": None, "reason": self.lacking.get(name, self.problem)}
        rows = None if found.rows is None else [{"uri": uri, "row": row} for uri, row in found.rows]
        return {"label_time": found.time, "rows": rows, **({"reason": found.reason} if found.reason else {})}

    def _pose_json(self, name: str) -> dict[str, Any]:
        pose = self.poses.get(name)
        if pose is None:
            return {"hops": None, "reason": self.lacking.get(name, self.problem)}
        hops = [
            {
                "child": hop.child,
                "parent": hop.parent or None,
                "topic": hop.topic,
                "static": hop.is_static,
                "messages": [_as_json(source) for source in hop.used],
            }
            for hop in pose.hops
        ]
        return {"times": list(pose.times), "hops": hops, **({"reason": pose.reason} if pose.reason else {})}


def bases_of(columns: Mapping[str, RecipeColumn], name: str) -> list[str]:
    """Return the columns of the recipe that one is derived from, including through their ages."""
    column = columns.get(name)
    if not isinstance(column, DerivedColumn):
        return []
    bases = (base if base in columns else base.rpartition(".")[0] for base in column.from_)
    return [base for base in dict.fromkeys(bases) if base in columns]


def with_bases(columns: Mapping[str, RecipeColumn], names: Iterable[str]) -> list[str]:
    """Return those of the names that are in the recipe, and all that these are derived from."""
    found: dict[str, None] = {}
    left = [name for name in names if name in columns]
    while left:
        name = left.pop()
        if name not in found:
            found[name] = None
            left += bases_of(columns, name)
    return list(found)


def place_in_words(place: MessagePlace, with_file: bool) -> str:
    """Describe a message's place: its number in its topic, and its offset (chunk + byte within)."""
    inside = "" if place.within is None else f"+{place.within}"
    file = f"{file_name_of(place.uri)} " if with_file else ""
    return f"#{place.number}, {file}{place.unit} {place.offset}{inside}"


def _as_json(source: Source) -> dict[str, Any]:
    place = source.place
    return {
        "message_time": source.time,
        "message_time_iso": iso8601(source.time),
        "log_time": source.log_time,
        "age": source.age,
        "uri": place.uri,
        "unit": place.unit,
        "offset": place.offset,
        "within": place.within,
        "number": place.number,
    }


class _LabelExplainer:
    """Finds the labels of rows of one version; each table is read once."""

    def __init__(self, store: Store, recipe: Recipe):
        self._store, self._recipe = store, recipe
        self._tables: dict[str, RecipeLabels | str] = {}

    def why(
        self, record: LogRecord, columns: Mapping[str, LabelColumn], tick: int
    ) -> dict[str, LabelLineage]:
        """Return the lineage of some columns at a tick; a missing or changed table is a reason, not an error.

        Raises:
            DatasetError: the version's own labels are missing or damaged.
        """
        stored, found = read_labels(self._store, record.catalogue), dict[str, LabelLineage]()
        for name, column in columns.items():
            labels = stored.get(name)
            if labels is None:
                found[name] = LabelLineage(reason="the log has no labels")
                continue
            sampling = Sampling("nearest", column.tolerance)
            choice = choose(sampling, labels.stamps, np.array([tick], np.int64))
            if not choice.available[0]:
                within = human_duration(column.tolerance)
                found[name] = LabelLineage(reason=f"no label within {within} of the tick")
                continue
            time = int(labels.stamps[choice.lo[0]])
            table, log_id = self._table(name, column), record.log_id
            if isinstance(table, str):
                found[name] = LabelLineage(time, reason=table)
            elif table.digests_of(log_id).get(name) != digest_of_labels(labels.to_bytes()):
                found[name] = LabelLineage(time, reason="the table has changed since the build")
            else:
                found[name] = LabelLineage(time, tuple(table.places(name, log_id, time)))
        return found

    def _table(self, name: str, column: LabelColumn) -> RecipeLabels | str:
        if name not in self._tables:
            store, alone = self._store, self._recipe.model_copy(update={"columns": {name: column}})
            try:
                erased = Purged(store).redactions
                self._tables[name] = RecipeLabels(alone, None, store.options, erased)
            except (LogloomError, OSError) as error:
                self._tables[name] = f"the table can't be read: {error}"
        return self._tables[name]


class Explainer:
    """Traces rows of one version; each log is opened once."""

    def __init__(self, store: Store, manifest: Manifest):
        self._store, self._recipe = store, None
        self._problem = ""
        self._logs: dict[str, tuple[Log, RowPlan | None] | str] = {}
        if source := manifest.recipe.get("convert"):
            self._problem = f"this version was converted from {source['from']}, not built from logs"
        else:
            self._recipe = Recipe.model_validate(manifest.recipe)
        self._labels = _LabelExplainer(store, self._recipe) if self._recipe is not None else None

    def why(self, record: LogRecord, tick: int, names: Iterable[str] | None = None) -> Why:
        """Return the lineage of a row; missing, damaged or changed logs are not an error, but its `problem`.

        Args:
            names: the columns to look up poses for, which may read much of a log; None for all.
        """
        if self._recipe is None:
            return Why(problem=self._problem)
        columns, others = self._recipe.columns, self._recipe.alternatives
        if record.log_id not in self._logs:
            self._logs[record.log_id] = self._open(self._recipe, record)
        opened = self._logs[record.log_id]
        if isinstance(opened, str):
            return Why(columns, problem=opened, others=others)
        log, plan = opened
        try:
            found = dict(trace(log, plan, tick)) if plan else {}
        except (LogloomError, OSError) as error:
            return Why(columns, problem=f"the log can't be read: {error}", others=others)
        several, poses = len(record.uris) > 1, dict[str, PoseLineage]()
        lacking: dict[str, str] = {}
        asked = list(columns) if names is None else with_bases(columns, names)
        labels = self._labels_of(record, tick, asked, lacking)
        for name in asked:
            try:
                pose = _pose(self._recipe, log, name, columns[name], found, tick)
            except (LogloomError, OSError) as error:
                lacking[name] = f"transforms can't be traced: {error}"
                continue
            if pose is not None:
                poses[name] = pose
        silent = "the log has no message of this topic"
        return Why(columns, found, poses, labels, lacking, True, several, silent, others)

    def _labels_of(
        self, record: LogRecord, tick: int, names: Iterable[str], lacking: dict[str, str]
    ) -> Mapping[str, LabelLineage]:
        columns = {} if self._recipe is None else self._recipe.columns
        wanted = {name: column for name in names if isinstance(column := columns[name], LabelColumn)}
        if self._labels is None or not wanted:
            return {}
        try:
            return self._labels.why(record, wanted, tick)
        except (LogloomError, OSError) as error:
            lacking |= dict.fromkeys(wanted, f"labels can't be read: {error}")
            return {}

    def _open(self, recipe: Recipe, record: LogRecord) -> tuple[Log, RowPlan | None] | str:
        try:
            erased = Purged(self._store).redactions
            options = open_options(recipe, self._store.options, self._store.uri_of("index"), erased)
            log = open_log(record.uris, replace(options, on_error="salvage"), record.log_id)
            topics = {name for name, info in log.summary.topics.items() if info.num_messages}
            if log.summary.content_id != record.content_id:
                return "the log has changed since the build; see `logloom verify --against-logs`"
            return log, _plan_of(recipe, record.log_id, log, topics)
        except (LogloomError, OSError) as error:
            return f"the log can't be read: {error}"


def _pose(
    recipe: Recipe, log: Log, name: str, column: RecipeColumn, found: Mapping[str, Lineage], tick: int
) -> PoseLineage | None:
    """Return the lineage of a column's poses; None if it has none.

    Args:
        found: lineage of the columns of topics.
    """
    if isinstance(column, TransformColumn):
        plan = transform_plan(name, column, recipe.time)
        at = found.get(column.at) if column.at else None
        if column.at and (at is None or not at.used):
            raise UsageError(f"{column.at} has no message with a time to look up")
        time = tick - at.used[-1].age if at else tick
        return trace_pose(log, plan, [time], tick)
    if not isinstance(column, TopicColumn) or column.deskew is None or name not in found:
        return None
    own = found[name]
    if not own.used:
        return None
    pose = pose_plan(name, column.deskew.pair(column.topic), recipe.time)
    motion = deskew_plan(own.column, column.deskew, pose)
    return trace_motion(log, replace(own.column, deskew=motion), own.used[-1], tick)


def _plan_of(recipe: Recipe, log_id: str, log: Log, topics: set[str]) -> RowPlan | None:
    """Return the plan of the columns that this log has messages for; None if there are none."""
    columns = {
        name: column.model_copy(update={"deskew": None})  # which may need topics that this log lacks
        for name, column in recipe.columns.items()
        if isinstance(column, TopicColumn) and column.topic in topics
    }
    times = {topic: rule for topic, rule in recipe.time.topics.items() if topic in topics}
    changes = {"columns": columns, "rows": Rows(), "outputs": {}}
    changes["time"] = recipe.time.model_copy(update={"topics": times})
    return resolve(recipe.model_copy(update=changes), {log_id: log})[0] if columns else None
