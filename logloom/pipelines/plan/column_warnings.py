"""Warnings of `plan` about columns, and estimates of episodes, from sampled rows.

Elsewhere: the warnings themselves, and those of a build, which counts all rows
(logloom.transforms.rows.plan.column_warnings, logloom.transforms.rows.missing_values).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from logloom.errors import OF_CONTENT, LogloomError
from logloom.io.catalog.labels import LogLabels
from logloom.io.formats.capabilities import SequencedFormat
from logloom.io.formats.registry import format_named
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, Log
from logloom.io.logs.message_times import by_log_time
from logloom.pipelines.plan.build_plan import BuildPlan
from logloom.resample.angles import TurnEvidence, added
from logloom.text import human_duration, some_of
from logloom.transforms.build.job import LogJob, LogTask, opened
from logloom.transforms.rows.gaps import GapTally, TickGaps
from logloom.transforms.rows.missing_values import (
    Availability,
    Cause,
    ahead_of_log,
    availability_of,
    availability_warnings,
    clock_of,
    merged,
    pose_lost,
    refused,
    without_value,
)
from logloom.transforms.rows.notices import BuildWarning
from logloom.transforms.rows.plan.column_warnings import rounding_warnings, turn_warnings
from logloom.transforms.rows.plan.image_forms import first_images, image_misfits, list_misfits
from logloom.transforms.rows.plan.row_plan import RateClock, RowPlan, Span, SyncClock, clock_topics
from logloom.transforms.rows.plan.unfit_columns import fitted
from logloom.transforms.rows.point_times import times_in
from logloom.transforms.rows.pose_lookups import Looked, read_trees
from logloom.transforms.rows.resample import Indices, Mask, Times
from logloom.transforms.rows.sequences import (
    SequenceCounts,
    counts_of,
    merged_sequences,
    runs_of,
    scaled,
    sequence_warnings,
)
from logloom.transforms.rows.spans import tick_ranges
from logloom.transforms.rows.sync_clock import FAR, nearest
from logloom.transforms.rows.ticks import tick_range, tick_time
from logloom.transforms.rows.topic_columns import Piece, Sampled, SpanValues, read_statics
from logloom.transforms.suggest.samples import stretches

LOGS = 20  # sampled logs, evenly spread over the names of those to build
BYTES = 64 << 20  # of their messages, all together
TICKS = 1 << 16  # of a log
_PARTS = 16  # of a log with more ticks, evenly spread
_MOVED = 4  # clouds of a part that are deskewed


def with_sample(plan: BuildPlan) -> BuildPlan:
    """Return a plan with what a sample of its rows shows: warnings, and sequences of rows."""
    warnings, samples = _sampled(plan)
    rows, logs = sum(sample.num_rows for sample in samples), len(samples)
    whole = sum(sample.num_rows / sample.share for sample in samples)
    counts = merged_sequences(
        sample.sequences(output, options)
        for sample in samples
        for output, options in plan.job.outputs.items()
    )
    share = rows / whole * logs / max(1, plan.num_logs) if rows else 1.0
    sequences = tuple(scaled(one, one.logs * plan.num_logs // logs, share) for one in counts)
    warnings += sequence_warnings(sequences, plan.job.plan, plan.job.outputs)
    return replace(plan, warnings=(*plan.warnings, *warnings), sequences=sequences)


def column_warnings(plan: BuildPlan) -> list[BuildWarning]:
    """Return warnings about columns in some of the rows to build."""
    return _sampled(plan)[0]


def _sampled(plan: BuildPlan) -> tuple[list[BuildWarning], list[SampledRows]]:
    number = min(LOGS, len(plan.logs))
    some = [plan.logs[i * (len(plan.logs) - 1) // max(1, number - 1)].task for i in range(number)]
    found, available = list[BuildWarning](), list[tuple[Availability, ...]]()
    samples = list[SampledRows]()
    for task in some:
        for job in (plan.job, _lenient(plan.job)):
            with contextlib.suppress(LogloomError, OSError, *OF_CONTENT):  # the build reports it
                labels = plan.labels.of(task.log_id) if plan.labels is not None else {}
                own, counts, sample = _of_log(job, task, labels, BYTES // number)
                found += own
                available.append(counts)
                samples.append(sample)
                break
    first = plan.job.parent is None
    return [*availability_warnings(merged(available), sampled=True, is_first=first), *found], samples


def _lenient(job: LogJob) -> LogJob:
    """Return a job for which a message that can't be used is one to count, not the end of the sample."""
    options = job.open_options
    if options.on_error != "fail":
        return job
    return replace(job, open_options=replace(options, on_error="skip"))


