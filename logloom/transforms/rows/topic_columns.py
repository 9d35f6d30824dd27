"""Read a piece of a span: its ticks, and the values of its columns at them.

A span is read piece by piece, so that memory is bounded. Here: `Piece`; `Static`, the value of a column that
is the same at every tick (a topic's last message), read by `read_static` and `read_statics`.
Elsewhere: splitting spans into pieces (logloom.transforms.rows.spans), the choice of messages
(logloom.transforms.rows.resample), whole rows (logloom.transforms.rows.row_stream).
Times are int64 nanoseconds since the Unix epoch; ranges are half-open, and a span's ends may be open.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values, empty, has_form, take
from logloom.errors import LogloomError, LogReadError, UsageError
from logloom.io.catalog.labels import LogLabels
from logloom.io.logs.interface import (
    MAX_TIME,
    MIN_TIME,
    FieldSpec,
    Log,
    LogSummary,
    Messages,
    OnError,
    Refusal,
    TopicRequest,
)
from logloom.io.logs.messages import joints
from logloom.io.logs.messages.compressed_images import check_decodes
from logloom.io.logs.messages.partial import take_partly
from logloom.io.logs.redaction import RedactedLog, RedactedMessages, lie_in
from logloom.io.video.frames import UNDECODABLE
from logloom.resample import kernels
from logloom.resample.angles import TurnEvidence
from logloom.resample.frame_tree import FOUND
from logloom.schema import NO_AGE
from logloom.transforms.rows.accounts import Seen, see, within
from logloom.transforms.rows.deskew import WHY, Deskewing
from logloom.transforms.rows.label_columns import Labelled
from logloom.transforms.rows.plan.column_warnings import column_turns
from logloom.transforms.rows.plan.row_plan import ColumnPlan, RateClock, RowPlan, Span, SyncClock, TopicClock
from logloom.transforms.rows.point_times import PointTimes
from logloom.transforms.rows.pose_lookups import Looked, SpanFrames
from logloom.transforms.rows.resample import Indices, Mask, Times, cast_values, choose, shifted
from logloom.transforms.rows.sync_clock import clock_requests, synced, widened
from logloom.transforms.rows.ticks import rate_ticks, topic_ticks
from logloom.transforms.rows.video_columns import VideoValues
from logloom.values import dataclass

Column = tuple[Values, Times, Mask]  # values, ages and availabilities


@dataclass(frozen=True)
class Static:
    """The value of a static column: that of the topic's last message by position in the log.

    Attributes:
        value: one row of the column's type, or none if the log has no such message.
        log_time: of the message; reference of ages, as a static message may have no stamp.
        refused: the last messages of the topic that can't be used.
    """

    value: Values
    log_time: int = 0
    refused: tuple[Refusal, ...] = ()


def read_statics(log: Log, plan: RowPlan, on_error: OnError = "fail") -> dict[str, Static]:
    """Read the static columns of a log, by name.

    Raises:
        LogReadError: a message doesn't fit its definition, and refusing isn't allowed.
        LogloomError: a value doesn't fit the column's dtype.
    """
    return {c.name: read_static(log, c, on_error) for c in plan.columns if c.sampling.rules.uses == "topic"}


def read_static(log: Log, column: ColumnPlan, on_error: OnError) -> Static:
    """Read one static column of a log; see `read_statics`."""
    known = column.topic in log.summary.topics
    messages = log.last_message(column.topic, column.spec) if known else None
    if messages is None:
        return Static(empty(column.ctype))
    refused = tuple(messages.refused)
    if len(messages) == 0:
        return Static(empty(column.ctype), refused=refused)
    value, _, reasons = _taken(column, messages, column.spec, np.arange(1), on_error)
    if value is None:
        uri = log.summary.uris[0]
        lost = _refusals(uri, column, messages, reasons)
        return Static(empty(column.ctype), refused=(*refused, *lost))
    value = _checked(column, value)
    adapt = _adapter(column)
    with np.errstate(all="ignore"):
        value = cast_values(adapt(value) if adapt else value, column.ctype, column.name, messages.log_time)
    return Static(value, int(messages.log_time[0]), refused)


class SpanValues(NamedTuple):
    """Values shared by all pieces of a span.

    Attributes:
        statics, videos: by column.
        frames: the trees for lookups of poses.
        labels: of the log, by column.
        point_times: of deskewed columns.
        on_error: how to treat messages that can't be decoded.
    """

    statics: Mapping[str, Static]
    frames: SpanFrames
    videos: Mapping[str, VideoValues]
    labels: Mapping[str, LogLabels] = {}
    point_times: Mapping[str, PointTimes] = {}
    on_error: OnError = "fail"


class Piece:
    """A part of a span that is read at a time: its ticks, and its columns of topics."""

    def __init__(self, log: Log, plan: RowPlan, span: Span, shared: SpanValues):
        self.span = span
        self.messages = log.read(requests_of(plan, log.summary, span))
        self.ticks, self.purged, matched = self._ticks(log, plan)
        self.columns: dict[str, Sampled | Still | Looked | Labelled] = {}
        uri = log.summary.uris[0] if log.summary.uris else ""
        for column in plan.columns:
            if column.sampling.rules.uses == "topic":
                self.columns[column.name] = Still(column, shared.statics[column.name], self.ticks)
            else:
                messages, video = self.messages.get(column.topic), shared.videos.get(column.name)
                wanted = matched.get(column.topic) if column.sampling.rules.by_clock else None
                point_times = shared.point_times.get(column.name)
                deskewing = Deskewing(column, shared.frames, point_times) if point_times else None
                self.columns[column.name] = sampled(
                    column, messages, self.ticks, span, uri, video, deskewing, wanted, shared.on_error
                )
        for looked in plan.transforms:
            at = self.columns[looked.at] if looked.at else None
            times = (at.age, at.available) if isinstance(at, Sampled) else None
            self.columns[looked.name] = Looked(looked, shared.frames, self.ticks, times)
        for labels in plan.labels:
            self.columns[labels.name] = Labelled(labels, shared.labels.get(labels.name), self.ticks)

    def _ticks(self, log: Log, plan: RowPlan) -> tuple[Times, Mask, Mapping[str, Times]]:
        """Return the ticks, a mask of those erased from the log, and the times of the clock's messages."""
        if isinstance(plan.clock, RateClock):
            ticks = rate_ticks(plan.clock.rate, *(self.span.ticks or (0, 0)))
            return ticks, lie_in(ticks, log.ranges if isinstance(log, RedactedLog) else ()), {}
        if isinstance(plan.clock, SyncClock):
            found = synced(log, plan, plan.clock, self.messages, self.span)
            wanted = _stated(log, found.ticks)
            ticks = found.ticks[wanted]
            matched = {topic: times[wanted] for topic, times in found.times.items()}
            return ticks, np.zeros(len(ticks), np.bool_), matched
        clock = self.messages.get(plan.clock.topic)
        times = clock.time if clock is not None else np.empty(0, np.int64)
        erased = clock.erased_times if isinstance(clock, RedactedMessages) else np.empty(0, np.int64)
        both = np.concatenate([times, erased])
        ticks = topic_ticks(both[within(both, self.span)])
        ticks = ticks[_stated(log, ticks)]
        return ticks, ~np.isin(ticks, times), {}

    def num_purged(self, topic: str) -> int:
        """Count the piece's own messages of a topic that were erased from the log."""
        messages = self.messages[topic]
        if not isinstance(messages, RedactedMessages):
            return 0
        refused = np.array([[r.log_time, r.num_messages] for r in messages.erased_refusals], np.int64)
        times, counts = refused.reshape(-1, 2).T
        own = within(messages.erased_times, self.span).sum() + counts[within(times, self.span)].sum()
        return int(own)


