"""The plan of rows: a recipe resolved for its logs, as small immutable values.

Here: `RowPlan` and its parts.
Elsewhere: the recipe (logloom.recipe), making a plan (logloom.transforms.rows.plan.resolve), making rows
(logloom.transforms.rows.row_stream). Times are int64 nanoseconds since the Unix epoch, durations nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal

import numpy as np

from logloom.io.logs.interface import FieldSpec, MessageTime
from logloom.io.logs.message_times import offset_of, reach_of
from logloom.resample.frame_tree import Extrapolation
from logloom.resample.policies import POLICIES, ResamplePolicy
from logloom.row_splits import COLUMN, RowSplit
from logloom.schema import STRING, ColumnType, Schema
from logloom.values import dataclass


@dataclass(frozen=True)
class Sampling:
    """The choice of messages for a tick.

    Attributes:
        policy: one of `POLICIES`.
        tolerance: for policies with a tolerance; for `matched` the largest spread of a set.
        window: (a, b) for those with a window: messages with t + a < m <= t + b.
        offset: added to the stamp of every message of the column to give its message time.
    """

    policy: str
    tolerance: int = 0
    window: tuple[int, int] = (0, 0)
    offset: int = 0

    @property
    def rules(self) -> ResamplePolicy:
        return POLICIES[self.policy]

    @property
    def back(self) -> int:
        """How far before a tick a used message can be; never negative."""
        if self.rules.uses == "window":
            return max(0, -self.window[0])
        return self.tolerance if self.rules.before else 0

    @property
    def forward(self) -> int:
        """How far after a tick a used message can be; never negative."""
        if self.rules.uses == "window":
            return max(0, self.window[1])
        return self.tolerance if self.rules.after else 0


@dataclass(frozen=True)
class TransformPlan:
    """A column of poses of one frame in another.

    Attributes:
        source, target: p_target = pose(p_source); "" if a topic's messages define the frame.
        topics, static: of transforms, those of `static` without times.
        reach: how far a lookup reaches beyond a frame's transforms.
        at: the column whose message time to look up; "" for the tick.
        form: one of `FORMS` of logloom.transforms.rows.pose_lookups.
        max_delay: the largest distance of a transform's stamp from its message's log time.
        source_topic, target_topic: whose last message defines the frame.
        around: ns; margin around the time of `at`, or the tick, in which poses are looked up as well.
        offsets: ns; by topic, what is added to the stamps of its transforms.
    """

    name: str
    source: str
    target: str
    topics: tuple[str, ...]
    static: tuple[str, ...]
    reach: Extrapolation
    at: str
    form: str
    ctype: ColumnType
    max_delay: int | None
    source_topic: str = ""
    target_topic: str = ""
    around: int = 0
    offsets: tuple[tuple[str, int], ...] = ()

    @property
    def by_odometry(self) -> bool:
        """Return whether a topic of transforms also names the target: it is odometry, of some frame."""
        return self.target_topic in self.topics

    @property
    def words(self) -> str:
        """Describe the pose: `a in b`."""
        source = self.source or f"the frame of {self.source_topic}"
        return f"{source} in {self.target or f'the frame of {self.target_topic}'}"


@dataclass(frozen=True)
class DeskewPlan:
    """Plan of moving the points of a column.

    Attributes:
        pose: of the lidar in a static frame, up to `around` from the column's message times.
        field, unit: of points, with their times; in one of `TIME_UNITS` of
            logloom.io.logs.messages.point_clouds. "" to use those of each log's own clouds, see
            `logloom.transforms.rows.point_times`.
        to: "tick", "start" or "end": the time as of which points are moved.
        semantics: incremented when the result changes for the same log and recipe.
    """

    pose: TransformPlan
    field: str
    unit: str
    to: str
    semantics: int = 1


@dataclass(frozen=True)
class ColumnPlan:
    """A column of a topic.

    Attributes:
        message_type: of the value in one message, before resampling.
        ctype: of the value in one row, after resampling and `dtype`.
        time, max_delay: see `TopicRequest`.
        required: `missing: fail`, a log without the topic stops the build.
        deskew: how to move points, if at all.
        decoded: whether an output decodes its bytes, so that pictures must decode.
        partial: whether each joint is resampled alone, from messages that have it.
        casts: whether `dtype` casts numbers, so that those of messages may have another type in each log than
            `message_type`, which has that of `dtype`.
    """

    name: str
    topic: str
    spec: FieldSpec
    sampling: Sampling
    message_type: ColumnType
    ctype: ColumnType
    time: tuple[MessageTime, ...]
    max_delay: int | None
    required: bool = False
    deskew: DeskewPlan | None = None
    decoded: bool = False
    partial: bool = False
    casts: bool = False

    def fits(self, message: ColumnType) -> bool:
        """Return whether messages of a log are of the planned type, or are cast to it."""
        planned = self.message_type
        dtype = planned.dtype if self.casts and is_numeric(message) else message.dtype
        return replace(message, dtype=dtype, unit=planned.unit, description=planned.description) == planned

    @property
    def shift(self) -> int:
        """What the recipe adds to the times of the topic, ns; without the column's own offset."""
        return offset_of(self.time)


