"""Anomalies of log times: strays, set-back clocks, silences, stamps, early ends.

Here: `judge_times`, from observations of each topic to findings, each with its line of a recipe.
Elsewhere: observations (observations), recording times (logloom.io.logs.recording_times), refusal of messages
for their time (logloom.io.logs.message_times). A finding is damage if a build of the suggested recipe refuses
messages for it. That recipe takes log times for topics with stamps of zero, offsets for clocks at a constant
distance, and a `max_delay` that suits the others. Times are int64 nanoseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from logloom.io.logs.recording_times import Bound, RecordedTime, is_static
from logloom.pipelines.doctor.findings import (
    LONG_GAP,
    MAX_SKEW,
    REQUIRE,
    REQUIRED,
    Gap,
    HealthFinding,
    TopicHealth,
    share_of,
)
from logloom.recipe import yaml as text
from logloom.recipe.values import duration_text, moment_text
from logloom.text import counted, human_duration, human_time, some_of
from logloom.transforms.suggest.clocks import Leads, clock_words, offset_line, offsets_of
from logloom.transforms.suggest.samples import MAX_DELAY, bound_on_delay

LONG_EDGE = 1_000_000_000  # ns; topics may begin and end so far apart: recorders subscribe to one by one
EDGE_SHARE = 10  # in a short log only a part of it in so many
MAX_NAMED = 12  # topics in one finding


class _Silence(NamedTuple):
    """A topic's missing messages.

    Attributes:
        missing: about how many.
        more: further ones of the topic.
    """

    topic: TopicHealth
    at: int
    length: int
    missing: int
    more: int = 0

    @property
    def is_loss(self) -> bool:
        """Whether damage explains it, which other findings report."""
        return 2 * (self.topic.lost + self.topic.unfit) >= self.missing


def judge_times(topics: Sequence[TopicHealth], facts: RecordedTime, uri: str) -> Iterator[HealthFinding]:
    """Find anomalies in the times of a log's topics.

    Args:
        uri: of the log's first file.
    """
    yield from _strays(topics, facts, uri)
    yield from _silences_of_all(facts, uri)
    own = {topic for place in facts.set_backs for topic in place.topics}
    leads = {topic.topic: _leads(topic.skew) for topic in topics if topic.skew and not _is_static(topic)}
    offsets = offsets_of(leads)
    for topic in topics:
        yield from _of_order(topic, uri, is_set_back=topic.topic in own)
        if not _is_static(topic):
            yield from _of_stamps(topic, uri, offsets.get(topic.topic))
    judged = [topic for topic in topics if topic.is_regular and topic.topic not in own]
    extent = _extent(topics, facts)
    yield from _edges("begins", list(_late_beginnings(judged, extent)), uri)
    yield from _edges("ends", list(_early_ends(judged, extent)), uri)
    yield from _gaps(list(_silences(judged, facts)), extent, uri)


def _is_static(topic: TopicHealth) -> bool:
    """Return whether a build uses the topic's last message with any stamp."""
    return is_static(topic.topic) or topic.first == topic.last


def _extent(topics: Sequence[TopicHealth], facts: RecordedTime) -> tuple[int, int]:
    if facts.runs:
        return facts.first, facts.last
    timed = [topic for topic in topics if topic.messages and not is_static(topic.topic)]
    return min((t.first for t in timed), default=0), max((t.last for t in timed), default=0)


def _by_log_time(topic: str) -> str:
    return f"time: {text.flow({'topics': {topic: 'log'}})}"


# --- the recording --------------------------------------------------------------------------------------


def _strays(topics: Sequence[TopicHealth], facts: RecordedTime, uri: str) -> Iterator[HealthFinding]:
    """Report messages far from the recording; a note if they are of topics of which only the last message
    is used.
    """
    sampled = {topic.topic for topic in topics if not (_is_static(topic) and topic.messages)}
    for run, reason in facts.strays:
        names = [name for name in run.messages if not is_static(name)]
        if not names:
            continue
        count = sum(run.messages[name] for name in names)
        until = "" if run.first == run.last else f" to {human_time(run.last)}"
        message = (
            f"{counted(count, 'message')} outside the recording, {reason}: {human_time(run.first)}{until}"
        )
        is_before = run.first < facts.first
        recipe = _extent_line(facts.first, None) if is_before else _extent_line(None, facts.last)
        is_refused = bool(sampled & set(names))
        taken = "refuses them, with exit code 3" if is_refused else "uses them for static columns only"
        remedy = f"a build {taken}; in the recipe, `{recipe}` leaves them out"
        yield HealthFinding(
            "stray",
            uri,
            None,
            some_of(names, MAX_NAMED),
            count,
            message,
            remedy,
            severity="damage" if is_refused else "note",
            recipe=recipe,
            time=run.first,
            duration=run.last - run.first,
        )


