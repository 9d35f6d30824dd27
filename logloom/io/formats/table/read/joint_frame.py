"""Frames of several tables as one, so that a batch of rows of all of them is one read.

Here: `joined_frame`.
Elsewhere: frames (frames), which tables store rows in one way (plans), the loader (loader).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logloom.io.formats.table.read.frames import GroupPlaces, Ints, OpenFrame, Slot
from logloom.io.formats.table.read.plans import alike
from logloom.io.formats.table.read.range_reader import RangeReader


def joined_frame(frames: Sequence[tuple[OpenFrame, RangeReader]], reader: RangeReader) -> OpenFrame | None:
    """The rows of several frames, each with the reader that knows its blobs, one after the other.

    None where a frame is merged of several tables, or their tables store rows in different ways.
    """
    slots = [slot for frame, _ in frames for slot in frame.slots]
    descriptions = {uri: own for s in slots for uri, own in zip(s.tables, s.descriptions, strict=True)}
    if len(slots) > len(frames) or not descriptions or any(frame.steps for frame, _ in frames):
        return None
    try:
        groups = alike(list(descriptions.values())).groups
    except ValueError:
        return None
    tables = list(descriptions)
    texts = [frame.log_ids for frame, _ in frames if frame.log_ids is not None]
    stamps = [frame.stamps for frame, _ in frames if frame.stamps is not None]
    if len(texts) < len(frames) or len(stamps) < len(frames):
        return None
    slot = Slot(
        tables,
        list(descriptions.values()),
        np.array([tables.index(s.tables[n]) for s in slots for n in s.table_of_log.tolist()], np.int64),
        [log for s in slots for log in s.logs],
        _end_to_end([(s.log_codes, len(s.logs)) for s in slots]),
        np.concatenate([s.rows for s in slots]),
        {group: _joined_places([s.groups[group] for s in slots], frames, reader) for group in groups},
    )
    ids = _end_to_end([(codes, len(own)) for codes, own in texts]), [text for _, own in texts for text in own]
    return OpenFrame(sum(frame.length for frame, _ in frames), [slot], [], ids, np.concatenate(stamps))


def _joined_places(
    places: Sequence[GroupPlaces], frames: Sequence[tuple[OpenFrame, RangeReader]], reader: RangeReader
) -> GroupPlaces:
    files = [
        reader.number_of(own.uris[number])
        for place, (_, own) in zip(places, frames, strict=True)
        for number in place.files
    ]
    return GroupPlaces(
        _end_to_end([(place.codes, len(place.files)) for place in places]),
        files,
        np.concatenate([place.offsets for place in places]),
        np.concatenate([place.lengths for place in places]),
    )


def _end_to_end(codes: Sequence[tuple[Ints, int]]) -> Ints:
    """Codes into lists that follow each other, of codes into each and how long it is; -1 stays."""
    starts = np.cumsum([0, *(length for _, length in codes)])
    moved = [np.where(own < 0, -1, own + start) for (own, _), start in zip(codes, starts, strict=False)]
    return np.concatenate(moved).astype(np.int32)
