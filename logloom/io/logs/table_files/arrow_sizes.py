"""Declared decompressed sizes of record batches in an Arrow file.

Arrow's own readers don't provide them.

Here: `record_batches` of an open file, `decompressed_size` of one, and the necessary flatbuffers, with
checked bounds.
Elsewhere: limits, and everything else of such files (files).

    file     "ARROW1" pad | message | message | ... | Footer, its length (i32) | "ARROW1"
    Footer   version, schema, dictionaries, record batches: as vectors of (offset i64, i32, pad, body i64)
    message  0xffffffff (absent in old files), length (i32), Message | body
    Message  version, kind, header (RecordBatch, or DictionaryBatch around one), body length
    buffer   decompressed length (i64; -1: it is not compressed) | data

Format: https://arrow.apache.org/docs/format/Columnar.html, and File.fbs and Message.fbs there.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

from logloom.values import dataclass

_DICTIONARY, _BATCH = 2, 3
_MAX_METADATA = 64 << 20  # bytes of a footer or of a message's header
_COMPRESSED_BEFORE = (
    b"ARROW:experimental_compression"  # as declared by files of 2020, in a message's metadata
)

Read = Callable[[int, int], bytes]


@dataclass(frozen=True)
class RecordBatch:
    """A record batch, or a dictionary, and the place of its message in the file."""

    num_rows: int
    offset: int
    metadata: int
    body: int


def record_batches(read: Read, size: int) -> tuple[list[RecordBatch], list[RecordBatch]]:
    """List the dictionaries and the record batches of a file, without reading bodies.

    Args:
        read: returns the bytes [start, stop) of the file.
        size: bytes of the file.

    Raises:
        ValueError: the file's own metadata are damaged.
    """
    with _damage():
        (length,) = struct.unpack("<i", read(max(0, size - 10), size - 6))
        if not 0 < length <= min(size - 10, _MAX_METADATA):
            raise ValueError("its footer is damaged")
        footer = _Flat(read(size - 10 - length, size - 10))
        root, left = footer.root(), size
        found: tuple[list[RecordBatch], list[RecordBatch]] = ([], [])
        for field, batches in zip((2, 3), found, strict=True):
            for at in footer.vector(root, field, 24):
                offset, metadata, body = footer.block(at)
                left -= metadata + body  # messages don't overlap, so none is read twice
                if min(offset, metadata, body) < 0 or offset + metadata + body > size or left < 0:
                    raise ValueError(f"the record batch at byte {offset} is not within the file")
                message, batch = _message(read, offset, metadata)
                num_rows = message.long(batch, 0)
                if num_rows < 0:
                    raise ValueError(f"the record batch at byte {offset} has a negative length")
                batches.append(RecordBatch(num_rows, offset, metadata, body))
    return found


def decompressed_size(read: Read, batch: RecordBatch) -> int:
    """Return the declared size of a record batch after decompressing its buffers.

    Raises:
        ValueError: its metadata are damaged.
    """
    with _damage():
        message, table = _message(read, batch.offset, batch.metadata)
        if not message.table(table, 3) and _COMPRESSED_BEFORE not in message.data:
            return batch.body
        total = 0
        for at in message.vector(table, 2, 16):
            start, length = struct.unpack_from("<qq", message.data, at)
            if min(start, length) < 0 or start + length > batch.body:
                raise ValueError(f"a buffer of the record batch at byte {batch.offset} is not within it")
            if length >= 8:
                place = batch.offset + batch.metadata + start
                (plain,) = struct.unpack("<q", read(place, place + 8))
                total += plain if plain >= 0 else length
    return total


def _message(read: Read, offset: int, metadata: int) -> tuple[_Flat, int]:
    """Return the header of a message, and its RecordBatch."""
    if metadata > _MAX_METADATA:
        raise ValueError(f"the record batch at byte {offset} has {metadata} bytes of metadata")
    head = read(offset, offset + metadata)
    message = _Flat(head[8 if head[:4] == b"\xff" * 4 else 4 :])
    root = message.root()
    kind, batch = message.byte(root, 1), message.table(root, 2)
    if kind == _DICTIONARY and batch:
        batch = message.table(batch, 1)
    if kind not in (_DICTIONARY, _BATCH) or not batch:
        raise ValueError(f"there is no record batch at byte {offset}")
    return message, batch


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """Raise ValueErrors for truncated data."""
    try:
        yield
    except struct.error as error:
        raise ValueError(f"its metadata are damaged: {error}") from error


class _Flat:
    """The tables and vectors of a flatbuffer; 0 means an absent table."""

    def __init__(self, data: bytes):
        self.data = data

    def root(self) -> int:
        return self._unsigned(0)

    def table(self, table: int, field: int) -> int:
        at = self._field(table, field)
        return at + self._unsigned(at) if at else 0

    def byte(self, table: int, field: int) -> int:
        at = self._field(table, field)
        return int(struct.unpack_from("<B", self.data, at)[0]) if at else 0

    def long(self, table: int, field: int) -> int:
        at = self._field(table, field)
        return int(struct.unpack_from("<q", self.data, at)[0]) if at else 0

    def vector(self, table: int, field: int, step: int) -> range:
        """Return the places of a vector's entries, each of `step` bytes."""
        first = self.table(table, field)
        if not first:
            return range(0)
        count = self._unsigned(first)
        if first + 4 + count * step > len(self.data):
            raise ValueError("a list in its metadata is longer than they are")
        return range(first + 4, first + 4 + count * step, step)

    def block(self, at: int) -> tuple[int, int, int]:
        """(offset, bytes of metadata, bytes of body)."""
        offset, metadata, body = struct.unpack_from("<qi4xq", self.data, at)
        return offset, metadata, body

    def _field(self, table: int, field: int) -> int:
        (back,) = struct.unpack_from("<i", self.data, table)
        fields = table - back
        if fields < 0:
            raise ValueError("a table in its metadata is damaged")
        (size,) = struct.unpack_from("<H", self.data, fields)
        if 4 + 2 * field >= size:
            return 0
        (offset,) = struct.unpack_from("<H", self.data, fields + 4 + 2 * field)
        return table + int(offset) if offset else 0

    def _unsigned(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.data, at)[0])
