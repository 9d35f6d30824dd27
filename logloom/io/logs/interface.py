"""The interface of all kinds of logs: columns per topic and time range.

Here: the `Log` protocol and its values.
Elsewhere: the kinds (a folder each), message definitions and decoding (messages), resampling
(logloom.transforms).
Times are int64 nanoseconds since the Unix epoch; ranges are half-open, [start, stop).

A message has a log time (when the recorder got it), a publish time (the log time where the format has none)
and perhaps a header stamp; the recipe chooses its *message time* among them. Its *position* is an int64
that grows along the log and never changes: (chunk number << 32) | offset in the uncompressed chunk, or the
offset in the file if there are no chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Values
from logloom.digests import digest_of
from logloom.io.logs.recording_times import Bound, MessageRun, RecordedTime
from logloom.io.logs.table_dialects import TableDialect
from logloom.io.storage.metadata import Text
from logloom.schema import MAX_TIME as MAX_TIME
from logloom.schema import MIN_TIME as MIN_TIME
from logloom.schema import ColumnType, TimeRanges
from logloom.values import dataclass

TimeSource = Literal["header", "log", "publish"]
OnError = Literal["fail", "salvage", "skip"]
Redactions = Mapping[str, TimeRanges]


@dataclass(frozen=True)
class StatedTime:
    """A message time that a recipe states for a topic: of a source or a field, plus an offset.

    Attributes:
        by: the source; None for a field.
        field: its dotted path.
        unit: of a field that is a number, "ns", "us", "ms" or "s"; "" for a stamp.
        offset: ns; added to the time.
    """

    by: TimeSource | None = None
    field: str = ""
    unit: str = ""
    offset: int = 0

    def __str__(self) -> str:
        return self.by or f"field {self.field}"


MessageTime = TimeSource | StatedTime


def source_of(time: MessageTime) -> TimeSource | None:
    """Return the source of a message time; None for a field."""
    return time.by if isinstance(time, StatedTime) else time


@dataclass(frozen=True)
class Alternatives:
    """Names of which a log has one; recipes use the first.

    Attributes:
        topics: other names of a topic, by the first.
        fields: other paths of a field, by the first, by the first name of their topic.
    """

    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.topics or self.fields)

    def to_data(self) -> list[Any]:
        """Return JSON values, the same for equal names."""
        fields = [[topic, sorted(map(list, own.items()))] for topic, own in sorted(self.fields.items())]
        return [sorted(map(list, self.topics.items())), fields]


TABLE_ROW = "tables/Row"  # the type of messages that are rows of a table


@dataclass(frozen=True)
class TopicInfo:
    """One topic of a log.

    Attributes:
        type: the message type's full name in the log, e.g. "sensor_msgs/msg/Imu".
        encoding: of messages: "cdr", "ros1", "protobuf", "json".
        definition_encoding: of the definition: "ros2msg", "ros1msg", "ros2idl", "protobuf", "jsonschema".
        definition: the message definition in the log.
        num_messages: according to the index.
        first, last: log times of its first and last message without strays; 0 when there are none.
        num_times: distinct log times without those of strays; None if the index doesn't show them.
        num_strays: messages outside the recording; see `logloom.io.logs.recording_times`.
    """

    topic: str
    type: str
    encoding: str
    definition_encoding: str
    definition: bytes
    num_messages: int
    first: int
    last: int
    num_times: int | None = None
    num_strays: int = 0

    @property
    def num_recorded(self) -> int:
        """How many messages are part of the recording."""
        return self.num_messages - self.num_strays

    @property
    def num_ticks(self) -> int:
        """How many ticks it gives as a clock, at most; messages of one time give one tick."""
        return self.num_recorded if self.num_times is None else self.num_times


@dataclass(frozen=True)
class Refusal:
    """A message (or a stretch of bytes) that can't be used, and why."""

    uri: Text
    offset: int  # in the file, of the message, or of its chunk
    topic: Text  # "" when unknown
    position: int
    log_time: int
    reason: Text
    num_messages: int = 1
    unit: Text = "byte"  # what `offset` counts: "byte", "row" of a table, or "rowid" in a sqlite file

    @property
    def place(self) -> str:
        """Describe its place in its file."""
        return place(self.unit, self.offset)


def unfinished_words(why: str) -> str:
    """Describe a file that its recorder hasn't closed; follows its name."""
    return f"is still being written, its recorder crashed, or it was truncated: {why}"


def place(unit: str, offset: int) -> str:
    """Describe a place in a file."""
    return f"at {unit} {offset}" + (" of its table `messages`" if unit == "rowid" else "")


