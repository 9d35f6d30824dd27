"""Accounts: the use of every message and every tick.

Here: the `Tally` of a partition, and `reconcile`, which sums those of a log.
Elsewhere: counting (logloom.transforms.rows.row_stream), storing tallies (logloom.io.catalog.entries).

A message is counted by the span that owns its message time (without a column's offset), a refused one by the
span that owns its log time. A column *uses* a message if a row contains it, so one used only by dropped ticks
is not chosen. Spans record the messages they use from other spans, and their own ones that other spans may
use; these are matched once all spans are complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import LogloomError, LogReadError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, LogSummary, Refusal
from logloom.io.storage.metadata import Count, Text, checked
from logloom.resample.angles import TurnEvidence
from logloom.text import counted, human_time
from logloom.transforms.rows.gaps import GapTally
from logloom.transforms.rows.plan.row_plan import RateClock, RowPlan, Sampling, Span, clock_topics
from logloom.transforms.rows.spans import tick_ranges
from logloom.values import dataclass

WHOLE_TOPIC = -1  # the position of a refusal of all messages of a topic, which a column can't take
SET_BACK_REMEDY = (
    "`time: {set_back: first}` in the recipe keeps the messages before, `last` those after, `split` both as "
    "separate logs."
)

Times = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ColumnTally:
    """Counts of a column's messages in a span.

    Attributes:
        used: messages that the span owns and the column uses within it.
        used_outside: positions of messages that it uses but does not own, ascending.
        unused_edge: positions of messages that it owns and does not use, but other spans may; ascending.
        refused: messages of the span that only this column can't use.
        without_value: messages that the span owns and that have no value for the column.
        with_nan: of these, messages whose value has NaN; of joints that are resampled alone, messages with
            NaN for any of them.
    """

    used: int = 0
    used_outside: tuple[int, ...] = ()
    unused_edge: tuple[int, ...] = ()
    refused: tuple[Refusal, ...] = ()
    without_value: int = 0
    with_nan: int = 0


@dataclass(frozen=True)
class LabelTally:
    """Counts of a column's labels in a span; positions are those in the labels of the log.

    Attributes:
        owned: labels with times in the span; used: of these, those in a row of the span.
        used_outside, unused_edge: as for messages, see `ColumnTally`.
        unmatched: the first of those in the span that no span uses.
        without: rows without a label; without_at: ticks of the first.
    """

    owned: int = 0
    used: int = 0
    used_outside: tuple[int, ...] = ()
    unused_edge: tuple[int, ...] = ()
    unmatched: tuple[int, ...] = ()
    without: int = 0
    without_at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tally:
    """The accounts of one span.

    Attributes:
        planned: ticks of the span.
        rows: ticks that became rows.
        dropped: other ticks, by reason, in the order of the recipe.
        owned: usable messages that the span owns, by topic read.
        lost: messages refused by the log's reader.
        columns: by column of a topic.
        purged: erased messages of the span, by topic.
        lacking: ticks without a pose, by column of poses and by reason.
        notes: anomalies of frames, and the number of affected transforms.
        labels: by column of labels.
        splits: if rows are split, runs of (split, number of rows).
        last_at: log time of the last message of a note, ns.
        turns: by column whose values may wrap, evidence of that, number by number.
        tried: ticks of lookups of poses or deskewing of points, by column.
        gaps: between rows.
    """

    start: int
    stop: int
    planned: int = 0
    rows: int = 0
    dropped: Mapping[Text, int] = field(default_factory=dict)
    owned: Mapping[Text, int] = field(default_factory=dict)
    lost: tuple[Refusal, ...] = ()
    columns: Mapping[str, ColumnTally] = field(default_factory=dict)
    purged: Mapping[Text, int] = field(default_factory=dict)
    lacking: Mapping[Text, Mapping[Text, int]] = field(default_factory=dict)
    notes: Mapping[Text, int] = field(default_factory=dict)
    labels: Mapping[str, LabelTally] = field(default_factory=dict)
    splits: tuple[tuple[Text, Count], ...] = ()
    last_at: Mapping[Text, int] = field(default_factory=dict)
    turns: Mapping[str, tuple[TurnEvidence, ...]] = field(default_factory=dict)
    tried: Mapping[Text, int] = field(default_factory=dict)
    gaps: GapTally = field(default_factory=GapTally)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """All refusals, by the reader or by a column."""
        return _distinct([*self.lost, *(r for column in self.columns.values() for r in column.refused)])

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        # omitted if there are none
        for name in ("purged", "lacking", "notes", "labels", "splits", "last_at", "turns", "tried"):
            if not fields[name]:
                del fields[name]
        for column in fields["columns"].values():
            for name in ("without_value", "with_nan"):
                if not column[name]:
                    del column[name]
        if self.gaps == GapTally():
            del fields["gaps"]
        return fields

    @classmethod
    def from_json(cls, data: Mapping[str, Any], folder: str = "a unit") -> Tally:
        """
        Inverse of `to_json`.

        Args:
            folder: URI of the unit's folder, for errors.

        Raises:
            DatasetError: not data of `to_json`.
        """
        return checked(cls, data, f"{folder}: the unit's entry: tally", "remove this folder and build again")


def dropped_of(tallies: Sequence[Tally]) -> dict[str, int]:
    """Sum the dropped rows of partitions by reason."""
    dropped: Counter[str] = Counter()
    for tally in tallies:
        dropped.update(tally.dropped)
    return dict(dropped)


@dataclass(frozen=True)
class Seen:
    """A column's messages in one piece of a span, with positions in order of message times."""

    used: int
    outside: tuple[Times, Times]
    edge: tuple[Times, Times]
    refused: tuple[Refusal, ...] = ()
    without_value: int = 0
    with_nan: int = 0


