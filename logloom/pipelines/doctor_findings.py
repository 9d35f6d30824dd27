"""What an examination of a log says: findings, lost bytes, and the health of each topic.

Here: values that print as tables or JSON, and what counts as strange in a topic's times. No Beam.
Elsewhere: reading logs for it (doctor), printing (logloom.cli).
Times are int64 nanoseconds since the Unix epoch. A *stamp* is a message's header stamp, its *skew* the stamp
minus the log time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from logloom.io.logs.base import place
from logloom.pipelines.info import rate
from logloom.words import counted, human_bytes

COLUMNS = ("topic", "messages", "Hz", "gap, s", "skew, ms", "back", "twice", "late", "lost")

MAX_SKEW = 1_000_000_000  # ns; recipes refuse stamps further from their log time, unless they say otherwise
LONG_GAP = 10  # times the usual period of a topic
SHORTEST_GAP = 500_000_000  # ns; shorter silences are nobody's trouble
NOTES = ("index", "back", "twice", "gap", "frames", "calibration")  # kinds of findings that cost no message
LISTED = 20  # findings of one kind that are printed


@dataclass(frozen=True)
class HealthFinding:
    """One thing that is wrong or worth knowing, and the way out.

    Attributes:
        kind: "unreadable", "missing", "index", "truncated", "damaged", "undecodable", "unfit", "unstamped",
            "late", "back", "twice", "gap", "frames", "calibration", or of tables "nulls" or "types".
        offset: in the file, of the chunk or record; None where the finding is about a topic as a whole.
        unit: what the offset counts; see `Refusal`.
        count: of messages (or bytes where nobody knows of messages) that it concerns.
        severity: "note" where a build takes all messages nevertheless; else "damage": something is lost, or a
            build refuses it.
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

    def __post_init__(self) -> None:
        if not self.severity:
            object.__setattr__(self, "severity", "note" if self.kind in NOTES else "damage")

    @property
    def place(self) -> str:
        """Where it is, in words: a place in a file, a topic, or a file."""
        if self.offset is None:
            return self.topic or self.uri
        return f"{self.uri} {place(self.unit, self.offset)}"


@dataclass(frozen=True)
class LostRange:
    """Bytes of a file that can't be used."""

    uri: str
    offset: int
    length: int


@dataclass(frozen=True)
class TopicHealth:
    """What was seen of one topic.

    Attributes:
        promised: messages by the index; messages: those that can be used.
        first, last: log times.
        longest_gap, gap_at: ns between neighbouring messages, by their stamps where these are no later than
            `MAX_SKEW`, else by log time; and the time before it.
        period: ns, the median between neighbours; 0 with less than two messages.
        skew: (min, median, max) in ns; None without header stamps.
        log_steps_back, steps_back: how often the log time, and the stamp, falls from one message to the next.
        duplicates: stamps, of topics without any log times, that a message shortly before had too.
        late: stamps further than `MAX_SKEW` from their log time.
        unstamped: messages whose header stamp is no time (zero).
        unfit: messages whose bytes don't fit their definition.
        lost: messages that the index promises and damage took.
    """

    topic: str
    type: str
    promised: int
    messages: int
    first: int
    last: int
    longest_gap: int
    gap_at: int
    period: int
    skew: tuple[int, int, int] | None
    log_steps_back: int
    steps_back: int
    duplicates: int
    late: int
    unstamped: int
    unfit: int
    lost: int

    @property
    def hz(self) -> float:
        return rate(self.messages, self.first, self.last)

    def table_row(self) -> tuple[str, ...]:
        skew = "/".join(f"{ns / 1e6:.1f}" for ns in self.skew) if self.skew else ""
        back = self.steps_back + self.log_steps_back
        counts = (back, self.duplicates, self.late + self.unstamped, self.lost + self.unfit)
        gap = f"{self.longest_gap / 1e9:.3f}" if self.messages > 1 else ""
        head = (self.topic, f"{self.messages:,}", f"{self.hz:.2f}", gap, skew)
        return (*head, *(f"{count:,}" if count else "" for count in counts))


