"""Decode pictures of packets forward, once, from the keyframe that each needs.

Here: `Frames`, by PyAV.
Elsewhere: packets with a right picture, and where decoding begins (index), columns of pictures
(logloom.transforms.rows.video_columns).

Decoders run in one thread and on the CPU, so that pictures have the same bits each time. A picture is
identified by its packet's number, which passes through the decoder as its time stamp: decoders return none,
one or several pictures per packet, in display order.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import LogReadError, UsageError
from logloom.extras import needed
from logloom.io.logs.interface import FieldSpec, Log, TopicRequest
from logloom.io.video.bits import MAX_PIXELS
from logloom.io.video.codecs import CODECS
from logloom.io.video.index import VideoIndex, packet_bytes

READ_BYTES = 32 << 20  # of packets that are read at a time
READ_PACKETS = 512
UNDECODABLE = "its picture can't be decoded"
MAX_DELAY = 64  # packets to feed beyond the requested picture; no decoder reorders over more than 16
# Errors aren't concealed: a picture is right, or missing. Without `strict`, decoders guess the display order
# that H.264 doesn't declare, and drop pictures that prove the guess wrong.
_OPTIONS = {"err_detect": "explode", "strict": "1"}
_BY_CODEC: dict[str, dict[str, str]] = {"av1": {}}


class Frames:
    """Decodes packets of a topic in ascending order; keeps its decoder from call to call.

    Not thread-safe.
    """

    def __init__(self, log: Log, topic: str, index: VideoIndex):
        """
        Raises:
            UsageError: PyAV isn't installed, or can't decode the codec.
        """
        self._log, self._topic, self._index = log, topic, index
        self._packets = Packets(log, topic, index)
        self._decoder: Any = None
        self._first = self._next = 0  # the packet that the decoder began with, and the next one to feed
        self._wanted = 0  # the requested picture; earlier ones aren't kept
        self._asked = -1  # the last picture that was returned
        self._ready: dict[int, Any] = {}
        self._damaged: list[int] = []
        self.num_decoded = 0  # packets that were fed, for tests and benchmarks
        self._av = pyav()
        if index.codec:
            check_decoder(index.codec)

    def each(self, numbers: Sequence[int]) -> Iterator[tuple[int, Any | None]]:
        """Yield the pictures of packets, as av.VideoFrame; None for those that aren't right.

        Args:
            numbers: of packets that aren't refused, ascending.

        Raises:
            LogReadError: the log is damaged, under `on_error` fail.
        """
        # Pictures that lead a keyframe need an earlier one, so look ahead when starting.
        start = self._index.packets["start"][np.asarray(numbers, np.intp)]
        begins = np.minimum.accumulate(start[::-1])[::-1].tolist()
        for number, begin in zip(numbers, begins, strict=True):
            self._wanted = number
            self._ready = {n: frame for n, frame in self._ready.items() if n >= number}
            yield number, self._picture(number, begin)
            self._asked = number

    def _picture(self, number: int, begin: int) -> Any | None:
        if number not in self._ready and not self._is_damaged(number):
            self._go_on(number, begin)
            if self._decoder is None and self._next <= number:  # a packet that it doesn't need is damaged
                self._go_on(number, int(self._index.packets["start"][number]))
        return None if self._is_damaged(number) else self._ready.get(number)

    def _go_on(self, number: int, begin: int) -> None:
        self._seek(number, begin)
        while self._is_awaited(number):
            self._step(number)

    def _is_awaited(self, number: int) -> bool:
        """Return whether the decoder may still return a picture; else the rest would be decoded and kept."""
        is_open = number not in self._ready and not self._is_damaged(number)
        return is_open and self._decoder is not None and self._next <= number + MAX_DELAY

    def _is_damaged(self, number: int) -> bool:
        """Return whether a packet that the picture may need couldn't be decoded.

        It doesn't need those that lead its keyframe, which aren't fed when starting there.
        """
        starts = self._index.packets["start"]
        start = int(starts[number])
        at, stop = bisect.bisect_left(self._damaged, start), bisect.bisect_right(self._damaged, number)
        return any(starts[damaged] >= start for damaged in self._damaged[at:stop])

    def _seek(self, number: int, begin: int) -> None:
        """Restart if the decoder can't continue to a picture, or would only skip others."""
        if self._decoder is not None and self._asked < number and self._first <= begin <= self._next:
            return
        self._drain()
        self._first = self._next = begin
        self._ready, self._asked = {}, -1
        codec = CODECS[self._index.codec]
        context = self._av.CodecContext.create(codec.decoder, "r")
        context.thread_count = 1
        context.thread_type = "NONE"
        context.options = _BY_CODEC.get(codec.name, _OPTIONS) | {"max_pixels": str(MAX_PIXELS)}
        self._decoder = context

    def _step(self, number: int) -> None:
        """Feed one more packet; or drain the decoder if nothing may follow."""
        packets = self._index.packets
        fed = self._next
        is_refused = fed < len(packets) and packets["start"][fed] < 0 and not packets["feeds"][fed]
        if fed >= len(packets) or (is_refused and fed > number):
            self._drain()
            return
        self._next += 1
        # Neither refused packets nor those leading the keyframe that the decoder began with can be decoded.
        if is_refused or 0 <= packets["start"][fed] < self._first:
            return
        data = self._packets.read(fed)
        if fed == self._first:
            data = self._index.config_of(fed).missing_from(data) + data
        packet = self._av.Packet(data)
        packet.pts = packet.dts = fed
        self.num_decoded += 1
        try:
            self._take(self._decoder.decode(packet))
        except (self._av.error.FFmpegError, ValueError):
            bisect.insort(self._damaged, fed)
            self._drain()

    def _drain(self) -> None:
        """Drain the decoder and discard it."""
        if self._decoder is None:
            return
        with contextlib.suppress(self._av.error.FFmpegError, ValueError):  # what is missing is unavailable
            self._take(self._decoder.decode(None))
        self._decoder = None

    def _take(self, frames: Sequence[Any]) -> None:
        for frame in frames:
            if frame.pts is None:
                continue
            if frame.is_corrupt:
                bisect.insort(self._damaged, frame.pts)
            elif frame.pts >= self._wanted:
                self._ready[frame.pts] = frame


