"""One LeRobot dataset from the staged units of a split: its plan, its files, and the proof of it.

Here: pure functions; each file is made from the ranges of units that it needs, by one worker, in any order.
Elsewhere: staged units (stage), which episodes a file has (episodes), bytes of files (files), where files
are published (the caller).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Block, Values
from logloom.digests import ColumnDigest, RowsDigest, digest_of
from logloom.errors import DatasetError, UsageError
from logloom.io.assembling import CHECK_BYTES, Part, part_problems, parts_json
from logloom.io.entries import repair_hint
from logloom.io.lerobot.encoding import joined
from logloom.io.lerobot.episode_tables import cut_episodes, episode_row, episodes_bytes
from logloom.io.lerobot.episodes import Episode, file_name, make_episodes
from logloom.io.lerobot.features import FeatureMapping, info_of
from logloom.io.lerobot.files import (
    DATA,
    EPISODES,
    INFO,
    STATS,
    TASKS,
    VIDEOS,
    data_bytes,
    data_table,
    frames_of,
    info_bytes,
    json_bytes,
    tasks_bytes,
)
from logloom.io.lerobot.options import LeRobotOptions
from logloom.io.lerobot.reader import LeRobotReader
from logloom.io.lerobot.staged import PIXELS, STATISTICS, StagedRows
from logloom.io.lerobot.statistics import CHANNELS, LEVELS, NumberStatistics, stats_json
from logloom.io.lerobot.video import FileStream
from logloom.io.staging import read_range, staged_file
from logloom.io.storage import Store
from logloom.io.units import AssemblyPlan, PlannedPortion, StagedUnit, unit_name
from logloom.io.video.frames import pyav
from logloom.schema import BYTES
from logloom.statistics.state import Statistics

_GROUP_BYTES = 4 << 20  # of a row group
_GROUP_ROWS = 1 << 14
_PACKETS_AT_ONCE = 64
_SEGMENTS_AT_ONCE = 64


@dataclass(frozen=True)
class FramePiece:
    """Rows [start, stop) of a unit, which follow each other in an episode.

    Attributes:
        rows: of the unit.
        first: the position of the first of them among all rows.
        episode, frame: the episode, and the number of the first row in it.
        tasks: the dataset's numbers of the unit's tasks.
    """

    folder: str
    rows: int
    start: int
    stop: int
    first: int
    episode: int
    frame: int
    tasks: tuple[int, ...]

    @property
    def inputs(self) -> list[Any]:
        """What bytes depend on (JSON)."""
        place = [self.start, self.stop, self.first, self.episode, self.frame]
        return [unit_name(self.folder), *place, list(self.tasks)]


@dataclass(frozen=True)
class DataFileTask:
    """A file of data."""

    name: str
    mapping: FeatureMapping
    fps: int
    pieces: tuple[FramePiece, ...]


@dataclass(frozen=True)
class VideoPiece:
    """Rows [start, stop) of a unit; `rows` are all of it, `runs` those of its video."""

    folder: str
    rows: int
    start: int
    stop: int
    runs: tuple[Any, ...]

    @property
    def inputs(self) -> list[Any]:
        """What bytes depend on (JSON)."""
        return [unit_name(self.folder), self.start, self.stop]


@dataclass(frozen=True)
class VideoFileTask:
    """A file of the video of a feature, which `number` names among features that are video."""

    name: str
    number: int
    mapping: FeatureMapping
    fps: int
    pieces: tuple[VideoPiece, ...]


@dataclass(frozen=True)
class EpisodePlan:
    """What a row of meta/episodes is made of.

    Attributes:
        texts: of its tasks.
        units: folder and rows of the unit of each piece.
    """

    number: int
    episode: Episode
    texts: tuple[str, ...]
    units: tuple[tuple[str, int], ...]

    @property
    def inputs(self) -> list[Any]:
        """What bytes depend on (JSON)."""
        own = self.episode
        pieces = [
            [unit_name(folder), piece.start, piece.stop]
            for piece, (folder, _) in zip(own.pieces, self.units, strict=True)
        ]
        place = [own.log_id, own.first, list(own.files), list(own.frames), list(self.texts), pieces]
        return place if own.split is None else [*place, own.split, own.row]


@dataclass(frozen=True)
class EpisodesFileTask:
    """A file of meta/episodes, which `number` names among these.

    Attributes:
        channels: of images, by key.
    """

    name: str
    number: int
    mapping: FeatureMapping
    fps: int
    channels: Mapping[str, int]
    episodes: tuple[EpisodePlan, ...]


@dataclass(frozen=True)
class StatsTask:
    """meta/stats.json.

    Attributes:
        units: folder, rows and segments of each.
        channels: of images, by key.
    """

    mapping: FeatureMapping
    units: tuple[tuple[str, int, int], ...]
    channels: Mapping[str, int]


FileTask = DataFileTask | VideoFileTask | EpisodesFileTask


def plan_assembly(
    units: Sequence[StagedUnit], mapping: FeatureMapping, options: LeRobotOptions
) -> AssemblyPlan:
    """Plans the dataset of some units; reads nothing.

    Args:
        units: in row order, (log_id, span).

    Raises:
        UsageError: rows are no frames, or images of one feature differ in shape.
        DatasetError: the units are out of order.
    """
    episodes = make_episodes(units, options)
    shapes = _shapes(units, mapping)
    texts = list(dict.fromkeys(text for unit in units for text in unit.unit["tasks"]))
    numbers = {text: number for number, text in enumerate(texts)}
    channels = {key: shape[2] for key, shape in shapes.items()}
    kinds: list[list[FileTask]] = [[*_data_tasks(units, episodes, mapping, options, numbers)]]
    kinds += [_video_tasks(units, episodes, mapping, options, n) for n in range(len(mapping.videos))]
    kinds.append([*_episodes_tasks(units, episodes, mapping, options, channels)])
    tasks = [task for own in kinds for task in own]
    last = {own[-1].name for own in kinds if own}  # which grows with the next log
    portions = [
        PlannedPortion(task.name, _inputs(task), (number, number + 1))
        for number, task in enumerate(tasks)
        if task.name not in last
    ]
    segments = tuple((unit.folder, unit.rows, len(unit.unit["segments"])) for unit in units)
    stats = StatsTask(mapping, segments, channels)
    files = {
        INFO: info_bytes(info_of(mapping, shapes, options.fps), episodes, len(texts), options),
        TASKS: tasks_bytes(texts),
    }
    reads = [_folders(task) for task in tasks]
    reads.append([unit.folder for unit in units])
    names = ("log_id", "timestamp", *mapping.schema.all)
    parts = parts_json(units, lambda unit: digest_of({name: unit.columns[name] for name in names}))
    about = {"parts": parts}
    return AssemblyPlan([*tasks, stats], files, about, [INFO], portions=portions, reads=reads)


def _inputs(task: FileTask) -> list[Any]:
    own = task.episodes if isinstance(task, EpisodesFileTask) else task.pieces
    return [one.inputs for one in own]


def _folders(task: FileTask) -> list[str]:
    """The units that a file is made of."""
    if isinstance(task, EpisodesFileTask):
        return list(dict.fromkeys(folder for plan in task.episodes for folder, _ in plan.units))
    return [piece.folder for piece in task.pieces]


def _texts_of(episode: Episode, units: Sequence[StagedUnit]) -> tuple[str, ...]:
    """The tasks of an episode, in the order in which they come."""
    return tuple(dict.fromkeys(units[number].unit["tasks"][task] for number, task in episode.tasks))


def _shapes(units: Sequence[StagedUnit], mapping: FeatureMapping) -> dict[str, tuple[int, ...]]:
    """The shape of the images of each feature.

    Raises:
        UsageError: two units differ.
    """
    found: dict[str, tuple[int, ...]] = {}
    whose: dict[str, str] = {}
    for unit in units:
        for feature, shape in zip(mapping.images, unit.unit["shapes"], strict=True):
            first = found.setdefault(feature.key, tuple(shape))
            other = whose.setdefault(feature.key, unit.log_id)
            if first != tuple(shape):
                raise UsageError(
                    f"outputs: lerobot: {feature.key}: images of log {unit.log_id} are {tuple(shape)}, "
                    f"those of log {other} {first}; `as: image` with `resize` makes one shape of them"
                )
    return found


def _data_tasks(
    units: Sequence[StagedUnit],
    episodes: Sequence[Episode],
    mapping: FeatureMapping,
    options: LeRobotOptions,
    numbers: Mapping[str, int],
) -> Iterator[DataFileTask]:
    of_file: dict[int, list[FramePiece]] = {}
    for number, episode in enumerate(episodes):
        frame = 0
        for piece in episode.pieces:
            unit = units[piece.unit]
            tasks = tuple(numbers[text] for text in unit.unit["tasks"])
            place = piece.start, piece.stop, episode.first + frame, number, frame
            own = FramePiece(unit.folder, unit.rows, *place, tasks)
            of_file.setdefault(episode.files[0], []).append(own)
            frame += piece.stop - piece.start
    for file, pieces in of_file.items():
        yield DataFileTask(file_name(DATA, file, "parquet"), mapping, options.fps, tuple(pieces))


def _video_tasks(
    units: Sequence[StagedUnit],
    episodes: Sequence[Episode],
    mapping: FeatureMapping,
    options: LeRobotOptions,
    number: int,
) -> list[FileTask]:
    """The files of the video of a feature; the first kind of file is data."""
    key = mapping.images[number].key
    heads = {unit.unit["heads"][number]: unit.log_id for unit in units}
    if len(heads) > 1:
        raise UsageError(
            f"outputs: lerobot: {key}: the videos of logs {', '.join(heads.values())} were encoded in "
            "different ways, so they can't be joined; build all with one version of PyAV, into a new root"
        )
    of_file: dict[int, list[VideoPiece]] = {}
    for episode in episodes:
        for piece in episode.pieces:
            unit = units[piece.unit]
            runs = tuple((rows, tuple(offsets)) for rows, offsets in unit.unit["runs"])
            own = VideoPiece(unit.folder, unit.rows, piece.start, piece.stop, runs)
            of_file.setdefault(episode.files[1 + number], []).append(own)
    return [
        VideoFileTask(file_name(f"{VIDEOS}/{key}", file, "mp4"), number, mapping, options.fps, tuple(pieces))
        for file, pieces in of_file.items()
    ]


def _episodes_tasks(
    units: Sequence[StagedUnit],
    episodes: Sequence[Episode],
    mapping: FeatureMapping,
    options: LeRobotOptions,
    channels: Mapping[str, int],
) -> Iterator[EpisodesFileTask]:
    for number, own in enumerate(cut_episodes(episodes, mapping.features, options.file_bytes)):
        plans = []
        for n in own:
            episode = episodes[n]
            of_pieces = [units[piece.unit] for piece in episode.pieces]
            places = tuple((unit.folder, unit.rows) for unit in of_pieces)
            plans.append(EpisodePlan(n, episode, _texts_of(episode, units), places))
        name = file_name(EPISODES, number, "parquet")
        yield EpisodesFileTask(name, number, mapping, options.fps, channels, tuple(plans))


def make_file(store: Store, task: FileTask | StatsTask) -> tuple[str, bytes]:
    """The name and the bytes of a file.

    Raises:
        DatasetError: a staged file is missing or damaged.
    """
    if isinstance(task, StatsTask):
        return STATS, json_bytes(_stats(store, task))
    if isinstance(task, VideoFileTask):
        return task.name, _video(store, task)
    if isinstance(task, EpisodesFileTask):
        rows = (_episode_row(store, task, plan) for plan in task.episodes)
        mapping = task.mapping
        return task.name, episodes_bytes(
            rows, mapping.features, mapping.videos, has_splits=mapping.has_splits
        )
    tables = (table for piece in task.pieces for table in _tables(store, task, piece))
    return task.name, data_bytes(tables, task.mapping.stored)


def _staged(store: Store, mapping: FeatureMapping, folder: str, rows: int, runs: Any = ()) -> StagedRows:
    return StagedRows(lambda name: staged_file(store, f"{folder}/{name}"), mapping, rows, runs)


def _video(store: Store, task: VideoFileTask) -> bytes:
    units = [_staged(store, task.mapping, piece.folder, piece.rows, piece.runs) for piece in task.pieces]

    def packets() -> Iterator[tuple[bytes, bool]]:
        for piece, staged in zip(task.pieces, units, strict=True):
            for start in range(piece.start, piece.stop, _PACKETS_AT_ONCE):
                stop = min(start + _PACKETS_AT_ONCE, piece.stop)
                keys = staged.keys(task.number, start, stop).tolist()
                for data, is_key in zip(staged.images(task.number, start, stop), keys, strict=True):
                    yield data.tobytes(), is_key

    head = FileStream(units[0].head(task.number, task.pieces[0].start))
    try:
        return joined(head, packets(), task.fps)
    except (pyav().error.FFmpegError, ValueError, EOFError) as error:
        if head.error is not None:
            raise head.error from error
        raise DatasetError(f"{head.name}: damaged ({error}); {repair_hint(head.name)}") from error


def _tables(store: Store, task: DataFileTask, piece: FramePiece) -> Iterator[Any]:
    """The row groups of a piece."""
    staged = _staged(store, task.mapping, piece.folder, piece.rows)
    images = task.mapping.images if task.mapping.video is None else ()
    start = piece.start
    while start < piece.stop:
        stop = min(start + _GROUP_ROWS, piece.stop)
        if images:
            ends = staged.ends.sum(axis=1)
            stop = min(stop, max(start + 1, int(np.searchsorted(ends, ends[start] + _GROUP_BYTES))))
        rows = staged.numbers(start, stop)
        columns: dict[str, Values] = {}
        for number, feature in enumerate(task.mapping.numbers):
            columns[feature.key] = np.ascontiguousarray(rows[str(number)])
        for number, feature in enumerate(images):
            columns[feature.key] = staged.images(number, start, stop)
        known = np.array(piece.tasks, np.int64)
        if int(rows["task"].max()) >= len(known):
            place = store.uri_of(piece.folder)
            raise DatasetError(f"{place}: names a task that isn't there: damaged; {repair_hint(place)}")
        skipped = start - piece.start
        place_in = piece.first + skipped, piece.frame + skipped, piece.episode
        columns |= frames_of(rows["timestamp"], *place_in, known[rows["task"]], task.fps)
        yield data_table(columns, task.mapping.stored)
        start = stop


def _episode_row(store: Store, task: EpisodesFileTask, plan: EpisodePlan) -> dict[str, Any]:
    episode, mapping = plan.episode, task.mapping
    numbers = NumberStatistics(mapping.numbers)
    pixels = np.zeros((len(mapping.images), CHANNELS, LEVELS), np.int64)
    for piece, (folder, unit_rows) in zip(episode.pieces, plan.units, strict=True):
        staged = _staged(store, mapping, folder, unit_rows)
        for start in range(piece.start, piece.stop, _GROUP_ROWS):
            rows = staged.numbers(start, min(start + _GROUP_ROWS, piece.stop))
            columns = {feature.key: rows[str(n)] for n, feature in enumerate(mapping.numbers)}
            numbers.update(Block(episode.log_id, "", 0, {"timestamp": rows["timestamp"], **columns}))
        pixels += _pixels(store, folder, len(pixels), piece.segment, piece.segment + 1)
    stats = _quantities(
        numbers.close(), pixels, mapping, task.channels, episode.rows, store.uri_of(task.name)
    )
    return episode_row(plan.number, episode, plan.texts, mapping.videos, stats, task.fps, task.number)


def _pixels(store: Store, folder: str, images: int, start: int, stop: int) -> NDArray[np.int64]:
    """(images, 3, 256) how often values occur in segments [start, stop) of a unit."""
    total = np.zeros((images, CHANNELS, LEVELS), np.int64)
    for at in range(start, stop, _SEGMENTS_AT_ONCE) if images else ():
        file = staged_file(store, f"{folder}/{PIXELS}")
        end = min(at + _SEGMENTS_AT_ONCE, stop)
        own = read_range(file, at * total.nbytes, end * total.nbytes).view("<i8")
        total += own.reshape(-1, *total.shape).sum(axis=0)
    return total


def _quantities(
    numbers: Statistics,
    pixels: NDArray[np.int64],
    mapping: FeatureMapping,
    channels: Mapping[str, int],
    rows: int,
    place: str,
) -> dict[str, Any]:
    """The statistics of some rows.

    Raises:
        DatasetError: what they are made of is damaged; names `place`, which they are made for.
    """
    counts = {feature.key: own for feature, own in zip(mapping.images, pixels, strict=True)}
    try:
        return stats_json(mapping.features, numbers, counts, channels, rows)
    except (KeyError, IndexError, ZeroDivisionError) as error:
        raise DatasetError(f"{place}: statistics of a unit are damaged ({error!r})") from error


def _stats(store: Store, task: StatsTask) -> dict[str, Any]:
    numbers: list[Statistics] = []
    pixels = np.zeros((len(task.mapping.images), CHANNELS, LEVELS), np.int64)
    for folder, _, segments in task.units:
        name = f"{folder}/{STATISTICS}"
        file = staged_file(store, name)
        data = read_range(file, 0, file.size).tobytes()
        numbers.append(Statistics.from_bytes(data, store.uri_of(name)))
        pixels += _pixels(store, folder, len(pixels), 0, segments)
    rows = sum(rows for _, rows, _ in task.units)
    known = Statistics.merged(numbers)
    return _quantities(known, pixels, task.mapping, task.channels, rows, store.uri_of(STATS))


# --- proof ----------------------------------------------------------------------------------------------


def problems(
    folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any] | None
) -> Iterator[str]:
    """How a dataset, read through its reader, differs from the rows that were staged for it."""
    reader = LeRobotReader(folder, storage_options)
    total = sum(part[2] for part in unit["parts"])
    if len(reader) != total:
        yield f"{len(reader)} rows, {total} were written"
        return

    names = [name for name in reader.schema.columns if name not in reader.videos]

    def digest(part: Part) -> str:
        found = RowsDigest(reader.schema.part(names))
        for block in reader.blocks(names, CHECK_BYTES, *part.ranges[0]):
            found.update(block)
        # Packets, since equal ones give equal pictures, and decoding takes far longer.
        packets = {key: ColumnDigest(key, BYTES) for key in reader.videos}
        for key, own in packets.items():
            for some in reader.packets(key, *part.ranges[0]):
                own.update(some)
        return digest_of(found.hexdigests() | {key: own.hexdigest() for key, own in packets.items()})

    yield from part_problems(unit, digest)
