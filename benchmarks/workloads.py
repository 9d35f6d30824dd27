"""Logs to measure with: made once into a folder, the same bytes each time, and found there later.

Here: many small messages (`imu_mcap`), few large ones (`image_mcap`), images to be decoded (`jpeg_mcap`),
arrays of sub-messages (`tracks_mcap`), some with text in them (`tf_mcap`), and very many logs (`tiny_mcaps`),
all of them ROS 2 CDR in MCAP.
Messages are laid out by numpy all at once, so that making them takes about as long as writing them.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from mcap.writer import CompressionType, Writer
from numpy.typing import NDArray

from logloom.demo.messages import Cdr, compressed_image, definition

START = 1_767_225_600 * 10**9  # ns since the epoch
IMU_TYPE, IMAGE_TYPE = "sensor_msgs/msg/Imu", "sensor_msgs/msg/Image"
JPEG_TYPE = "sensor_msgs/msg/CompressedImage"
IMU_TOPIC, IMAGE_TOPIC, JPEG_TOPIC = "/imu/data", "/camera/image", "/camera/compressed"
IMU_BYTES = 324
# CDR: 4 bytes of header; stamp; the frame "imu_link" with its length and padding; 37 numbers.
IMU_LAYOUT = np.dtype(
    {
        "names": ["cdr", "sec", "nanosec", "frame_length", "frame", "values"],
        "formats": ["u1", "<i4", "<u4", "<u4", "S9", ("<f8", 37)],
        "offsets": [1, 4, 8, 12, 16, 28],
        "itemsize": IMU_BYTES,
    }
)
TRACKS_TYPE, TRACKS_TOPIC, NUM_TRACKS = "track_msgs/msg/Tracks", "/tracks", 80
TRACKS_DEFINITION = f"\n{80 * '='}\n".join(
    [
        "std_msgs/Header header\nTrack[] tracks",
        "MSG: track_msgs/Track\nuint64 id\ngeometry_msgs/Pose pose\ngeometry_msgs/Vector3 size\n"
        "geometry_msgs/Vector3 velocity\nfloat32 probability\nuint32 label",
        "MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id",
        "MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec",
        "MSG: geometry_msgs/Pose\ngeometry_msgs/Point position\ngeometry_msgs/Quaternion orientation",
        "MSG: geometry_msgs/Point\nfloat64 x\nfloat64 y\nfloat64 z",
        "MSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w",
        "MSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z",
    ]
)
TF_TYPE, TF_TOPIC = "tf2_msgs/msg/TFMessage", "/tf"
TF_DEFINITION = f"\n{80 * '='}\n".join(
    [
        "geometry_msgs/TransformStamped[] transforms",
        "MSG: geometry_msgs/TransformStamped\nstd_msgs/Header header\nstring child_frame_id\n"
        "geometry_msgs/Transform transform",
        "MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id",
        "MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec",
        "MSG: geometry_msgs/Transform\ngeometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation",
        "MSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z",
        "MSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w",
    ]
)
# What each publisher sends in a message, in turn: (parent, child).
TF_FRAMES = (
    (("map", "odom"),),
    tuple(
        ("base_link", f"wheel_{place}") for place in ("front_left", "front_right", "rear_left", "rear_right")
    ),
    (("odom", "base_link"),),
    tuple(("arm_base" if i == 0 else f"arm_link_{i}", f"arm_link_{i + 1}") for i in range(10)),
)
TRACK = np.dtype([("id", "<u8"), ("values", "<f8", 13), ("probability", "<f4"), ("label", "<u4")])
IMAGE_HEIGHT, IMAGE_WIDTH = 480, 640
IMAGE_LATENCY, IMU_LATENCY = 20_000_000, 1_000_000  # ns from stamp to log time

Timed = tuple[int, int, bytes]  # log time, channel, message


def imu_mcap(folder: pathlib.Path, num_messages: int = 200_000, rate: int = 400) -> pathlib.Path:
    """IMU messages of 324 bytes in zstd chunks."""
    path = folder / f"imu-{num_messages}.mcap"
    if not path.exists():
        stamps = START + np.arange(num_messages, dtype=np.int64) * (10**9 // rate)
        _write(path, CompressionType.ZSTD, _imu_messages(stamps, seed=1))
    return path


def image_mcap(folder: pathlib.Path, num_images: int = 600, image_rate: int = 12) -> pathlib.Path:
    """Noise images (640 x 480 rgb8, 922 kB each) and a 400 Hz IMU beside them, in lz4 chunks.

    With 600 images 562 MB and 50 seconds. Noise, so that no compression makes the work smaller.
    """
    path = folder / f"images-{num_images}.mcap"
    if not path.exists():
        seconds = num_images / image_rate
        imu = START + np.arange(int(seconds * 400), dtype=np.int64) * (10**9 // 400)
        images = START + np.arange(num_images, dtype=np.int64) * 10**9 // image_rate
        merged = _merge(_imu_messages(imu, seed=2), _image_messages(images, seed=3))
        _write(path, CompressionType.LZ4, merged)
    return path


def jpeg_mcap(
    folder: pathlib.Path, num_images: int = 600, rate: int = 12, form: str = "jpeg"
) -> pathlib.Path:
    """JPEGs of 1280 x 720 (some 200 kB each), or PNGs, twenty different ones again and again."""
    path = folder / f"{form}s-{num_images}.mcap"
    if not path.exists():
        stamps = START + np.arange(num_images, dtype=np.int64) * 10**9 // rate
        jpegs = _pictures(20, form)
        messages = (
            (stamp + IMAGE_LATENCY, 0, compressed_image(stamp, jpegs[i % len(jpegs)]))
            for i, stamp in enumerate(stamps.tolist())
        )
        _write(path, CompressionType.NONE, messages, ((JPEG_TOPIC, JPEG_TYPE),))
    return path


def tiny_mcaps(folder: pathlib.Path, num_logs: int, num_messages: int = 100) -> pathlib.Path:
    """A folder of that many logs, each with IMU messages of different values at 10 Hz; 40 kB a log."""
    place = folder / f"tiny-{num_logs}x{num_messages}"
    stamps = START + np.arange(num_messages, dtype=np.int64) * 10**8
    for i in range(num_logs):
        path = place / f"log-{i:06d}.mcap"
        if not path.exists():
            _write(path, CompressionType.NONE, _imu_messages(stamps, seed=i))
    return place


def tracks_mcap(folder: pathlib.Path, num_messages: int = 2000, rate: int = 10) -> pathlib.Path:
    """Lists of 80 tracked objects, each with a pose, a size and a velocity, in zstd chunks."""
    path = folder / f"tracks-{num_messages}.mcap"
    if path.exists():
        return path
    rng = np.random.default_rng(4)
    with _one_topic(path, TRACKS_TYPE, TRACKS_DEFINITION, TRACKS_TOPIC) as (writer, channel):
        tracks = np.zeros(NUM_TRACKS, TRACK)
        tracks["id"] = np.arange(NUM_TRACKS)
        for i in range(num_messages):
            stamp = START + i * (10**9 // rate)
            tracks["values"] = rng.normal(0, 10, (NUM_TRACKS, 13)).round(2)
            head = Cdr().header(stamp, "map").put("I", NUM_TRACKS)
            message = head.finish() + bytes(4) + tracks.tobytes()  # the first track is aligned to 8 bytes
            writer.add_message(channel, log_time=stamp, data=message, publish_time=stamp)
    return path


def tf_mcap(folder: pathlib.Path, num_messages: int = 20_000, rate: int = 200) -> pathlib.Path:
    """Transforms of four publishers, four a message on average, in zstd chunks."""
    path = folder / f"tf-{num_messages}.mcap"
    if path.exists():
        return path
    rng = np.random.default_rng(6)
    with _one_topic(path, TF_TYPE, TF_DEFINITION, TF_TOPIC) as (writer, channel):
        for i in range(num_messages):
            stamp = START + i * (10**9 // rate)
            frames = TF_FRAMES[i % len(TF_FRAMES)]
            message = Cdr().put("I", len(frames))
            for parent, child in frames:
                message.header(stamp, parent).text(child).put("d", *rng.normal(0, 1, 7).round(2))
            writer.add_message(channel, log_time=stamp, data=message.finish(), publish_time=stamp)
    return path


@contextlib.contextmanager
def _one_topic(path: pathlib.Path, of_type: str, definition: str, topic: str) -> Iterator[tuple[Writer, int]]:
    """Writes a log of one topic in zstd chunks; the file appears when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        writer = Writer(file, compression=CompressionType.ZSTD)
        writer.start(profile="ros2", library="logloom benchmarks")
        schema = writer.register_schema(of_type, "ros2msg", definition.encode())
        yield writer, writer.register_channel(topic, "cdr", schema)
        writer.finish()
    partial.replace(path)


