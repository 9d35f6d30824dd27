"""The metadata of a LeRobot dataset, written by logloom or by another tool.

Here: `read_info`, `read_tasks`, `read_episodes`.
Elsewhere: writing these files (files), the frames (reader).
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from logloom.caching import cached_property
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.lerobot.features import FRAME_INFO, TASK
from logloom.io.formats.lerobot.files import DATA, EPISODES, INFO, LOG_ID, LOG_ROW, TASKS, VIDEOS
from logloom.io.formats.lerobot.statistics import CHANNELS
from logloom.io.formats.parquet.foreign_files import open_parquet
from logloom.io.rows.log_ranges import Ints
from logloom.io.storage.folders import walk
from logloom.io.storage.known_files import check_bytes
from logloom.io.storage.metadata import Count, FileName, checked, parsed
from logloom.io.storage.store import Store
from logloom.io.video.bits import MAX_PIXELS
from logloom.row_splits import COLUMN
from logloom.schema import BYTES, STRING, ColumnType
from logloom.text import counted
from logloom.values import dataclass

_FIELD = re.compile(r"\{(chunk_index|file_index|video_key)(?::0(\d)d)?\}")
_NUMBERS = frozenset(
    {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
    | {"bool", "float16", "float32", "float64"}
)
_MAX_AXES, _MAX_ELEMENTS = 32, 1 << 28
_MAX_SECONDS = 1e9  # of a video


class FeatureJson(BaseModel):
    """A feature of meta/info.json."""

    model_config = ConfigDict(extra="allow")

    dtype: str
    shape: tuple[Count, ...]
    names: Any = None


class InfoJson(BaseModel):
    """meta/info.json, as far as reading needs it."""

    model_config = ConfigDict(extra="allow")

    codebase_version: str
    fps: float = Field(ge=1e-3, le=1e6)
    total_episodes: Count
    total_frames: Count
    data_path: str
    video_path: str | None = None
    features: dict[str, FeatureJson]

    def columns(self) -> tuple[dict[str, ColumnType], dict[str, str]]:
        """The columns of rows, and features that rows lack, with the reason."""
        types: dict[str, ColumnType] = {}
        left_out: dict[str, str] = {}
        for key, feature in self.features.items():
            found = _type_of(feature)
            if key in FRAME_INFO:
                continue
            if isinstance(found, str):
                left_out[key] = found
            else:
                types[key] = found
        return {**types, TASK: STRING}, left_out


def _type_of(feature: FeatureJson) -> ColumnType | str:
    """The type of a feature, or the reason why it can't be read."""
    if feature.dtype == "image":
        return BYTES
    if feature.dtype == "video":
        shape = _picture_shape(feature)
        return ColumnType(np.dtype("u1"), shape) if shape else f"video of shape {feature.shape}"
    if feature.dtype == "string":
        return STRING
    if feature.dtype not in _NUMBERS:
        return f"{feature.dtype} isn't read"
    if len(feature.shape) > _MAX_AXES or not 0 < math.prod(feature.shape) <= _MAX_ELEMENTS:
        return f"of shape {feature.shape!s:.80}"
    return ColumnType(np.dtype(feature.dtype), () if feature.shape == (1,) else feature.shape)


def _picture_shape(feature: FeatureJson) -> tuple[int, ...] | None:
    """Height, width and channels of a video, which may be in any order."""
    if len(feature.shape) != 3 or 0 in feature.shape:
        return None
    names = feature.names if isinstance(feature.names, list) else []
    is_first = names[:1] in (["channels"], ["channel"]) or (not names and feature.shape[0] == CHANNELS)
    shape = (*feature.shape[1:], feature.shape[0]) if is_first else feature.shape
    return shape if shape[2] == CHANNELS and shape[0] * shape[1] <= MAX_PIXELS else None


