"""Copies of L5Kit scenes as new datasets: concatenated, split or shortened.

Here: `zarr_concat`, `zarr_split` and `zarr_scenes_chop`, with the interface of the original.
Elsewhere: opening datasets (chunked_dataset), test sets with their ground truth
(logloom.datasets.l5kit.chopped_dataset).

A new dataset appears whole, and never replaces another.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.errors import DatasetError, UsageError
from logloom.io.formats.l5kit.chunked_dataset import ChunkedDataset
from logloom.io.formats.l5kit.dtypes import ARRAYS
from logloom.io.storage.filesystems import explained
from logloom.uris import is_local, path_of

logger = logging.getLogger(__name__)

GIGABYTE = 1 << 30


def zarr_concat(input_zarrs: Sequence[str], output_zarr: str) -> None:
    """Writes one dataset with the scenes of many, in their order.

    Args:
        input_zarrs: paths; one that holds no dataset is skipped with a warning.
        output_zarr: path of the new dataset.

    Raises:
        UsageError: there is something at `output_zarr`, or no dataset at any of the others.
        DatasetError: a dataset is damaged.
    """
    datasets = []
    for path in input_zarrs:
        try:
            datasets.append(ChunkedDataset(path).open())
        except DatasetError as error:
            logger.warning("skipped: %s", error)
    if not datasets:
        raise UsageError(f"none of {len(input_zarrs)} paths contains a dataset, so there is nothing to join")
    with _appearing(output_zarr) as made:
        _append(made, (d.get_scene_dataset(n) for d in datasets for n in range(len(d.scenes))))


def zarr_split(
    input_zarr: str, output_path: str, split_infos: Sequence[Mapping[str, Any]]
) -> list[tuple[int, int]]:
    """Writes datasets with some of the scenes each.

    Args:
        input_zarr: path or URI of the dataset.
        output_path: folder of the new datasets.
        split_infos: of each its `name` in that folder, and `split_size_GB`, about how many gigabytes of the
            dataset it takes; -1 for the last one, which takes the rest.

    Returns:
        The scenes [first, stop) of each.

    Raises:
        UsageError: the sizes don't end with -1, or leave nothing for the last; or something has a name.
        DatasetError: the dataset is damaged.
    """
    if not split_infos or split_infos[-1]["split_size_GB"] != -1:
        raise UsageError("split_infos: the last split has the rest, so its split_size_GB has to be -1")
    dataset = ChunkedDataset(input_zarr).open()
    total, size = len(dataset.scenes), _bytes_of(input_zarr) / GIGABYTE
    counts = [int(total * info["split_size_GB"] / size) for info in split_infos[:-1]]
    if sum(counts) >= total:
        raise UsageError(f"split_infos: {size:.6g} GB leave no scene for the last split; ask for less")
    stops = np.cumsum([*counts, total - sum(counts)]).tolist()
    cuts = list(zip([0, *stops], stops, strict=False))
    for (first, stop), info in zip(cuts, split_infos, strict=True):
        with _appearing(os.path.join(output_path, info["name"])) as made:
            _append(made, (dataset.get_scene_dataset(n) for n in range(first, stop)))
    return cuts


def zarr_scenes_chop(input_zarr: str, output_zarr: str, num_frames_to_copy: int) -> None:
    """Writes a dataset with the first frames of each scene.

    Args:
        input_zarr: path or URI of the dataset.
        num_frames_to_copy: of each scene.

    Raises:
        UsageError: a scene has no more frames than that, or there is something at `output_zarr`.
        DatasetError: the dataset is damaged.
    """
    dataset = ChunkedDataset(input_zarr).open()
    lengths = np.diff(dataset.scenes[:]["frame_index_interval"]).reshape(-1)
    short = np.flatnonzero(lengths <= num_frames_to_copy)
    if num_frames_to_copy < 1 or short.size:
        found = f"scene {short[0]} has {lengths[short[0]]}" if short.size else "it has to be at least 1"
        raise UsageError(f"{input_zarr}: can't copy {num_frames_to_copy} frames of each scene: {found}")
    with _appearing(output_zarr) as made:
        scenes = (dataset.get_scene_dataset(n) for n in range(len(lengths)))
        _append(made, (_first_frames(scene, num_frames_to_copy) for scene in scenes))


def _first_frames(scene: ChunkedDataset, num_frames: int) -> ChunkedDataset:
    """A scene in memory, cut short."""
    scene.frames = scene.frames[:num_frames]
    scene.scenes["frame_index_interval"] = 0, num_frames
    scene.agents = scene.agents[: scene.frames["agent_index_interval"][-1, 1]]
    scene.tl_faces = scene.tl_faces[: scene.frames["traffic_light_faces_index_interval"][-1, 1]]
    return scene


def _append(made: ChunkedDataset, scenes: Iterable[ChunkedDataset]) -> None:
    """Appends scenes in memory, their intervals counted from their own rows."""
    for scene in scenes:
        scene.scenes["frame_index_interval"] += len(made.frames)
        scene.frames["agent_index_interval"] += len(made.agents)
        scene.frames["traffic_light_faces_index_interval"] += len(made.tl_faces)
        for name in ARRAYS:
            rows = getattr(scene, name)
            if len(rows):
                getattr(made, name).append(rows)


@contextlib.contextmanager
def _appearing(path: str) -> Iterator[ChunkedDataset]:
    """An empty dataset to write, that takes the place `path` only if the block succeeds."""
    if not is_local(path):
        raise UsageError(f"{path}: a new dataset is written to a disk; copy it there afterwards")
    target = pathlib.Path(path_of(path))
    if target.exists():
        raise UsageError(f"{target}: there is something already; name another place, or remove it")
    with explained(str(target)):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
            partial = pathlib.Path(scratch) / target.name
            yield ChunkedDataset(partial).initialize()
            partial.rename(target)


def _bytes_of(path: str) -> int:
    """The size of a dataset's files."""
    place = pathlib.Path(path)
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file())
