"""Chunk files of zarr and of formats based on it.

Here: the bytes of a chunk (`compress`, `decompress`, which checks lengths first), the pieces of chunks that
ranges of entries consist of (`cut`), and reading whole files of a dataset (`read_file`).
Elsewhere: the metadata of arrays, and readers of arrays (logloom.io.formats.zarr, logloom.io.formats.l5kit).
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import DatasetError, StorageError
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import ZIP
from logloom.io.storage.known_files import check_bytes
from logloom.io.storage.store import Store

MAX_CHUNK_BYTES = 1 << 30
ZSTD_LEVEL = 3
# Versions of blosc and lz4, flags, typesize, nbytes, blocksize, cbytes.
_BLOSC_HEADER = struct.Struct("<BBBBIII")

Ints = NDArray[np.int64]


# --- bytes ----------------------------------------------------------------------------------------------


def padded(entries: Array, chunk: int) -> Array:
    """Pad the entries of a chunk with zero bytes to `chunk` entries."""
    if len(entries) == chunk:
        return np.ascontiguousarray(entries)
    whole = np.zeros((chunk, *entries.shape[1:]), entries.dtype)
    whole[: len(entries)] = entries
    return whole


def compress(chunk: Array, codec: str) -> Any:
    """Encode a chunk.

    Args:
        chunk: its entries, contiguous.
        codec: "none", "lz4" in a frame of blosc, or "zstd".

    Returns:
        A buffer: the same bytes for the same entries, on any machine.
    """
    if codec == "lz4":
        from numcodecs import blosc

        # With threads, the order of blocks in the frame is random.
        blosc.use_threads = False
        return blosc.compress(
            chunk.reshape(-1), b"lz4", clevel=5, shuffle=int(chunk.dtype.itemsize > 1), blocksize=0
        )
    raw = chunk.reshape(-1).view(np.uint8)
    if codec == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(raw.data)
    return raw


def decompress(data: Any, codec: str, size: int, place: str, out: Array | None = None) -> Array:
    """Decode a chunk, once its lengths are known to be right.

    Args:
        data: the stored bytes, a buffer.
        codec: as for `compress`.
        size: bytes of the decoded chunk.
        place: its name in errors.
        out: (size,) uint8 to decompress into; uncompressed bytes are not copied.

    Returns:
        (size,) uint8.

    Raises:
        DatasetError: the bytes are not a valid chunk.
    """
    if codec == "none":
        if len(data) != size:
            raise DatasetError(f"{place}: {len(data)} bytes, a chunk has {size}: damaged")
        return np.frombuffer(data, np.uint8)
    return (_from_blosc if codec == "lz4" else _from_zstd)(data, size, place, out)


def _from_blosc(data: Any, size: int, place: str, out: Array | None) -> Array:
    # blosc trusts the lengths in its header and would read or write beyond the buffers.
    if len(data) < _BLOSC_HEADER.size:
        raise DatasetError(f"{place}: {len(data)} bytes, too short for a blosc frame: damaged")
    *_, nbytes, _, cbytes = _BLOSC_HEADER.unpack_from(data)
    if cbytes != len(data):
        raise DatasetError(f"{place}: {len(data)} bytes, its header has {cbytes}: truncated or damaged")
    if nbytes != size:
        raise DatasetError(f"{place}: contains {nbytes} bytes, a chunk has {size}: damaged")
    from numcodecs import blosc

    raw = np.empty(size, np.uint8) if out is None else out
    try:
        blosc.decompress(data, raw)
    except (RuntimeError, ValueError) as error:
        raise DatasetError(f"{place}: damaged ({error})") from error
    return raw


def _from_zstd(data: Any, size: int, place: str, out: Array | None) -> Array:
    import zstandard

    try:
        claimed = zstandard.frame_content_size(data)
        raw = zstandard.ZstdDecompressor().decompress(data) if claimed == size else b""
    except zstandard.ZstdError as error:
        raise DatasetError(f"{place}: damaged ({error})") from error
    if len(raw) != size:
        raise DatasetError(f"{place}: a frame of {claimed} bytes, a chunk has {size}: damaged")
    found = np.frombuffer(raw, np.uint8)
    if out is None:
        return found
    out[:] = found
    return out


# --- the grid -------------------------------------------------------------------------------------------


class ChunkPieces(NamedTuple):
    """Parts of chunks, by ascending chunk. All (p,) int64.

    Attributes:
        chunk: its number in the array.
        source: the first entry, counted within the chunk.
        target: its position in the result.
        length: entries.
    """

    chunk: Ints
    source: Ints
    target: Ints
    length: Ints


def cut(starts: Ints, stops: Ints, chunk: int) -> ChunkPieces:
    """Cuts ranges of entries at the edges of chunks.

    Args:
        starts, stops: (n,) the ranges, whose entries are contiguous in the result.
        chunk: entries of a chunk.
    """
    lengths = stops - starts
    first = starts // chunk
    parts = np.where(lengths > 0, (stops - 1) // chunk + 1 - first, 0)
    ends, bases = np.cumsum(parts), np.cumsum(lengths) - lengths
    owner = np.repeat(np.arange(len(starts)), parts)
    number = np.arange(len(owner)) - (ends - parts)[owner] + first[owner]
    low = np.maximum(starts[owner], number * chunk)
    high = np.minimum(stops[owner], (number + 1) * chunk)
    pieces = ChunkPieces(number, low - number * chunk, bases[owner] + low - starts[owner], high - low)
    if (number[1:] >= number[:-1]).all():
        return pieces
    order = np.argsort(number, kind="stable")
    return ChunkPieces(*(part[order] for part in pieces))


# --- files ----------------------------------------------------------------------------------------------


def read_file(store: Store, name: str, missing: str) -> bytes:
    """Read a whole file of a dataset.

    Raises:
        DatasetError: it is missing (with `missing`, the consequence), or differs from the dataset's record of
            it. StorageError: it can't be read.
    """
    place = store.uri_of(name)
    try:
        if store.uri.startswith(ZIP) and (store.size(name) or 0) > 2 * MAX_CHUNK_BYTES:
            raise DatasetError(f"{place}: unpacks to more bytes than any chunk has")
        data = store.read(name)
    except MISSING:
        raise DatasetError(f"{place}: missing; {missing}") from None
    except OSError as error:
        raise StorageError(f"{place}: {error}") from error
    check_bytes(place, data, store.options)
    return data
