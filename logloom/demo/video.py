"""Cameras of the synthetic drives that record video: their encoders.

Elsewhere: what they see (sensors), the messages that hold packets (messages).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.extras import needed

GOP = 10  # packets from keyframe to keyframe
# FFmpeg's encoder of each codec, and options with which it gives a packet for each picture, always the same.
_ENCODERS = {
    "h264": (
        "libx264",
        {
            "preset": "veryfast",
            "tune": "zerolatency",
            "crf": "20",
            "x264-params": "scenecut=0:threads=1:sliced-threads=0",
            "keyint_min": str(GOP),
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
        {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "0", "crf": "24", "keyint_min": str(GOP)},
    ),
}


class VideoEncoder:
    """Encodes the pictures of one camera, in order. Needs the extra `video`."""

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
        encoder.gop_size, encoder.thread_count, encoder.bit_rate = GOP, 1, 800_000
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
