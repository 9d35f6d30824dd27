"""The structured arrays of L5Kit: dtypes, names, chunk sizes and labels.

Intervals are half-open [start, stop) over the rows of another array of the same dataset. Times are int64
nanoseconds since the Unix epoch, lengths metres, angles radians.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from logloom.values import dataclass

FORMAT_VERSION = 2
"""Of L5Kit's zarr format, as its `attrs` say."""

LABELS = [
    "PERCEPTION_LABEL_NOT_SET",
    "PERCEPTION_LABEL_UNKNOWN",
    "PERCEPTION_LABEL_DONTCARE",
    "PERCEPTION_LABEL_CAR",
    "PERCEPTION_LABEL_VAN",
    "PERCEPTION_LABEL_TRAM",
    "PERCEPTION_LABEL_BUS",
    "PERCEPTION_LABEL_TRUCK",
    "PERCEPTION_LABEL_EMERGENCY_VEHICLE",
    "PERCEPTION_LABEL_OTHER_VEHICLE",
    "PERCEPTION_LABEL_BICYCLE",
    "PERCEPTION_LABEL_MOTORCYCLE",
    "PERCEPTION_LABEL_CYCLIST",
    "PERCEPTION_LABEL_MOTORCYCLIST",
    "PERCEPTION_LABEL_PEDESTRIAN",
    "PERCEPTION_LABEL_ANIMAL",
    "AVRESEARCH_LABEL_DONTCARE",
]
"""What an agent may be; `label_probabilities` has a number for each, in this order."""
TL_FACE_LABELS = ["ACTIVE", "INACTIVE", "UNKNOWN"]
"""What a traffic light's face may show; `traffic_light_face_status` has a number for each."""

SCENE_DTYPE: list[tuple[Any, ...]] = [
    ("frame_index_interval", np.int64, (2,)),
    ("host", "<U16"),
    ("start_time", np.int64),
    ("end_time", np.int64),
]
"""A scene: which frames it has, whose car, start and end in nanoseconds."""
FRAME_DTYPE: list[tuple[Any, ...]] = [
    ("timestamp", np.int64),
    ("agent_index_interval", np.int64, (2,)),
    ("traffic_light_faces_index_interval", np.int64, (2,)),
    ("ego_translation", np.float64, (3,)),
    ("ego_rotation", np.float64, (3, 3)),
]
"""A frame: its time in nanoseconds, which agents and faces it has, where the car was (metres)."""
AGENT_DTYPE: list[tuple[Any, ...]] = [
    ("centroid", np.float64, (2,)),
    ("extent", np.float32, (3,)),
    ("yaw", np.float32),
    ("velocity", np.float32, (2,)),
    ("track_id", np.uint64),
    ("label_probabilities", np.float32, (len(LABELS),)),
]
"""An agent in a frame: centroid and extent in metres, yaw in radians, velocity in metres a second."""
TL_FACE_DTYPE: list[tuple[Any, ...]] = [
    ("face_id", "<U16"),
    ("traffic_light_id", "<U16"),
    ("traffic_light_face_status", np.float32, (len(TL_FACE_LABELS),)),
]
"""A face of a traffic light in a frame."""


@dataclass(frozen=True)
class ArrayKind:
    """One of the four arrays.

    Attributes:
        key: its name in the zarr group.
        dtype: of a row, packed and little-endian.
        chunk_rows: of every chunk that the original writes.
    """

    key: str
    dtype: np.dtype[Any]
    chunk_rows: int


def _kind(key: str, dtype: list[tuple[Any, ...]], chunk_rows: int) -> ArrayKind:
    return ArrayKind(key, np.dtype(dtype).newbyteorder("<"), chunk_rows)


SCENES = _kind("scenes", SCENE_DTYPE, 10_000)
FRAMES = _kind("frames", FRAME_DTYPE, 10_000)
AGENTS = _kind("agents", AGENT_DTYPE, 20_000)
TL_FACES = _kind("traffic_light_faces", TL_FACE_DTYPE, 10_000)
# By the name that ChunkedDataset gives each.
ARRAYS = {"scenes": SCENES, "frames": FRAMES, "agents": AGENTS, "tl_faces": TL_FACES}
FOLDERS = frozenset(("scenes", "frames", "agents"))  # a folder of these is an L5Kit dataset
HOST_LENGTH = SCENES.dtype["host"].itemsize // 4
