"""The uncompressed chunks that this process read last, so that overlapping reads decompress them once."""

from __future__ import annotations

from logloom.io.caches import LruCache
from logloom.io.logs.container import Chunk

CHUNKS: LruCache[Chunk] = LruCache(64 << 20)
