"""Read large uncompressed chunks value by value, so that no value is copied twice.

Here: `LargeChunks`, for local files only, where another read costs less than another copy. Chunks of a
single text or bytes value may be small, too: small neighbours are read together, then cut apart.
Elsewhere: chunks that are read whole (logloom.io.formats.table.chunks), the choice between both
(logloom.io.formats.table.read.plan_reader).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.errors import DatasetError
from logloom.io.formats.table.chunks import Layout, aligned, row_bytes
from logloom.io.formats.table.read.batches import Column, bytes_of, fixed_array, ragged_array
from logloom.io.formats.table.read.frames import Ints
from logloom.io.formats.table.read.range_reader import JOINED, LARGE_BYTES, LOCAL_WASTE, RangeReader, Target
from logloom.io.storage.files import pread
from logloom.io.storage.remote.range_requests import failure
from logloom.schema import ColumnType
from logloom.uris import chained
from logloom.values import dataclass

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class _Value:
    """A column's value in a chunk: its lengths along the ragged axes, and its bytes' place in the blob."""

    lengths: tuple[int, ...]
    offset: int
    size: int


class LargeChunks:
    """Reads the columns of a group whose chunks differ in size, not compressed.

    Attributes:
        limit: bytes of a chunk from which on this is the quicker way to read a row; `batch_limit` the same
            for many rows.
    """

    def __init__(self, layout: Layout, columns: Mapping[str, str]):
        """Take the group's layout, and the wanted columns with their shown names."""
        last = max(i for i, name in enumerate(layout.columns) if name in columns)
        walked = list(layout.columns.items())[: last + 1]
        self._steps = [
            (name, columns.get(name), ctype, row_bytes(ctype), struct.Struct(f"<{ctype.num_ragged}Q"))
            for name, ctype in walked
        ]
        self.limit = LARGE_BYTES * len(walked)
        name, ctype = walked[-1]
        self._lone = (columns[name], ctype) if len(layout.columns) == 1 and ctype.kind != "array" else None
        self.batch_limit = 0 if self._lone else self.limit

    def row(self, reader: RangeReader, file: int, offset: int, length: int, row: dict[str, Any]) -> None:
        """Adds the columns of one chunk to a row.

        Raises:
            DatasetError: the file is cut short, or the chunk's lengths don't fit it.
        """
        reader.check_one(file, offset, length)
        for (shown, ctype), value in self._walk(reader, file, offset, length):
            if ctype.kind == "array":
                data = reader.read(file, value.offset, value.size)
                array = _shaped(data, ctype, value)
                row[shown] = array if array.ndim else array[()]
            else:
                row[shown] = _text(reader.read_bytes(file, value.offset, value.size), ctype)

    @property
    def is_lone(self) -> bool:
        """Whether chunks are one text or bytes value each."""
        return self._lone is not None

    def neighbours(
        self,
        reader: RangeReader,
        file: int,
        offset: int,
        lengths: Sequence[int],
        rows: Sequence[dict[str, Any]],
    ) -> None:
        """Add the values of contiguous chunks to rows, if `is_lone`.

        Args:
            offset: of the first chunk in the file.
            lengths: of the chunks.

        Raises:
            DatasetError: the file is cut short, or a chunk's length doesn't fit it.
        """
        assert self._lone is not None
        shown, ctype = self._lone
        total = sum(lengths)
        blob, head = reader.check_one(file, offset, total), _LENGTH.size
        if total < LARGE_BYTES * len(lengths) // 2:
            data, at = reader.read_bytes(file, offset, total), 0
            for row, length in zip(rows, lengths, strict=True):
                row[shown] = _text(_cut(data, at, length), ctype)
                at += length
            return
        for row, length in zip(rows, lengths, strict=True):  # another read costs less than another copy
            size = int.from_bytes(blob.read(offset, head), "little")
            if size > length - head:
                raise DatasetError(f"the chunk of {length} bytes is too short for a value of {size}")
            value = blob.read(offset + head, size)
            row[shown] = value if ctype.kind == "bytes" else _text(value, ctype)
            offset += length

    def batch(
        self, reader: RangeReader, files: Ints, offsets: Ints, lengths: Ints, out: Mapping[str, Any]
    ) -> Mapping[str, Column]:
        """Read the columns of many chunks, stacked.

        Args:
            files, offsets, lengths: (n,) where the chunks are, checked against the files.
            out: arrays by column to fill instead of fresh ones.

        Raises:
            DatasetError: a chunk's lengths don't fit it.
        """
        if self._lone is not None:
            return {self._lone[0]: self._texts(self._lone[1], reader, files, offsets, lengths)}
        places = list(zip(files.tolist(), offsets.tolist(), lengths.tolist(), strict=True))
        found = [list(self._walk(reader, *place)) for place in places]
        columns: dict[str, Column] = {}
        targets: list[list[Any]] = []  # by column, where each row's value goes
        for (shown, ctype), values in (_unzipped(rows) for rows in zip(*found, strict=True)):
            columns[shown], own = _target(shown, ctype, values, out)
            targets.append(own)
        requests: list[tuple[int, int, int]] = []
        buffers: list[Target] = []
        for i in np.lexsort((offsets, files)).tolist():
            file = places[i][0]
            for ((_, ctype), value), target in zip(found[i], targets, strict=True):
                if ctype.kind != "array":
                    target[i] = _text(reader.read_bytes(file, value.offset, value.size), ctype)
                elif value.size:
                    requests.append((file, value.offset, value.size))
                    buffers.append((target[i],))
        if requests:
            numbers, starts, sizes = np.array(requests, np.int64).T
            reader.read_into((numbers, starts, sizes), buffers)
        return columns

    def _texts(
        self, ctype: ColumnType, reader: RangeReader, files: Ints, offsets: Ints, lengths: Ints
    ) -> list[Any]:
        """Read the values of chunks with a single value; small ones close to each other are read together."""
        order = np.lexsort((lengths, offsets, files))
        files, offsets, lengths = files[order], offsets[order], lengths[order]
        gaps = offsets[1:] - (offsets + lengths)[:-1]
        gaps[offsets[1:] == offsets[:-1]] = 0  # a row that repeats
        apart = (files[1:] != files[:-1]) | (gaps < 0) | (gaps > LOCAL_WASTE)
        apart |= np.maximum(lengths[1:], lengths[:-1]) >= LARGE_BYTES
        apart[JOINED - 1 :: JOINED] = True
        firsts = [0, *(np.flatnonzero(apart) + 1).tolist()]
        rows = list(zip(order.tolist(), offsets.tolist(), lengths.tolist(), strict=True))
        texts: list[Any] = [b""] * len(rows)
        number, blob = files.item(0), reader.file(files.item(0)).opened()
        head, unpack = _LENGTH.size, _LENGTH.unpack_from
        for first, file, stop in zip(firsts, files[firsts].tolist(), [*firsts[1:], len(rows)], strict=True):
            row, begin, length = rows[first]
            if length >= LARGE_BYTES:
                ((_, value),) = self._walk(reader, file, begin, length)
                texts[row] = reader.read_bytes(file, value.offset, value.size)
                continue
            if first + 1 == stop:
                if file != number:  # one at a time: there may be more than a process may open
                    number, blob = file, reader.file(file).opened()
                try:
                    data = pread(blob.fd, length, begin)
                    if len(data) < length:
                        data = reader.read_bytes(file, begin, length)
                except OSError as error:
                    raise failure(reader.uris[file], error) from chained(error)
                if length >= head and unpack(data)[0] == length - head:
                    texts[row] = data[head:]
                else:
                    texts[row] = _cut(data, 0, length)
                continue
            data = reader.read_bytes(file, begin, sum(rows[stop - 1][1:]) - begin)
            for row, offset, length in rows[first:stop]:
                texts[row] = _cut(data, offset - begin, length)
        return texts if ctype.kind == "bytes" else [_text(text, ctype) for text in texts]

    def _walk(
        self, reader: RangeReader, file: int, offset: int, length: int
    ) -> Iterator[tuple[tuple[str, ColumnType], _Value]]:
        """Find the wanted values of a chunk; reads only their lengths."""
        at = 0
        for name, shown, ctype, size, head in self._steps:
            lengths: tuple[int, ...] = ()
            if head.size:
                if at + head.size > length:
                    raise DatasetError(f"the chunk of {length} bytes ends before the lengths of {name}")
                lengths = head.unpack(reader.read_bytes(file, offset + at, head.size))
                at += head.size
                size *= math.prod(lengths)
            if at + size > length:
                raise DatasetError(
                    f"the chunk of {length} bytes is too short for {name} {lengths}: {size} at byte {at}"
                )
            if shown is not None:
                yield (shown, ctype), _Value(lengths, offset + at, size)
            at += aligned(size)


