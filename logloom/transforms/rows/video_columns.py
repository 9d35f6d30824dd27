"""Columns of compressed video: packets with a picture, and values of pictures.

Here: finding columns of video, `VideoValues`, which serves the pieces of a span in order.
Elsewhere: packets and decoding (logloom.io.video), pieces (logloom.transforms.rows.topic_columns),
pixels (logloom.io.logs.messages.images).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values
from logloom.errors import LogReadError
from logloom.io.logs.interface import Log
from logloom.io.logs.messages import images
from logloom.io.logs.messages.adapters import KEYFRAME, PACKETS, VIDEO
from logloom.io.video.frames import Frames, Packets, pyav, rgb
from logloom.io.video.index import VideoIndex, video_index
from logloom.transforms.rows.plan.row_plan import ColumnPlan, RowPlan

_UNKNOWN = "it isn't in the index of its topic"
_NAME = "video"  # encoding of its pixels, for errors


def is_video(column: ColumnPlan) -> bool:
    """Return whether a column's values are made of packets: pictures, the packets themselves, distances to
    keyframes.
    """
    return column.spec.adapter in (VIDEO, PACKETS, KEYFRAME)


def video_topics(plan: RowPlan) -> list[str]:
    """Return the topics of video columns, in name order."""
    return sorted({column.topic for column in plan.columns if is_video(column)})


def video_values(log: Log, plan: RowPlan) -> dict[str, VideoValues]:
    """Return the video columns whose topics a log has, by name."""
    found = {column.name: video_of(log, column) for column in plan.columns}
    return {name: video for name, video in found.items() if video is not None}


def video_of(log: Log, column: ColumnPlan) -> VideoValues | None:
    """Return None if it isn't a column of video, or the log lacks its topic."""
    is_there = is_video(column) and column.topic in log.summary.topics
    return VideoValues(log, column) if is_there else None


class VideoValues:
    """Values of a video column; pictures are decoded on demand, and forward from piece to piece."""

    def __init__(self, log: Log, column: ColumnPlan):
        self._log, self._column = log, column
        self._frames: Frames | None = None
        self._packets: Packets | None = None
        self._reformatter: Any = None
        self._made: Mapping[int, NDArray[Any] | None] = {}  # by packet; None without a right picture

    @property
    def index(self) -> VideoIndex:
        """
        The index of the topic.

        Raises:
            LogReadError: the log is damaged, under `on_error` fail.
        """
        return video_index(self._log, self._column.topic)

    def refusals(self, positions: NDArray[np.int64]) -> list[str]:
        """Return why each packet is refused; "" if its picture is right, as far as headers show."""
        index, takes_all = self.index, self._column.spec.adapter == PACKETS
        numbers = index.numbers_of(positions).tolist()
        return [_UNKNOWN if n < 0 else "" if takes_all else index.reason(n) for n in numbers]

    def take(self, positions: NDArray[np.int64]) -> tuple[Values, NDArray[np.bool_]]:
        """Return the pictures of packets that aren't refused, and which of them could be decoded.

        Returns:
            Values of those that could, in the order of `positions`; (n,) which these are.

        Raises:
            LogReadError: a picture doesn't fit the column, or the log is damaged.
            UsageError: PyAV isn't installed.
        """
        numbers = self.index.numbers_of(positions).tolist()
        if self._column.spec.adapter == KEYFRAME:
            starts = self.index.packets["start"][numbers]
            return (np.array(numbers) - starts).astype(np.int32), np.ones(len(numbers), np.bool_)
        if self._column.spec.adapter == PACKETS:
            return Ragged.from_bytes([self._packet(n) for n in numbers]), np.ones(len(numbers), np.bool_)
        self._decode(sorted(set(numbers)))
        found = [self._made[number] for number in numbers]
        rows = [value for value in found if value is not None]
        ctype = self._column.message_type
        if ctype.is_ragged:
            values: Values = Ragged.from_rows(rows, ctype)
        else:
            values = np.stack(rows) if rows else np.empty((0, *ctype.tail), ctype.dtype)
        return values, np.array([value is not None for value in found], np.bool_)

    def _packet(self, number: int) -> bytes:
        """Return a packet; before a keyframe the parameters that it needs, if it lacks them."""
        if self._packets is None:
            self._packets = Packets(self._log, self._column.topic, self.index)
        data = self._packets.read(number)
        if not self.index.packets["key"][number]:
            return data
        return self.index.config_of(number).missing_from(data) + data

    def _decode(self, numbers: Sequence[int]) -> None:
        """Decode, keeping the latest pictures: the next piece begins with them, or they are needed twice."""
        made = {number: self._made[number] for number in numbers if number in self._made}
        missing = [number for number in numbers if number not in made]
        if missing and self._frames is None:
            self._frames = Frames(self._log, self._column.topic, self.index)
            self._reformatter = pyav().video.reformatter.VideoReformatter()
        if self._frames is not None:
            for number, frame in self._frames.each(missing):
                made[number] = None if frame is None else self._value(number, frame)
        self._made = made

    def _value(self, number: int, frame: Any) -> NDArray[Any]:
        column = self._column
        try:
            ctype = images.column_type(column.spec)
            return images.finished(column.spec, ctype, rgb(frame, self._reformatter), _NAME)
        except ValueError as error:
            uri = self._log.summary.uris[0]
            raise LogReadError(
                f"{uri}: column {column.name}: packet {number} of {column.topic}: {error}"
            ) from error
