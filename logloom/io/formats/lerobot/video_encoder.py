"""Video of one camera: encode pictures, copy a log's packets, join packets.

Here: `RunEncoder`, `RunCopier`, `RunPackets`, `joined`, and `encoder_digest`.
Elsewhere: options (options), pictures of videos (video_reader).

Frames without a gap between them are a run, and each run is an MP4 file of its own: it begins with a
keyframe, and its packets are contiguous, the n-th being the n-th frame. Encoders run in one thread, and no
frame is shown later than one that follows it; so equal pictures give equal bytes.
"""

from __future__ import annotations

import functools
import os
import pathlib
import tempfile
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.formats.lerobot.options import VideoOptions
from logloom.io.video.bits import CLOSED, MAX_PIXELS
from logloom.io.video.codecs import CODECS
from logloom.io.video.encoders import open_encoder
from logloom.io.video.frames import check_decoder, pyav
from logloom.values import dataclass

_ENCODERS = {"av1": "libsvtav1", "h264": "libx264"}
_PIXELS = "yuv420p"
_RAW = {"av1": "obu", "h264": "h264"}  # FFmpeg's names of packets end to end
_BEGINNINGS = {"av1": (b"\x12\0",), "h264": (b"\0\0\1", b"\0\0\0\1")}
_PLAIN = {"fflags": "+bitexact"}  # without the name of the software that wrote it


def _options_of(video: VideoOptions) -> dict[str, str]:
    own = {"crf": str(video.crf), "g": str(video.gop)}
    if video.codec == "av1":
        return {**own, "preset": str(video.preset), "svtav1-params": "lp=1"}
    plain = {"x264-params": "asm=avx2"} if _has_avx512() else {}
    return {**own, **plain, "bf": "0", "sc_threshold": "0", "keyint_min": str(video.gop), "threads": "1"}


@functools.cache
def _has_avx512() -> bool:
    """Whether x264 would use AVX-512, with which one encoding in 500 differs on a machine that is busy."""
    cpus = pathlib.Path("/proc/cpuinfo")
    return cpus.is_file() and " avx512f " in cpus.read_text(encoding="ascii", errors="replace")


@dataclass(frozen=True)
class RunPackets:
    """The offsets of a run's packets in its file.

    Attributes:
        offset: of the first one.
        sizes: (n,) bytes of each.
        keys: (n,) which are keyframes.
        head: digest of the parameters that decoders need before the first packet.
    """

    offset: int
    sizes: NDArray[np.int64]
    keys: NDArray[np.bool_]
    head: str


class RunEncoder:
    """Writes the frames of a run as an MP4 file."""

    def __init__(self, path: pathlib.Path, video: VideoOptions, fps: int, shape: tuple[int, int]):
        """Creates the file.

        Args:
            shape: height and width of the pictures.

        Raises:
            UsageError: PyAV isn't installed, or can't encode such pictures.
        """
        self._av, self._path, self._shape, self._video = pyav(), path, shape, video
        name = _ENCODERS[video.codec]
        if name not in self._av.codecs_available:
            raise UsageError(
                f"PyAV {self._av.__version__} has no encoder of {video.codec} ({name}); "
                "pip install 'logloom[video]' brings one that has"
            )
        os.environ.setdefault("SVT_LOG", "1")  # otherwise SVT-AV1 prints its version for each file
        self._frames = 0
        self._file = self._av.open(str(path), "w", format="mp4", options=_PLAIN)
        self._stream = self._file.add_stream(name, rate=fps, options=_options_of(video))
        self._stream.height, self._stream.width = shape
        self._stream.pix_fmt = _PIXELS
        context = self._stream.codec_context
        context.thread_count = 1
        context.time_base = self._time_base = Fraction(1, fps)
        context.flags |= self._av.codec.context.Flags.closed_gop

    def add(self, picture: Any) -> None:
        """Takes the next frame, a PIL image.

        Raises:
            UsageError: the encoder refuses it.
        """
        frame = self._av.VideoFrame.from_image(picture.convert("RGB"))
        frame.pts, frame.time_base = self._frames, self._time_base
        self._mux(frame)
        self._frames += 1

    def _mux(self, frame: Any) -> None:
        context = self._stream.codec_context
        try:
            if not context.is_open:
                open_encoder(context)
            self._file.mux(self._stream.encode(frame))
        except (self._av.error.FFmpegError, ValueError) as error:
            height, width = self._shape
            raise UsageError(
                f"outputs: lerobot: {self._video.codec} can't encode pictures of {height} x {width} "
                f"({error}); `resize` them to an even height and width of 64 or more"
            ) from error

    def close(self) -> RunPackets:
        """Finishes the file.

        Raises:
            UsageError: the encoder doesn't give a packet for each frame, in their order.
        """
        self._mux(None)
        self._file.close()
        return _packets_of(self._path, self._frames, self._video)


