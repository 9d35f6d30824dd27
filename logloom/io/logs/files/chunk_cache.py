"""The uncompressed chunks that this process read last, so that overlapping reads decompress them once."""

from __future__ import annotations

from logloom.io.logs.files.container import Chunk
from logloom.io.storage.lru_cache import LruCache

_OBJECTS = 3 << 10  # bytes that a chunk takes beside its messages, which may be few: a log has one at least


def _size(chunk: Chunk) -> int:
    return chunk.nbytes + _OBJECTS


CHUNKS: LruCache[Chunk] = LruCache(64 << 20, _size)
