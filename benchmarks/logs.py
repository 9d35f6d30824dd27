"""Reading logs beside the readers that exist: small messages, large ones, and a short range of a long log.

    python benchmarks/logs.py [--rounds 5] [--messages 200000]

Contenders take turns; a ratio is the median over rounds of their time by ours, with its least and greatest.
logloom gives columns (numpy arrays of every numeric field and the message times); the others only make their
message objects, which they leave to others to put into arrays. Files lie in the page cache.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import lz4.frame
import numpy as np

from benchmarks import workloads
from benchmarks.harness import cache_folder, compare, in_process
from benchmarks.report import Report
from logloom.io.logs.files.compression import decompress
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log

IMU_FIELDS = FieldSpec(
    (
        "orientation",
        "orientation_covariance",
        "angular_velocity",
        "angular_velocity_covariance",
        "linear_acceleration",
        "linear_acceleration_covariance",
    )
)
PIXELS = FieldSpec(("data",))
EVERYTHING = TopicRequest(MIN_TIME, MAX_TIME)


def read_column(path: pathlib.Path, topic: str, field: FieldSpec) -> None:
    CHUNKS.clear()
    messages = open_log([str(path)]).read({topic: EVERYTHING})[topic]
    messages.take(field, np.arange(len(messages)))


def mcap_raw(path: pathlib.Path, topic: str) -> None:
    from mcap.reader import make_reader

    with path.open("rb") as file:
        for _ in make_reader(file).iter_messages([topic], log_time_order=False):
            pass


def mcap_ros2(path: pathlib.Path, topic: str) -> None:
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        for _ in reader.iter_decoded_messages([topic], log_time_order=False):
            pass


def mcap_ros2_fast(path: pathlib.Path, topic: str) -> None:
    from mcap.reader import make_reader
    from mcap_ros2_support_fast.decoder import DecoderFactory

    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        for _ in reader.iter_decoded_messages([topic], log_time_order=False):
            pass


def rosbags_cdr(path: pathlib.Path, topic: str) -> None:
    from rosbags.rosbag2 import Reader
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    own = get_types_from_msg(workloads.TRACKS_DEFINITION, workloads.TRACKS_TYPE)
    store.register({name: kind for name, kind in own.items() if name.startswith("track_msgs")})
    with Reader(path) as reader:
        connections = [c for c in reader.connections if c.topic == topic]
        for connection, _, data in reader.messages(connections):
            store.deserialize_cdr(data, connection.msgtype)


def rosbags_ros1(path: pathlib.Path, topic: str) -> None:
    from rosbags.rosbag1 import Reader
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    with Reader(path) as reader:
        for connection, _, data in reader.messages():
            store.deserialize_ros1(data, connection.msgtype)


def imu_bag(folder: pathlib.Path, num_messages: int) -> pathlib.Path:
    """The IMU messages of `workloads.imu_mcap` as a ROS 1 bag with lz4 chunks."""
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_typestore

    path = folder / f"imu-{num_messages}.bag"
    if path.exists():
        return path
    layout = np.dtype(
        [
            ("seq", "<u4"),
            ("sec", "<u4"),
            ("nanosec", "<u4"),
            ("length", "<u4"),
            ("frame", "S8"),
            ("x", "<f8", 37),
        ]
    )
    stamps = workloads.START + np.arange(num_messages, dtype=np.int64) * 2_500_000
    messages = np.zeros(num_messages, layout)
    messages["length"], messages["frame"] = 8, b"imu_link"
    messages["sec"], messages["nanosec"] = np.divmod(stamps, 10**9)
    messages["x"] = np.random.default_rng(1).normal(0, 0.1, (num_messages, 37)).round(2)
    writer = Writer(path)
    writer.set_compression(Writer.CompressionFormat.LZ4)
    with writer:
        store = get_typestore(Stores.ROS1_NOETIC)
        connection = writer.add_connection(workloads.IMU_TOPIC, workloads.IMU_TYPE, typestore=store)
        for stamp, message in zip(stamps.tolist(), messages, strict=True):
            writer.write(connection, stamp, message.tobytes())
    return path


def decompress_and_check(path: pathlib.Path, threads: int, keep: bool = False) -> None:
    """What no reader can do without: lz4 decompression and CRC-32 of every chunk.

    Args:
        keep: hold all of it in memory until the end, as a column does.
    """
    from mcap.records import Chunk
    from mcap.stream_reader import StreamReader

    kept: list[bytes] = []

    def work(data: bytes) -> None:
        plain = lz4.frame.decompress(data)
        zlib.crc32(plain)
        if keep:
            kept.append(plain)

    with path.open("rb") as file, ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[None]] = deque()
        for record in StreamReader(file, emit_chunks=True).records:
            if isinstance(record, Chunk):
                if threads == 1:
                    work(record.data)
                    continue
                pending.append(pool.submit(work, record.data))
                if len(pending) > threads:
                    pending.popleft().result()
        for future in pending:
            future.result()


def peak_memory(path: pathlib.Path, topic: str) -> tuple[int, int]:
    """Bytes that reading a topic takes at its peak, in a process of its own, and bytes of its chunks."""
    code = "from benchmarks.logs import print_peak; import sys; print_peak(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, path, topic], capture_output=True, text=True, check=True
    )
    peak, held = map(int, done.stdout.split())
    return peak, held


def print_peak(path: str, topic: str) -> None:
    log = open_log([path])
    log.time_source(topic, ["header"])
    # What the library takes once, whatever it reads.
    decompress("lz4", lz4.frame.compress(bytes(1 << 20)), 1 << 20)
    before = highest_memory()
    messages = log.read({topic: EVERYTHING})[topic]
    messages.take(PIXELS, np.arange(len(messages)))  # views of the chunks, which hold other topics too
    print(highest_memory() - before, int(log.summary.chunk_bytes.sum()))


def highest_memory() -> int:
    """The most bytes this process ever held; getrusage would also count its parent's."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel doesn't tell VmHWM")