def _stated(log: Log, ticks: Times) -> Mask:
    """Select ticks of messages within the extent that a recipe states; all if it states none."""
    first, last = log.summary.recorded.stated
    return (ticks >= (MIN_TIME if first is None else first)) & (ticks <= (MAX_TIME if last is None else last))


def requests_of(plan: RowPlan, summary: LogSummary, span: Span) -> dict[str, TopicRequest]:
    """Return requests for a span and the halo of its columns, by topic."""
    requests: dict[str, TopicRequest] = {}
    for topic, request in _wanted(plan, summary, span):
        known = requests.get(topic)  # nosec B113 # a dict
        if known is not None and (known.time, known.max_delay) != (request.time, request.max_delay):
            raise UsageError(f"topic {topic}: its columns and clock disagree about time or max_delay")
        if known is not None:
            start, stop = min(request.start, known.start), max(request.stop, known.stop)
            request = replace(request, start=start, stop=stop)
        requests[topic] = request
    return requests


def _wanted(plan: RowPlan, summary: LogSummary, span: Span) -> Iterator[tuple[str, TopicRequest]]:
    """Return the requests of each column and of the clock, by topic."""
    for column in plan.columns:
        if column.sampling.rules.uses != "topic" and column.topic in summary.topics:
            yield column.topic, TopicRequest(*_reach(column, span), column.time, column.max_delay)
    clock = plan.clock
    if isinstance(clock, TopicClock) and clock.topic in summary.topics:
        yield clock.topic, TopicRequest(span.start, span.stop, clock.time, clock.max_delay)
    if isinstance(clock, SyncClock):
        yield from clock_requests(summary, clock, *widened(span, clock.margin)).items()