def _cut(data: bytes, start: int, length: int) -> bytes:
    """Cut out the value of a chunk of `length` bytes at `start`, after the leading length."""
    size = _LENGTH.unpack_from(data, start)[0] if length >= _LENGTH.size else length
    if size > length - _LENGTH.size:
        raise DatasetError(f"the chunk of {length} bytes is too short for a value of {size}")
    start += _LENGTH.size
    return data[start : start + size]


def _unzipped(
    values: Sequence[tuple[tuple[str, ColumnType], _Value]],
) -> tuple[tuple[str, ColumnType], list[_Value]]:
    return values[0][0], [value for _, value in values]


def _shaped(data: Any, ctype: ColumnType, value: _Value) -> Any:
    try:
        return np.ndarray(value.lengths + ctype.tail, ctype.dtype, data)
    except (ValueError, OverflowError) as error:  # absurd lengths beside one of 0
        raise DatasetError(f"the chunk contains no {ctype} of lengths {value.lengths}: {error}") from error


def _text(data: bytes, ctype: ColumnType) -> bytes | str:
    if ctype.kind == "bytes":
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DatasetError(f"the chunk contains no text: {error}") from error


def _target(
    shown: str, ctype: ColumnType, values: list[_Value], out: Mapping[str, Any]
) -> tuple[Column, list[Any]]:
    """Allocate a column, with the target of each row's value: an item of a list, or bytes of an array."""
    if ctype.kind != "array":
        texts: list[Any] = [None] * len(values)
        return texts, texts
    if not ctype.is_ragged:
        array = fixed_array(shown, ctype, len(values), out)
        data, size = bytes_of(array), row_bytes(ctype)
        return array, [data[row * size : row * size + size] for row in range(len(values))]
    try:
        lengths = np.array([value.lengths for value in values], np.int64)
    except OverflowError as error:
        raise DatasetError(f"the chunk contains no {ctype} of such lengths: {error}") from error
    stops = np.cumsum([value.size for value in values]).tolist()
    array = ragged_array(shown, ctype, stops[-1] // max(1, row_bytes(ctype)), out)
    data = bytes_of(array)
    pieces = [data[stop - value.size : stop] for stop, value in zip(stops, values, strict=True)]
    return (array, lengths[:, 0] if lengths.shape[1] == 1 else lengths), pieces
