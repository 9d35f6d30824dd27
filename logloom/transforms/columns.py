"""A recipe after it met the logs: everything a worker needs to make rows, as small immutable values.

Here: `RowPlan` and its parts.
Elsewhere: the recipe as people write it (logloom.recipe), how it becomes a plan (logloom.transforms.resolve),
how a plan makes rows (logloom.transforms.rows).
Times are int64 nanoseconds since the Unix epoch, durations nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from logloom.io.logs.base import FieldSpec, TimeSource
from logloom.resample.policies import POLICIES, ResamplePolicy
from logloom.schema import ColumnType, Schema


@dataclass(frozen=True)
class Sampling:
    """Which messages a tick uses.

    Attributes:
        policy: one of `POLICIES`.
        tolerance: for policies that tolerate a distance.
        window: (a, b) for those that use a window: messages with t + a < m <= t + b.
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
        """How far before a tick a used message can lie; never negative."""
        if self.rules.uses == "window":
            return max(0, -self.window[0])
        return self.tolerance if self.rules.before else 0

    @property
    def forward(self) -> int:
        """How far after a tick a used message can lie; never negative."""
        if self.rules.uses == "window":
            return max(0, self.window[1])
        return self.tolerance if self.rules.after else 0


@dataclass(frozen=True)
class ColumnPlan:
    """A column that comes from a topic.

    Attributes:
        message_type: of the value in one message, before resampling.
        ctype: of the value in one row, after resampling and `dtype`.
        time, max_delay: as `TopicRequest` wants them.
        required: `missing: fail`, a log without the topic stops the build.
    """

    name: str
    topic: str
    spec: FieldSpec
    sampling: Sampling
    message_type: ColumnType
    ctype: ColumnType
    time: tuple[TimeSource, ...]
    max_delay: int | None
    required: bool = False


@dataclass(frozen=True)
class DerivedPlan:
    """A column computed from others.

    Attributes:
        function: "module:name".
        source_digest: of the function's source file; part of every unit's identity.
    """

    name: str
    function: str
    source_digest: str
    inputs: tuple[str, ...]
    ctype: ColumnType


@dataclass(frozen=True)
class RateClock:
    """Ticks t_k = floor(k * 10**9 / rate) for every integer k with t_k in the extent of the log."""

    rate: Decimal


@dataclass(frozen=True)
class TopicClock:
    """A tick for each distinct message time of a topic."""

    topic: str
    time: tuple[TimeSource, ...]
    max_delay: int | None


@dataclass(frozen=True)
class RowPlan:
    """All that rows depend on beside the log.

    Attributes:
        require: columns that must be available, else the tick is dropped.
        where: the filter's text, or "".
        rows, bytes: of a partition: ticks at most, and message bytes by the index.
    """

    clock: RateClock | TopicClock
    columns: tuple[ColumnPlan, ...]
    derived: tuple[DerivedPlan, ...]
    order: tuple[str, ...]  # all column names in recipe order
    require: tuple[str, ...] = ()
    where: str = ""
    rows: int = 1000
    bytes: int = 512 << 20

    @property
    def schema(self) -> Schema:
        types = {c.name: c.ctype for c in self.columns} | {c.name: c.ctype for c in self.derived}
        return Schema({name: types[name] for name in self.order}, tuple(c.name for c in self.columns))

    @property
    def period(self) -> int | None:
        """Of a rate clock, in ns, rounded down; None for a topic clock."""
        return int(10**9 / self.clock.rate) if isinstance(self.clock, RateClock) else None


@dataclass(frozen=True)
class Span:
    """A partition of one log: the ticks and messages with start <= time < stop.

    Attributes:
        start, stop: int64 ns; the first span of a log starts at `MIN_TIME`, the last stops at `MAX_TIME`.
        ticks: for a rate clock the range of k, else None (the topic's messages tell).
    """

    start: int
    stop: int
    ticks: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The partition's name within its log: stable, and unique among the log's spans."""
        if self.ticks is not None:
            return f"{self.ticks[0]}-{self.ticks[1]}"
        return f"{self.start}-{self.stop}"


def row_type(message: ColumnType, policy: str, dtype: str | None) -> ColumnType:
    """The type of a row's value, given the type of a message's value (design of types: see docs/rows.md).

    linear, slerp, angle, mean and sum give float64, count int64 (one number), window a leading ragged axis,
    the others the message's type; `dtype` then casts numbers.

    Raises:
        ValueError: the policy can't be applied to this type; says why.
    """
    numeric = message.kind == "array" and message.dtype.names is None and message.dtype.kind in "iufb"
    rules = POLICIES[policy]
    result = message.dtype if rules.result is None else np.dtype(rules.result)
    shape, kind = message.shape, message.kind
    if rules.takes == "nothing":
        shape, kind = (), "array"
    elif rules.takes != "any":
        if message.is_ragged:
            raise ValueError(f"{policy} can't be applied to {message}, whose length differs by message")
        if not numeric and not (rules.takes == "fixed" and message.kind == "array"):
            raise ValueError(f"{policy} needs numbers, got {message}")
        if rules.takes == "quaternions" and message.shape[-1:] != (4,):
            raise ValueError(f"{policy} needs quaternions (x, y, z, w), got {message}")
        if rules.uses == "window" and rules.reduce is None:
            shape = (None, *message.shape)
    if dtype is not None:
        if not numeric:
            raise ValueError(f"dtype casts numbers, got {message}")
        result = np.dtype(dtype)
    return ColumnType(result, shape, kind, message.unit, message.description)