class RunCopier:
    """Writes the packets of a run, unchanged from a log, as an MP4 file; decodes them to count pixels."""

    def __init__(self, path: pathlib.Path, video: VideoOptions, fps: int, column: str):
        """
        Args:
            column: of the packets, for messages.

        Raises:
            UsageError: PyAV isn't installed, or can't decode them.
        """
        self._av, self._path, self._video, self._fps, self._column = pyav(), path, video, fps, column
        check_decoder(video.codec)
        codec = CODECS[video.codec]
        self._reader = codec.reader()
        self._decoder = self._av.CodecContext.create(codec.decoder, "r")
        self._decoder.thread_count, self._decoder.thread_type = 1, "NONE"
        self._decoder.options = {"max_pixels": str(MAX_PIXELS)}
        self._raw = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this
        self._sizes: list[int] = []
        self._keys: list[bool] = []
        self._last_key = self._shown = 0

    def add(self, data: bytes, place: str) -> list[Any]:
        """Add the next packet; return the pictures, (height, width, 3) uint8, that are decoded so far.

        Args:
            place: for messages.

        Raises:
            UsageError: it can't be copied; with the reason, and what to do.
        """
        try:
            look = self._reader.look(data)
        except ValueError as error:
            raise self._refused(place, str(error)) from error
        is_key = look.key == CLOSED
        since = 0 if is_key or not self._keys else len(self._keys) - self._last_key
        if look.pictures != 1 or look.reason or look.repeats:
            raise self._refused(
                place, look.reason or ("it comes twice" if look.repeats else "it has no picture")
            )
        if not self._keys and not is_key:
            raise self._refused(place, "it is no keyframe, and nothing before it is here")
        if since >= self._video.gop:
            raise self._refused(
                place, f"the keyframe before it is {since} frames away, gop: {self._video.gop}"
            )
        self._last_key = len(self._keys) - since
        self._raw.write(data)
        self._sizes.append(len(data))
        self._keys.append(is_key)
        return self._decoded(data, place)

    def flush(self, place: str) -> list[Any]:
        """Return the remaining pictures, after the last packet; raises as `add`."""
        found = self._decoded(None, place)
        if self._shown != len(self._sizes):
            raise self._refused(place, f"{self._shown} pictures of {len(self._sizes)} packets before it")
        return found

    def _decoded(self, data: bytes | None, place: str) -> list[Any]:
        packet = None if data is None else self._av.Packet(data)
        if packet is not None:
            packet.pts = packet.dts = len(self._sizes) - 1
        try:
            frames = self._decoder.decode(packet)
        except (self._av.error.FFmpegError, ValueError) as error:
            raise self._refused(place, f"it can't be decoded ({error})") from error
        found = []
        for frame in frames:
            if frame.pts != self._shown or frame.is_corrupt:
                raise self._refused(
                    place, "pictures are damaged, or shown in another order than packets come"
                )
            self._shown += 1
            found.append(frame.to_ndarray(format="rgb24"))
        return found

    def _refused(self, place: str, why: str) -> UsageError:
        return UsageError(
            f"outputs: lerobot: {place}: {self._column}: this packet can't be copied as {self._video.codec}: "
            f"{why}; copying requires a log in one partition, and `gop` as the log has it; or encode anew by "
            "`as: image`"
        )

    def close(self) -> RunPackets:
        """Finishes the file, after `flush`.

        Raises:
            UsageError: the packets make no MP4 file.
        """
        self._raw.seek(0)
        try:
            with (
                self._av.open(self._raw, format=_RAW[self._video.codec]) as template,
                self._av.open(str(self._path), "w", format="mp4", options=_PLAIN) as file,
            ):
                stream = file.add_stream_from_template(template.streams.video[0], opaque=True)
                self._raw.seek(0)
                packets = (
                    (self._raw.read(size), key) for size, key in zip(self._sizes, self._keys, strict=True)
                )
                _mux_all(file, stream, packets, self._fps)
        except (self._av.error.FFmpegError, ValueError, IndexError) as error:
            raise self._refused("", f"they make no MP4 file ({error})") from error
        self._raw.close()
        return _packets_of(self._path, len(self._sizes), self._video)


