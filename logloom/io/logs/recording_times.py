"""Recording times of a log: runs of messages, strays, silences, clock set-backs.

Here: pure functions of the index of a log, independent of recipes, for planning, reading, suggestions and
diagnosis.
Elsewhere: finding the times of stretches (container logs, others), ticks and partitions
(logloom.transforms.rows.spans).

All times are log times, int64 nanoseconds since the Unix epoch. Messages at most an hour apart, of all topics
together, form a run:

    time     1970        2023-11-14 22:13:20          22:13:30          2063
    messages  x           x x x x x x x x ... x x x x x x x x             x
    runs     stray       the recording                                 stray

>>> times = np.array([0, *range(1_700_000_000, 1_700_000_100)]) * 10**9
>>> facts = recorded(MessageTimes.of({"/x": times}))
>>> [(run.first // 10**9, run.last // 10**9, dict(run.messages)) for run in facts.runs]
[(1700000000, 1700000099, {'/x': 100})]
>>> [(stray.run.first, stray.run.messages["/x"], stray.reason) for stray in facts.strays]
[(0, 1, 'logged before the year 2000, unlike the rest')]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logloom.text import counted
from logloom.values import dataclass

Int64s = NDArray[np.int64]

SECOND = 10**9
HOUR = 3600 * SECOND  # a silence that separates runs
DAY = 24 * HOUR  # distance from the largest run at which a small one is a stray
YEAR_2000 = 946_684_800 * SECOND
FEW = 3  # messages that are always a small run
SHARE = 100  # a run is small with one message of so many of the log
SET_BACK = SECOND  # a topic whose time decreases by more was set back
KEPT = 64  # stretches whose messages are cached


@dataclass(frozen=True)
class MessageRun:
    """Messages at most an hour apart.

    Attributes:
        first, last: log times.
        messages: by topic, in name order; topics without any are left out.
    """

    first: int
    last: int
    messages: Mapping[str, int]

    @property
    def size(self) -> int:
        """Number of its messages, without those of static topics."""
        return sum(count for topic, count in self.messages.items() if not is_static(topic))


class Stray(NamedTuple):
    """A run outside the recording, and why."""

    run: MessageRun
    reason: str


@dataclass(frozen=True)
class SetBack:
    """A place where a recorder's clock was set back.

    Attributes:
        position: of the first message after it; see `logloom.io.logs.interface`.
        at: the latest log time before it, of the topics that were set back.
        to: the earliest after it.
        after: ns from the first message of its file to `at`.
        topics: those that were set back, in name order.
    """

    position: int
    at: int
    to: int
    after: int
    topics: tuple[str, ...]

    @property
    def words(self) -> str:
        """Describe its size and place, e.g. "3 s at 5 s"."""
        return f"{_seconds(self.at - self.to)} at {_seconds(self.after)}"


class Bound(NamedTuple):
    """An end of a log that a recipe states: ns since the Unix epoch, or since the start of the log."""

    ns: int
    is_relative: bool = False


@dataclass(frozen=True)
class RecordedTime:
    """Recording times of a log.

    Attributes:
        runs: of the recording, in time order.
        strays: runs outside the recording, in time order.
        set_backs: in the order of the files.
        stated: the first and last time that a recipe states; an end is None if messages define it.
        around: if a recipe states an end, uncut runs, and those beyond it; else empty.
    """

    runs: tuple[MessageRun, ...]
    strays: tuple[Stray, ...] = ()
    set_backs: tuple[SetBack, ...] = ()
    stated: tuple[int | None, int | None] = (None, None)
    around: tuple[MessageRun, ...] = ()

    @property
    def first(self) -> int:
        """The first log time of the recording; 0 without messages."""
        return self.runs[0].first if self.runs else 0

    @property
    def last(self) -> int:
        """The last log time of the recording; 0 without messages."""
        return self.runs[-1].last if self.runs else 0

    @property
    def silences(self) -> tuple[tuple[int, int], ...]:
        """The last log time before each silence of over an hour, and the first after it."""
        return tuple((a.last, b.first) for a, b in zip(self.runs, self.runs[1:], strict=False))

    @property
    def read(self) -> tuple[MessageRun, ...]:
        """The runs whose messages are read, in time order: all but strays."""
        return self.around or self.runs

    def within(self, first: Bound | None, last: Bound | None) -> RecordedTime:
        """Apply the extent that a recipe states. Messages beyond it aren't strays, but have no ticks.

        >>> facts = recorded(MessageTimes.of({"/x": np.arange(100) * 10**9}))
        >>> part = facts.within(Bound(20 * 10**9, is_relative=True), Bound(30 * 10**9))
        >>> (part.first // 10**9, part.last // 10**9)
        (20, 30)
        """
        if first is None and last is None:
            return self
        stated = tuple(
            None if bound is None else bound.ns + (self.first if bound.is_relative else 0)
            for bound in (first, last)
        )
        start = self.first if stated[0] is None else stated[0]
        stop = self.last if stated[1] is None else stated[1]
        known = [*self.runs, *(stray.run for stray in self.strays)]
        inside = sorted(
            (replace(run, first=max(run.first, start), last=min(run.last, stop)) for run in known),
            key=lambda run: run.first,
        )
        runs = [run for run in inside if run.first <= run.last]
        if runs and runs[0].first - start <= HOUR:
            runs[0] = replace(runs[0], first=start)
        if runs and stop - runs[-1].last <= HOUR:
            runs[-1] = replace(runs[-1], last=stop)
        strays = tuple(
            stray
            for stray in self.strays
            if (stated[0] is None and stray.run.last < start)
            or (stated[1] is None and stray.run.first > stop)
        )
        around = sorted(
            (run for run in known if run not in [stray.run for stray in strays]), key=lambda run: run.first
        )
        return replace(
            self, runs=tuple(runs), strays=strays, stated=(stated[0], stated[1]), around=tuple(around)
        )

    def to_data(self) -> dict[str, Any]:
        """Return data for a sidecar, independent of recipes."""
        return {
            "runs": [_run_data(run) for run in self.runs],
            "strays": [[*_run_data(stray.run), stray.reason] for stray in self.strays],
            "set_backs": [[*one[:-1], list(one[-1])] for one in map(astuple, self.set_backs)],
        }

    @classmethod
    def from_data(cls, data: Any) -> RecordedTime:
        """
        Raises:
            KeyError, TypeError, ValueError: not data of `to_data`.
        """
        return cls(
            tuple(_run_of(*run) for run in data["runs"]),
            tuple(Stray(_run_of(*run), str(reason)) for *run, reason in data["strays"]),
            tuple(
                SetBack(int(position), int(at), int(to), int(after), tuple(map(str, topics)))
                for position, at, to, after, topics in data["set_backs"]
            ),
        )

    def num_strays(self, topic: str) -> int:
        """Return how many messages of a topic are strays."""
        return sum(stray.run.messages.get(topic, 0) for stray in self.strays)

    def are_strays(self, times: Int64s) -> NDArray[np.bool_]:
        """(N,) mask of log times of strays."""
        found = np.zeros(len(times), np.bool_)
        for stray in self.strays:
            found |= (times >= stray.run.first) & (times <= stray.run.last)
        return found


def _run_data(run: MessageRun) -> list[Any]:
    return [run.first, run.last, dict(run.messages)]


def _run_of(first: Any, last: Any, messages: Any) -> MessageRun:
    return MessageRun(
        int(first), int(last), {str(topic): int(count) for topic, count in dict(messages).items()}
    )


class Entries(NamedTuple):
    """The messages of a stretch, in file order.

    Attributes:
        topic: (N,) numbers of topics.
        time: (N,) log times.
        position: (N,) ascending.
    """

    topic: Int64s
    time: Int64s
    position: Int64s


@dataclass(frozen=True)
class MessageTimes:
    """Times of a log's messages by stretch from an index, and access to single messages.

    Attributes:
        topics: names, in order.
        first, last: (C,) log times of each stretch, in the order of the files.
        file: (C,) the number of its file, ascending.
        stretch, topic, count: (K,) number of messages of a topic in each stretch; by stretch, without zeros.
        begin: (K,) log time of the first of these in the file, or an earlier time.
        back: (K,) the most that the time decreases from one of these to the next, in ns; -1 where unknown.
        look: returns the messages of a stretch, by number.
        is_ordered: whether messages in a file are in recorded order.
    """

    topics: Sequence[str]
    first: Int64s
    last: Int64s
    file: Int64s
    stretch: Int64s
    topic: Int64s
    count: Int64s
    begin: Int64s
    back: Int64s
    look: Callable[[int], Entries]
    is_ordered: bool = True
    looked: dict[int, Entries] = field(default_factory=dict)

    @classmethod
    def of(cls, topics: Mapping[str, Int64s], positions: Mapping[str, Int64s] | None = None) -> MessageTimes:
        """Make the times of messages in memory, as one stretch.

        Args:
            topics: log times by topic, each in the order of the file.
            positions: by topic; without them topics have no common order.
        """
        names = sorted(topics)
        times = np.concatenate([np.empty(0, np.int64), *(topics[name] for name in names)])
        numbers = np.repeat(np.arange(len(names)), [len(topics[name]) for name in names])
        own = (np.arange(len(topics[name])) if positions is None else positions[name] for name in names)
        places = np.concatenate([np.empty(0, np.int64), *own])
        order = np.argsort(places, kind="stable")
        entries = Entries(numbers[order], times[order], places[order])
        counts = np.array([len(topics[name]) for name in names], np.int64)
        there = np.flatnonzero(counts)
        one = np.zeros(1 if len(times) else 0, np.int64)
        return cls(
            names,
            one + times.min(initial=np.iinfo(np.int64).max),
            one + times.max(initial=0),
            one,
            np.zeros(len(there), np.int64),
            there,
            counts[there],
            np.array([times[numbers == i].min() for i in there.tolist()], np.int64),
            np.full(len(there), -1, np.int64),
            lambda number: entries,
            is_ordered=positions is not None,
        )

    @property
    def suspicious(self) -> set[int]:
        """The stretches that have to be examined, at least."""
        found = set(np.flatnonzero(self.last - self.first > HOUR).tolist())
        for file in np.unique(self.file).tolist() if self.is_ordered else ():
            found |= {stretch for stretch, _ in _latest_before(self, file)}
        return found

    def entries(self, number: int) -> Entries:
        """Return the messages of a stretch; the latest are cached."""
        if number not in self.looked:
            while len(self.looked) >= KEPT:
                del self.looked[next(iter(self.looked))]
            self.looked[number] = self.look(number)
        return self.looked[number]


def is_static(topic: str) -> bool:
    """Return whether a topic is static by its name, so that it applies to all times: /tf_static,
    /robot1/tf_static.
    """
    return topic.rpartition("/")[2] == "tf_static"


def recorded(times: MessageTimes) -> RecordedTime:
    """Find when a log was recorded.

    Only stretches that may hide a silence, a stray or a clock set back are examined.
    """
    runs, strays = split_strays(runs_of(times))
    facts = RecordedTime(runs, strays)
    set_backs = set_backs_of(times, facts) if times.is_ordered else ()
    return RecordedTime(runs, strays, set_backs)


# --- runs and strays ------------------------------------------------------------------------------------


def runs_of(times: MessageTimes) -> tuple[MessageRun, ...]:
    """Return the runs of a log's messages, in time order."""
    pieces = list(_pieces(times))
    if not pieces:
        return ()
    first, last = (np.concatenate([piece[i] for piece in pieces]) for i in (0, 1))
    owner, topic, count = (np.concatenate([piece[i] for piece in pieces]) for i in (2, 3, 4))
    order = np.argsort(first, kind="stable")
    latest = np.maximum.accumulate(last[order])
    starts = np.append(True, first[order][1:] - latest[:-1] > HOUR)
    number = np.empty(len(first), np.int64)
    number[order] = np.cumsum(starts) - 1
    counts = np.zeros((int(starts.sum()), len(times.topics)), np.int64)
    np.add.at(counts, (number[owner], topic), count)
    begins = np.flatnonzero(starts)
    ends = np.append(begins[1:], len(first)) - 1
    return tuple(
        MessageRun(begin, end, {times.topics[i]: int(row[i]) for i in np.flatnonzero(row).tolist()})
        for begin, end, row in zip(first[order][begins].tolist(), latest[ends].tolist(), counts, strict=True)
    )


def _pieces(times: MessageTimes) -> Iterator[tuple[Int64s, Int64s, Int64s, Int64s, Int64s]]:
    """Split stretches into pieces within one run: first and last times, and counts by piece and topic.

    A stretch of up to an hour has no silence inside; others are examined.
    """
    wide = times.last - times.first > HOUR
    if not wide.all():
        number = np.cumsum(~wide) - 1
        mine = ~wide[times.stretch]
        yield (
            times.first[~wide],
            times.last[~wide],
            number[times.stretch[mine]],
            times.topic[mine],
            times.count[mine],
        )
    base = int((~wide).sum())
    for stretch in np.flatnonzero(wide).tolist():
        found = times.entries(stretch)
        if not len(found.time):
            continue
        order = np.argsort(found.time, kind="stable")
        inside = found.time[order]
        begins = np.flatnonzero(np.append(True, np.diff(inside) > HOUR))
        ends = np.append(begins[1:], len(inside)) - 1
        owner = np.repeat(np.arange(len(begins)), ends - begins + 1)
        pairs, counts = np.unique(np.stack([owner, found.topic[order]]), axis=1, return_counts=True)
        yield inside[begins], inside[ends], base + pairs[0], pairs[1], counts
        base += len(begins)


def split_strays(runs: Sequence[MessageRun]) -> tuple[tuple[MessageRun, ...], tuple[Stray, ...]]:
    """Separate the runs of the recording and the strays.

    A run is a stray if it is before the year 2000 and another one isn't; or if it is more than a day from the
    largest run and has at most 3 messages, or 1 % of the log's. If such small runs together have half of the
    messages or more, they aren't strays: the log may have one message a day. Runs of static topics alone are
    neither: their messages are used, but not their time.
    """
    sized = [run for run in runs if run.size] or list(runs)
    if not sized:
        return (), ()
    reasons: dict[int, str] = {}
    known = [run for run in sized if run.last >= YEAR_2000] or sized
    for i, run in enumerate(sized):
        if run.last < YEAR_2000 <= known[0].last:
            reasons[i] = "logged before the year 2000, unlike the rest"
    largest = max(known, key=lambda run: run.size)
    total = sum(run.size for run in known)
    small = {
        i: run
        for i, run in enumerate(sized)
        if i not in reasons
        and _distance(run, largest) > DAY
        and (run.size <= FEW or run.size * SHARE <= total)
    }
    if 2 * sum(run.size for run in small.values()) < total:
        for i, run in small.items():
            side = "before" if run.first < largest.first else "after"
            reasons[i] = f"logged {counted(_distance(run, largest) // DAY, 'day')} {side} the rest"
    kept = tuple(run for i, run in enumerate(sized) if i not in reasons)
    return kept, tuple(Stray(sized[i], reason) for i, reason in sorted(reasons.items()))


def _distance(run: MessageRun, other: MessageRun) -> int:
    """Return the time between two runs, in ns."""
    return max(run.first - other.last, other.first - run.last)


# --- clocks set back ------------------------------------------------------------------------------------


class _Decrease(NamedTuple):
    """A message of a topic whose log time is before that of the previous one."""

    position: int
    topic: int
    before: int
    after: int
    stretch: int


def set_backs_of(times: MessageTimes, facts: RecordedTime) -> tuple[SetBack, ...]:
    """Find places where most of the active topics were set back by more than a second.

    Messages are compared in file order. Strays and static topics are ignored, and so are files whose chunks
    are sorted by topic: no topic is set back in them.
    """
    found: list[SetBack] = []
    for file in np.flatnonzero(np.bincount(times.file)).tolist():
        group: list[_Decrease] = []
        for one in sorted(_decreases(times, facts, file)):
            joins = group and one.topic not in {other.topic for other in group}
            if joins and all(one.after <= other.before and other.after <= one.before for other in group):
                group.append(one)
                continue
            found += _set_back(times, facts, group)
            group = [one]
        found += _set_back(times, facts, group)
    return tuple(found)


def _decreases(times: MessageTimes, facts: RecordedTime, file: int) -> Iterator[_Decrease]:
    """Find where times of a topic of a file decrease by more than a second."""
    latest = _latest_before(times, file)
    last_seen: dict[int, tuple[int, int]] = {}  # by topic, an examined stretch and its last time
    for stretch in sorted({stretch for stretch, _ in latest}):
        found = times.entries(stretch)
        for topic in np.unique(found.topic).tolist():
            if is_static(times.topics[topic]):
                continue
            mine = _of_topic(times, facts, stretch, topic)
            if not len(mine.time):
                continue
            series, offset = mine.time, 0
            bound = latest.get((stretch, topic))
            if bound is not None and bound - int(mine.time[0]) > SET_BACK:
                before = _last_before(times, facts, stretch, topic, last_seen.get(topic))
                if before is not None:
                    series, offset = np.append(before, series), 1
            last_seen[topic] = stretch, int(mine.time[-1])
            for at in (np.flatnonzero(np.diff(series) < -SET_BACK) + 1).tolist():
                position = int(mine.position[at - offset])
                yield _Decrease(position, topic, int(series[at - 1]), int(series[at]), stretch)


def _latest_before(times: MessageTimes, file: int) -> dict[tuple[int, int], int | None]:
    """Find stretches of a file with a possible decrease: (stretch, topic) to the topic's latest possible time
    before it; None without messages.

    A stretch of up to a second has none inside, and none at its start unless it begins over a second before
    the end of an earlier one with the same topic.
    """
    mine = times.file[times.stretch] == file
    order = np.flatnonzero(mine)
    order = order[np.lexsort((times.stretch[order], times.topic[order]))]
    stretch, topic, back = times.stretch[order], times.topic[order], times.back[order]
    starts = np.flatnonzero(np.append(True, topic[1:] != topic[:-1])[: len(topic)])
    known = np.zeros(len(topic), np.bool_)
    bounds = np.zeros(len(topic), np.int64)
    for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(topic)], strict=True):
        known[begin + 1 : end] = not is_static(times.topics[int(topic[begin])])
        bounds[begin + 1 : end] = np.maximum.accumulate(times.last[stretch[begin : end - 1]])
    inside = np.where(back < 0, times.last[stretch] - times.first[stretch], back) > SET_BACK
    chosen = set(stretch[inside | (known & (times.begin[order] < bounds - SET_BACK))].tolist())
    rows = np.flatnonzero(np.isin(stretch, list(chosen))).tolist()
    return {(int(stretch[i]), int(topic[i])): int(bounds[i]) if known[i] else None for i in rows}


