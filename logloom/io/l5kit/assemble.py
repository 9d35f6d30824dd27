"""One L5Kit dataset from the staged units of a split: its plan, its chunks, and the proof of it.

Here: pure functions; each chunk is made from the ranges of units it needs, by one worker, in any order.
Elsewhere: staged units (stage), masks of agents (mask_chunks), where chunks are published (the caller).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from logloom.blocks import Array
from logloom.digests import ColumnDigest, RowsDigest, digest_of
from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.io.l5kit.array import ChunkedArray
from logloom.io.l5kit.chunked import ChunkedDataset
from logloom.io.l5kit.dtypes import ARRAYS, SCENES
from logloom.io.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.l5kit.mask_chunks import MaskTask, make_mask_chunk, mask_differences, mask_files, mask_tasks
from logloom.io.l5kit.metadata import ArrayMetadata, group_files
from logloom.io.l5kit.options import L5KitOptions, gap_limit, host_of
from logloom.io.l5kit.rows import INTERVALS, read_blocks, rows_of
from logloom.io.l5kit.stage import Runs, read_rows
from logloom.io.metadata import Count, Text
from logloom.io.storage import Store
from logloom.io.units import AssemblyPlan
from logloom.schema import ColumnType

_STAGED = ("frames", "agents", "tl_faces")
_CHECK_BYTES = 16 << 20


@dataclass(frozen=True)
class StagedL5Kit:
    """A finished unit, as assembly needs to know it.

    Attributes:
        log_uri: the log's first file; gives the host.
        folder: of the unit, within the store.
        unit: what its writer's `close` gave.
        digest: of its mapped rows, over all columns.
    """

    log_id: str
    log_uri: str
    folder: str
    unit: Mapping[str, Any]
    digest: str

    @property
    def rows(self) -> Mapping[str, int]:
        rows: Mapping[str, int] = self.unit["rows"]
        return rows


@dataclass(frozen=True)
class L5KitPiece:
    """Rows [start, stop) of one unit's array.

    Attributes:
        bases: for frames: how many agents and faces the dataset holds before those of this unit.
    """

    folder: str
    start: int
    stop: int
    bases: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class L5KitChunkTask:
    """One chunk of one array.

    Attributes:
        array: "scenes", "frames", "agents" or "tl_faces".
        pieces: what it holds, in order.
        literal: the rows themselves, for scenes.
    """

    array: str
    index: int
    pieces: tuple[L5KitPiece, ...] = ()
    literal: bytes = b""


def plan_assembly(units: Sequence[StagedL5Kit], options: L5KitOptions, period: int | None) -> AssemblyPlan:
    """Plans the dataset of some units; reads nothing.

    Args:
        units: in row order, (log_id, span).
        period: of a rate clock, in ns; None for a topic clock.

    Raises:
        UsageError: a host is too long.
        DatasetError: the units are out of order.
    """
    scenes = make_scenes(units, options, gap_limit(options, period))
    totals = {name: sum(unit.rows[name] for unit in units) for name in _STAGED}
    tasks: list[L5KitChunkTask | MaskTask] = [*_scene_tasks(scenes)]
    for name in _STAGED:
        tasks += _chunk_tasks(name, units)
    places = [(unit.folder, unit.rows["frames"], unit.rows["agents"]) for unit in units]
    tasks += mask_tasks(options.masks, places, scenes["frame_index_interval"])
    files = group_files() | mask_files(options.masks, totals["agents"])
    for name, rows in {"scenes": len(scenes), **totals}.items():
        files[f"{ARRAYS[name].key}/.zarray"] = _metadata(name, rows).to_bytes()
    parts = [[u.log_id, u.unit["partition"], *(u.rows[name] for name in _STAGED), u.digest] for u in units]
    masks = {str(probability): totals["agents"] for probability in options.masks}
    return AssemblyPlan(tasks, files, {"scenes": _scenes_digest(scenes), "parts": parts, "masks": masks})


def _metadata(name: str, rows: int) -> ArrayMetadata:
    return ArrayMetadata(rows, ARRAYS[name].chunk_rows, ARRAYS[name].dtype)


def make_scenes(units: Sequence[StagedL5Kit], options: L5KitOptions, limit: int | None) -> Array:
    """The rows of the scenes array: one for each stretch of a log's frames without a gap over `limit` ns."""
    scenes: list[tuple[tuple[int, int], str, int, int]] = []
    frames = 0
    for begin, end in _logs(units):
        runs = Runs(limit)
        for unit in units[begin:end]:
            for start, stop, first, last in unit.unit["runs"]:
                if runs.found and first <= runs.found[-1][3]:
                    raise DatasetError(f"{unit.folder}: its rows don't come after those before them")
                runs.add_run(stop - start, first, last)
        host = host_of(options, units[begin].log_uri, units[begin].log_id)
        scenes += [((frames + a, frames + b), host, first, last) for a, b, first, last in runs.found]
        frames += runs.found[-1][1] if runs.found else 0
    return np.array(scenes, SCENES.dtype)


def _logs(units: Sequence[StagedL5Kit]) -> Iterator[tuple[int, int]]:
    """Ranges of units that belong to one log."""
    begin = 0
    for end in range(1, len(units) + 1):
        if end == len(units) or units[end].log_id != units[begin].log_id:
            yield begin, end
            begin = end


def _scene_tasks(scenes: Array) -> list[L5KitChunkTask]:
    step = SCENES.chunk_rows
    return [
        L5KitChunkTask("scenes", index, literal=scenes[start : start + step].tobytes())
        for index, start in enumerate(range(0, len(scenes), step))
    ]


