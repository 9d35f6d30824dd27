"""A preview of a video topic: its codec, its size, the distance of keyframes.

Here: `glimpse`, which reads a bounded part of a log.
Elsewhere: the index of all packets (index).
"""

from __future__ import annotations

import re

import numpy as np

from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import FieldSpec, Log
from logloom.values import dataclass

WINDOW_BYTES = 8 << 20
MAX_BYTES = 256 << 20  # of messages of the log, until two keyframes were seen
PACKETS = re.compile(r"CompressedVideo|FFMPEGPacket", re.IGNORECASE)  # types whose messages are packets
_EITHER = re.compile(r"CompressedImage", re.IGNORECASE)  # an image or a packet, depending on its format


@dataclass(frozen=True)
class VideoGlimpse:
    """Properties of the beginning of a topic.

    Attributes:
        gop: largest number of packets from a keyframe to the next; without a next one, those up to the end of
            the preview.
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
    """Return whether a topic's messages are packets: by their type, or by the last message.

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
    """Preview a topic; None if it has no video, or nothing in the preview can be decoded."""
    try:
        if not holds_video(log, topic):
            return None
        from logloom.io.video.index import made_index  # most logs have no video

        index = made_index(log, topic, num_keys=3, window_bytes=WINDOW_BYTES, max_bytes=MAX_BYTES)
    except (LogReadError, UsageError):
        return None  # reading the topic reports it
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