def encode_imu(stamps: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.void]:
    """(N,) IMU messages as `IMU_LAYOUT`, from (N,) stamps in ns and the (N, 37) numbers of the message."""
    messages = np.zeros(len(stamps), IMU_LAYOUT)
    messages["cdr"], messages["frame_length"], messages["frame"] = 1, 9, b"imu_link"
    messages["sec"], messages["nanosec"] = np.divmod(stamps, 10**9)
    messages["values"] = values
    return messages


def _imu_messages(stamps: NDArray[np.int64], seed: int) -> Iterator[Timed]:
    rng = np.random.default_rng(seed)
    values = np.zeros((len(stamps), 37))
    values[:, 3] = 1  # orientation: x, y, z, w, then its covariance
    values[:, 13:16] = rng.normal(0, 0.1, (len(stamps), 3))  # angular velocity
    values[:, 25:28] = rng.normal(0, 0.5, (len(stamps), 3))  # linear acceleration
    data = encode_imu(stamps, values).tobytes()
    for i, stamp in enumerate(stamps.tolist()):
        yield stamp + IMU_LATENCY, 0, data[i * IMU_BYTES : (i + 1) * IMU_BYTES]


def _image_messages(stamps: NDArray[np.int64], seed: int) -> Iterator[Timed]:
    rng = np.random.default_rng(seed)
    size = IMAGE_HEIGHT * IMAGE_WIDTH * 3
    for stamp in stamps.tolist():
        message = Cdr().header(stamp, "camera").put("I", IMAGE_HEIGHT, IMAGE_WIDTH).text("rgb8")
        message.put("B", 0).put("I", 3 * IMAGE_WIDTH).octets(rng.bytes(size))
        yield stamp + IMAGE_LATENCY, 1, message.finish()


