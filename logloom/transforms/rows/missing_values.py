"""Columns available in few rows: how many, the likely cause, and a remedy.

Here: `Availability` of a column in some logs, its causes (`cause_of`), warnings (`availability_warnings`).
Elsewhere: counting rows of a build (logloom.transforms.build.commit) and of a sample
(logloom.pipelines.plan.column_warnings); messages and poses that can't be used, of which a build warns by log
(logloom.transforms.rows.plan.column_warnings).

    available in < 1 % of the rows                           a warning, with the likeliest cause
    in < 50 %, as its period exceeds its tolerance or window a warning
    otherwise                                                none: sensors stop, and topics are rare
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from logloom.errors import OF_CONTENT, LogloomError
from logloom.io.catalog.labels import LogLabels
from logloom.io.logs.interface import FieldSpec, Log, LogSummary, MessageTime, TopicRequest, source_of
from logloom.io.logs.message_times import offset_of
from logloom.io.logs.messages import joints
from logloom.io.logs.messages.ros.languages import definition_of
from logloom.io.storage.metadata import Count, Text
from logloom.recipe.values import duration_text
from logloom.text import counted, human_duration, near_to, nearest
from logloom.transforms.rows.notices import BuildWarning
from logloom.transforms.rows.plan.row_plan import (
    ColumnPlan,
    LabelPlan,
    RowPlan,
    SyncClock,
    TopicClock,
    TransformPlan,
)
from logloom.values import dataclass

SELDOM = 100  # a column is seldom available if it is in less than one row of so many
_INTERVALS = 20  # that are read to find the period of a topic
_READ = 100  # messages that are looked at for values
_SHARE = 0.5  # of the rows that a cause must explain


@dataclass(frozen=True)
class Cause:
    """Why a column has no value in rows of a log, or of several.

    Attributes:
        kind: "absent", "stray", "refused", "lacking", "clock", "tolerance", "window", "exact", "single",
            "silent", "labels", "sparse", "pose", "input" or "unknown".
        words: for people, without a remedy.
        remedy: what to do.
        line: of a recipe; "" if none helps.
        log: the first log with this cause.
        missing: rows without a value in the logs with this cause.
        logs: their number.
    """

    kind: Text
    words: Text
    remedy: Text
    line: Text = ""
    log: Text = ""
    missing: Count = 0
    logs: Count = 1


@dataclass(frozen=True)
class Availability:
    """In how many rows of some logs a column is available.

    Attributes:
        topic: "" for columns of none.
        rows: of the logs; if rows require the column, the ticks at which it decides.
        causes: of logs in which it isn't available in most rows.
    """

    column: Text
    topic: Text
    rows: Count
    available: Count
    causes: tuple[Cause, ...] = ()
    logs: Count = 1

    @property
    def is_low(self) -> bool:
        """Whether it is missing in most rows."""
        return 2 * self.available < self.rows


def availability_of(
    log: Log,
    log_id: str,
    plan: RowPlan,
    counts: Mapping[str, tuple[int, int]],
    labels: Mapping[str, LogLabels],
    known: Mapping[str, Cause] | None = None,
) -> tuple[Availability, ...]:
    """Return the availability of the columns of a log, with a cause of each that is missing in most rows.

    Args:
        counts: by column, rows and those of them in which it is available.
        labels: of the log, by column.
        known: causes that were seen, by column.
    """
    topics = {column.name: column.topic for column in plan.columns}
    of_joints = {column.name for column in plan.columns if column.spec.adapter == joints.NAME}
    found = []
    for name, (rows, available) in counts.items():
        one = Availability(name, topics.get(name, ""), rows, available)
        if one.is_low:
            cause = (known or {}).get(name)
            if cause is None or name in of_joints:  # whose messages show which joint is missing
                own = cause_of(log, log_id, plan, name, labels.get(name))
                cause = own if cause is None or own.kind == "lacking" else cause
            one = replace(one, causes=(replace(cause, log=log_id, missing=rows - available),))
        found.append(one)
    return tuple(found)


def merged(parts: Iterable[Iterable[Availability]]) -> tuple[Availability, ...]:
    """Sum availabilities by column, and their causes by kind; of each kind, the log first by name remains."""
    columns: dict[str, list[Availability]] = {}
    for part in parts:
        for one in part:
            columns.setdefault(one.column, []).append(one)
    return tuple(
        Availability(
            name,
            found[0].topic,
            sum(one.rows for one in found),
            sum(one.available for one in found),
            _merged_causes(cause for one in found for cause in one.causes),
            sum(one.logs for one in found),
        )
        for name, found in sorted(columns.items())
    )


def _merged_causes(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    kinds: dict[str, list[Cause]] = {}
    for cause in causes:
        kinds.setdefault(cause.kind, []).append(cause)
    return tuple(
        replace(
            min(found, key=lambda one: (one.log, one.words)),
            missing=sum(one.missing for one in found),
            logs=sum(one.logs for one in found),
        )
        for _, found in sorted(kinds.items())
    )


def availability_warnings(
    found: Iterable[Availability], *, sampled: bool = False, is_first: bool = True
) -> Iterator[BuildWarning]:
    """Warn of columns that are available in few rows.

    Args:
        sampled: the rows are a sample.
        is_first: the rows are all of the version. If others stay, a topic that new logs lack isn't doubtful;
            nor are few labels that match.
    """
    for one in found:
        if not one.is_low:
            continue
        cause = max(one.causes, key=lambda cause: cause.missing)
        is_short = cause.kind in ("tolerance", "window") and 2 * cause.missing > one.rows - one.available
        if SELDOM * one.available >= one.rows and not is_short:
            continue
        which = f"{one.rows:,} sampled rows" if sampled else counted(one.rows, "row")
        if one.logs > 1:
            others = f" and {cause.logs - 1:,} more" if cause.logs > 1 else ""
            which += f" of {one.logs:,} logs (as in {cause.log}{others})"
        share = _percent(one.available, one.rows)
        is_usual = one.available > 0 if cause.kind == "sparse" else cause.kind == "absent" and not is_first
        yield BuildWarning(
            f"column {one.column} is available in {share} of {which}: {cause.words}; {cause.remedy}",
            is_doubtful=not is_usual,
            kind=cause.kind,
            column=one.column,
            topic=one.topic,
            log=cause.log,
            line=cause.line,
        )


def _percent(part: int, whole: int) -> str:
    """
    >>> _percent(0, 300), _percent(1, 300), _percent(100, 300)
    ('0 %', '0.3 %', '33 %')
    """
    share = 100 * part / whole
    return f"{share:.1g} %" if 0 < share < 1 else f"{int(share)} %"


# --- causes ---------------------------------------------------------------------------------------------


def cause_of(log: Log, log_id: str, plan: RowPlan, name: str, labels: LogLabels | None = None) -> Cause:
    """Find the likeliest reason why a column is missing in most rows of a log; reads a few messages at most.

    Args:
        labels: of the log, for a column of labels.
    """
    for column in plan.columns:
        if column.name == name:
            with contextlib.suppress(LogloomError, OSError, *OF_CONTENT):
                return _of_topic(log, log_id, plan, column)
            return _unknown(column.topic)
    for labelled in plan.labels:
        if labelled.name == name:
            return _of_labels(log.summary, log_id, labelled, labels)
    return next((_of_pose(pose) for pose in plan.transforms if pose.name == name), _unknown(name))


def refused(topic: str, number: int, messages: int, reason: str) -> Cause:
    """The cause of a column most of whose messages are refused."""
    words = f"{number:,} of {counted(messages, 'message')} of {topic} can't be used: {reason}"
    return Cause("refused", words, "`logloom doctor LOG` shows where")


def without_value(topic: str, number: int, messages: int, with_nan: int = 0) -> Cause:
    """The cause of a column of which most messages have no value."""
    words = f"{number:,} of {counted(messages, 'message')} of {topic} have no value for it"
    if with_nan:
        words += f" ({with_nan:,} have NaN, and the recipe has `nan: unavailable`)"
    return Cause("lacking", words, "correct the column's `field`, or leave the column out")


def pose_lost(pose: TransformPlan, lacking: Mapping[str, int]) -> Cause:
    """The cause of a column most of whose poses can't be looked up."""
    reason = max(sorted(lacking), key=lambda one: lacking[one])
    if pose.at and reason == f"no {pose.at}":
        return _of_pose(pose)
    words = f"there is no pose of {pose.words}: {reason}"
    return Cause("pose", words, "`logloom info LOG --tree` draws the frames")


