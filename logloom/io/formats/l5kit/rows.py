"""Conversion of L5Kit frames, with agents and lights, to blocks.

The blocks have the columns of `MAPPED_SCHEMA`.

Here: conversion of structured arrays to blocks.
Elsewhere: whole datasets (reader), the opposite conversion (mapping, stage), the arrays (chunked_dataset).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Block, Ragged, cut_by_bytes
from logloom.errors import DatasetError
from logloom.io.formats.l5kit.chunked_dataset import ChunkedDataset
from logloom.io.formats.l5kit.dtypes import AGENTS, ARRAYS, FRAMES, TL_FACES

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
        for low, high in cut_by_bytes(np.concatenate([[0], np.cumsum(sizes)]), max_bytes):
            yield _block(read, frames[low:high], log_id, partition, first - start + low)


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


def check_fields(dataset: ChunkedDataset) -> None:
    """Raises DatasetError where an array lacks a field that rows are made of, or has it of another type."""
    for name, kind in ARRAYS.items():
        found = getattr(dataset, name).dtype.fields or {}
        for field, (wanted, *_) in (kind.dtype.fields or {}).items():
            dtype = found[field][0] if field in found else None
            if dtype is None or not _fits(dtype, wanted):
                place = dataset.store.uri_of(f"{kind.key}/.zarray")
                problem = "there is none" if dtype is None else f"it is {dtype}"
                raise DatasetError(f"{place}: rows take field {field!r} of type {wanted}, {problem}")


def _fits(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    return dtype.shape == wanted.shape and np.can_cast(dtype.base, wanted.base, "same_kind")


def select_columns(block: Block, names: Sequence[str]) -> Block:
    """The block with `timestamp` and the named columns."""
    columns = {name: block.columns[name] for name in ("timestamp", *names)}
    return Block(block.log_id, block.partition, block.first_row, columns)
