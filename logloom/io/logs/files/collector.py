"""Collect the selected messages of one topic from consecutive chunks.

Here: `Gathering`, which results in `RawMessages`; payloads aren't copied unless they would keep much more
memory alive than they need.
Elsewhere: selecting messages (container_log, logloom.io.logs.message_times).
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.files.container import Buffer, Chunk, Int64s
from logloom.io.logs.interface import place
from logloom.io.logs.messages.raw_messages import RawMessages
from logloom.values import dataclass

SPARSE = 4  # payloads that are a smaller part of their chunk than one in this many are copied out of it


@dataclass(frozen=True)
class Origin:
    """The place of a stretch, for errors and refusals.

    Attributes:
        position: of the first byte of its buffer, in the whole log.
        unit: what `offset` counts; see `Refusal`.
    """

    uri: str
    offset: int
    position: int
    is_loose: bool
    unit: str = "byte"

    @property
    def place(self) -> str:
        if self.unit != "byte":
            return f"{self.uri}: the messages {place(self.unit, self.offset)} and behind"
        if not self.is_loose:
            return f"{self.uri}: chunk at byte {self.offset}"
        # Loose records are named by the lower half of their offset in the file.
        start = self.offset >> 32 << 32
        return f"{self.uri}: the bytes from {start}" if start else self.uri

    def offset_of(self, position: int) -> int:
        """Return the offset that identifies a message in the file: its own, or its chunk's."""
        has_own = self.is_loose or self.unit != "byte"
        return self.offset + position - self.position if has_own else self.offset


@dataclass
class Gathering:
    """The messages selected so far of one topic."""

    topic: str
    origins: list[Origin] = field(default_factory=list)
    _buffers: list[Buffer] = field(default_factory=list)
    _parts: list[tuple[Int64s, Int64s, Int64s, Int64s, Int64s]] = field(default_factory=list)

    def add(self, chunk: Chunk, rows: NDArray[np.intp], origin: Origin, is_sparse: bool) -> None:
        """Add messages of a chunk.

        Args:
            rows: which, in log order.
            is_sparse: copy their payloads, so that the chunk can be freed.
        """
        if len(rows) == 0:
            return
        whole = len(rows) == len(chunk)
        times, published, offset, start, length = (
            part if whole else part[rows]
            for part in (chunk.log_time, chunk.publish_time, chunk.offset, chunk.start, chunk.length)
        )
        buffer = chunk.buffer
        if is_sparse:
            buffer, start = _copied(buffer, start, length)
        self.origins.append(origin)
        self._buffers.append(buffer)
        self._parts.append((times, published, offset + origin.position, start, length))

    def raw(self) -> RawMessages:
        none = np.empty(0, np.int64)
        columns = [np.concatenate(part) for part in zip(*self._parts, strict=True)] or [none] * 5
        times, published, position, start, length = columns
        counts = [len(part[0]) for part in self._parts]
        buffer = np.repeat(np.arange(len(counts), dtype=np.intp), counts)
        places = [origin.place for origin in self.origins]
        return RawMessages(
            self.topic, times, published, position, self._buffers, buffer, start, length, places
        )


def is_sparse(chunk: Chunk, chosen: int) -> bool:
    """Return whether `chosen` bytes of payload are so small a part of a chunk that copying is better."""
    return SPARSE * chosen < chunk.buffer.nbytes


def _copied(buffer: Buffer, start: Int64s, length: Int64s) -> tuple[Buffer, Int64s]:
    """Copy payloads into one buffer; return it with the start of each."""
    stops = np.cumsum(length)
    starts = stops - length
    if len(length) and (length == length[0]).all() and length[0]:
        width = int(length[0])
        items = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer.data, strides=(1,))
        return items[start].view(np.uint8), starts
    where = np.arange(int(stops[-1]), dtype=np.int64) + np.repeat(start - starts, length)
    return buffer[where], starts