def within(times: Times, span: Span) -> Mask:
    """Select the times of a span, whose ends may be open."""
    return (times >= span.start) & ((times < span.stop) | (span.stop == MAX_TIME))


def near_edge(times: Times, sampling: Sampling, span: Span) -> Mask:
    """Select own message times that ticks of other spans may reach."""
    # A tick before the span is start - 1 at most, and uses message times up to forward - offset beyond it.
    before, after = (
        span.start + sampling.forward - sampling.offset,
        span.stop - sampling.back - sampling.offset,
    )
    near = np.zeros(len(times), np.bool_)
    if span.start != MIN_TIME:
        near |= times < min(before, MAX_TIME)
    if span.stop != MAX_TIME:
        near |= times >= max(after, MIN_TIME)
    return near


def see(sampling: Sampling, span: Span, times: Times, positions: Times, used: Mask) -> Seen:
    """Count a column's messages in one piece of a span."""
    own = within(times, span)
    outside = used & ~own
    edge = own & ~used & near_edge(times, sampling, span)
    return Seen(int((used & own).sum()), (positions[outside], times[outside]), (positions[edge], times[edge]))


def add_up(seen: Sequence[Seen], sampling: Sampling, span: Span) -> ColumnTally:
    """Sum a column's counts in a span from those of its pieces."""
    outside, outside_times = _joined([s.outside for s in seen])
    edge, edge_times = _joined([s.edge for s in seen])
    used_by_other_piece = np.isin(edge, outside)
    foreign = ~within(outside_times, span)
    open_edge = ~used_by_other_piece & near_edge(edge_times, sampling, span)
    return ColumnTally(
        sum(s.used for s in seen) + int(used_by_other_piece.sum()),
        tuple(np.unique(outside[foreign]).tolist()),
        tuple(np.unique(edge[open_edge]).tolist()),
        _distinct(refusal for s in seen for refusal in s.refused),
        sum(s.without_value for s in seen),
        sum(s.with_nan for s in seen),
    )


def _joined(parts: Sequence[tuple[Times, Times]]) -> tuple[Times, Times]:
    none = np.empty(0, np.int64)
    return np.concatenate([none, *(p for p, _ in parts)]), np.concatenate([none, *(t for _, t in parts)])


@dataclass(frozen=True)
class ColumnAccount:
    """Use of a column's topic: used + not_chosen + refused are all remaining messages.

    Attributes:
        without_value: of those not chosen, messages that have no value for the column.
        with_nan: see `ColumnTally`.
    """

    used: int
    not_chosen: int
    refused: int
    without_value: int = 0
    with_nan: int = 0