def _silences_of_all(facts: RecordedTime, uri: str) -> Iterator[HealthFinding]:
    """The longest of the silences of over an hour, or leaps of the clock."""
    if not facts.silences:
        return
    begin, end = max(facts.silences, key=lambda silence: silence[1] - silence[0])
    largest = max(facts.runs, key=lambda run: run.size)
    others = sum(run.size for run in facts.runs) - largest.size
    message = (
        f"all topics are silent for {human_duration(end - begin)}, or the clock leapt, "
        f"{human_duration(begin - facts.first)} after the log begins ({human_time(begin)}); a build makes no "
        "rows there"
    )
    if len(facts.silences) > 1:
        message += f", nor in {counted(len(facts.silences) - 1, 'other silence')} of over an hour"
    first = largest.first if largest.first > facts.first else None
    last = largest.last if largest.last < facts.last else None
    recipe = _extent_line(first, last)
    remedy = f"in the recipe, `{recipe}` keeps the largest part"
    yield HealthFinding(
        "silence",
        uri,
        None,
        "",
        others,
        message,
        remedy,
        recipe=recipe,
        time=begin,
        duration=end - begin,
    )


def _extent_line(first: int | None, last: int | None) -> str:
    """The line of a recipe that states an extent; None for an end that messages tell."""
    ends = {"from": first, "to": last}
    moments = [f"{key}: {moment_text(Bound(ns))}" for key, ns in ends.items() if ns is not None]
    return f"time: {{{', '.join(moments)}}}"


# --- stamps ---------------------------------------------------------------------------------------------


def _of_order(topic: TopicHealth, uri: str, is_set_back: bool) -> Iterator[HealthFinding]:
    """Times that decrease or are equal."""

    def finding(kind: str, count: int, message: str, remedy: str, recipe: str = "") -> HealthFinding:
        return HealthFinding(kind, uri, None, topic.topic, count, message, remedy, recipe=recipe)

    if topic.log_steps_back and not is_set_back:
        message = f"its log time decreases at {share_of(topic.log_steps_back, topic.messages, 'message')}"
        yield finding("back", topic.log_steps_back, message, "rows are made by time, so nothing need be done")
    if topic.steps_back and not is_set_back:
        messages = share_of(topic.steps_back, topic.messages, "message")
        message = f"its stamp decreases at {messages} (do several sources publish it?)"
        recipe = _by_log_time(topic.topic)
        remedy = f"in the recipe, `{recipe}`; or nothing, as rows are made by time"
        yield finding("back", topic.steps_back, message, remedy, recipe)
    if topic.duplicates and not is_set_back:
        stamp = "stamp" if topic.skew else "log time"
        has = "has" if topic.duplicates == 1 else "have"
        message = f"{share_of(topic.duplicates, topic.messages, 'message')} {has} the {stamp} of another one"
        remedy = f"of equal {stamp}s the last in the log is used"
        recipe = _by_log_time(topic.topic) if topic.skew else ""
        remedy += f"; or, in the recipe, `{recipe}`" if recipe else ""
        yield finding("twice", topic.duplicates, message, remedy, recipe)


def _leads(skew: tuple[int, int, int]) -> Leads:
    low, median, high = skew
    return Leads(low, median, high, low, high)


def _of_stamps(topic: TopicHealth, uri: str, offset: int | None) -> Iterator[HealthFinding]:
    """Report stamps that a build with the default `time` refuses.

    Args:
        offset: of a topic on another clock, what the recipe adds to its stamps.
    """
    if offset is not None and topic.skew:
        words = clock_words(_leads(topic.skew), offset)
        message = f"it is on another clock: {words}, which a build refuses by default"
        recipe = offset_line(topic.topic, offset)
        remedy = f"in the recipe, `{recipe}`, as in that of `info --recipe`; or set the clocks"
        yield HealthFinding("late", uri, None, topic.topic, topic.late, message, remedy, recipe=recipe)
    elif topic.late and topic.skew:
        low, median, high = topic.skew
        furthest = low if -low > high else high
        message = (
            f"the stamps of {share_of(topic.late, topic.messages, 'message')} are more than "
            f"{human_duration(MAX_SKEW)} from the log time, which a build refuses by default (the furthest "
            f"{human_duration(furthest)}, the median of all {human_duration(median)})"
        )
        if abs(furthest) <= MAX_DELAY:
            recipe = f"time: {{max_delay: {duration_text(bound_on_delay(abs(furthest)))}}}"
            more = "or more, as in that of `info --recipe`"  # which other topics and logs may need
        else:
            recipe = _by_log_time(topic.topic)
            more = "or `time: {by: log}` if the log was replayed or simulated, as `info --recipe` chooses"
        remedy = f"in the recipe, `{recipe}` {more}; or set the clocks"
        yield HealthFinding("late", uri, None, topic.topic, topic.late, message, remedy, recipe=recipe)
    if topic.unstamped:
        message = (
            f'the stamps of {share_of(topic.unstamped, topic.messages, "message")} are zero ("now"), which a '
            "build refuses by default"
        )
        recipe = _by_log_time(topic.topic)
        remedy = f"in the recipe, `{recipe}`, as in that of `info --recipe`"
        yield HealthFinding(
            "unstamped", uri, None, topic.topic, topic.unstamped, message, remedy, recipe=recipe
        )


