"""The times of a lidar's points: in which field of points they stand, in which unit, and since when.

Here: `PointFields`, how the fields of a column's points are read, and `point_times`, what the last cloud of a
log tells of their times.
Elsewhere: moving points to one time (deskew), clouds in bytes (logloom.io.logs.decoding.clouds).

Points lie in a message as the bytes of a cloud, or as elements of an array: rows of a table that is a sweep,
points of Livox' messages. Each log's own clouds tell its times, so that its rows don't depend on which logs
are built beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import LogReadError, UsageError
from logloom.io.caches import LruCache
from logloom.io.logs.base import FieldSpec, Log, Messages, TopicRequest
from logloom.io.logs.decoding import clouds
from logloom.resample.frames import Times
from logloom.resample.kernels import Floats
from logloom.schema import ColumnType
from logloom.transforms.columns import ColumnPlan, RowPlan
from logloom.transforms.spans import ByteIndex
from logloom.words import near_to

AXES = ("x", "y", "z")
_FIRST_REACH = 10**9  # ns; how far before its end a log is searched at first for a cloud with points
_MAX_READ = 64 << 20  # bytes of messages that are searched at a time
_SHORTEST, _LONGEST = 10**6, 10**9  # ns that a sweep may last for its unit to be told
_EACH = "[]."

Fields = Mapping[str, Array]


@dataclass(frozen=True)
class PointFields:
    """How single fields of a column's points are read.

    Attributes:
        spec: of the column.
    """

    spec: FieldSpec

    @property
    def array(self) -> str:
        """The path of the array whose elements are points; "" of clouds."""
        return "" if self.spec.adapter else self.spec.paths[0].partition(_EACH)[0].removesuffix("[]")

    def axes(self, ctype: ColumnType) -> tuple[int, ...] | None:
        """Where x, y and z stand in a point of numbers; None of one that has them by name.

        Raises:
            UsageError: they can't be moved.
        """
        dtype, words = ctype.dtype, self._words
        if dtype.names is not None:
            kinds = [dtype[axis] if axis in dtype.names else np.dtype("V") for axis in AXES]
            if len(ctype.shape) == 1 and all(kind.kind == "f" for kind in kinds):
                return None
            raise UsageError(f"points have no x, y and z that are floats; they have {', '.join(dtype.names)}")
        is_of_points = ctype.is_ragged and ctype.tail == (len(words),) and {*AXES} <= {*words}
        if not is_of_points or dtype.kind != "f":
            raise UsageError(
                f"{', '.join(self.spec.paths)}: holds {ctype}, no points with x, y and z as floats"
            )
        return tuple(words.index(axis) for axis in AXES)

    @property
    def _words(self) -> list[str]:
        """The fields that the column names."""
        if self.spec.adapter:
            return clouds.named_fields(self.spec)
        return [path.rpartition(".")[2] for path in self.spec.paths if _EACH in path]

    def of_time(self, field: str, unit: str) -> FieldSpec:
        """What reads the field of times; see `times`."""
        if self.array:
            return FieldSpec((f"{self.array}{_EACH}{field}",))
        return clouds.times_spec(self.spec, field, unit)

    def times(self, values: Array, unit: str) -> Times:
        """(n,) int64 ns, of what `of_time` reads."""
        return clouds.nanoseconds(values, unit) if self.array else values

    def dtype(self, log: Log, topic: str) -> np.dtype[np.void]:
        """All fields of a point, by the log's last cloud, or by its definition.

        Raises:
            UsageError: they are no points.
        """
        found = log.column_type(topic, self._whole(log, topic)).dtype
        if found.names is None:
            raise UsageError(f"{', '.join(self.spec.paths)} of {topic} are no points: they have no fields")
        return found

    def read(self, log: Log, messages: Messages, row: int, fields: Sequence[str]) -> Fields:
        """(n,) of some fields of the points of a message."""
        rows = np.array([row])
        if not self.array:
            (cloud,) = messages.take(self._whole(log, messages.topic), rows)
            return {field: cloud[field] for field in fields}
        named = {path.rpartition(".")[2]: path for path in self.spec.paths if _EACH in path}
        paths = {field: named.get(field, f"{self.array}{_EACH}{field}") for field in fields}
        return {field: messages.take(FieldSpec((path,)), rows)[0] for field, path in paths.items()}

    def _whole(self, log: Log, topic: str) -> FieldSpec:
        if self.array:
            return FieldSpec((self.array,))
        return clouds.settled(log, topic, FieldSpec(paths=self.spec.paths, adapter=clouds.NAME))


@dataclass(frozen=True)
class PointTimes:
    """What a log's clouds tell of the times of their points.

    Attributes:
        field, unit: one of `TIME_UNITS` of logloom.io.logs.decoding.clouds.
        is_absolute: whether times are since the Unix epoch, or else since the message time.
        words: all of it, for people.
    """

    field: str
    unit: str
    is_absolute: bool
    words: str


_known: LruCache[PointTimes] = LruCache(1000, size=lambda found: 1)  # each partition of a log asks


def times_in(log: Log, plan: RowPlan) -> dict[str, PointTimes]:
    """The times of points in a log, of each column that is deskewed and of which the log has messages.

    Raises:
        LogReadError: its clouds tell none, or are damaged.
    """
    found: dict[str, PointTimes] = {}
    for column in plan.columns:
        info = log.summary.topics.get(column.topic)
        if column.deskew is None or info is None or len(log.last_message(column.topic)) == 0:
            continue
        key = (log.summary.content_id, column.topic, column.spec, column.deskew, column.max_delay)
        known = _known.get((*key, column.sampling.offset))
        if known is None:
            try:
                known = point_times(log, column)
            except UsageError as error:
                raise LogReadError(f"{log.summary.uris[0]}: column {column.name}: {error}") from error
            if log.summary.content_id:
                _known.put((*key, column.sampling.offset), known)
        found[column.name] = known
    return found


def point_times(log: Log, column: ColumnPlan) -> PointTimes:
    """What the last cloud with points tells of the times of a column's points.

    The field is the one that the recipe says, or the first that has a usual name; its unit the one that the
    recipe says, or the one in which the cloud lasts more than 1 ms and at most 1 s. In a log in which nothing
    was measured any will do, for no point is moved.

    Raises:
        UsageError: there is no such field, or times that tell no unit.
        LogReadError: the cloud is damaged.
    """
    assert column.deskew is not None
    fields, within = PointFields(column.spec), column.deskew.pose.around
    dtype = fields.dtype(log, column.topic)
    name = _time_field(dtype, column.deskew.field)
    values, stamp = _last_measured(
        log, column.topic, fields, [a for a in AXES if a in (dtype.names or ())], name
    )
    if values.dtype.kind == "f":
        values = values[np.isfinite(values)]
    if len(values) == 0:
        return PointTimes(name, column.deskew.unit or "ns", False, f"{name!r}, but no cloud has points")
    unit = column.deskew.unit or _unit_of(values, name)
    times = clouds.nanoseconds(values, unit)
    is_absolute = bool((np.abs(times.astype(np.float64)) > within).any())
    delay = column.max_delay
    if is_absolute and delay is not None:
        off = int(np.abs(times.astype(np.float64) - stamp).max())
        if off > delay + within + abs(column.sampling.offset):
            raise UsageError(
                f"times of points in {name!r}, in {unit}, lie neither within {within / 1e9:g} s of 0 "
                f"nor near their message (log time {stamp}): the last cloud has {values.min()} to "
                f"{values.max()}. Write another `time`, its `unit`, or a longer `within`"
            )
    lasts = (int(times.max()) - int(times.min())) / 1e6
    since = "since the Unix epoch" if is_absolute else "since the message time"
    text = "as the recipe says" if column.deskew.unit else f"as the last cloud, of {lasts:.3g} ms, says"
    return PointTimes(name, unit, is_absolute, f"{name!r} of points, {dtype[name]} in {unit} {since}, {text}")


def are_measured(points: Floats) -> NDArray[np.bool_]:
    """(n,) which of (3, n) points were; drivers write others as zeros or NaN, often without a time."""
    return np.logical_and(np.isfinite(points).all(axis=0), points.any(axis=0))


def _last_measured(
    log: Log, topic: str, fields: PointFields, axes: Sequence[str], name: str
) -> tuple[Array, int]:
    """The times of the measured points of the last cloud of a log that has any, and its log time; of the last
    of all, none, where there is none.

    It is looked for ever further from the end: a lidar that is shut down may go on without points. Little of
    the log is held at a time.
    """
    messages, reach = log.last_message(topic), _FIRST_REACH
    sizes, first = ByteIndex(log.summary), log.summary.topics[topic].first
    end = stop = int(messages.log_time[0])
    while True:
        for row in range(len(messages) - 1, -1, -1):
            found = fields.read(log, messages, row, [*axes, name])
            values = found[name]
            if len(axes) == len(AXES) and all(found[axis].ndim == 1 for axis in axes):
                values = values[are_measured(np.stack([found[axis].astype(np.float64) for axis in axes]))]
            if len(values):
                return values, int(messages.log_time[row])
        if stop <= first:
            return values, end
        start = max(first, stop - reach)
        while stop - start > 1 and sizes.between(start, stop) > _MAX_READ:
            start = (start + stop) // 2
        messages = log.read({topic: TopicRequest(start, stop, ("log",))})[topic]
        stop, reach = start, 4 * (stop - start)


def _time_field(dtype: np.dtype[np.void], wanted: str) -> str:
    names: Sequence[str] = dtype.names or ()
    if wanted and wanted not in names:
        raise UsageError(f"points have no field {wanted!r}{near_to(wanted, names)}")
    usual = clouds.time_names(names)
    if not wanted and not usual:
        raise UsageError(
            f"points have no field with their times by a usual name; they have {', '.join(names)}. "
            "Write `time: FIELD` if one holds them; without, nothing can be deskewed"
        )
    name = wanted or usual[0]
    if dtype[name].kind not in "iuf":
        raise UsageError(f"field {name!r} of points is {dtype[name]}, which is no time")
    return name


def _unit_of(values: Array, name: str) -> str:
    """The unit in which times last as long as a sweep does."""
    is_whole = values.dtype.kind != "f"
    lasts = int(values.max()) - int(values.min()) if is_whole else float(values.max()) - float(values.min())
    for unit, scale in clouds.TIME_UNITS.items():
        if _SHORTEST < lasts * scale <= _LONGEST:
            return unit
    known = ", ".join(clouds.TIME_UNITS)
    raise UsageError(
        f"times of points in {name!r} span {lasts:g} in the last cloud, which is 1 ms to 1 s, as long as a "
        f"sweep lasts, in no unit; write `unit: ` and one of {known}"
    )