def _reach(column: ColumnPlan, span: Span) -> tuple[int, int]:
    """Return the message times that ticks of the span may use, and those in the span."""
    sampling = column.sampling
    start, stop = span.start, span.stop
    if start != MIN_TIME:
        start = max(MIN_TIME, min(start, start - sampling.back - sampling.offset))
    if stop != MAX_TIME:
        stop = min(MAX_TIME, max(stop, stop + sampling.forward - sampling.offset))
    return start, stop


class Sampled:
    """A resampled column of a piece."""

    def __init__(
        self,
        column: ColumnPlan,
        messages: Messages | None,
        ticks: Times,
        span: Span,
        uri: str,
        video: VideoValues | None = None,
        deskewing: Deskewing | None = None,
        wanted: Times | None = None,
        on_error: OnError = "fail",
    ):
        self._column, self._messages, self._span, self._uri = column, messages, span, uri
        self._video, self._deskewing, self._on_error = video, deskewing, on_error
        # rows that were made only to find the available ones
        self._made: tuple[Indices, Column] | None = None
        self._lacking: Counter[str] = Counter()
        none = np.empty(0, np.int64)
        self._times = none if messages is None else messages.time
        held = messages.has_value(column.spec) if messages is not None and len(messages) else None
        self.is_lacking = np.zeros(len(self._times), np.bool_) if held is None else ~held
        self.has_nan = np.zeros(len(self._times), np.bool_)
        if column.spec.skips_nan and messages is not None and held is not None:
            whole = messages.has_value(replace(column.spec, skips_nan=False))
            self.has_nan = ~held if whole is None else whole & ~held
        self.usable = np.flatnonzero(~self.is_lacking)  # messages that are usable at all
        self.refused: tuple[Refusal, ...] = ()
        rotates = column.sampling.rules.takes == "quaternions" or _adapter(column) is not None
        if rotates and not column.message_type.is_ragged and messages is not None and len(self.usable):
            self._refuse_zero_norms(messages)
        if video is not None and messages is not None and len(messages):
            self._refuse_packets(messages, video)
        times = shifted(self._times[self.usable], column.sampling.offset)
        self._choice = choose(column.sampling, times, ticks, wanted)
        self.is_used = np.zeros(len(self._times), np.bool_)

    @property
    def available(self) -> Mask:
        return self._choice.available

    @property
    def age(self) -> Times:
        return self._choice.age

    def used(self, tick: int) -> Indices:
        """Return the messages that a tick uses, in the order of their times."""
        return self.usable[self._choice.used(tick)]

    @property
    def may_lose(self) -> bool:
        """Whether a tick with a message may become unavailable once its value is made."""
        is_lenient = self._messages is not None and may_refuse(self._column, self._on_error)
        return self._video is not None or self._column.deskew is not None or is_lenient

    def made_available(self, ticks: Indices) -> Mask:
        """(n,) mask of the piece's ticks with a value, which is kept for `rows`."""
        self._made = ticks, self._make(ticks)
        return self._made[1][2]

    def rows(self, ticks: Indices) -> Column:
        """Return the column at some of the piece's ticks."""
        made, self._made = self._made, None
        if made is not None and np.isin(ticks, made[0]).all():
            if len(ticks) == len(made[0]):
                return made[1]
            values, ages, available = made[1]
            at = np.searchsorted(made[0], ticks)
            return take(values, at), ages[at], available[at]
        return self._make(ticks)

    def _make(self, ticks: Indices) -> Column:
        column, choice = self._column, self._choice.select(ticks)
        used = self.usable[choice.rows]
        if column.sampling.rules.takes == "nothing" or self._messages is None or len(used) == 0:
            return choice.apply(empty(column.message_type), column.ctype, column.name, _adapter(column))
        if self._video is not None:
            values, is_right = self._video.take(self._messages.position[used])
            reasons: Mapping[int, str] = dict.fromkeys(used[~is_right].tolist(), UNDECODABLE)
        else:
            found, is_right, reasons = _taken(column, self._messages, column.spec, used, self._on_error)
            values = empty(column.message_type) if found is None else _checked(column, found)
        if reasons:
            self._lose(self._messages, reasons)
            choice, read = self._choice.select(ticks), used[is_right]
            used = self.usable[choice.rows]  # without neighbours of lost ones that nothing else uses
            values = take(values, np.searchsorted(read, used))
        if column.deskew is not None and self._deskewing is None:
            raise LogReadError(f"{self._uri}: {column.topic}: messages have no times of points")
        if self._deskewing is not None:
            return self._deskewed(self._deskewing, ticks, used, values)
        return choice.apply(values, column.ctype, column.name, _adapter(column))

    def _deskewed(self, deskewing: Deskewing, ticks: Indices, used: Indices, values: Values) -> Column:
        """Return the column at some ticks with moved points; other ticks are unavailable.

        Args:
            values: of the messages `used`.
        """
        assert self._messages is not None
        column = self._column
        times, is_right, reasons = _taken(column, self._messages, deskewing.spec, used, self._on_error)
        if reasons:
            self._lose(self._messages, reasons)
            used, values = used[is_right], take(values, np.flatnonzero(is_right))
        choice = self._choice.select(ticks)
        clouds, ages, available = choice.apply(values, column.ctype, column.name)
        rows, lost = [], []
        for i, tick in enumerate(choice.ticks.tolist()):
            cloud = clouds[i]
            if available[i]:
                assert times is not None
                slot = int(np.searchsorted(used, self.usable[choice.used(i)[0]]))
                cloud, reason = deskewing.move(cloud, times[slot], tick - int(ages[i]), tick)
                if reason != FOUND:
                    self._lacking[WHY[reason]] += 1
                    lost.append(i)
                    cloud = cloud[:0]
            rows.append(cloud)
        if lost:
            ages, available = ages.copy(), available.copy()
            ages[lost], available[lost] = NO_AGE, False
            lo, hi = self._choice.lo.copy(), self._choice.hi.copy()
            lo[ticks[lost]] = hi[ticks[lost]] = 0
            self._choice = replace(self._choice, lo=lo, hi=hi)
        return Ragged.from_rows(rows, column.ctype), ages, available

    def lacking(self) -> Mapping[str, int]:
        """Count ticks with a cloud that can't be deskewed, by reason, among rows that were made."""
        return self._lacking

    def turns(self) -> tuple[TurnEvidence, ...]:
        """Return the evidence of angles that wrap in the piece's messages."""
        if self._messages is None:
            return ()
        rows, times = self.usable[self._choice.order], self._choice.times
        return column_turns(self._column, self._messages, rows, times, self._span)

    def keep(self, ticks: Indices) -> None:
        """Record that rows use the messages of these ticks."""
        self.is_used[self.usable[self._choice.select(ticks).rows]] = True

    def seen(self) -> Seen:
        positions = np.empty(0, np.int64) if self._messages is None else self._messages.position
        seen = see(self._column.sampling, self._span, self._times, positions, self.is_used)
        own = within(self._times, self._span)
        lacking, with_nan = int((self.is_lacking & own).sum()), int((self.has_nan & own).sum())
        return replace(seen, refused=self.refused, without_value=lacking, with_nan=with_nan)

    def _refuse_packets(self, messages: Messages, video: VideoValues) -> None:
        """Remove packets without a right picture, before neighbours are chosen."""
        reasons = video.refusals(messages.position)
        refused = np.array([bool(reason) for reason in reasons])
        own = np.flatnonzero(refused & within(self._times, self._span)).tolist()
        self.usable = self.usable[~refused[self.usable]]
        self.refused = _refusals(self._uri, self._column, messages, {i: reasons[i] for i in own})

    def _lose(self, messages: Messages, reasons: Mapping[int, str]) -> None:
        """Refuse chosen messages that turn out to have no value.

        Neighbours don't replace them: a tick must not depend on other decoded messages, so one that
        uses one or two messages becomes unavailable. Windows continue without them.

        Args:
            reasons: by the number of the message.
        """
        choice, rules = self._choice, self._column.sampling.rules
        at = np.flatnonzero(np.isin(self.usable[choice.order], list(reasons)))
        # number of these before each one
        before_lo, before_hi = np.searchsorted(at, choice.lo), np.searchsorted(at, choice.hi)
        lo, hi = choice.lo - before_lo, choice.hi - before_hi
        if rules.uses not in ("window", "tick"):
            has_lost = before_lo < before_hi
            lo, hi = np.where(has_lost, 0, lo), np.where(has_lost, 0, hi)
        order, times = np.delete(choice.order, at), np.delete(choice.times, at)
        self._choice = replace(choice, order=order, times=times, lo=lo, hi=hi)
        self.refused += _refusals(self._uri, self._column, messages, reasons)

    def _refuse_zero_norms(self, messages: Messages) -> None:
        """Remove rotations of norm zero, before neighbours are chosen."""
        column, every = self._column, self.usable
        found, is_read, _ = _taken(column, messages, column.spec, every, self._on_error)
        values = empty(column.message_type) if found is None else _checked(column, found)
        assert isinstance(values, np.ndarray)
        has_zero = np.zeros(len(every), np.bool_)  # not of those that can't be read, which none replaces
        has_zero[is_read] = kernels.has_zero_norm(values)
        self.usable = every[~has_zero]
        own = every[has_zero & within(self._times[every], self._span)].tolist()
        why = dict.fromkeys(own, "the norm of a quaternion is zero")
        self.refused = _refusals(self._uri, column, messages, why)