def _of_pose(pose: TransformPlan) -> Cause:
    if pose.at:
        words = f"it is looked up at the time of {pose.at}, which isn't available"
        return Cause("input", words, f"see {pose.at}")
    words = f"there is no pose of {pose.words}"
    return Cause("pose", words, "`logloom info LOG --tree` draws the frames")


def _unknown(topic: str) -> Cause:
    words = f"no value of {topic} is near the time of its rows"
    return Cause("unknown", words, "`logloom head ROOT --why` shows the nearest messages of a row")


def _of_topic(log: Log, log_id: str, plan: RowPlan, column: ColumnPlan) -> Cause:
    summary, topic = log.summary, column.topic
    info = summary.topics.get(topic)
    if info is None or not info.num_messages:
        known = sorted(name for name, other in summary.topics.items() if other.num_messages)
        names = (topic, *getattr(log, "other_topics", {}).get(topic, ()))
        words = f"log {log_id} has no message of {' or '.join(names)}"
        if len(names) == 1:
            remedy = f"correct its topic or leave the column out{near_to(topic, known, most=0)}"
            return Cause("absent", words, remedy)
        own = next(filter(None, (nearest(name, known) for name in names)), "the topic that it has")
        return Cause("absent", words, f"add {own} to `any` or leave the column out")
    if not info.num_recorded:
        words = f"all messages of {topic} are outside the recording"
        return Cause("stray", words, "`logloom doctor LOG` shows their times")
    if found := _of_joints(log, column):
        return found
    if column.sampling.rules.uses == "topic":
        words = f"the last message of {topic} can't be used"
        return Cause("refused", words, "`logloom doctor LOG` shows why")
    if found := _of_clocks(log, plan, column):
        return found
    mean = (info.last - info.first) // max(1, info.num_recorded - 1)
    period, longest = _intervals(log, topic, mean) if mean else (0, 0)
    if found := _of_period(column, period, longest):
        return found
    first, last = _extent(summary, clock_of(plan)[0])
    if info.num_recorded == 1:
        words = f"{topic} has one message in {human_duration(last - first)}"
        remedy = "write resample: static, which uses it for all rows"
        return Cause("single", words, remedy, "resample: static")
    if _overlap(column, (info.first, info.last), (first, last)) < _SHARE:
        return _of_edges(column, info.first - first, last - info.last)
    if mean > 2 * period:
        return _silent(column, "is silent for most of the log")
    return _unknown(topic)