@dataclass(frozen=True)
class MessagePlace:
    """The place of a message in the files of its log.

    Attributes:
        unit: what `offset` counts: "byte", "row" of a table (from 0), or "rowid" in a sqlite file.
        offset: of the message's record in the file; of one in a chunk that of the chunk's record.
        within: of a message in a chunk, the byte of its record in the uncompressed chunk; else None.
        number: number of messages of its topic before it in the log.
    """

    uri: str
    unit: str
    offset: int
    within: int | None
    number: int


@dataclass(frozen=True)
class LogSummary:
    """Summary of a log from its index; a few KB, made without reading messages.

    Attributes:
        uris: its files, in the order in which they are joined.
        content_id: BLAKE3 of sizes and first and last MiB of each file, or of all their bytes.
        topics: by topic name, in name order.
        first, last: the extent: log times over all topics without strays, or as the recipe states it.
        chunk_times: (C, 2) first and last log time of each stretch of the log (MCAP or bag chunks).
        chunk_bytes: (C,) uncompressed bytes of each.
        unfinished: by URI, why files count as not closed by their recorder.
        is_told_by_files: whether the content id depends on these files alone; false if rows of a table may
            name others.
        known_times: when it was recorded; None if only the extent is known.
        pass_positions: of a log whose clock was set back the positions, first and last, of the messages that
            are part of the log; None for all.
        renamed: what `Alternatives` call otherwise: the first name, and the log's.
    """

    uris: tuple[str, ...]
    size: int
    content_id: str
    topics: Mapping[str, TopicInfo]
    first: int
    last: int
    chunk_times: NDArray[np.int64]
    chunk_bytes: NDArray[np.int64]
    refusals: tuple[Refusal, ...] = ()  # damage that the index shows
    unfinished: Mapping[str, str] = field(default_factory=dict)
    is_told_by_files: bool = True
    known_times: RecordedTime | None = None
    pass_positions: tuple[int, int] | None = None
    renamed: tuple[tuple[str, str], ...] = ()

    @property
    def messages_id(self) -> str:
        """Identifies the selected messages: the content id with the pass and names; "" if that is ""."""
        chosen = [*(self.pass_positions or ()), *self.renamed]
        return digest_of([self.content_id, *chosen]) if chosen and self.content_id else self.content_id

    @property
    def num_messages(self) -> int:
        """Of all topics."""
        return sum(info.num_messages for info in self.topics.values())

    @property
    def recorded(self) -> RecordedTime:
        """The recording times: runs of messages, and strays."""
        if self.known_times is not None:
            return self.known_times
        counts = {name: info.num_messages for name, info in self.topics.items() if info.num_messages}
        return RecordedTime((MessageRun(self.first, self.last, counts),) if counts else ())


@dataclass(frozen=True)
class TopicRequest:
    """Messages of a topic to read: those with start <= message time < stop.

    Attributes:
        time: sources of message times, of which the first that the definition has is used; header first by
            default.
        max_delay: ns; messages whose time, including the offset of a `StatedTime`, is further from their log
            time are refused. None means any distance, which costs one scan of the log (stored as a sidecar
            index).
        with_strays: whether to include messages outside the recording, as for static topics.
    """

    start: int
    stop: int
    time: tuple[MessageTime, ...] = ("header", "log")
    max_delay: int | None = 1_000_000_000
    with_strays: bool = False


@dataclass(frozen=True)
class FieldSpec:
    """The values that a column takes from each message of its topic.

    Attributes:
        paths: dotted field paths; several are concatenated along the last axis. Steps may index: `a[3]`,
            `a[1:4]`, `objects[].pose.position`. Empty with `adapter` only.
        adapter: None, "image", "points[x,y,z]", "scan", "navsat", "rotation_matrix", ...
        strings: characters kept for text inside arrays of sub-messages; a longer one is an error.
        shape: that all messages have, if the recipe declares it: (h, w, c) of images, or that of a list of
            numbers.
        resize: (height, width) of an image, or None.
        encode: None, "jpg" or "png".
        names: of joints, for the adapter "joints".
        unit: "mm" or "m", to which depth of images is converted; "" to keep it.
        dtype: for encodings without types (JSON), else None for the type in the definition.
        skips_nan: whether messages with NaN in their value have none.
    """

    paths: tuple[str, ...] = ()
    adapter: str | None = None
    strings: int = 32
    shape: tuple[int, ...] | None = None
    resize: tuple[int, int] | None = None
    encode: str | None = None
    dtype: str | None = None
    names: tuple[str, ...] = ()
    skips_nan: bool = False
    unit: str = ""


