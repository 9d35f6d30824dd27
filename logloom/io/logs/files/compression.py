"""Decompression with known sizes, so that nothing larger than promised is ever allocated; and checksums.

Here: `decompress`, `decompress_prefix` and `crc32`, which release the interpreter's lock; `allowance`, what
packed bytes may hold, since a few can claim any size, and with zeros have it.
Elsewhere: where compressed bytes lie (logloom.io.logs.mcap, logloom.io.logs.rosbag1), the memory they are
decompressed into (chunk_memory).
"""

from __future__ import annotations

import bz2
import io
from collections.abc import Callable

import lz4.frame
import zstandard
from isal.isal_zlib import crc32 as crc32  # ten times as fast as that of zlib

from logloom.io.logs.files.chunk_memory import SHARES_BLOCK, room

Bytes = bytes | memoryview
LZ4_RATIO = 255  # no LZ4 block expands further
FREE_BYTES = 64 << 20  # that any packed bytes may hold: an empty image, an empty map
MAX_RATIO = 256  # above that; LZ4 reaches 255
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_REPEATED = 1  # the kind of a block that is one byte, many times


def allowance(packed: int) -> int:
    """How many bytes `packed` ones may hold."""
    return max(FREE_BYTES, MAX_RATIO * packed)


def decompress(name: str, data: Bytes, size: int) -> Bytes:
    """The uncompressed bytes, exactly `size` of them.

    Args:
        name: "" or "none", "lz4", "zstd" or "bz2".

    Raises:
        ValueError: unknown compression, damage, another size than promised, or more than is allowed.
    """
    if name not in DECOMPRESSORS:
        known = ", ".join(repr(known) for known in DECOMPRESSORS)
        raise ValueError(f"compression {name!r} is not one of {known}")
    if size > allowance(len(data)):
        raise ValueError(
            f"{len(data)} bytes claim to hold {size}, more than {MAX_RATIO} times as many; "
            "write it anew without compression if that is meant"
        )
    try:
        plain = DECOMPRESSORS[name](data, size)
    except (zstandard.ZstdError, RuntimeError, OSError, EOFError, MemoryError, ValueError) as error:
        raise ValueError(f"its {name} data can't be decompressed ({error})") from error
    if len(plain) != size:
        raise ValueError(f"it holds {len(plain)} bytes where {size} are promised")
    return plain


def decompress_prefix(name: str, data: Bytes, size: int) -> Bytes:
    """As many leading bytes as can be had from data that were cut off; at most `size`.

    Raises:
        ValueError: unknown compression, or damage before the cut.
    """
    size = min(size, allowance(len(data)))
    try:
        if name in ("", "none"):
            return data[:size]
        if name == "zstd":
            return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read(size)
        if name == "lz4":
            return bytes(lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=size))
        if name == "bz2":
            return bz2.BZ2Decompressor().decompress(data, max_length=size)
    except (zstandard.ZstdError, RuntimeError, OSError, EOFError, MemoryError) as error:
        raise ValueError(f"its {name} data can't be decompressed ({error})") from error
    return decompress(name, data, size)  # says which names are known


def _plain(data: Bytes, size: int) -> Bytes:
    return data


def _zstd(data: Bytes, size: int) -> Bytes:
    # The frame's own claim decides what zstandard allocates, so it is compared first.
    claimed = zstandard.frame_content_size(data)
    if claimed not in (-1, size):
        raise ValueError(f"the frame claims {claimed} bytes, {size} are promised")
    length = _frame_length(data) if claimed == size >= SHARES_BLOCK.start else 0
    if length:
        reader, plain = zstandard.ZstdDecompressor().stream_reader(data[:length]), room(size)
        if reader.readinto(plain) == size and not reader.read(1):
            return plain.data.toreadonly()
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=size) if size else b""


def _frame_length(data: Bytes) -> int:
    """How long a Zstandard frame is, by its blocks; 0 without its end, of which streams say nothing."""
    if bytes(data[:4]) != ZSTD_MAGIC:
        return 0
    at, is_last = zstandard.frame_header_size(data), False
    while not is_last:
        head = int.from_bytes(data[at : at + 3], "little")
        if at + 3 > len(data):
            return 0
        is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == ZSTD_REPEATED else size)
    at += 4 * zstandard.get_frame_parameters(data).has_checksum
    return at if at <= len(data) else 0


def _lz4(data: Bytes, size: int) -> Bytes:
    if size == 0:
        return b""
    if size > LZ4_RATIO * len(data):
        raise ValueError(f"{len(data)} bytes can't hold {size}")
    import pyarrow  # unlike lz4.frame, it decompresses into memory that is there already

    plain = room(size)
    with pyarrow.CompressedInputStream(pyarrow.py_buffer(data), "lz4") as stream:
        if stream.readinto(plain) < size:
            raise ValueError("the frame ends early")
        if stream.read(1):
            raise ValueError("it is longer than promised")
    return plain.data.toreadonly()


def _bz2(data: Bytes, size: int) -> Bytes:
    decompressor = bz2.BZ2Decompressor()
    plain = decompressor.decompress(data, max_length=size + 1)
    if not decompressor.eof and len(plain) <= size:
        raise ValueError("the stream ends early")
    return plain


DECOMPRESSORS: dict[str, Callable[[Bytes, int], Bytes]] = {
    "": _plain,
    "none": _plain,
    "lz4": _lz4,
    "zstd": _zstd,
    "bz2": _bz2,
}
