"""Chunks: encoding and decoding one row of one column group.

Here: `Layout`, which encodes the rows of a block and decodes a chunk into views of its buffer.
Elsewhere: which columns form a group (logloom.io.formats.table.groups), files of chunks
(logloom.io.formats.table.blobs).

A chunk contains the group's columns in schema order, each starting at a multiple of 8 bytes: little-endian
values in C order, as in memory. Ragged, bytes and string columns are preceded by their leading lengths, one
u64 each. Lists of lists are bytes (`packed_lists`). A chunk is padded with zeros to a multiple of 8, so that
concatenated chunks stay aligned.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Lists, Ragged, Values, bytes_of
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.schema import BYTES, ColumnType
from logloom.values import dataclass

Buffer = bytes | memoryview
Chunk = tuple[Buffer, ...]  # the pieces of one chunk, to be written one after the other
Decode = Callable[[NDArray[np.uint8], dict[str, Any]], None]

ALIGNMENT = 8
_PADDING = tuple(bytes(n) for n in range(ALIGNMENT))


def aligned(size: int) -> int:
    """`size` rounded up to a multiple of 8."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def row_bytes(ctype: ColumnType) -> int:
    """Bytes of one row's value, or of one step along the ragged axes."""
    return ctype.dtype.itemsize * math.prod(ctype.tail)


@dataclass(frozen=True)
class Layout:
    """The layout of a group's columns in its chunks.

    Attributes:
        columns: name to type, in schema order; lists of lists become bytes.
        starts: byte offset of each column that has the same offset in every chunk.
        size: of every chunk, or None if it differs by row.
    """

    columns: Mapping[str, ColumnType]
    starts: Mapping[str, int] = field(init=False)
    size: int | None = field(init=False)

    def __post_init__(self) -> None:
        columns = {name: BYTES if t.kind == "lists" else t for name, t in self.columns.items()}
        object.__setattr__(self, "columns", columns)
        starts: dict[str, int] = {}
        end: int | None = 0
        for name, ctype in self.columns.items():
            if end is None:
                break
            starts[name] = end
            end = None if ctype.is_ragged else aligned(end + row_bytes(ctype))
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "size", end)

    def encode(self, values: Mapping[str, Values], num_rows: int) -> Sequence[Chunk]:
        """Encode the rows of a block to chunks, whose pieces are views of `values` where possible.

        Args:
            values: at least the group's columns: (num_rows, *shape), or as Ragged (fixed shapes too).
        """
        lists = {n: packed_lists(v) for n in self.columns if isinstance(v := values[n], Lists)}
        values = {**values, **lists} if lists else values
        arrays = {name: v for name in self.columns if isinstance(v := values[name], np.ndarray)}
        if self.size is not None and len(arrays) == len(self.columns):
            return _encode_fixed(self, arrays, num_rows)
        columns: list[Sequence[Chunk]] = []
        for run in self.runs:
            if run.size is not None and all(name in arrays for name in run.columns):
                columns.append(_encode_fixed(run, arrays, num_rows))
            else:
                columns += [_pieces(values[name], ctype, num_rows) for name, ctype in run.columns.items()]
        if len(columns) == 1:
            return columns[0]
        return [tuple(itertools.chain.from_iterable(row)) for row in zip(*columns, strict=True)]

    @cached_property
    def runs(self) -> list[Layout]:
        """Cut the columns into layouts: ragged ones alone, consecutive fixed ones together."""
        found: list[dict[str, ColumnType]] = []
        joins = False
        for name, ctype in self.columns.items():
            if joins and not ctype.is_ragged:
                found[-1][name] = ctype
            else:
                found.append({name: ctype})
            joins = not ctype.is_ragged
        return [Layout(run) for run in found]

    def decoder(self, names: Mapping[str, str]) -> Decode:
        """Return a function (chunk, row) that sets row[shown] to a view of each column of `names`.

        Scalars become numpy scalars, bytes and strings Python's own.

        Args:
            names: column to its shown name.

        The function raises DatasetError if the chunk is too short for its lengths.
        """
        if self.size is not None:
            return _fixed_decoder(self, names)
        return _walking_decoder(self, names)


def packed_lists(values: Lists) -> Ragged:
    """Return the bytes of each row: u64 number of lists, u64 length of each, then all elements."""
    rows = zip(values.inner, values.flat, strict=True)
    return Ragged.from_bytes(
        [np.array([len(inner), *inner], "<u8").tobytes() + bytes_of(flat) for inner, flat in rows]
    )