# --- topics that stop -----------------------------------------------------------------------------------


def _late_beginnings(topics: Sequence[TopicHealth], extent: tuple[int, int]) -> Iterator[_Silence]:
    """Report topics that begin long after the log, the latest first."""
    for topic in sorted(topics, key=lambda topic: (-topic.first, topic.topic)):
        length = topic.first - extent[0]
        if length > _long_edge(topic, extent):
            yield _Silence(topic, extent[0], length, length // topic.period)


def _early_ends(topics: Sequence[TopicHealth], extent: tuple[int, int]) -> Iterator[_Silence]:
    """Report topics that end long before the log, the earliest first."""
    for topic in sorted(topics, key=lambda topic: (topic.last, topic.topic)):
        length = extent[1] - topic.last
        if length > _long_edge(topic, extent):
            yield _Silence(topic, topic.last, length, length // topic.period)


def _long_edge(topic: TopicHealth, extent: tuple[int, int]) -> int:
    return max(LONG_GAP * topic.period, min(LONG_EDGE, (extent[1] - extent[0]) // EDGE_SHARE))


def _silences(topics: Sequence[TopicHealth], facts: RecordedTime) -> Iterator[_Silence]:
    """Return the longest gap of each topic that isn't a silence of all, in time order."""
    found = []
    for topic in topics:
        gaps = [gap for gap in topic.gaps if not any(_is_inside(silence, gap) for silence in facts.silences)]
        if gaps:
            missing = sum(gap.length // topic.period - 1 for gap in gaps)
            found.append(_Silence(topic, *gaps[0], missing, len(gaps) - 1))
    return iter(sorted(found, key=lambda one: (one.at, one.topic.topic)))


def _is_inside(silence: tuple[int, int], gap: Gap) -> bool:
    """Return whether most of a gap is a silence of all topics."""
    both = min(silence[1], gap.at + gap.length) - max(silence[0], gap.at)
    return 2 * both > gap.length


def _edges(kind: str, silences: Sequence[_Silence], uri: str) -> Iterator[HealthFinding]:
    """Report the topics that begin, or end, at about the same time."""
    for group in _together(silences, lambda one: one.length, LONG_EDGE):
        one = group[0]
        verb = ("begin", "after the log begins") if kind == "begins" else ("end", "before the log ends")
        message = f"{_subject(group, verb[0])} {human_duration(one.length)} {verb[1]}{_periods(group)}"
        yield _finding(kind, group, message, uri)


def _gaps(silences: Sequence[_Silence], extent: tuple[int, int], uri: str) -> Iterator[HealthFinding]:
    """Report the topics that are silent at the same time."""
    for group in _together(silences, lambda one: one.at, LONG_EDGE // 10):
        one = group[0]
        message = (
            f"{'it is' if len(group) == 1 else f'{len(group)} topics are'} silent for "
            f"{human_duration(one.length)}{_periods(group)}, {human_duration(one.at - extent[0])} after the "
            f"log begins ({human_time(one.at)})"
        )
        if len(group) == 1 and one.more:
            message += f", and {counted(one.more, 'shorter time')}"
        yield _finding("gap", group, message, uri)


def _subject(group: Sequence[_Silence], verb: str) -> str:
    return f"it {verb}s" if len(group) == 1 else f"{len(group)} topics {verb}"


def _periods(group: Sequence[_Silence]) -> str:
    one = group[0]
    if len(group) > 1:
        return ""
    return f", {one.length // one.topic.period:,} of its intervals of {human_duration(one.topic.period)}"


def _finding(kind: str, group: Sequence[_Silence], message: str, uri: str) -> HealthFinding:
    topics = some_of((one.topic.topic for one in group), MAX_NAMED)
    missing, one = sum(one.missing for one in group), group[0]
    return HealthFinding(
        kind,
        uri,
        None,
        topics,
        missing,
        message,
        REQUIRED,
        recipe=REQUIRE,
        time=one.at,
        duration=one.length,
    )


def _together(
    silences: Sequence[_Silence], key: Callable[[_Silence], int], most: int
) -> Iterator[list[_Silence]]:
    """Group neighbours whose keys differ by at most `most` from that of the first."""
    group: list[_Silence] = []
    for one in (one for one in silences if not one.is_loss):
        if group and abs(key(one) - key(group[0])) > most:
            yield group
            group = []
        group.append(one)
    if group:
        yield group
