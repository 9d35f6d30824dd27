"""Recording of synthetic drives: sensor times, injected faults, MCAP files.

Elsewhere: what topics hold (`TOPICS` of logloom.demo, car), the messages (messages), the world (motion).
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from logloom.demo import messages
from logloom.demo.motion import World
from logloom.extras import needed
from logloom.values import dataclass

FIRST_DRIVE = 1_767_171_600 * 10**9  # ns since the epoch: a New Year's Eve morning; drives are an hour apart
HOUR = 3600 * 10**9
LATEST = 0.040  # seconds from stamp to recorder, at most
JITTER = 0.05  # of a period
LOST, REPEATED = 0.01, 0.01  # shares of messages


@dataclass(frozen=True)
class DemoTopic:
    """What a topic holds, and when.

    Attributes:
        rate: messages a second; 0 for one message when the drive begins.
        drop_out: a stretch without messages: where it begins, as a share of the drive, and its seconds.
        message: makes the message from the world, the stamp (int64 ns), the time (seconds into the drive) and
            the topic's own noise.
        is_chained: messages build on those before, as packets of video do: lost ones are made, too, and none
            comes twice.
    """

    name: str
    type: str
    rate: float
    drop_out: tuple[float, float]
    message: Callable[[World, int, float, np.random.Generator], bytes]
    is_chained: bool = False


@dataclass(frozen=True)
class _RecordedMessage:
    """A recorded message; `arrival` determines its place in the file."""

    arrival: int
    topic: DemoTopic
    stamp: int
    log_time: int
    data: bytes


@dataclass(frozen=True)
class Drive:
    """One of several drives: `start` in ns since the epoch."""

    number: int
    start: int
    seconds: float
    seed: int
    world: World

    @property
    def log_id(self) -> str:
        return f"drive-{self.number:02d}"


def drives(seconds: float, logs: int, seed: int, num_houses: int = 0) -> list[Drive]:
    """As many drives as `logs`; equal arguments give equal ones."""
    return [
        Drive(
            number,
            FIRST_DRIVE + number * HOUR,
            seconds,
            seed,
            World(int(np.random.SeedSequence([seed, number]).generate_state(1)[0]), num_houses=num_houses),
        )
        for number in range(logs)
    ]


def record(folder: str | os.PathLike[str], drive: Drive, topics: Sequence[DemoTopic]) -> pathlib.Path:
    """Write the log of a drive into a folder, which is created if missing; return the log's path."""
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{drive.log_id}.mcap"
    _write(path, topics, sorted(_recorded(drive, topics), key=lambda message: message.arrival))
    return path


def _recorded(drive: Drive, topics: Sequence[DemoTopic]) -> list[_RecordedMessage]:
    """All messages of a drive, each copy of a repeated one by itself."""
    recorded = []
    for position, topic in enumerate(topics):
        rng = np.random.default_rng([drive.seed, drive.number, position])
        times, arrives = _times(topic, drive.seconds, rng)
        for offset, is_there in zip(times.tolist(), arrives.tolist(), strict=True):
            if not is_there and not topic.is_chained:
                continue
            stamp = drive.start + offset
            data = topic.message(drive.world, stamp, offset / 1e9, rng)
            if not is_there:
                continue
            may_repeat = topic.rate and not topic.is_chained
            for _ in range(2 if may_repeat and rng.random() < REPEATED else 1):
                log_time = stamp + int(rng.uniform(0, LATEST) * 1e9)
                # The recorder's queues swap neighbours now and then: file order is not quite log time order.
                arrival = log_time + int(rng.uniform(0, 0.003) * 1e9)
                recorded.append(_RecordedMessage(arrival, topic, stamp, log_time, data))
    return recorded


def _times(
    topic: DemoTopic, seconds: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(N,) when a topic's sensor looks, ascending, in ns since the drive began; and (N,) what arrives."""
    if not topic.rate:
        return np.zeros(1, np.int64), np.ones(1, np.bool_)
    count = int(seconds * topic.rate)
    beats = np.arange(count) + rng.uniform(0, 1 - JITTER) + rng.uniform(0, JITTER, count)
    times = beats / topic.rate
    begin, length = topic.drop_out[0] * seconds, topic.drop_out[1]
    arrives = (rng.random(count) >= LOST) & ~((times >= begin) & (times < begin + length))
    return (times * 1e9).astype(np.int64), arrives


def _write(path: pathlib.Path, topics: Sequence[DemoTopic], recorded: Sequence[_RecordedMessage]) -> None:
    with needed("mcap", "build"):
        from mcap.writer import CompressionType, Writer

    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        writer = Writer(file, compression=CompressionType.ZSTD)
        writer.start(profile="ros2", library="logloom demo")
        channels: dict[str, int] = {}
        for topic in topics:
            if topic.name not in channels:
                schema = writer.register_schema(topic.type, "ros2msg", messages.definition(topic.type))
                channels[topic.name] = writer.register_channel(topic.name, "cdr", schema)
        for sequence, message in enumerate(recorded):
            writer.add_message(
                channels[message.topic.name],
                log_time=message.log_time,
                data=message.data,
                publish_time=message.stamp,
                sequence=sequence,
            )
        writer.finish()
    partial.replace(path)
