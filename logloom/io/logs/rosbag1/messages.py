"""Find messages in ROS 1 bag records: by index, or record by record past damage.

Here: pure functions on buffers.
Elsewhere: record layouts (records), reading files (reader), files without an index or with damage (scan).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.files.container import Buffer, Chunk, Int64s, as_slice, broken_chunk, every_offset
from logloom.io.logs.rosbag1.records import (
    CONNECTION,
    INDEX_ENTRY,
    LENGTH,
    MESSAGE,
    REQUIRED_FIELDS,
    index_entries,
    nanoseconds,
    record_at,
    uncompressed,
)
from logloom.values import dataclass

MAX_BROKEN = 64  # broken records in one chunk, after which the rest is given up
MAX_LAYOUTS = 16  # orders of header fields in one chunk; recorders use one
MAX_BEFORE_OP, MAX_AFTER_OP = 128, 4096  # how far around its opcode resync searches for a header's ends
IN_CHUNK = re.compile(rb"\x04\0\0\0op=[\x02\x07]")
IN_FILE = re.compile(rb"\x04\0\0\0op=[\x02\x04-\x07]")


@dataclass(frozen=True)
class HeaderLayout:
    """Layout of message headers in a chunk: recorders choose the order of fields.

    Attributes:
        dtype: of the header with the lengths around it.
        runs: the constant bytes of such headers: (start, bytes) of each range between the values.
    """

    dtype: np.dtype[Any]
    runs: tuple[tuple[int, bytes], ...]

    def matches(self, data: memoryview, at: int) -> bool:
        """Return whether the record at an offset is a message of this layout."""
        if at + self.dtype.itemsize > len(data):
            return False
        return all(data[at + start : at + start + len(run)] == run for start, run in self.runs)

    def match(self, buffer: Buffer, offset: Int64s) -> NDArray[np.bool_]:
        """(N,) mask of the records that are messages of this layout."""
        inside = offset <= len(buffer) - self.dtype.itemsize
        rows = as_slice(offset[inside])
        same = np.ones(int(inside.sum()), bool)
        for start, run in self.runs:
            same &= every_offset(buffer[start:], np.dtype(("V", len(run))))[rows] == np.void(run)
        inside[inside] = same
        return inside


def layout_of(data: memoryview, at: int) -> HeaderLayout:
    """Return the layout of the message record at an offset.

    Raises:
        ValueError: not a message record.
    """
    record = record_at(data, at)
    record.unsigned("conn", 4)
    record.time("time")
    if record.op != MESSAGE:
        raise ValueError("no message record")
    size = record.data - at
    places = {}
    field = at + 4
    while field < record.data - 4:
        length = LENGTH.unpack_from(data, field)[0]
        name = bytes(data[field + 4 : field + 4 + length]).partition(b"=")[0]
        places[name] = field + 4 + len(name) + 1 - at
        field += 4 + length
    conn, time = places[b"conn"], places[b"time"]
    dtype = np.dtype(
        {
            "names": ["conn", "seconds", "nanoseconds", "length"],
            "formats": ["<u4"] * 4,
            "offsets": [conn, time, time + 4, size - 4],
            "itemsize": size,
        }
    )
    free = np.zeros(size, bool)
    for start, width in ((conn, 4), (time, 8), (size - 4, 4)):
        free[start : start + width] = True
    fixed = np.flatnonzero(~free)
    groups = np.split(fixed, np.flatnonzero(np.diff(fixed) > 1) + 1)
    spans = [(int(group[0]), int(group[-1]) + 1) for group in groups]
    return HeaderLayout(dtype, tuple((start, bytes(data[at + start : at + stop])) for start, stop in spans))


def read_chunk(data: memoryview, max_bytes: int, cut: bool) -> Chunk:
    """Read the messages of a chunk.

    Args:
        data: the chunk record and the index records that follow it.
        cut: whether the file ends within the chunk record.
    """
    try:
        buffer, stop = uncompressed(data, max_bytes, cut)
    except ValueError as error:
        return broken_chunk(str(error))
    if cut:
        return walked_chunk(buffer, ("the file ends in the middle of the chunk",))
    try:
        entries = index_entries(data[stop:])
        return indexed_chunk(buffer, entries) if entries else walked_chunk(buffer)
    except ValueError as error:
        return walked_chunk(buffer, (str(error),))


def indexed_chunk(buffer: Buffer, entries: dict[int, NDArray[Any]]) -> Chunk:
    """Read the messages of a chunk by its index, checking that against the records.

    Raises:
        ValueError: the index and the records disagree.
    """
    problem = "the chunk's index disagrees with its records"
    table = np.concatenate([*entries.values(), np.empty(0, INDEX_ENTRY)])
    channel = np.repeat(np.array(list(entries), np.int64), [len(part) for part in entries.values()])
    offset, time = table["offset"].astype(np.int64), nanoseconds(table)
    if (offset[1:] <= offset[:-1]).any():
        order = np.argsort(offset, kind="stable")
        offset, time, channel = offset[order], time[order], channel[order]
    chunk = chunk_at(buffer, offset)
    if not ((chunk.channel == channel).all() and (chunk.log_time == time).all()):
        raise ValueError(problem)
    edges = np.concatenate([[0], chunk.start + chunk.length])
    nexts = np.concatenate([offset, [len(buffer)]])
    for gap in np.flatnonzero(edges != nexts).tolist():
        if not _only_connections(buffer.data, int(edges[gap]), int(nexts[gap])):
            raise ValueError(problem)
    return chunk


def _only_connections(data: memoryview, at: int, stop: int) -> bool:
    """Return whether [at, stop) consists of complete connection records."""
    while at < stop:
        record = record_at(data[:stop], at)
        if record.op != CONNECTION:
            return False
        at = record.stop
    return at == stop


def chunk_at(buffer: Buffer, offset: Int64s, problems: tuple[str, ...] = ()) -> Chunk:
    """Read the messages whose records start at the given offsets.

    Raises:
        ValueError: no whole message record starts at one of them.
    """
    columns = np.zeros((4, len(offset)), np.int64)  # connection, log time, start, length
    todo = np.arange(len(offset))
    for _ in range(MAX_LAYOUTS):
        if len(todo) == 0:
            break
        layout = layout_of(buffer.data, int(offset[todo[0]]))
        matches = layout.match(buffer, offset[todo])
        mine, todo = todo[matches], todo[~matches]
        heads = every_offset(buffer, layout.dtype)[as_slice(offset[mine])]
        start = offset[mine] + layout.dtype.itemsize
        columns[:, mine] = heads["conn"], nanoseconds(heads), start, heads["length"]
    if len(todo) or (columns[2] + columns[3] > len(buffer)).any():
        raise ValueError("a message record in the chunk is damaged")
    channel, time, start, length = columns
    return Chunk(buffer, channel, time, time, offset, start, length, problems)


def walked_chunk(buffer: Buffer, problems: tuple[str, ...] = ()) -> Chunk:
    """Read the messages of a buffer record by record; after a broken record, from the next plausible one."""
    offsets, _, broken = walk_over_damage(buffer)
    try:
        return chunk_at(buffer, offsets, problems + broken)
    except ValueError as error:
        return broken_chunk(str(error))


def walk_over_damage(buffer: Buffer) -> tuple[Int64s, list[int], tuple[str, ...]]:
    """Return the offsets of message, connection and broken records."""
    offsets: list[int] = []
    others: list[int] = []
    broken: list[str] = []
    at = 0
    while len(broken) < MAX_BROKEN:
        at = walk(buffer.data, at, offsets, others)
        if at == len(buffer):
            break
        broken.append(f"the record at offset {at} in it is broken")
        at = resync(buffer, at + 1, IN_CHUNK)
    return np.array(offsets, np.int64), others, tuple(broken)


def walk(data: memoryview, at: int, offsets: list[int], others: list[int]) -> int:
    """Find message and connection records, adding their offsets to the lists.

    Returns:
        The stop: the end, or the first record of another kind, or broken or incomplete.
    """
    end = len(data)
    layout: HeaderLayout | None = None
    while at < end:
        try:
            if layout is None or not layout.matches(data, at):
                record = record_at(data, at)
                if record.op == CONNECTION and record.stop <= end:
                    others.append(at)
                    at = record.stop
                    continue
                layout = layout_of(data, at)
        except ValueError:
            break
        size = layout.dtype.itemsize
        stop = at + size + int(LENGTH.unpack_from(data, at + size - 4)[0])
        if stop > end:
            break
        offsets.append(at)
        at = stop
    return at


def resync(data: Buffer | memoryview, at: int, ops: re.Pattern[bytes]) -> int:
    """Find the next offset at which a record may start, judged by its header; the buffer's length if none."""
    view = data if isinstance(data, memoryview) else data.data
    for match in ops.finditer(view, at):
        op = match.start()
        # The field with the opcode may be anywhere in the header.
        for start in range(max(at, op - 4 - MAX_BEFORE_OP), op - 3):
            length = LENGTH.unpack_from(view, start)[0]
            if op + 8 <= start + 4 + length <= op + MAX_AFTER_OP and _may_start(view, start):
                return start
    return len(view)


def _may_start(data: memoryview, at: int) -> bool:
    try:
        return record_at(data, at).op in REQUIRED_FIELDS
    except ValueError:
        return False
