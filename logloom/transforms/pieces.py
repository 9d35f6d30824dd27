"""What is read of a log at a time: the ticks of a piece of a span, and the columns that topics give there.

Here: `Piece`, `Static` and `read_statics`.
Elsewhere: how spans are cut into pieces (logloom.transforms.spans), the choice of messages
(logloom.transforms.resample), whole rows (logloom.transforms.rows).
Times are int64 nanoseconds since the Unix epoch; ranges are half-open, but a span's ends may be open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from logloom.blocks import Ragged, Values, empty
from logloom.errors import LogloomError, UsageError
from logloom.io.logs.base import MAX_TIME, MIN_TIME, Log, LogSummary, Messages, Refusal, TopicRequest
from logloom.io.logs.redacted import RedactedLog, RedactedMessages, lie_in
from logloom.resample import kernels
from logloom.schema import NO_AGE
from logloom.transforms.columns import ColumnPlan, RateClock, RowPlan, Span, TopicClock
from logloom.transforms.resample import Indices, Mask, Times, cast_values, choose, shifted
from logloom.transforms.tally import Seen, see, within
from logloom.transforms.ticks import rate_ticks, topic_ticks

Column = tuple[Values, Times, Mask]  # values, ages and availabilities


@dataclass(frozen=True)
class Static:
    """A static column's value: of the topic's last message by position in the log.

    Attributes:
        value: one row of the column's type, or none where the log has no such message.
        log_time: of the message; ages are counted from it, since a static message may have no stamp.
    """

    value: Values
    log_time: int = 0


def read_statics(log: Log, plan: RowPlan) -> dict[str, Static]:
    """The static columns of a log, by name.

    Raises:
        LogReadError: a message doesn't fit its definition.
        LogloomError: a value doesn't fit the column's dtype.
    """
    return {c.name: _read_static(log, c) for c in plan.columns if c.sampling.rules.uses == "topic"}


def _read_static(log: Log, column: ColumnPlan) -> Static:
    messages = log.last_message(column.topic) if column.topic in log.summary.topics else None
    if messages is None or len(messages) == 0:
        return Static(empty(column.ctype))
    value = _checked(column, messages.take(column.spec, np.arange(1)))
    adapt = _adapter(column)
    with np.errstate(all="ignore"):
        value = cast_values(adapt(value) if adapt else value, column.ctype, column.name, messages.log_time)
    return Static(value, int(messages.log_time[0]))


class Piece:
    """What is read at a time: the ticks of a piece of a span, and the columns that come from topics."""

    def __init__(self, log: Log, plan: RowPlan, span: Span, statics: Mapping[str, Static]):
        self.span = span
        self.messages = log.read(requests_of(plan, log.summary, span))
        self.ticks, self.purged = self._ticks(log, plan)
        self.columns: dict[str, Sampled | Still] = {}
        uri = log.summary.uris[0] if log.summary.uris else ""
        for column in plan.columns:
            if column.sampling.rules.uses == "topic":
                self.columns[column.name] = Still(column, statics[column.name], self.ticks)
            else:
                messages = self.messages.get(column.topic)
                self.columns[column.name] = Sampled(column, messages, self.ticks, span, uri)

    def _ticks(self, log: Log, plan: RowPlan) -> tuple[Times, Mask]:
        """The ticks, and which of them lie in time that was erased from the log."""
        if isinstance(plan.clock, RateClock):
            ticks = rate_ticks(plan.clock.rate, *(self.span.ticks or (0, 0)))
            return ticks, lie_in(ticks, log.ranges if isinstance(log, RedactedLog) else ())
        clock = self.messages.get(plan.clock.topic)
        times = clock.time if clock is not None else np.empty(0, np.int64)
        erased = clock.erased_times if isinstance(clock, RedactedMessages) else np.empty(0, np.int64)
        both = np.concatenate([times, erased])
        ticks = topic_ticks(both[within(both, self.span)])
        return ticks, ~np.isin(ticks, times)

    def num_purged(self, topic: str) -> int:
        """How many messages of a topic, which the piece owns, were erased from the log."""
        messages = self.messages[topic]
        if not isinstance(messages, RedactedMessages):
            return 0
        refused = np.array([[r.log_time, r.num_messages] for r in messages.erased_refusals], np.int64)
        times, counts = refused.reshape(-1, 2).T
        own = within(messages.erased_times, self.span).sum() + counts[within(times, self.span)].sum()
        return int(own)


def requests_of(plan: RowPlan, summary: LogSummary, span: Span) -> dict[str, TopicRequest]:
    """The span itself and the halo of its columns, by topic."""
    rules: dict[str, tuple[object, ...]] = {}
    requests: dict[str, TopicRequest] = {}
    sources: list[ColumnPlan | TopicClock] = [c for c in plan.columns if c.sampling.rules.uses != "topic"]
    if isinstance(plan.clock, TopicClock):
        sources.append(plan.clock)
    for source in sources:
        if source.topic not in summary.topics:
            continue
        if rules.setdefault(source.topic, (source.time, source.max_delay)) != (source.time, source.max_delay):
            raise UsageError(f"topic {source.topic}: its columns and clock disagree about time or max_delay")
        start, stop = _reach(source, span) if isinstance(source, ColumnPlan) else (span.start, span.stop)
        known = requests.get(source.topic)  # nosec B113 # a dict
        if known is not None:
            start, stop = min(start, known.start), max(stop, known.stop)
        requests[source.topic] = TopicRequest(start, stop, source.time, source.max_delay)
    return requests


def _reach(column: ColumnPlan, span: Span) -> tuple[int, int]:
    """The message times that ticks of the span may use, and those that it owns."""
    sampling = column.sampling
    start, stop = span.start, span.stop
    if start != MIN_TIME:
        start = max(MIN_TIME, min(start, start - sampling.back - sampling.offset))
    if stop != MAX_TIME:
        stop = min(MAX_TIME, max(stop, stop + sampling.forward - sampling.offset))
    return start, stop


class Sampled:
    """A column of a piece that is resampled from messages."""

    def __init__(self, column: ColumnPlan, messages: Messages | None, ticks: Times, span: Span, uri: str):
        self._column, self._messages, self._span = column, messages, span
        none = np.empty(0, np.int64)
        self._times = none if messages is None else messages.time
        self.usable = np.arange(len(self._times))  # messages that may be used at all
        self._refused: tuple[Refusal, ...] = ()
        rotates = column.sampling.rules.takes == "quaternions" or _adapter(column) is not None
        if rotates and not column.message_type.is_ragged and messages is not None and len(messages):
            self._refuse_zero_norms(messages, uri)
        times = shifted(self._times[self.usable], column.sampling.offset)
        self._choice = choose(column.sampling, times, ticks)
        self._used = np.zeros(len(self._times), np.bool_)

    @property
    def available(self) -> Mask:
        return self._choice.available

    def used(self, tick: int) -> Indices:
        """The messages that a tick uses, in the order of their times."""
        return self.usable[self._choice.used(tick)]

    def rows(self, ticks: Indices) -> Column:
        """The column at some of the piece's ticks."""
        column, choice = self._column, self._choice.select(ticks)
        used = self.usable[choice.rows]
        if column.sampling.rules.takes == "nothing" or self._messages is None or len(used) == 0:
            values = empty(column.message_type)
        else:
            values = _checked(column, self._messages.take(column.spec, used))
        return choice.apply(values, column.ctype, column.name, _adapter(column))

    def keep(self, ticks: Indices) -> None:
        """Notes that the messages of these ticks stand in rows."""
        self._used[self.usable[self._choice.select(ticks).rows]] = True

    def seen(self) -> Seen:
        positions = np.empty(0, np.int64) if self._messages is None else self._messages.position
        seen = see(self._column.sampling, self._span, self._times, positions, self._used)
        return replace(seen, refused=self._refused)

    def _refuse_zero_norms(self, messages: Messages, uri: str) -> None:
        """Leaves out rotations that are none, before neighbours are chosen."""
        column = self._column
        values = _checked(column, messages.take(column.spec, self.usable))
        assert isinstance(values, np.ndarray)
        zero = kernels.has_zero_norm(values)
        own = np.flatnonzero(zero & within(self._times, self._span)).tolist()
        reason = f"column {column.name}: a quaternion of norm zero is no rotation"
        self.usable = np.flatnonzero(~zero)
        self._refused = tuple(
            Refusal(uri, -1, column.topic, int(messages.position[i]), int(messages.log_time[i]), reason)
            for i in own
        )


