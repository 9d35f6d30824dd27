"""ROS 2 messages of the synthetic drives: definitions, and encoding as CDR.

Here: `definition` and one function per message type, each giving a whole CDR message (little-endian, with its
4-byte header). Reading is elsewhere (logloom.io.logs); logloom writes messages for its demo only.
Stamps are int64 nanoseconds since the Unix epoch.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from logloom.demo.motion import Agent, Light, Pose

# Parent frame, child frame, and of the child in its parent: x, y, z in metres, and the quaternion x, y, z, w.
Transform = tuple[str, str, Sequence[float], Sequence[float]]

_HEADER = "std_msgs/Header header"
_DEFINITIONS = {
    "builtin_interfaces/Time": "int32 sec\nuint32 nanosec",
    "std_msgs/Header": "builtin_interfaces/Time stamp\nstring frame_id",
    "geometry_msgs/Point": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/Vector3": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/Quaternion": "float64 x\nfloat64 y\nfloat64 z\nfloat64 w",
    "geometry_msgs/Pose": "geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation",
    "geometry_msgs/Twist": "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular",
    "geometry_msgs/PoseWithCovariance": "geometry_msgs/Pose pose\nfloat64[36] covariance",
    "geometry_msgs/TwistWithCovariance": "geometry_msgs/Twist twist\nfloat64[36] covariance",
    "nav_msgs/Odometry": f"{_HEADER}\nstring child_frame_id\ngeometry_msgs/PoseWithCovariance pose\n"
    "geometry_msgs/TwistWithCovariance twist",
    "sensor_msgs/Imu": f"{_HEADER}\ngeometry_msgs/Quaternion orientation\n"
    "float64[9] orientation_covariance\ngeometry_msgs/Vector3 angular_velocity\n"
    "float64[9] angular_velocity_covariance\ngeometry_msgs/Vector3 linear_acceleration\n"
    "float64[9] linear_acceleration_covariance",
    "sensor_msgs/JointState": f"{_HEADER}\nstring[] name\nfloat64[] position\nfloat64[] velocity\n"
    "float64[] effort",
    "sensor_msgs/Image": f"{_HEADER}\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\n"
    "uint32 step\nuint8[] data",
    "sensor_msgs/CompressedImage": f"{_HEADER}\nstring format\nuint8[] data",
    "sensor_msgs/RegionOfInterest": "uint32 x_offset\nuint32 y_offset\nuint32 height\nuint32 width\n"
    "bool do_rectify",
    "sensor_msgs/CameraInfo": f"{_HEADER}\nuint32 height\nuint32 width\nstring distortion_model\n"
    "float64[] d\nfloat64[9] k\nfloat64[9] r\nfloat64[12] p\nuint32 binning_x\nuint32 binning_y\n"
    "sensor_msgs/RegionOfInterest roi",
    "sensor_msgs/PointField": "string name\nuint32 offset\nuint8 datatype\nuint32 count",
    "sensor_msgs/PointCloud2": f"{_HEADER}\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\n"
    "bool is_bigendian\nuint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense",
    "geometry_msgs/Transform": "geometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation",
    "geometry_msgs/TransformStamped": f"{_HEADER}\nstring child_frame_id\ngeometry_msgs/Transform transform",
    "tf2_msgs/TFMessage": "geometry_msgs/TransformStamped[] transforms",
    "foxglove_msgs/CompressedVideo": "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\n"
    "string format",
    "ffmpeg_image_transport_msgs/FFMPEGPacket": f"{_HEADER}\nint32 width\nint32 height\nstring encoding\n"
    "uint64 pts\nuint8 flags\nbool is_bigendian\nuint8[] data",
    "demo_msgs/Track": "string class\nuint64 track_id\nfloat64[2] centroid\nfloat32[3] extent\nfloat32 yaw\n"
    "float32[2] velocity",
    "demo_msgs/TrackArray": f"{_HEADER}\ndemo_msgs/Track[] objects",
    "demo_msgs/Light": "string face_id\nstring traffic_light_id\nfloat32[3] status",
    "demo_msgs/LightArray": f"{_HEADER}\ndemo_msgs/Light[] lights",
}
_POINT_FIELDS = {"float32": 7, "float64": 8}  # PointField's numbers for them
_KEYFRAME = 1  # FFmpeg's AV_PKT_FLAG_KEY


def definition(message_type: str) -> bytes:
    """The ros2msg definition of a type such as "sensor_msgs/msg/Imu", followed by those it refers to."""
    root = message_type.replace("/msg/", "/")
    needed = [root]
    for name in needed:  # grows while it is walked
        for other in re.findall(r"^(\w+/\w+)", _DEFINITIONS[name], re.MULTILINE):
            if other not in needed:
                needed.append(other)
    parts = [_DEFINITIONS[root], *(f"MSG: {name}\n{_DEFINITIONS[name]}" for name in needed[1:])]
    return f"\n{'=' * 80}\n".join(parts).encode()


class Cdr:
    """A message in the making. Numbers are aligned to their size, counted from the end of the CDR header."""

    def __init__(self) -> None:
        self._body = bytearray()

    def put(self, code: str, *values: Any) -> Self:
        """Appends numbers of one struct code, such as "I" or "d"."""
        self._align(struct.calcsize(code))
        self._body += struct.pack(f"<{len(values)}{code}", *values)
        return self

    def array(self, values: NDArray[Any]) -> Self:
        """Appends an array without a length; its dtype is written as it is."""
        if values.size:
            self._align(values.dtype.itemsize)
            self._body += values.tobytes()
        return self

    def text(self, text: str) -> Self:
        data = text.encode() + b"\0"
        self.put("I", len(data))
        self._body += data
        return self

    def octets(self, data: bytes) -> Self:
        """Appends uint8[] with its length."""
        self.put("I", len(data))
        self._body += data
        return self

    def header(self, stamp: int, frame: str) -> Self:
        seconds, nanoseconds = divmod(stamp, 10**9)
        return self.put("i", seconds).put("I", nanoseconds).text(frame)

    def finish(self) -> bytes:
        return b"\x00\x01\x00\x00" + bytes(self._body)

    def _align(self, size: int) -> None:
        self._body += bytes(-len(self._body) % size)


def compressed_image(stamp: int, data: bytes, frame: str = "cam_front", form: str = "jpeg") -> bytes:
    return Cdr().header(stamp, frame).text(form).octets(data).finish()


def compressed_video(stamp: int, data: bytes, frame: str, form: str) -> bytes:
    """foxglove.CompressedVideo, whose stamp and frame are in no header."""
    seconds, nanoseconds = divmod(stamp, 10**9)
    message = Cdr().put("i", seconds).put("I", nanoseconds).text(frame)
    return message.octets(data).text(form).finish()


def ffmpeg_packet(
    stamp: int, data: bytes, frame: str, size: tuple[int, int], encoding: str, pts: int, is_keyframe: bool
) -> bytes:
    """ffmpeg_image_transport's packet; `size` is height and width."""
    message = Cdr().header(stamp, frame).put("i", size[1], size[0]).text(encoding).put("Q", pts)
    return message.put("B", _KEYFRAME * is_keyframe).put("?", False).octets(data).finish()


