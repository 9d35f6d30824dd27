"""Selection of an L5Kit dataset's rows by frame, label, track, distance, status.

Here: pure functions over structured rows (see logloom.io.formats.l5kit.dtypes), with the interface of the
original.
Elsewhere: opening datasets (logloom.io.formats.l5kit), samples (datasets).

Agents and traffic light faces may be arrays of a dataset, `dataset.agents`, or what was read of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import UsageError
from logloom.io.formats.l5kit import LABELS, SCENE_DTYPE, TL_FACE_LABELS
from logloom.io.formats.l5kit.mask import are_agents

PERCEPTION_LABELS = LABELS
"""The same as `logloom.io.formats.l5kit.LABELS`, under L5Kit's name."""
PERCEPTION_LABEL_TO_INDEX = {label: index for index, label in enumerate(LABELS)}
"""The place of each label in `label_probabilities`."""
TL_FACE_LABEL_TO_INDEX = {label: index for index, label in enumerate(TL_FACE_LABELS)}
"""The place of each state in `traffic_light_face_status`."""


def filter_agents_by_labels(agents: Any, threshold: float = 0.5) -> Array:
    """The agents whose labels of things that drive, ride or walk sum to more than `threshold`.

    Args:
        agents: rows of `agents`.
    """
    chosen: Array = agents[are_agents(agents["label_probabilities"], threshold)]
    return chosen


def filter_agents_by_distance(agents: Any, centroid: Array, max_distance: float) -> Array:
    """The agents less than `max_distance` metres from `centroid`, (2,) metres; the nearest first.

    Args:
        agents: rows of `agents`.
    """
    distances = np.linalg.norm(agents["centroid"] - centroid, axis=-1)
    near = np.flatnonzero(distances < max_distance)
    chosen: Array = agents[near[np.argsort(distances[near], kind="stable")]]
    return chosen


def filter_agents_by_track_id(agents: Any, track_id: int) -> Array:
    """The agents of one track.

    Args:
        agents: rows of `agents`.
        track_id: of the track.
    """
    chosen: Array = agents[agents["track_id"] == track_id]
    return chosen


def filter_agents_by_frames(frames: Array, agents: Any) -> list[Array]:
    """The agents of each frame, or of one frame; its `agent_index_interval` has to count in `agents`.

    Args:
        frames: rows of `frames`, or one.
    """
    return [agents[get_agents_slice_from_frames(frame)] for frame in np.atleast_1d(frames)]


def filter_tl_faces_by_frames(frames: Array, tl_faces: Any) -> list[Array]:
    """The traffic light faces of each frame, or of one frame; see `filter_agents_by_frames`."""
    return [tl_faces[get_tl_faces_slice_from_frames(frame)] for frame in np.atleast_1d(frames)]


def filter_tl_faces_by_status(tl_faces: Any, status: str) -> Array:
    """The traffic light faces that are likely at all to have a status.

    Args:
        tl_faces: rows of `tl_faces`.
        status: one of TL_FACE_LABELS.

    Raises:
        UsageError: there is no such status.
    """
    if status not in TL_FACE_LABEL_TO_INDEX:
        raise UsageError(f"no status {status!r} of a traffic light face: {', '.join(TL_FACE_LABELS)}")
    likely = tl_faces["traffic_light_face_status"][:, TL_FACE_LABEL_TO_INDEX[status]] > 0
    chosen: Array = tl_faces[likely]
    return chosen


def get_frames_slice_from_scenes(scene_a: Any, scene_b: Any = None) -> slice:
    """Where frames are, from the first of `scene_a` to the last of `scene_b` (if None: of `scene_a`)."""
    return _from_to("frame_index_interval", scene_a, scene_b)


def get_agents_slice_from_frames(frame_a: Any, frame_b: Any = None) -> slice:
    """Where agents are, from the first of `frame_a` to the last of `frame_b` (if None: of `frame_a`)."""
    return _from_to("agent_index_interval", frame_a, frame_b)


def get_tl_faces_slice_from_frames(frame_a: Any, frame_b: Any = None) -> slice:
    """Where traffic light faces are; see `get_agents_slice_from_frames`."""
    return _from_to("traffic_light_faces_index_interval", frame_a, frame_b)


def _from_to(field: str, first: Any, last: Any) -> slice:
    return slice(int(first[field][0]), int((first if last is None else last)[field][1]))


def get_combined_scenes(scenes: Any) -> Array:
    """Makes each run of scenes of one host, without a break in time, one scene.

    Args:
        scenes: rows of `scenes`.

    Returns:
        The scenes, fewer or as many.
    """
    scenes = np.asarray(scenes[:])
    broken = scenes["start_time"][1:] != scenes["end_time"][:-1]
    broken |= scenes["host"][1:] != scenes["host"][:-1]
    starts = np.flatnonzero(np.append(np.ones(min(1, len(scenes)), np.bool_), broken))
    last = np.append(starts[1:], len(scenes))[: len(starts)] - 1
    combined: Array = scenes[starts].astype(SCENE_DTYPE)
    combined["frame_index_interval"][:, 1] = scenes["frame_index_interval"][last, 1]
    combined["end_time"] = scenes["end_time"][last]
    return combined
