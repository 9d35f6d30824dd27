"""Messages as they lie in a log, before decoding; and what a decoder offers.

Containers (mcap, rosbag1, ...) make `RawMessages`; decoders (cdr, ros1, ...) turn them into columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Values
from logloom.io.logs.interface import FieldSpec, TimeSource
from logloom.schema import ColumnType


class Parsed:
    """Objects made of messages, by position, as long as few bytes of payload stand behind them.

    Columns are taken block by block of rows, one column after the other: so all go when there are too many,
    and those of the block at hand are soon here again. Serves many threads: whoever finds none makes its own.
    """

    MAX_BYTES = 16 << 20

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._num_bytes = 0

    def get(self, position: int) -> Any | None:
        """The object made of the message there; None where none is kept.

        Args:
            position: of the message in its log.
        """
        return self._objects.get(position)

    def put(self, position: int, value: Any, num_bytes: int) -> None:
        """Keeps an object.

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
    """Payloads of one topic's messages, in log order, as ranges of the buffers that hold them.

    Attributes:
        buffers: uncompressed chunks (or stretches of a file), uint8 arrays.
        buffer: (N,) which buffer each payload lies in.
        start, length: (N,) where in that buffer.
        places: for each buffer the words for errors, e.g. "drive.mcap: chunk at byte 5312".
        remembered: what their decoder found out about them, for its next call.
        parsed: the objects that their decoder made of some of them, for its next call; shared by what is
            taken of these messages.
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
        """Where a message lies, for an error.

        Args:
            row: the message's number here.
        """
        # By position, since a payload may have been copied out of the chunk in which it lay.
        offset = int(self.position[row]) & 0xFFFFFFFF
        return f"{self.places[self.buffer[row]]}, {self.topic} message at offset {offset} in it"

    def take(self, rows: NDArray[np.intp]) -> RawMessages:
        """The given messages; buffers are shared.

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
        """The type of a column, see `Log.column_type`.

        Args:
            spec: what a column takes of a message.

        Returns:
            The type of the column's values.
        """

    def time_source(self, sources: Sequence[TimeSource]) -> TimeSource | None:
        """The first of some sources of times that the messages have, see `Log.time_source`.

        Args:
            sources: in the order in which they are wanted.
        """

    def header_time(self, raw: RawMessages) -> NDArray[np.int64]:
        """(N,) header stamps in ns; a message too short to hold one gets `MIN_TIME`.

        Args:
            raw: N messages.
        """

    def check(self, raw: RawMessages) -> NDArray[np.bool_]:
        """(N,) whether each payload has a length that fits its definition (framing, no deep decode).

        Args:
            raw: N messages.
        """

    def take(self, raw: RawMessages, spec: FieldSpec) -> Values:
        """What a column takes from all messages in `raw`, see `Messages.take`.

        Args:
            raw: N messages.
            spec: what the column takes of each.

        Returns:
            (N, *shape), or N ragged rows.
        """
