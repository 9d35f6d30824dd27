"""Random access to the pictures of a video, decoded from the keyframe before each.

Here: `VideoFile`.
Elsewhere: which frame of which file a row is (reader), writing videos (video_encoder).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Ragged
from logloom.errors import DatasetError, LogloomError
from logloom.io.storage.files import File
from logloom.io.storage.locks import Lock
from logloom.io.storage.remote.range_file import RangedFile
from logloom.io.video.bits import MAX_PIXELS
from logloom.io.video.frames import pyav, rgb
from logloom.schema import BYTES


class VideoFile:
    """The frames of an MP4 file, by their number. Serves many threads, one at a time."""

    def __init__(self, file: File, fps: float, shape: Sequence[int]):
        """Opens nothing yet.

        Args:
            shape: height, width and channels in the dataset's metadata.
        """
        self._file, self._fps, self._shape = file, fps, tuple(shape)
        self._lock = Lock()
        self._opened: Any = None
        self._reformatter: Any = None
        self._source: RangedFile | None = None
        self._frames: Iterator[Any] = iter(())
        self._next = -1  # the next frame of the decoder; -1 if unknown
        self._key = 0  # the keyframe that it gave last

    def pictures(self, numbers: Sequence[int]) -> Array:
        """Decode frames, by ascending numbers: (n, height, width, 3) uint8.

        Raises:
            DatasetError: the file is damaged, or has no such frame.
            StorageError: it can't be read.
        """
        found = np.empty((len(numbers), *self._shape), np.uint8)
        with self._lock:
            for place, number in enumerate(numbers):
                found[place] = self._picture(number)
        return found

    def packets(self, start: int, stop: int) -> Ragged:
        """Read the packets of frames [start, stop), where the n-th packet is the n-th frame.

        Raises:
            DatasetError: the file is damaged, or has fewer frames.
        """
        found: list[Array] = []
        with self._lock, self._explained(start):
            container, stream = self._open()
            self._next = -1
            container.seek(self._time(stream, start), stream=stream, backward=True)
            for packet in container.demux(stream):
                number = self._number(packet, stream)
                if number is not None and start <= number < stop:
                    found.append(np.frombuffer(bytes(packet), np.uint8))
                if len(found) == stop - start:
                    return Ragged.from_rows(found, BYTES)
            raise ValueError(f"{len(found)} of {stop - start} frames are there")

    def _number(self, shown: Any, stream: Any) -> int | None:
        """The number of a packet or frame; None where it is none, as at the end."""
        return None if shown.pts is None else round(float(shown.pts * stream.time_base) * self._fps)

    def _picture(self, number: int) -> Array:
        with self._explained(number):
            container, stream = self._open()
            # Skipping frames costs as much as decoding from a keyframe, as far as one was seen.
            if not 0 <= self._next <= number <= self._next + max(1, self._next - self._key):
                container.seek(self._time(stream, number), stream=stream, backward=True)
                self._frames = self._decoded(container, stream)
            for at, frame in self._frames:
                self._next, self._key = at + 1, at if frame.key_frame else self._key
                if at == number:
                    if (frame.height, frame.width, 3) != self._shape:
                        raise DatasetError(
                            f"{self._file.name}: frames of {frame.height} x {frame.width}, the dataset has "
                            f"{self._shape}"
                        )
                    return rgb(frame, self._reformatter)
                if at > number:
                    break
            raise ValueError("there is no such frame")

    @contextlib.contextmanager
    def _explained(self, number: int) -> Iterator[None]:
        """Name file and frame in errors of the block; the next call opens the file again."""
        av = pyav()
        try:
            yield
        except (av.error.FFmpegError, ValueError, OSError, EOFError) as error:
            failed = self._source.error if self._source is not None else None
            self._close()
            if failed is not None:
                raise failed from error
            raise DatasetError(f"{self._file.name}: frame {number} can't be decoded ({error})") from error
        except LogloomError:
            self._close()
            raise

    def _open(self) -> tuple[Any, Any]:
        """The container and its stream, opened by this process."""
        pid = os.getpid()
        if self._opened is None or self._opened[0] != pid:
            self._source = self._file.as_stream()
            self._next = -1
            av = pyav()
            container = av.open(self._source, format="mp4")
            if not container.streams.video:
                raise DatasetError(f"{self._file.name}: no video in it")
            stream = container.streams.video[0]
            stream.thread_count, stream.thread_type = 1, "NONE"
            if stream.width * stream.height > MAX_PIXELS:
                raise DatasetError(f"{self._file.name}: claims {stream.height} x {stream.width} pixels")
            self._opened, self._reformatter = (
                (pid, container, stream),
                av.video.reformatter.VideoReformatter(),
            )
        return self._opened[1], self._opened[2]

    def _time(self, stream: Any, number: int) -> int:
        """The time of a frame in the stream's units, a little later, so that rounding loses no keyframe."""
        return int((number + 0.25) / self._fps / stream.time_base)

    def _decoded(self, container: Any, stream: Any) -> Iterator[tuple[int, Any]]:
        for frame in container.decode(stream):
            number = self._number(frame, stream)
            if number is not None:
                yield number, frame

    def _close(self) -> None:
        self._opened, self._frames, self._next = None, iter(()), -1
