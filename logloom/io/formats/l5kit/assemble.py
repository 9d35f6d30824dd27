"""Assembly of a split's L5Kit dataset: plan, chunks and verification.

Here: pure functions; each chunk is made from the ranges of units it needs, by one worker, in any order.
Elsewhere: staged units (stage), masks of agents (mask_chunks), publishing chunks (the caller).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from blake3 import blake3

from logloom.blocks import Array
from logloom.digests import ColumnDigest, digest_of, digests_of_rows
from logloom.errors import DatasetError
from logloom.io.formats import assembly
from logloom.io.formats.interface import AssemblyPlan, PlannedPortion, StagedUnit, unit_name
from logloom.io.formats.l5kit import mask_chunks
from logloom.io.formats.l5kit.array_reader import ChunkedArray
from logloom.io.formats.l5kit.chunked_dataset import ChunkedDataset
from logloom.io.formats.l5kit.dtypes import ARRAYS, SCENES
from logloom.io.formats.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.formats.l5kit.metadata import ArrayMetadata, group_files
from logloom.io.formats.l5kit.options import L5KitOptions, gap_limit, host_of
from logloom.io.formats.l5kit.rows import INTERVALS, read_blocks, rows_of
from logloom.io.formats.l5kit.stage import joined_runs
from logloom.io.formats.stages import read_entries, staged_file
from logloom.io.storage.store import Store
from logloom.schema import ColumnType
from logloom.values import dataclass

_STAGED = ("frames", "agents", "tl_faces")


@dataclass(frozen=True)
class L5KitChunkTask:
    """One chunk of one array.

    Attributes:
        array: "scenes", "frames", "agents" or "tl_faces".
        pieces: its content, in order.
        literal: the rows themselves, for scenes.
    """

    array: str
    index: int
    pieces: tuple[assembly.UnitRange, ...] = ()
    literal: bytes = b""

    @property
    def name(self) -> str:
        return f"{ARRAYS[self.array].key}/{self.index}"

    @property
    def inputs(self) -> list[Any]:
        """The inputs of its bytes (JSON)."""
        pieces = [[unit_name(p.folder), p.start, p.stop, p.rows, *p.bases] for p in self.pieces]
        return [pieces, blake3(self.literal).hexdigest()]


def plan_assembly(units: Sequence[StagedUnit], options: L5KitOptions, period: int | None) -> AssemblyPlan:
    """Plans the dataset of some units; reads nothing.

    Args:
        units: in row order, (log_id, span).
        period: of a rate clock, in ns; None for a topic clock.

    Raises:
        UsageError: a host is too long.
        DatasetError: the units are out of order.
    """
    scenes = make_scenes(units, options, gap_limit(options, period))
    starts = {name: [0, *accumulate(int(unit.unit["rows"][name]) for unit in units)] for name in _STAGED}
    totals = {name: found[-1] for name, found in starts.items()}
    tasks: list[L5KitChunkTask | mask_chunks.MaskTask] = [*_scene_tasks(scenes)]
    for name in _STAGED:
        tasks += _chunk_tasks(name, units, starts)
    folders = [unit.folder for unit in units]
    tasks += mask_chunks.mask_tasks(options.masks, folders, starts, scenes["frame_index_interval"])
    files = group_files() | mask_chunks.mask_files(options.masks, totals["agents"])
    for name, rows in {"scenes": len(scenes), **totals}.items():
        files[f"{ARRAYS[name].key}/.zarray"] = _metadata(name, rows).to_bytes()
    parts = assembly.parts_json(units, counts=lambda unit: [unit.unit["rows"][name] for name in _STAGED])
    masks = {str(probability): totals["agents"] for probability in options.masks}
    about = {"scenes": _scenes_digest(scenes), "parts": parts, "masks": masks}
    portions = list(_portions(tasks, len(scenes), totals))
    reads = [
        task.folders if isinstance(task, mask_chunks.MaskTask) else [piece.folder for piece in task.pieces]
        for task in tasks
    ]
    return AssemblyPlan(tasks, files, about, portions=portions, reads=reads)


def _portions(
    tasks: Sequence[L5KitChunkTask | mask_chunks.MaskTask], scenes: int, totals: Mapping[str, int]
) -> Iterator[PlannedPortion]:
    """Plan a portion for each full chunk; the last of an array changes with the next log."""
    rows = {"scenes": scenes, **totals}
    for number, task in enumerate(tasks):
        array = "agents" if isinstance(task, mask_chunks.MaskTask) else task.array
        if (task.index + 1) * ARRAYS[array].chunk_rows <= rows[array]:
            yield PlannedPortion(task.name, task.inputs, (number, number + 1))


def _metadata(name: str, rows: int) -> ArrayMetadata:
    return ArrayMetadata(rows, ARRAYS[name].chunk_rows, ARRAYS[name].dtype)


def make_scenes(units: Sequence[StagedUnit], options: L5KitOptions, limit: int | None) -> Array:
    """Make the rows of the scenes array: one for each run of a log's frames without a gap over `limit` ns."""
    scenes: list[tuple[tuple[int, int], str, int, int]] = []
    frames = 0
    for log_id, own in assembly.by_log(units, lambda unit: [run[2:] for run in unit.unit["runs"]]).items():
        runs = joined_runs((unit.unit for unit in own), limit)
        host = own[0].catalogued.host or host_of(options, own[0].log_uri, log_id)
        scenes += [((frames + a, frames + b), host, first, last) for a, b, first, last in runs]
        frames += runs[-1][1] if runs else 0
    return np.array(scenes, SCENES.dtype)


