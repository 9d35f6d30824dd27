"""Layouts of ROS 1 bag records (format 2.0), and parsers for non-messages.

Here: pure functions on buffers.
Elsewhere: finding messages among records (messages), reading files (reader).
A record is a length (u32), header fields (each a length, `name=` and a value), a length (u32) and data;
integers are little-endian; times are seconds and nanoseconds (u32 each).
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.files.compression import decompress, decompress_prefix
from logloom.io.logs.files.container import Buffer, Channel, Int64s
from logloom.values import dataclass

MAGIC = b"#ROSBAG V2.0\n"
MESSAGE, BAG_HEADER, INDEX, CHUNK, CHUNK_INFO, CONNECTION = range(2, 8)

LENGTH = struct.Struct("<I")
TIME = struct.Struct("<II")
INDEX_ENTRY = np.dtype([("seconds", "<u4"), ("nanoseconds", "<u4"), ("offset", "<u4")])
SECOND = 1_000_000_000
MAX_HEADER = 1 << 20
REQUIRED_FIELDS = {
    MESSAGE: (b"conn", b"time"),
    INDEX: (b"conn", b"count"),
    CHUNK: (b"compression", b"size"),
    CHUNK_INFO: (b"chunk_pos", b"count"),
    CONNECTION: (b"conn", b"topic"),
}


@dataclass(frozen=True)
class BagRecord:
    """A record's header and the place of its data.

    Attributes:
        data, stop: offsets in the buffer.
    """

    fields: dict[bytes, bytes]
    data: int
    stop: int

    @property
    def op(self) -> int:
        return int.from_bytes(self.fields.get(b"op", b""), "little")

    def unsigned(self, name: str, width: int) -> int:
        """Return a number in the header.

        Raises:
            ValueError: it is missing or of another width.
        """
        value = self.fields.get(name.encode(), b"")
        if len(value) != width:
            raise ValueError(f"the record's field {name} is missing or damaged")
        return int.from_bytes(value, "little")

    def time(self, name: str) -> int:
        value = self.fields.get(name.encode(), b"")
        if len(value) != TIME.size:
            raise ValueError(f"the record's field {name} is missing or damaged")
        seconds, nanoseconds = TIME.unpack(value)
        return int(seconds) * SECOND + int(nanoseconds)

    def text(self, name: str) -> str:
        if name.encode() not in self.fields:
            raise ValueError(f"the record's field {name} is missing")
        return self.fields[name.encode()].decode("utf-8")


def record_at(data: memoryview, at: int) -> BagRecord:
    """Read the record at an offset; its data may exceed the buffer.

    Raises:
        ValueError: no record can start there, or its header is incomplete.
    """
    if at + 4 > len(data):
        raise ValueError("a record ends early")
    length = LENGTH.unpack_from(data, at)[0]
    start = at + 4 + length
    if length > MAX_HEADER or start + 4 > len(data):
        raise ValueError(f"a record claims a header of {length} bytes")
    fields = header_fields(data[at + 4 : start])
    size = LENGTH.unpack_from(data, start)[0]
    record = BagRecord(fields, start + 4, start + 4 + size)
    if not all(name in fields for name in (b"op", *REQUIRED_FIELDS.get(record.op, ()))):
        raise ValueError("a record's header lacks fields")
    return record


def header_fields(header: memoryview) -> dict[bytes, bytes]:
    """Return the fields of a header by name.

    Raises:
        ValueError: they don't fit into it.
    """
    fields: dict[bytes, bytes] = {}
    at = 0
    while at < len(header):
        if at + 4 > len(header):
            raise ValueError("a record's header is damaged")
        stop = at + 4 + LENGTH.unpack_from(header, at)[0]
        name, equals, value = bytes(header[at + 4 : stop]).partition(b"=")
        if stop > len(header) or not equals:
            raise ValueError("a record's header is damaged")
        fields[name] = value
        at = stop
    return fields


def channel_of(record: BagRecord, data: memoryview, texts: dict[tuple[str, bytes], bytes]) -> Channel:
    """Parse a connection record.

    Args:
        texts: definitions by (type, MD5 sum), added to. Publishers send texts that differ in comments only;
            if the sums agree, the first one is used for all.

    Raises:
        ValueError: it is damaged.
    """
    if record.stop > len(data):
        raise ValueError("a connection record ends early")
    inner = header_fields(data[record.data : record.stop])
    name = BagRecord(inner, 0, 0).text("type")
    text = inner.get(b"message_definition", b"")
    text = texts.setdefault((name, inner.get(b"md5sum", text)), text)
    return Channel(record.unsigned("conn", 4), record.text("topic"), name, "ros1", "ros1msg", text)


def uncompressed(data: memoryview, max_bytes: int, cut: bool = False) -> tuple[Buffer, int]:
    """Decompress the records in a chunk; also return where the chunk record ends.

    Raises:
        ValueError: not a chunk, too large, of unknown compression, or damaged.
    """
    record = record_at(data, 0)
    if record.op != CHUNK:
        raise ValueError(f"a chunk record should start there, found opcode {record.op}")
    size, name = record.unsigned("size", 4), record.text("compression")
    if size > max_bytes:
        raise ValueError(f"the chunk claims {size} uncompressed bytes, more than max_chunk_bytes")
    if record.stop > len(data) and not cut:
        raise ValueError(f"the chunk claims {record.stop - record.data} bytes of data, more than there are")
    body = data[record.data : record.stop]
    plain = decompress_prefix(name, body, size) if cut else decompress(name, body, size)
    return np.frombuffer(plain, np.uint8), record.stop


def is_padding(data: bytes | memoryview) -> bool:
    """Return whether there are only zero bytes, which some recorders write between records."""
    return not np.frombuffer(data, np.uint8).any()


def index_entries(data: memoryview) -> dict[int, NDArray[Any]]:
    """Return the index data records at the start of the data, by connection: arrays of dtype INDEX_ENTRY.

    Whatever follows them is not part of the index, so callers must check that they have every message of the
    chunk.

    Raises:
        ValueError: they are damaged.
    """
    entries: dict[int, NDArray[Any]] = {}
    at = 0
    while at < len(data):
        try:
            record = record_at(data, at)
        except ValueError:
            if entries or is_padding(data):
                break
            raise
        if record.op != INDEX:
            break
        count = record.unsigned("count", 4)
        connection = record.unsigned("conn", 4)
        fits = record.stop - record.data == count * INDEX_ENTRY.itemsize and record.stop <= len(data)
        if not fits or record.unsigned("ver", 4) != 1:
            raise ValueError("the chunk's index is damaged")
        if connection in entries:
            raise ValueError(f"the chunk has two indices for connection {connection}")
        entries[connection] = np.frombuffer(data[record.data : record.stop], INDEX_ENTRY)
        at = record.stop
    return entries


def nanoseconds(times: NDArray[Any]) -> Int64s:
    """Convert a structured array with `seconds` and `nanoseconds` to int64 times."""
    return times["seconds"].astype(np.int64) * SECOND + times["nanoseconds"].astype(np.int64)
