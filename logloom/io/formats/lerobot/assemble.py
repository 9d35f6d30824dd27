"""Assembly of the files of a split's LeRobot dataset, and their verification.

Here: pure functions; each file is made from the ranges of units that it needs, by one worker, in any order.
Elsewhere: which files and ranges (plan), staged units (stage), bytes of files (files), publishing files (the
caller).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Block, Values
from logloom.digests import ColumnDigest, RowsDigest, digest_of
from logloom.errors import DatasetError
from logloom.io.catalog.entries import repair_hint
from logloom.io.formats.assembly import CHECK_BYTES, UnitRanges, part_problems
from logloom.io.formats.lerobot.episode_tables import episode_row, episodes_bytes
from logloom.io.formats.lerobot.features import FeatureMapping
from logloom.io.formats.lerobot.files import STATS, data_bytes, data_table, frames_of, json_bytes
from logloom.io.formats.lerobot.plan import (
    DataFileTask,
    EpisodePlan,
    EpisodesFileTask,
    FileTask,
    FramePiece,
    StatsTask,
    VideoFileTask,
)
from logloom.io.formats.lerobot.reader import LeRobotReader
from logloom.io.formats.lerobot.staged_rows import PIXELS, STATISTICS, StagedRows
from logloom.io.formats.lerobot.statistics import CHANNELS, LEVELS, NumberStatistics, stats_json
from logloom.io.formats.lerobot.video_encoder import joined
from logloom.io.formats.stages import read_entries, staged_file
from logloom.io.storage.store import Store
from logloom.io.video.frames import pyav
from logloom.schema import BYTES
from logloom.statistics.columns import Statistics

_GROUP_BYTES = 4 << 20  # of a row group
_GROUP_ROWS = 1 << 14
_PACKETS_AT_ONCE = 64
_SEGMENTS_AT_ONCE = 64


def make_file(store: Store, task: FileTask | StatsTask) -> tuple[str, bytes]:
    """Make the name and the bytes of a file.

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

    head = units[0].head(task.number, task.pieces[0].start).as_stream()
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
            raise DatasetError(f"{place}: names a task that doesn't exist: damaged; {repair_hint(place)}")
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
        total += read_entries(file, at, end, np.dtype("<i8"), total.shape).sum(axis=0)
    return total


def _quantities(
    numbers: Statistics,
    pixels: NDArray[np.int64],
    mapping: FeatureMapping,
    channels: Mapping[str, int],
    rows: int,
    place: str,
) -> dict[str, Any]:
    """Compute the statistics of some rows.

    Raises:
        DatasetError: a unit's statistics are damaged; names `place`, the file that needs them.
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
        data = read_entries(file, 0, file.size).tobytes()
        numbers.append(Statistics.from_bytes(data, store.uri_of(name)))
        pixels += _pixels(store, folder, len(pixels), 0, segments)
    rows = sum(rows for _, rows, _ in task.units)
    known = Statistics.merged(numbers)
    return _quantities(known, pixels, task.mapping, task.channels, rows, store.uri_of(STATS))


# --- proof ----------------------------------------------------------------------------------------------


def problems(
    folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any] | None
) -> Iterator[str]:
    """Compare a dataset, read through its reader, with the rows that were staged for it."""
    reader = LeRobotReader(folder, storage_options)
    total = sum(part[2] for part in unit["parts"])
    if len(reader) != total:
        yield f"{len(reader)} rows, {total} were written"
        return

    names = [name for name in reader.schema.columns if name not in reader.videos]

    def digest(part: UnitRanges) -> str:
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
