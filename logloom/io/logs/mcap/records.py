"""Layouts of MCAP records, and parsing those that aren't messages.

Here: pure functions on buffers.
Elsewhere: finding messages among records (messages), reading files (reader).
A record is an opcode (u8), the length of its content (u64) and the content; integers are little-endian.
Bytes after the last known field are of later versions of the format, and ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.files.compression import crc32, decompress, decompress_prefix
from logloom.io.logs.files.container import Buffer, Channel
from logloom.io.logs.interface import MAX_TIME
from logloom.values import dataclass

MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, CHUNK_INDEX = range(1, 9)
ATTACHMENT, ATTACHMENT_INDEX, STATISTICS, METADATA, METADATA_INDEX, SUMMARY_OFFSET, DATA_END = range(9, 16)
PRIVATE = 0x80  # opcodes from here on are the application's own

RECORD = struct.Struct("<BQ")
RECORD_HEAD = np.dtype([("op", "u1"), ("length", "<u8")])
MESSAGE_HEAD = np.dtype(
    [
        ("op", "u1"),
        ("length", "<u8"),
        ("channel", "<u2"),
        ("sequence", "<u4"),
        ("log_time", "<u8"),
        ("publish_time", "<u8"),
    ]
)
MESSAGE_FIXED = MESSAGE_HEAD.itemsize - RECORD.size  # of a message record's content, before its payload
INDEX_ENTRY = np.dtype([("time", "<u8"), ("offset", "<u8")])
CHUNK_HEAD = struct.Struct("<QQQII")  # first and last log time, uncompressed size, CRC, length of a name
MAX_BUFFER = 1 << 32  # positions keep 32 bits for the offset in a chunk


class RecordCursor:
    """Reads values from the front of a record's content.

    Raises (all methods):
        ValueError: the content ends early.
    """

    def __init__(self, data: bytes | memoryview):
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        part = bytes(self._data[self._at : self._at + count])
        if len(part) != count:
            raise ValueError("a record's content ends early")
        self._at += count
        return part

    def unsigned(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def text(self) -> str:
        return self.take(self.unsigned(4)).decode("utf-8")

    def blob(self) -> bytes:
        return self.take(self.unsigned(4))


@dataclass(frozen=True)
class ChunkHead:
    """A chunk record without its payload.

    Attributes:
        body: where in the record (from its opcode) the compressed bytes start.
        body_length: how many there should be.
    """

    first: int
    last: int
    size: int
    crc: int
    compression: str
    body: int
    body_length: int


def chunk_head(record: memoryview) -> ChunkHead:
    """Read the head of a chunk record, which starts with its opcode and may be truncated.

    Raises:
        ValueError: not a chunk record, or its lengths contradict each other.
    """
    if len(record) < RECORD.size + CHUNK_HEAD.size + 8:
        raise ValueError("the chunk record is too short")
    opcode, length = RECORD.unpack_from(record)
    if opcode != CHUNK:
        raise ValueError(f"a chunk record should start there, found opcode {opcode}")
    first, last, size, crc, name_length = CHUNK_HEAD.unpack_from(record, RECORD.size)
    name_at = RECORD.size + CHUNK_HEAD.size
    if name_length > 64 or name_at + name_length + 8 > len(record):
        raise ValueError(f"the chunk's compression claims a name of {name_length} bytes")
    compression = bytes(record[name_at : name_at + name_length]).decode("utf-8", "replace")
    body = name_at + name_length + 8
    body_length = int.from_bytes(record[body - 8 : body], "little")
    if body + body_length > RECORD.size + length:
        raise ValueError(f"the chunk claims {body_length} bytes of data in a record of {length} bytes")
    return ChunkHead(min(first, MAX_TIME), min(last, MAX_TIME), size, crc, compression, body, body_length)


def has_crc(record: memoryview) -> bool:
    """Return whether a chunk record has a checksum of its contents."""
    at = RECORD.size + 8 + 8 + 8
    return any(record[at : at + 4])


def uncompressed(record: memoryview, head: ChunkHead, max_bytes: int, cut: bool) -> Buffer:
    """Decompress the records in a chunk and check their CRC; of a truncated chunk, as far as possible.

    Raises:
        ValueError: too large, of unknown compression, damaged.
    """
    if head.size > min(max_bytes, MAX_BUFFER - 1):
        raise ValueError(f"the chunk claims {head.size} uncompressed bytes, more than max_chunk_bytes")
    body = record[head.body : head.body + head.body_length]
    if cut:
        plain = decompress_prefix(head.compression, body, head.size)
    else:
        plain = decompress(head.compression, body, head.size)
        if head.crc and crc32(plain) != head.crc:
            raise ValueError("the chunk's CRC doesn't match its bytes")
    return np.frombuffer(plain, np.uint8)


def index_entries(data: memoryview) -> dict[int, NDArray[Any]]:
    """Return message index records by channel id: arrays of (log time, offset in the uncompressed chunk).

    Raises:
        ValueError: they are damaged.
    """
    entries: dict[int, NDArray[Any]] = {}
    at = 0
    while at < len(data):
        if at + RECORD.size + 6 > len(data):
            raise ValueError("the chunk's message index ends early")
        opcode, length = RECORD.unpack_from(data, at)
        channel = int.from_bytes(data[at + 9 : at + 11], "little")
        size = int.from_bytes(data[at + 11 : at + 15], "little")
        stop = at + RECORD.size + length
        if opcode != MESSAGE_INDEX or not is_message_index(length, size) or stop > len(data):
            raise ValueError("the chunk's message index is damaged")
        if channel in entries:
            raise ValueError(f"the chunk has two message indices for channel {channel}")
        entries[channel] = np.frombuffer(data[at + 15 : at + 15 + size], INDEX_ENTRY)
        at = stop
    return entries


def is_message_index(length: int, size: int) -> bool:
    """Return whether a message index record's content of `length` bytes can have `size` bytes of entries."""
    return size + 6 <= length and size % INDEX_ENTRY.itemsize == 0


def parse_schema(content: bytes | memoryview) -> tuple[int, tuple[str, str, bytes]]:
    """Parse a schema record to its id and (name, encoding, data)."""
    cursor = RecordCursor(content)
    return cursor.unsigned(2), (cursor.text(), cursor.text(), cursor.blob())


def parse_channel(content: bytes | memoryview) -> tuple[int, int, str, str]:
    """Parse a channel record to its id, schema id, topic and message encoding."""
    cursor = RecordCursor(content)
    return cursor.unsigned(2), cursor.unsigned(2), cursor.text(), cursor.text()


def channel_of(parts: tuple[int, int, str, str], schemas: Mapping[int, tuple[str, str, bytes]]) -> Channel:
    """Return a channel with its schema; schema 0 means none.

    Raises:
        ValueError: the schema is missing.
    """
    channel, schema, topic, encoding = parts
    if schema and schema not in schemas:
        raise ValueError(f"the schema of topic {topic} is missing")
    name, definition_encoding, definition = schemas[schema] if schema else ("", "", b"")
    return Channel(channel, topic, name, encoding, definition_encoding, definition)