def is_packet(data: bytes, codec: str) -> bool:
    """Whether bytes are a packet of video; no image file begins in the same way.

    >>> is_packet(bytes([0, 0, 0, 1, 103]), "h264"), is_packet(bytes([255, 216, 255]), "h264")
    (True, False)
    """
    return data.startswith(_BEGINNINGS[codec])


def _packets_of(path: pathlib.Path, frames: int, video: VideoOptions) -> RunPackets:
    """Find the packets of a run's file.

    Raises:
        UsageError: they aren't one for each frame, in their order.
    """
    with pyav().open(str(path)) as file:
        stream = file.streams.video[0]
        found = [(p.pos, p.size, p.is_keyframe, p.pts) for p in file.demux(stream) if p.size]
        head = blake3(bytes(stream.codec_context.extradata or b"")).hexdigest()
    places, sizes, keys, times = (np.array(column) for column in zip(*found, strict=True))
    ends = places + sizes
    if len(found) != frames or (places[1:] != ends[:-1]).any() or (np.diff(times) <= 0).any() or not keys[0]:
        raise UsageError(f"outputs: lerobot: {video.codec}: frames come out of order")
    return RunPackets(int(places[0]), sizes.astype(np.int64), keys.astype(bool), head)


def _mux_all(file: Any, stream: Any, packets: Iterable[tuple[bytes, bool]], fps: int) -> None:
    """Writes packets, a frame each, to a stream of an open file."""
    step = stream.time_base = Fraction(1, fps)
    for number, (data, is_key) in enumerate(packets):
        packet = pyav().Packet(data)
        packet.stream, packet.time_base = stream, step
        packet.pts = packet.dts = number
        packet.duration, packet.is_keyframe = 1, is_key
        file.mux(packet)


def joined(run: Any, packets: Iterable[tuple[bytes, bool]], fps: int) -> bytes:
    """Join packets of several runs, a frame each, to an MP4 file without encoding them again.

    Args:
        run: a file object of one of the runs, with the parameters for decoders.
        packets: each with whether it is a keyframe, as the first one is.
    """
    av = pyav()
    with tempfile.TemporaryDirectory(prefix="logloom-") as folder:
        path = pathlib.Path(folder) / "video.mp4"
        with (
            av.open(run) as template,
            av.open(str(path), "w", format="mp4", options={**_PLAIN, "movflags": "faststart"}) as file,
        ):
            stream = file.add_stream_from_template(template.streams.video[0], opaque=True)
            _mux_all(file, stream, packets, fps)
        return path.read_bytes()


@functools.cache
def encoder_digest(codec: str) -> str:
    """Digest that identifies an encoder: its software, and its output for some pictures."""
    from PIL import Image

    pyav()  # says how to install it
    from av import __version__, library_versions

    pixels = np.random.default_rng(0).integers(0, 256, (6, 64, 64, 3), np.uint8)
    with tempfile.TemporaryDirectory(prefix="logloom-") as folder:
        path = pathlib.Path(folder) / "video.mp4"
        encoder = RunEncoder(path, VideoOptions(codec=codec), 10, (64, 64))  # type: ignore[arg-type]
        for picture in pixels:
            encoder.add(Image.fromarray(picture))
        packets = encoder.close()
        data = path.read_bytes()[packets.offset :][: int(packets.sizes.sum())]
    versions = str(sorted(library_versions.items()))
    return blake3(f"{__version__} {versions} {packets.head}".encode() + data).hexdigest()
