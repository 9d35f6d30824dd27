"""A synthetic drive to try logloom on: logs with all that makes real ones hard, and a recipe for them.

Here: what each topic holds and when, the faults of transport and recorder, and the MCAP files.
Elsewhere: the world (motion), what its sensors see (sensors), the messages (messages), the command that
builds datasets from it (logloom.pipelines.demo).
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logloom.demo import messages, sensors
from logloom.demo.motion import World
from logloom.demo.recipe import demo_recipe
from logloom.extras import needed

__all__ = ["demo_recipe", "make_drives"]

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
    """

    name: str
    type: str
    rate: float
    drop_out: tuple[float, float]
    message: Callable[[World, int, float, np.random.Generator], bytes]


TOPICS = (
    DemoTopic(
        "/cam/front/camera_info",
        "sensor_msgs/msg/CameraInfo",
        0,
        (0, 0),
        lambda world, stamp, t, rng: messages.camera_info(
            stamp, sensors.HEIGHT, sensors.WIDTH, sensors.FOCAL
        ),
    ),
    DemoTopic(
        "/cam/front/compressed",
        "sensor_msgs/msg/CompressedImage",
        15,
        (0.4, 0.8),
        lambda world, stamp, t, rng: messages.compressed_image(stamp, sensors.camera_jpeg(world, t)),
    ),
    DemoTopic(
        "/lidar/top",
        "sensor_msgs/msg/PointCloud2",
        10,
        (0.7, 0.5),
        lambda world, stamp, t, rng: messages.point_cloud(stamp, sensors.lidar_points(world, t, rng)),
    ),
    DemoTopic(
        "/imu",
        "sensor_msgs/msg/Imu",
        100,
        (0.2, 0.3),
        lambda world, stamp, t, rng: messages.imu(stamp, world.ego(t), rng.normal(0, 0.02, 6)),
    ),
    DemoTopic(
        "/odom",
        "nav_msgs/msg/Odometry",
        50,
        (0, 0),
        lambda world, stamp, t, rng: messages.odometry(stamp, world.ego(t)),
    ),
    DemoTopic(
        "/tracks",
        "demo_msgs/msg/TrackArray",
        10,
        (0, 0),
        lambda world, stamp, t, rng: messages.tracks(stamp, world.agents(t)),
    ),
    DemoTopic(
        "/lights",
        "demo_msgs/msg/LightArray",
        10,
        (0, 0),
        lambda world, stamp, t, rng: messages.lights(stamp, world.lights(t)),
    ),
)


@dataclass(frozen=True)
class _RecordedMessage:
    """One message as the recorder got it; `arrival` says where in the file it lies."""

    arrival: int
    topic: DemoTopic
    stamp: int
    log_time: int
    data: bytes


def make_drives(
    folder: str | os.PathLike[str], *, seconds: float = 20.0, logs: int = 2, seed: int = 0
) -> list[pathlib.Path]:
    """Writes synthetic drives, as a ROS 2 recorder would: MCAP files drive-00.mcap, drive-01.mcap, …

    Messages come late by up to 40 ms and out of order, jitter, get lost or arrive twice, and camera, lidar
    and IMU drop out for a while. Equal arguments give equal bytes. Needs the extra `build`.

    Args:
        folder: is made if it isn't there; drives of these names in it are replaced.
        seconds: of each drive.
        logs: how many.
    """
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(logs):
        recorded = _drive(number, seconds, seed)
        path = place / f"drive-{number:02d}.mcap"
        _write(path, sorted(recorded, key=lambda message: message.arrival))
        paths.append(path)
    return paths


def _drive(number: int, seconds: float, seed: int) -> list[_RecordedMessage]:
    """All messages of one drive, each copy of a repeated one by itself."""
    start = FIRST_DRIVE + number * HOUR
    world = World(seed=int(np.random.SeedSequence([seed, number]).generate_state(1)[0]))
    recorded = []
    for position, topic in enumerate(TOPICS):
        rng = np.random.default_rng([seed, number, position])
        for offset in _stamps(topic, seconds, rng).tolist():
            stamp = start + offset
            data = topic.message(world, stamp, offset / 1e9, rng)
            for _ in range(2 if topic.rate and rng.random() < REPEATED else 1):
                log_time = stamp + int(rng.uniform(0, LATEST) * 1e9)
                # The recorder's queues swap neighbours now and then: file order is not quite log time order.
                arrival = log_time + int(rng.uniform(0, 0.003) * 1e9)
                recorded.append(_RecordedMessage(arrival, topic, stamp, log_time, data))
    return recorded


def _stamps(topic: DemoTopic, seconds: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """(N,) when a topic's sensor looks, in ns since the drive began, ascending."""
    if not topic.rate:
        return np.zeros(1, np.int64)
    count = int(seconds * topic.rate)
    beats = np.arange(count) + rng.uniform(0, 1 - JITTER) + rng.uniform(0, JITTER, count)
    times = beats / topic.rate
    begin, length = topic.drop_out[0] * seconds, topic.drop_out[1]
    present = (rng.random(count) >= LOST) & ~((times >= begin) & (times < begin + length))
    return (times[present] * 1e9).astype(np.int64)


def _write(path: pathlib.Path, recorded: list[_RecordedMessage]) -> None:
    with needed("mcap", "build"):
        from mcap.writer import CompressionType, Writer

    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        writer = Writer(file, compression=CompressionType.ZSTD)
        writer.start(profile="ros2", library="logloom demo")
        channels = {}
        for topic in TOPICS:
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