@dataclass(frozen=True)
class LabelPlan:
    """A column of labels, see `logloom.recipe.LabelColumn`.

    Attributes:
        many: a row has all labels of one time, else the only one.
        ctype: of a row.
    """

    name: str
    tolerance: int
    many: bool
    ctype: ColumnType

    @property
    def item(self) -> ColumnType:
        """The type of one label."""
        shape = self.ctype.shape[1:] if self.many else self.ctype.shape
        return replace(self.ctype, shape=shape, unit="", description="")

    @property
    def sampling(self) -> Sampling:
        """The choice of labels for a tick."""
        return Sampling("nearest", self.tolerance)


@dataclass(frozen=True, order=True)
class Dependency:
    """A dependency of rows apart from logs and recipe; part of every unit's identity.

    Attributes:
        kind: "module", "package", or "file" for one in the recipe.
        name: independent of the machine: a module's dotted name, a file as in the recipe.
        content: BLAKE3 of the bytes in hex; of an installed package its version.
    """

    kind: str
    name: str
    content: str


def labelled(dependencies: Iterable[Dependency]) -> dict[str, str]:
    """Return contents of dependencies by kind and name, for manifests."""
    return {f"{one.kind} {one.name}": one.content for one in sorted(set(dependencies))}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the dependencies that differ between two manifests, by kind and name."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


@dataclass(frozen=True)
class DerivedPlan:
    """A column computed from others.

    Attributes:
        function: "module:name".
        dependencies: of the function, sorted.
    """

    name: str
    function: str
    dependencies: tuple[Dependency, ...]
    inputs: tuple[str, ...]
    ctype: ColumnType


@dataclass(frozen=True)
class RateClock:
    """Ticks t_k = floor(k * 10**9 / rate) for every integer k with t_k in the extent of the log."""

    rate: Decimal


@dataclass(frozen=True)
class TopicClock:
    """One tick for each distinct message time of a topic."""

    topic: str
    time: tuple[MessageTime, ...]
    max_delay: int | None


@dataclass(frozen=True)
class SyncClock:
    """One tick for each matched set of messages, one of each topic; see `logloom.resample.sync`.

    Attributes:
        times: by topic, the sources of its message times.
        stamp: the topic whose messages' times are the ticks.
        within: the largest time between two messages of a set; 0 if their times must be equal.
    """

    topics: tuple[str, ...]
    times: tuple[tuple[MessageTime, ...], ...]
    stamp: str
    within: int
    max_delay: int | None

    @property
    def margin(self) -> int:
        """The initial margin around a stretch of ticks in which messages are read; mostly it suffices."""
        return 4 * self.within + 1

    @property
    def reach(self) -> int | None:
        """The largest distance of a message time from its log time; None for any."""
        reaches = [reach_of(own, self.max_delay) for own in self.times]
        return None if self.max_delay is None else max(reach for reach in reaches if reach is not None)


def clock_topics(clock: RateClock | TopicClock | SyncClock) -> tuple[str, ...]:
    """Return the topics whose messages define a clock's ticks."""
    if isinstance(clock, RateClock):
        return ()
    return (clock.topic,) if isinstance(clock, TopicClock) else clock.topics