def _pictures(count: int, form: str = "jpeg") -> list[bytes]:
    """Smooth colours with grain, so that they compress about as well as photographs do."""
    import io

    from PIL import Image

    rng = np.random.default_rng(5)
    made = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (45, 80, 3), np.uint8))
        picture = np.asarray(coarse.resize((1280, 720), Image.Resampling.BICUBIC)).astype(np.int16)
        grain = rng.integers(-8, 9, picture.shape, np.int16)
        data = io.BytesIO()
        pixels = np.clip(picture + grain, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(data, form, quality=85, compress_level=1)
        made.append(data.getvalue())
    return made


def _merge(*streams: Iterable[Timed]) -> Iterator[Timed]:
    import heapq

    return heapq.merge(*streams, key=lambda message: message[0])


def _write(
    path: pathlib.Path,
    compression: CompressionType,
    messages: Iterable[Timed],
    topics: Sequence[tuple[str, str]] = ((IMU_TOPIC, IMU_TYPE), (IMAGE_TOPIC, IMAGE_TYPE)),
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        writer = Writer(file, compression=compression)
        writer.start(profile="ros2", library="logloom benchmarks")
        channels = [
            writer.register_channel(topic, "cdr", writer.register_schema(type_, "ros2msg", definition(type_)))
            for topic, type_ in topics
        ]
        for log_time, channel, data in messages:
            writer.add_message(channels[channel], log_time=log_time, data=data, publish_time=log_time)
        writer.finish()
    partial.replace(path)
