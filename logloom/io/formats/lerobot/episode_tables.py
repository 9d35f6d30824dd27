"""The files of meta/episodes: a row for each episode, with its statistics.

Here: which episodes a file has, and its bytes.
Elsewhere: where episodes begin and end (episodes), their statistics (statistics), reading the units that they
are made from (assemble).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logloom.io.formats.lerobot.episodes import CHUNK_FILES, Episode
from logloom.io.formats.lerobot.features import Feature
from logloom.io.formats.lerobot.files import DATA, EPISODES, LOG_ID, LOG_ROW, VIDEOS, table_bytes
from logloom.io.formats.lerobot.statistics import CHANNELS, QUANTITIES
from logloom.row_splits import COLUMN

MAX_EPISODES = 1 << 12  # of a file, which one worker makes
_ROW_BYTES = 1 << 10  # beside statistics, and texts of tasks
_STATS = "stats"


def cut_episodes(episodes: Sequence[Episode], features: Sequence[Feature], max_bytes: int) -> list[range]:
    """Choose the episodes of each file; all files but the last stay the same when episodes are added.

    Args:
        max_bytes: of a file.
    """
    numbers = sum(CHANNELS if feature.is_image else len(feature.names) for feature in features)
    row_bytes = _ROW_BYTES + 8 * numbers * (len(QUANTITIES) + 1)
    count = min(MAX_EPISODES, max(1, max_bytes // (2 * row_bytes)))
    return [range(at, min(at + count, len(episodes))) for at in range(0, len(episodes), count)]


def episode_row(
    number: int,
    episode: Episode,
    tasks: Sequence[str],
    videos: Sequence[str],
    stats: Mapping[str, Mapping[str, Any]],
    fps: int,
    file: int,
) -> dict[str, Any]:
    """Make the row of an episode.

    Args:
        tasks: its texts.
        videos: keys of the features that are video.
        stats: quantities of each feature.
        file: number of the file of this row.
    """
    quantities = {
        f"{_STATS}/{key}/{name}": value for key, own in stats.items() for name, value in own.items()
    }
    return {
        "episode_index": number,
        "tasks": list(tasks),
        "length": episode.rows,
        **_place(DATA, episode.files[0]),
        "dataset_from_index": episode.first,
        "dataset_to_index": episode.first + episode.rows,
        **_video_places(episode, videos, fps),
        **quantities,
        **_place(EPISODES, file),
        LOG_ID: episode.log_id,
        **({} if episode.split is None else {COLUMN: episode.split or None, LOG_ROW: episode.row}),
    }


def episodes_bytes(
    rows: Iterable[dict[str, Any]], features: Sequence[Feature], videos: Sequence[str], *, has_splits: bool
) -> bytes:
    """A file of such rows.

    Args:
        has_splits: whether single rows are split.
    """
    table = pa.Table.from_pylist([*rows], schema=_schema(features, videos, has_splits))
    return table_bytes([table], table.schema)


def _place(kind: str, file: int) -> dict[str, int]:
    chunk, number = divmod(file, CHUNK_FILES)
    return {f"{kind}/chunk_index": chunk, f"{kind}/file_index": number}


def _video_places(episode: Episode, videos: Sequence[str], fps: int) -> dict[str, Any]:
    """The files and times of an episode's videos; the first kind of file is data."""
    found: dict[str, Any] = {}
    for key, file, frame in zip(videos, episode.files[1:], episode.frames[1:], strict=True):
        times = {"from_timestamp": frame / fps, "to_timestamp": (frame + episode.rows) / fps}
        found |= _place(f"{VIDEOS}/{key}", file) | {
            f"{VIDEOS}/{key}/{name}": time for name, time in times.items()
        }
    return found


def _schema(features: Sequence[Feature], videos: Sequence[str], has_splits: bool) -> Any:
    of_video: list[tuple[str, Any]] = []
    for key in videos:
        of_video += [(f"{VIDEOS}/{key}/{name}_index", pa.int64()) for name in ("chunk", "file")]
        of_video += [(f"{VIDEOS}/{key}/{name}_timestamp", pa.float64()) for name in ("from", "to")]
    return pa.schema(
        [("episode_index", pa.int64()), ("tasks", pa.list_(pa.string())), ("length", pa.int64())]
        + [(f"{DATA}/{name}_index", pa.int64()) for name in ("chunk", "file")]
        + [("dataset_from_index", pa.int64()), ("dataset_to_index", pa.int64())]
        + of_video
        + [one for feature in features for one in _stats_fields(feature)]
        + [(f"{EPISODES}/{name}_index", pa.int64()) for name in ("chunk", "file")]
        + [(LOG_ID, pa.string())]
        + ([(COLUMN, pa.string()), (LOG_ROW, pa.int64())] if has_splits else [])
    )


def _stats_fields(feature: Feature) -> Iterator[tuple[str, Any]]:
    """The columns of a feature's statistics, in the types that LeRobot writes."""
    ends: Any = pa.float64()
    if not feature.is_image and feature.ctype.dtype.kind in "biu":
        ends = pa.uint64() if feature.ctype.dtype == np.uint64 else pa.int64()
    for name in QUANTITIES:
        kind = ends if name in ("min", "max") else pa.float64()
        kind = pa.list_(pa.list_(pa.list_(kind))) if feature.is_image else pa.list_(kind)
        yield f"{_STATS}/{feature.key}/{name}", kind
    yield f"{_STATS}/{feature.key}/count", pa.list_(pa.int64())
