"""Small logs for tests: written by the `mcap` and `rosbags` packages, never by logloom.

Their messages are a header stamp and some bytes: as "toy" messages (the stamp an int64), which `ToyDecoder`
reads, or as ROS 1 messages of the definition `ROS1`.
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

from logloom.blocks import Ragged
from logloom.io.logs.interface import (
    MAX_TIME,
    MIN_TIME,
    FieldSpec,
    Log,
    Messages,
    TimeSource,
    TopicInfo,
    TopicRequest,
)
from logloom.io.logs.messages.raw_messages import RawMessages
from logloom.parts import Part
from logloom.schema import ColumnType
from logloom.testing import Recorded, Recording
from tests.absent import needs

SECOND = 1_000_000_000
MS = 1_000_000
START = 1_700_000_000 * SECOND
TOY = ("toy/Message", "toydef", b"int64 stamp, then bytes")
ROS1 = (
    "test_msgs/msg/Stamped",
    "Header header\nuint8[] data\n"
    + 80 * "="
    + "\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring frame_id\n",
)
BYTES = FieldSpec(("data",))


@dataclasses.dataclass(frozen=True)
class Message:
    topic: str
    log_time: int
    publish_time: int
    stamp: int
    data: bytes


def toy_payload(stamp: int, body: bytes) -> bytes:
    return struct.pack("<q", stamp) + body


def ros1_payload(stamp: int, body: bytes) -> bytes:
    return struct.pack("<IIIII", 7, stamp // SECOND, stamp % SECOND, 0, len(body)) + body


def make_messages(
    count: int = 200,
    topics: Sequence[str] = ("/a", "/b", "/c"),
    seed: int = 0,
    max_body: int = 200,
    late: int = 20 * MS,
    payload=toy_payload,
) -> list[Message]:
    """Messages 10 ms apart, logged up to `late` ns after their stamps; those of /a have one length."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        log_time = START + i * 10 * MS
        stamp = log_time - rng.randrange(late + 1)
        topic = rng.choice(topics)
        body = rng.randbytes(32 if topic == "/a" else rng.randrange(max_body))
        made.append(Message(topic, log_time, log_time - 1000, stamp, payload(stamp, body)))
    return made


def write_mcap(
    path: pathlib.Path,
    messages: Iterable[Message],
    *,
    compression: str = "zstd",
    chunk_size: int = 2000,
    encoding: str = "toy",
    schema: tuple[str, str, bytes] = TOY,
    **options,
) -> pathlib.Path:
    """Writes an MCAP file; `options` go to `mcap.writer.Writer` (index_types: a list of names)."""
    if "index_types" in options:
        names = options["index_types"]
        options["index_types"] = functools.reduce(operator.or_, (IndexType[n] for n in names), IndexType.NONE)
    with path.open("wb") as file:
        writer = Writer(file, chunk_size, CompressionType[compression.upper()], **options)
        writer.start("", "logloom tests")
        channels: dict[str, int] = {}
        schema_id = writer.register_schema(*schema)
        for i, message in enumerate(messages):
            if message.topic not in channels:
                channels[message.topic] = writer.register_channel(message.topic, encoding, schema_id)
            channel = channels[message.topic]
            writer.add_message(channel, message.log_time, message.data, message.publish_time, sequence=i)
        writer.finish()
    return path


def write_bag(
    path: pathlib.Path, messages: Iterable[Message], *, compression: str = "none", chunk_size: int = 2000
) -> pathlib.Path:
    """Writes a ROS 1 bag; its messages are of the definition `ROS1`."""
    from rosbags.rosbag1 import Writer as BagWriter

    needs("rosbag1")
    path.unlink(missing_ok=True)
    writer = BagWriter(path)
    if compression != "none":
        writer.set_compression(BagWriter.CompressionFormat[compression.upper()])
    writer.chunk_threshold = chunk_size
    with writer:
        connections: dict = {}
        for message in messages:
            if message.topic not in connections:
                connections[message.topic] = writer.add_connection(
                    message.topic, ROS1[0], msgdef=ROS1[1], md5sum="0" * 32
                )
            writer.write(connections[message.topic], message.log_time, message.data)
    return path


MESSAGES = make_messages(60, payload=ros1_payload)  # for the contract of kinds of logs


def recorded(path: pathlib.Path) -> Recording:
    """What a file of `MESSAGES`, of the definition `ROS1`, holds."""
    topics = {}
    for topic in {message.topic for message in MESSAGES}:
        own = [message for message in MESSAGES if message.topic == topic]
        bodies = [message.data[20:] for message in own]
        topics[topic] = Recorded([message.log_time for message in own], {BYTES: bodies})
    return Recording([path], topics)


TOY_PART = Part(decoders={"toy": f"{__name__}:ToyDecoder"})


class ToyDecoder:
    """Decodes toy messages; those shorter than a stamp don't fit."""

    def __init__(self, info: TopicInfo):
        self.info = info

    def column_type(self, spec: FieldSpec) -> ColumnType:
        return ColumnType(np.dtype("u1"), (None,), "bytes")

    def time_source(self, sources: Sequence[TimeSource]) -> TimeSource | None:
        return next(iter(sources), None)

    def header_time(self, raw: RawMessages) -> np.ndarray:
        stamps = [
            int.from_bytes(payload[:8], "little", signed=True) if len(payload) >= 8 else MIN_TIME
            for payload in payloads_of(raw)
        ]
        return np.array(stamps, np.int64)

    def check(self, raw: RawMessages) -> np.ndarray:
        return raw.length >= 8

    def take(self, raw: RawMessages, spec: FieldSpec) -> Ragged:
        return Ragged.from_bytes([payload[8:] for payload in payloads_of(raw)])

    def has_value(self, raw: RawMessages, spec: FieldSpec) -> None:
        return None


def payloads_of(raw: RawMessages) -> list[bytes]:
    """The payload of each message."""
    places = zip(raw.buffer.tolist(), raw.start.tolist(), raw.length.tolist(), strict=True)
    return [raw.buffers[b][start : start + length].tobytes() for b, start, length in places]


def as_rosbags_reads(reader) -> dict[str, list[tuple[int, int, bytes]]]:
    """The messages of each topic as a reader of rosbags, given closed, finds them; as `contents` has them."""
    found: dict[str, list[tuple[int, int, bytes]]] = {}
    with reader:
        for connection, time, data in reader.messages():
            found.setdefault(connection.topic, []).append((time, time, bytes(data)))
    return found


def everything(*time: TimeSource, max_delay: int | None = SECOND) -> TopicRequest:
    return TopicRequest(MIN_TIME, MAX_TIME, time or ("log",), max_delay)


def read_all(log: Log, *time: TimeSource) -> dict[str, Messages]:
    """Every usable message of every topic, by log time unless another source is named."""
    return log.read({topic: everything(*time) for topic in log.summary.topics})


def contents(found: dict[str, Messages]) -> dict[str, list[tuple[int, int, bytes]]]:
    """By topic, (log time, publish time, payload) of each message that was read."""
    return {
        topic: list(zip(m.log_time.tolist(), m.raw.publish_time.tolist(), payloads_of(m.raw), strict=True))
        for topic, m in found.items()
    }


def expected(messages: Iterable[Message], publish: bool = True) -> dict[str, list[tuple[int, int, bytes]]]:
    """What `contents` gives for whole logs; without publish times where the format has none."""
    by_topic: dict[str, list[tuple[int, int, bytes]]] = {}
    for m in messages:
        row = (m.log_time, m.publish_time if publish else m.log_time, m.data)
        by_topic.setdefault(m.topic, []).append(row)
    return by_topic
