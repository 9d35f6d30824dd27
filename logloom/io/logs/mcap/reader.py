"""MCAP files: the kind, the summary and the chunks of a file.

Here: `KIND` and the container of one file.
Elsewhere: records (records), messages among them (messages), files without a complete index (scan), the log
(logloom.io.logs.files.container_log). CRCs are checked whenever the bytes they cover are read: of chunks and
of the summary; that of the data section when a file is scanned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from logloom.errors import LogReadError, TruncatedLogError
from logloom.io.logs.files.compression import crc32
from logloom.io.logs.files.container import Chunk, FileIndex, Int64s, clipped, damaged_at, index_of, way_on
from logloom.io.logs.files.container_log import ContainerKind
from logloom.io.logs.files.lazy_attributes import lazy
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.interface import MAX_TIME, OpenOptions, unfinished_words
from logloom.io.logs.mcap import records
from logloom.io.logs.mcap.messages import read_chunk, walked_chunk
from logloom.io.logs.mcap.scan import McapScan
from logloom.values import dataclass

TAIL = 64 << 10  # fetched at once: the footer, and most summaries
FOOTER_LENGTH = records.RECORD.size + 20 + len(records.MAGIC)


@dataclass
class Summary:
    """The records of the summary section."""

    schemas: dict[int, tuple[str, str, bytes]] = field(default_factory=dict)
    channels: list[tuple[int, int, str, str]] = field(default_factory=list)
    chunks: list[ChunkIndex] = field(default_factory=list)
    num_messages: int | None = None


@dataclass(frozen=True)
class ChunkIndex:
    """A chunk index record.

    Attributes:
        message_index: channel id to the offset of its message index record in the file.
    """

    first: int
    last: int
    offset: int
    record: int
    message_index: Mapping[int, int]
    message_index_length: int
    size: int

    @property
    def stop(self) -> int:
        return self.offset + self.record + self.message_index_length

    def counts(self) -> Iterator[tuple[int, int]]:
        """Number of messages by channel id, from the lengths of the message index records.

        For records with bytes after their last field these are too large.

        Raises:
            ValueError: the offsets contradict the lengths.
        """
        places = sorted((offset, channel) for channel, offset in self.message_index.items())
        if not places:
            return
        ends = [offset for offset, _ in places[1:]] + [self.stop]
        if places[0][0] != self.offset + self.record:
            raise ValueError("a chunk's message index doesn't start after the chunk")
        for (offset, channel), end in zip(places, ends, strict=True):
            if end < offset + 15:
                raise ValueError("a chunk index contradicts itself")
            yield channel, (end - offset - 15) // 16


class McapFile:
    """The container of one MCAP file."""

    remedy = "repair the file with `mcap recover`"
    reindex = "`mcap recover` writes one"

    def __init__(self, file: LogFile, options: OpenOptions):
        self.file = file
        self._max_chunk_bytes = self.settings = options.max_chunk_bytes

    def read_index(self) -> FileIndex | None:
        uri, size = self.file.uri, self.file.size
        if self._head != records.MAGIC:
            raise LogReadError(f"{uri}: is no MCAP file, it starts with {self._head!r}")
        tail_start, tail = self._tail
        if self.unfinished:
            raise TruncatedLogError(f"{uri}: {unfinished_words(self.unfinished)}; {way_on(self.remedy)}")
        footer = size - FOOTER_LENGTH
        content = records.RecordCursor(tail[footer - tail_start + records.RECORD.size :])
        summary_start, _, crc = content.unsigned(8), content.unsigned(8), content.unsigned(4)
        if summary_start == 0:
            return None
        if not len(records.MAGIC) <= summary_start <= footer:
            raise damaged_at(self, footer, f"the footer puts the summary's start at byte {summary_start}")
        if footer - summary_start > self._max_chunk_bytes:
            raise damaged_at(self, summary_start, "the summary is larger than max_chunk_bytes")
        data = tail[max(0, summary_start - tail_start) : -len(records.MAGIC)]
        if summary_start < tail_start:
            data = self.file.read(summary_start, tail_start) + data
        if crc and crc32(data[:-4]) != crc:
            raise damaged_at(self, summary_start, "the summary's CRC doesn't match its bytes")
        try:
            return _index_of(_parse_summary(memoryview(data)[: footer - summary_start]), summary_start)
        except ValueError as error:
            raise damaged_at(self, summary_start, f"the summary is damaged: {error}") from error

    @lazy
    def _head(self) -> bytes:
        return self.file.read(0, min(self.file.size, len(records.MAGIC)))

    @lazy
    def _tail(self) -> tuple[int, bytes]:
        """Return the file's last bytes, and where they start."""
        size = self.file.size
        start = max(0, size - TAIL)
        return start, self.file.read(start, size)

    @property
    def unfinished(self) -> str:
        """Why the file counts as not closed by its recorder; "" if it was closed, or isn't MCAP."""
        if self._head != records.MAGIC:
            return ""
        tail = self._tail[1]
        at = len(tail) - FOOTER_LENGTH
        if (
            at >= 0
            and tail.endswith(records.MAGIC)
            and records.RECORD.unpack_from(tail, at) == (records.FOOTER, 20)
        ):
            return ""
        return f"it ends at byte {self.file.size} without a footer"

    def scan(self) -> FileIndex:
        return McapScan(self.file, self._max_chunk_bytes).run()

    def decode(self, stretch: np.void, data: memoryview) -> Chunk:
        if stretch["loose"]:
            return walked_chunk(np.frombuffer(data, np.uint8))
        cut = bool(stretch["cut"])
        chunk = read_chunk(data, int(stretch["record"]), self._max_chunk_bytes, cut)
        return replace(chunk, is_checked=not cut and records.has_crc(data))

    def entries(self, stretch: np.void) -> dict[int, tuple[Int64s, Int64s]]:
        start = int(stretch["offset"] + stretch["record"])
        data = self.file.read(start, int(stretch["offset"] + stretch["length"]))
        try:
            entries = records.index_entries(memoryview(data))
        except ValueError as error:
            raise damaged_at(self, start, str(error)) from error
        return {
            channel: (clipped(part["time"]), clipped(part["offset"])) for channel, part in entries.items()
        }