def sampled(
    column: ColumnPlan,
    messages: Messages | None,
    ticks: Times,
    span: Span,
    uri: str,
    video: VideoValues | None = None,
    deskewing: Deskewing | None = None,
    wanted: Times | None = None,
    on_error: OnError = "fail",
) -> Sampled:
    """Return a column of a piece, joint by joint if messages have some of the joints only."""
    if column.partial:
        return SampledJoints(column, messages, ticks, span, uri, on_error)
    return Sampled(column, messages, ticks, span, uri, video, deskewing, wanted, on_error)


class SampledJoints(Sampled):
    """A column of joints of which messages have some: each joint is a column of its own.

    A tick is available if all joints are; its age is that of the oldest.
    """

    def __init__(
        self,
        column: ColumnPlan,
        messages: Messages | None,
        ticks: Times,
        span: Span,
        uri: str,
        on_error: OnError = "fail",
    ):
        self._column, self._messages, self._span = column, messages, span
        self._times = np.empty(0, np.int64) if messages is None else messages.time
        columns = [_of_joint(column, name) for name in column.spec.names]
        found: list[Messages | None] = [None] * len(columns)
        if messages is not None and len(messages):
            known = _known_joints(column, messages)
            found = [
                _OneJoint(messages, known[:, place], column.message_type.tail[1:])
                for place in range(len(columns))
            ]
        self._joints = [
            Sampled(one, own, ticks, span, uri, on_error=on_error)
            for one, own in zip(columns, found, strict=True)
        ]
        self.usable = np.unique(np.concatenate([joint.usable for joint in self._joints]))

    @property
    def available(self) -> Mask:
        available: Mask = np.all([joint.available for joint in self._joints], axis=0)
        return available

    @property
    def age(self) -> Times:
        ages = np.maximum.reduce([joint.age for joint in self._joints])
        return np.where(self.available, ages, NO_AGE)

    def used(self, tick: int) -> Indices:
        rows = np.unique(np.concatenate([joint.used(tick) for joint in self._joints]))
        return rows[np.argsort(self._times[rows], kind="stable")]

    @property
    def may_lose(self) -> bool:
        return any(joint.may_lose for joint in self._joints)

    def made_available(self, ticks: Indices) -> Mask:
        available: Mask = np.all([joint.made_available(ticks) for joint in self._joints], axis=0)
        return available

    def rows(self, ticks: Indices) -> Column:
        parts = [joint.rows(ticks) for joint in self._joints]
        available = np.all([part[2] for part in parts], axis=0)
        values = empty(self._column.ctype, len(ticks))
        assert isinstance(values, np.ndarray)
        for place, (own, _, _) in enumerate(parts):
            assert isinstance(own, np.ndarray)
            values[available, place] = own[available, 0]
        ages = np.maximum.reduce([part[1] for part in parts])
        return values, np.where(available, ages, NO_AGE), available

    def lacking(self) -> Mapping[str, int]:
        return {}

    def turns(self) -> tuple[TurnEvidence, ...]:
        return ()

    def keep(self, ticks: Indices) -> None:
        whole = ticks[self.available[ticks]]
        for joint in self._joints:
            joint.keep(whole)

    def seen(self) -> Seen:
        positions = np.empty(0, np.int64) if self._messages is None else self._messages.position
        refused = tuple(dict.fromkeys(refusal for joint in self._joints for refusal in joint.refused))
        # Another joint may use a message that one joint refuses; it counts as refused.
        used = np.any([joint.is_used for joint in self._joints], axis=0)
        used &= ~np.isin(positions, [refusal.position for refusal in refused])
        own = within(self._times, self._span)
        lacking = np.all([joint.is_lacking for joint in self._joints], axis=0)
        with_nan = np.any([joint.has_nan for joint in self._joints], axis=0)
        return replace(
            see(self._column.sampling, self._span, self._times, positions, used),
            refused=refused,
            without_value=int((lacking & own).sum()),
            with_nan=int((with_nan & own).sum()),
        )