@dataclass(frozen=True)
class TopicAccount:
    """Use of a topic's messages.

    Attributes:
        messages: in the log.
        refused: by the reader, or by a column.
        columns: of this topic.
        purged: erased from the log.
    """

    messages: int
    refused: int
    columns: Mapping[str, ColumnAccount]
    purged: int = 0


def reconcile(plan: RowPlan, summary: LogSummary, tallies: Sequence[Tally]) -> dict[str, TopicAccount]:
    """Sum a log's tallies, by topic in name order.

    Args:
        tallies: of all its partitions, in any order; none if the log has no ticks.

    Raises:
        LogloomError: a partition is missing or duplicated, or the sums don't match.
    """
    tallies = sorted(tallies, key=lambda tally: tally.start)
    place = summary.uris[0] if summary.uris else "log"
    _check_ticks(plan, summary, tallies, place)
    lost = _distinct([*summary.refusals, *(refusal for tally in tallies for refusal in tally.lost)])
    # The index of a damaged log can't be trusted to count losses.
    damaged = bool(summary.refusals) or any(refusal.topic == "" for refusal in lost)
    topics = {c.topic for c in plan.columns} | {t for tally in tallies for t in tally.owned}
    accounts = {}
    for topic in sorted(topics & summary.topics.keys()):
        messages = summary.topics[topic].num_messages
        if summary.pass_positions is not None:  # static columns use messages of other passes, as well
            messages = max([messages, *(_used_as_static(plan, topic, tally) for tally in tallies)])
        usable = messages
        refused = purged = 0
        if any(topic in tally.owned for tally in tallies):
            usable = sum(tally.owned.get(topic, 0) for tally in tallies)
            mine = [refusal for refusal in lost if refusal.topic == topic]
            refused = sum(refusal.num_messages for refusal in mine)
            refused += summary.topics[topic].num_strays
            purged = sum(tally.purged.get(topic, 0) for tally in tallies)
            # The reader reports no strays, so this is a chunk with strays, some of which are lost.
            lost_at = np.array([refusal.log_time for refusal in mine], np.int64)
            if damaged or summary.recorded.are_strays(lost_at).any():
                messages = max(messages, usable + refused + purged)
                refused = messages - usable - purged
            elif summary.pass_positions is not None and mine:  # a stretch may contain messages of two passes
                messages = max(messages, usable + refused + purged)
            elif messages != usable + refused + purged:
                raise LogloomError(
                    f"{place}: topic {topic} has {messages} messages by the index, but {usable} were read, "
                    f"{refused} refused and {purged} purged. This build is not safe to use; please report it."
                )
        known = {refusal.position for refusal in lost if refusal.topic == topic}
        account = _topic_account(plan, topic, (messages, usable, refused), known, tallies, place)
        accounts[topic] = replace(account, purged=purged)
    return accounts


def _used_as_static(plan: RowPlan, topic: str, tally: Tally) -> int:
    """Count the messages of a topic that static columns of a partition use."""
    own = [c.name for c in plan.columns if c.topic == topic and c.sampling.rules.uses == "topic"]
    return max((tally.columns[name].used for name in own if name in tally.columns), default=0)


def strays_of(plan: RowPlan, summary: LogSummary) -> Iterator[Refusal]:
    """Return the messages outside a log's recording, as one refusal for each topic and run.

    Topics used only as static are exempt: their messages apply to all times.
    """
    clock = clock_topics(plan.clock)
    columns = [(c.topic, c.sampling.rules.uses == "topic") for c in plan.columns]
    sampled = {topic for topic, is_static in columns if not is_static} | {*clock}
    static = {topic for topic, is_static in columns if is_static}
    static |= {topic for pose in plan.lookups for topic in pose.static}
    uri = summary.uris[0] if summary.uris else "log"
    for run, reason in summary.recorded.strays:
        for topic, count in sorted(run.messages.items()):
            if topic in summary.topics and summary.topics[topic].num_strays and topic not in static - sampled:
                at = human_time(run.first) + ("" if run.first == run.last else f" to {human_time(run.last)}")
                why = f"{counted(count, 'message')} outside the recording, {reason}: {at}"
                yield Refusal(uri, -1, topic, 0, run.first, why, count)


