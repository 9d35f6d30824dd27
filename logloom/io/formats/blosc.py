"""Frames of blosc, as zarr and L5Kit compress their chunks."""

from __future__ import annotations

import struct

from logloom.errors import DatasetError

# version, version of lz4, flags, typesize, nbytes, blocksize, cbytes
_BLOSC_HEADER = struct.Struct("<BBBBIII")


def check_blosc_header(data: bytes | memoryview, size: int, source: str) -> None:
    """Check that a frame is whole and holds `size` bytes.

    blosc trusts the lengths in its header and would read or write beyond the buffers.

    Raises:
        DatasetError: it is truncated or damaged.
    """
    if len(data) < _BLOSC_HEADER.size:
        raise DatasetError(f"{source}: {len(data)} bytes, too short for a blosc frame")
    *_, nbytes, _, cbytes = _BLOSC_HEADER.unpack_from(data)
    if cbytes != len(data):
        raise DatasetError(f"{source}: {len(data)} bytes, its header says {cbytes}: truncated or damaged")
    if nbytes != size:
        raise DatasetError(f"{source}: holds {nbytes} bytes, a chunk has {size}: damaged")
