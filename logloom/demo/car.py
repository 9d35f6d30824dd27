"""Synthetic drives of a whole car: cameras, lidars, frames and labels.

Cameras record video; lidars turn while the car drives.
Here: topics, the tree of frames, encoders of video, and the tables of labels.
Elsewhere: recording (recorder), the world (motion), what sensors see of it (sensors).

    map <- odom (10 Hz) <- base_link (50 Hz) <- cam_front, cam_left, cam_right, lidar_left, lidar_right

The mounts are static. base_link is on the ground; the axes of cameras are those of their images: x right,
y down, z ahead.
"""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.demo import messages, sensors
from logloom.demo.motion import Mount, Pose, World
from logloom.demo.recorder import DemoTopic, Drive, drives, record
from logloom.extras import needed

CAMERAS = {
    "front": Mount("cam_front", (1.5, 0.0, sensors.CAMERA_ABOVE_GROUND)),
    "left": Mount("cam_left", (0.8, 0.8, sensors.CAMERA_ABOVE_GROUND), math.radians(70)),
    "right": Mount("cam_right", (0.8, -0.8, sensors.CAMERA_ABOVE_GROUND), math.radians(-70)),
}
LIDARS = {
    "left": Mount("lidar_left", (1.0, 0.9, sensors.LIDAR_ABOVE_GROUND), math.radians(40)),
    "right": Mount("lidar_right", (1.0, -0.9, sensors.LIDAR_ABOVE_GROUND), math.radians(-40)),
}
CAMERA_RATE, SIZE = 15, (sensors.HEIGHT, sensors.WIDTH)
NUM_HOUSES = 26
LABELS_APART, LABELS_WITHIN = 5 * 10**8, 50.0  # ns from labelled tick to labelled tick; metres from the car
_GOP = 10  # packets from keyframe to keyframe
# FFmpeg's encoder of each codec, and options with which it gives a packet for each picture, always the same.
_ENCODERS = {
    "h264": (
        "libx264",
        {
            "preset": "veryfast",
            "tune": "zerolatency",
            "crf": "20",
            "x264-params": "scenecut=0:threads=1:sliced-threads=0",
            "keyint_min": str(_GOP),
        },
    ),
    "h265": (
        "libx265",
        {
            "preset": "ultrafast",
            "tune": "zerolatency",
            "crf": "22",
            "x265-params": "log-level=none:scenecut=0:bframes=0:pools=1:frame-threads=1",
        },
    ),
    "vp9": (
        "libvpx-vp9",
        {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "0", "crf": "24", "keyint_min": str(_GOP)},
    ),
}


def make_car_drives(
    folder: str | os.PathLike[str], *, seconds: float = 8.0, logs: int = 2, seed: int = 0
) -> list[pathlib.Path]:
    """Writes drives of a whole car into `folder`/logs, and labels of each into `folder`/labels.

    Logs are MCAP files as of `make_drives`, with the same faults; of video, packets get lost. Labels are
    Parquet files drive-00.parquet, …: boxes of others in frame map, for two ticks a second. Equal arguments
    and versions of PyAV give equal bytes. Needs the extras `build` and `video`.

    Args:
        folder: created if missing; drives and labels of these names in it are replaced.
        seconds: of each drive.
        logs: how many.

    Returns:
        the logs.
    """
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for drive in drives(seconds, logs, seed, NUM_HOUSES):
        paths.append(record(place / "logs", drive, car_topics()))
        _write_labels(place / "labels", drive)
    return paths


