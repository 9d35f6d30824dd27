"""ROS 2 messages that were compressed one by one (rosbag2's compression mode "message").

Here: `inflated`, which unpacks those of a chunk.
Elsewhere: chunks (container), where they come from (logloom.io.logs.mcap, logloom.io.logs.rosbag2).
Nothing but a bag's metadata.yaml names that mode, so the messages themselves are asked: a CDR message starts
with a zero byte, a zstd frame with its magic.
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
    """What a zstd frame holds.

    Raises:
        ValueError: it is damaged, or holds more than `max_bytes`.
    """
    try:
        size = zstandard.frame_content_size(payload)
        if size < 0:
            plain = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(payload)).read(max_bytes + 1)
            size = len(plain)
    except zstandard.ZstdError as error:
        raise ValueError(f"its zstd data can't be decompressed ({error})") from error
    if size > max_bytes:
        raise ValueError(f"it holds {size} bytes, more than max_chunk_bytes or what is packed allows")
    return bytes(decompress("zstd", payload, size))


def inflated(chunk: Chunk, max_bytes: int) -> Chunk:
    """The chunk with its compressed messages unpacked; those that can't be are left out and say why."""
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
    """Payloads in one buffer, where each starts in it, and their lengths."""
    length = np.array([len(payload) for payload in payloads], np.int64)
    return np.frombuffer(b"".join(payloads), np.uint8), np.cumsum(length) - length, length


def _payload(chunk: Chunk, row: int) -> bytes:
    start = int(chunk.start[row])
    return chunk.buffer[start : start + int(chunk.length[row])].tobytes()
