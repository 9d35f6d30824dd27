"""Decompress ROS 2 messages compressed one by one (rosbag2's mode "message").

Here: `inflated`, for the messages of a chunk.
Elsewhere: chunks (container), their files (logloom.io.logs). Only a bag's
metadata.yaml declares that mode, so it is detected from messages: CDR starts with a zero byte, a zstd frame
with its magic.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import zstandard

from logloom.io.logs.files.compression import ZSTD_MAGIC, decompress
from logloom.io.logs.files.container import Buffer, Chunk, Int64s


def is_deflated(payload: bytes) -> bool:
    return payload.startswith(ZSTD_MAGIC)


def inflate(payload: bytes, max_bytes: int) -> bytes:
    """Decompress a zstd frame.

    Raises:
        ValueError: it is damaged, or larger than `max_bytes`.
    """
    try:
        size = zstandard.frame_content_size(payload)
        if size < 0:
            plain = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(payload)).read(max_bytes + 1)
            size = len(plain)
    except zstandard.ZstdError as error:
        raise ValueError(f"its zstd data can't be decompressed ({error})") from error
    if size > max_bytes:
        raise ValueError(f"it has {size} bytes, more than max_chunk_bytes or the compressed size allows")
    return bytes(decompress("zstd", payload, size))


def inflated(chunk: Chunk, max_bytes: int) -> Chunk:
    """Decompress the messages of a chunk; those that can't be are left out and reported as problems."""
    if not len(chunk) or not is_deflated(_payload(chunk, 0)):
        return chunk
    payloads, kept, problems, left = [], [], list(chunk.problems), max_bytes
    for row in range(len(chunk)):
        payload = _payload(chunk, row)
        try:
            payloads.append(inflate(payload, left) if is_deflated(payload) else payload)
        except ValueError as error:
            problems.append(f"message {row} of it: {error}")
            continue
        kept.append(row)
        left -= len(payloads[-1])
    rows = np.array(kept, np.intp)
    buffer, start, length = joined(payloads)
    return Chunk(
        buffer,
        chunk.channel[rows],
        chunk.log_time[rows],
        chunk.publish_time[rows],
        chunk.offset[rows],
        start,
        length,
        tuple(problems),
    )


def joined(payloads: Sequence[bytes]) -> tuple[Buffer, Int64s, Int64s]:
    """Join payloads in one buffer; return it with their starts and lengths."""
    length = np.array([len(payload) for payload in payloads], np.int64)
    return np.frombuffer(b"".join(payloads), np.uint8), np.cumsum(length) - length, length


def _payload(chunk: Chunk, row: int) -> bytes:
    start = int(chunk.start[row])
    return chunk.buffer[start : start + int(chunk.length[row])].tobytes()
