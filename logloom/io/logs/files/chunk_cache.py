"""Cache of the latest uncompressed chunks, so that overlapping reads decompress them once."""

from __future__ import annotations

from logloom.io.logs.files.container import Chunk
from logloom.io.storage.lru_cache import LruCache

_OBJECTS = 3 << 10  # memory of a chunk apart from its messages, of which there may be few


def _size(chunk: Chunk) -> int:
    return chunk.nbytes + _OBJECTS


CHUNKS: LruCache[Chunk] = LruCache(64 << 20, _size)
