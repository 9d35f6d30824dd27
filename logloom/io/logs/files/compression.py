"""Decompression that never allocates more than a declared size; checksums.

Here: `decompress`, `decompress_prefix` and `crc32`, which release the interpreter's lock; `allowance`, the
limit of what compressed bytes may expand to; `room`, memory for chunks.
Elsewhere: places of compressed bytes (the kinds of logs).

The system provides fresh memory page by page, zeroed, which takes longer than decompressing. So chunks are
placed in blocks of huge pages (if the system has them), and blocks without references are used again.
"""

from __future__ import annotations

import bz2
import io
import weakref
from collections.abc import Callable

import lz4.frame
import numpy as np
import zstandard
from isal.isal_zlib import crc32 as crc32  # ten times as fast as that of zlib
from numpy.typing import NDArray

from logloom.io.storage.locks import Lock

Bytes = bytes | memoryview
LZ4_RATIO = 255  # no LZ4 block expands further
FREE_BYTES = 64 << 20  # that any compressed bytes may expand to: an empty image, an empty map
MAX_RATIO = 256  # above that; LZ4 reaches 255
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_REPEATED = 1  # the type of a block that repeats one byte
HUGE_PAGE = 2 << 20
BLOCK_BYTES = 32 << 20
MAX_SPARE = 2  # blocks kept for later
SHARES_BLOCK = range(256 << 10, BLOCK_BYTES // 4)  # sizes that share a block with others
LINE = 64  # threads that fill neighbouring rooms must not wait for each other's cache lines

Memory = NDArray[np.uint8]


def allowance(packed: int) -> int:
    """Return how many bytes `packed` ones may expand to."""
    return max(FREE_BYTES, MAX_RATIO * packed)


def decompress(name: str, data: Bytes, size: int) -> Bytes:
    """Decompress to exactly `size` bytes.

    Args:
        name: "" or "none", "lz4", "zstd" or "bz2".

    Raises:
        ValueError: unknown compression, damage, another size than declared, or one beyond the limit.
    """
    if name not in DECOMPRESSORS:
        known = ", ".join(repr(known) for known in DECOMPRESSORS)
        raise ValueError(f"compression {name!r} is not one of {known}")
    if size > allowance(len(data)):
        raise ValueError(
            f"{len(data)} bytes declare an uncompressed size of {size}, more than {MAX_RATIO} times as many; "
            "if that is intended, rewrite the file without compression"
        )
    try:
        plain = DECOMPRESSORS[name](data, size)
    except (zstandard.ZstdError, RuntimeError, OSError, EOFError, MemoryError, ValueError) as error:
        raise ValueError(f"its {name} data can't be decompressed ({error})") from error
    if len(plain) != size:
        raise ValueError(f"its uncompressed data has {len(plain)} bytes, {size} are declared")
    return plain


def decompress_prefix(name: str, data: Bytes, size: int) -> Bytes:
    """Decompress as many leading bytes as possible of truncated data, at most `size`.

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
    # zstandard allocates what the frame declares, so check that first.
    claimed = zstandard.frame_content_size(data)
    if claimed not in (-1, size):
        raise ValueError(f"the frame declares {claimed} bytes, {size} are expected")
    length = _frame_length(data) if claimed == size >= SHARES_BLOCK.start else 0
    if length:
        reader, plain = zstandard.ZstdDecompressor().stream_reader(data[:length]), room(size)
        if reader.readinto(plain) == size and not reader.read(1):
            return plain.data.toreadonly()
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=size) if size else b""


def _frame_length(data: Bytes) -> int:
    """Return the length of a Zstandard frame by its blocks; 0 if it is truncated."""
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
        raise ValueError(f"{len(data)} bytes can't expand to {size}")
    import pyarrow  # unlike lz4.frame, it decompresses into existing memory

    plain = room(size)
    with pyarrow.CompressedInputStream(pyarrow.py_buffer(data), "lz4") as stream:
        if stream.readinto(plain) < size:
            raise ValueError("the frame ends early")
        if stream.read(1):
            raise ValueError("it is longer than declared")
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


# --- memory of chunks -----------------------------------------------------------------------------------


class _Blocks:
    """The block being filled, and free blocks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: Memory = np.empty(0, np.uint8)
        self._spare: list[Memory] = []

    def take(self, size: int) -> Memory:
        with self._lock:
            if len(self._left) < size:
                self._left = self._block(size)
            taken = self._left[:size]
            self._left = self._left[size + -size % LINE :]
            return taken

    def _block(self, size: int) -> Memory:
        fitting = [i for i, memory in enumerate(self._spare) if len(memory) >= size]
        memory = self._spare.pop(fitting[-1]) if fitting else _aligned(block_bytes(size))
        # Through a buffer, so that views of it hold on to this array and not to the memory.
        block = np.frombuffer(memory.data, np.uint8)
        weakref.finalize(block, self._take_back, memory).atexit = False
        return block

    def _take_back(self, memory: Memory) -> None:
        # Runs when an array is freed, perhaps while this thread holds the lock: so without it.
        if len(self._spare) < MAX_SPARE:
            self._spare.append(memory)


def block_bytes(size: int) -> int:
    """Whole huge pages, up to `BLOCK_BYTES`, that rooms of `size` bytes fill with little waste."""
    most = BLOCK_BYTES // size
    pages = [-(-rooms * size // HUGE_PAGE) for rooms in range(most, most // 2, -1)]
    return HUGE_PAGE * min(pages, key=lambda count: count * HUGE_PAGE % size / count)


def _aligned(size: int) -> Memory:
    """Allocate memory aligned to huge pages, which numpy requests from the system."""
    memory = np.empty(size + HUGE_PAGE, np.uint8)
    start = -memory.ctypes.data % HUGE_PAGE
    return memory[start : start + size]


_blocks = _Blocks()


def room(size: int) -> Memory:
    """Allocate `size` bytes with arbitrary content."""
    return _blocks.take(size) if size in SHARES_BLOCK else np.empty(size, np.uint8)
