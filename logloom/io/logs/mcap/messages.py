"""Find messages among MCAP records: by index, or record by record past damage.

Here: pure functions on buffers.
Elsewhere: record layouts (records), reading files (reader), files without an index or with damage (scan).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.files.container import (
    Buffer,
    Chunk,
    Int64s,
    as_slice,
    broken_chunk,
    clipped,
    every_offset,
)
from logloom.io.logs.mcap.records import (
    CHANNEL,
    INDEX_ENTRY,
    MAX_BUFFER,
    MESSAGE,
    MESSAGE_FIXED,
    MESSAGE_HEAD,
    PRIVATE,
    RECORD,
    RECORD_HEAD,
    SCHEMA,
    chunk_head,
    index_entries,
    uncompressed,
)

MAX_BROKEN = 64  # broken records in one chunk, after which the rest is given up
MAX_CANDIDATES = 100_000  # offsets tried to find the next complete record


def read_chunk(data: memoryview, record: int, max_bytes: int, cut: bool) -> Chunk:
    """Read the messages of a chunk.

    Args:
        data: the chunk record and the message index records that follow it.
        record: length of the chunk record.
        cut: whether the file ends within the record.
    """
    try:
        head = chunk_head(data[:record])
        if not cut and RECORD.size + int.from_bytes(data[1:9], "little") != record:
            raise ValueError(f"the chunk's record does not have the {record} bytes of the index")
        buffer = uncompressed(data[:record], head, max_bytes, cut)
    except ValueError as error:
        return broken_chunk(str(error))
    if cut:
        return walked_chunk(buffer, ("the file ends in the middle of the chunk",))
    if len(data) == record:
        return walked_chunk(buffer)
    try:
        return indexed_chunk(buffer, index_entries(data[record:]))
    except ValueError as error:
        return walked_chunk(buffer, (str(error),))


def indexed_chunk(buffer: Buffer, entries: Mapping[int, NDArray[Any]]) -> Chunk:
    """Read the messages of a chunk by its message index, checking that against the records.

    The index must have exactly the message records, so that a wrong index can't cause wrong rows.

    Raises:
        ValueError: the index and the records disagree.
    """
    problem = "the chunk's message index disagrees with its records"
    channel, table = _by_offset(entries)
    if len(table) and int(table["offset"].max()) > len(buffer) - MESSAGE_HEAD.itemsize:
        raise ValueError(problem)
    offset = table["offset"].astype(np.int64)
    chunk = chunk_at(buffer, offset)
    stops = chunk.start + chunk.length
    opcode = buffer[as_slice(offset)]
    fits = (chunk.length >= 0).all() and (stops <= len(buffer)).all() and (opcode == MESSAGE).all()
    if not (fits and (chunk.channel == channel).all() and (chunk.log_time == clipped(table["time"])).all()):
        raise ValueError(problem)
    edges, nexts = np.empty((2, len(offset) + 1), np.int64)
    edges[0], edges[1:], nexts[:-1], nexts[-1] = 0, stops, offset, len(buffer)
    for gap in np.flatnonzero(edges != nexts).tolist():
        if not _only_other_records(buffer, int(edges[gap]), int(nexts[gap])):
            raise ValueError(problem)
    return chunk


def _by_offset(entries: Mapping[int, NDArray[Any]]) -> tuple[int | Int64s, NDArray[Any]]:
    """Return the entries of a chunk's message indices by offset, and the channel of each, or of all."""
    parts = list(entries.values()) or [np.empty(0, INDEX_ENTRY)]
    channel: int | Int64s = next(iter(entries), 0)
    table = parts[0]
    if len(parts) > 1:
        table = np.concatenate(parts)
        channel = np.repeat(np.array(list(entries), np.int64), [len(part) for part in parts])
    if (table["offset"][1:] > table["offset"][:-1]).all():
        return channel, table
    order = np.argsort(table["offset"], kind="stable")
    return (channel if isinstance(channel, int) else channel[order]), table[order]


def _only_other_records(buffer: Buffer, at: int, stop: int) -> bool:
    """Return whether [at, stop) consists of complete records that aren't messages."""
    data = buffer.data
    while at < stop:
        if at + RECORD.size > stop:
            return False
        opcode, length = RECORD.unpack_from(data, at)
        if opcode == MESSAGE:
            return False
        at += RECORD.size + length
    return at == stop


def chunk_at(buffer: Buffer, offset: Int64s, problems: tuple[str, ...] = ()) -> Chunk:
    """Read the messages whose records start at the given offsets, with room for a message's head at each."""
    heads = every_offset(buffer, MESSAGE_HEAD)[as_slice(offset)]
    return Chunk(
        buffer,
        heads["channel"].astype(np.int64),
        clipped(heads["log_time"]),
        clipped(heads["publish_time"]),
        offset,
        offset + MESSAGE_HEAD.itemsize,
        np.minimum(heads["length"], MAX_BUFFER).astype(np.int64) - MESSAGE_FIXED,
        problems,
    )