def _scene_tasks(scenes: Array) -> list[L5KitChunkTask]:
    step = SCENES.chunk_rows
    return [
        L5KitChunkTask("scenes", index, literal=scenes[start : start + step].tobytes())
        for index, start in enumerate(range(0, len(scenes), step))
    ]


def _chunk_tasks(
    name: str, units: Sequence[StagedUnit], starts: Mapping[str, Sequence[int]]
) -> Iterator[L5KitChunkTask]:
    own, step = starts[name], ARRAYS[name].chunk_rows
    counted = [starts["agents"], starts["tl_faces"]] if name == "frames" else []
    for index, first in enumerate(range(0, own[-1], step)):
        pieces = tuple(
            assembly.UnitRange(
                units[i].folder, start, stop, own[i + 1] - own[i], tuple(base[i] for base in counted)
            )
            for i, start, stop in assembly.ranges_within(own, first, min(first + step, own[-1]))
        )
        yield L5KitChunkTask(name, index, pieces)


def make_chunk(store: Store, task: L5KitChunkTask | mask_chunks.MaskTask) -> tuple[str, bytes]:
    """Make the name and the bytes of one chunk.

    Raises:
        DatasetError: a staged file is missing or too short.
    """
    if isinstance(task, mask_chunks.MaskTask):
        return mask_chunks.make_mask_chunk(store, task)
    kind = ARRAYS[task.array]
    parts = [np.frombuffer(task.literal, kind.dtype)]
    for piece in task.pieces:
        file = staged_file(store, f"{piece.folder}/{task.array}")
        rows = read_entries(file, piece.start, piece.stop, kind.dtype)
        for field, base in zip(INTERVALS.values(), piece.bases, strict=False):  # of frames alone
            rows[field] += base
        parts.append(rows)
    return task.name, _metadata(task.array, 0).encode(np.concatenate(parts))


# --- proof ----------------------------------------------------------------------------------------------


def problems(
    folder: str,
    unit: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    fresh: Collection[str] | None = None,
) -> Iterator[str]:
    """Compare a dataset, read through its reader, with the rows that were staged for it.

    Args:
        fresh: the full chunks to read, beside those that aren't full; None for all.
    """
    dataset = ChunkedDataset(folder, storage_options=storage_options).open()
    yield from _size_problems(dataset, unit)
    if _scenes_digest(dataset.scenes[:]) != unit["scenes"]:
        yield "the scenes differ from what was written"
    read = rows_of(dataset)

    def digest(part: assembly.UnitRanges) -> str:
        (start, stop), *others = part.ranges
        for name, wanted in zip(INTERVALS, others, strict=True):
            ends = [read("frames", at, at + 1)[INTERVALS[name]][0] for at in (start, stop - 1)]
            if (int(ends[0][0]), int(ends[1][1])) != wanted:
                raise DatasetError(f"the intervals of {name} differ from what was written")
        blocks = read_blocks(read, start, stop, part.log_id, "", dataset.path, assembly.CHECK_BYTES)
        return digest_of(digests_of_rows(blocks, MAPPED_SCHEMA))

    kinds = [ARRAYS[name] for name in _STAGED]

    def is_fresh(part: assembly.UnitRanges) -> bool:
        return any(
            mask_chunks.is_fresh_chunk(
                fresh, f"{kind.key}/{index}", index, kind.chunk_rows, len(getattr(dataset, name))
            )
            for name, kind, (start, stop) in zip(_STAGED, kinds, part.ranges, strict=True)
            for index in range(start // kind.chunk_rows, -(-stop // kind.chunk_rows))
        )

    yield from assembly.part_problems(unit, digest, is_fresh)
    for name, rows in unit.get("masks", {}).items():
        yield from assembly.problems_at(
            mask_chunks.array_name(name), partial(mask_chunks.mask_problems, dataset, name, rows, fresh)
        )


def _size_problems(dataset: ChunkedDataset, unit: Mapping[str, Any]) -> Iterator[str]:
    for place, name in enumerate(_STAGED, 2):
        array, expected = getattr(dataset, name), sum(part[place] for part in unit["parts"])
        if len(array) != expected:
            yield f"{len(array)} {name}, {expected} were written"
        if not isinstance(array, ChunkedArray):  # datasets from elsewhere may lack one
            yield f"{ARRAYS[name].key}/.zarray: missing"
        elif array.dtype != ARRAYS[name].dtype:
            yield f"{name} are of another type than was written"


def _scenes_digest(scenes: Array) -> str:
    digest = ColumnDigest("scenes", ColumnType(SCENES.dtype))
    digest.update(scenes)
    return digest.hexdigest()