@dataclass(frozen=True)
class RowPlan:
    """Everything that rows depend on apart from the log.

    Attributes:
        require: columns that must be available; other ticks are dropped.
        where: the filter's text, or "".
        rows, bytes: limits of a partition: ticks, and message bytes according to the index.
        split: how to split rows; None if whole logs are split, or nothing.
    """

    clock: RateClock | TopicClock | SyncClock
    columns: tuple[ColumnPlan, ...]
    derived: tuple[DerivedPlan, ...]
    order: tuple[str, ...]  # all column names in recipe order
    require: tuple[str, ...] = ()
    where: str = ""
    rows: int = 1000
    bytes: int = 512 << 20
    transforms: tuple[TransformPlan, ...] = ()
    labels: tuple[LabelPlan, ...] = ()
    split: RowSplit | None = None

    @property
    def schema(self) -> Schema:
        sampled = {c.name: c.ctype for c in self.columns} | {c.name: c.ctype for c in self.transforms}
        sampled |= {c.name: c.ctype for c in self.labels}
        types = sampled | {c.name: c.ctype for c in self.derived}
        split = {COLUMN: STRING} if self.split is not None else {}
        return Schema({name: types[name] for name in self.order} | split, tuple(sampled))

    @property
    def dependencies(self) -> dict[str, str]:
        """Dependencies of columns apart from logs and recipe: contents by kind and name."""
        return labelled(one for column in self.derived for one in column.dependencies)

    @property
    def lookups(self) -> tuple[TransformPlan, ...]:
        """All columns that look up poses, by name: columns of poses, and deskewed clouds."""
        return (*self.transforms, *(c.deskew.pose for c in self.columns if c.deskew is not None))

    @property
    def period(self) -> int | None:
        """Period of a rate clock, in ns, rounded down; None if messages are the clock."""
        return int(10**9 / self.clock.rate) if isinstance(self.clock, RateClock) else None


@dataclass(frozen=True)
class Span:
    """A partition of one log: the ticks and messages with start <= time < stop.

    Attributes:
        start, stop: int64 ns; the first span of a log starts at `MIN_TIME`, the last stops at `MAX_TIME`.
        ticks: for a rate clock the range of k, else None.
    """

    start: int
    stop: int
    ticks: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The partition's name within its log: stable, and unique among its partitions."""
        if self.ticks is not None:
            return f"{self.ticks[0]}-{self.ticks[1]}"
        return f"{self.start}-{self.stop}"


def is_numeric(kind: ColumnType) -> bool:
    """Return whether values are numbers, which `dtype` casts."""
    return kind.kind in ("array", "lists") and kind.dtype.names is None and kind.dtype.kind in "iufb"


def row_type(message: ColumnType, policy: str, dtype: str | None, strings: int = 32) -> ColumnType:
    """Return the type of a row's value from that of a message's value (see docs/rows.md).

    linear, slerp, angle, mean and sum give float64, count int64 (one number), window and all add a leading
    ragged axis, the others the message's type; `dtype` then casts numbers.

    Args:
        message: the type of a message's value.
        policy: a name of `POLICIES`.
        dtype: type to cast numbers to; None keeps theirs.
        strings: characters kept of each text if a row has several.

    Raises:
        ValueError: the policy can't be applied to this type.
    """
    numeric = is_numeric(message)
    rules = POLICIES[policy]
    result = message.dtype if rules.result is None else np.dtype(rules.result)
    shape, kind = message.shape, message.kind
    if rules.takes == "nothing":
        shape, kind = (), "array"
    elif rules.gathers and message.kind == "string":
        result, kind = np.dtype(f"<U{strings}"), "array"
    elif rules.takes != "any":
        if message.is_ragged:
            raise ValueError(f"{policy} can't be applied to {message}, whose length differs by message")
        if not numeric and not (rules.takes == "fixed" and message.kind == "array"):
            raise ValueError(f"{policy} needs numbers, got {message}")
        if rules.takes == "quaternions" and message.shape[-1:] != (4,):
            raise ValueError(f"{policy} needs quaternions (x, y, z, w), got {message}")
        if rules.gathers:
            shape = (None, *message.shape)
    if dtype is not None:
        if not numeric:
            raise ValueError(f"dtype casts numbers, got {message}")
        result = np.dtype(dtype)
    names = message.names if rules.takes != "nothing" else ()
    return ColumnType(result, shape, kind, message.unit, message.description, names=names)
