"""The bytes of chunks and of files: a whole shard is encoded, and checked, at once.

Here: pure functions of an `ArrayLayout` and bytes.
Elsewhere: what the layout means (layout), reading files (reader).
"""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.io.formats.blosc import check_blosc_header
from logloom.io.formats.zarr.layout import ZSTD_LEVEL, ArrayLayout

CRC_BYTES = 4
_NO_CHUNK = np.iinfo(np.uint64).max


def encode_file(layout: ArrayLayout, entries: Array) -> bytes:
    """One file of an array.

    Args:
        entries: (n, *tail), those of the file; fewer than it has room for only at the array's end.
    """
    chunks = [_padded(layout, entries[at : at + layout.chunk]) for at in range(0, len(entries), layout.chunk)]
    if layout.format == 2:
        return bytes(_compressed(layout, chunks[0]))
    parts: list[Any] = []
    index = np.full((layout.shard // layout.chunk, 2), _NO_CHUNK, "<u8")
    offset = 0
    for number, chunk in enumerate(chunks):
        data = _compressed(layout, chunk)
        parts += [data, _crc(data)]
        index[number] = offset, len(data) + CRC_BYTES
        offset += len(data) + CRC_BYTES
    places = index.tobytes()
    return b"".join([*parts, places, _crc(places)])


def _padded(layout: ArrayLayout, entries: Array) -> Array:
    if len(entries) == layout.chunk:
        return np.ascontiguousarray(entries)
    chunk = np.zeros((layout.chunk, *layout.tail), layout.dtype)
    chunk[: len(entries)] = entries
    return chunk


def _compressed(layout: ArrayLayout, chunk: Array) -> Any:
    raw = chunk.reshape(-1).view(np.uint8)
    if layout.compress == "lz4":
        from numcodecs import blosc

        # Threads leave the order of blocks in the frame to chance.
        blosc.use_threads = False
        shuffle = int(layout.dtype.itemsize > 1)
        return blosc.compress(chunk.reshape(-1), b"lz4", clevel=5, shuffle=shuffle, blocksize=0)
    if layout.compress == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(raw.data)
    return raw


def _crc(data: Any) -> bytes:
    return int(google_crc32c.value(data)).to_bytes(CRC_BYTES, "little")


def index_bytes(layout: ArrayLayout) -> int:
    """Size of the index at the end of a shard."""
    return layout.shard // layout.chunk * 16 + CRC_BYTES


def decode_index(layout: ArrayLayout, data: Array, file: int, size: int, place: str) -> NDArray[np.int64]:
    """Where the chunks of a shard lie.

    Args:
        data: the last `index_bytes` of the file.
        file: its number.
        size: of the file.

    Returns:
        (chunks, 2) offset and length of those that hold entries.

    Raises:
        DatasetError: the index is damaged, or a chunk is missing.
    """
    _check_crc(data, f"{place}: the index at its end")
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
    """The (chunk_bytes,) bytes of a chunk.

    Args:
        data: (n,) uint8, with the checksum in format 3.
        file, number: where it stands, for errors.
        out: (chunk_bytes,) uint8 to decompress into; what isn't compressed stays where it is.

    Raises:
        DatasetError: the bytes are no such chunk.
    """
    if layout.format == 3:
        stored = int.from_bytes(data[-CRC_BYTES:].data, "little")
        data = data[:-CRC_BYTES]
        if google_crc32c.value(data) != stored:
            raise _crc_error(f"{file}: chunk {number}")
    if layout.compress == "none":
        if len(data) != layout.chunk_bytes:
            raise DatasetError(
                f"{file}: chunk {number}: {len(data)} bytes, it should have {layout.chunk_bytes}: damaged"
            )
        return data
    decompress = _from_blosc if layout.compress == "lz4" else _from_zstd
    return decompress(data, layout.chunk_bytes, f"{file}: chunk {number}", out)


def _check_crc(data: Array, place: str) -> None:
    stored = int.from_bytes(data[-CRC_BYTES:].tobytes(), "little")
    if len(data) < CRC_BYTES or google_crc32c.value(data[:-CRC_BYTES]) != stored:
        raise _crc_error(place)


def _crc_error(place: str) -> DatasetError:
    return DatasetError(f"{place}: its checksum doesn't fit: damaged; copy or build the dataset again")


def _from_blosc(data: Array, size: int, place: str, out: Array | None) -> Array:
    check_blosc_header(data.data, size, place)
    from numcodecs import blosc

    raw = np.empty(size, np.uint8) if out is None else out
    try:
        blosc.decompress(data, raw)
    except (RuntimeError, ValueError) as error:
        raise DatasetError(f"{place}: damaged ({error})") from error
    return raw


def _from_zstd(data: Array, size: int, place: str, out: Array | None) -> Array:
    import zstandard

    frame = data.data
    try:
        claimed = zstandard.frame_content_size(frame)
        raw = zstandard.ZstdDecompressor().decompress(frame) if claimed == size else b""
    except zstandard.ZstdError as error:
        raise DatasetError(f"{place}: damaged ({error})") from error
    if len(raw) != size:
        raise DatasetError(f"{place}: a frame of {claimed} bytes, a chunk has {size}: damaged")
    found = np.frombuffer(raw, np.uint8)
    if out is None:
        return found
    out[:] = found
    return out
