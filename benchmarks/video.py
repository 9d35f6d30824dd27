"""Pictures of compressed video from a log, beside PyAV decoding the same packets in one thread.

    python -m benchmarks.video [--codec h264] [--frames 300] [--size 720 1280] [--gop 30] [--rounds 5]

The log holds foxglove.CompressedVideo (CDR). PyAV gets the packets as bytes and gives RGB arrays; logloom
reads the log, finds the packets of each tick and makes rows with the same arrays, in partitions of 100 rows,
by one process and by two. Contenders take turns; files lie in the page cache, and the index of the video is
kept, as it is when partitions are built.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import tempfile
from collections.abc import Sequence
from fractions import Fraction

import av
import numpy as np
from mcap_ros2.writer import Writer

from benchmarks.harness import compare, in_process
from benchmarks.report import Report
from logloom.io.logs.interface import Log, OpenOptions
from logloom.io.logs.opening import open_log
from logloom.io.video.encoders import open_encoder
from logloom.io.video.index import video_index
from logloom.recipe import Recipe
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.plan.row_plan import RowPlan, Span
from logloom.transforms.rows.row_stream import build_blocks
from logloom.transforms.rows.spans import plan_spans

RECIPE = """\
name: video
logs: x
clock: {topic: /video}
columns:
  camera: {topic: /video, as: image, resample: exact}
partition: {rows: 100}
"""
BLOCK_BYTES = 64 << 20
DECODERS = {"h264": "h264", "h265": "hevc", "av1": "libdav1d", "vp9": "vp9"}
ENCODERS = {
    "h264": ("libx264", {"preset": "veryfast", "tune": "zerolatency"}),
    "h265": ("libx265", {"preset": "ultrafast", "x265-params": "log-level=none:bframes=0"}),
    "av1": ("libsvtav1", {"preset": "12", "svtav1-params": "pred-struct=1"}),
    "vp9": ("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "0"}),
}
VIDEO = "builtin_interfaces/Time timestamp\nuint8[] data\nstring format\n"
TIME = "================\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
START, STEP = 1_700_000_000, 50_000_000  # s, ns


def encoded(codec: str, frames: int, size: tuple[int, int], gop: int) -> list[bytes]:
    """Packets of a drifting pattern with noise, at about 8 Mbit/s."""
    name, options = ENCODERS[codec]
    encoder = av.CodecContext.create(name, "w")
    encoder.height, encoder.width = size
    encoder.pix_fmt, encoder.time_base, encoder.framerate = "yuv420p", Fraction(1, 20), Fraction(20)
    encoder.gop_size, encoder.bit_rate, encoder.options = gop, 8_000_000, options
    open_encoder(encoder)
    noise = np.random.default_rng(0).normal(0, 8, (*size, 3))
    y, x = np.mgrid[: size[0], : size[1]]
    packets = []
    for i in range(frames):
        wave = 127 + 100 * np.sin((x + 3 * i) / 19) * np.cos((y - 2 * i) / 17)
        pixels = np.clip(wave[:, :, None] + np.roll(noise, 7 * i, 1), 0, 255).astype(np.uint8)
        frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuv420p")
        frame.pts = i
        packets += encoder.encode(frame)
    return [bytes(packet) for packet in [*packets, *encoder.encode(None)]]


def write_log(path: str, codec: str, packets: Sequence[bytes]) -> None:
    with open(path, "wb") as file:
        writer = Writer(file)
        kind = writer.register_msgdef("foxglove_msgs/msg/CompressedVideo", VIDEO + TIME)
        for number, data in enumerate(packets):
            seconds, rest = divmod(START * 10**9 + number * STEP, 10**9)
            message = {"timestamp": {"sec": seconds, "nanosec": rest}, "data": data, "format": codec}
            time = seconds * 10**9 + rest
            writer.write_message("/video", kind, message, log_time=time, publish_time=time)
        writer.finish()


def by_pyav(codec: str, packets: Sequence[bytes]) -> int:
    """All pictures, one at a time, as who decodes by hand has them."""
    decoder = av.CodecContext.create(DECODERS[codec], "r")
    decoder.thread_count = 1
    count = 0
    for data in [*packets, None]:
        for frame in decoder.decode(None if data is None else av.Packet(data)):
            count += len(frame.to_ndarray(format="rgb24")) > 0
    return count


def opened(path: str, folder: str) -> tuple[Log, RowPlan, list[Span]]:
    log = open_log([path], OpenOptions(sidecars=folder))
    plan, _ = resolve(Recipe.from_yaml(RECIPE), {"drive": log})
    video_index(log, "/video")
    return log, plan, plan_spans(log.summary, plan)


def by_logloom(path: str, folder: str, numbers: Sequence[int] | None = None) -> int:
    """The rows of some partitions; of all of them without `numbers`."""
    log, plan, spans = opened(path, folder)
    count = 0
    for span in spans if numbers is None else [spans[i] for i in numbers]:
        for block in build_blocks(log, "drive", plan, span, max_bytes=BLOCK_BYTES):
            count += int(np.count_nonzero(block.columns["camera.available"]))
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--codec", choices=sorted(DECODERS), default="h264")
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--size", type=int, nargs=2, default=(720, 1280), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--gop", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    codec = arguments.codec
    packets = encoded(codec, arguments.frames, tuple(arguments.size), arguments.gop)
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool,
    ):
        path, index = f"{folder}/drive.mcap", f"{folder}/index"
        write_log(path, codec, packets)
        halves = np.array_split(np.arange(len(opened(path, index)[2])), 2)

        def by_two() -> int:
            return sum(pool.map(by_logloom, [path] * 2, [index] * 2, [half.tolist() for half in halves]))

        counts = {by_pyav(codec, packets), by_logloom(path, index), by_two()}
        if counts != {arguments.frames}:
            raise RuntimeError(f"contenders gave {sorted(counts)} pictures of {arguments.frames}")
        samples = compare(
            {
                "logloom": in_process(lambda: by_logloom(path, index)),
                "PyAV": in_process(lambda: by_pyav(codec, packets)),
                "logloom, 2 workers": in_process(by_two),
            },
            rounds=arguments.rounds,
        )
    height, width = arguments.size
    report = Report(f"Video: {arguments.codec}, {width} x {height}, GOP {arguments.gop}")
    report.add("pictures", arguments.frames, "frames", samples)
    report.finish()


if __name__ == "__main__":
    main()
