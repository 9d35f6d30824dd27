"""Video codecs in logs: their names in messages, packet readers and decoders.

Elsewhere: the packets (h264, h265, av1, vp9), decoding (frames).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from logloom.io.video.av1 import Av1
from logloom.io.video.bits import PacketReader
from logloom.io.video.h264 import H264
from logloom.io.video.h265 import H265
from logloom.io.video.vp9 import Vp9
from logloom.values import dataclass


@dataclass(frozen=True)
class Codec:
    """One codec.

    Attributes:
        name: for people, and in sidecar indices.
        words: its names in messages, including encoders: "h264", "avc1", "libx264", "hevc_nvenc".
        decoder: FFmpeg's name of its decoder.
        reader: makes the reader for packets of a topic.
    """

    name: str
    words: re.Pattern[str]
    decoder: str
    reader: Callable[[], PacketReader]


CODECS = {
    codec.name: codec
    for codec in (
        Codec("h264", re.compile(r"h\.?264|x264|avc", re.IGNORECASE), "h264", H264),
        Codec("h265", re.compile(r"h\.?265|x265|hevc|hvc1|hev1", re.IGNORECASE), "hevc", H265),
        Codec("av1", re.compile(r"av1|av01|dav1d", re.IGNORECASE), "libdav1d", Av1),
        Codec("vp9", re.compile(r"vp-?0?9", re.IGNORECASE), "vp9", Vp9),
    )
}


def codec_named(words: str) -> Codec | None:
    """Return the codec of a message's format or encoding; None if it is unknown.

    >>> codec_named("libx264").name, codec_named("hevc;yuv420p;bgr8;bgr8").name
    ('h264', 'h265')
    >>> codec_named("jpeg; bgr8") is None
    True
    """
    return next((codec for codec in CODECS.values() if codec.words.search(words)), None)
