"""Plan of a LeRobot dataset: its files, and the ranges of units in each.

Here: `plan_assembly`, which reads nothing, and the tasks that it returns, one per file.
Elsewhere: making the files (assemble), staged units (stage), which episodes a file has (episodes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom.digests import digest_of
from logloom.errors import UsageError
from logloom.io.formats.assembly import parts_json
from logloom.io.formats.interface import AssemblyPlan, PlannedPortion, StagedUnit, unit_name
from logloom.io.formats.lerobot.episode_tables import cut_episodes
from logloom.io.formats.lerobot.episodes import Episode, file_name, make_episodes
from logloom.io.formats.lerobot.features import FeatureMapping, info_of
from logloom.io.formats.lerobot.files import DATA, EPISODES, INFO, TASKS, VIDEOS, info_bytes, tasks_bytes
from logloom.io.formats.lerobot.options import LeRobotOptions
from logloom.values import dataclass


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
