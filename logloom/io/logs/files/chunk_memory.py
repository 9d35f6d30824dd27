"""Memory for decompressed chunks, recycled once no array refers to it.

Here: `room` allocates it.
Elsewhere: decompressing (compression). The system provides fresh memory page by page, zeroed, which takes
longer than decompressing. So chunks are placed in blocks of huge pages (if the system has them), and blocks
without references are used again.
"""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

from logloom.io.storage.locks import Lock

Bytes = NDArray[np.uint8]

HUGE_PAGE = 2 << 20
BLOCK_BYTES = 32 << 20
MAX_SPARE = 2  # blocks kept for later
SHARES_BLOCK = range(256 << 10, BLOCK_BYTES // 4)  # sizes that share a block with others
LINE = 64  # threads that fill neighbouring rooms must not wait for each other's cache lines


class _Blocks:
    """The block being filled, and free blocks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: Bytes = np.empty(0, np.uint8)
        self._spare: list[Bytes] = []

    def take(self, size: int) -> Bytes:
        with self._lock:
            if len(self._left) < size:
                self._left = self._block(size)
            taken = self._left[:size]
            self._left = self._left[size + -size % LINE :]
            return taken

    def _block(self, size: int) -> Bytes:
        fitting = [i for i, memory in enumerate(self._spare) if len(memory) >= size]
        memory = self._spare.pop(fitting[-1]) if fitting else _aligned(block_bytes(size))
        # Through a buffer, so that views of it hold on to this array and not to the memory.
        block = np.frombuffer(memory.data, np.uint8)
        weakref.finalize(block, self._take_back, memory).atexit = False
        return block

    def _take_back(self, memory: Bytes) -> None:
        # Runs when an array is freed, perhaps while this thread holds the lock: so without it.
        if len(self._spare) < MAX_SPARE:
            self._spare.append(memory)


def block_bytes(size: int) -> int:
    """Whole huge pages, up to `BLOCK_BYTES`, that rooms of `size` bytes fill with little waste."""
    most = BLOCK_BYTES // size
    pages = [-(-rooms * size // HUGE_PAGE) for rooms in range(most, most // 2, -1)]
    return HUGE_PAGE * min(pages, key=lambda count: count * HUGE_PAGE % size / count)


def _aligned(size: int) -> Bytes:
    """Allocate memory aligned to huge pages, which numpy requests from the system."""
    memory = np.empty(size + HUGE_PAGE, np.uint8)
    start = -memory.ctypes.data % HUGE_PAGE
    return memory[start : start + size]


_blocks = _Blocks()


def room(size: int) -> Bytes:
    """Allocate `size` bytes with arbitrary content."""
    return _blocks.take(size) if size in SHARES_BLOCK else np.empty(size, np.uint8)
