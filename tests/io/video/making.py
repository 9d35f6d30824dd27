"""Streams of video, encoded and decoded by PyAV alone; and logs of them in all types of messages."""

import functools
import pathlib
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Kind
from mcap_protobuf.writer import Writer as ProtobufWriter

from logloom.io.video.encoders import open_encoder
from tests.transforms.ros2_logs import COMPRESSED, HEADER, SECOND, START, VIDEO, header, write_log

ENCODERS = {"h264": "libx264", "h265": "libx265", "av1": "libsvtav1", "vp9": "libvpx-vp9"}
DECODERS = {"h264": "h264", "h265": "hevc", "av1": "libdav1d", "vp9": "vp9"}
STEP = SECOND // 20
FFMPEG_PACKET = (
    "ffmpeg_image_transport_msgs/msg/FFMPEGPacket",
    "std_msgs/Header header\nint32 width\nint32 height\nstring encoding\nuint64 pts\nuint8 flags\n"
    "bool is_bigendian\nuint8[] data\n" + HEADER,
)


@dataclass(frozen=True)
class Stream:
    """Packets in the order of decoding, and of each the place of its picture in the order of showing."""

    codec: str
    packets: tuple[bytes, ...]
    places: tuple[int, ...]

    def without(self, *numbers):
        kept = [i for i in range(len(self.packets)) if i not in numbers]
        return Stream(self.codec, tuple(self.packets[i] for i in kept), tuple(self.places[i] for i in kept))


def pictures(count, size=(64, 96), seed=0):
    """(height, width, 3) each: a drifting pattern with noise, so that no two are alike."""
    height, width = size
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    for i in range(count):
        wave = 127 + 100 * np.sin((x + 3 * i + seed) / 9) * np.cos((y - 2 * i) / 7)
        layers = np.stack([wave, np.roll(wave, 5 * i, 1), 0 * wave + 100 + i % 50], 2)
        yield np.clip(layers + rng.normal(0, 12, layers.shape), 0, 255).astype(np.uint8)


# Its packets come in the order of showing either way; with pred-struct=1, low delay, SVT-AV1 4.1 waits for
# ever in one stream of some hundreds.
_AV1 = {"preset": "12", "svtav1-params": "pred-struct=2:lp=1:scd=0"}
_LOW_DELAY = {
    "h264": {"preset": "ultrafast", "tune": "zerolatency", "x264-params": "scenecut=0:threads=1"},
    "h265": {
        "preset": "ultrafast",
        "x265-params": "log-level=none:scenecut=0:bframes=0:pools=1:frame-threads=1",
    },
    "av1": _AV1,
    "vp9": {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "0"},
}
REORDERED = {
    "h264": {
        "preset": "ultrafast",
        "x264-params": "bframes=3:b-adapt=0:b-pyramid=normal:scenecut=0:threads=1",
    },
    "h265": {
        "preset": "ultrafast",
        "x265-params": "log-level=none:scenecut=0:bframes=3:b-adapt=0:open-gop=0:pools=1:frame-threads=1",
    },
    "av1": _AV1,
    "vp9": {"deadline": "good", "cpu-used": "8", "lag-in-frames": "12", "auto-alt-ref": "1"},
}
OPEN_GOP = {
    "h264": {"preset": "ultrafast", "x264-params": "bframes=3:b-adapt=0:open-gop=1:scenecut=0:threads=1"},
    "h265": {
        "preset": "ultrafast",
        "x265-params": "log-level=none:scenecut=0:bframes=3:b-adapt=0:open-gop=1:pools=1:frame-threads=1",
    },
}