class Still:
    """A static column of a piece: one value at every tick."""

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
    """What is done to resampled values before the cast; only rotations are shown otherwise than resampled."""
    if column.spec.adapter != "rotation_matrix" or column.message_type.shape[-1:] != (4,):
        return None
    from logloom.io.logs.decoding.adapters import rotation_matrix

    def to_matrices(values: Values) -> Values:
        flat = values.values if isinstance(values, Ragged) else values
        quaternions = flat.reshape(-1, 4).astype(np.float64)
        # Squares of very small or large parts would leave the range of float64.
        largest = np.abs(quaternions).max(axis=1, initial=0)
        odd = ~((largest > 1e-100) & (largest < 1e100))
        quaternions[odd] = kernels.normalised(quaternions[odd])
        known = ~np.isnan(quaternions[:, 0])
        matrices = np.full((len(quaternions), 3, 3), kernels.NAN)
        matrices[known] = rotation_matrix(quaternions[known])
        matrices = matrices.reshape(*flat.shape[:-1], 3, 3)
        return Ragged(matrices, values.shapes) if isinstance(values, Ragged) else matrices

    return to_matrices


def _checked(column: ColumnPlan, values: Values) -> Values:
    """Values as a log gave them.

    Raises:
        LogloomError: they have another type than planned.
    """
    planned = column.message_type
    tail = values.tail if isinstance(values, Ragged) else values.shape[1:]
    if (values.dtype, tail, isinstance(values, Ragged)) != (planned.dtype, planned.tail, planned.is_ragged):
        raise LogloomError(
            f"column {column.name!r}: topic {column.topic} gives {values.dtype} of shape {tail} in this log, "
            f"planned was {planned}. Logs of one recipe must agree about the fields it selects."
        )
    return values
