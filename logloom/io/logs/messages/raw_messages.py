"""Messages as stored in a log, before decoding; and the interface of decoders.

Containers (mcap, rosbag1, ...) make `RawMessages`; decoders (cdr, ros1, ...) turn them into columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Values
from logloom.io.logs.interface import FieldSpec, TimeSource
from logloom.schema import ColumnType
from logloom.values import dataclass


class Parsed:
    """Cache of objects made of messages, by position, limited by their bytes of payload.

    Columns are taken block by block of rows, one column after the other: so the cache is emptied when it is
    full, and soon has those of the current block again. Thread-safe; threads that find nothing make their own
    objects.
    """

    MAX_BYTES = 16 << 20

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._num_bytes = 0

    def get(self, position: int) -> Any | None:
        """Return the object of the message at a position; None if it isn't cached.

        Args:
            position: of the message in its log.
        """
        return self._objects.get(position)

    def put(self, position: int, value: Any, num_bytes: int) -> None:
        """Add an object.

        Args:
            position: of the message in its log.
            value: the object.
            num_bytes: the length of the message's payload.
        """
        if self._num_bytes + num_bytes > self.MAX_BYTES:
            self._objects, self._num_bytes = {}, 0
        if num_bytes <= self.MAX_BYTES:
            self._objects[position] = value
            self._num_bytes += num_bytes


@dataclass(frozen=True)
class RawMessages:
    """Payloads of one topic's messages, in log order, as ranges of buffers.

    Attributes:
        buffers: uncompressed chunks (or stretches of a file), uint8 arrays.
        buffer: (N,) index of each payload's buffer.
        start, length: (N,) place in that buffer.
        places: description of each buffer for errors, e.g. "drive.mcap: chunk at byte 5312".
        remembered: cached findings of their decoder, for its next call.
        parsed: cached objects of their decoder, for its next call; shared with subsets of these messages.
    """

    topic: str
    log_time: NDArray[np.int64]
    publish_time: NDArray[np.int64]
    position: NDArray[np.int64]
    buffers: Sequence[NDArray[np.uint8]]
    buffer: NDArray[np.intp]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    places: Sequence[str]
    remembered: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    parsed: Parsed = field(default_factory=Parsed, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.log_time)

    def place(self, row: int) -> str:
        """Describe the place of a message for an error.

        Args:
            row: the message's number here.
        """
        # By position, as a payload may have been copied out of its chunk.
        offset = int(self.position[row]) & 0xFFFFFFFF
        return f"{self.places[self.buffer[row]]}, {self.topic} message at offset {offset} in it"

    def take(self, rows: NDArray[np.intp]) -> RawMessages:
        """Return the given messages; buffers are shared.

        Args:
            rows: (n,) the messages' numbers here.
        """
        return RawMessages(
            self.topic,
            self.log_time[rows],
            self.publish_time[rows],
            self.position[rows],
            self.buffers,
            self.buffer[rows],
            self.start[rows],
            self.length[rows],
            self.places,
            parsed=self.parsed,
        )


class Decoder(Protocol):
    """Decodes messages of one type. Built once per topic from its `TopicInfo`; pure, thread-safe."""

    def column_type(self, spec: FieldSpec) -> ColumnType:
        """Return the type of a column, see `Log.column_type`.

        Args:
            spec: the values to take from a message.

        Returns:
            The type of the column's values.
        """

    def time_source(self, sources: Sequence[TimeSource]) -> TimeSource | None:
        """Return the first of some sources of times that the messages have, see `Log.time_source`.

        Args:
            sources: in order of preference.
        """

    def header_time(self, raw: RawMessages) -> NDArray[np.int64]:
        """(N,) header stamps in ns; `MIN_TIME` for messages too short to have one.

        Args:
            raw: N messages.
        """

    def check(self, raw: RawMessages) -> NDArray[np.bool_]:
        """(N,) whether each payload has a length that fits its definition (framing, no deep decode).

        Args:
            raw: N messages.
        """

    def take(self, raw: RawMessages, spec: FieldSpec) -> Values:
        """Decode a column of all messages in `raw`, see `Messages.take`.

        Args:
            raw: N messages.
            spec: the values to take from each message.

        Returns:
            (N, *shape), or N ragged rows.
        """

    def has_value(self, raw: RawMessages, spec: FieldSpec) -> NDArray[np.bool_] | None:
        """(N,) whether each message has a value for a column, see `Messages.has_value`.

        Args:
            raw: N messages.
            spec: the values to take from each message.
        """
