"""The rows of a dataset scene by scene: checked, and read once.

Here: `SceneRows`, the frames, agents and lights of a scene.
Elsewhere: reading arrays (logloom.io.formats.l5kit), what a sample makes of the rows (sampling).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.l5kit.mask import stops_of, track_twice

Interval = tuple[int, int]
# Samples hold track ids as int64, the vehicle's being -1.
_MAX_TRACK = 2**63 - 1


class SceneRows:
    """The rows of one scene, agents and lights read when they are first asked for.

    Attributes:
        frames: (F,) structured; their intervals still count from the dataset's first row.
        first_agent: the dataset's row of the scene's first agent.
    """

    def __init__(self, dataset: ChunkedDataset, interval: Interval):
        self._dataset = dataset
        self.interval = interval
        self.frames: Array = np.array(dataset.frames[interval[0] : interval[1]])
        intervals = self.frames["agent_index_interval"]
        self.first_agent = int(intervals[0, 0]) if len(self.frames) else 0
        self._source = f"{dataset.path or 'in memory'}: frames {interval[0]} to {interval[1]}"
        self.agent_stops = self._stops("agent_index_interval", len(dataset.agents))

    def _stops(self, field: str, num_rows: int) -> NDArray[np.int64]:
        """(F + 1,) where each frame's rows end, counted from the scene's first; begins with 0."""
        intervals = self.frames[field].astype(np.int64)
        first = int(intervals[0, 0]) if len(intervals) else 0
        if not 0 <= first <= num_rows:
            raise DatasetError(f"{self._source}: {field} begins at row {first} of {num_rows}")
        stops = stops_of(intervals - first, num_rows - first, f"{self._source}: {field}")
        return np.concatenate([np.zeros(1, np.int64), stops])

    @property
    def nbytes(self) -> int:
        """Of frames and agents with their index, read or not."""
        per_agent = int(self._dataset.agents.dtype.itemsize) + 40
        return int(self.frames.nbytes) + int(self.agent_stops[-1]) * per_agent

    @cached_property
    def agents(self) -> Array:
        """(A,) structured."""
        return np.array(self._dataset.agents[self.first_agent : self.first_agent + self.agent_stops[-1]])

    def agents_of(self, frame: int) -> Array:
        """The agents of a frame, a view."""
        return self.agents[self.agent_stops[frame] : self.agent_stops[frame + 1]]

    @cached_property
    def _lights(self) -> tuple[Array, NDArray[np.int64]]:
        field = "traffic_light_faces_index_interval"
        lights = self._dataset.tl_faces
        if not len(lights):  # format version 1 has no lights, whatever its frames say
            return np.array(lights[:]), np.zeros(len(self.frames) + 1, np.int64)
        stops = self._stops(field, len(lights))
        first = int(self.frames[field][0, 0]) if len(self.frames) else 0
        return np.array(lights[first : first + stops[-1]]), stops

    def tl_faces_of(self, frame: int) -> Array:
        """The traffic light faces of a frame, a view."""
        lights, stops = self._lights
        return lights[stops[frame] : stops[frame + 1]]

    @cached_property
    def _by_track(self) -> tuple[Array, Array, Array, Array]:
        """Agents sorted by track, then frame: rows, their frames; and each track's id and first place."""
        tracks = self.agents["track_id"]
        frames = np.repeat(np.arange(len(self.frames)), np.diff(self.agent_stops))
        order = np.argsort(tracks, kind="stable")  # rows are by frame already
        tracks, frames = tracks[order], frames[order]
        twice = np.flatnonzero((tracks[1:] == tracks[:-1]) & (frames[1:] == frames[:-1]))
        if twice.size:
            track, frame = int(tracks[twice[0]]), int(frames[twice[0]])
            raise track_twice(self._source, track, self.interval[0] + frame)
        ids, first = np.unique(tracks, return_index=True)
        if len(ids) and ids[-1] > _MAX_TRACK:
            raise DatasetError(f"{self._source}: track {ids[-1]}; samples number tracks up to {_MAX_TRACK}")
        return order, frames, ids, np.append(first, len(order))

    def track(self, track_id: int, start: int, stop: int) -> tuple[Array, Array]:
        """Where a track is seen within frames [start, stop).

        Returns:
            Rows of `agents` and the frame of each, ascending.
        """
        order, frames, ids, bounds = self._by_track
        place = int(np.searchsorted(ids, np.uint64(track_id)))
        if place == len(ids) or ids[place] != track_id:
            return order[:0], frames[:0]
        low, high = bounds[place], bounds[place + 1]
        first, last = low + np.searchsorted(frames[low:high], (start, stop))
        return order[first:last], frames[first:last]
