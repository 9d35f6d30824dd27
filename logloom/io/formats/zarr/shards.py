"""Bytes of chunks and files: whole shards, encoded and checked at once.

Here: pure functions of an `ArrayLayout` and bytes.
Elsewhere: the layout (layout), compression (logloom.io.formats.chunk_files), reading files (array_reader).
"""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.io.formats.chunk_files import compress, decompress, padded
from logloom.io.formats.zarr.layout import ArrayLayout

CRC_BYTES = 4
_NO_CHUNK = np.iinfo(np.uint64).max


def encode_file(layout: ArrayLayout, entries: Array) -> bytes:
    """Encode one file of an array.

    Args:
        entries: (n, *tail), those of the file; fewer than its capacity only at the array's end.
    """
    chunks = [
        padded(entries[at : at + layout.chunk], layout.chunk) for at in range(0, len(entries), layout.chunk)
    ]
    if layout.format == 2:
        return bytes(compress(chunks[0], layout.compress))
    parts: list[Any] = []
    index = np.full((layout.shard // layout.chunk, 2), _NO_CHUNK, "<u8")
    offset = 0
    for number, chunk in enumerate(chunks):
        data = compress(chunk, layout.compress)
        parts += [data, _crc(data)]
        index[number] = offset, len(data) + CRC_BYTES
        offset += len(data) + CRC_BYTES
    places = index.tobytes()
    return b"".join([*parts, places, _crc(places)])


def _crc(data: Any) -> bytes:
    return int(google_crc32c.value(data)).to_bytes(CRC_BYTES, "little")


def index_bytes(layout: ArrayLayout) -> int:
    """Size of the index at the end of a shard."""
    return layout.shard // layout.chunk * 16 + CRC_BYTES


def decode_index(layout: ArrayLayout, data: Array, file: int, size: int, place: str) -> NDArray[np.int64]:
    """Decode the index of a shard.

    Args:
        data: the last `index_bytes` of the file.
        file: its number.
        size: of the file.

    Returns:
        (chunks, 2) offset and length of the chunks with entries.

    Raises:
        DatasetError: the index is damaged, or a chunk is missing.
    """
    stored = int.from_bytes(data[-CRC_BYTES:].tobytes(), "little")
    if len(data) < CRC_BYTES or google_crc32c.value(data[:-CRC_BYTES]) != stored:
        raise _crc_error(f"{place}: the index at its end")
    index = data[:-CRC_BYTES].view("<u8").reshape(-1, 2)[: layout.chunks_in(file)]
    missing = (index == _NO_CHUNK).any(axis=1)
    if missing.any():
        raise DatasetError(
            f"{place}: chunk {int(missing.argmax())} is missing, zarr would read fill values for it; "
            "copy or build the dataset again"
        )
    end = size - len(data)
    beyond = (index > end).any(axis=1) | (index[:, 0] + index[:, 1] > end) | (index[:, 1] < CRC_BYTES)
    if beyond.any():
        raise DatasetError(f"{place}: its index puts chunk {int(beyond.argmax())} beyond the data: damaged")
    return index.astype(np.int64)


def decode_chunk(layout: ArrayLayout, data: Array, file: str, number: int, out: Array | None = None) -> Array:
    """Decode the (chunk_bytes,) bytes of a chunk.

    Args:
        data: (n,) uint8, with the checksum in format 3.
        file, number: its place, for errors.
        out: (chunk_bytes,) uint8 to decompress into; uncompressed bytes are not copied.

    Raises:
        DatasetError: the bytes are not a valid chunk.
    """
    if layout.format == 3:
        stored = int.from_bytes(data[-CRC_BYTES:].data, "little")
        data = data[:-CRC_BYTES]
        if google_crc32c.value(data) != stored:
            raise _crc_error(f"{file}: chunk {number}")
    return decompress(data, layout.compress, layout.chunk_bytes, f"{file}: chunk {number}", out)


def _crc_error(place: str) -> DatasetError:
    return DatasetError(f"{place}: its checksum doesn't fit: damaged; copy or build the dataset again")
