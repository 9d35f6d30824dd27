"""Small real MCAP logs of ROS 2 messages, written by the reference library."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from mcap_ros2.writer import Writer

SECOND = 10**9
START = 1_700_000_000 * SECOND
HEADER = """\
================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
VECTOR = "================\nMSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n"
QUATERNION = "================\nMSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w\n"
SPEED = ("car_msgs/msg/Speed", "std_msgs/Header header\nfloat64 speed\nint32 gear\nstring note\n" + HEADER)
POSE = (
    "geometry_msgs/msg/PoseStamped",
    "std_msgs/Header header\ngeometry_msgs/Pose pose\n"
    + HEADER
    + "================\nMSG: geometry_msgs/Pose\n"
    + "geometry_msgs/Vector3 position\ngeometry_msgs/Quaternion orientation\n"
    + VECTOR
    + QUATERNION,
)
COMMAND = ("car_msgs/msg/Command", "float64 throttle\nfloat64[] gains\n")
IMAGE = (
    "sensor_msgs/msg/Image",
    "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\n"
    "uint8 is_bigendian\nuint32 step\nuint8[] data\n" + HEADER,
)
COMPRESSED = (
    "sensor_msgs/msg/CompressedImage",
    "std_msgs/Header header\nstring format\nuint8[] data\n" + HEADER,
)
TF = (
    "tf2_msgs/msg/TFMessage",
    "geometry_msgs/TransformStamped[] transforms\n"
    + "================\nMSG: geometry_msgs/TransformStamped\n"
    + "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform\n"
    + HEADER
    + "================\nMSG: geometry_msgs/Transform\n"
    + "geometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation\n"
    + VECTOR
    + QUATERNION,
)
VIDEO = (
    "foxglove_msgs/msg/CompressedVideo",
    "builtin_interfaces/Time timestamp\nuint8[] data\nstring format\n" + HEADER,
)

Stamped = tuple[int, Mapping[str, Any]]  # (log time, message)


def header(nanoseconds: int) -> dict[str, Any]:
    return {"stamp": {"sec": nanoseconds // SECOND, "nanosec": nanoseconds % SECOND}, "frame_id": "base"}


def transform(
    stamp: int,
    parent: str,
    child: str,
    position: Sequence[float] = (0, 0, 0),
    rotation: Sequence[float] = (0, 0, 0, 1),
) -> dict[str, Any]:
    """A transform of a message of type TF."""
    return {
        "header": {**header(stamp), "frame_id": parent},
        "child_frame_id": child,
        "transform": {
            "translation": dict(zip("xyz", map(float, position), strict=True)),
            "rotation": dict(zip("xyzw", map(float, rotation), strict=True)),
        },
    }


def speeds(count: int = 20, delay: int = 0, start: int = START, step: int = SECOND // 10) -> list[Stamped]:
    """Messages of type SPEED, stamped `delay` before their log times."""
    times = [start + i * step for i in range(count)]
    return [
        (t, {"header": header(t - delay), "speed": float(i), "gear": 1, "note": "x"})
        for i, t in enumerate(times)
    ]


def write_log(
    path: pathlib.Path, topics: Mapping[str, tuple[tuple[str, str], Sequence[Stamped]]], **options: int
) -> str:
    """A log of {topic: ((type, definition), messages)}; gives its path back as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        writer = Writer(file, **options)
        queue = []
        for topic, ((kind, definition), messages) in topics.items():
            schema = writer.register_msgdef(kind, definition)
            queue += [(time, topic, schema, message) for time, message in messages]
        for time, topic, schema, message in sorted(queue, key=lambda item: item[:2]):
            writer.write_message(topic, schema, message, log_time=time, publish_time=time)
        writer.finish()
    return str(path)
