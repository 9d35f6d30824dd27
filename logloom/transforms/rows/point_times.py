"""The times of a lidar's points: their field, unit and epoch.

Here: `PointFields`, which reads fields of a column's points, and `point_times`, which infers them from a
sample of clouds over the whole log.
Elsewhere: moving points to one time (deskew), clouds in bytes (logloom.io.logs.messages.point_clouds).

Points are in a message as the bytes of a cloud, or as elements of an array: rows of a table that is a sweep,
points of Livox' messages. Times are inferred from each log's own clouds, so that its rows don't depend on
other logs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import OF_CONTENT, LogReadError, UsageError
from logloom.io.logs.interface import FieldSpec, Log, LogSummary, Messages, TopicRequest
from logloom.io.logs.messages import point_clouds
from logloom.io.storage.lru_cache import LruCache
from logloom.resample.frame_tree import Times
from logloom.resample.kernels import Floats
from logloom.schema import ColumnType
from logloom.text import near_to
from logloom.transforms.rows.plan.row_plan import ColumnPlan, RowPlan
from logloom.transforms.rows.spans import ByteIndex
from logloom.values import dataclass

AXES = ("x", "y", "z")
_WINDOWS = 8  # parts of a log whose clouds are sampled, evenly spread over its bytes
_WINDOW_CLOUDS = 3  # wanted clouds per part: their distances are the period
_CLOUDS = 32  # limit of sampled clouds
_ENOUGH = 3  # wanted clouds with several times, if others are needed
_FIRST_REACH = 10**9  # ns; how far before its end a log is first searched for these
_MAX_READ = 64 << 20  # bytes of messages searched at a time
# Limits of a sweep's duration: in periods of its topic (one that is cut to its front or thinned lasts less,
# one of several lidars more), or in ns if a topic has one message. Below a factor of 1000, so that no two
# units fit.
_OF_PERIOD = 0.005, 2.5
_ALONE = 10e6, 250e6
_EACH = "[]."

Fields = Mapping[str, Array]


@dataclass(frozen=True)
class PointFields:
    """Reads single fields of a column's points.

    Attributes:
        spec: of the column.
    """

    spec: FieldSpec

    @property
    def array(self) -> str:
        """The path of the array whose elements are points; "" of clouds."""
        return "" if self.spec.adapter else self.spec.paths[0].partition(_EACH)[0].removesuffix("[]")

    def axes(self, ctype: ColumnType) -> tuple[int, ...] | None:
        """The places of x, y and z in a point of numbers; None if points have them by name.

        Raises:
            UsageError: points have no usable x, y and z.
        """
        dtype, words = ctype.dtype, self._words
        if dtype.names is not None:
            kinds = [dtype[axis] if axis in dtype.names else np.dtype("V") for axis in AXES]
            if len(ctype.shape) == 1 and all(kind.kind == "f" for kind in kinds):
                return None
            raise UsageError(f"points have no x, y and z that are floats; they have {', '.join(dtype.names)}")
        is_of_points = ctype.is_ragged and ctype.tail == (len(words),) and {*AXES} <= {*words}
        if not is_of_points or dtype.kind != "f":
            raise UsageError(f"{', '.join(self.spec.paths)}: {ctype} has no points with x, y and z as floats")
        return tuple(words.index(axis) for axis in AXES)

    @property
    def _words(self) -> list[str]:
        """The names of fields in the column."""
        if self.spec.adapter:
            return point_clouds.named_fields(self.spec)
        return [path.rpartition(".")[2] for path in self.spec.paths if _EACH in path]

    def of_time(self, field: str, unit: str) -> FieldSpec:
        """Return the spec that reads the field of times; see `times`."""
        if self.array:
            return FieldSpec((f"{self.array}{_EACH}{field}",))
        return point_clouds.times_spec(self.spec, field, unit)

    def times(self, values: Array, unit: str) -> Times:
        """(n,) int64 ns of the values of `of_time`."""
        return point_clouds.nanoseconds(values, unit) if self.array else values

    def dtype(self, log: Log, topic: str, whole: FieldSpec) -> np.dtype[np.void]:
        """All fields of a point.

        Raises:
            UsageError: not points.
        """
        found = log.column_type(topic, whole).dtype
        if found.names is None:
            raise UsageError(f"{', '.join(self.spec.paths)} of {topic} are not points: they have no fields")
        return found

    def read(self, whole: FieldSpec, messages: Messages, row: int, fields: Sequence[str]) -> Fields:
        """(n,) some fields of the points of a message."""
        rows = np.array([row])
        if not self.array:
            (cloud,) = messages.take(whole, rows)
            return {field: cloud[field] for field in fields}
        named = {path.rpartition(".")[2]: path for path in self.spec.paths if _EACH in path}
        paths = {field: named.get(field, f"{self.array}{_EACH}{field}") for field in fields}
        return {field: messages.take(FieldSpec((path,)), rows)[0] for field, path in paths.items()}

    def whole(self, log: Log, topic: str, sample: Messages | None) -> FieldSpec:
        """Return the spec for points with all their fields, by the first of some clouds, or by the log's
        last one.
        """
        if self.array:
            return FieldSpec((self.array,))
        return point_clouds.settled(
            log, topic, FieldSpec(paths=self.spec.paths, adapter=point_clouds.NAME), sample
        )


@dataclass(frozen=True)
class PointTimes:
    """Times of points in a log's clouds.

    Attributes:
        field, unit: one of `TIME_UNITS` of logloom.io.logs.messages.point_clouds.
        is_absolute: whether times are since the Unix epoch, else since the message time.
        words: a description.
    """

    field: str
    unit: str
    is_absolute: bool
    words: str


@dataclass(frozen=True)
class CloudTimes:
    """The times of the measured points of one cloud.

    Attributes:
        low, high: the first and the last in the message.
        count: of points, at least 1.
        stamp: log time of the message, ns, on the clock of the topic.
    """

    low: float
    high: float
    count: int
    stamp: int

    @property
    def lasts(self) -> float:
        return self.high - self.low


_known: LruCache[PointTimes] = LruCache(1000, size=lambda found: 1)  # needed by each partition of a log


def times_in(log: Log, plan: RowPlan) -> dict[str, PointTimes]:
    """Return the times of points in a log, of each deskewed column with messages in the log.

    Raises:
        LogReadError: unknown times, or damaged clouds.
    """
    found: dict[str, PointTimes] = {}
    for column in plan.columns:
        info = log.summary.topics.get(column.topic)
        if column.deskew is None or info is None or len(log.last_message(column.topic)) == 0:
            continue
        try:
            found[column.name] = point_times(log, column)
        except UsageError as error:
            raise LogReadError(f"{log.summary.uris[0]}: column {column.name}: {error}") from error
    return found


def point_times(log: Log, column: ColumnPlan) -> PointTimes:
    """Infer the times of a column's points from the clouds of a log.

    The field is that of the recipe, or the first with a usual name; its unit that of the recipe, or the one
    in which clouds over the whole log last about a period of their topic. The result depends on the log only,
    so all its partitions use the same.

    Raises:
        UsageError: there is no such field.
        LogReadError: the times fit no unit or several; the clouds are damaged.
    """
    sampling = column.deskew, column.time, column.max_delay, column.sampling.offset
    key = (log.summary.messages_id, column.topic, column.spec, *sampling)
    if (known := _known.get(key)) is None:
        known = _point_times(log, column)
        if log.summary.content_id:
            _known.put(key, known)
    return known


def _point_times(log: Log, column: ColumnPlan) -> PointTimes:
    assert column.deskew is not None
    fields, within = PointFields(column.spec), column.deskew.pose.around
    whole, dtype, name = _fields_of(log, column.topic, fields, column.deskew.field)
    axes = [axis for axis in AXES if axis in (dtype.names or ())]
    reader = _CloudReader(log, column.topic, fields, whole, axes, name, column.shift)
    looked_at, periods = reader.sample()
    if not ((looked_at and column.deskew.unit) or any(cloud.lasts > 0 for cloud in looked_at)):
        looked_at = reader.search()
    if not looked_at:
        return PointTimes(name, column.deskew.unit or "ns", False, f"{name!r}, but no cloud has points")
    delay = column.max_delay
    reach = None if delay is None else delay + within + abs(column.sampling.offset)
    place = f"{log.summary.uris[0]}: {column.topic}: times of points in {name!r}"
    try:
        unit = column.deskew.unit or inferred_unit(looked_at, periods, within, reach)
        is_absolute = are_absolute(looked_at, unit, within, reach)
    except ValueError as error:
        raise LogReadError(f"{place}{error}") from error
    lasts = float(np.median([cloud.lasts for cloud in looked_at])) * point_clouds.TIME_UNITS[unit] / 1e6
    since = "since the Unix epoch" if is_absolute else "since the message time"
    text = "as set in the recipe" if column.deskew.unit else f"as sweeps of {lasts:.3g} ms show"
    return PointTimes(name, unit, is_absolute, f"{name!r} of points, {dtype[name]} in {unit} {since}, {text}")


def inferred_unit(
    looked_at: Sequence[CloudTimes], periods: Sequence[float], within: int, reach: int | None
) -> str:
    """Infer the unit of points' times, independent of the order of the clouds.

    Clouds are weighted by their points, so that a few small ones don't matter. It is the unit in which more
    than half are near their messages, as times since the Unix epoch; or in which more than half of those with
    several times last about a period.

    Args:
        periods: of the topic, in ns, the most reliable first; the next one is tried if no unit fits.
        within, reach: see `are_absolute`.

    Raises:
        ValueError: no unit fits; the message follows the name of the field.

    >>> ms = 10**6
    >>> full, short = CloudTimes(0, 99_800_000, 300, 0), CloudTimes(0, 400_000, 4, 0)
    >>> inferred_unit([full] * 48 + [short], [100 * ms], 10**9, 10**9)
    'ns'
    """
    for unit in point_clouds.TIME_UNITS:
        far = [c for c in looked_at if _is_far(c, unit, within) and reach is not None]
        if _are_most([c for c in far if _is_near_stamp(c, unit, reach)], looked_at):
            return unit
    several = [cloud for cloud in looked_at if cloud.lasts > 0]
    if all(cloud.count == 1 and not cloud.low for cloud in looked_at):
        return "ns"  # 0 is the message time in any unit
    ranges = [tuple(period * part for part in _OF_PERIOD) for period in periods] or [_ALONE]
    for shortest, longest in ranges:
        for unit, scale in point_clouds.TIME_UNITS.items():
            if _are_most([c for c in several if shortest < c.lasts * scale <= longest], several):
                return unit
    known = ", ".join(point_clouds.TIME_UNITS)
    remedy = f"write `unit: ` and one of {known}"
    if not several:
        raise ValueError(f" are equal in each cloud, so they show no unit; {remedy}")
    sweep = f"{periods[0] / 1e6:.4g} ms, the period of the topic," if periods else "10 ms to 250 ms"
    lasts = float(np.median([cloud.lasts for cloud in several]))
    raise ValueError(f" span {lasts:g} in a cloud, which is about {sweep} in no unit; {remedy}")


def are_absolute(looked_at: Sequence[CloudTimes], unit: str, within: int, reach: int | None) -> bool:
    """Decide whether points' times are since the Unix epoch, or else since the message time.

    Args:
        within: largest distance from the message time, ns, if times are relative to it.
        reach: largest distance from the log time if times are since the epoch; None for any.

    Raises:
        ValueError: most are neither.
    """
    far = [cloud for cloud in looked_at if _is_far(cloud, unit, within)]
    if not _are_most(far, looked_at):
        return False
    if reach is None or _are_most([c for c in far if _is_near_stamp(c, unit, reach)], looked_at):
        return True
    one = far[0]
    raise ValueError(
        f", in {unit}, are neither within {within / 1e9:g} s of 0 nor near their message "
        f"(log time {one.stamp}): a cloud has {one.low} to {one.high}. Write another `time`, its `unit`, "
        "or a longer `within`"
    )


def _is_far(cloud: CloudTimes, unit: str, within: int) -> bool:
    return max(abs(cloud.low), abs(cloud.high)) * point_clouds.TIME_UNITS[unit] > within


def _is_near_stamp(cloud: CloudTimes, unit: str, reach: int | None) -> bool:
    scale = point_clouds.TIME_UNITS[unit]
    off = max(abs(cloud.low * scale - cloud.stamp), abs(cloud.high * scale - cloud.stamp))
    return reach is not None and off <= reach


def _are_most(some: Sequence[CloudTimes], every: Sequence[CloudTimes]) -> bool:
    """Return whether some clouds have more than half of all points."""
    return 2 * sum(cloud.count for cloud in some) > sum(cloud.count for cloud in every)


def are_measured(points: Floats) -> NDArray[np.bool_]:
    """(n,) mask of measured points among (3, n); drivers write others as zeros or NaN, often without a
    time.
    """
    return np.logical_and(np.isfinite(points).all(axis=0), points.any(axis=0))


class _CloudReader:
    """Reads the times of the measured points of a topic's clouds, in small parts of the log."""

    def __init__(
        self,
        log: Log,
        topic: str,
        fields: PointFields,
        whole: FieldSpec,
        axes: Sequence[str],
        name: str,
        shift: int,
    ):
        """
        Args:
            shift: ns; what the recipe adds to the topic's times.
        """
        self._shift = shift
        self._log, self._topic, self._fields, self._axes, self._name = log, topic, fields, axes, name
        self._sizes, self._whole = ByteIndex(log.summary), whole

    def sample(self) -> tuple[list[CloudTimes], list[float]]:
        """Sample clouds over the whole log; also return candidates of the period: between neighbours, and
        on average.
        """
        windows = _windows(self._log.summary, self._topic)
        found: list[CloudTimes] = []
        times: list[NDArray[np.int64]] = []
        for start, stop in windows:
            messages = self._read(start, stop)
            most = max(_WINDOW_CLOUDS, _CLOUDS // len(windows))
            for row in np.unique(np.linspace(0, len(messages) - 1, most).astype(np.intp)) if messages else ():
                found += self._cloud(messages, int(row))
            times.append(np.unique(messages.log_time))
        info = self._log.summary.topics[self._topic]
        between = np.concatenate([own[1:] - own[:-1] for own in times])
        periods = [float(np.median(between))] if len(between) else []
        if info.num_messages > 1 and info.last > info.first:
            periods.append((info.last - info.first) / (info.num_messages - 1))
        return found, periods

    def search(self) -> list[CloudTimes]:
        """Search clouds backwards from the end of the log, until some have points of several times.

        The search goes back in growing steps: a lidar that is shut down may go on without points.
        """
        found: list[CloudTimes] = []
        info, reach = self._log.summary.topics[self._topic], _FIRST_REACH
        stop = info.last + 1
        while stop > info.first and sum(cloud.lasts > 0 for cloud in found) < _ENOUGH:
            start = max(info.first, stop - reach)
            while stop - start > 1 and self._sizes.between(start, stop) > _MAX_READ:
                start = (start + stop) // 2
            messages = self._read(start, stop)
            for row in range(len(messages) - 1, -1, -1):
                found += self._cloud(messages, row)
            stop, reach = start, 4 * (stop - start)
        return found

    def _read(self, start: int, stop: int) -> Messages:
        return self._log.read({self._topic: TopicRequest(start, stop, ("log",))})[self._topic]

    def _cloud(self, messages: Messages, row: int) -> Iterator[CloudTimes]:
        """Return the times of one cloud; None if no point was measured, or a build refuses the message."""
        try:
            found = self._fields.read(self._whole, messages, row, [*self._axes, self._name])
        except OF_CONTENT:
            return
        values = found[self._name]
        if len(self._axes) == len(AXES) and all(found[axis].ndim == 1 for axis in self._axes):
            values = values[are_measured(np.stack([found[a].astype(np.float64) for a in self._axes]))]
        if values.dtype.kind == "f":
            values = values[np.isfinite(values)]
        if len(values):
            yield CloudTimes(
                values.min().item(),
                values.max().item(),
                len(values),
                int(messages.log_time[row]) - self._shift,
            )


def _windows(summary: LogSummary, topic: str) -> list[tuple[int, int]]:
    """Yield ranges of log time, evenly spread over the bytes of a topic's part of a log, of a few clouds
    each.
    """
    info = summary.topics[topic]
    times = summary.chunk_times.reshape(-1, 2)
    has_some = np.flatnonzero((times[:, 1] >= info.first) & (times[:, 0] <= info.last))
    has_some = has_some[np.argsort(times[has_some, 0], kind="stable")]
    if not len(has_some):
        return [(info.first, info.last + 1)]
    starts, stops = times[has_some, 0], np.maximum(times[has_some, 0], times[has_some, 1]) + 1
    ends = np.cumsum(summary.chunk_bytes[has_some])
    length = _WINDOW_CLOUDS * ends[-1] / info.num_messages
    windows: list[tuple[int, int]] = []
    for chunk in np.unique(np.linspace(0, len(starts) - 1, _WINDOWS).astype(np.intp)):
        begin = ends[chunk - 1] if chunk else 0
        last = min(int(np.searchsorted(ends, begin + length)), len(starts) - 1)
        start, stop = int(starts[chunk]), int(stops[chunk : last + 1].max())
        if windows and start < windows[-1][1]:
            windows[-1] = windows[-1][0], max(stop, windows[-1][1])
        else:
            windows.append((start, stop))
    sizes = ByteIndex(summary)
    return [(start, _shortened(sizes, start, stop)) for start, stop in windows]


def _shortened(sizes: ByteIndex, start: int, stop: int) -> int:
    """Shorten a range so that its messages fit into memory."""
    while stop - start > 1 and sizes.between(start, stop) > _MAX_READ:
        stop = (start + stop) // 2
    return stop


def _fields_of(
    log: Log, topic: str, fields: PointFields, wanted: str
) -> tuple[FieldSpec, np.dtype[np.void], str]:
    """Find the fields of points, and the one with times: by the last cloud, or, as that may be empty, the
    first with fields.

    Raises:
        UsageError, LogReadError: no cloud has them; the message is about the last.
    """

    def found_in(sample: Messages | None) -> tuple[FieldSpec, np.dtype[np.void], str]:
        whole = fields.whole(log, topic, sample)
        dtype = fields.dtype(log, topic, whole)
        return whole, dtype, _time_field(dtype, wanted)

    try:
        return found_in(None)
    except OF_CONTENT:
        for start, stop in () if fields.array else _windows(log.summary, topic):
            sample = log.read({topic: TopicRequest(start, stop, ("log",))})[topic]
            with contextlib.suppress(*OF_CONTENT):
                return found_in(sample)
        raise


def _time_field(dtype: np.dtype[np.void], wanted: str) -> str:
    names: Sequence[str] = dtype.names or ()
    if wanted and wanted not in names:
        raise UsageError(f"points have no field {wanted!r}{near_to(wanted, names)}")
    usual = point_clouds.time_names(names)
    if not wanted and not usual:
        raise UsageError(
            f"points have no field with a usual name for times; they have {', '.join(names)}. Set `time: "
            "FIELD`; without times, nothing can be deskewed"
        )
    name = wanted or usual[0]
    if dtype[name].kind not in "iuf":
        raise UsageError(f"field {name!r} of points is {dtype[name]}, which is not a time")
    return name
