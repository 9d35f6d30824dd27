"""Masks of agents stored in a dataset, as arrays such as `agents_mask/0.5`.

The original client finds them under these names.

Here: making their chunks from staged units, opening and checking them.
Elsewhere: the meaning of the counts (mask), the arrays that they belong to (assemble).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.io.formats.assembly import ranges_within
from logloom.io.formats.interface import unit_name
from logloom.io.formats.l5kit.array_reader import ChunkedArray
from logloom.io.formats.l5kit.chunked_dataset import ChunkedDataset
from logloom.io.formats.l5kit.dtypes import ARRAYS
from logloom.io.formats.l5kit.mask import MaskThresholds, mask_of_rows
from logloom.io.formats.l5kit.metadata import ArrayMetadata, group_files
from logloom.io.formats.l5kit.rows import rows_of
from logloom.io.formats.stages import read_entries, staged_file
from logloom.io.storage.store import Store
from logloom.values import dataclass

FOLDER = "agents_mask"
ROW_SHAPE = (2,)  # frames in the past and in the future
_DTYPE = np.dtype(("<u4", ROW_SHAPE))


def _metadata(num_agents: int) -> ArrayMetadata:
    """A chunk of a mask is of the same agents as one of theirs."""
    return ArrayMetadata(num_agents, ARRAYS["agents"].chunk_rows, _DTYPE)


def array_name(probability: float | str) -> str:
    """The array of the mask for a probability, as the original client spells it."""
    return f"{FOLDER}/{probability}"


@dataclass(frozen=True)
class MaskTask:
    """One chunk of a mask: the agents [start, stop).

    Attributes:
        folders: of all units that hold frames of these agents' scenes.
        edges: by array, the start of each of these units in the dataset, then the end of the last.
        bounds: frames where these scenes begin, then where the last of them ends.
    """

    probability: float
    index: int
    start: int
    stop: int
    folders: tuple[str, ...]
    edges: Mapping[str, Sequence[int]]
    bounds: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{array_name(self.probability)}/{_metadata(0).chunk_name(self.index)}"

    @property
    def inputs(self) -> list[Any]:
        """The inputs of its bytes (JSON)."""
        edges = [list(self.edges[name]) for name in ("frames", "agents")]
        return [list(map(unit_name, self.folders)), edges, list(self.bounds), self.start, self.stop]


def mask_tasks(
    probabilities: Sequence[float], folders: Sequence[str], starts: Mapping[str, Sequence[int]], scenes: Array
) -> list[MaskTask]:
    """The chunks of a dataset's masks.

    Args:
        folders: of its units, in order.
        starts: by array, where each unit begins in it, then where the last one ends.
        scenes: (S, 2) their frames, [start, stop), end to end.
    """
    frames, agents = starts["frames"], starts["agents"]
    tasks: list[MaskTask] = []
    total, step = agents[-1], ARRAYS["agents"].chunk_rows
    scene_edges = np.append(scenes[:, 0], scenes[-1:, 1])
    for index, start in enumerate(range(0, total, step)):
        stop = min(start + step, total)
        # The units of these agents, the scenes of these units, and the units of these scenes.
        begin, end = _overlapping(agents, start, stop)
        first, last = _overlapping(scene_edges, frames[begin], frames[end])
        bounds = tuple(scene_edges[first : last + 1].tolist())
        begin, end = _overlapping(frames, bounds[0], bounds[-1])
        edges = {name: tuple(starts[name][begin : end + 1]) for name in ("frames", "agents")}
        own = tuple(folders[begin:end]), edges
        tasks += [MaskTask(probability, index, start, stop, *own, bounds) for probability in probabilities]
    return tasks


def _overlapping(edges: Sequence[int] | Array, start: int, stop: int) -> tuple[int, int]:
    """Which of the intervals between ascending edges overlap [start, stop)."""
    begin = np.searchsorted(edges, start, side="right") - 1
    return int(begin), int(np.searchsorted(edges, stop, side="left"))


def mask_files(probabilities: Sequence[float], num_agents: int) -> dict[str, bytes]:
    """The metadata of a dataset's masks, by file name."""
    metadata = _metadata(num_agents).to_bytes()
    files = {f"{array_name(probability)}/.zarray": metadata for probability in probabilities}
    return files and files | {f"{FOLDER}/.zgroup": group_files()[".zgroup"]}


def make_mask_chunk(store: Store, task: MaskTask) -> tuple[str, bytes]:
    """Make the name and the bytes of one chunk.

    Raises:
        DatasetError: a staged file is missing or too short.
    """

    def read(name: str, start: int, stop: int) -> Array:
        parts = [np.empty(0, ARRAYS[name].dtype)]
        for number, first, last in ranges_within(task.edges[name], start, stop):
            file = staged_file(store, f"{task.folders[number]}/{name}")
            rows = read_entries(file, first, last, ARRAYS[name].dtype)
            if name == "frames":
                rows["agent_index_interval"] += task.edges["agents"][number]
            parts.append(rows)
        return np.concatenate(parts)

    thresholds = MaskThresholds(task.probability)
    mask = mask_of_rows(read, task.bounds, task.start, task.stop, thresholds, store.uri)
    return task.name, _metadata(0).encode(mask)


def open_mask(dataset: ChunkedDataset, probability: str) -> ChunkedArray | None:
    """Open the mask stored in a dataset for a probability; None if there is none.

    Raises:
        DatasetError: it isn't two counts for each agent.
    """
    store, name = dataset.store, array_name(probability)
    if not store.exists(f"{name}/.zarray"):
        return None
    mask = ChunkedArray(store, name, row_shape=ROW_SHAPE)
    if len(mask) != len(dataset.agents):
        raise DatasetError(
            f"{store.uri_of(name)}: {len(mask)} rows, it should contain two counts for each of "
            f"{len(dataset.agents)} agents; remove it to have it computed"
        )
    return mask


def is_fresh_chunk(fresh: Collection[str] | None, name: str, index: int, chunk_rows: int, rows: int) -> bool:
    """Whether a chunk is to be read back: it is named, or the last of its array, which isn't full."""
    return fresh is None or name in fresh or (index + 1) * chunk_rows > rows


def mask_problems(
    dataset: ChunkedDataset, probability: str, num_rows: int, fresh: Collection[str] | None = None
) -> Iterator[str]:
    """List where a dataset's mask differs from its agents.

    Args:
        fresh: the full chunks to read; None for all.
    """
    scenes = dataset.scenes[:]["frame_index_interval"]
    bounds = [*scenes[:, 0].tolist(), *scenes[-1:, 1].tolist()]
    mask = open_mask(dataset, probability)
    if mask is None:
        yield "its .zarray is missing"
        return
    if len(mask) != num_rows:
        yield f"{len(mask)} rows, {num_rows} were written"
        return
    thresholds = MaskThresholds(float(probability))
    step = ARRAYS["agents"].chunk_rows
    edges = [*range(0, num_rows, step), num_rows]
    for index, (start, stop) in enumerate(itertools.pairwise(edges)):
        chunk = f"{array_name(probability)}/{_metadata(0).chunk_name(index)}"
        if not is_fresh_chunk(fresh, chunk, index, step, num_rows):
            continue
        expected = mask_of_rows(rows_of(dataset), bounds, start, stop, thresholds, dataset.path)
        wrong = np.flatnonzero((mask[start:stop] != expected).any(axis=1))
        if wrong.size:
            yield f"differs from what was written (agent {start + int(wrong[0])})"
            return
