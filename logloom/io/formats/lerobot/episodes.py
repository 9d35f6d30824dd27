"""Episodes: where they begin and end, and which files contain them.

Here: pure functions: rows of a unit into segments, segments of all units into episodes, episodes into files.
Elsewhere: recording segments (stage), the plan made of episodes (plan).

    rows      . . . . .   . . . . . . . .        a gap, and bytes or rows by which a segment is full
    segments |---------| |-----|---------|       of a unit
    episodes |---------| |------------------…    go on in the log's next unit

Where single rows are split, an episode has rows of one split, and episodes are ordered by split name; each
split begins files of its own. An episode is cut only between segments, so that it fits a file, and lasts at
most half an hour: LeRobot keeps the time of a frame in 32 bits, which resolve 0.1 ms up to 2048 s, and
refuses frames with a larger error.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.formats.assembly import by_log
from logloom.io.formats.interface import StagedUnit
from logloom.io.formats.lerobot.options import LeRobotOptions
from logloom.values import dataclass

CHUNK_FILES = 1000  # files of a folder
MAX_SECONDS = 1800
_SEGMENTS = 16  # of a file, at least
_TOLERANCE = 100_000  # ns that a frame may be off; as much as LeRobot allows
_ROW_BYTES = 64  # of indices, and of what a container says of a frame
_FILE_BYTES = 1 << 15  # of headers and footers


def is_gap(before: int, after: int, options: LeRobotOptions, place: str) -> bool:
    """Whether an episode ends between two consecutive rows.

    Args:
        before, after: their times in ns.

    Raises:
        UsageError: they are neither a frame nor a gap apart.
    """
    apart = after - before
    if apart <= 1.5 * options.step and abs(apart - options.step) > _TOLERANCE:
        raise UsageError(
            f"{place}: rows at {before} and {after} ns are {apart / 1e6:g} ms apart, frames of fps: "
            f"{options.fps} {options.step / 1e6:g} ms; say `clock: {{rate: {options.fps}}}`, or another fps"
        )
    return apart > options.gap


def period_problem(period: int | None, options: LeRobotOptions) -> str:
    """Explain why rows of a clock are no frames; "" if they may be.

    Args:
        period: of a rate clock, in ns; None for a topic clock.
    """
    if period is None or abs(period - options.step) <= _TOLERANCE:
        return ""
    return (
        f"{options.fps} is a frame each {options.step / 1e6:g} ms, the clock ticks each {period / 1e6:g} ms; "
        "make fps the clock's rate"
    )


def segments_of(
    times: NDArray[np.int64],
    sizes: NDArray[np.int64],
    begins: NDArray[np.bool_],
    tasks: NDArray[np.int64],
    options: LeRobotOptions,
    place: str,
    borders: NDArray[np.bool_] | None = None,
) -> list[list[Any]]:
    """Find the segments of a unit: [rows, first time, last time, bytes of each kind, numbers of tasks].

    Args:
        times: (n,) of its rows.
        sizes: (n, k) bytes of each row in each kind of file.
        begins: (n,) whether a file may begin with a row.
        tasks: (n,) numbers.
        borders: (n,) whether another split begins with a row; None: nowhere.

    Raises:
        UsageError: rows are no frames.
    """
    most_bytes, most_rows = options.file_bytes // _SEGMENTS, _most_rows(options)
    starts = np.append(np.flatnonzero(begins), len(times))
    # From each row to the next one that may begin a file.
    counts = starts[starts.searchsorted(np.arange(len(times)), side="right")] - np.arange(len(times))
    found: list[list[Any]] = []
    borders = np.zeros(len(times), bool) if borders is None else borders
    columns = (times, sizes, begins, counts, tasks, borders)
    for time, own, may_begin, count, task, is_border in zip(*(one.tolist() for one in columns), strict=True):
        last = found[-1] if found else None
        is_full = (
            last is not None
            and may_begin
            and (max(_sum(last[3], own)) > most_bytes or last[0] + count > most_rows)
        )
        if last is None or is_gap(last[2], time, options, place) or is_full or is_border:
            found.append([1, time, time, own, [task]])
        else:
            last[:] = [last[0] + 1, last[1], time, [*_sum(last[3], own)], last[4]]
            if task not in last[4]:
                last[4].append(task)
    return found


def _most_rows(options: LeRobotOptions) -> int:
    """The most rows of an episode."""
    return MAX_SECONDS * options.fps


def _sum(sizes: Sequence[int], more: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(operator.add, sizes, more))


@dataclass(frozen=True)
class EpisodePiece:
    """Rows [start, stop) of a unit, given by its number: one of its segments, by number."""

    unit: int
    start: int
    stop: int
    segment: int


@dataclass(frozen=True)
class Episode:
    """An episode.

    Attributes:
        pieces: its rows, by segment.
        tasks: number of a unit, and of one of its tasks, in order of first use.
        sizes: bytes in each kind of file.
        first: the position of its first row among all.
        files: the file of each kind with its rows.
        frames: number of rows before it in each of these.
        split: of its rows, "" for none; None if single rows aren't split.
        row: the number of its first row in its log.
    """

    log_id: str
    pieces: tuple[EpisodePiece, ...]
    rows: int
    sizes: tuple[int, ...]
    tasks: tuple[tuple[int, int], ...]
    first: int = 0
    files: tuple[int, ...] = ()
    frames: tuple[int, ...] = ()
    split: str | None = None
    row: int = 0


def make_episodes(units: Sequence[StagedUnit], options: LeRobotOptions) -> list[Episode]:
    """Make the episodes of all units, and choose their files: in row order, but split by split.

    Raises:
        DatasetError: the units are out of order.
        UsageError: rows are no frames.
    """
    numbers = {id(unit): number for number, unit in enumerate(units)}
    found: list[Episode] = []
    are_apart = True
    for log_id, own in by_log(units, lambda unit: [part[1:3] for part in unit.unit["segments"]]).items():
        segments = [one for unit in own for one in _segments(numbers[id(unit)], unit.unit)]
        found += _episodes_of(log_id, segments, options)
        ends = ((one.times[1], other.times[0]) for one, other in itertools.pairwise(segments))
        are_apart = are_apart and all(is_gap(*pair, options, log_id) for pair in ends)
    num_logs = len({episode.log_id for episode in found})
    if are_apart and num_logs < len(found) == sum(episode.rows for episode in found):
        raise UsageError(
            f"outputs: lerobot: no two rows are {options.step / 1e6:g} ms apart, as frames of fps: "
            f"{options.fps} do; make fps the clock's rate"
        )
    found.sort(key=lambda episode: (not episode.split, episode.split or ""))  # stable
    return _in_files(found, options.file_bytes)


def episodes_of_log(
    units: Sequence[Mapping[str, Any]], options: LeRobotOptions
) -> list[tuple[int, int, int]]:
    """Return the rows of each episode of a log in time order, and the times of the first and the last one.

    Args:
        units: what their writers returned, in row order.

    Raises:
        UsageError: rows are no frames, or too large for a file.
    """
    segments = [one for number, unit in enumerate(units) for one in _segments(number, unit)]
    times = {(one.piece.unit, one.piece.segment): one.times for one in segments}
    found = []
    for episode in _episodes_of("", segments, options):
        first, last = (times[piece.unit, piece.segment] for piece in (episode.pieces[0], episode.pieces[-1]))
        found.append((episode.rows, first[0], last[1]))
    return found


@dataclass(frozen=True)
class _EpisodeSegment:
    """Consecutive rows of a unit, as described in its entry."""

    piece: EpisodePiece
    times: tuple[int, int]
    sizes: tuple[int, ...]
    tasks: tuple[tuple[int, int], ...]
    split: str | None


def _segments(number: int, unit: Mapping[str, Any]) -> Iterator[_EpisodeSegment]:
    row = 0
    segments = unit["segments"]
    splits = unit.get("splits") or [None] * len(segments)
    for segment, (rows, first, last, sizes, tasks) in enumerate(segments):
        piece = EpisodePiece(number, row, row + rows, segment)
        numbers = tuple((number, task) for task in tasks)
        yield _EpisodeSegment(piece, (first, last), tuple(sizes), numbers, splits[segment])
        row += rows


def _episodes_of(
    log_id: str, segments: Iterable[_EpisodeSegment], options: LeRobotOptions
) -> Iterator[Episode]:
    own: list[_EpisodeSegment] = []
    total: tuple[int, ...] = ()
    rows = before = 0
    for segment in segments:
        num = segment.piece.stop - segment.piece.start
        if _file_size(max(segment.sizes), num) > options.file_bytes:
            first, last = segment.times
            raise UsageError(
                f"{log_id}: rows from {first} to {last} ns take {max(segment.sizes)} bytes, and must fit "
                f"into one file: outputs: {{lerobot: {{file_bytes: {options.file_bytes}}}}}"
            )
        joined = _sum(total, segment.sizes) if own else segment.sizes
        if own and (
            is_gap(own[-1].times[1], segment.times[0], options, log_id)
            or segment.split != own[-1].split
            or rows + num > _most_rows(options)
            or any(_file_size(size, rows + num) > options.file_bytes for size in joined)
        ):
            yield _episode(log_id, own, rows, total, before)
            own, before, rows, joined = [], before + rows, 0, segment.sizes
        own.append(segment)
        total, rows = joined, rows + num
    if own:
        yield _episode(log_id, own, rows, total, before)


def _episode(
    log_id: str, segments: Sequence[_EpisodeSegment], rows: int, sizes: tuple[int, ...], row: int
) -> Episode:
    tasks = tuple(dict.fromkeys(task for segment in segments for task in segment.tasks))
    pieces = tuple(segment.piece for segment in segments)
    return Episode(log_id, pieces, rows, sizes, tasks, split=segments[0].split, row=row)


def _file_size(size: int, rows: int) -> int:
    """An upper bound of the size of a file whose rows take `size` bytes."""
    return size + size // 64 + rows * _ROW_BYTES + _FILE_BYTES


def _in_files(episodes: Sequence[Episode], limit: int) -> list[Episode]:
    """Assign episodes to files of each kind; a file takes as many of a split as fit."""
    if not episodes:
        return []
    kinds = range(len(episodes[0].sizes))
    files, sizes, rows = [0 for _ in kinds], [0 for _ in kinds], [0 for _ in kinds]
    found: list[Episode] = []
    first = 0
    for episode in episodes:
        for kind in kinds:
            if rows[kind] and (
                episode.split != found[-1].split
                or _file_size(sizes[kind] + episode.sizes[kind], rows[kind] + episode.rows) > limit
            ):
                files[kind], sizes[kind], rows[kind] = files[kind] + 1, 0, 0
        found.append(replace(episode, first=first, files=tuple(files), frames=tuple(rows)))
        for kind in kinds:
            sizes[kind] += episode.sizes[kind]
            rows[kind] += episode.rows
        first += episode.rows
    return found


def file_name(folder: str, number: int, suffix: str) -> str:
    """A file of a kind, such as data/chunk-000/file-002.parquet."""
    chunk, file = divmod(number, CHUNK_FILES)
    return f"{folder}/chunk-{chunk:03d}/file-{file:03d}.{suffix}"