def car_topics() -> list[DemoTopic]:
    """The topics of one drive: encoders remember the pictures before."""
    return [
        *_camera("front", "video", "foxglove_msgs/msg/CompressedVideo", "h264", (0.4, 0.5)),
        *_camera("left", "ffmpeg", "ffmpeg_image_transport_msgs/msg/FFMPEGPacket", "h265", (0, 0)),
        *_camera("right", "compressed", "sensor_msgs/msg/CompressedImage", "vp9", (0, 0)),
        _lidar("left", "time", "<f4", (0.7, 0.5)),
        _lidar("right", "timestamp", "<f8", (0, 0)),
        DemoTopic("/tf_static", "tf2_msgs/msg/TFMessage", 0, (0, 0), _mounts),
        DemoTopic("/tf", "tf2_msgs/msg/TFMessage", 50, (0, 0), _odom_base),
        DemoTopic("/tf", "tf2_msgs/msg/TFMessage", 10, (0, 0), _map_odom),
        DemoTopic("/odom", "nav_msgs/msg/Odometry", 50, (0, 0), _odometry),
        DemoTopic("/imu", "sensor_msgs/msg/Imu", 100, (0.2, 0.3), _imu),
    ]


class VideoEncoder:
    """Encodes the pictures of one camera, in order; needs the extra `video`."""

    def __init__(self, codec: str, rate: int, size: tuple[int, int]) -> None:
        """
        Args:
            codec: h264, h265 or vp9.
            rate: pictures a second.
            size: height and width.
        """
        with needed("PyAV, which encodes video,", "video"):
            import av

        self._av: Any = av
        self.name, options = _ENCODERS[codec]
        encoder: Any = av.CodecContext.create(self.name, "w")
        encoder.height, encoder.width = size
        encoder.pix_fmt, encoder.time_base, encoder.framerate = "yuv420p", Fraction(1, rate), Fraction(rate)
        encoder.gop_size, encoder.thread_count, encoder.bit_rate = _GOP, 1, 800_000
        encoder.options = dict(options)
        self._encoder = encoder
        self.count = 0

    def packet(self, pixels: NDArray[np.uint8]) -> tuple[bytes, bool]:
        """The packet of the next picture, (height, width, 3) RGB, and whether it is a keyframe."""
        frame = self._av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuv420p")
        frame.pts = self.count
        self.count += 1
        (packet,) = self._encoder.encode(frame)
        return bytes(packet), bool(packet.is_keyframe)


def _camera(side: str, name: str, kind: str, codec: str, drop_out: tuple[float, float]) -> list[DemoTopic]:
    mount, encoder = CAMERAS[side], VideoEncoder(codec, CAMERA_RATE, SIZE)

    def video(world: World, stamp: int, t: float, rng: np.random.Generator) -> bytes:
        pts = encoder.count
        data, is_keyframe = encoder.packet(sensors.picture(world, t, mount))
        if kind.startswith("ffmpeg"):
            return messages.ffmpeg_packet(stamp, data, mount.frame, SIZE, encoder.name, pts, is_keyframe)
        if kind.startswith("foxglove"):
            return messages.compressed_video(stamp, data, mount.frame, codec)
        return messages.compressed_image(stamp, data, mount.frame, codec)

    def info(world: World, stamp: int, t: float, rng: np.random.Generator) -> bytes:
        return messages.camera_info(stamp, *SIZE, sensors.FOCAL, mount.frame)

    return [
        DemoTopic(f"/cam/{side}/camera_info", "sensor_msgs/msg/CameraInfo", 0, (0, 0), info),
        DemoTopic(f"/cam/{side}/{name}", kind, CAMERA_RATE, drop_out, video, is_chained=True),
    ]


def _lidar(side: str, field: str, dtype: str, drop_out: tuple[float, float]) -> DemoTopic:
    """Points with times in a field that drivers have: from the stamp (f4), or since the epoch (f8)."""
    mount = LIDARS[side]

    def cloud(world: World, stamp: int, t: float, rng: np.random.Generator) -> bytes:
        points, times = sensors.sweep(world, t, mount, rng)
        timed = np.empty(len(points), [*sensors.POINT.descr, (field, dtype)])
        for name in sensors.POINT.fields or {}:
            timed[name] = points[name]
        timed[field] = times if dtype == "<f4" else times + stamp / 1e9
        return messages.point_cloud(stamp, timed, mount.frame)

    return DemoTopic(f"/lidar/{side}", "sensor_msgs/msg/PointCloud2", 10, drop_out, cloud)