@functools.cache
def stream(codec, count=40, gop=15, kind="low_delay", size=(64, 96), seed=0):
    """A stream of `pictures`, of one size."""
    options = {"low_delay": _LOW_DELAY, "reordered": REORDERED, "open": OPEN_GOP}[kind][codec]
    encoder = av.CodecContext.create(ENCODERS[codec], "w")
    encoder.height, encoder.width = size
    encoder.pix_fmt, encoder.time_base, encoder.framerate = "yuv420p", Fraction(1, 20), Fraction(20)
    encoder.gop_size, encoder.thread_count = gop, 1
    encoder.options = dict(options) | ({"keyint_min": str(gop)} if codec in ("h264", "vp9") else {})
    open_encoder(encoder)
    packets = []
    for number, pixels in enumerate(pictures(count, size, seed)):
        frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuv420p")
        frame.pts = number
        packets += encoder.encode(frame)
    packets += encoder.encode(None)
    return Stream(codec, tuple(bytes(p) for p in packets), tuple(p.pts for p in packets))


def decoded(found):
    """The pixels that PyAV gives of a whole stream, by packet."""
    decoder = av.CodecContext.create(DECODERS[found.codec], "r")
    decoder.thread_count = 1
    shown = {}
    for number, data in enumerate([*found.packets, None]):
        packet = None if data is None else av.Packet(data)
        if packet is not None:
            packet.pts = number
        for frame in decoder.decode(packet):
            shown[frame.pts] = frame.to_ndarray(format="rgb24")
    return shown


def times_of(found, start=START):
    """(n,) the stamps of packets: those of their pictures."""
    return [start + place * STEP for place in found.places]


def sent_of(found, start=START):
    """(n,) when packets were recorded: in their order."""
    return [start + number * STEP + STEP // 5 for number in range(len(found.packets))]


def write_video(path, form, found, *, topic="/video", times=None, sent=None, words=None):
    """A log of one stream, as messages of a form: foxglove, protobuf, ffmpeg, compressed."""
    times, sent = times or times_of(found), sent or sent_of(found)
    if form == "protobuf":
        return _write_protobuf(path, topic, found, times, sent, words)
    rows = []
    for number, (data, time, at) in enumerate(zip(found.packets, times, sent, strict=True)):
        stamp = header(time)
        if form == "foxglove":
            message = {"timestamp": stamp["stamp"], "data": data, "format": words or found.codec}
        elif form == "ffmpeg":
            message = {"header": stamp, "width": 96, "height": 64, "encoding": words or ENCODERS[found.codec]}
            message |= {"pts": found.places[number], "flags": 0, "is_bigendian": False, "data": data}
        else:
            message = {"header": stamp, "format": words or found.codec, "data": data}
        rows.append((at, message))
    kind = {"foxglove": VIDEO, "ffmpeg": FFMPEG_PACKET, "compressed": COMPRESSED}[form]
    return write_log(pathlib.Path(path), {topic: (kind, rows)})


@functools.cache
def _compressed_video():
    """foxglove.CompressedVideo as its published definition has it."""
    file = descriptor_pb2.FileDescriptorProto(name="foxglove/CompressedVideo.proto", package="foxglove")
    file.syntax = "proto3"
    file.dependency.append("google/protobuf/timestamp.proto")
    made = file.message_type.add(name="CompressedVideo")
    optional = {"label": Kind.LABEL_OPTIONAL}
    made.field.add(
        name="timestamp", number=1, type=Kind.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", **optional
    )
    made.field.add(name="frame_id", number=2, type=Kind.TYPE_STRING, **optional)
    made.field.add(name="data", number=3, type=Kind.TYPE_BYTES, **optional)
    made.field.add(name="format", number=4, type=Kind.TYPE_STRING, **optional)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("foxglove.CompressedVideo"))


def _write_protobuf(path, topic, found, times, sent, words):
    video = _compressed_video()
    with open(path, "wb") as file:
        writer = ProtobufWriter(file)
        for data, time, at in zip(found.packets, times, sent, strict=True):
            message = video(data=data, format=words or found.codec, frame_id="camera")
            message.timestamp.FromNanoseconds(time)
            writer.write_message(topic, message, log_time=at, publish_time=at)
        writer.finish()
    return str(path)
