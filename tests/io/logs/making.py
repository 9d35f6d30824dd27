"""Small logs for tests: written by the `mcap` and `rosbags` packages, never by logloom.

Their messages are plain bytes, of which the first 8 are the header stamp; `ToyDecoder` reads them.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import pathlib
import random
import struct
from collections.abc import Iterable, Sequence

import numpy as np
from mcap.writer import CompressionType, IndexType, Writer

from logloom.io.logs.base import MIN_TIME, FieldSpec, TimeSource, TopicInfo
from logloom.io.logs.raw import RawMessages
from logloom.schema import ColumnType

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


@dataclasses.dataclass(frozen=True)
class Message:
    topic: str
    log_time: int
    publish_time: int
    data: bytes


def toy_messages(
    count: int = 200,
    topics: Sequence[str] = ("/a", "/b", "/c"),
    seed: int = 0,
    max_payload: int = 200,
    jitter: int = 20_000_000,
) -> list[Message]:
    """Messages 10 ms apart whose payload starts with a header stamp up to `jitter` ns before the log time."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        log_time = START + i * 10_000_000
        stamp = log_time - rng.randrange(jitter)
        topic = rng.choice(topics)
        size = 40 if topic == "/a" else rng.randrange(8, max_payload)
        data = struct.pack("<q", stamp) + rng.randbytes(size - 8)
        made.append(Message(topic, log_time, log_time - 1000, data))
    return made


def write_mcap(
    path: pathlib.Path,
    messages: Iterable[Message],
    *,
    compression: str = "zstd",
    chunk_size: int = 2000,
    encoding: str = "toy",
    definitions: dict[str, tuple[str, str, bytes]] | None = None,
    **options: object,
) -> pathlib.Path:
    """Writes an MCAP file.

    Args:
        definitions: by topic: type, definition encoding, definition.
        options: of `mcap.writer.Writer`; `index_types` may be a list of names.
    """
    if isinstance(options.get("index_types"), list):
        options["index_types"] = functools.reduce(
            operator.or_, (IndexType[n] for n in options["index_types"]), IndexType.NONE
        )
    with path.open("wb") as file:
        writer = Writer(file, chunk_size, CompressionType[compression.upper()], **options)
        writer.start("", "logloom tests")
        channels: dict[str, int] = {}
        for i, message in enumerate(messages):
            if message.topic not in channels:
                kind = (definitions or {}).get(message.topic, ("toy/Message", "toydef", b"stamp then bytes"))
                schema = writer.register_schema(*kind)
                channels[message.topic] = writer.register_channel(message.topic, encoding, schema)
            channel = channels[message.topic]
            writer.add_message(channel, message.log_time, message.data, message.publish_time, sequence=i)
        writer.finish()
    return path


def write_bag(
    path: pathlib.Path,
    messages: Iterable[Message],
    *,
    compression: str = "none",
    chunk_size: int = 2000,
    definitions: dict[str, tuple[str, str]] | None = None,
) -> pathlib.Path:
    """Writes a ROS 1 bag.

    Args:
        definitions: by topic: type, definition.
    """
    from rosbags.rosbag1 import Writer as BagWriter

    path.unlink(missing_ok=True)
    writer = BagWriter(path)
    if compression != "none":
        writer.set_compression(BagWriter.CompressionFormat[compression.upper()])
    writer.chunk_threshold = chunk_size
    with writer:
        connections: dict[str, object] = {}
        for message in messages:
            if message.topic not in connections:
                name, definition = (definitions or {}).get(message.topic, ("toy/msg/Message", "uint8[] data"))
                connections[message.topic] = writer.add_connection(
                    message.topic, name, msgdef=definition, md5sum="0" * 32
                )
            writer.write(connections[message.topic], message.log_time, message.data)
    return path


class ToyDecoder:
    """Decodes toy messages: the header stamp is their first 8 bytes; shorter ones don't fit."""

    def __init__(self, info: TopicInfo):
        self.info = info

    def column_type(self, spec: FieldSpec) -> ColumnType:
        return ColumnType(np.dtype("u1"), (None,), "bytes")

    def time_source(self, sources: Sequence[TimeSource]) -> TimeSource | None:
        return next(iter(sources), None)

    def header_time(self, raw: RawMessages) -> np.ndarray:
        payloads = payloads_of(raw)
        return np.array(
            [int.from_bytes(p[:8], "little", signed=True) if len(p) >= 8 else MIN_TIME for p in payloads],
            np.int64,
        )

    def check(self, raw: RawMessages) -> np.ndarray:
        return raw.length >= 8

    def take(self, raw: RawMessages, spec: FieldSpec):
        from logloom.blocks import Ragged

        return Ragged.from_bytes(payloads_of(raw))


def payloads_of(raw: RawMessages) -> list[bytes]:
    """The payload of each message."""
    return [
        raw.buffers[b][s : s + n].tobytes()
        for b, s, n in zip(raw.buffer.tolist(), raw.start.tolist(), raw.length.tolist(), strict=True)
    ]