@dataclass(frozen=True)
class Diagnosis:
    """What is known of one log after it was read from end to end.

    Attributes:
        unchecked: messages that no checksum in the file covers, so that a change of their bytes can't be
            seen; None where that isn't known.
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
        return all(finding.severity == "note" for finding in self.findings)

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
        """The findings for people, the first `LISTED` of each kind."""
        if self.is_healthy:
            yield f"{self.log_id}: healthy"
        if self.unchecked and self.is_readable:
            yield (
                f"note: {counted(self.unchecked, 'message has', 'messages have')} no checksum, so that a "
                f"change of {'its' if self.unchecked == 1 else 'their'} bytes can't be noticed"
            )
        listed: dict[str, int] = {}
        for finding in self.findings:
            listed[finding.kind] = listed.get(finding.kind, 0) + 1
            if listed[finding.kind] <= LISTED:
                place = f"{finding.place}: " if finding.kind != "unreadable" else ""
                note = "note: " if finding.severity == "note" else ""
                yield f"{note}{finding.kind}: {place}{finding.message}\n    {finding.remedy}"
        for kind, count in listed.items():
            if count > LISTED:
                yield f"{kind}: {count - LISTED:,} more; --json lists them all"

    def to_json(self) -> dict[str, Any]:
        topics = [asdict(topic) | {"hz": round(topic.hz, 3)} for topic in self.topics]
        return {
            "log_id": self.log_id,
            "uris": list(self.uris),
            "healthy": self.is_healthy,
            "readable": self.is_readable,
            "size": self.size,
            "bytes_lost": self.bytes_lost,
            "unchecked": self.unchecked,
            "lost": [asdict(part) for part in self.lost],
            "topics": topics,
            "findings": [asdict(finding) for finding in self.findings],
        }


def judge(topic: TopicHealth, uri: str) -> Iterator[HealthFinding]:
    """What is strange about the times of a topic."""

    def finding(kind: str, count: int, message: str, remedy: str) -> HealthFinding:
        return HealthFinding(kind, uri, None, topic.topic, count, message, remedy)

    by_log_time = f"in the recipe, `time: {{topics: {{{topic.topic}: log}}}}`"
    if topic.log_steps_back:
        message = (
            f"its log time runs back at {topic.log_steps_back:,} of {counted(topic.messages, 'message')}"
        )
        yield finding("back", topic.log_steps_back, message, "rows are made by time, so nothing need be done")
    if topic.steps_back:
        message = f"its stamp runs back at {topic.steps_back:,} of {counted(topic.messages, 'message')}"
        yield finding(
            "back", topic.steps_back, message, f"see whether several sources publish it; or, {by_log_time}"
        )
    if topic.duplicates:
        stamps = "stamps" if topic.skew else "log times"
        are = "is that" if topic.duplicates == 1 else "are those"
        message = f"{topic.duplicates:,} of {topic.messages:,} {stamps} {are} of another message"
        remedy = f"of equal {stamps} the last in the log is used" + (
            f"; or, {by_log_time}" if topic.skew else ""
        )
        yield finding("twice", topic.duplicates, message, remedy)
    if topic.late and topic.skew:
        low, _, high = topic.skew
        furthest = low if -low > high else high
        message = (
            f"{topic.late:,} of {topic.messages:,} stamps {'lies' if topic.late == 1 else 'lie'} more than "
            f"{MAX_SKEW / 1e9:g} s from {'its' if topic.late == 1 else 'their'} log time, "
            f"the furthest {furthest / 1e9:+.3f} s"
        )
        yield finding(
            "late", topic.late, message, f"set the clocks; or, {by_log_time} or `time: {{max_delay: none}}`"
        )
    if topic.unstamped:
        are = "is" if topic.unstamped == 1 else "are"
        message = f"{topic.unstamped:,} of {topic.messages:,} header stamps {are} zero, which is no time"
        yield finding("unstamped", topic.unstamped, message, by_log_time)
    usual = max(topic.period, (topic.last - topic.first) // max(1, topic.messages - 1))
    if topic.longest_gap > max(LONG_GAP * usual, SHORTEST_GAP):
        message = (
            f"it is silent for {topic.longest_gap / 1e9:.3f} s after {topic.gap_at}, "
            f"where one every {usual / 1e6:.1f} ms is usual"
        )
        yield finding("gap", 1, message, "a `tolerance` of its columns keeps old values out of rows")
