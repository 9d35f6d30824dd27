"""A look at the beginning of a topic of video: its codec, its size, how far apart keyframes are.

Here: `glimpse`, which reads a bounded part of a log.
Elsewhere: the index of all packets (index).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import FieldSpec, Log

WINDOW_BYTES = 8 << 20
MAX_BYTES = 256 << 20  # of messages of the log, until two keyframes were seen
PACKETS = re.compile(r"CompressedVideo|FFMPEGPacket", re.IGNORECASE)  # types whose messages are packets
_EITHER = re.compile(r"CompressedImage", re.IGNORECASE)  # an image or a packet, as its format says


@dataclass(frozen=True)
class VideoGlimpse:
    """What the beginning of a topic tells.

    Attributes:
        gop: packets from a keyframe to the next, the most seen; where no next one was, those up to the end of
            what was looked at.
        gop_ns: the same in time.
        is_whole: whether a next keyframe was seen, so that GOPs are known to end.
    """

    codec: str
    width: int
    height: int
    gop: int
    gop_ns: int
    is_whole: bool

    @property
    def words(self) -> str:
        at_least = "" if self.is_whole else "at least "
        apart = f"keyframes {at_least}{self.gop} packets ({self.gop_ns / 1e9:.2f} s) apart"
        return f"{self.codec}, {self.width} x {self.height}, {apart}"


def holds_video(log: Log, topic: str) -> bool:
    """Whether the messages of a topic are packets: by their type, or by what the last one says of itself.

    Raises:
        LogReadError: the last one can't be read.
    """
    kind = log.summary.topics[topic].type
    if PACKETS.search(kind) or not _EITHER.search(kind):
        return bool(PACKETS.search(kind))
    from logloom.io.video.codecs import codec_named
    from logloom.io.video.index import text_of

    last = log.last_message(topic)
    if len(last) == 0:
        return False
    return codec_named(text_of(last.take(FieldSpec(("format",)), np.arange(1)), 0)) is not None


def glimpse(log: Log, topic: str) -> VideoGlimpse | None:
    """None where a topic holds no video, or nothing of what is looked at can be decoded."""
    try:
        if not holds_video(log, topic):
            return None
        from logloom.io.video.index import made_index  # most logs have no video

        index = made_index(log, topic, num_keys=3, window_bytes=WINDOW_BYTES, max_bytes=MAX_BYTES)
    except (LogReadError, UsageError):
        return None  # whoever reads the topic says so
    keys = index.keys["packet"]
    if len(keys) == 0:
        return None
    is_whole = len(keys) > 1
    lengths, times = index.gop_lengths(), index.packets["log_time"]
    lengths = lengths[:-1] if is_whole else lengths
    longest = int(np.argmax(lengths))
    first, stop = int(keys[longest]), int(keys[longest] + lengths[longest])
    span = int(times[min(stop, len(times) - 1)] - times[first])
    config = index.config_of(first)
    return VideoGlimpse(index.codec, config.width, config.height, int(lengths[longest]), span, is_whole)
