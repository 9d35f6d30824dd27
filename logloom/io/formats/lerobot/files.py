"""The files of a LeRobot dataset, v3.0: names and bytes.

Here: pure functions to bytes.
Elsewhere: which rows a file has (episodes, assemble), the files of meta/episodes (episode_tables), reading
them (reader).

    meta/info.json                                        features, fps, totals, templates of file names
    meta/stats.json                                       statistics of features
    meta/tasks.parquet                                    texts of tasks, by their number
    meta/episodes/chunk-000/file-000.parquet              a row for each episode
    data/chunk-000/file-000.parquet                       a row for each frame, without what is video
    videos/<feature>/chunk-000/file-000.mp4               the frames of many episodes, one after the other

See https://huggingface.co/docs/lerobot/lerobot-dataset-v3
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logloom.blocks import Array, Values
from logloom.io.arrow.arrays import stored_array, stored_type
from logloom.io.arrow.images import IMAGE, image_array
from logloom.io.formats.lerobot.episodes import CHUNK_FILES, Episode
from logloom.io.formats.lerobot.features import FRAME_INFO, Feature
from logloom.io.formats.lerobot.options import LeRobotOptions
from logloom.schema import BYTES, ColumnType

CODEBASE = "v3.0"
INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
DATA, EPISODES, VIDEOS = "data", "meta/episodes", "videos"
LOG_ID = "log_id"  # of an episode
LOG_ROW = "log_row"  # the number of its first row in its log, where single rows are split
_PATTERN = "chunk-{chunk_index:03d}/file-{file_index:03d}"
_MIB = 1 << 20
_INDEX = "task"  # the index of tasks as pandas has it


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, indent=4, ensure_ascii=False, allow_nan=False).encode()


def info_bytes(
    features: Mapping[str, Any], episodes: Sequence[Episode], tasks: int, options: LeRobotOptions
) -> bytes:
    """meta/info.json."""
    largest = max(1, options.file_bytes // _MIB)
    return json_bytes(
        {
            "codebase_version": CODEBASE,
            "robot_type": options.robot_type or None,
            "total_episodes": len(episodes),
            "total_frames": sum(episode.rows for episode in episodes),
            "total_tasks": tasks,
            "chunks_size": CHUNK_FILES,
            "data_files_size_in_mb": largest,
            "video_files_size_in_mb": largest,
            "fps": options.fps,
            "splits": _split_ranges(episodes),
            "data_path": f"{DATA}/{_PATTERN}.parquet",
            "video_path": None
            if isinstance(options.video, str)
            else f"{VIDEOS}/{{video_key}}/{_PATTERN}.mp4",
            "features": features,
        }
    )


def _split_ranges(episodes: Sequence[Episode]) -> dict[str, str]:
    """The episodes of each split, [start:stop); all are of "train" if single rows aren't split."""
    if all(episode.split is None for episode in episodes):
        return {"train": f"0:{len(episodes)}"}
    numbers: dict[str, list[int]] = {}
    for number, episode in enumerate(episodes):
        if episode.split:
            numbers.setdefault(episode.split, []).append(number)
    return {split: f"{own[0]}:{own[-1] + 1}" for split, own in numbers.items()}


def tasks_bytes(texts: Sequence[str]) -> bytes:
    """meta/tasks.parquet: pandas takes the texts for its index."""
    table = pa.table(
        {"task_index": pa.array(range(len(texts)), pa.int64()), _INDEX: pa.array(texts, pa.string())}
    )
    kinds = {"task_index": ("int64", "int64"), _INDEX: ("unicode", "object")}
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": dtype, "metadata": None}
        for name, (kind, dtype) in kinds.items()
    ]
    pandas = {"index_columns": [_INDEX], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
    schema = table.schema.with_metadata({b"pandas": json.dumps(pandas).encode()})
    return table_bytes([table], schema)


# --- frames ---------------------------------------------------------------------------------------------


def frame_types(features: Iterable[Feature]) -> dict[str, ColumnType]:
    """The columns of the files of data: features, then LeRobot's fields of each frame."""
    found = {feature.key: feature.ctype for feature in features}
    return found | {name: ColumnType(np.dtype(info["dtype"])) for name, info in FRAME_INFO.items()}


def data_schema(features: Sequence[Feature]) -> Any:
    """The files' Arrow schema; its metadata lists the columns of images for Hugging Face."""
    images = [feature.key for feature in features if feature.is_image]
    fields = [
        pa.field(name, IMAGE if name in images else stored_type(ctype))
        for name, ctype in frame_types(features).items()
    ]
    described = {"info": {"features": {name: {"_type": "Image"} for name in images}}}
    return pa.schema(fields, {b"huggingface": json.dumps(described).encode()} if images else None)


def frames_of(times: Array, first: int, frame: int, episode: int, tasks: Array, fps: int) -> dict[str, Array]:
    """Make LeRobot's fields of consecutive frames of an episode.

    Args:
        times: (n,) of rows in ns.
        first: position of the first row among all.
        frame: its number in its episode.
        tasks: (n,) their numbers.
    """
    count = np.arange(len(times), dtype=np.int64)
    return {
        "timestamp": ((frame + count) / fps).astype(np.float32),
        "frame_index": frame + count,
        "episode_index": np.full(len(times), episode, np.int64),
        "index": first + count,
        "task_index": tasks.astype(np.int64),
        "timestamp_ns": times.astype(np.int64),
    }


def data_table(columns: Mapping[str, Values], features: Sequence[Feature]) -> Any:
    """Frames as an Arrow table."""
    images = {feature.key for feature in features if feature.is_image}
    arrays = [
        image_array(columns[name], BYTES) if name in images else stored_array(columns[name], ctype)
        for name, ctype in frame_types(features).items()
    ]
    return pa.Table.from_arrays(arrays, schema=data_schema(features))


def data_bytes(tables: Iterable[Any], features: Sequence[Feature]) -> bytes:
    """A file of data; each table is a row group."""
    return table_bytes(tables, data_schema(features), [one.key for one in features if one.is_image])


def table_bytes(tables: Iterable[Any], schema: Any, plain: Sequence[str] = ()) -> bytes:
    """A Parquet file; each table is a row group.

    Args:
        plain: columns that are stored uncompressed, since they don't get smaller.
    """
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression={leaf: "NONE" if column in plain else "ZSTD" for column, leaf in _leaves(schema)},
        use_dictionary=False,
        write_statistics=[leaf for column, leaf in _leaves(schema) if column not in plain],
        write_page_checksum=True,
    ) as file:
        for table in tables:
            file.write_table(
                table.replace_schema_metadata(schema.metadata), row_group_size=max(1, len(table))
            )
    return sink.getvalue()


def _leaves(schema: Any) -> Iterator[tuple[str, str]]:
    """Each column, and the paths of its leaves."""
    for field in schema:
        if field.type == IMAGE:
            yield from ((field.name, f"{field.name}.{inner.name}") for inner in field.type)
        else:
            leaf, kind = field.name, field.type
            while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
                leaf, kind = f"{leaf}.list.element", kind.value_type
            yield field.name, leaf
