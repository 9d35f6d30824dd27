"""`LeRobotReader`: the frames of any LeRobot dataset as rows.

Elsewhere: the metadata of the dataset (metadata), writing one (assemble).

Rows of a dataset that logloom wrote have the log_id and the timestamp that they were built with. In other
datasets each episode is a log, named by its number in nine digits, and its first frame is at 0 ns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logloom.blocks import Array, Block, Ragged, Values, take
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.arrow.columns import typed_values
from logloom.io.formats.lerobot.features import FRAME_INFO, TASK
from logloom.io.formats.lerobot.metadata import (
    Episodes,
    FeatureJson,
    InfoJson,
    VideoPlaces,
    read_episodes,
    read_info,
    read_tasks,
    video_places,
)
from logloom.io.formats.lerobot.video_reader import VideoFile
from logloom.io.formats.parquet.foreign_files import open_parquet
from logloom.io.rows.batches import Batch, scattered
from logloom.io.rows.chain import grouped
from logloom.io.rows.log_ranges import Ints, SourceLog, Stretches, parts_of
from logloom.io.rows.sources import BLOCK_BYTES, About, DatasetSource, batched, check_count, joined_bounds
from logloom.io.storage.files import File
from logloom.io.storage.folders import content_of, files_below
from logloom.io.storage.lru_cache import LruCache
from logloom.row_splits import COLUMN
from logloom.schema import MAX_TIME, STRING, TIMESTAMP, ColumnType, Schema

_KEPT_BYTES = 128 << 20  # of row groups
_PACKETS_AT_ONCE = 64
_CLAIMED_ROWS = 1 << 24  # more are counted in the files before memory is taken for them
_NO_FEATURE = FeatureJson(dtype="string", shape=(1,))  # `task`
_STAMP, _TASK_INDEX = "timestamp_ns", "task_index"


class LeRobotReader(DatasetSource):
    """Frames as rows, in order. Keeps no file open; pickles, serves many threads, crosses a fork."""

    kind = "lerobot"

    def _unchecked(self) -> str:
        return "the files of a LeRobot dataset, of which some have no checksums"

    @cached_property
    def _groups(self) -> LruCache[Any]:
        return LruCache(_KEPT_BYTES)

    @cached_property
    def _info(self) -> InfoJson:
        return read_info(self._store)

    @cached_property
    def _episodes(self) -> Episodes:
        return read_episodes(self._store, self._info)

    @cached_property
    def _tasks(self) -> list[bytes]:
        return [text.encode() for text in read_tasks(self._store, self._info.total_frames)]

    @cached_property
    def _splits(self) -> Ragged:
        """(episodes,) the split of each."""
        return Ragged.from_bytes([split.encode() for split in self._episodes.splits or ()])

    @cached_property
    def _columns(self) -> tuple[dict[str, ColumnType], dict[str, str]]:
        return self._info.columns()

    @cached_property
    def schema(self) -> Schema:
        """Features, `task`, and `split` if episodes record it."""
        split = {} if self._episodes.splits is None else {COLUMN: STRING}
        return Schema(self._columns[0] | split)

    @property
    def left_out(self) -> Mapping[str, str]:  # type: ignore[override]
        """Features that can't be read, and why."""
        return self._columns[1]

    @property
    def about(self) -> About:
        """The source's description, with hints to convert it to such a dataset again."""
        features = {key: [key] for key in self._columns[0] if key != TASK}
        fps = round(self._info.fps)
        hints = {"lerobot": {"fps": fps, "features": features, "task": {"column": TASK}}}
        return replace(super().about, hints=hints)

    @cached_property
    def _own(self) -> Stretches:
        episodes = self._episodes
        if episodes.log_ids is None:
            names = [f"{number:09}" for number in range(len(episodes.lengths))]
            own = Stretches.of_logs(names, episodes.lengths.tolist())
        else:
            rows: dict[str, int] = {}
            before = ""
            for number in range(len(episodes.lengths)) if self._order is None else self._order.tolist():
                log_id, length = episodes.log_ids[number], int(episodes.lengths[number])
                if log_id in rows and log_id != before:
                    raise DatasetError(f"{self.place}: the episodes of log {log_id} don't follow each other")
                rows[log_id], before = rows.get(log_id, 0) + length, log_id
            own = Stretches.of_logs([*rows], [*rows.values()])
        if own.num_rows > _CLAIMED_ROWS:
            for file in range(len(episodes.files)):
                self._group_bounds(file)
        check_count(self.place, own.num_rows, self._known)
        return own

    @property
    def _has_stamps(self) -> bool:
        """Whether the dataset records the times of rows."""
        stamp = self._info.features.get(_STAMP)
        return self._episodes.log_ids is not None and stamp is not None and stamp.dtype == "int64"

    @cached_property
    def stamps(self) -> Ints:
        """See `RowSource.stamps`."""
        if not self._has_stamps:
            return self._made_stamps
        found = [self._groups_of(number, _STAMP, keep=False) for number in range(len(self._episodes.files))]
        stored = np.concatenate([np.empty(0, np.int64), *(one for own in found for one in own)])
        return stored if self._order is None else stored[self._stored(np.arange(len(stored)))]

    @cached_property
    def _made_stamps(self) -> Ints:
        rows, lengths, step = len(self), self._episodes.lengths, 1e9 / self._info.fps
        if len(lengths) and float(lengths.max()) * step >= MAX_TIME:
            raise DatasetError(f"{self.place}: {lengths.max()} frames at {self._info.fps} fps last too long")
        frames = np.arange(rows) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        stamps: Ints = np.rint(frames * step).astype(np.int64)
        return stamps

    # --- order ------------------------------------------------------------------------------------------

    # If rows are split, episodes are stored split by split, but rows come in order of log and time:
    # episodes   log a, train | log b, train | log a, val         stored
    # rows       log a, train | log a, val   | log b, train       as they come

    @property
    def _order(self) -> Ints | None:
        """(episodes,) their numbers in the order of rows; None if they are stored in it."""
        return self._episodes.order

    @cached_property
    def _shown(self) -> Ints:
        """(episodes + 1,) the position of the first row of each, in the order of rows."""
        lengths = self._episodes.lengths
        own = lengths if self._order is None else lengths[self._order]
        return np.concatenate([[0], np.cumsum(own)]).astype(np.int64)

    def _stored(self, positions: Ints) -> Ints:
        """(n,) the stored frame of each row."""
        if self._order is None:
            return positions
        places = np.searchsorted(self._shown, positions, side="right") - 1
        return positions - self._shown[places] + self._starts[self._order[places]]

    def _until(self, row: int) -> int:
        """The end of the rows after a given one that are stored contiguously."""
        if self._order is None:
            return len(self)
        return int(self._shown[np.searchsorted(self._shown, row, side="right")])

    # --- rows -------------------------------------------------------------------------------------------

    def group_bounds(self, names: Sequence[str]) -> Ints:
        """See `RowSource.group_bounds`: row groups; ranges where there is video, or another order."""
        if self._order is not None or not {*self.videos}.isdisjoint(names):
            return super().group_bounds(names)
        return joined_bounds(map(self._group_bounds, range(len(self._episodes.files))))

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """See `RowSource.take`; each row group that is touched is read once."""
        types = self.schema.all
        parts: list[tuple[Ints, Batch]] = []
        stretches = self.stretches
        for file, where, own in grouped(self._file_bounds, self._stored(positions)):
            for group, inner, rows in grouped(self._group_bounds(file), own):
                places = where[inner]
                numbers = stretches.number_of(positions[places]).tolist()
                batch: Batch = {"log_id": [stretches.log_ids[number] for number in numbers]}
                batch["timestamp"] = self._taken(file, group, "timestamp", rows, positions[places])
                for name in names:
                    values = self._taken(file, group, name, rows, positions[places])
                    batch[name] = batched(self.place, name, values, types[name])
                parts.append((places, batch))
        return scattered(parts, len(positions), out) if parts else {}

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """A block has rows of one row group."""
        pixels = sum(math.prod(self.schema.columns[name].tail) for name in names if name in self.videos)
        most = max(1, max_bytes // pixels) if pixels else len(self)
        for log_id, first, last in self._own.between(start, stop):
            at = first
            while at < last:
                stored = int(self._stored(np.array([at]))[0])
                file = int(np.searchsorted(self._file_bounds, stored, side="right")) - 1
                row = stored - int(self._file_bounds[file])
                bounds = self._group_bounds(file)
                group = int(np.searchsorted(bounds, row, side="right")) - 1
                count = min(int(bounds[group + 1]) - row, min(last, self._until(at)) - at, most)
                rows = np.arange(count) + row - bounds[group]
                positions = np.arange(at, at + len(rows))
                found = {
                    name: self._taken(file, group, name, rows, positions) for name in ("timestamp", *names)
                }
                whole = Block(log_id, "", at - first, found)
                step = max(1, max_bytes * len(whole) // max(1, whole.nbytes))
                for begin in range(0, len(whole), step):
                    end = min(begin + step, len(whole))
                    yield Block(log_id, "", whole.first_row + begin, whole.take(slice(begin, end)))
                at += len(rows)

    def _taken(self, file: int, group: int, name: str, rows: Ints, positions: Ints) -> Values:
        """Read a column of some rows.

        Args:
            rows: of the row group.
            positions: of the same rows among all.
        """
        if name == "timestamp":
            if self._has_stamps:
                return take(self._column(file, group, _STAMP), rows)
            return self._made_stamps[positions]
        if name == TASK:
            numbers = take(self._column(file, group, _TASK_INDEX), rows)
            assert isinstance(numbers, np.ndarray)
            if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(self._tasks):
                raise DatasetError(f"{self._place(file)}: names a task that doesn't exist")
            return Ragged.from_bytes([self._tasks[number] for number in numbers.tolist()])
        if name == COLUMN and self._episodes.splits is not None:
            return self._splits.take(self._episode_of(self._stored(positions)))
        if name in self.videos:
            return self._pictures(name, positions)
        return take(self._column(file, group, name), rows)

    # --- video ------------------------------------------------------------------------------------------

    @cached_property
    def videos(self) -> tuple[str, ...]:
        """The features that are video."""
        return tuple(
            key for key in self.schema.columns if self._info.features.get(key, _NO_FEATURE).dtype == "video"
        )

    @cached_property
    def _places(self) -> dict[str, VideoPlaces]:
        return {key: video_places(self._episodes, key, self._info, self.place) for key in self.videos}

    @cached_property
    def _video_files(self) -> dict[tuple[str, int], VideoFile]:
        files = {}
        for key, places in self._places.items():
            shape = [length or 0 for length in self.schema.columns[key].shape]
            for number, name in enumerate(places.files):
                file = File(self._store.uri_of(name), self._store.options)
                files[key, number] = VideoFile(file, self._info.fps, shape)
        return files

    @cached_property
    def _starts(self) -> Ints:
        """(episodes + 1,) the position of the first row of each."""
        return np.concatenate([[0], np.cumsum(self._episodes.lengths)]).astype(np.int64)

    def _episode_of(self, stored: Ints) -> Ints:
        """(n,) the number of the episode of each frame."""
        return np.searchsorted(self._starts, stored, side="right") - 1

    def _frames(self, key: str, positions: Ints) -> Iterator[tuple[VideoFile, Ints, Ints]]:
        """Group rows by file of a video: the file, positions of its rows, and the numbers of their frames."""
        places = self._places[key]
        stored = self._stored(positions)
        episodes = self._episode_of(stored)
        frames = stored - self._starts[episodes] + places.first[episodes]
        files = places.file[episodes]
        for number in np.unique(files).tolist():
            where = np.flatnonzero(files == number)
            yield self._video_files[key, number], where, frames[where]

    def _pictures(self, key: str, positions: Ints) -> Array:
        """Decode the pictures of some rows, each once: (n, height, width, 3) uint8."""
        shape = [length or 0 for length in self.schema.columns[key].shape]
        found = np.empty((len(positions), *shape), np.uint8)
        for file, where, frames in self._frames(key, positions):
            unique, back = np.unique(frames, return_inverse=True)
            pictures = file.pictures(unique.tolist())
            found[where] = (
                pictures if len(unique) == len(frames) and (np.diff(frames) > 0).all() else pictures[back]
            )
        return found

    def packets(self, key: str, start: int, stop: int) -> Iterator[Ragged]:
        """Read the packets of rows [start, stop) of a video that logloom wrote, in which each is a frame.

        Args:
            key: of the feature.
            start: the first row.
            stop: the row after the last.
        """
        while start < stop:
            positions = np.arange(start, min(start + _PACKETS_AT_ONCE, self._until(start), stop))
            start += len(positions)
            for file, _, frames in self._frames(key, positions):
                cuts = np.flatnonzero(np.diff(frames) != 1) + 1
                for run in np.split(frames, cuts):
                    yield file.packets(int(run[0]), int(run[-1]) + 1)

    # --- files ------------------------------------------------------------------------------------------

    def _place(self, file: int) -> str:
        return self._store.uri_of(self._episodes.files[file])

    @cached_property
    def _file_bounds(self) -> Ints:
        return np.concatenate([[0], np.cumsum(self._episodes.file_rows)]).astype(np.int64)

    def _group_bounds(self, file: int) -> Ints:
        """(G + 1,) the start of each row group of a file."""
        key: tuple[Any, ...] = (file,)
        found: Ints | None = self._groups.get(key)
        if found is None:
            with open_parquet(self._store, self._episodes.files[file]) as opened:
                metadata = opened.metadata
                counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
            if min(counts, default=0) < 0 or sum(counts) != self._episodes.file_rows[file]:
                raise DatasetError(
                    f"{self._place(file)}: {sum(counts)} frames, its episodes have "
                    f"{self._episodes.file_rows[file]}"
                )
            found = np.cumsum([0, *counts], dtype=np.int64)
            self._groups.put(key, found)
        return found

    def _groups_of(self, file: int, name: str, *, keep: bool) -> list[Any]:
        groups = range(len(self._group_bounds(file)) - 1)
        return [self._column(file, group, name, keep=keep) for group in groups]

    def _column(self, file: int, group: int, name: str, *, keep: bool = True) -> Values:
        """A column of a row group."""
        key = (file, group, name)
        found: Values | None = self._groups.get(key)
        if found is None:
            start, stop = self._group_bounds(file)[group : group + 2].tolist()
            with open_parquet(self._store, self._episodes.files[file]) as opened:
                if name not in opened.schema_arrow.names:
                    raise DatasetError(
                        f"{self._place(file)}: has no column {name!r}, which {self.place} lists"
                    )
                table = opened.read_row_group(group, columns=[name], use_threads=False)
            try:
                if len(table) != stop - start:  # which pyarrow doesn't compare
                    raise ValueError(f"{len(table)} frames instead of {stop - start}")
                column = table.column(name)
                found = feature_values(pa.concat_arrays(column.chunks), self._stored_type(name))
            except (ValueError, KeyError, pa.ArrowException) as error:
                raise DatasetError(f"{self._place(file)}: row group {group}: {name}: {error}") from error
            if keep:
                self._groups.put(key, found)
        return found

    def _stored_type(self, name: str) -> ColumnType:
        return TIMESTAMP if name in FRAME_INFO else self.schema.columns[name]

    def logs(self) -> Sequence[SourceLog]:
        """See `RowSource.logs`."""
        content, size = content_of(self._store, files_below(self._store, ["data", "meta", "videos"]))
        logs = []
        for log_id, first, stop in self.stretches.spans():
            stamps = self.stamps[first:stop]
            if (stamps[1:] <= stamps[:-1]).any():
                raise DatasetError(f"{self.place}: the times of log {log_id} don't ascend")
            parts = parts_of(log_id, stamps, first, content, size * len(stamps) // max(1, len(self)))
            logs.append(SourceLog.of(log_id, f"{self.place}/{log_id}", parts))
        return logs


def feature_values(array: Any, ctype: ColumnType) -> Values:
    """Convert a stored column to the values of a feature, for any writer of such datasets.

    Raises:
        ValueError: they are of another type, or one is missing.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.null_count:
        raise ValueError("a frame without it")
    if ctype.kind == "bytes":
        if pa.types.is_struct(array.type):
            array = pc.struct_field(array, "bytes")
        if array.null_count:
            raise ValueError("an image in another file")
        return typed_values(array, ctype)
    if ctype.kind == "string":
        return typed_values(array, ctype)
    flat = array
    while pa.types.is_nested(flat.type) and not pa.types.is_struct(flat.type):
        if pa.types.is_fixed_size_list(flat.type):
            size = flat.type.list_size
            flat = flat.values.slice(flat.offset * size, len(flat) * size)
        else:
            flat = flat.flatten()
    values = np.asarray(typed_values(flat, _leaf(flat.type)))
    return values.reshape(len(array), *ctype.shape).astype(ctype.dtype, copy=False)


def _leaf(kind: Any) -> ColumnType:
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"{kind} values, which are no numbers")
    return ColumnType(np.dtype(kind.to_pandas_dtype()))