def _last_before(
    times: MessageTimes, facts: RecordedTime, stretch: int, topic: int, seen: tuple[int, int] | None
) -> int | None:
    """Return the log time of a topic's last message before a stretch in the same file; None without one.

    Args:
        seen: an earlier stretch that was examined, and the time of the topic's last message in it.
    """
    is_earlier = (times.topic == topic) & (times.stretch < stretch)
    is_earlier &= times.file[times.stretch] == times.file[stretch]
    for earlier in times.stretch[is_earlier][::-1].tolist():
        if seen is not None and earlier <= seen[0]:
            return seen[1]
        found = _of_topic(times, facts, earlier, topic)
        if len(found.time):
            return int(found.time[-1])
    return None


def _of_topic(times: MessageTimes, facts: RecordedTime, stretch: int, topic: int) -> Entries:
    """Return the messages of a topic in a stretch without strays."""
    found = times.entries(stretch)
    rows = found.topic == topic
    if facts.strays:
        rows &= ~facts.are_strays(found.time)
    return Entries(found.topic[rows], found.time[rows], found.position[rows])


def _set_back(times: MessageTimes, facts: RecordedTime, group: Sequence[_Decrease]) -> Iterator[SetBack]:
    """Return the place of related decreases, if they affect most of the active topics."""
    if not group:
        return
    first, stop = group[0], max(one.stretch for one in group)
    at, to = max(one.before for one in group), min(one.after for one in group)
    mine = {one.topic for one in group}
    inside = [times.entries(stretch) for stretch in range(first.stretch, stop + 1)]
    topic, time, position = (np.concatenate([part[i] for part in inside]) for i in range(3))
    is_after = position >= first.position
    if facts.strays:
        is_after &= ~facts.are_strays(time)
    caught_up = position[is_after & np.isin(topic, list(mine)) & (time >= at)]
    is_then = is_after & (position < caught_up.min(initial=np.iinfo(np.int64).max))
    earlier = (times.stretch < first.stretch) & (times.file[times.stretch] == times.file[first.stretch])
    begun = set(times.topic[earlier].tolist()) | set(topic[position < first.position].tolist())
    of_mine = np.isin(topic, list(mine)) & is_after
    latest = np.maximum.accumulate(np.where(of_mine, time, to))  # after the place, counted in messages
    # A message of another topic that is nearer to the time before than to the one after contradicts.
    others = topic[is_then & ~of_mine & (2 * (time - latest) > at - to)]
    against = {i for i in set(others.tolist()) & begun - mine if not is_static(times.topics[i])}
    if len(mine) > len(against):
        names = tuple(sorted(times.topics[i] for i in mine))
        yield SetBack(first.position, at, to, at - _begin(times, facts, first.stretch), names)


def _begin(times: MessageTimes, facts: RecordedTime, stretch: int) -> int:
    """Return the log time of a file's first message that isn't a stray.

    Args:
        stretch: one of the file.
    """
    for number in np.flatnonzero(times.file == times.file[stretch]).tolist():
        found = times.entries(number).time
        found = found[~facts.are_strays(found)]
        if len(found):
            return int(found[0])
    return facts.first


def _seconds(ns: int) -> str:
    return f"{round(ns / SECOND, 1):g} s"