def _chunk_tasks(name: str, units: Sequence[StagedL5Kit]) -> list[L5KitChunkTask]:
    starts = {array: _starts(units, array) for array in _STAGED}
    own, step = starts[name], ARRAYS[name].chunk_rows
    tasks = []
    for index, first in enumerate(range(0, own[-1], step)):
        last = min(first + step, own[-1])
        begin = int(np.searchsorted(own, first, side="right")) - 1
        pieces = []
        for i in range(begin, len(units)):
            if own[i] >= last:
                break
            start, stop = max(first, own[i]) - own[i], min(last, own[i + 1]) - own[i]
            if start < stop:
                bases = (starts["agents"][i], starts["tl_faces"][i]) if name == "frames" else (0, 0)
                pieces.append(L5KitPiece(units[i].folder, start, stop, bases))
        tasks.append(L5KitChunkTask(name, index, tuple(pieces)))
    return tasks


def _starts(units: Sequence[StagedL5Kit], name: str) -> list[int]:
    """(len(units) + 1) where each unit's rows start in the dataset's array."""
    return [0, *map(int, np.cumsum([unit.rows[name] for unit in units], dtype=np.int64))]


def make_chunk(store: Store, task: L5KitChunkTask | MaskTask) -> tuple[str, bytes]:
    """The name and the bytes of one chunk.

    Raises:
        DatasetError: a staged file is missing or too short.
    """
    if isinstance(task, MaskTask):
        return make_mask_chunk(store, task)
    kind = ARRAYS[task.array]
    parts = [np.frombuffer(task.literal, kind.dtype)]
    for piece in task.pieces:
        rows = read_rows(store, f"{piece.folder}/{task.array}", kind.dtype, piece.start, piece.stop)
        if task.array == "frames":
            rows = rows.copy()
            for field, base in zip(INTERVALS.values(), piece.bases, strict=True):
                rows[field] += base
        parts.append(rows)
    return f"{kind.key}/{task.index}", _metadata(task.array, 0).encode(np.concatenate(parts))


class L5KitPlanJson(BaseModel):
    """What an `AssemblyPlan` says; of each unit log_id, partition, frames, agents, faces and digest."""

    scenes: Text
    parts: tuple[tuple[Text, Text, Count, Count, Count, Text], ...]
    masks: Mapping[str, Count] = Field(default_factory=dict)


# --- proof ----------------------------------------------------------------------------------------------


def differences(
    folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Says how a dataset, read through `ChunkedDataset`, differs from the rows that were staged for it.

    Args:
        folder: URI of the dataset.
        unit: of its `AssemblyPlan`.

    Raises:
        StorageError: it can't be read.
    """
    try:
        dataset = ChunkedDataset(folder, storage_options=storage_options).open()
        yield from _size_differences(dataset, unit)
        if _scenes_digest(dataset.scenes[:]) != unit["scenes"]:
            yield f"{folder}: the scenes differ from what was written"
    except StorageError:
        raise
    except (LogloomError, ValueError) as error:
        yield f"{folder}: {error}"
        return
    frame, agents, tl_faces = 0, 0, 0
    for log_id, partition, *counts, digest in unit["parts"]:
        bounds = {"agents": (agents, agents + counts[1]), "tl_faces": (tl_faces, tl_faces + counts[2])}
        problem = _part_difference(dataset, frame, frame + counts[0], bounds, log_id, digest)
        if problem:
            yield f"{folder}: {problem} (frames {frame} to {frame + counts[0]}, {log_id} {partition})"
        frame, agents, tl_faces = (
            n + count for n, count in zip((frame, agents, tl_faces), counts, strict=True)
        )
    for name, rows in unit.get("masks", {}).items():
        yield from (f"{folder}: {problem}" for problem in mask_differences(dataset, name, rows))


def _size_differences(dataset: ChunkedDataset, unit: Mapping[str, Any]) -> Iterator[str]:
    for place, name in enumerate(_STAGED, 2):
        array, expected = getattr(dataset, name), sum(part[place] for part in unit["parts"])
        if len(array) != expected:
            yield f"{dataset.path}: {len(array)} {name}, {expected} were written"
        if not isinstance(array, ChunkedArray) or array.dtype != ARRAYS[name].dtype:
            yield f"{dataset.path}: {name} are of another type than was written"


def _part_difference(
    dataset: ChunkedDataset,
    start: int,
    stop: int,
    bounds: Mapping[str, tuple[int, int]],
    log_id: str,
    digest: str,
) -> str:
    """How the rows of one unit differ, or ""."""
    found = RowsDigest(MAPPED_SCHEMA)
    try:
        for name, (first, last) in bounds.items():
            ends = [rows_of(dataset)("frames", at, at + 1)[INTERVALS[name]][0] for at in (start, stop - 1)]
            if (int(ends[0][0]), int(ends[1][1])) != (first, last):
                return f"the intervals of {name} differ from what was written"
        for block in read_blocks(rows_of(dataset), start, stop, log_id, "", dataset.path, _CHECK_BYTES):
            found.update(block)
    except StorageError:
        raise
    except (LogloomError, ValueError) as error:
        return str(error)
    same = digest_of(found.hexdigests()) == digest
    return "" if same else "the rows read back differ from what was written"


def _scenes_digest(scenes: Array) -> str:
    digest = ColumnDigest("scenes", ColumnType(SCENES.dtype))
    digest.update(scenes)
    return digest.hexdigest()