class Messages(Protocol):
    """Messages of one topic, in log order. Values are decoded when taken."""

    topic: str
    time: NDArray[np.int64]  # (N,) message times by the request's rule
    log_time: NDArray[np.int64]  # (N,)
    position: NDArray[np.int64]  # (N,) ascending
    refused: Sequence[Refusal]  # messages of this topic with a log time in the range that can't be used

    def __len__(self) -> int: ...

    def take(self, spec: FieldSpec, rows: NDArray[np.intp]) -> Values:
        """Decode the column's values of the given messages.

        Args:
            spec: the values to take from a message.
            rows: (n,) numbers of messages in this object, in any order.

        Returns:
            (n, *shape) or n ragged rows, of type `Log.column_type(topic, spec)`.

        Raises:
            LogReadError: a message doesn't fit its definition; names file, topic and byte offset.
        """

    def has_value(self, spec: FieldSpec) -> NDArray[np.bool_] | None:
        """(N,) whether each message has a value for the column; None if all have one by their definition.

        A message without a value is whole, and lacks what the column takes: a property, a joint, a picture, a
        cell, or, with `skips_nan`, numbers other than NaN. It doesn't count for the column. Messages that
        can't be decoded count as having one, so that `take` refuses them.

        Args:
            spec: the values to take from a message.
        """


class Log(Protocol):
    """One recording. Opens its files on first use; pickles as its arguments."""

    @property
    def summary(self) -> LogSummary:
        """Summary of the log, without its payload."""

    def column_type(self, topic: str, spec: FieldSpec) -> ColumnType:
        """Return the type of a column, from the message definition and the recipe alone, never from data.

        Args:
            topic: its name.
            spec: the values to take from a message.

        Raises:
            UsageError: no such field, or one of an unsupported type; suggests the nearest valid field.
        """

    def time_source(self, topic: str, sources: Sequence[MessageTime]) -> MessageTime | None:
        """Return the first of `sources` that messages of this topic have; None if they have none.

        Args:
            topic: its name.
            sources: in order of preference.

        Raises:
            UsageError: a field that is no time; suggests the nearest name.
        """

    def read(self, requests: Mapping[str, TopicRequest]) -> dict[str, Messages]:
        """Read the messages of each topic in its own time range; topics that the log lacks are left out.

        Reads only chunks with these topics and ranges.

        Args:
            requests: by topic.

        Raises:
            LogReadError: damage, under `on_error` fail.
        """

    def places(self, topic: str, positions: NDArray[np.int64]) -> list[MessagePlace]:
        """Return the places of a topic's messages at these positions.

        Args:
            topic: its name.
            positions: (n,) as in `Messages.position`.

        Raises:
            UsageError: no message of the topic has the position.
            LogReadError: the log can't be read there.
        """

    def last_message(self, topic: str, spec: FieldSpec | None = None) -> Messages:
        """Return the topic's last message by position, regardless of its stamps (one message, or none).

        Args:
            topic: its name.
            spec: a column; messages without a value for it don't count.
        """


@dataclass(frozen=True)
class OpenOptions:
    """How to open a log.

    Attributes:
        on_error: "fail" raises on damage and on messages that can't be used; "skip" raises on damage (the
            caller leaves the log out) and lists such messages in `refused`; "salvage" lists both and reads
            on.
        storage_options: for fsspec, by protocol.
        sidecars: URI of the folder for sidecar indices; None keeps them in memory only.
        max_chunk_bytes: chunks that declare more are refused before anything is allocated.
        hash: input of content ids: each file's "ends", or all its bytes, "full".
        redactions: erased ranges, by BLAKE3 of log_ids and by content ids; empty if the whole content was
            erased.
        extent: the first and last time of a log that a recipe states; None to use its messages.
        set_back: which part to read of a log whose clock was set back: "first", before all such places,
            "last", after all of them, "split", the pass `pass_number`; "" for the whole log.
        pass_number: from 1; 0 for the whole log. `open_log` takes it from the log_id.
        tables: how tables are written, by patterns of their names.
        guesses_tables: whether to guess how others are written, for a recipe that is yet to be made.
        alternatives: of names of topics and fields.
    """

    on_error: OnError = "fail"
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    sidecars: str | None = None
    max_chunk_bytes: int = 1 << 30
    hash: Literal["ends", "full"] = "ends"
    redactions: Redactions = field(default_factory=dict)
    time_names: tuple[str, ...] = ()
    extent: tuple[Bound | None, Bound | None] = (None, None)
    set_back: Literal["", "first", "last", "split"] = ""
    pass_number: int = 0
    tables: tuple[TableDialect, ...] = ()
    guesses_tables: bool = False
    alternatives: Alternatives = Alternatives()

    @property
    def known_by(self) -> str:
        """What content ids and topics depend on apart from content, including erased ranges."""
        erased = sorted(
            (log, [list(one) for one in ranges]) for log, ranges in self.redactions.items() if ranges
        )
        known = f"{self.hash} but for {digest_of(erased)}" if erased else self.hash
        known += f" by names {digest_of(list(self.time_names))}" if self.time_names else ""
        known += f" by tables {digest_of([one.to_data() for one in self.tables])}" if self.tables else ""
        return f"{known} by any of {digest_of(self.alternatives.to_data())}" if self.alternatives else known