def read_info(store: Store) -> InfoJson:
    """meta/info.json.

    Raises:
        DatasetError: it is missing or damaged.
        UsageError: the dataset is of another version of the format.
    """
    place = store.uri_of(INFO)
    if (data := store.read_if_there(INFO)) is None:
        raise DatasetError(f"{place}: missing; no LeRobot dataset here")
    check_bytes(place, data, store.options)
    value = parsed(data, place)
    version = value.get("codebase_version") if isinstance(value, dict) else None
    if isinstance(version, str) and not version.startswith("v3."):
        raise UsageError(
            f"{place}: codebase_version {version}, known is v3; LeRobot's own "
            "convert_dataset_v21_to_v30 makes it that"
        )
    return checked(InfoJson, value, place)


def path_of(template: str, place: str, **fields: Any) -> str:
    """Make the name of a file from a template of meta/info.json.

    Raises:
        DatasetError: it names no file within the dataset.
    """

    def value(match: re.Match[str]) -> str:
        found = fields.get(match[1], "")
        return f"{found:0{match[2]}d}" if match[2] and isinstance(found, int) else str(found)

    return checked(FileName, _FIELD.sub(value, template), place)


def read_tasks(store: Store, needed: int) -> list[str]:
    """The texts of tasks, by their number.

    Args:
        needed: the least number of tasks; with 0 there may be no file.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    if not needed and not store.exists(TASKS):
        return []
    with open_parquet(store, TASKS) as file:
        table = file.read(use_threads=False)
    place = store.uri_of(TASKS)
    names = [name for name in table.column_names if name != "task_index"]
    if "task_index" not in table.column_names or not names:
        raise DatasetError(f"{place}: no tasks by their numbers")
    with _decoding(place):
        texts = table[names[0]].to_pylist()
        found = dict(zip(table["task_index"].to_pylist(), texts, strict=True))
    if any(number not in found for number in range(len(texts))) or not all(
        isinstance(text, str) for text in texts
    ):
        raise DatasetError(f"{place}: tasks aren't numbered from 0, or are no texts")
    return [found[number] for number in range(len(texts))]


@contextlib.contextmanager
def _decoding(place: str) -> Iterator[None]:
    """Convert errors about a table in the block to a DatasetError that names its file."""
    try:
        yield
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{place}: damaged ({type(error).__name__}: {error!s:.200})") from error


@dataclass(frozen=True)
class Episodes:
    """All episodes, in order.

    Attributes:
        lengths: (n,) frames of each.
        files: names of the files of data, in order.
        file_rows: rows of each of these.
        log_ids: of each, if the dataset records them; else None.
        splits: of each, "" for none, with the number of its first row in its log, if the dataset records
            them; else None.
        columns: other columns of episodes, such as the files of their videos.
    """

    lengths: Ints
    files: Sequence[str]
    file_rows: Ints
    log_ids: Sequence[str] | None
    columns: Mapping[str, Sequence[Any]]
    splits: Sequence[str] | None = None

    @cached_property
    def order(self) -> Ints | None:
        """(n,) their numbers in the order of logs and of rows in these; None where they are stored so."""
        if self.splits is None or self.log_ids is None:
            return None
        keys = list(zip(self.log_ids, self.columns[LOG_ROW], strict=True))
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def read_episodes(store: Store, info: InfoJson) -> Episodes:
    """The files of meta/episodes.

    Raises:
        DatasetError: they are missing, damaged or inconsistent.
    """
    place = store.uri_of(EPISODES)
    tables = []
    for name in walk(Store(place, store.options), (".parquet",)):
        with open_parquet(store, f"{EPISODES}/{name}") as file:
            names = [one for one in file.schema_arrow.names if not one.startswith("stats/")]
            tables.append(file.read(names, use_threads=False))
    if info.total_episodes and not tables:
        raise DatasetError(f"{place}: missing, {INFO} lists {counted(info.total_episodes, 'episode')}")
    with _decoding(place):
        table: Any = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
        stored = {name: table[name].to_pylist() for name in table.column_names}
    chunks, files = stored.get(f"{DATA}/chunk_index", []), stored.get(f"{DATA}/file_index", [])
    lengths, starts = stored.get("length", []), stored.get("dataset_from_index", [])
    numbers = [*chunks, *files, *lengths, *starts]
    if len(chunks) != len(table) or len(numbers) != 4 * len(table) or len(table) != info.total_episodes:
        raise DatasetError(f"{place}: {len(table)} episodes, {INFO} lists {info.total_episodes}")
    if not all(map(_is_row, numbers)):
        raise DatasetError(f"{place}: an episode without length or place")
    bounds = np.cumsum([0, *lengths], dtype=np.int64)
    if bounds[:-1].tolist() != starts or bounds[-1] != info.total_frames:
        raise DatasetError(
            f"{place}: the frames of episodes don't follow each other, or aren't all there are"
        )
    places = list(zip(chunks, files, strict=True))
    firsts = [n for n in range(len(places)) if not n or places[n] != places[n - 1]]
    if len({places[n] for n in firsts}) < len(firsts):
        raise DatasetError(f"{place}: the episodes of a file of data don't follow each other")
    found = [
        path_of(info.data_path, store.uri_of(INFO), chunk_index=c, file_index=f)
        for c, f in map(places.__getitem__, firsts)
    ]
    file_rows = np.diff([*bounds[firsts], bounds[-1]]) if firsts else np.zeros(0, np.int64)
    log_ids = stored.get(LOG_ID)
    is_ours = log_ids is not None and all(isinstance(one, str) for one in log_ids)
    if not is_ours:
        return Episodes(np.array(lengths, np.int64), found, file_rows, None, stored)
    return Episodes(np.array(lengths, np.int64), found, file_rows, log_ids, stored, _splits_of(stored, place))


def _splits_of(stored: Mapping[str, Sequence[Any]], place: str) -> list[str] | None:
    """The split of each episode, "" for none; None if the dataset doesn't record it.

    Raises:
        DatasetError: the recorded splits are not valid.
    """
    if COLUMN not in stored or LOG_ROW not in stored:
        return None
    splits, rows = stored[COLUMN], stored[LOG_ROW]
    if not all(one is None or isinstance(one, str) for one in splits) or not all(map(_is_row, rows)):
        raise DatasetError(f"{place}: an episode whose {COLUMN} is no text, or whose {LOG_ROW} is no number")
    if len(set(zip(stored[LOG_ID], rows, strict=True))) < len(rows):
        raise DatasetError(f"{place}: two episodes begin with the same row of a log")
    return [one or "" for one in splits]


@dataclass(frozen=True)
class VideoPlaces:
    """The files of a video's frames.

    Attributes:
        files: names of its files.
        file: (episodes,) the number of the file of each.
        first: (episodes,) the number of its first frame in it.
    """

    files: Sequence[str]
    file: Ints
    first: Ints


def video_places(episodes: Episodes, key: str, info: InfoJson, place: str) -> VideoPlaces:
    """Return where the video of each episode is.

    Args:
        place: of the dataset, for messages.

    Raises:
        DatasetError: the recorded places of a video are not valid.
    """
    names = [f"{VIDEOS}/{key}/{name}" for name in ("chunk_index", "file_index", "from_timestamp")]
    chunks, files, starts = (episodes.columns.get(name, ()) for name in names)
    is_whole = len(chunks) == len(files) == len(starts) == len(episodes.lengths)
    if not is_whole or not info.video_path or not all(map(_is_number, [*chunks, *files])):
        raise DatasetError(f"{place}: {EPISODES} doesn't show where the videos of {key} are")
    if not all(isinstance(start, float) and 0 <= start < _MAX_SECONDS for start in starts):
        raise DatasetError(f"{place}: {EPISODES}: videos of {key} begin at no time")
    pairs = list(zip(chunks, files, strict=True))
    numbers = {one: number for number, one in enumerate(dict.fromkeys(pairs))}
    paths = [path_of(info.video_path, place, chunk_index=c, file_index=f, video_key=key) for c, f in numbers]
    first = np.rint(np.array(starts, np.float64) * info.fps).astype(np.int64)
    return VideoPlaces(paths, np.array([numbers[one] for one in pairs], np.int64), first)


def _is_row(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31