def _mounts(world: World, stamp: int, t: float, rng: np.random.Generator) -> bytes:
    lidars: list[messages.Transform] = [
        ("base_link", mount.frame, mount.position, _turned(mount.yaw, (0.0, 0.0, 0.0, 1.0)))
        for mount in LIDARS.values()
    ]
    cameras: list[messages.Transform] = [
        ("base_link", mount.frame, mount.position, _turned(mount.yaw, (-0.5, 0.5, -0.5, 0.5)))
        for mount in CAMERAS.values()
    ]
    return messages.transforms(stamp, [*cameras, *lidars])


def _turned(yaw: float, quaternion: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """A rotation, x, y, z, w, turned about the car's vertical axis."""
    sin, cos = math.sin(yaw / 2), math.cos(yaw / 2)
    x, y, z, w = quaternion
    return cos * x - sin * y, cos * y + sin * x, cos * z + sin * w, cos * w - sin * z


def _drift(t: float) -> tuple[float, float, float]:
    """Where odometry began, by what is known at time t: x, y and yaw of frame odom in frame map."""
    return 0.4 * math.sin(0.3 * t), 0.3 * math.sin(0.2 * t + 1), 0.02 * math.sin(0.25 * t)


def _in_odom(pose: Pose, t: float) -> Pose:
    x, y, yaw = _drift(t)
    cos, sin = math.cos(yaw), math.sin(yaw)
    dx, dy = pose.position[0] - x, pose.position[1] - y
    return replace(pose, position=(cos * dx + sin * dy, cos * dy - sin * dx), yaw=pose.yaw - yaw)


def _map_odom(world: World, stamp: int, t: float, rng: np.random.Generator) -> bytes:
    x, y, yaw = _drift(t)
    return messages.transforms(stamp, [("map", "odom", (x, y, 0), _turned(yaw, (0, 0, 0, 1)))])


def _odom_base(world: World, stamp: int, t: float, rng: np.random.Generator) -> bytes:
    pose = _in_odom(world.ego(t), t)
    return messages.transforms(
        stamp, [("odom", "base_link", (*pose.position, 0), _turned(pose.yaw, (0, 0, 0, 1)))]
    )


def _odometry(world: World, stamp: int, t: float, rng: np.random.Generator) -> bytes:
    return messages.odometry(stamp, _in_odom(world.ego(t), t))


def _imu(world: World, stamp: int, t: float, rng: np.random.Generator) -> bytes:
    return messages.imu(stamp, world.ego(t), rng.normal(0, 0.02, 6))


def _write_labels(folder: pathlib.Path, drive: Drive) -> None:
    """A table of boxes in frame map, a row for each: centre and size in metres, yaw in radians."""
    import pyarrow as pa
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    kinds = {
        "log_id": pa.string(),
        "timestamp": pa.int64(),
        "class": pa.string(),
        "track": pa.uint32(),
        "center": pa.list_(pa.float64(), 3),
        "size": pa.list_(pa.float32(), 3),
        "yaw": pa.float32(),
    }
    table = pa.Table.from_pylist(list(_labels(drive)), pa.schema(list(kinds.items())))
    pyarrow.parquet.write_table(table, folder / f"{drive.log_id}.parquet")


def _labels(drive: Drive) -> Iterator[dict[str, object]]:
    for offset in range(LABELS_APART, int(drive.seconds * 1e9), LABELS_APART):
        for agent in drive.world.agents(offset / 1e9, LABELS_WITHIN):
            yield {
                "log_id": drive.log_id,
                "timestamp": drive.start + offset,
                "class": agent.label,
                "track": agent.track_id,
                "center": [*agent.centroid, agent.extent[2] / 2],
                "size": list(agent.extent),
                "yaw": agent.yaw,
            }