def camera_info(stamp: int, height: int, width: int, focal: float, frame: str = "cam_front") -> bytes:
    """A camera without distortion whose axis is the centre of the image; `focal` in pixels."""
    k = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]])
    message = Cdr().header(stamp, frame).put("I", height, width).text("plumb_bob")
    message.put("I", 5).array(np.zeros(5)).array(k).array(np.eye(3)).array(np.hstack([k, np.zeros((3, 1))]))
    return message.put("I", 0, 0).put("I", 0, 0, 0, 0).put("?", False).finish()


def point_cloud(stamp: int, points: NDArray[np.void], frame: str = "lidar_top") -> bytes:
    """(N,) structured points: x, y, z in metres in the sensor's frame, and whatever else is measured."""
    fields: Mapping[str, Any] = points.dtype.fields or {}
    message = Cdr().header(stamp, frame).put("I", 1, len(points), len(fields))
    for name in points.dtype.names or ():
        kind, offset = fields[name][:2]
        message.text(name).put("I", offset).put("B", _POINT_FIELDS[kind.name]).put("I", 1)
    step = points.dtype.itemsize
    message.put("?", False).put("I", step, step * len(points)).octets(points.tobytes())
    return message.put("?", True).finish()


def transforms(stamp: int, frames: Sequence[Transform]) -> bytes:
    message = Cdr().put("I", len(frames))
    for parent, child, position, quaternion in frames:
        message.header(stamp, parent).text(child).put("d", *position, *quaternion)
    return message.finish()


def joint_state(stamp: int, names: Sequence[str], positions: Sequence[float]) -> bytes:
    """Joints without velocities and efforts, as many drivers publish them."""
    message = Cdr().header(stamp, "").put("I", len(names))
    for name in names:
        message.text(name)
    return message.put("I", len(positions)).put("d", *positions).put("I", 0, 0).finish()


def imu(stamp: int, pose: Pose, noise: NDArray[np.float64]) -> bytes:
    """An IMU at the pose's origin; noise is (6,), added to angular velocity and linear acceleration."""
    turn = np.array([0.0, 0.0, pose.yaw_rate]) + noise[:3]
    push = np.array([*pose.acceleration, 9.81]) + noise[3:]
    message = Cdr().header(stamp, "imu_link").array(pose.quaternion).array(np.zeros(9))
    return message.array(turn).array(np.zeros(9)).array(push).array(np.zeros(9)).finish()


def odometry(stamp: int, pose: Pose) -> bytes:
    """The pose in frame odom, the velocity in the car's own frame."""
    message = Cdr().header(stamp, "odom").text("base_link").put("d", *pose.position, 0.0)
    message.array(pose.quaternion).array(np.zeros(36))
    return message.put("d", pose.speed, 0, 0, 0, 0, pose.yaw_rate).array(np.zeros(36)).finish()


def tracks(stamp: int, agents: Sequence[Agent]) -> bytes:
    message = Cdr().header(stamp, "odom").put("I", len(agents))
    for agent in agents:
        message.text(agent.label).put("Q", agent.track_id).put("d", *agent.centroid)
        message.put("f", *agent.extent).put("f", agent.yaw).put("f", *agent.velocity)
    return message.finish()


def lights(stamp: int, faces: Sequence[Light]) -> bytes:
    """Status is the probability of each of: active, inactive, unknown."""
    message = Cdr().header(stamp, "odom").put("I", len(faces))
    for face in faces:
        message.text(face.face_id).text(face.light_id).put("f", *face.status)
    return message.finish()