def unpacked_lists(rows: Sequence[bytes], ctype: ColumnType) -> Lists:
    """Return the inverse of `packed_lists`; a row of no bytes has no lists.

    Raises:
        DatasetError: no such bytes.
    """
    width, counts = row_bytes(ctype), []
    lengths: list[int] = []
    parts: list[bytes] = []
    for row in rows:
        words = np.frombuffer(row, "<u8", len(row) // 8)
        count = int(words[0]) if len(words) else 0
        found = words[1 : count + 1].tolist() if count < len(words) else []
        start = 8 * (1 + count) if row else 0
        if len(found) != count or len(row) - start != sum(found) * width:
            raise DatasetError(f"{len(row)} bytes that are no {ctype}")
        counts.append(count)
        lengths += found
        parts.append(row[start:])
    values = np.frombuffer(bytearray().join(parts), ctype.dtype).reshape(-1, *ctype.tail)
    return Lists(values, counts, np.array(lengths, np.int64))


def _encode_fixed(layout: Layout, values: Mapping[str, Array], num_rows: int) -> Sequence[Chunk]:
    assert layout.size is not None
    rows = np.zeros((num_rows, layout.size), np.uint8)
    for name, ctype in layout.columns.items():
        size, start = row_bytes(ctype), layout.starts[name]
        if size == 0:
            continue
        flat = np.ascontiguousarray(values[name], ctype.dtype).reshape(num_rows, -1).view(np.uint8)
        if size == layout.size:  # a lone column without padding: its rows are the chunks
            rows = flat
        else:
            rows[:, start : start + size] = flat
    whole, size = rows.reshape(-1).data, layout.size
    return [(whole[row * size : (row + 1) * size],) for row in range(num_rows)]


def _pieces(values: Values, ctype: ColumnType, num_rows: int) -> list[Chunk]:
    """Make one column's pieces of each chunk: lengths, values, padding."""
    heads: list[bytes] = [b""] * num_rows
    if isinstance(values, Ragged):
        lengths, width = values.shapes.astype("<u8").tobytes(), 8 * ctype.num_ragged
        heads = [lengths[row * width : (row + 1) * width] for row in range(num_rows)]
    pieces: list[Chunk] = []
    dtype = ctype.dtype
    castable = dtype.kind in "biuf" and dtype.itemsize <= 8
    for head, value in zip(heads, values, strict=True):
        if castable and value.dtype == dtype and value.flags.c_contiguous and value.size:
            flat = value.data if dtype == np.uint8 and value.ndim == 1 else value.data.cast("B")
        else:
            flat = np.ascontiguousarray(value, dtype).reshape(-1).view(np.uint8).data
        pieces.append((head, flat, _PADDING[-flat.nbytes % ALIGNMENT]))
    return pieces


def _fixed_decoder(layout: Layout, names: Mapping[str, str]) -> Decode:
    size, make = layout.size, np.ndarray
    wanted = [(shown, layout.columns[name], layout.starts[name]) for name, shown in names.items()]
    arrays = [(shown, ctype.tail, ctype.dtype, start) for shown, ctype, start in wanted if ctype.shape]
    scalars = [(shown, ctype.dtype, start) for shown, ctype, start in wanted if not ctype.shape]

    def decode(chunk: NDArray[np.uint8], row: dict[str, Any]) -> None:
        if len(chunk) != size:
            raise DatasetError(f"the chunk has {len(chunk)} bytes, its columns take {size}")
        for name, shape, dtype, start in arrays:
            row[name] = make(shape, dtype, chunk, start)
        for name, dtype, start in scalars:
            row[name] = make((), dtype, chunk, start)[()]

    return decode


def _walking_decoder(layout: Layout, names: Mapping[str, str]) -> Decode:
    last = max(i for i, name in enumerate(layout.columns) if name in names)
    steps = [
        (
            name,
            names.get(name),
            ctype,
            ctype.kind,
            ctype.dtype,
            ctype.tail,
            struct.Struct(f"<{ctype.num_ragged}Q"),
        )
        for name, ctype in itertools.islice(layout.columns.items(), last + 1)
    ]
    widths = [row_bytes(ctype) for ctype in layout.columns.values()][: last + 1]
    make = np.ndarray

    def decode(chunk: NDArray[np.uint8], row: dict[str, Any]) -> None:
        start, end = 0, len(chunk)
        lengths: tuple[int, ...]
        for (name, shown, ctype, kind, dtype, tail, head), size in zip(steps, widths, strict=True):
            lengths = ()
            if head.size:
                if start + head.size > end:
                    raise DatasetError(f"the chunk of {end} bytes ends before the lengths of {name}")
                lengths = head.unpack_from(chunk.data, start)
                start += head.size
                size *= math.prod(lengths)
            if start + size > end:
                raise DatasetError(
                    f"the chunk of {end} bytes is too short for {name} {lengths}: {size} at byte {start}"
                )
            if shown is not None:
                try:
                    if kind == "array":
                        values: Array = make(lengths + tail, dtype, chunk, start)
                        row[shown] = values if values.ndim else values[()]
                    elif kind == "bytes":
                        row[shown] = chunk[start : start + size].tobytes()
                    else:
                        row[shown] = chunk[start : start + size].tobytes().decode("utf-8")
                except (ValueError, OverflowError) as error:  # no UTF-8, or absurd lengths beside one of 0
                    raise DatasetError(
                        f"the chunk contains no {ctype} of lengths {lengths}: {error}"
                    ) from error
            start += -(-size // 8) * 8

    return decode
