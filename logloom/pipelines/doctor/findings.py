"""Results of examining a log: findings, lost bytes, and the health of each topic.

Here: values that print as tables or JSON. No Beam.
Elsewhere: reading logs for it (doctor), anomalies of times (times), printing (logloom.cli).
Times are int64 nanoseconds since the Unix epoch. A *stamp* is a message's header stamp, its *skew* the stamp
minus the log time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from logloom.io.logs.interface import place
from logloom.pipelines.info.info import rate
from logloom.text import counted, human_bytes, human_duration
from logloom.values import dataclass

COLUMNS = ("topic", "messages", "interval", "longest", "skew", "back", "twice", "late", "lost")

MAX_SKEW = 1_000_000_000  # ns; recipes refuse stamps further from their log time by default
MIN_INTERVALS = 20  # of a topic; fewer may be regular by chance
REGULAR = 2  # times the median, which most intervals of a regular topic neither exceed nor fall below
LONG_GAP = 10  # times the median interval of a regular topic
MANY_GAPS = 3  # more mean that a topic pauses, if they are 1 % of its intervals or 20 % of its time
SHORTEST_GAP = 20_000_000  # ns; a shorter gap leaves no row without a value
# Kinds of findings in spite of which a build uses all messages.
NOTES = (
    "index", "back", "twice", "late", "unstamped", "begins", "ends", "gap", "silence", "undecodable",
    "frames", "calibration", "duplicate",
)  # fmt: skip
SALVAGE = "on_error: salvage"
SALVAGED = f"`{SALVAGE}` uses what is intact"
REQUIRE = "rows: {require: [COLUMN]}"
REQUIRED = f"in the recipe, `{REQUIRE}` drops rows without a value of a column"
LISTED = 20  # findings of one kind that are printed
FEW_LISTED = 3  # if most messages of a topic are lost, so that places matter little


@dataclass(frozen=True)
class HealthFinding:
    """A fault of a log, or a note, and the remedy.

    Attributes:
        kind: see docs/commands.md.
        offset: in the file, of the chunk or record; None if the finding is about a whole topic.
        unit: what the offset counts; see `Refusal`.
        count: of affected messages (or bytes if messages are unknown).
        severity: "note" if a build uses all messages nevertheless; else "damage": something is lost, or a
            build refuses it.
        recipe: the line of a recipe in the remedy; "" if there is none.
        time, duration: its beginning and duration, in ns; None if it has none.
    """

    kind: str
    uri: str
    offset: int | None
    topic: str
    count: int
    message: str
    remedy: str
    unit: str = "byte"
    severity: str = ""
    recipe: str = ""
    time: int | None = None
    duration: int | None = None

    def __post_init__(self) -> None:
        if not self.severity:
            object.__setattr__(self, "severity", "note" if self.kind in NOTES else "damage")

    @property
    def place(self) -> str:
        """Describe its place: a place in a file, a topic, or a file."""
        if self.offset is None:
            return self.topic or self.uri
        return f"{self.uri} {place(self.unit, self.offset)}"

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        return data | {"time_ns": data.pop("time"), "duration_ns": data.pop("duration")}


@dataclass(frozen=True)
class LostRange:
    """Bytes of a file that can't be used."""

    uri: str
    offset: int
    length: int


class Gap(NamedTuple):
    """An interval between neighbouring messages of a topic.

    Attributes:
        at: the time of the message before it.
        length: in ns.
    """

    at: int
    length: int


