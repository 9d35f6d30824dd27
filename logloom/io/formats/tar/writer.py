"""Writing a partition as one tar shard.

Here: `TarWriter`, which writes large values without copying them.
Elsewhere: the members of a sample (samples), headers (headers).
"""

from __future__ import annotations

import io
import itertools
import os
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from logloom.blocks import Array, Block
from logloom.io.formats.tar.headers import BLOCK, END, HeaderTemplate, check_size, padded
from logloom.io.formats.tar.npy import npy_header
from logloom.io.formats.tar.samples import Buffer, Member, RowValues, key_before, members_of, rows_of
from logloom.io.rows.flat_lists import flat_columns, flat_types
from logloom.io.rows.row_order import RowOrder
from logloom.io.storage.filesystems import explained
from logloom.schema import Schema

_ROWS = 256  # laid out at a time, since headers weigh more than small values
_SMALL = 4096  # fixed-size values up to this many bytes are copied next to their headers
_PADS = [bytes(-size % BLOCK) for size in range(BLOCK)]
_MAX_PARTS = 1024  # what one writev takes


class TarWriter:
    """Writes the rows of one log to a tar file; holds no more than the block it is given."""

    def __init__(self, path: str | os.PathLike[str], schema: Schema, ext: Mapping[str, str] | None = None):
        """Nothing is created before the first row.

        Args:
            path: of the shard.
            schema: the columns to write; others in the blocks are left aside.
            ext: what members of bytes columns are called: {"camera.front": "jpg"}; "bin" by default.
        """
        self.path = pathlib.Path(path)
        self._members = members_of(schema, ext or {})
        self._schema = schema
        self._types = flat_types(schema.all)
        self._file: io.FileIO | None = None
        self._templates: dict[int, list[HeaderTemplate]] = {}
        self._order = RowOrder(f"{self.path}", "a shard")
        self._rows = 0
        self._bytes = 0

    def append(self, block: Block) -> None:
        """Takes the next rows.

        Args:
            block: rows of one log.

        Raises:
            UsageError: another log_id, stamps that don't ascend, values that don't fit the schema, or a
                log_id that can't name members.
            StorageError: the disk refuses.
        """
        if len(block) == 0:
            return
        self._order.check(block)
        if len(self._types) > len(self._schema.all):
            block = replace(block, columns=flat_columns(block.columns, self._schema.all))
        for start in range(0, len(block), _ROWS):
            stop = min(start + _ROWS, len(block))
            for first, last in _same_width(block.timestamp[start:stop]):
                self._write(self._pieces(block, start + first, start + last))
        self._rows += len(block)

    def close(self, end: bool = True) -> dict[str, Any]:
        """Ends the archive.

        Args:
            end: False leaves out the end-of-archive marker, for a piece that others are joined to.

        Returns:
            {"log_id", "partition", "rows", "bytes"}; no file was made where there are no rows.
        """
        if self._file is not None:
            if end:
                self._write(iter([END]))
            self._file.close()
        return {**self._order.source, "rows": self._rows, "bytes": self._bytes}

    def _pieces(self, block: Block, start: int, stop: int) -> Iterator[Buffer]:
        """The archive's bytes for some rows whose stamps have equally many digits."""
        stamps = block.timestamp[start:stop]
        columns = {
            name: rows_of(name, t, block.columns[name], start, stop) for name, t in self._types.items()
        }
        texts = [str(stamp) for stamp in stamps.tolist()]
        digits = np.frombuffer("".join(texts).encode(), np.uint8).reshape(len(texts), -1)
        members = [
            _member_pieces(member, template, block.log_id, stamps, digits, columns)
            for member, template in zip(self._members, self._templates_for(digits.shape[1]), strict=True)
        ]
        rows = zip(*members, strict=True)
        return itertools.chain.from_iterable(itertools.chain.from_iterable(rows))

    def _templates_for(self, width: int) -> list[HeaderTemplate]:
        if width not in self._templates:
            before = key_before(self._order.source["log_id"])
            self._templates[width] = [HeaderTemplate(before, width, f".{m.suffix}") for m in self._members]
        return self._templates[width]

    def _write(self, pieces: Iterator[Buffer]) -> None:
        with explained(str(self.path)):
            if self._file is None:
                self._file = io.FileIO(self.path, "xb")
            while batch := list(itertools.islice(pieces, _MAX_PARTS)):
                self._bytes += _write_all(self._file.fileno(), batch)


def _same_width(stamps: Array) -> Iterator[tuple[int, int]]:
    """The stretches of stamps that have equally many characters."""
    start = 0
    for _, group in itertools.groupby(len(str(stamp)) for stamp in stamps.tolist()):
        stop = start + len(list(group))
        yield start, stop
        start = stop


def _member_pieces(
    member: Member,
    template: HeaderTemplate,
    log_id: str,
    stamps: Array,
    digits: Array,
    columns: Mapping[str, RowValues],
) -> list[tuple[Buffer, ...]]:
    """One member of each row: header, payload and padding in as few pieces as copying little allows."""
    values = columns[next(iter(member.columns), "")] if member.form == "npy" else None
    if isinstance(values, np.ndarray) and 0 < values[0].nbytes <= _SMALL:
        return [(record,) for record in _small_records(member, template, digits, values)]
    heads, payloads = member.encode(log_id, stamps, columns)
    sizes = np.array([len(h) + len(p) for h, p in zip(heads, payloads, strict=True)], np.int64)
    check_size(int(sizes.max()), f"{log_id}: {member.suffix}")
    headers = np.empty((len(sizes), template.nbytes), np.uint8)
    template.fill(digits, sizes, headers)
    pads = [_PADS[size] for size in (sizes % BLOCK).tolist()]
    return list(zip(_split(headers), heads, payloads, pads, strict=True))


def _small_records(
    member: Member, template: HeaderTemplate, digits: Array, values: Array
) -> list[memoryview]:
    """Whole members of a small fixed-size column, laid out for all rows at once."""
    (ctype,) = member.columns.values()
    head = npy_header(ctype.dtype, ctype.tail)
    payload = np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8).reshape(len(values), -1)
    size = len(head) + payload.shape[1]
    at = template.nbytes
    records = np.zeros((len(values), at + padded(size)), np.uint8)
    template.fill(digits, np.full(len(values), size, np.int64), records[:, :at])
    records[:, at : at + len(head)] = np.frombuffer(head, np.uint8)
    records[:, at + len(head) : at + size] = payload
    return _split(records)


def _split(records: Array) -> list[memoryview]:
    flat = records.reshape(-1).data
    width = records.shape[1]
    return [flat[at : at + width] for at in range(0, len(flat), width)]


def _write_all(descriptor: int, pieces: list[Buffer]) -> int:
    """Writes all pieces, however few bytes the system takes at a time; gives their size."""
    total = sum(map(len, pieces))
    written = os.writev(descriptor, pieces)
    rest = memoryview(b"".join(pieces))[written:] if written < total else b""
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]
    return total
