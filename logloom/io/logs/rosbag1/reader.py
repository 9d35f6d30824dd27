"""ROS 1 bags, format 2.0: the kind, the index and the chunks of a file.

Here: `KIND` and the container of one file.
Elsewhere: records (records), messages among them (messages), files without an index (scan), the names of a
split recording's files (splits), the log (logloom.io.logs.files.container_log).
The format has no checksums; bz2 and lz4 have their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.errors import LogReadError, TruncatedLogError, UnknownEncodingError
from logloom.io.logs.files.container import Channel, Chunk, FileIndex, Int64s, damaged_at, index_of, way_on
from logloom.io.logs.files.container_log import ContainerKind
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.rosbag1 import records
from logloom.io.logs.rosbag1.messages import read_chunk, walked_chunk
from logloom.io.logs.rosbag1.scan import BagScan
from logloom.io.logs.rosbag1.splits import files_of_folder, recordings
from logloom.values import dataclass

HEAD = 4096  # the bag header is padded to this
INDEX_HEAD = 55  # bytes of an index data record before its entries, as written by all recorders
SHARE_ENTRY = np.dtype([("conn", "<u4"), ("count", "<u4")])


@dataclass(frozen=True)
class ChunkInfo:
    """A chunk info record.

    Attributes:
        offset: of the chunk, in the file.
        counts: (connection, number of messages) pairs.
    """

    offset: int
    first: int
    last: int
    counts: list[tuple[int, int]]


class Rosbag1File:
    """The container of one bag file."""

    remedy = "repair the file with `rosbag reindex`"
    reindex = "`rosbag reindex` writes one"

    def __init__(self, file: LogFile, options: OpenOptions):
        self.file = file
        self._max_chunk_bytes = self.settings = options.max_chunk_bytes

    def read_index(self) -> FileIndex | None:
        uri, size = self.file.uri, self.file.size
        head = self.file.read(0, min(size, HEAD))
        if not head.startswith(records.MAGIC):
            version = head[: len(records.MAGIC)]
            if version.startswith(records.MAGIC[:8]):
                raise UnknownEncodingError(
                    f"{uri}: is a bag of another version, {version!r}; migrate it with `rosbag fix` first"
                )
            raise LogReadError(f"{uri}: is no ROS 1 bag, it starts with {version!r}")
        try:
            header = records.record_at(memoryview(head), len(records.MAGIC))
            if header.op != records.BAG_HEADER:
                raise ValueError(f"the bag header has opcode {header.op}")
            start = header.unsigned("index_pos", 8)
            counts = header.unsigned("conn_count", 4), header.unsigned("chunk_count", 4)
        except ValueError as error:
            raise damaged_at(self, len(records.MAGIC), str(error)) from error
        if start == 0:
            return None
        if start > size:
            raise TruncatedLogError(
                f"{uri}: truncated at byte {size}, before its index at byte {start}; {way_on(self.remedy)}"
            )
        if size - start > self._max_chunk_bytes:
            raise damaged_at(self, start, "the index is larger than max_chunk_bytes")
        try:
            return self._parse_index(memoryview(self.file.read(start, size)), start, counts)
        except ValueError as error:
            raise damaged_at(self, start, f"the index is damaged: {error}") from error

    @property
    def unfinished(self) -> str:
        """Why the file counts as not closed by its recorder; "" if it was closed."""
        try:
            header = records.record_at(
                memoryview(self.file.read(0, min(self.file.size, HEAD))), len(records.MAGIC)
            )
            return "" if header.unsigned("index_pos", 8) else "its header names no index (index_pos is 0)"
        except ValueError:
            return ""  # damage, which is reported elsewhere

    def scan(self) -> FileIndex:
        return BagScan(self.file, self._max_chunk_bytes).run()

    def decode(self, stretch: np.void, data: memoryview) -> Chunk:
        if stretch["loose"]:
            return walked_chunk(np.frombuffer(data, np.uint8))
        return read_chunk(data, self._max_chunk_bytes, bool(stretch["cut"]))

    def entries(self, stretch: np.void) -> dict[int, tuple[Int64s, Int64s]]:
        offset, stop = int(stretch["offset"]), int(stretch["offset"] + stretch["length"])
        try:
            chunk = self._chunk_record(offset, stop)
            entries = records.index_entries(memoryview(self.file.read(min(offset + chunk.stop, stop), stop)))
        except ValueError as error:
            raise damaged_at(self, offset, str(error)) from error
        return {
            connection: (records.nanoseconds(part), part["offset"].astype(np.int64))
            for connection, part in entries.items()
        }

    def _parse_index(self, data: memoryview, start: int, counts: tuple[int, int]) -> FileIndex:
        connections: dict[int, Channel] = {}
        chunks: list[ChunkInfo] = []
        texts: dict[tuple[str, bytes], bytes] = {}
        at = 0
        while at < len(data):
            if records.is_padding(data[at : at + 4]) and records.is_padding(data[at:]):
                break
            record = records.record_at(data, at)
            if record.stop > len(data):
                raise ValueError("it ends in the middle of a record")
            if record.op == records.CONNECTION:
                found = records.channel_of(record, data, texts)
                connections[found.id] = found
            elif record.op == records.CHUNK_INFO:
                chunks.append(_chunk_info(record, data))
            at = record.stop
        if (len(connections), len(chunks)) != counts:
            raise ValueError(
                f"it has {len(connections)} connections and {len(chunks)} chunks, the bag header declares "
                f"{counts[0]} and {counts[1]}"
            )
        return self._build_index(connections, sorted(chunks, key=lambda chunk: chunk.offset), start)

    def _build_index(self, connections: dict[int, Channel], chunks: list[ChunkInfo], stop: int) -> FileIndex:
        starts = [chunk.offset for chunk in chunks]
        if any(b <= a for a, b in zip([len(records.MAGIC), *starts], [*starts, stop], strict=True)):
            raise ValueError("its chunks overlap")
        head, plain, packed = self._shape(starts[0], stop) if chunks else (0, 1, 1)
        stretches: list[tuple[Any, ...]] = []
        shares: list[tuple[int, ...]] = []
        stops = [*starts[1:], stop][: len(starts)]
        for number, (chunk, end) in enumerate(zip(chunks, stops, strict=True)):
            length = end - chunk.offset
            index = sum(INDEX_HEAD + records.INDEX_ENTRY.itemsize * count for _, count in chunk.counts)
            size = max(0, length - index - head) * plain // packed
            times = chunk.first, chunk.last
            stretches.append((number << 32, chunk.offset, length, 0, size, *times, False, False))
            for connection, count in sorted(chunk.counts):
                if connection not in connections:
                    raise ValueError(f"connection {connection} has no description")
                if count:
                    shares.append((number, connection, count, *times))
        if len({share[:2] for share in shares}) != len(shares):
            raise ValueError("a chunk names a connection twice")
        return index_of(connections, stretches, shares)

    def _shape(self, offset: int, stop: int) -> tuple[int, int, int]:
        """Bytes of the first chunk's header, uncompressed and compressed data.

        They are used for all chunks, as the index of a bag lacks sizes, and reading each takes a request.
        """
        record = self._chunk_record(offset, stop)
        return record.data, record.unsigned("size", 4), max(1, record.stop - record.data)

    def _chunk_record(self, offset: int, stop: int) -> records.BagRecord:
        record = records.record_at(memoryview(self.file.read(offset, min(offset + HEAD, stop))), 0)
        if record.op != records.CHUNK:
            raise ValueError(f"a chunk should start at byte {offset}, found opcode {record.op}")
        return record


def _chunk_info(record: records.BagRecord, data: memoryview) -> ChunkInfo:
    if record.unsigned("ver", 4) != 1:
        raise ValueError("a chunk info record is of an unknown version")
    table = np.frombuffer(data[record.data : record.stop], np.uint8)
    if len(table) != record.unsigned("count", 4) * SHARE_ENTRY.itemsize:
        raise ValueError("a chunk info record is damaged")
    return ChunkInfo(
        record.unsigned("chunk_pos", 8),
        record.time("start_time"),
        record.time("end_time"),
        table.view(SHARE_ENTRY).tolist(),
    )


@dataclass(frozen=True)
class Rosbag1Kind(ContainerKind):
    """ROS 1 bags, whose recorder can split a recording into several files."""

    def files_in(self, names: Sequence[str]) -> list[str]:
        """Return the files of a folder with one split recording, and no other bags."""
        return files_of_folder(names)

    def recordings(self, names: Sequence[str]) -> Mapping[str, list[str]]:
        """Return the recordings that are split into several of these files, by the name of the whole."""
        return recordings(names)


KIND = Rosbag1Kind("rosbag1", (".bag", ".bag.active", ".orig.bag"), records.MAGIC[:8], Rosbag1File)