def _parse_summary(data: memoryview) -> Summary:
    summary = Summary()
    at = 0
    while at < len(data):
        if at + records.RECORD.size > len(data):
            raise ValueError("it ends in the middle of a record")
        opcode, length = records.RECORD.unpack_from(data, at)
        at += records.RECORD.size
        if at + length > len(data):
            raise ValueError("a record reaches beyond its end")
        content = data[at : at + length]
        if opcode == records.SCHEMA:
            schema, parts = records.parse_schema(content)
            summary.schemas[schema] = parts
        elif opcode == records.CHANNEL:
            summary.channels.append(records.parse_channel(content))
        elif opcode == records.CHUNK_INDEX:
            summary.chunks.append(_parse_chunk_index(content))
        elif opcode == records.STATISTICS:
            summary.num_messages = records.RecordCursor(content).unsigned(8)
        at += length
    return summary


def _parse_chunk_index(content: memoryview) -> ChunkIndex:
    cursor = records.RecordCursor(content)
    first, last, offset, record = (cursor.unsigned(8) for _ in range(4))
    table = np.frombuffer(cursor.blob(), np.dtype([("channel", "<u2"), ("offset", "<u8")]))
    message_index = dict(zip(table["channel"].tolist(), table["offset"].tolist(), strict=True))
    message_index_length = cursor.unsigned(8)
    cursor.blob()  # the compression, which the chunk repeats
    cursor.unsigned(8)
    times = min(first, MAX_TIME), min(last, MAX_TIME)
    return ChunkIndex(*times, offset, record, message_index, message_index_length, cursor.unsigned(8))


def _index_of(summary: Summary, data_stop: int) -> FileIndex | None:
    """Return the index of a file from its summary; None if a scan is needed.

    Raises:
        ValueError: the summary contradicts itself.
    """
    if any(schema and schema not in summary.schemas for _, schema, _, _ in summary.channels):
        return None
    channels = {parts[0]: records.channel_of(parts, summary.schemas) for parts in summary.channels}
    chunks = sorted(summary.chunks, key=lambda chunk: chunk.offset)
    stretches: list[tuple[Any, ...]] = []
    shares: list[tuple[int, ...]] = []
    end = len(records.MAGIC)
    for number, chunk in enumerate(chunks):
        if chunk.offset < end or chunk.stop > data_stop or chunk.record < records.RECORD.size:
            raise ValueError(
                f"a chunk index has the impossible range from byte {chunk.offset} to {chunk.stop}"
            )
        end = chunk.stop
        length = chunk.record + chunk.message_index_length
        times = chunk.first, chunk.last
        size = min(chunk.size, MAX_TIME)
        stretches.append((number << 32, chunk.offset, length, chunk.record, size, *times, False, False))
        for channel, count in sorted(chunk.counts()):
            if count:
                shares.append((number, channel, count, *times))
            if channel not in channels:
                return None
    counted = sum(share[2] for share in shares)
    # Messages outside chunks, chunks without message index, or a summary without statistics need a scan.
    return index_of(channels, stretches, shares) if counted == summary.num_messages else None


KIND = ContainerKind("mcap", (".mcap",), records.MAGIC, McapFile)