def _of_log(
    job: LogJob, task: LogTask, labels: Mapping[str, LogLabels], max_bytes: int
) -> tuple[list[BuildWarning], tuple[Availability, ...], SampledRows]:
    """Return warnings about a log, in how many of its sampled rows columns are available, and the sample.

    Raises:
        Exception: under `on_error: fail`, a part can't be read or has messages that can't be used.
    """
    log, log_id = opened(job, task), task.log_id
    rows = fitted(job.plan, log)[0] if job.open_options.on_error == "salvage" else job.plan
    sample = SampledRows(log, log_id, rows, labels, max_bytes)
    if sample.failure is not None and job.on_error == "fail":
        raise sample.failure
    found = [
        BuildWarning(f"{log_id}: {text} (of the sampled messages)", kind="turns", column=name, log=log_id)
        for name, text in sample.turns()
    ]
    available = sample.available(log_id)
    found += [
        BuildWarning(f"{log_id}: {text}", is_doubtful=False, kind="clock", log=log_id)
        for text in sample.tickless()
    ]
    found += [  # under `on_error: fail` an error of the plan
        BuildWarning(f"{log_id}: column {name}: {text}", kind="images", column=name, log=log_id)
        for name, text in image_misfits(rows, first_images(rows, log)).items()
    ]
    found += [
        BuildWarning(f"{log_id}: column {name}: {text}", kind="lists", column=name, log=log_id)
        for name, text in list_misfits(rows, log).items()
    ]
    found += [
        BuildWarning(f"{log_id}: {text}", is_doubtful=False, kind="rounded", column=name, log=log_id)
        for name, text in rounding_warnings(rows, log)
    ]
    return found, available, sample


