"""Places of messages in the files of a log of containers, for people and other tools.

Elsewhere: positions, which are a log's own numbers (collector).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.logs.files.log_file import LogPart
from logloom.io.logs.interface import MessagePlace


def places_of(parts: Sequence[LogPart], topic: str, positions: NDArray[np.int64]) -> list[MessagePlace]:
    """Return the places of a topic's messages at these positions.

    Raises:
        UsageError: no message of the topic has the position.
        LogReadError: a chunk can't be read.
    """
    return [_place_of(parts, topic, position) for position in positions.tolist()]


def _place_of(parts: Sequence[LogPart], topic: str, position: int) -> MessagePlace:
    before = 0  # messages of the topic in earlier parts and stretches
    for part in parts:
        shares = part.shares(topic)
        starts = part.index.stretches["position"][shares["stretch"]] + (part.base << 32)
        if not (starts <= position).any() or part is not _part_of(parts, position):
            before += int(shares["count"].sum())
            continue
        start = int(starts[starts <= position].max())
        before += int(shares["count"][starts < start].sum())
        number = int(shares["stretch"][starts == start][0])
        ((_, chunk),) = part.chunks(np.array([number], np.int64))
        mine = chunk.offset[part.rows_of(chunk, topic)] + start
        if position not in mine:
            break
        origin = part.origin(number)
        offset = origin.offset_of(position)
        inside = None if origin.is_loose or origin.unit != "byte" else position - start
        return MessagePlace(origin.uri, origin.unit, offset, inside, before + int((mine < position).sum()))
    raise UsageError(f"no message of {topic} at position {position}")


def _part_of(parts: Sequence[LogPart], position: int) -> LogPart:
    """Return the part whose chunk numbers include a position's."""
    return [part for part in parts if part.base << 32 <= position][-1]
