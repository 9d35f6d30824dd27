"""Frames with their agents and lights as rows of a dataset: blocks with the columns of `MAPPED_SCHEMA`.

Here: the way back from structured arrays to blocks, and `L5KitReader` over a whole L5Kit dataset.
Elsewhere: the way there (mapping, stage), the arrays themselves (chunked).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Block, Ragged
from logloom.errors import DatasetError
from logloom.io.l5kit.chunked import ChunkedDataset
from logloom.io.l5kit.dtypes import AGENTS, ARRAYS, FRAMES, TL_FACES
from logloom.io.l5kit.mapping import MAPPED_SCHEMA

INTERVALS = {"agents": "agent_index_interval", "tl_faces": "traffic_light_faces_index_interval"}
_FRAMES_AT_ONCE = FRAMES.chunk_rows

# Gives rows [start, stop) of the array "frames", "agents" or "tl_faces".
ReadRows = Callable[[str, int, int], Array]


def read_blocks(
    read: ReadRows, start: int, stop: int, log_id: str, partition: str, place: str, max_bytes: int
) -> Iterator[Block]:
    """The frames [start, stop) as blocks of about `max_bytes`.

    Args:
        place: what holds the arrays, for errors.

    Raises:
        DatasetError: the frames' intervals don't follow one another.
    """
    for first in range(start, stop, _FRAMES_AT_ONCE):
        frames = read("frames", first, min(stop, first + _FRAMES_AT_ONCE))
        sizes = np.full(len(frames), FRAMES.dtype.itemsize, np.int64)
        for name, kind in (("agents", AGENTS), ("tl_faces", TL_FACES)):
            sizes += _lengths(frames, name, place, first) * kind.dtype.itemsize
        ends = np.cumsum(sizes)
        done = 0
        while done < len(frames):
            limit = max_bytes + (ends[done - 1] if done else 0)
            upto = max(done + 1, int(np.searchsorted(ends, limit, side="right")))
            yield _block(read, frames[done:upto], log_id, partition, first - start + done)
            done = upto


def _lengths(frames: Array, name: str, place: str, first: int) -> NDArray[np.int64]:
    intervals = frames[INTERVALS[name]]
    lengths: NDArray[np.int64] = intervals[:, 1] - intervals[:, 0]
    wrong = lengths < 0
    wrong[1:] |= intervals[1:, 0] != intervals[:-1, 1]
    if wrong.any() or (len(intervals) and intervals[0, 0] < 0):
        frame = first + int(wrong.argmax())
        raise DatasetError(f"{place}: the {name} of frame {frame} don't follow those of the frame before")
    return lengths


def _block(read: ReadRows, frames: Array, log_id: str, partition: str, first_row: int) -> Block:
    columns: dict[str, Any] = {
        "timestamp": frames["timestamp"],
        "ego_translation": frames["ego_translation"],
        "ego_rotation": frames["ego_rotation"],
    }
    for name, field in INTERVALS.items():
        intervals = frames[field]
        rows = read(name, int(intervals[0, 0]), int(intervals[-1, 1]))
        columns[name] = Ragged(rows, intervals[:, 1] - intervals[:, 0])
    return Block(log_id, partition, first_row, columns)


def rows_of(dataset: ChunkedDataset) -> ReadRows:
    """Reads from the arrays of an open dataset; rows beyond an array are an error."""

    def read(name: str, start: int, stop: int) -> Array:
        array = getattr(dataset, name)
        if not 0 <= start <= stop <= len(array):
            raise DatasetError(f"{dataset.path}: rows [{start}, {stop}) of {len(array)} {name}")
        rows: Array = array[start:stop]
        return rows

    return read


def _check_fields(dataset: ChunkedDataset) -> None:
    """Raises DatasetError where an array lacks a field that rows are made of, or has it of another type."""
    for name, kind in ARRAYS.items():
        found = getattr(dataset, name).dtype.fields or {}
        for field, (wanted, *_) in (kind.dtype.fields or {}).items():
            dtype = found[field][0] if field in found else None
            if dtype is None or not _fits(dtype, wanted):
                place = dataset.store.uri_of(f"{kind.key}/.zarray")
                said = "there is none" if dtype is None else f"it is {dtype}"
                raise DatasetError(f"{place}: rows take field {field!r} of type {wanted}, {said}")


def _fits(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    return dtype.shape == wanted.shape and np.can_cast(dtype.base, wanted.base, "same_kind")


class L5KitReader:
    """An L5Kit dataset as rows: a frame each, a log for each scene.

    A scene's log_id is its number in nine digits, so that rows are ordered as the frames are. Keeps
    compressed chunks, pickles without them, serves many threads.
    """

    schema = MAPPED_SCHEMA

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None):
        self.dataset = ChunkedDataset(path, storage_options=storage_options).open()
        _check_fields(self.dataset)
        self._bounds = np.asarray(self.dataset.scenes["frame_index_interval"], np.int64).reshape(-1, 2)
        starts, stops = self._bounds[:, 0], self._bounds[:, 1]
        expected = np.concatenate([[0], stops[:-1]]) if len(stops) else stops
        if (starts != expected).any() or (stops < starts).any() or (stops > len(self.dataset.frames)).any():
            raise DatasetError(f"{self.dataset.path}: the scenes' frames don't follow one another")

    @property
    def logs(self) -> Sequence[int]:
        """The scenes' numbers."""
        return range(len(self._bounds))

    def __len__(self) -> int:
        return int(self._bounds[-1, 1]) if len(self._bounds) else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.row(index)

    def row(self, index: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        index = range(len(self))[index]
        scene = int(np.searchsorted(self._bounds[:, 1], index, side="right"))
        (block,) = self._read(scene, index, index + 1, 1)
        return block.row(0, self.schema, self.schema.select(columns))

    def blocks(self, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20) -> Iterator[Block]:
        for scene in self.logs:
            yield from self.log_blocks(scene, columns, max_bytes)

    def log_blocks(
        self, scene: int, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20
    ) -> Iterator[Block]:
        """The rows of one scene, in order."""
        start, stop = map(int, self._bounds[scene])
        for block in self._read(scene, start, stop, max_bytes):
            yield select_columns(block, columns)

    def _read(self, scene: int, start: int, stop: int, max_bytes: int) -> Iterator[Block]:
        place = self.dataset.path
        return read_blocks(rows_of(self.dataset), start, stop, f"{scene:09}", "scene", place, max_bytes)


def select_columns(block: Block, patterns: Sequence[str] | None) -> Block:
    """The block with `timestamp` and the columns that match; None is all of them."""
    if patterns is None:
        return block
    names = ("timestamp", *MAPPED_SCHEMA.select(patterns))
    return Block(
        block.log_id, block.partition, block.first_row, {name: block.columns[name] for name in names}
    )
