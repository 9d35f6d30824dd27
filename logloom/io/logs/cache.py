"""The uncompressed chunks that this process read last, so that overlapping reads decompress them once.

Here: `ChunkCache` and the one cache of the process. It is never pickled, and empty after a fork.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable

from logloom.io.logs.container import Chunk

MAX_BYTES = 64 << 20


class ChunkCache:
    """Least recently used chunks are dropped when all together hold more than `max_bytes`."""

    def __init__(self, max_bytes: int):
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._chunks: OrderedDict[Hashable, Chunk] = OrderedDict()
        self._nbytes = 0

    def get(self, key: Hashable) -> Chunk | None:
        with self._lock:
            if key in self._chunks:
                self._chunks.move_to_end(key)
            return self._chunks.get(key)

    def put(self, key: Hashable, chunk: Chunk) -> None:
        with self._lock:
            if key in self._chunks or chunk.nbytes > self._max_bytes:
                return
            self._chunks[key] = chunk
            self._nbytes += chunk.nbytes
            while self._nbytes > self._max_bytes:
                _, dropped = self._chunks.popitem(last=False)
                self._nbytes -= dropped.nbytes

    def clear(self) -> None:
        # A new lock: after a fork, the old one may be held by a thread that no longer exists.
        self._lock = threading.Lock()
        self._chunks = OrderedDict()
        self._nbytes = 0


CHUNKS = ChunkCache(MAX_BYTES)
os.register_at_fork(after_in_child=CHUNKS.clear)