def clock_of(plan: RowPlan) -> tuple[str, tuple[MessageTime, ...]]:
    """Return the topic whose message times are the ticks, and their sources; "" for a rate clock."""
    clock = plan.clock
    if isinstance(clock, TopicClock):
        return clock.topic, clock.time
    if isinstance(clock, SyncClock):
        return clock.stamp, clock.times[clock.topics.index(clock.stamp)]
    return "", ()


def _extent(summary: LogSummary, of_clock: str) -> tuple[int, int]:
    """Return the log times between which a log has ticks, by its index."""
    info = summary.topics.get(of_clock)
    return (summary.first, summary.last) if info is None else (info.first, info.last)


def _of_joints(log: Log, column: ColumnPlan) -> Cause | None:
    """Look for joints in some messages from the middle of a topic; None if one has all of the column's."""
    topic, spec, info = column.topic, column.spec, log.summary.topics[column.topic]
    if spec.adapter != joints.NAME:
        return None
    reach = (info.last - info.first) // max(1, info.num_recorded - 1) * _READ // 2
    middle = (info.first + info.last) // 2
    messages = log.read({topic: TopicRequest(middle - reach, middle + reach + 1, ("log",), 0)})[topic]
    has_value = messages.has_value(spec)
    if has_value is None or has_value.any() or not len(messages):
        return None
    none = f"none of {counted(len(messages), 'message')} of {topic} that were read has"
    root = definition_of(log, topic)
    assert root is not None
    of_names = FieldSpec((joints.paths(spec, root)["names"],), strings=joints.NAME_LENGTH)
    lists = joints.distinct_lists(messages.take(of_names, np.arange(len(messages))))
    known = list(dict.fromkeys(name for names in lists for name in names))
    if lacking := [name for name in spec.names if name not in known]:
        return Cause(
            "lacking", f"{none} a joint {lacking[0]!r}", f"correct `names`{near_to(lacking[0], known)}"
        )
    if any({*spec.names} <= {*names} for names in lists):
        words = f"{none} values of its joints in {spec.paths[0]}"
        return Cause("lacking", words, "correct its field, or leave the column out")
    line = "partial: true"
    return None if column.partial else Cause("lacking", f"{none} all of its joints", f"write {line}", line)


def _overlap(column: ColumnPlan, own: tuple[int, int], ticks: tuple[int, int]) -> float:
    """Return the share of a range of ticks that messages between two times reach."""
    sampling = column.sampling
    first, last = own[0] - sampling.forward, own[1] + sampling.back
    return max(0, min(last, ticks[1]) - max(first, ticks[0])) / max(1, ticks[1] - ticks[0])


def _of_clocks(log: Log, plan: RowPlan, column: ColumnPlan) -> Cause | None:
    """Compare the clocks of a column and of the ticks; None if they don't explain what is missing."""
    summary, topic, offset = log.summary, column.topic, column.sampling.offset
    info, (of_clock, sources) = summary.topics[topic], clock_of(plan)
    ahead = ahead_of_log(log, topic, column.time)
    clock_ahead = ahead_of_log(log, of_clock, sources) if of_clock in summary.topics else 0
    first, last = _extent(summary, of_clock)
    ticks, by = (first + clock_ahead, last + clock_ahead), ahead + offset
    as_logged = _overlap(column, (info.first, info.last), (first, last))
    if as_logged - _overlap(column, (info.first + by, info.last + by), ticks) < _SHARE:
        return None
    if abs(offset) > abs(ahead - clock_ahead):
        words = f"its offset of {human_duration(offset)} moves {topic} beyond the rows"
        return Cause("clock", words, "correct its offset")
    other, by = (topic, ahead) if abs(ahead) >= abs(clock_ahead) else (of_clock, clock_ahead)
    apart = f"{human_duration(abs(by))} {'after' if by > 0 else 'before'}"
    words = f"{topic} is on another clock than the rows: stamps of {other} are {apart} its log times"
    line = f"time: {{topics: {{{other}: log}}}}"
    return Cause("clock", words, f"write {line}, or the offset of its clock", line)