class Packets:
    """Bytes of packets, read in batches."""

    def __init__(self, log: Log, topic: str, index: VideoIndex):
        self._log, self._topic, self._index = log, topic, index
        self._found: dict[int, bytes] = {}

    def read(self, number: int) -> bytes:
        """Read one packet, and those after it for later calls.

        Raises:
            LogReadError: the log is damaged, or changed since its index was made.
        """
        if number not in self._found:
            self._found = self._stretch(number)
        if number not in self._found:
            uri = self._log.summary.uris[0]
            raise LogReadError(
                f"{uri}: {self._topic}: packet {number} of its index doesn't exist, so the log has changed; "
                "remove index/ in the root and build again"
            )
        return self._found[number]

    def _stretch(self, number: int) -> dict[int, bytes]:
        packets = self._index.packets[number : number + READ_PACKETS]
        count = max(1, int(np.searchsorted(np.cumsum(packets["size"].astype(np.int64)), READ_BYTES)))
        times = packets["log_time"][:count]
        request = TopicRequest(int(times[0]), int(times[-1]) + 1, ("log",), 0)
        messages = self._log.read({self._topic: request})[self._topic]
        numbers = self._index.numbers_of(messages.position)
        wanted = np.flatnonzero((numbers >= number) & (numbers < number + count))
        data = messages.take(FieldSpec(("data",)), wanted)
        return {int(numbers[row]): packet_bytes(data, i) for i, row in enumerate(wanted.tolist())}


def pyav() -> Any:
    """
    Import PyAV.

    Raises:
        UsageError: it isn't installed; names the extra.
    """
    with needed("PyAV, which decodes video,", "video"):
        import av
        import av.error
    return av


def check_decoder(codec: str) -> None:
    """
    Check that PyAV has a decoder.

    Raises:
        UsageError: PyAV was built without a decoder of the codec.
    """
    av, name = pyav(), CODECS[codec].decoder
    if name not in av.codecs_available:
        raise UsageError(
            f"PyAV {av.__version__} has no decoder of {codec} ({name}); pip install 'logloom[video]' "
            "installs one that has"
        )


def rgb(frame: Any, reformatter: Any) -> NDArray[np.uint8]:
    """Convert a picture to (height, width, 3), as frame.to_ndarray(format="rgb24") does."""
    pixels: NDArray[np.uint8] = reformatter.reformat(frame, format="rgb24").to_ndarray()
    return pixels
