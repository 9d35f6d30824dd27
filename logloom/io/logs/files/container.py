"""Containers: files with messages, their index, and contents of stretches.

Here: `Container`, the interface of a kind of file, and its values; `CHUNKS`, the cache of chunks.
Elsewhere: the kinds (logloom.io.logs), one file and several as one log
(log_part, container_log), stored indices (sidecars).

A *stretch* is what is fetched and read in one go: a chunk with the index records that follow it, or a run of
records outside chunks ("loose"). Times are int64 nanoseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from logloom.errors import LogReadError
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.interface import MAX_TIME
from logloom.io.storage.lru_cache import LruCache
from logloom.values import dataclass

Int64s = NDArray[np.int64]
Buffer = NDArray[np.uint8]

STRETCH = np.dtype(
    [
        ("position", "<i8"),  # of the first byte of its buffer
        ("offset", "<i8"),  # in the file
        ("length", "<i8"),  # bytes to fetch: the chunk record and the index records behind it
        ("record", "<i8"),  # of these, the chunk record; 0 if only its own header has it
        ("size", "<i8"),  # uncompressed
        ("first", "<i8"),  # log times
        ("last", "<i8"),
        ("loose", "?"),  # records outside chunks
        ("cut", "?"),  # a chunk whose end is missing in the file
    ]
)
SHARE = np.dtype(
    [
        ("stretch", "<i8"),
        ("channel", "<i8"),
        ("count", "<i8"),  # of messages
        ("first", "<i8"),  # log times if a scan found them; else those of the stretch
        ("last", "<i8"),
        ("begin", "<i8"),  # log time of the first message in the file if a scan found it; else `first`
        ("back", "<i8"),  # the most that the time decreases from message to message; -1 where unknown
    ]
)


FREE_FILE_BYTES = 1 << 30  # limit of all stretches of any file
MAX_FILE_RATIO = 1000  # further limit, per byte of the file


@dataclass(frozen=True)
class Channel:
    """A source of messages within a file (a ROS 1 bag calls it a connection). Topics may have several."""

    id: int
    topic: str
    type: str
    encoding: str
    definition_encoding: str
    definition: bytes


@dataclass(frozen=True)
class LostBytes:
    """Bytes of a file that can't be used, found while scanning it.

    Attributes:
        offset, length: in the file.
        topic, num_messages: according to an index; "" and 0 if unknown.
        torn: whether the file ends in the middle of a record.
        unit: what `offset` counts; see `Refusal`.
    """

    offset: int
    length: int
    reason: str
    topic: str = ""
    num_messages: int = 0
    position: int = 0
    log_time: int = 0
    torn: bool = False
    unit: str = "byte"


@dataclass(frozen=True)
class FileIndex:
    """The places of the messages in one file.

    Attributes:
        channels: by id.
        stretches: (C,) of dtype STRETCH, by offset, including those without messages.
        shares: (K,) of dtype SHARE, by (stretch, channel); only for channels with messages in the stretch.
        num_numbers: number of chunk numbers that its positions use.
        lost: damage that a scan found.
        is_scanned: whether it was made by scanning the file, so that the times of shares are exact.
        is_checked: whether that found a checksum of all messages, and it matched.
    """

    channels: Mapping[int, Channel]
    stretches: NDArray[Any]
    shares: NDArray[Any]
    num_numbers: int
    lost: tuple[LostBytes, ...] = ()
    is_scanned: bool = False
    is_checked: bool = False

    @property
    def with_messages(self) -> NDArray[Any]:
        """(C',) the numbers of the stretches that hold messages."""
        numbers = self.shares["stretch"]  # in order
        return numbers[np.diff(numbers, prepend=-1) > 0]


@dataclass(frozen=True)
class Chunk:
    """The messages of one stretch, in file order.

    Attributes:
        buffer: its uncompressed bytes, read-only.
        channel, log_time, publish_time: (N,).
        offset: (N,) of each message's record in `buffer`.
        start, length: (N,) of each payload in `buffer`.
        problems: what is wrong with it; the messages listed are intact.
        is_checked: whether a checksum in the file covers these messages.
    """

    buffer: Buffer
    channel: Int64s
    log_time: Int64s
    publish_time: Int64s
    offset: Int64s
    start: Int64s
    length: Int64s
    problems: tuple[str, ...] = ()
    is_checked: bool = False

    def __len__(self) -> int:
        return len(self.channel)

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes + 6 * self.channel.nbytes

    def shares_memory(self, data: memoryview) -> bool:
        """Return whether the chunk is a view of the bytes it was read from, as without compression.

        Args:
            data: the bytes that were read.
        """
        memory = np.frombuffer(data, np.uint8)
        parts = (self.channel, self.log_time, self.publish_time, self.offset, self.start, self.length)
        return any(np.may_share_memory(part, memory) for part in (self.buffer, *parts))


# The latest uncompressed chunks, so that overlapping reads decompress them once. Apart from its messages, of
# which there may be few, a chunk takes some memory.
CHUNKS: LruCache[Chunk] = LruCache(64 << 20, lambda chunk: chunk.nbytes + (3 << 10))
NO_BYTES: Buffer = np.empty(0, np.uint8)
NO_INTS: Int64s = np.empty(0, np.int64)


def broken_chunk(problem: str) -> Chunk:
    """Return a chunk of an entirely unusable stretch."""
    return Chunk(NO_BYTES, NO_INTS, NO_INTS, NO_INTS, NO_INTS, NO_INTS, NO_INTS, (problem,))


class Container(Protocol):
    """One file. Keeps no file handle; methods are thread-safe.

    A container may also have: `reindex`, how to add an index to a file without one, in words; `unit`, what
    offsets of its stretches count if these aren't bytes; `unfinished`, why its recorder hasn't closed the
    file, or ""; `entries(stretch)`, the log times of single messages and their offsets in the uncompressed
    stretch, by channel, without which stretches are read whole if needed.
    """

    @property
    def file(self) -> LogFile: ...

    @property
    def remedy(self) -> str:
        """What to do about a damaged file, for errors."""

    @property
    def settings(self) -> Hashable:
        """Settings apart from the file that `decode` depends on."""

    def read_index(self) -> FileIndex | None:
        """Read the index in the file; None if it has none, or an incomplete one.

        Raises:
            LogReadError: the index is damaged, or the file is of another kind.
        """

    def scan(self) -> FileIndex:
        """Index the file by reading all of it, with everything that was lost; never fails on damage.

        Raises:
            LogReadError: its stretches exceed a `Budget`.
        """

    def decode(self, stretch: np.void, data: memoryview) -> Chunk:
        """Decode the messages of a stretch from its bytes; never fails on damage.

        Args:
            stretch: an item of the index's `stretches`.
            data: its bytes.
        """


def every_offset(buffer: Buffer, dtype: np.dtype[Any]) -> NDArray[Any]:
    """View `buffer` as items of `dtype` that start at every byte, to gather headers by offset.

    Args:
        buffer: the bytes to look at.
        dtype: of an item.
    """
    count = max(0, len(buffer) - dtype.itemsize + 1)
    return np.ndarray((count,), dtype, buffer.data, strides=(1,))


def as_slice(offset: Int64s) -> slice | Int64s:
    """Convert evenly spaced offsets to a slice, which is several times faster to index with."""
    if len(offset) > 2:
        step = int(offset[1] - offset[0])
        if step > 0 and (np.diff(offset) == step).all():
            return slice(int(offset[0]), int(offset[-1]) + 1, step)
    return offset


def clipped(times: NDArray[np.uint64]) -> Int64s:
    """Convert unsigned times to int64; larger ones become `MAX_TIME`, which only open ranges include."""
    return np.minimum(times, np.uint64(MAX_TIME)).astype(np.int64)


@dataclass
class Budget:
    """Limit of the uncompressed stretches of a file, so that small files can't cause endless work."""

    file: LogFile
    taken: int = 0

    def take(self, num_bytes: int) -> None:
        """Count bytes.

        Args:
            num_bytes: uncompressed size of a stretch.

        Raises:
            LogReadError: the limit is exceeded.
        """
        self.taken += num_bytes
        if self.taken > FREE_FILE_BYTES and self.taken > MAX_FILE_RATIO * (stored := self.file.stored_size):
            raise LogReadError(
                f"{self.file.uri}: its {stored} bytes declare {self.taken} uncompressed bytes or more, over "
                f"{MAX_FILE_RATIO} times as many; leave it out, or, if that is intended, rewrite it without "
                "compression"
            )


@dataclass
class IndexBuilder:
    """Collect what a scan finds.

    Attributes:
        budget: of a file with compressed chunks.
    """

    budget: Budget | None = None
    channels: dict[int, Channel] = field(default_factory=dict)
    stretches: list[tuple[Any, ...]] = field(default_factory=list)
    shares: list[tuple[int, ...]] = field(default_factory=list)
    lost: list[LostBytes] = field(default_factory=list)
    number: int = 0  # of the next chunk
    is_checked: bool = False

    def add(
        self, chunk: Chunk, offset: int, length: int, record: int, loose: bool = False, cut: bool = False
    ) -> None:
        """Add a stretch, which is numbered even if none of it is usable.

        Args:
            chunk: its messages.
            offset: in the file.
            length: how many bytes to fetch: the chunk's record, and the index records behind it.
            record: how many of these are the chunk's record.
            loose: whether these are records outside chunks.
            cut: whether the file lacks the chunk's end.

        Raises:
            LogReadError: all stretches together are too large.
        """
        if self.budget is not None:
            self.budget.take(chunk.buffer.nbytes)
        if len(chunk):
            for channel in np.unique(chunk.channel).tolist():
                times = chunk.log_time[chunk.channel == channel]
                self.shares.append((len(self.stretches), channel, *share_of(times)))
            times = chunk.log_time
            span = int(times.min()), int(times.max())
            position = self.number << 32
            size = len(chunk.buffer)
            self.stretches.append((position, offset, length, record, size, *span, loose, cut))
        self.number += 1

    def lose(self, offset: int, length: int, reason: str, **more: Any) -> None:
        """Record bytes of the file that can't be used.

        Args:
            offset: where they begin in the file.
            length: how many they are.
            reason: why, for people.
            more: fields of `LostBytes`.
        """
        self.lost.append(LostBytes(offset, length, reason, **more))

    def lose_of_chunk(
        self, offset: int, length: int, reason: str, chunk: Chunk, claimed: Mapping[int, int], first: int
    ) -> None:
        """Record a damaged chunk, just before adding it.

        Args:
            offset: where it begins in the file.
            length: of its bytes.
            reason: why, for people.
            chunk: its usable part.
            claimed: number of its messages by channel, according to the file's own index.
            first: its first log time, according to the chunk.
        """
        missing: dict[str, int] = {}
        for channel, count in sorted(claimed.items()):
            topic = self.channels[channel].topic if channel in self.channels else ""
            lost = max(0, count - int((chunk.channel == channel).sum()))
            missing[topic] = missing.get(topic, 0) + lost
        where = {"position": self.number << 32, "log_time": first}
        for topic, count in (missing or {"": 0}).items():
            self.lose(offset, length, reason, topic=topic, num_messages=count, **where)

    def drop_unknown_channels(self) -> None:
        """Record messages whose channel no record describes as lost."""
        for stretch, channel, count, first, *_ in self.shares:
            if channel not in self.channels:
                where = self.stretches[stretch]
                self.lose(
                    int(where[1]),
                    int(where[2]),
                    f"messages of channel {channel}, which no record describes",
                    num_messages=count,
                    position=int(where[0]),
                    log_time=first,
                )
        self.shares = [share for share in self.shares if share[1] in self.channels]

    def build(self, file_size: int) -> FileIndex:
        """Return the index of what was added.

        Args:
            file_size: in bytes.
        """
        stretches = np.array(self.stretches, STRETCH)
        if len(stretches) and stretches["loose"].all():
            stretches["position"] = stretches["offset"]
            self.number = (file_size >> 32) + 1
        shares = np.array(self.shares, SHARE)
        lost = tuple(self.lost)
        return FileIndex(self.channels, stretches, shares, self.number, lost, True, self.is_checked)


def share_of(times: Int64s) -> tuple[int, int, int, int, int]:
    """Describe the messages of a channel in a stretch by their log times; see `SHARE`."""
    back = max(0, -int(np.diff(times).min())) if len(times) > 1 else 0
    return len(times), int(times.min()), int(times.max()), int(times[0]), back


def index_of(
    channels: Mapping[int, Channel], stretches: Iterable[tuple[Any, ...]], shares: Iterable[tuple[int, ...]]
) -> FileIndex:
    """Make the index from a file's own index; the stretches are all its chunks, by offset."""
    table = np.array(list(stretches), STRETCH)
    parts = np.array([(*share, share[3], -1) for share in shares], SHARE)
    return FileIndex(channels, table, parts, len(table))


def way_on(remedy: str) -> str:
    """Describe what to do about a damaged file, as the end of an error."""
    return f"{remedy}, or set on_error: salvage to use all undamaged messages"


def damaged_at(container: Container, offset: int, what: str) -> LogReadError:
    """Return the error for a file that is damaged at an offset."""
    return LogReadError(f"{container.file.uri}: {what} (at byte {offset}); {way_on(container.remedy)}")