class _OneJoint:
    """The messages of a topic for a column of one joint, whose values are known; see `Messages`."""

    def __init__(self, messages: Messages, known: NDArray[np.float64], tail: tuple[int, ...]):
        """
        Args:
            known: (N, 1 + k) as `joints.EACH` describes a joint.
            tail: the shape of its k numbers.
        """
        self._messages, self._known, self._tail = messages, known, tail
        self.topic, self.refused = messages.topic, messages.refused
        self.time, self.log_time, self.position = messages.time, messages.log_time, messages.position

    def __len__(self) -> int:
        return len(self._messages)

    def take(self, spec: FieldSpec, rows: Indices) -> Values:
        if (self._known[rows, 0] != joints.HAS).any():
            return self._messages.take(spec, rows)  # raises what is wrong
        values: Values = self._known[rows, 1:].reshape(len(rows), 1, *self._tail)
        return values

    def has_value(self, spec: FieldSpec) -> Mask:
        is_held: Mask = self._known[:, 0] != joints.LACKS
        if spec.skips_nan:
            is_held &= (self._known[:, 0] != joints.HAS) | ~np.isnan(self._known[:, 1:]).any(axis=1)
        return is_held


def _known_joints(column: ColumnPlan, messages: Messages) -> NDArray[np.float64]:
    """(N, joints, 1 + k) what is known of each joint of messages, which are read once for all of them."""
    spec = replace(column.spec, adapter=joints.EACH, skips_nan=False)
    tail = column.message_type.tail
    known = np.full((len(messages), tail[0], 1 + math.prod(tail[1:])), joints.REFUSED)
    held = messages.has_value(spec)
    rows = np.arange(len(messages))
    if held is not None:
        known[~held, :, 0], rows = joints.LACKS, rows[held]
    values, is_read, _ = take_partly(lambda some: messages.take(spec, some), rows)
    if values is not None:
        known[rows[is_read]] = values
    return known


