"""Writer and reader of a staged unit of an L5Kit dataset.

A staged unit is up to three files of packed little-endian rows: `frames`, `agents` and `tl_faces`, with the
frames' intervals counted from the unit's own first agent and face; an array without rows has no file.
Elsewhere: mapping columns to fields (mapping), assembly of units to one dataset (assemble).
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from logloom.blocks import Array, Block, Ragged
from logloom.digests import RowsDigest
from logloom.errors import DatasetError, LogReadError
from logloom.io.formats.interface import UnitContext
from logloom.io.formats.l5kit.dtypes import ARRAYS, FRAMES
from logloom.io.formats.l5kit.mapping import MAPPED_SCHEMA, mapping_of
from logloom.io.formats.l5kit.options import L5KitOptions, gap_limit, host_of
from logloom.io.formats.l5kit.rows import INTERVALS, read_blocks, select_columns
from logloom.io.formats.stages import StageReader, StageWriter, read_entries
from logloom.io.storage.metadata import Count, Int64, Text
from logloom.schema import Schema


class L5KitStageWriter(StageWriter):
    """Writes the staged files of one partition into a local folder."""

    def __init__(self, directory: pathlib.Path, schema: Schema, options: L5KitOptions, context: UnitContext):
        """Prepares a unit.

        Raises:
            UsageError: the columns don't fit, or the host is too long.
        """
        super().__init__(directory, context)
        self._mapping = mapping_of(options, schema)
        host_of(options, context.log_uri, context.log_id)  # assembly would fail on it, after the whole build
        self._counts_runs = bool(options.masks)
        self._runs = Runs(gap_limit(options, context.period))
        self._digest = RowsDigest(MAPPED_SCHEMA)
        self._rows = {"frames": 0, "agents": 0, "tl_faces": 0}

    def stage(self, block: Block) -> None:
        mapped = Block(block.log_id, block.partition, block.first_row, self._mapping.apply(block))
        if self._counts_runs:
            _check_tracks(mapped)
        self._digest.update(mapped)
        self._runs.add(mapped.timestamp)
        frames = np.zeros(len(mapped), FRAMES.dtype)
        for name in ("timestamp", "ego_translation", "ego_rotation"):
            frames[name] = mapped.columns[name]
        for name, field in INTERVALS.items():
            structs = mapped.columns[name]
            assert isinstance(structs, Ragged)
            bounds = structs.offsets + self._rows[name]
            frames[field] = np.stack([bounds[:-1], bounds[1:]], axis=1)
            self.put(name, structs.values)
            self._rows[name] += len(structs.values)
        self.put("frames", frames)
        self._rows["frames"] += len(frames)

    def metadata(self) -> dict[str, Any]:
        """
        Returns:
            columns: digests of the mapped rows; rows: of each array; runs: [start, stop, first, last] of
            frames without a gap between them, `first` and `last` being their times.
        """
        return {"columns": self._digest.hexdigests(), "rows": self._rows, "runs": self._runs.found}


def _check_tracks(block: Block) -> None:
    """Refuse tracks that a mask could not count."""
    agents = block.columns["agents"]
    assert isinstance(agents, Ragged)
    tracks = agents.values["track_id"]
    rows = np.repeat(np.arange(len(block)), agents.lengths)
    order = np.lexsort((tracks, rows))
    tracks, rows = tracks[order], rows[order]
    twice = np.flatnonzero((tracks[1:] == tracks[:-1]) & (rows[1:] == rows[:-1]))
    if twice.size:
        row = int(rows[twice[0]])
        raise LogReadError(
            f"{block.log_id} {block.partition}: track {tracks[twice[0]]} is twice among agents at "
            f"{block.timestamp[row]}, so no mask can count its frames; correct the tracks, or leave masks "
            "out: outputs: {l5kit: {masks: []}}"
        )


class Runs:
    """Runs of frames in which neighbours are at most `limit` ns apart.

    Attributes:
        found: [start, stop, first, last] each: frames [start, stop), times of the first and the last.
    """

    def __init__(self, limit: int | None):
        self.limit = limit
        self.found: list[list[int]] = []

    def add(self, times: NDArray[np.int64]) -> None:
        """Add the times of the next frames, ascending."""
        far = np.diff(times) > self.limit if self.limit is not None else np.zeros(len(times) - 1, bool)
        edges = [0, *map(int, np.flatnonzero(far) + 1), len(times)]
        for start, stop in itertools.pairwise(edges):
            self.add_run(stop - start, int(times[start]), int(times[stop - 1]))

    def add_run(self, frames: int, first: int, last: int) -> None:
        """Add consecutive frames after those before; joins them if no gap is between."""
        latest = self.found[-1] if self.found else None
        if latest is not None and (self.limit is None or first - latest[3] <= self.limit):
            latest[1] += frames
            latest[3] = last
        else:
            start = latest[1] if latest is not None else 0
            self.found.append([start, start + frames, first, last])


def joined_runs(units: Iterable[Mapping[str, Any]], limit: int | None) -> list[list[int]]:
    """Join the runs of the units of a log; see `Runs.found`.

    Args:
        units: what their writers returned, in row order.
    """
    runs = Runs(limit)
    for unit in units:
        for start, stop, first, last in unit["runs"]:
            runs.add_run(stop - start, first, last)
    return runs.found


class _RowsJson(BaseModel):
    frames: Count
    agents: Count
    tl_faces: Count


class ClosedL5Kit(BaseModel):
    """The result of `L5KitStageWriter.close`."""

    log_id: Text
    partition: Text
    rows: _RowsJson
    runs: tuple[tuple[Count, Count, Int64, Int64], ...]


class L5KitStageReader(StageReader):
    """The mapped rows of a staged unit."""

    closed = ClosedL5Kit

    def __len__(self) -> int:
        return int(self.unit["rows"]["frames"]) if self.unit else 0

    def read(self, names: Sequence[str], start: int, stop: int, max_bytes: int) -> Iterator[Block]:
        if start < stop:
            of_unit = self.unit["log_id"], self.unit["partition"]
            for block in read_blocks(self._rows, start, stop, *of_unit, self.store.uri, max_bytes):
                yield select_columns(block, names)

    def _rows(self, name: str, start: int, stop: int) -> Array:
        if stop > self.unit["rows"][name]:
            place = self.store.uri_of("frames")
            raise DatasetError(f"{place}: names {stop} {name} of {self.unit['rows'][name]}: damaged")
        return read_entries(self.file(name), start, stop, ARRAYS[name].dtype)
