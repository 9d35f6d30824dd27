"""Masks of agents: counts of frames where an agent remains well visible.

A mask has two counts for each agent of a frame: of frames before it, and of frames after it.

Here: `compute_agents_mask` over a whole dataset, `mask_of_rows` over some of its agents, and what both need.
Elsewhere: masks in datasets that are built (mask_chunks), masks kept for training (logloom.datasets.l5kit).

A run is a track in consecutive frames of a scene. An agent that is improbable or far from the vehicle ends
its run and counts 0; a jump of yaw or area, or no area at all, starts another.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.cpus import available_cpus
from logloom.errors import DatasetError
from logloom.io.formats.l5kit.chunked_dataset import ChunkedDataset
from logloom.io.formats.l5kit.rows import ReadRows
from logloom.io.storage.threads import in_threads
from logloom.values import dataclass

# The labels of things that drive, ride or walk: from PERCEPTION_LABEL_CAR to PERCEPTION_LABEL_ANIMAL.
AGENT_LABELS = slice(3, 16)
MIN_AREA_M2 = 0.01
# Batches of this size stay in a core's cache.
BATCH_ROWS = 1 << 14
# Frames read at a time where runs leave the agents that are asked for.
MARGIN_FRAMES = 100


@dataclass(frozen=True)
class MaskThresholds:
    """What ends an agent's run of good frames.

    Attributes:
        agent_probability: the probability to be an agent has to be above.
        yaw_degrees: a turn from frame to frame has to be below.
        extent_ratio: a growth or shrinkage of the area from frame to frame has to be below.
        ego_distance_m: the distance to the vehicle has to be below.
    """

    agent_probability: float = 0.5
    yaw_degrees: float = 30.0
    extent_ratio: float = 1.1
    ego_distance_m: float = 50.0


def are_agents(label_probabilities: Array, threshold: float) -> NDArray[np.bool_]:
    """Which of (N, 17) label probabilities are those of agents."""
    # Label after label: in the order in which the original adds them, sums at the threshold are the same.
    by_label = np.ascontiguousarray(label_probabilities[:, AGENT_LABELS].T)
    likely: NDArray[np.bool_] = by_label.sum(axis=0) > threshold
    return likely


def stops_of(intervals: Array, num_rows: int, source: str) -> NDArray[np.int64]:
    """The end of each interval, all of them contiguous over an array.

    Args:
        intervals: (N, 2) half-open.
        num_rows: of the array that they divide.
        source: names the dataset and the field, for errors.

    Raises:
        DatasetError: an interval leaves a gap, overlaps another or ends outside.
    """
    stops: NDArray[np.int64] = intervals[:, 1].astype(np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), stops[:-1]])
    wrong = np.flatnonzero((intervals[:, 0] != starts) | (stops < starts) | (stops > num_rows))
    if wrong.size:
        row = int(wrong[0])
        raise DatasetError(
            f"{source} of row {row} is {intervals[row].tolist()}: intervals have to follow each other "
            f"without gaps, so from {starts[row]}, within {num_rows} rows"
        )
    return stops


def track_twice(source: str, track: int, frame: int) -> DatasetError:
    """The error for a track that one frame holds twice."""
    return DatasetError(f"{source}: track {track} is twice in frame {frame}, so its way is ambiguous")


# --- runs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sightings:
    """What runs depend on, for (N,) agents in the order of their frames.

    Attributes:
        tracks: uint64.
        frames, scenes: of each; numbers of the dataset.
        good: whether it is probable and near.
        yaws, areas: radians, square metres.
    """

    tracks: Array
    frames: Array
    scenes: Array
    good: Array
    yaws: Array
    areas: Array

    @classmethod
    def of(
        cls, frames: Array, first_frame: int, agents: Array, bounds: Array, thresholds: MaskThresholds
    ) -> Sightings:
        """Of the agents of some frames.

        Args:
            frames: (F,) consecutive frames, the first is number `first_frame`.
            bounds: frames where scenes begin, and where the last of them ends.
        """
        intervals = frames["agent_index_interval"]
        counts = intervals[:, 1] - intervals[:, 0]
        numbers = np.arange(first_frame, first_frame + len(frames))
        scenes = np.searchsorted(bounds, numbers, side="right")
        away = np.repeat(frames["ego_translation"][:, :2], counts, axis=0) - agents["centroid"]
        good = are_agents(agents["label_probabilities"], thresholds.agent_probability)
        good &= np.sqrt(away[:, 0] ** 2 + away[:, 1] ** 2) < thresholds.ego_distance_m
        extents = agents["extent"]
        return cls(
            agents["track_id"],
            np.repeat(numbers, counts),
            np.repeat(scenes, counts),
            good,
            agents["yaw"],
            extents[:, 0] * extents[:, 1],
        )

    def take(self, rows: Array) -> Sightings:
        """Select some, by number or mask."""
        return Sightings(*(values[rows] for values in self._columns()))

    @classmethod
    def joined(cls, parts: Sequence[Sightings]) -> Sightings:
        """Concatenate parts."""
        return cls(*map(np.concatenate, zip(*(part._columns() for part in parts), strict=True)))

    def _columns(self) -> list[Array]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def counts(self, thresholds: MaskThresholds, source: str) -> NDArray[np.uint32]:
        """(N, 2) frames before and after each agent in its run.

        Raises:
            DatasetError: a frame holds a track twice; `source` names the dataset.
        """
        order = _by_track(self.tracks, self.scenes)
        ordered = self.take(order)
        track, frame, good = ordered.tracks, ordered.frames, ordered.good
        same_track = (track[1:] == track[:-1]) & (ordered.scenes[1:] == ordered.scenes[:-1])
        step = frame[1:] - frame[:-1]
        twice = np.flatnonzero(same_track & (step == 0))
        if twice.size:
            raise track_twice(source, int(track[twice[0]]), int(frame[twice[0]]))
        goes_on = same_track & (step == 1) & good[1:] & good[:-1]
        goes_on &= _is_steady(ordered.yaws, ordered.areas, thresholds)
        starts = np.flatnonzero(np.concatenate([[True], ~goes_on])[: len(order)])
        lengths = np.diff(starts, append=len(order))
        past = np.arange(len(order)) - np.repeat(starts, lengths)
        future = np.repeat(lengths, lengths) - 1 - past
        counts = np.zeros((len(order), 2), np.uint32)
        counts[order, 0] = past * good
        counts[order, 1] = future * good
        return counts


def _by_track(tracks: Array, scene_of: Array) -> NDArray[np.intp]:
    """The order by scene, then track; stable, so that frames stay ascending within each."""
    if not len(tracks):
        return np.zeros(0, np.intp)
    lowest, first = tracks.min(), scene_of.min()
    span = int(tracks.max() - lowest) + 1
    if span * int(scene_of.max() - first + 1) > 1 << 16:
        return np.lexsort((tracks, scene_of))
    # Keys of 16 bits are sorted several times as fast.
    keys = (scene_of - first) * span + (tracks - lowest).astype(np.int64)
    return np.argsort(keys.astype(np.uint16), kind="stable")


def _is_steady(yaws: Array, areas: Array, thresholds: MaskThresholds) -> NDArray[np.bool_]:
    """(N - 1,) whether yaw and area hardly change from one row to the next."""
    degrees = np.degrees(yaws)
    turns = np.abs((degrees[1:] - degrees[:-1] + 180) % 360 - 180)
    larger, smaller = np.maximum(areas[1:], areas[:-1]), np.minimum(areas[1:], areas[:-1])
    has_area = smaller >= MIN_AREA_M2
    ratios = np.divide(larger, smaller, out=np.full_like(larger, np.inf), where=has_area)
    steady: NDArray[np.bool_] = has_area & (turns < thresholds.yaw_degrees)
    steady &= ratios < thresholds.extent_ratio
    return steady


# --- a whole dataset ------------------------------------------------------------------------------------


def compute_agents_mask(
    dataset: ChunkedDataset,
    thresholds: MaskThresholds = MaskThresholds(),  # noqa: B008 - a frozen value
    num_threads: int | None = None,
) -> NDArray[np.uint32]:
    """Counts, for each agent, the frames before and after it in its unbroken run.

    Args:
        dataset: opened, or in memory. Agents are read in batches of whole scenes.
        thresholds: which agents are probable, and what breaks a run.
        num_threads: None for one per core.

    Returns:
        (agents, 2) frames in the past and in the future.

    Raises:
        DatasetError: intervals don't fit their arrays, or a frame holds a track twice.
    """
    source = dataset.path or "in memory"
    frames: Array = dataset.frames[:]
    scene_stops = stops_of(
        np.asarray(dataset.scenes[:]["frame_index_interval"]), len(frames), f"{source}: frame_index_interval"
    )
    agent_stops = stops_of(
        frames["agent_index_interval"], len(dataset.agents), f"{source}: agent_index_interval"
    )
    mask = np.zeros((len(dataset.agents), 2), np.uint32)

    def fill(batch: tuple[int, int]) -> None:
        first, stop = batch
        rows = slice(int(agent_stops[first - 1]) if first else 0, int(agent_stops[stop - 1]))
        seen = Sightings.of(frames[first:stop], first, dataset.agents[rows], scene_stops, thresholds)
        mask[rows] = seen.counts(thresholds, source)

    in_threads(fill, [*_batches(scene_stops, agent_stops)], num_threads or available_cpus())
    return mask


def _batches(scene_stops: Array, agent_stops: Array) -> Iterator[tuple[int, int]]:
    """Ranges of frames of whole scenes, each of about BATCH_ROWS agents or of one scene."""
    first = 0
    for position, stop in enumerate(scene_stops.tolist()):
        rows_before = int(agent_stops[first - 1]) if first else 0
        is_last = position == len(scene_stops) - 1
        if stop > first and (is_last or int(agent_stops[stop - 1]) - rows_before >= BATCH_ROWS):
            yield first, stop
            first = stop


# --- some of its agents ---------------------------------------------------------------------------------


def mask_of_rows(
    read: ReadRows, bounds: Sequence[int], start: int, stop: int, thresholds: MaskThresholds, source: str
) -> NDArray[np.uint32]:
    """Count for the agents [start, stop), reading no more frames around theirs than their runs last.

    Args:
        read: reads rows of "frames" and "agents".
        bounds: frames where scenes begin, ascending, then where the last of them ends; the agents are theirs.
        source: names the dataset, for errors.

    Returns:
        (stop - start, 2), as compute_agents_mask gives them.

    Raises:
        DatasetError: a frame holds a track twice; or what `read` raises.
    """
    edges = np.asarray(bounds, np.int64)
    first, last = (_frame_of(read, int(edges[0]), int(edges[-1]), row) for row in (start, stop - 1))
    low = int(edges[np.searchsorted(edges, first, side="right") - 1])
    high = int(edges[np.searchsorted(edges, last, side="right")])

    def seen_in(frame: int, end: int) -> tuple[Sightings, int]:
        frames = read("frames", frame, end)
        rows = int(frames["agent_index_interval"][0, 0]), int(frames["agent_index_interval"][-1, 1])
        return Sightings.of(frames, frame, read("agents", *rows), edges, thresholds), rows[0]

    core, row = seen_in(first, last + 1)
    place = start - row  # of the first agent asked for, among those of `parts`
    before = [(max(low, end - MARGIN_FRAMES), end) for end in range(first, low, -MARGIN_FRAMES)]
    after = [(at, min(high, at + MARGIN_FRAMES)) for at in range(last + 1, high, MARGIN_FRAMES)]
    parts = [core]
    for frame, spans in ((first, before), (last, after)):
        alive = core.tracks[core.frames == frame]
        for begin, end in spans:
            if not alive.size:
                break
            seen, _ = seen_in(begin, end)
            seen = seen.take(np.isin(seen.tracks, alive))
            parts = [seen, *parts] if spans is before else [*parts, seen]
            place += len(seen.tracks) if spans is before else 0
            tracks, times = np.unique(seen.tracks, return_counts=True)
            alive = tracks[times >= end - begin]  # those with a hole have no run beyond it
    counts = Sightings.joined(parts).counts(thresholds, source)
    return counts[place : place + stop - start]


def _frame_of(read: ReadRows, low: int, high: int, row: int) -> int:
    """The frame, one of [low, high), that holds an agent."""

    def stop_of(frame: int) -> int:
        return int(read("frames", frame, frame + 1)["agent_index_interval"][0, 1])

    return low + bisect.bisect_right(range(low, high), row, key=stop_of)
