"""Index a ROS 1 bag by a full scan, if it is damaged or incomplete.

Here: `BagScan`.
Elsewhere: records (records), messages among them (messages), storing the result
(logloom.io.logs.files.sidecars).
"""

from __future__ import annotations

import numpy as np

from logloom.io.logs.files.container import Budget, FileIndex, IndexBuilder
from logloom.io.logs.files.ranges import MIB, LogFile
from logloom.io.logs.rosbag1 import records
from logloom.io.logs.rosbag1.messages import IN_FILE, chunk_at, read_chunk, resync, walk, walk_over_damage

PEEK = 64 << 10  # more than the header of any record
LOOSE_BYTES = MIB  # of a stretch of records outside chunks
MAX_PADDING = 4096  # zero bytes between records; more of them may be lost data
MAX_LOST = 10_000  # damaged places in one file, after which the rest is given up


class BagScan:
    """One pass over a file that records damage and continues after it."""

    def __init__(self, file: LogFile, max_chunk_bytes: int):
        self._file = file
        self._size = file.size
        self._max = max_chunk_bytes
        self._builder = IndexBuilder(Budget(file))
        self._texts: dict[tuple[str, bytes], bytes] = {}
        self._block = (0, memoryview(b""))

    def run(self) -> FileIndex:
        at = len(records.MAGIC)
        if self._peek(0)[:at] != records.MAGIC:
            at = self._lose_until_next(0, "the file doesn't start as a bag")
        while at < self._size:
            at = self._step(at)
            if len(self._builder.lost) > MAX_LOST:
                self._builder.lose(at, self._size - at, "too much is damaged; the rest was given up")
                break
        builder = self._builder
        builder.drop_unknown_channels()
        return builder.build(self._size)

    def _step(self, at: int) -> int:
        """Read the record (or the run of loose records) at `at`; return where the next one starts."""
        head = self._peek(at)
        try:
            record = records.record_at(head, 0)
        except ValueError as error:
            return self._lose_until_next(at, str(error))
        stop = at + record.stop
        if record.op == records.CHUNK:
            return self._chunk(at, stop, head)
        if record.op == records.MESSAGE:
            return self._loose(at, stop)
        if stop > self._size or record.op not in (
            records.BAG_HEADER,
            records.INDEX,
            records.CHUNK_INFO,
            records.CONNECTION,
        ):
            return self._lose_until_next(at, "a record is broken or reaches beyond the file's end")
        if record.op == records.CONNECTION and record.stop < self._max:
            self._take_connection(memoryview(self._file.read(at, stop)), 0, at)
        return stop

    def _chunk(self, at: int, stop: int, head: memoryview) -> int:
        cut = stop > self._size
        end = self._size if cut else self._index_stop(stop)
        if end - at > 2 * self._max + MIB:
            self._builder.lose(at, stop - at, "the chunk is larger than max_chunk_bytes", torn=cut)
            self._builder.number += 1
            return min(stop, self._size)
        data = memoryview(self._file.read(at, end))
        chunk = read_chunk(data, self._max, cut)
        if cut and not len(chunk):
            # Either it is lost, or its length is broken and other chunks follow.
            return self._lose_until_next(at, chunk.problems[0])
        for offset in walk_over_damage(chunk.buffer)[1]:
            self._take_connection(chunk.buffer.data, offset, at)
        if chunk.problems:
            claimed = {} if cut else _claimed(data[stop - at :])
            reason = "; ".join(chunk.problems[:4])
            self._builder.lose_of_chunk(at, min(stop, self._size) - at, reason, chunk, claimed, 0)
        self._builder.add(chunk, at, end - at, 0, cut=cut)
        return end

    def _index_stop(self, at: int) -> int:
        """Return the end of the index data records that start at `at`."""
        while at < self._size:
            try:
                record = records.record_at(self._peek(at), 0)
            except ValueError:
                return at
            if record.op != records.INDEX or at + record.stop > self._size:
                return at
            at += record.stop
        return at

    def _loose(self, at: int, stop: int) -> int:
        # Stretches end where the upper half of a 64-bit offset changes, so that errors can name the place.
        window = min(LOOSE_BYTES, (1 << 32) - at % (1 << 32), self._size - at)
        window = max(window, stop - at)
        if window > self._max or at + window > self._size:
            return self._lose_until_next(at, "a record is broken or reaches beyond the file's end")
        buffer = np.frombuffer(self._file.read(at, at + window), np.uint8)
        offsets: list[int] = []
        connections: list[int] = []
        length = walk(buffer.data, 0, offsets, connections)
        if length == 0:
            return self._lose_until_next(at, "a record is broken")
        for offset in connections:
            self._take_connection(buffer.data, offset, at)
        try:
            chunk = chunk_at(buffer[:length], np.array(offsets, np.int64))
        except ValueError as error:
            self._builder.lose(at, length, str(error))
            return at + length
        self._builder.add(chunk, at, length, 0, loose=True)
        return at + length

    def _take_connection(self, data: memoryview, offset: int, base: int) -> None:
        try:
            found = records.channel_of(records.record_at(data, offset), data, self._texts)
            if self._builder.channels.setdefault(found.id, found) != found:
                raise ValueError(f"connection {found.id} is described twice, differently")
        except ValueError as error:
            self._builder.lose(base, 0, f"a connection can't be used: {error}")

    def _lose_until_next(self, at: int, reason: str) -> int:
        """Record the bytes up to the next plausible record as lost, unless they are padding."""
        found = self._size
        block = 4 * MIB
        for start in range(at + 1, self._size, block):
            data = memoryview(self._file.read(start, min(self._size, start + block + PEEK)))
            place = resync(data, 0, IN_FILE)
            if place < len(data):
                found = start + place
                break
        is_gap = found < self._size and found - at < MAX_PADDING
        if not (is_gap and records.is_padding(self._file.read(at, found))):
            self._builder.lose(at, found - at, reason, torn=found == self._size)
        return found

    def _peek(self, at: int) -> memoryview:
        """Return the first bytes at `at`; buffered for remote files."""
        start, block = self._block
        if not start <= at or at + min(PEEK, self._size - at) > start + len(block):
            block = memoryview(self._file.read(at, min(self._size, at + 4 * PEEK)))
            self._block = start, block = at, block
        return block[at - start : at - start + PEEK]


def _claimed(index: memoryview) -> dict[int, int]:
    try:
        return {connection: len(part) for connection, part in records.index_entries(index).items()}
    except ValueError:
        return {}