class SampledRows:
    """Counts of a bounded part of a log's rows; a small log is read completely. No value is made.

    Attributes:
        share: of the log's ticks that are in the sample, estimated.
    """

    def __init__(self, log: Log, log_id: str, plan: RowPlan, labels: Mapping[str, LogLabels], max_bytes: int):
        self._log, self._log_id, self._plan, self._labels = log, log_id, plan, labels
        self._times: list[Times] = []  # of the rows of each part
        self._gaps: list[GapTally] = []
        self._rows, self._available = Counter[str](), Counter[str]()
        self._messages, self._refused = Counter[str](), Counter[str]()
        self._reasons: dict[str, str] = {}
        self._without_value = Counter[str]()
        self._lacking: dict[str, Counter[str]] = {pose.name: Counter() for pose in plan.lookups}
        self._turns: dict[str, list[tuple[TurnEvidence, ...]]] = {}
        statics, point_times = read_statics(log, plan, "skip"), times_in(log, plan)
        self._deskewed = {column.name for column in plan.columns if column.deskew is not None}
        self.ticks = 0
        self._apart: list[int] = []  # the spread of the tightest set of a part
        self.failure: Exception | None = None  # of one of its parts, which isn't counted
        for span in self._spans(max_bytes):
            try:
                frames = read_trees(log, plan, span)
                shared = SpanValues(statics, frames, {}, labels, point_times, "skip")
                self._add(Piece(log, plan, span, shared))
            except OF_CONTENT as failure:
                self.failure = failure
        self.share = self._share()

    @property
    def num_rows(self) -> int:
        return sum(map(len, self._times))

    def _share(self) -> float:
        if isinstance(self._plan.clock, RateClock):
            ticks = sum(one.stop - one.first for one in tick_ranges(self._log.summary, self._plan))
        else:
            info = self._log.summary.topics.get(clock_of(self._plan)[0])
            ticks = 0 if info is None else info.num_ticks
        return min(1.0, self.ticks / max(1, ticks)) if self.ticks else 1.0

    def sequences(self, output: str, options: Any) -> tuple[SequenceCounts, ...]:
        """Count the sequences of an output in the sample."""
        form, period = format_named(output), self._plan.period
        if not isinstance(form, SequencedFormat):
            return ()
        limit = form.longest_gap(options, period)
        # Between parts of a larger log no gap is known.
        parts = [np.concatenate(self._times)] if self.share == 1 and self._times else self._times
        gaps = [self._gaps] if self.share == 1 else [[one] for one in self._gaps]
        found = [
            counts_of(output, options, runs_of(times, limit), own, period, self._log_id)
            for times, own in zip(parts, gaps, strict=True)
            if len(times)
        ]
        (counts,) = merged_sequences([tuple(filter(None, found))]) or (None,)
        if counts is None:
            return ()
        return (replace(counts, logs=1, number=counts.number - counts.logs + 1),)

    def _spans(self, max_bytes: int) -> list[Span]:
        """Return parts of the log; of a small one the whole, with open ends; none if parts can't be read."""
        clock, (parts, is_whole) = self._plan.clock, stretches(self._log, max_bytes)
        if not is_whole and _needs_all(self._log, self._plan):
            return []
        if not isinstance(clock, RateClock):
            topic, sources = clock_of(self._plan)
            ahead = ahead_of_log(self._log, topic, sources) if topic in self._log.summary.topics else 0
            spans = [Span(start + ahead, stop + ahead) for start, stop in parts]
            return spans if len(spans) > 1 else [Span(MIN_TIME, MAX_TIME)]
        recorded = tick_ranges(self._log.summary, self._plan)
        ranges = [
            (max(one.first, first), min(one.stop, stop))
            for first, stop in (tick_range(clock.rate, start, end - 1) for start, end in parts)
            for one in recorded
        ]
        spans = [
            Span(tick_time(clock.rate, first), tick_time(clock.rate, stop), (first, stop))
            for ticks in ranges
            for first, stop in _spread(*ticks, TICKS // len(ranges))
        ]
        return spans if len(spans) > 1 else [Span(MIN_TIME, MAX_TIME, one.ticks) for one in spans]

    def _add(self, piece: Piece) -> None:
        for topic, messages in piece.messages.items():
            lost = sum(refusal.num_messages for refusal in messages.refused)
            self._messages[topic] += len(messages) + lost
            self._refused[topic] += lost
            self._reasons |= {topic: messages.refused[0].reason} if lost else {}
        self.ticks += len(piece.ticks)
        if isinstance(self._plan.clock, SyncClock) and not len(piece.ticks):
            self._apart += nearest(self._plan.clock, piece.messages)
        kept = ~piece.purged
        gaps = TickGaps(["purged", *(f"require {name}" for name in self._plan.require)])
        masks = piece.purged * gaps.bit("purged")
        for name in self._plan.require:
            available = piece.columns[name].available
            self._count(name, available, kept)
            masks |= ~available * gaps.bit(f"require {name}")
            kept &= available
        gaps.add(piece.ticks, masks)
        self._gaps.append(gaps.tally())
        self._times.append(piece.ticks[kept])
        for name, column in piece.columns.items():
            if name not in self._plan.require:
                self._count(name, column.available, kept)
            if isinstance(column, Looked):
                self._lacking[name].update(column.lacking(kept))
            elif isinstance(column, Sampled) and name in self._deskewed:
                self._move_some(name, column, np.flatnonzero(kept & column.available))
            if isinstance(column, Sampled):
                self._without_value[name] += column.seen().without_value
            if isinstance(column, Sampled) and (turns := column.turns()):
                self._turns.setdefault(name, []).append(turns)

    def _move_some(self, name: str, column: Sampled, ticks: Indices) -> None:
        """Deskew some clouds; if none can be, no row of the part has one."""
        some = ticks[:: max(1, len(ticks) // _MOVED)]
        if len(some) and not column.made_available(some).any():
            self._available[name] -= len(ticks)
            self._lacking[name].update(column.lacking())

    def _count(self, name: str, available: Mask, among: Mask) -> None:
        self._rows[name] += int(among.sum())
        self._available[name] += int((among & available).sum())

    def tickless(self) -> Iterator[str]:
        """Return a warning that the clock finds no tick in the messages of its topics."""
        clock, topics = self._plan.clock, clock_topics(self._plan.clock)
        if self.ticks or not topics:
            return
        for topic in topics:
            if lost := self._refused[topic]:
                cause = refused(topic, lost, self._messages[topic], self._reasons[topic])
                yield f"the clock has no tick: {cause.words}; {cause.remedy}"
                return
        if isinstance(clock, SyncClock):
            matches = f"the clock matches no messages of {some_of(topics)}"
            if self._apart:
                far, line = human_duration(min(self._apart)), "time: {topics: {TOPIC: {offset: -12ms}}}"
                yield (
                    f"{matches}: the nearest are {far} apart, more than `within`; state the delay of a "
                    f"sensor, {line}, or a larger `within`"
                )
            else:
                yield f"{matches}: none are less than {human_duration(FAR)} apart"

    def turns(self) -> Iterator[tuple[str, str]]:
        """Return warnings of values that wrap, or don't; see `turn_warnings`."""
        return turn_warnings(self._plan, {name: added(turns) for name, turns in self._turns.items()})

    def available(self, log_id: str) -> tuple[Availability, ...]:
        """Return in how many of the sampled rows columns are available."""
        known: dict[str, Cause] = {}
        for column in self._plan.columns:
            lost, messages = self._refused[column.topic], self._messages[column.topic]
            if 2 * lost > messages:
                known[column.name] = refused(column.topic, lost, messages, self._reasons[column.topic])
            elif 2 * (number := self._without_value[column.name]) > messages:
                known[column.name] = without_value(column.topic, number, messages)
        for pose in self._plan.lookups:
            if self._lacking[pose.name]:
                known[pose.name] = pose_lost(pose, self._lacking[pose.name])
        counts = {name: (rows, self._available[name]) for name, rows in self._rows.items()}
        return availability_of(self._log, log_id, self._plan, counts, self._labels, known)


def _needs_all(log: Log, plan: RowPlan) -> bool:
    """Return whether reading a part of a log scans all of it: stamps may be far from log times."""
    if any(pose.max_delay is None for pose in plan.lookups):
        return True
    columns = [column for column in plan.columns if column.sampling.rules.uses != "topic"]
    timed = [(column.topic, column.time) for column in columns if column.max_delay is None]
    clock = plan.clock
    if not isinstance(clock, RateClock) and clock.max_delay is None:
        times = clock.times if isinstance(clock, SyncClock) else (clock.time,)
        timed += zip(clock_topics(clock), times, strict=True)
    sources = [log.time_source(topic, times) for topic, times in timed if topic in log.summary.topics]
    return not all(source is None or by_log_time(source) for source in sources)


def _spread(first: int, stop: int, most: int) -> Iterator[tuple[int, int]]:
    """Return a range of ticks, or evenly spread parts with at most so many in all.

    >>> list(_spread(0, 10, 100)), list(_spread(0, 1000, 32))[::15]
    ([(0, 10)], [(0, 2), (998, 1000)])
    """
    if stop - first <= most:
        yield from [(first, stop)] if first < stop else []
        return
    length = max(1, most // _PARTS)
    for start in np.linspace(first, stop - length, _PARTS).astype(np.int64).tolist():
        yield start, start + length