def count_requests(path: pathlib.Path, topic: str) -> tuple[int, int, int]:
    """Requests and bytes that 1 % of a log takes on a counting file system, and bytes of its chunks."""
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    requests: list[int] = []

    class Counting(LocalFileSystem):  # type: ignore[misc]
        protocol = "counting"

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path.removeprefix("counting://")

        def cat_file(self, path: str, start: int = 0, end: int = 0, **options: object) -> bytes:
            with pathlib.Path(self._strip_protocol(path)).open("rb") as file:
                file.seek(start)
                requests.append(end - start)
                return file.read(end - start)

    fsspec.register_implementation("counting", Counting, clobber=True)
    CHUNKS.clear()
    whole = open_log([str(path)]).summary
    start = (whole.first + whole.last) // 2
    stop = start + (whole.last - whole.first) // 100
    log = open_log([f"counting://{path}"], OpenOptions())
    log.read({topic: TopicRequest(start, stop, ("log",))})
    overlaps = (whole.chunk_times[:, 0] < stop) & (whole.chunk_times[:, 1] >= start)
    return len(requests), sum(requests), int(whole.chunk_bytes[overlaps].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--tracks", type=int, default=2000)
    parser.add_argument("--transforms", type=int, default=20_000)
    parser.add_argument("--images", type=int, default=600)
    arguments = parser.parse_args()
    folder = cache_folder()
    report = Report("Logs: topics as columns")

    def add(task: str, count: int, peers: dict[str, Callable[[], None]], limits: Sequence[str] = ()) -> None:
        contenders = {name: in_process(run) for name, run in peers.items()}
        report.add(task, count, "messages", compare(contenders, rounds=arguments.rounds), limits)

    imu, topic = workloads.imu_mcap(folder, arguments.messages), workloads.IMU_TOPIC
    count = arguments.messages
    peers = {
        "logloom": lambda: read_column(imu, topic, IMU_FIELDS),
        "mcap, raw bytes": lambda: mcap_raw(imu, topic),
        "mcap-ros2-support": lambda: mcap_ros2(imu, topic),
        "mcap-ros2-support-fast": lambda: mcap_ros2_fast(imu, topic),
        "rosbags": lambda: rosbags_cdr(imu, topic),
    }
    add(f"{count:,} IMU messages, zstd MCAP", count, peers)
    bag = imu_bag(folder, arguments.messages)
    peers = {
        "logloom": lambda: read_column(bag, topic, IMU_FIELDS),
        "rosbags": lambda: rosbags_ros1(bag, topic),
    }
    add(f"{count:,} IMU messages, ROS 1 bag with lz4", count, peers)
    tracks, tracks_topic = workloads.tracks_mcap(folder, arguments.tracks), workloads.TRACKS_TOPIC
    peers = {
        "logloom": lambda: read_column(tracks, tracks_topic, FieldSpec(("tracks",))),
        "mcap-ros2-support": lambda: mcap_ros2(tracks, tracks_topic),
        "rosbags": lambda: rosbags_cdr(tracks, tracks_topic),
    }
    count = arguments.tracks
    add(f"{count:,} lists of {workloads.NUM_TRACKS} tracks, zstd MCAP", count, peers)
    transforms, tf_topic = workloads.tf_mcap(folder, arguments.transforms), workloads.TF_TOPIC
    peers = {
        "logloom": lambda: read_column(transforms, tf_topic, FieldSpec(("transforms",))),
        "mcap-ros2-support": lambda: mcap_ros2(transforms, tf_topic),
        "mcap-ros2-support-fast": lambda: mcap_ros2_fast(transforms, tf_topic),
        "rosbags": lambda: rosbags_cdr(transforms, tf_topic),
    }
    add(f"{arguments.transforms:,} TFMessages, zstd MCAP", arguments.transforms, peers)
    images, topic = workloads.image_mcap(folder, arguments.images), workloads.IMAGE_TOPIC
    limits = {
        "lz4 and CRC-32 alone, one thread": lambda: decompress_and_check(images, 1),
        "lz4 and CRC-32 alone, two threads": lambda: decompress_and_check(images, 2),
        "the same, all of it kept": lambda: decompress_and_check(images, 2, keep=True),
    }
    peers = {
        "logloom": lambda: read_column(images, topic, PIXELS),
        "mcap, raw bytes, no CRC": lambda: mcap_raw(images, topic),
    }
    count = arguments.images
    add(f"{count} images of 640 x 480, lz4 MCAP", count, {**peers, **limits}, list(limits))
    report.finish()
    peak, held = peak_memory(images, topic)
    print(f"Peak memory: {(peak - held) / 1e6:.1f} MB above the {held / 1e6:.0f} MB of the images' chunks\n")
    requests, fetched, wanted = count_requests(images, topic)
    print(f"1 % of it: {requests} requests, {fetched / wanted:.2f} times the bytes of the overlapping chunks")


if __name__ == "__main__":
    main()