def _of_joint(column: ColumnPlan, name: str) -> ColumnPlan:
    """Return the column of one joint of a column of several."""
    of_message, of_row = (
        replace(ctype, shape=(1, *ctype.tail[1:]), names=(name,))
        for ctype in (column.message_type, column.ctype)
    )
    spec = replace(column.spec, names=(name,))
    return replace(column, spec=spec, message_type=of_message, ctype=of_row, partial=False)


class Still:
    """A static column of a piece: the same value at every tick."""

    def __init__(self, column: ColumnPlan, static: Static, ticks: Times):
        self._column, self._static, self._ticks = column, static, ticks
        self.available = np.full(len(ticks), len(static.value) > 0)

    def rows(self, ticks: Indices) -> Column:
        value, available = self._static.value, self.available[ticks]
        if len(value) == 0:
            return empty(self._column.ctype, len(ticks)), np.full(len(ticks), NO_AGE), available
        if isinstance(value, Ragged):
            repeated: Values = Ragged.from_rows([value[0]] * len(ticks), self._column.ctype)
        else:
            repeated = np.repeat(value, len(ticks), axis=0)
        return repeated, self._ticks[ticks] - self._static.log_time, available

    def keep(self, ticks: Indices) -> None:
        pass


def _adapter(column: ColumnPlan) -> Callable[[Values], Values] | None:
    """Return the conversion of resampled values before the cast; only rotations have one."""
    if column.spec.adapter != "rotation_matrix" or column.message_type.shape[-1:] != (4,):
        return None
    from logloom.io.logs.messages.adapters import rotation_matrix

    def to_matrices(values: Values) -> Values:
        flat = values.values if isinstance(values, Ragged) else values
        quaternions = flat.reshape(-1, 4).astype(np.float64)
        # Squares of very small or large parts would exceed the range of float64.
        largest = np.abs(quaternions).max(axis=1, initial=0)
        odd = ~((largest > 1e-100) & (largest < 1e100))
        quaternions[odd] = kernels.normalised(quaternions[odd])
        known = ~np.isnan(quaternions[:, 0])
        matrices = np.full((len(quaternions), 3, 3), kernels.NAN)
        matrices[known] = rotation_matrix(quaternions[known])
        matrices = matrices.reshape(*flat.shape[:-1], 3, 3)
        return Ragged(matrices, values.shapes) if isinstance(values, Ragged) else matrices

    return to_matrices