@dataclass(frozen=True)
class TopicHealth:
    """Observations of one topic.

    Attributes:
        promised: messages according to the index; messages: usable ones.
        first, last: log times.
        longest: the longest intervals between messages, longest first, by their stamps where these are no
            further than `MAX_SKEW` from the log time, else by log time.
        num_intervals: number of known ones.
        periods: ns, the intervals that a tenth, half and nine tenths of all don't exceed; 0 without any.
        skew: (min, median, max) in ns; None without header stamps.
        log_steps_back, steps_back: how often the log time, and the stamp, decreases from one message to the
            next, the stamp among messages of one frame that aren't late.
        duplicates: stamps (log times of topics without any) equal to that of a shortly preceding message of
            the same frame.
        late: stamps further than `MAX_SKEW` from their log time.
        unstamped: messages with a header stamp of zero.
        unfit: messages whose bytes don't fit their definition, and incomplete pictures.
        lost: messages in the index that were lost by damage.
        strays: messages far from the recording, which aren't counted elsewhere.
    """

    topic: str
    type: str
    promised: int
    messages: int
    first: int
    last: int
    longest: tuple[Gap, ...]
    num_intervals: int
    periods: tuple[int, int, int]
    skew: tuple[int, int, int] | None
    log_steps_back: int
    steps_back: int
    duplicates: int
    late: int
    unstamped: int
    unfit: int
    lost: int
    strays: int

    @property
    def period(self) -> int:
        """The median interval in ns; 0 with less than two messages."""
        return self.periods[1]

    @property
    def hz(self) -> float:
        """Messages a second: of a regular topic by the median interval, of others on average."""
        if self.is_regular:
            return 1e9 / self.period
        return rate(self.messages, self.first, self.last)

    @property
    def is_regular(self) -> bool:
        """Whether messages arrive at about equal intervals, so that a long one is a fault.

        They don't on topics of events, and on those that pause repeatedly, such as a joystick's.
        """
        shortest, median, longest = self.periods
        if self.num_intervals < MIN_INTERVALS or not longest <= REGULAR * median <= REGULAR**2 * shortest:
            return False
        length = sum(gap.length for gap in self._long)
        is_often = len(self._long) * 100 > self.num_intervals or length * 5 > self.last - self.first
        return not (len(self._long) > MANY_GAPS and is_often)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Return the intervals that are far too long for a regular topic; if there are many, the longest."""
        return self._long if self.is_regular else ()

    @property
    def _long(self) -> tuple[Gap, ...]:
        usual = max(LONG_GAP * self.period, SHORTEST_GAP)
        return tuple(gap for gap in self.longest if gap.length > usual)

    def table_row(self) -> tuple[str, ...]:
        skew = " / ".join(dict.fromkeys(map(human_duration, self.skew or ())))
        interval = human_duration(self.period) if self.longest else ""
        longest = human_duration(self.longest[0].length) if self.longest else ""
        back = self.steps_back + self.log_steps_back
        lost = self.lost + self.unfit + self.strays
        counts = (back, self.duplicates, self.late + self.unstamped, lost)
        head = (self.topic, f"{self.messages:,}", interval, longest, skew)
        return (*head, *(f"{count:,}" if count else "" for count in counts))

    def to_json(self) -> dict[str, Any]:
        longest = self.longest[0] if self.longest else None
        return {
            "topic": self.topic,
            "type": self.type,
            "promised": self.promised,
            "messages": self.messages,
            "hz": round(self.hz, 3),
            "is_regular": self.is_regular,
            "first_ns": self.first,
            "last_ns": self.last,
            "period_ns": self.period,
            "longest_gap_ns": longest.length if longest else 0,
            "longest_gap_at_ns": longest.at if longest else None,
            "gaps": [{"at_ns": gap.at, "length_ns": gap.length} for gap in self.gaps],
            "skew_ns": dict(zip(("min", "median", "max"), self.skew, strict=True)) if self.skew else None,
            "log_steps_back": self.log_steps_back,
            "steps_back": self.steps_back,
            "duplicates": self.duplicates,
            "late": self.late,
            "unstamped": self.unstamped,
            "unfit": self.unfit,
            "lost": self.lost,
            "strays": self.strays,
        }


@dataclass(frozen=True)
class Diagnosis:
    """Results of reading one log from end to end.

    Attributes:
        unchecked: messages without a checksum in the file, so that a change of their bytes can't be detected;
            None if unknown.
    """

    log_id: str
    uris: tuple[str, ...]
    size: int = 0
    topics: tuple[TopicHealth, ...] = ()
    findings: tuple[HealthFinding, ...] = ()
    lost: tuple[LostRange, ...] = ()
    unchecked: int | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was found, not even a note."""
        return not self.findings

    @property
    def is_damaged(self) -> bool:
        """Whether messages are lost, or a build refuses some."""
        return any(finding.severity == "damage" for finding in self.findings)

    @property
    def is_readable(self) -> bool:
        return all(finding.kind != "unreadable" for finding in self.findings)

    @property
    def bytes_lost(self) -> int:
        return sum(part.length for part in self.lost)

    @property
    def headline(self) -> str:
        messages = sum(topic.messages for topic in self.topics)
        places = counted(len(self.lost), "place")
        lost = f", {human_bytes(self.bytes_lost)} in {places} lost" if self.lost else ""
        return (
            f"{self.log_id}: {counted(messages, 'message')} of {counted(len(self.topics), 'topic')} in "
            f"{human_bytes(self.size)}"
            f"{lost}\n{self.uris[0]}{' …' if len(self.uris) > 1 else ''}"
        )

    def lines(self) -> Iterator[str]:
        """Lines for people: the first `LISTED` findings of each kind, and the most frequent losses of
        topics.
        """
        if self.is_healthy:
            yield f"{self.log_id}: healthy"
        elif not self.is_damaged:
            yield f"{self.log_id}: no damage; {counted(len(self.findings), 'note')}"
        if self.unchecked and self.is_readable:
            yield (
                f"note: {counted(self.unchecked, 'message has', 'messages have')} no checksum, so that a "
                f"change of {'its' if self.unchecked == 1 else 'their'} bytes can't be detected"
            )
        worst = [topic for topic in self.topics if 2 * (topic.lost + topic.unfit) > topic.promised]
        for topic in worst:
            share = share_of(topic.lost + topic.unfit, topic.promised, "message")
            yield f"lost: {topic.topic}: most of it, {share}"
        most = FEW_LISTED if worst else LISTED
        listed: dict[str, int] = {}
        for finding in self.findings:
            listed[finding.kind] = listed.get(finding.kind, 0) + 1
            if listed[finding.kind] <= most:
                place = f"{finding.place}: " if finding.kind != "unreadable" else ""
                note = "note: " if finding.severity == "note" else ""
                yield f"{note}{finding.kind}: {place}{finding.message}\n    {finding.remedy}"
        for kind, count in listed.items():
            if count > most:
                yield f"{kind}: {count - most:,} more; --json lists them all"

    def to_json(self) -> dict[str, Any]:
        return {
            "log_id": self.log_id,
            "uris": list(self.uris),
            "healthy": self.is_healthy,
            "damaged": self.is_damaged,
            "readable": self.is_readable,
            "size": self.size,
            "bytes_lost": self.bytes_lost,
            "unchecked": self.unchecked,
            "lost": [asdict(part) for part in self.lost],
            "topics": [topic.to_json() for topic in self.topics],
            "findings": [finding.to_json() for finding in self.findings],
        }


def share_of(count: int, total: int, noun: str) -> str:
    """`all 100 messages`, `3 of 100 messages`"""
    return f"all {counted(total, noun)}" if count == total > 1 else f"{count:,} of {counted(total, noun)}"