def check_clock(summary: LogSummary) -> None:
    """Check that the clock of a log's recorder wasn't set back.

    Raises:
        LogReadError: it was, so its rows would mix messages of overlapping passes.
    """
    if places := summary.recorded.set_backs:
        where = ", ".join(place.words for place in places[:5]) + (" …" if len(places) > 5 else "")
        raise LogReadError(
            f"{summary.uris[0]}: the clock was set back by {where} (in the order of the file), so times of "
            f"messages before and after overlap. {SET_BACK_REMEDY}"
        )


def _topic_account(
    plan: RowPlan,
    topic: str,
    counts: tuple[int, int, int],
    lost: Set[int],
    tallies: Sequence[Tally],
    place: str,
) -> TopicAccount:
    """
    Describe the use of a topic.

    Args:
        lost: positions of messages that the reader refused.
    """
    messages, usable, refused = counts
    is_unfit = False
    columns: dict[str, ColumnAccount] = {}
    unusable: set[int] = set()
    for column in plan.columns:
        if column.topic != topic:
            continue
        parts = [tally.columns.get(column.name, ColumnTally()) for tally in tallies]
        own = {refusal.position for part in parts for refusal in part.refused} - lost
        if WHOLE_TOPIC in own:
            is_unfit = True
            columns[column.name] = ColumnAccount(0, 0, messages)
            continue
        if column.sampling.rules.uses == "topic":
            # It ignores stamps, so it may use a message that other columns can't.
            used = max((part.used for part in parts), default=0)
            unusable |= own
            columns[column.name] = ColumnAccount(used, messages - used - len(own), len(own))
            continue
        outside = {position for part in parts for position in part.used_outside}
        edge = {position for part in parts for position in part.unused_edge}
        used = sum(part.used for part in parts) + len((outside & edge) - own)
        unusable |= own
        not_chosen = usable - used - len(own)
        if not_chosen < 0:
            raise LogloomError(
                f"{place}: column {column.name!r} uses {used} and refuses {len(own)} messages of {topic}, "
                f"which has {usable} usable ones. This build is not safe to use; please report it."
            )
        lacking, with_nan = sum(part.without_value for part in parts), sum(part.with_nan for part in parts)
        columns[column.name] = ColumnAccount(used, not_chosen, refused + len(own), lacking, with_nan)
    return TopicAccount(messages, messages if is_unfit else refused + len(unusable), columns)


def nan_lines(sums: Mapping[str, TopicAccount]) -> Iterator[str]:
    """Describe the messages of a log that have no value for a column because it has NaN."""
    for topic, account in sums.items():
        for name, column in account.columns.items():
            if column.with_nan:
                of_all = f"{column.with_nan:,} of {counted(account.messages, 'message')} of {topic}"
                yield f"column {name}: {of_all} have NaN, and so no value for it (`nan: unavailable`)"


def _check_ticks(plan: RowPlan, summary: LogSummary, tallies: Sequence[Tally], place: str) -> None:
    bounds = [MIN_TIME, *(tally.stop for tally in tallies)]
    if tallies and (bounds[-1] != MAX_TIME or bounds[:-1] != [tally.start for tally in tallies]):
        raise LogloomError(f"{place}: its {len(tallies)} partitions don't cover its time: one is missing")
    planned = sum(tally.planned for tally in tallies)
    kept = sum(tally.rows + sum(tally.dropped.values()) for tally in tallies)
    if isinstance(plan.clock, RateClock) and summary.num_messages:
        expected = sum(one.stop - one.first for one in tick_ranges(summary, plan))
        if planned != expected:
            raise LogloomError(f"{place}: {expected} ticks by its extent, but {planned} were planned")
    if planned != kept:
        raise LogloomError(f"{place}: {planned} ticks planned, but {kept} became rows or were dropped")


def _distinct(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    return tuple(dict.fromkeys(refusals))