def may_refuse(column: ColumnPlan, on_error: OnError) -> bool:
    """Return whether a column refuses messages that can't be decoded; else they are an error of their log."""
    spec = column.spec
    is_lenient = column.decoded or spec.adapter in ("image", "joints") or spec.shape is not None
    return on_error == "salvage" or (on_error == "skip" and is_lenient)


def _taken(
    column: ColumnPlan, messages: Messages, spec: FieldSpec, rows: Indices, on_error: OnError
) -> tuple[Values | None, Mask, Mapping[int, str]]:
    """Take values of a column's messages, without those that it refuses; see `take_partly`.

    Raises:
        LogReadError: a message can't be decoded, and refusing isn't allowed.
    """
    if not may_refuse(column, on_error):
        return messages.take(spec, rows), np.ones(len(rows), np.bool_), {}

    def take_decoded(some: Indices) -> Values:
        values = messages.take(spec, some)
        for data in values if column.decoded else ():
            check_decodes(data.tobytes())
        return values

    return take_partly(take_decoded, rows)


def _refusals(
    uri: str, column: ColumnPlan, messages: Messages, reasons: Mapping[int, str]
) -> tuple[Refusal, ...]:
    """Return a column's refusals of messages, by their numbers."""
    return tuple(
        Refusal(
            uri,
            -1,
            column.topic,
            int(messages.position[row]),
            int(messages.log_time[row]),
            f"column {column.name}: {why.removeprefix(f'{uri}: ')}",
        )
        for row, why in sorted(reasons.items())
    )


def _checked(column: ColumnPlan, values: Values) -> Values:
    """Check the type of a log's values.

    Raises:
        LogloomError: they have another type than planned.
    """
    planned = column.message_type
    tail = values.tail if isinstance(values, Ragged) else values.shape[1:]
    is_cast = column.casts and values.dtype.kind in "iufb"
    if not (has_form(values, planned) and (is_cast or values.dtype == planned.dtype)):
        raise LogloomError(
            f"column {column.name!r}: topic {column.topic} has {values.dtype} of shape {tail} in this log, "
            f"planned was {planned}. Logs of one recipe must agree about selected fields."
        )
    return values