def walked_chunk(buffer: Buffer, problems: tuple[str, ...] = ()) -> Chunk:
    """Read the messages of a buffer record by record; after a broken record, from the next plausible one."""
    offsets, _, broken = walk_over_damage(buffer)
    return chunk_at(buffer, offsets, problems + broken)


def walk_over_damage(buffer: Buffer) -> tuple[Int64s, Sequence[int], tuple[str, ...]]:
    """`walk` that continues after broken records; the third result lists these."""
    parts: list[Int64s] = []
    others = array("q")
    broken: list[str] = []
    at = 0
    while at < len(buffer) and len(broken) < MAX_BROKEN:
        found, more, stop = walk(buffer, at)
        parts.append(found)
        others += more
        if stop == len(buffer):
            break
        broken.append(f"the record at offset {stop} in it is broken")
        at = resync(buffer, stop + 1)
    return np.concatenate([*parts, np.empty(0, np.int64)]), others, tuple(broken)


def walk(buffer: Buffer, at: int = 0) -> tuple[Int64s, array[int], int]:
    """Find schema, channel and message records.

    Returns:
        Offsets of the message records, of the schema and channel records, and the stop: the end, or the first
        record of another kind, or broken or incomplete. Private records are skipped.
    """
    data, end = buffer.data, len(buffer)
    heads = every_offset(buffer, RECORD_HEAD)
    runs: list[Int64s] = []
    singles, others = array("q"), array("q")
    last_size = 0
    while at + RECORD.size <= end:
        opcode, length = RECORD.unpack_from(data, at)
        size = RECORD.size + length
        if at + size > end:
            break
        if opcode == MESSAGE and length >= MESSAGE_FIXED:
            count = _equal_run(heads, at, size) if size == last_size else 1
            if count > 8:
                runs += [np.array(singles, np.int64), at + size * np.arange(count, dtype=np.int64)]
                singles = array("q")
            else:
                singles.extend(range(at, at + size * count, size))
            at += size * count
            last_size = size
        elif opcode in (SCHEMA, CHANNEL):
            others.append(at)
            at += size
        elif opcode >= PRIVATE:
            at += size
        else:
            break
    return np.concatenate([*runs, np.array(singles, np.int64)]), others, at


def _equal_run(heads: NDArray[Any], at: int, size: int) -> int:
    """Count consecutive message records of one size, looking ahead in growing steps."""
    count, step = 0, 8
    limit = (len(heads) + RECORD.size - 1 - at) // size  # whole records of this size until the end
    while count < limit:
        here = heads[at + count * size : at + min(count + step, limit) * size : size]
        same = (here["op"] == MESSAGE) & (here["length"] == size - RECORD.size)
        if not same.all():
            return count + int(np.argmin(same))
        count += len(here)
        step *= 8
    return count


def resync(buffer: Buffer, at: int) -> int:
    """Find the next offset where two plausible records follow each other, or one ends the buffer.

    Returns:
        That offset, or the buffer's length if there is none.
    """
    end = len(buffer)
    for candidate in candidates(buffer, at, IN_CHUNK):
        first = _plausible_stop(buffer.data, candidate)
        if first == end or (first and _plausible_stop(buffer.data, first)):
            return candidate
    return end


def candidates(buffer: Buffer, at: int, least: NDArray[np.uint64], beyond: int = 0) -> Iterator[int]:
    """Find offsets from `at` on where a record might start; at most `MAX_CANDIDATES`, to limit the work.

    Args:
        least: (256,) by opcode, the least length of a record's content.
        beyond: bytes of records after the buffer.
    """
    heads = every_offset(buffer, RECORD_HEAD)
    seen, window = 0, 4096
    while at < len(heads) and seen < MAX_CANDIDATES:
        part = heads[at : at + window]
        room = np.arange(len(buffer) + beyond - RECORD.size - at, 0, -1, dtype=np.int64)[: len(part)]
        room = np.pad(room, (0, len(part) - len(room)))
        length = part["length"]
        fits = (length >= least[part["op"]]) & (length <= room.astype(np.uint64))
        for candidate in (at + np.flatnonzero(fits)).tolist():
            seen += 1
            yield candidate
        at += len(part)
        window = min(2 * window, 1 << 20)


def _plausible_stop(data: memoryview, at: int) -> int:
    """Return the end of the record at `at`, if a record of a chunk may start there; else 0."""
    if at + RECORD.size > len(data):
        return 0
    opcode, length = RECORD.unpack_from(data, at)
    stop = at + RECORD.size + int(length)
    return stop if length >= int(IN_CHUNK[opcode]) and stop <= len(data) else 0


def least_lengths(lengths: Mapping[int, int]) -> NDArray[np.uint64]:
    """Make a table for `candidates`, in which other opcodes have no valid length."""
    table = np.full(256, np.iinfo(np.uint64).max)
    for opcode, length in lengths.items():
        table[opcode] = length
    return table


IN_CHUNK = least_lengths({SCHEMA: 14, CHANNEL: 16, MESSAGE: MESSAGE_FIXED})
