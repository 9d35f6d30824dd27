"""Index an MCAP file by a full scan, if it is damaged or lacks an index.

Here: `McapScan`.
Elsewhere: records (records), messages among them (messages), storing the result
(logloom.io.logs.files.sidecars).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.files.compression import crc32
from logloom.io.logs.files.container import Budget, Buffer, FileIndex, IndexBuilder
from logloom.io.logs.files.ranges import MIB, LogFile
from logloom.io.logs.mcap import messages, records

LOOSE_BYTES = MIB  # of a stretch of records outside chunks
PEEK = 256  # enough of a record to check its plausibility
MAX_LOST = 10_000  # damaged places in one file, after which the rest is given up
CHUNKED = messages.least_lengths({records.CHUNK: 40, records.DATA_END: 4})
UNCHUNKED = messages.least_lengths(
    {records.SCHEMA: 14, records.CHANNEL: 16, records.MESSAGE: 22, records.CHUNK: 40, records.DATA_END: 4}
)


class McapScan:
    """One pass over a file that records damage and continues after it."""

    def __init__(self, file: LogFile, max_chunk_bytes: int):
        self._file = file
        self._size = file.size
        self._max = max_chunk_bytes
        self._builder = IndexBuilder(Budget(file))
        self._schemas: dict[int, tuple[str, str, bytes]] = {}
        self._block = (0, memoryview(b""))
        self._has_chunks = False
        self._ended = False

    def run(self) -> FileIndex:
        at = len(records.MAGIC)
        if self._peek(0, at) != records.MAGIC:
            at = self._lose_until_next(0, "the file doesn't start as an MCAP file")
        while at < self._size and not self._ended:
            at = self._step(at)
            if len(self._builder.lost) > MAX_LOST:
                self._builder.lose(at, self._size - at, "too much is damaged; the rest was given up")
                break
        if not self._ended:
            self._builder.lose(self._size, 0, "the file ends without its last records", torn=True)
        self._builder.drop_unknown_channels()
        return self._builder.build(self._size)

    def _step(self, at: int) -> int:
        """Read the record (or the run of loose records) at `at`; return where the next one starts."""
        head = self._peek(at, PEEK)
        if len(head) < records.RECORD.size:
            self._builder.lose(at, self._size - at, "the file ends in the middle of a record", torn=True)
            return self._size
        opcode, length = records.RECORD.unpack_from(head)
        stop = at + records.RECORD.size + int(length)
        if opcode == records.CHUNK:
            return self._chunk(at, stop, head)
        if opcode in (records.SCHEMA, records.CHANNEL, records.MESSAGE):
            return self._loose(at, stop)
        if stop > self._size or not _may_be_skipped(opcode, int(length), head, at):
            return self._lose_until_next(at, "a record is broken")
        if opcode in (records.DATA_END, records.FOOTER):
            self._ended = True
            if opcode == records.DATA_END:
                self._check_data_crc(
                    at, int.from_bytes(head[records.RECORD.size : records.RECORD.size + 4], "little")
                )
        return stop

    def _chunk(self, at: int, stop: int, head: memoryview) -> int:
        self._has_chunks = True
        try:
            first = records.chunk_head(head).first
        except ValueError as error:
            return self._lose_until_next(at, str(error))
        cut = stop > self._size
        if cut and self._peek(self._size - len(records.MAGIC), len(records.MAGIC)) == records.MAGIC:
            # The file is complete, so the chunk lacks bytes in its middle, or its length is broken.
            return self._lose_until_next(at, "a chunk reaches beyond the file's end")
        if min(stop, self._size) - at > self._max + MIB:
            self._builder.lose(at, stop - at, "the chunk is larger than max_chunk_bytes", torn=cut)
            self._builder.number += 1
            return min(stop, self._size)
        record = min(stop, self._size) - at
        end = at + record if cut else self._message_index_stop(stop)
        data = memoryview(self._file.read(at, end))
        chunk = messages.read_chunk(data, record, self._max, cut)
        self._take_definitions(chunk.buffer, messages.walk_over_damage(chunk.buffer)[1], at)
        if chunk.problems:
            claimed = _claimed(data[record:])
            self._builder.lose_of_chunk(at, record, "; ".join(chunk.problems[:4]), chunk, claimed, first)
        self._builder.add(chunk, at, end - at, record, cut=cut)
        if cut:
            self._builder.lose(self._size, 0, "the file ends in the middle of a record", torn=True)
        return end

    def _message_index_stop(self, at: int) -> int:
        """Return the end of the message index records that start at `at`."""
        while True:
            head = self._peek(at, records.RECORD.size + 6)
            if len(head) < records.RECORD.size + 6 or head[0] != records.MESSAGE_INDEX:
                return at
            length = int.from_bytes(head[1:9], "little")
            if at + records.RECORD.size + length > self._size or not _is_message_index(length, head):
                return at
            at += records.RECORD.size + length

    def _loose(self, at: int, stop: int) -> int:
        # Stretches end where the upper half of a 64-bit offset changes, so that errors can name the place.
        window = min(LOOSE_BYTES, (1 << 32) - at % (1 << 32), self._size - at)
        if stop - at > window:
            window = stop - at
        if window > self._max or at + window > self._size:
            return self._lose_until_next(at, "a record is broken or reaches beyond the file's end")
        buffer = np.frombuffer(self._file.read(at, at + window), np.uint8)
        offsets, others, length = messages.walk(buffer)
        if length == 0:
            return self._lose_until_next(at, "a record is broken")
        self._take_definitions(buffer, others, at)
        if len(offsets):
            self._builder.add(messages.chunk_at(buffer[:length], offsets), at, length, 0, loose=True)
        return at + length

    def _take_definitions(self, buffer: Buffer, offsets: Sequence[int], base: int) -> None:
        """Read the schema and channel records at the given offsets of a buffer."""
        data = buffer.data
        for offset in offsets:
            if len(self._builder.lost) > MAX_LOST:
                break
            opcode, length = records.RECORD.unpack_from(data, offset)
            content = data[offset + records.RECORD.size : offset + records.RECORD.size + length]
            try:
                if opcode == records.SCHEMA:
                    schema, parts = records.parse_schema(content)
                    if schema and self._schemas.setdefault(schema, parts) != parts:
                        raise ValueError(f"schema {schema} is defined twice, differently")
                else:
                    found = records.channel_of(records.parse_channel(content), self._schemas)
                    if self._builder.channels.setdefault(found.id, found) != found:
                        raise ValueError(f"channel {found.id} is defined twice, differently")
            except ValueError as error:
                self._builder.lose(base, 0, f"a definition can't be used: {error}")

    def _lose_until_next(self, at: int, reason: str) -> int:
        """Record the bytes up to the next plausible record as lost."""
        least = CHUNKED if self._has_chunks else UNCHUNKED
        found = next((c for c in self._candidates(at + 1, least) if self._is_plausible(c)), self._size)
        self._builder.lose(at, found - at, reason, torn=found == self._size)
        return found

    def _candidates(self, at: int, least: NDArray[np.uint64]) -> Iterator[int]:
        block = 4 * MIB
        for start in range(at, self._size, block):
            stop = min(self._size, start + block + records.RECORD.size - 1)
            buffer = np.frombuffer(self._file.read(start, stop), np.uint8)
            for candidate in messages.candidates(buffer, 0, least, self._size - stop):
                yield start + candidate

    def _is_plausible(self, at: int) -> bool:
        head = memoryview(self._file.read(at, min(self._size, at + PEEK)))
        opcode, length = records.RECORD.unpack_from(head)
        if opcode == records.CHUNK:
            try:
                found = records.chunk_head(head)
                return _is_exact(found, int(length)) and found.compression in ("", "lz4", "zstd")
            except ValueError:
                return False
        if opcode == records.DATA_END:
            stop = at + records.RECORD.size + 4
            return length == 4 and (stop == self._size or self._peek(stop, 1)[0] < records.MESSAGE)
        stop = at + records.RECORD.size + int(length)
        if opcode == records.MESSAGE and int.from_bytes(head[9:11], "little") not in self._builder.channels:
            return False
        after = self._peek(stop, records.RECORD.size)
        return len(after) == records.RECORD.size and after[0] in (
            records.SCHEMA,
            records.CHANNEL,
            records.MESSAGE,
            records.DATA_END,
        )

    def _check_data_crc(self, stop: int, expected: int) -> None:
        if expected == 0 or self._builder.lost:
            return
        header = records.RECORD.unpack_from(self._peek(len(records.MAGIC), records.RECORD.size))
        whole, section = 0, 0
        section_start = len(records.MAGIC) + records.RECORD.size + int(header[1])
        for start in range(0, stop, 4 * MIB):
            data = memoryview(self._file.read(start, min(stop, start + 4 * MIB)))
            whole = crc32(data, whole)
            section = crc32(data[max(0, section_start - start) :], section)
        # Writers disagree on whether the magic and the header belong to the data section.
        self._builder.is_checked = expected in (whole, section)
        if not self._builder.is_checked:
            self._builder.lose(0, stop, "the data section's CRC doesn't match its bytes")

    def _peek(self, at: int, count: int) -> memoryview:
        """Return the bytes at `at`, fewer at the end of the file; buffered for remote files."""
        start, block = self._block
        if not start <= at <= start + len(block) - min(count, self._size - at):
            block = memoryview(self._file.read(at, min(self._size, at + max(count, 64 << 10))))
            self._block = start, block = at, block
        return block[at - start : at - start + count]


def _claimed(message_index: memoryview) -> dict[int, int]:
    try:
        return {channel: len(part) for channel, part in records.index_entries(message_index).items()}
    except ValueError:
        return {}


def _is_message_index(length: int, head: memoryview) -> bool:
    return records.is_message_index(length, int.from_bytes(head[11:15], "little"))


def _is_exact(head: records.ChunkHead, length: int) -> bool:
    """Return whether a chunk record ends with its data, as all known writers do it."""
    return head.body + head.body_length == records.RECORD.size + length


def _may_be_skipped(opcode: int, length: int, head: memoryview, at: int) -> bool:
    """Return whether a record that isn't a message is plausible for its opcode.

    A flipped bit in the opcode of a chunk must not cause it to be skipped.
    """
    with suppress(ValueError):
        if _is_exact(records.chunk_head(memoryview(bytes([records.CHUNK]) + bytes(head[1:]))), length):
            return False
    if opcode == records.HEADER:
        return at == len(records.MAGIC)
    if opcode == records.MESSAGE_INDEX:
        return _is_message_index(length, head)
    if opcode in (records.DATA_END, records.FOOTER):
        return length == (4 if opcode == records.DATA_END else 20)
    if opcode in (records.ATTACHMENT, records.METADATA):
        return _texts_fit(opcode, length, head)
    return opcode >= records.PRIVATE


def _texts_fit(opcode: int, length: int, head: memoryview) -> bool:
    """Return whether the lengths inside an attachment or metadata record fit it, as far as `head` goes."""
    cursor = records.RecordCursor(head[records.RECORD.size :])
    at = 16 if opcode == records.ATTACHMENT else 0
    try:
        cursor.take(at)
        for _ in range(2):
            size = cursor.unsigned(4)
            at += 4 + size
            if at > length:
                return False
            cursor.take(size)
        return at <= length if opcode == records.METADATA else at + 8 + cursor.unsigned(8) + 4 <= length
    except ValueError:
        return True  # the texts are longer than `head`