def ahead_of_log(log: Log, topic: str, times: Sequence[MessageTime]) -> int:
    """Return how far the message time of a topic's last message is after its log time; 0 for field times."""
    source = log.time_source(topic, times)
    is_header = source is not None and source_of(source) == "header"
    last = log.last_message(topic) if is_header else None
    ahead = int(last.time[0]) - int(last.log_time[0]) if last is not None and len(last) else 0
    return ahead + offset_of(times)


def _intervals(log: Log, topic: str, mean: int) -> tuple[int, int]:
    """Return the median of some intervals in the middle of a topic, and the longest that isn't a pause.

    Both are the mean of all intervals if there are too few.
    """
    info = log.summary.topics[topic]
    middle, reach = (info.first + info.last) // 2, mean * _INTERVALS // 2
    request = TopicRequest(middle - reach, middle + reach + 1, ("log",), 0)
    intervals = np.diff(np.unique(log.read({topic: request})[topic].log_time))
    if len(intervals) < 2:
        return mean, mean
    median = int(np.median(intervals))
    return median, int(intervals[intervals < 2 * median].max(initial=median))


def _of_period(column: ColumnPlan, period: int, longest: int) -> Cause | None:
    """Compare a topic's period with the reach of its column; None if it suffices for half of the rows."""
    sampling, rules = column.sampling, column.sampling.rules
    comes = f"{column.topic} comes every {human_duration(period)}"
    if rules.by_clock or not period:
        return None
    if rules.uses == "window":
        length = sampling.window[1] - sampling.window[0]
        if period <= length:
            return None
        line = f"window: [{duration_text(-_rounded_up(longest))}, 0s]"
        words = f"{comes}, its window is {human_duration(length)} long"
        return Cause("window", words, f"write {line}", line)
    if not rules.tolerates:
        words = f"no message of {column.topic} has exactly the time of a row"
        return Cause("exact", words, "write resample: nearest", "resample: nearest")
    reach = sampling.back + sampling.forward - (period if rules.uses == "two" else 0)
    if 2 * reach >= period:
        return None
    line = f"tolerance: {duration_text(_rounded_up(longest))}"
    words = f"{comes}, its tolerance is {human_duration(sampling.tolerance)}"
    return Cause("tolerance", words, f"write {line}", line)


def _rounded_up(nanoseconds: int) -> int:
    """
    Round up to two digits, as intervals vary a little.

    >>> _rounded_up(100_000_000), _rounded_up(33_333_334), _rounded_up(99_700_000)
    (100000000, 34000000, 100000000)
    """
    step = int(10 ** max(0, len(str(nanoseconds)) - 2))
    return -(-nanoseconds // step) * step


def _of_edges(column: ColumnPlan, late: int, early: int) -> Cause:
    """A topic that covers few rows; the shorter of two edges isn't named if it is far shorter."""
    edges = {f"begins {human_duration(late)} after": late, f"ends {human_duration(early)} before": early}
    named = [f"{edge} the rows do" for edge, length in edges.items() if 10 * length > max(edges.values())]
    return _silent(column, " and ".join(named))


def _silent(column: ColumnPlan, how: str) -> Cause:
    line = f"rows: {{require: [{column.name}]}}"
    return Cause("silent", f"{column.topic} {how}", f"write {line} to drop the rows without it", line)


def _of_labels(summary: LogSummary, log_id: str, column: LabelPlan, labels: LogLabels | None) -> Cause:
    if labels is None or not len(labels):
        words = f"log {log_id} has no label in its table"
        return Cause("labels", words, "the table must name logs by their log_id (`logloom plan` lists both)")
    first, last = int(labels.times.min()), int(labels.times.max())
    apart = max(summary.first - last, first - summary.last, 0)
    if apart > column.tolerance:
        words = f"its labels are {human_duration(apart)} from log {log_id}"
        return Cause("clock", words, "correct their unit or clock in the table")
    number = counted(len(labels), "label")
    words = f"log {log_id} has {number}, and its tolerance is {human_duration(column.tolerance)}"
    line = f"rows: {{require: [{column.name}]}}"
    return Cause("sparse", words, f"write {line} to keep labelled rows alone, or a larger tolerance", line)
